"""Records made of others: what stays, what changes, and what is left to the ordinary way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.wire import record
from gantrymq.wire.moved_record import moved, moved_size, parts_at
from gantrymq.wire.plain_record import topic_part
from gantrymq.wire.record import StoredMessage

WAITING = StoredMessage(
    "waits", b"body", b"a\x01b\x02", queue_id=3, flag=-7, queue_offset=5, log_offset=1000,
    sys_flag=0x2, born_ms=11, born_ip=b"\1\2\3\4", born_port=5, store_ms=12, store_ip=b"\5\6\7\x08",
    store_port=9, reconsume_times=2,
)  # fmt: skip


def test_a_moved_message_differs_in_its_place_and_its_properties_alone() -> None:
    raw = b"before" + WAITING.encode() + b"after"
    parts = parts_at(memoryview(raw), 6, 1000, trusted=False)
    assert parts is not None
    assert (parts.properties, parts.topic, parts.store_ms) == (b"a\x01b\x02", b"\x05waits", 12)
    topic, made = topic_part("orders"), b"c\x01d\x02"
    assert topic is not None
    data = moved(parts, topic, made, 4, 77, 2000, 99, 1000)
    assert len(data) == moved_size(parts, topic, made)
    expected = replace(
        WAITING, topic="orders", property_bytes=made, queue_id=4, queue_offset=77, log_offset=2000,
        store_ms=99, prepared_offset=1000,
    )  # fmt: skip
    assert data == expected.encode()
    assert record.decode(data) == expected


@pytest.mark.parametrize(
    "odd",
    [
        {"sys_flag": 0x10, "born_ip": bytes(16)},
        {"sys_flag": 0x20, "store_ip": bytes(16)},
        {"sys_flag": 0x8},
        {"topic": "t" * 200, "version": 2},
        {"log_offset": 1001},
    ],
)
def test_what_is_not_ordinary_is_left_alone(odd: dict[str, int]) -> None:
    raw = replace(WAITING, **odd).encode()
    assert parts_at(memoryview(raw), 0, 1000, trusted=False) is None


@given(st.integers(0, len(WAITING.encode()) - 1), st.integers(0, 255), st.integers(0, 130))
def test_a_record_that_is_not_whole_is_none(at: int, byte: int, end: int) -> None:
    raw = bytearray(WAITING.encode())
    assert parts_at(memoryview(raw[:end]), 0, 1000, trusted=False) is None or end >= len(raw)
    raw[at] = byte
    found = parts_at(memoryview(raw), 0, 1000, trusted=False)
    if found is not None:
        said = record.decode(bytes(raw))
        assert (found.properties, found.store_ms) == (said.property_bytes, said.store_ms)
        said.check_crc()
