from __future__ import annotations

import pytest

from gantrymq.errors import NotFound, RemoteProtocolError, SubscriptionMissing
from gantrymq.protocol.pulling import (
    LitePullMessage,
    PullFlag,
    PullMessage,
    PullReply,
    PullStatus,
    QueryMessages,
    QueryMessagesReply,
    ViewMessage,
)
from gantrymq.wire.command import Command

FIELDS = {
    "consumerGroup": "CG", "topic": "T", "queueId": "2", "queueOffset": "8812", "maxMsgNums": "32",
    "sysFlag": "7", "commitOffset": "8800", "suspendTimeoutMillis": "15000", "subscription": "TagA",
    "subVersion": "1700000000000", "expressionType": "TAG", "maxMsgBytes": "65536",
    "requestSource": "-1", "proxyFrowardClientId": "c1", "bname": "broker-a",
}  # fmt: skip
PULL = PullMessage(
    group="CG", topic="T", queue_id=2, offset=8812, commit_offset=8800,
    flags=PullFlag.COMMIT_OFFSET | PullFlag.SUSPEND | PullFlag.SUBSCRIPTION, subscription="TagA",
    subscription_version=1_700_000_000_000, expression_type="TAG", max_bytes=65_536, source=-1,
    forwarded_client="c1", broker="broker-a",
)  # fmt: skip
HEADER = {
    "suggestWhichBrokerId": "1", "nextBeginOffset": "8820", "minOffset": "0", "maxOffset": "9000",
}  # fmt: skip


def test_pull() -> None:
    assert PULL.command().fields == FIELDS
    assert PullMessage.from_command(Command(11, fields=FIELDS)) == PULL
    assert str(PULL) == "PullMessage T[2] @ 8812"


def test_lite_pull_is_the_same_under_another_code() -> None:
    request = LitePullMessage.from_command(Command(361, fields=FIELDS))
    assert isinstance(request, PullMessage)
    assert (request.command().code, request.command().fields) == (361, FIELDS)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, PullStatus.FOUND),
        (19, PullStatus.NOTHING_NEW),
        (20, PullStatus.NOTHING_MATCHED),
        (21, PullStatus.OFFSET_MOVED),
    ],
)
def test_what_a_pull_finds(code: int, status: PullStatus) -> None:
    reply = PULL.reply_from(Command(code, fields=HEADER, remark="r", body=b"records"))
    assert reply == PullReply(
        status=status, suggested_broker=1, next_offset=8820, min_offset=0, max_offset=9000,
        remark="r", body=b"records",
    )  # fmt: skip


def test_where_to_go_on_has_to_be_said() -> None:
    with pytest.raises(RemoteProtocolError, match=r"next_offset \(nextBeginOffset\)"):
        PULL.reply_from(Command(19, fields={"suggestWhichBrokerId": "0"}))


def test_refusals() -> None:
    with pytest.raises(SubscriptionMissing):
        PULL.reply_from(Command(24, remark="the consumer's subscription not exist"))


def test_large_bodies_stay_views() -> None:
    body = memoryview(bytearray(10))
    assert PULL.reply_from(Command(0, fields=HEADER, body=body)).body is body


def test_query() -> None:
    request = QueryMessages(
        topic="T", key="k", max_messages=64, begin_ms=0, end_ms=9, unique=True, index_type="U"
    )
    assert request.command().fields == {
        "topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": "9",
        "indexType": "U", "_UNIQUE_KEY_QUERY": "true",
    }  # fmt: skip
    fields = {"indexLastUpdateTimestamp": "5", "indexLastUpdatePhyoffset": "6"}
    reply = request.reply_from(Command(0, fields=fields, body=b"records"))
    assert reply == QueryMessagesReply(index_ms=5, index_log_offset=6, body=b"records")
    with pytest.raises(NotFound):
        request.reply_from(Command(22, fields=fields))


def test_view() -> None:
    request = ViewMessage(log_offset=4096)
    assert request.command().fields == {"offset": "4096"}
    assert request.reply_from(Command(0, body=b"record")).body == b"record"


def test_found_messages_go_out_in_the_buffers_that_hold_them() -> None:
    log = memoryview(b"one two")
    reply = PullReply(
        suggested_broker=0, next_offset=2, min_offset=0, max_offset=2, more=(log[:3], log[4:])
    )
    command = reply.command()
    assert (command.body, command.more) == (b"", (b"one", b"two"))
    assert command.more[1].obj is log.obj
    assert PULL.reply_from(Command(0, fields=command.fields, body=b"onetwo")).more == ()
