from __future__ import annotations

import pytest

from gantrymq.errors import RemoteProtocolError
from gantrymq.model import MessageQueue
from gantrymq.protocol.resets import (
    CloneGroupOffsets,
    GetClientOffsets,
    GetOffsetsFromClient,
    OffsetTable,
    ResetClientOffsets,
    ResetOffsets,
)
from gantrymq.wire.command import Command

QUEUE = MessageQueue("T", "b", 1)
AS_MAP = b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:42}}'
AS_LIST = b'{"offsetTable":[{"brokerName":"b","offset":42,"queueId":1,"topic":"T"}]}'
FIELDS = {"topic": "T", "group": "CG", "queueId": "-1", "timestamp": "9", "isForce": "true"}


def test_reset() -> None:
    request = ResetOffsets(topic="T", group="CG", timestamp_ms=9, force=True)
    assert request.command().fields == FIELDS
    assert request.reply_from(Command(0, body=AS_MAP)).offsets == {QUEUE: 42}


@pytest.mark.parametrize(("body", "as_list"), [(AS_MAP, False), (AS_LIST, True)])
def test_tables_for_java_and_for_cpp(body: bytes, as_list: bool) -> None:
    request = ResetClientOffsets.from_command(Command(220, fields=FIELDS, body=body))
    assert request.table == OffsetTable({QUEUE: 42}, as_list=as_list)
    assert request.command().body == body


@pytest.mark.parametrize("body", [b"", b"5", b"null", b'{"offsetTable":5}', b'{"offsetTable":[5]}'])
def test_tables_that_cannot_be_read(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        ResetClientOffsets.from_command(Command(220, fields=FIELDS, body=body))


def test_asking_clients() -> None:
    asked = GetOffsetsFromClient(topic="T", group="CG")
    body = AS_MAP.replace(b"offsetTable", b"messageQueueTable")
    assert asked.reply_from(Command(0, body=body)).of_client == {QUEUE: 42}
    asked_all = GetClientOffsets(topic="T", group="CG", client_id="c1")
    assert asked_all.command().fields == {"topic": "T", "group": "CG", "clientAddr": "c1"}
    inner = body.removeprefix(b'{"messageQueueTable":')
    reply = asked_all.reply_from(Command(0, body=b'{"consumerTable":{"c1":' + inner + b"}"))
    assert reply.by_client == {"c1": {QUEUE: 42}}


def test_clone() -> None:
    command = CloneGroupOffsets(source_group="A", target_group="B").command()
    assert command.fields == {"srcGroup": "A", "destGroup": "B", "offline": "false"}
