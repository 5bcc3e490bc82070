from __future__ import annotations

import pytest

from gantrymq.errors import RemoteProtocolError, SystemBusy
from gantrymq.protocol.sending import (
    PushReplyMessage,
    RecallMessage,
    RecallReply,
    SendBack,
    SendBatch,
    SendMessage,
    SendReply,
    SendReplyMessage,
    SendStatus,
)
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command

LONG = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
    "queueId": "-1", "sysFlag": "1", "bornTimestamp": "1700000000000", "flag": "7",
    "properties": "a\x01b\x02", "reconsumeTimes": "2", "unitMode": "true",
    "maxReconsumeTimes": "16", "batch": "false", "bname": "broker-a",
}  # fmt: skip
SHORT = dict(zip("abcdefghijklmn", LONG.values(), strict=True))

MESSAGE = SendMessage(
    group="PG", topic="T", queue_id=-1, flags=1, born_ms=1_700_000_000_000, flag=7,
    properties="a\x01b\x02", reconsume_times=2, unit_mode=True, max_reconsume_times=16,
    broker="broker-a", body=b"hello",
)  # fmt: skip


def test_letters_are_the_same_request_as_names() -> None:
    short = SendMessage.from_command(Command(310, fields=SHORT, body=b"hello"))
    long = SendMessage.from_command(Command(10, fields=LONG, body=b"hello"))
    assert short == MESSAGE
    assert long.code is RequestCode.SEND_MESSAGE
    assert (long.command().fields, short.command().fields) == (LONG, SHORT)


def test_letters_do_not_stand_in_a_long_request() -> None:
    with pytest.raises(RemoteProtocolError, match="producerGroup"):
        SendMessage.from_command(Command(10, fields=SHORT))


def test_the_sender_s_version_is_kept() -> None:
    assert SendMessage.from_command(Command(310, fields=SHORT, version=121)).version == 121


@pytest.mark.parametrize(
    ("cls", "code", "batch"), [(SendBatch, 320, True), (SendReplyMessage, 325, False)]
)
def test_its_kin(cls: type[SendMessage], code: int, batch: bool) -> None:
    request = cls(group="PG", topic="T", queue_id=0, born_ms=1, body=b"")
    command = request.command()
    assert (command.code, command.fields["m"]) == (code, str(batch).lower())
    assert cls.from_command(command) == request


def test_a_reply_message_has_a_long_code_too() -> None:
    found = SendReplyMessage.from_command(Command(324, fields=LONG, body=b"hello"))
    assert (found.group, found.code) == ("PG", RequestCode.SEND_REPLY_MESSAGE)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
def test_stored_all_the_same(code: int, status: SendStatus) -> None:
    fields = {
        "msgId": "0A",
        "queueId": "1",
        "queueOffset": "7",
        "MSG_REGION": "R",
        "TRACE_ON": "true",
    }
    reply = MESSAGE.reply_from(Command(code, fields=fields))
    expected = SendReply(
        status=status, message_id="0A", queue_id=1, offset=7, region="R", traced=True
    )
    assert reply == expected
    assert reply.command().fields == fields


def test_not_stored() -> None:
    with pytest.raises(SystemBusy):
        MESSAGE.reply_from(Command(2, remark="[OVERLOAD]system busy"))


def test_pushed_replies() -> None:
    fields = {k: v for k, v in LONG.items() if k not in ("batch", "bname", "maxReconsumeTimes")}
    fields |= {"bornHost": "10.0.0.1:1", "storeHost": "10.0.0.2:2", "storeTimestamp": "9"}
    request = PushReplyMessage.from_command(Command(326, fields=fields, body=b"hi"))
    assert (request.group, request.store_host, request.store_ms) == ("PG", "10.0.0.2:2", 9)
    assert request.command().fields == fields


def test_sending_back() -> None:
    request = SendBack(log_offset=9, group="CG", delay_level=-1, message_id="0A", topic="T")
    assert request.command().fields == {
        "offset": "9", "group": "CG", "delayLevel": "-1", "originMsgId": "0A", "originTopic": "T",
        "unitMode": "false",
    }  # fmt: skip


def test_recalling() -> None:
    request = RecallMessage(topic="T", handle="djE=", group="PG")
    assert request.command().fields == {
        "producerGroup": "PG", "topic": "T", "recallHandle": "djE=",
    }  # fmt: skip
    assert request.reply_from(Command(0, fields={"msgId": "0A"})) == RecallReply(message_id="0A")
