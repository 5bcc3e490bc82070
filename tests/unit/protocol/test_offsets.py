from __future__ import annotations

from typing import Any

import pytest

from gantrymq.errors import NotFound, NotLeaderForQueue
from gantrymq.protocol.enums import Boundary
from gantrymq.protocol.offsets import (
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    QueryCorrectionOffsets,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.wire.command import Command

QUEUE = {"topic": "T", "queueId": "2"}


@pytest.mark.parametrize(
    ("request_", "code", "fields"),
    [
        (QueryConsumerOffset(group="CG", topic="T", queue_id=2), 14, {"consumerGroup": "CG"}),
        (
            QueryConsumerOffset(group="CG", topic="T", queue_id=2, zero_if_unknown=False),
            14,
            {"consumerGroup": "CG", "setZeroIfNotFound": "false"},
        ),
        (
            UpdateConsumerOffset(group="CG", topic="T", queue_id=2, offset=5),
            15,
            {"consumerGroup": "CG", "commitOffset": "5"},
        ),
        (
            SearchOffset(topic="T", queue_id=2, timestamp_ms=9, boundary=Boundary.UPPER),
            29,
            {"timestamp": "9", "boundaryType": "UPPER"},
        ),
        (GetMaxOffset(topic="T", queue_id=2), 30, {"committed": "true"}),
        (GetMinOffset(topic="T", queue_id=2), 31, {}),
        (GetEarliestStoreTime(topic="T", queue_id=2), 32, {}),
    ],
)
def test_fields(request_: Any, code: int, fields: dict[str, str]) -> None:
    command = request_.command()
    assert (command.code, command.fields) == (code, QUEUE | fields)
    assert type(request_).from_command(command) == request_


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        ("upper", Boundary.UPPER),
        ("Lower", Boundary.LOWER),
        ("else", Boundary.LOWER),
        (None, "LOWER"),
    ],
)
def test_boundaries_in_any_case(text: str | None, boundary: str) -> None:
    fields = QUEUE | {"timestamp": "9"} | ({} if text is None else {"boundaryType": text})
    assert SearchOffset.from_command(Command(29, fields=fields)).boundary == boundary


def test_answers() -> None:
    request = QueryConsumerOffset(group="CG", topic="T", queue_id=2)
    assert request.reply_from(Command(0, fields={"offset": "-1"})) == OffsetReply(offset=-1)
    with pytest.raises(NotFound, match="boot first"):
        request.reply_from(Command(22, remark="Not found, maybe this group boot first"))
    with pytest.raises(NotLeaderForQueue):
        GetMinOffset(topic="T", queue_id=2).reply_from(Command(501))
    earliest = GetEarliestStoreTime(topic="T", queue_id=2)
    assert earliest.reply_from(Command(0, fields={"timestamp": "-1"})).timestamp_ms == -1


def test_correction() -> None:
    request = QueryCorrectionOffsets(topic="T", compare_group="A", filter_groups=("B", "C"))
    assert request.command().fields["filterGroups"] == "B,C"
    body = b'{"correctionOffsets":{0:5,1:9223372036854775807}}'
    assert request.reply_from(Command(0, body=body)).offsets == {0: 5, 1: 2**63 - 1}


def test_whole_tables() -> None:
    body = b'{"dataVersion":{"counter":1},"offsetTable":{"T@CG":{0:1,1:2}}}'
    table = GetAllConsumerOffsets().reply_from(Command(0, body=body))
    assert table.offsets == {"T@CG": {0: 1, 1: 2}}
    assert table.version is not None
    assert table.version.counter == 1
    delays = GetAllDelayOffsets().reply_from(Command(0, body=b'{"offsetTable":{"3":7}}'))
    assert delays.offsets == {3: 7}
