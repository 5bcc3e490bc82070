from __future__ import annotations

import pytest

from gantrymq.protocol.popping import (
    AckBatch,
    AckedRange,
    AckMessage,
    AwaitMessages,
    AwaitMessagesReply,
    ChangeInvisibleTime,
    ChangeInvisibleTimeReply,
    GetPollingInfo,
    PeekMessages,
    PopMessages,
    PopStatus,
    RollBackPops,
)
from gantrymq.wire.command import Command

HANDLE = "100 1700000000000 60000 5 0 broker-a 2 103"
POP = PopMessages(
    group="CG", topic="T", max_messages=32, invisible_ms=60_000, poll_ms=15_000, born_ms=1,
    init_mode=1, expression_type="TAG", expression="*",
)  # fmt: skip


def test_pop() -> None:
    assert POP.command().code == 200050
    assert POP.command().fields == {
        "consumerGroup": "CG", "topic": "T", "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "60000", "pollTime": "15000", "bornTime": "1", "initMode": "1",
        "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip


def test_pop_reply() -> None:
    fields = {
        "popTime": "1700000000000", "invisibleTime": "60000", "reviveQid": "5", "restNum": "9",
        "startOffsetInfo": "0 2 100", "msgOffsetInfo": "0 2 100,103", "orderCountInfo": "0 2 0",
    }  # fmt: skip
    reply = POP.reply_from(Command(0, fields=fields, body=b"records"))
    assert (reply.pop_ms, reply.revive_queue_id, reply.rest) == (1_700_000_000_000, 5, 9)
    assert (reply.start_offsets, reply.offsets) == ("0 2 100", "0 2 100,103")
    assert reply.command().fields == fields


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (19, PopStatus.NOTHING_THERE),
        (209, PopStatus.POLLING_FULL),
        (210, PopStatus.POLLING_TIMEOUT),
    ],
)
def test_nothing_popped(code: int, status: PopStatus) -> None:
    reply = POP.reply_from(Command(code))
    assert (reply.status, reply.pop_ms, reply.body) == (status, 0, b"")


def test_ack() -> None:
    request = AckMessage(group="CG", topic="T", queue_id=2, handle=HANDLE, offset=103)
    assert request.command().fields == {
        "consumerGroup": "CG", "topic": "T", "queueId": "2", "extraInfo": HANDLE, "offset": "103",
    }  # fmt: skip


def acked(bits: int) -> AckedRange:
    return AckedRange(
        group="CG", topic="T", start_offset=100, queue_id=2, revive_queue_id=5, pop_ms=1,
        invisible_ms=2, acked=bits,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bits", "offsets"), [(0, []), (1, [100]), (0b1000001001, [100, 103, 109])]
)
def test_acked_offsets(bits: int, offsets: list[int]) -> None:
    assert list(acked(bits).offsets()) == offsets


def test_batch_ack() -> None:
    request = AckBatch(broker="b", acks=[acked(1 << 64)])
    command = request.command()
    assert b'"b":"AAAAAAAAAAAB"' in bytes(command.body)
    assert AckBatch.from_command(command) == request
    assert AckBatch.from_command(Command(200151, body=b"{}")) == AckBatch()


def test_change_invisible_time() -> None:
    request = ChangeInvisibleTime(
        group="CG", topic="T", queue_id=2, handle=HANDLE, offset=103, invisible_ms=9
    )
    assert request.command().fields["suspend"] == "false"
    fields = {"popTime": "7", "invisibleTime": "9", "reviveQid": "3"}
    reply = ChangeInvisibleTimeReply(pop_ms=7, invisible_ms=9, revive_queue_id=3)
    assert request.reply_from(Command(0, fields=fields)) == reply


def test_waiting_peeking_and_the_rest() -> None:
    wait = AwaitMessages(group="CG", topic="T", queue_id=0, poll_ms=1, born_ms=2)
    assert (wait.command().code, wait.command().fields["bornTime"]) == (200054, "2")
    reply = AwaitMessagesReply(has_messages=True)
    assert wait.reply_from(Command(0, fields={"hasMsg": "true"})) == reply
    polling = GetPollingInfo(group="CG", topic="T", queue_id=0)
    assert polling.reply_from(Command(0, fields={"pollingNum": "4"})).polling == 4
    peek = PeekMessages(group="CG", topic="T", queue_id=-1, max_messages=1)
    assert peek.reply_from(Command(19)).status is PopStatus.NOTHING_THERE
    assert RollBackPops().command().code == 200056
