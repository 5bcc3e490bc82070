"""Columns: everything that `record` says of a buffer, said for all rows at once."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gantrymq.errors import RemoteProtocolError
from gantrymq.wire import columns, flags, properties, record
from gantrymq.wire.arrays import Ranges
from gantrymq.wire.columns import Columns
from gantrymq.wire.record import StoredMessage

IPV6 = bytes(range(16))
PLAIN = StoredMessage(
    "Topic",
    b"body",
    properties.encode({"UNIQ_KEY": "0A" * 16, "TAGS": "red", "KEYS": "k1"}),
    queue_id=3,
    flag=-2,
    queue_offset=2**40,
    log_offset=2**50,
    born_ms=1_700_000_000_000,
    born_ip=bytes((10, 1, 2, 3)),
    born_port=40_000,
    store_ms=1_700_000_000_001,
    store_ip=bytes((10, 1, 2, 4)),
    store_port=10_911,
    reconsume_times=5,
    prepared_offset=-7,
)
SHAPES = [
    PLAIN,
    replace(PLAIN, born_ip=IPV6, sys_flag=flags.BORN_HOST_IPV6, reconsume_times=6),
    replace(PLAIN, store_ip=IPV6, sys_flag=flags.STORE_HOST_IPV6, prepared_offset=8),
    replace(PLAIN, born_ip=IPV6, store_ip=IPV6[::-1], sys_flag=flags.IPV6_BITS, body=b"longer"),
    replace(PLAIN, version=2, body=b""),
    replace(PLAIN, topic="t" * 300, version=2, property_bytes=b""),
    replace(PLAIN, topic="", sys_flag=flags.WRAPPED_BITS),
    replace(PLAIN, sys_flag=flags.Compression.LZ4.bits | flags.INNER_BATCH),
]


def cut(buffer: bytes, ranges: Ranges) -> list[bytes | None]:
    spans = zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)
    return [None if start < 0 else buffer[start:end] for start, end in spans]


def both(buffer: bytes) -> tuple[Columns, list[StoredMessage]]:
    return columns.decode(buffer), list(record.iterate(buffer, unwrap=False))


def agree(buffer: bytes) -> None:
    """Columns and records say the same of `buffer`."""
    found, messages = both(buffer)
    assert len(found) == len(messages)
    for name in columns.NUMBERS:
        assert found[name].tolist() == [getattr(m, name) for m in messages], name
    assert cut(buffer, found.body) == [m.body for m in messages]
    assert cut(buffer, found.topic) == [m.topic.encode() for m in messages]
    assert cut(buffer, found.properties) == [m.property_bytes for m in messages]
    assert cut(buffer, found.born_ip) == [m.born_ip for m in messages]
    assert cut(buffer, found.store_ip) == [m.store_ip for m in messages]
    assert [found.message(row) for row in range(len(found))] == messages


def with_properties(*rows: bytes) -> tuple[bytes, Columns]:
    buffer = b"".join(replace(PLAIN, property_bytes=raw).encode() for raw in rows)
    return buffer, columns.decode(buffer)


def test_every_shape_agrees_with_records() -> None:
    agree(b"".join(message.encode() for message in SHAPES))
    for message in SHAPES:
        agree(message.encode())


def test_nothing_is_no_rows() -> None:
    agree(b"")
    found = columns.decode(b"")
    assert len(found) == 0
    assert found["queue_id"].tolist() == []
    assert found.property_ranges("TAGS").starts.tolist() == []
    assert found.entries().offsets.tolist() == [0]
    found.check_crc()


@pytest.mark.parametrize("count", [1, 63, 64, 65, 71, 72, 73, 600, 3000])
def test_runs_of_one_size_are_taken_as_exactly_as_others(count: int) -> None:
    run = PLAIN.encode() * count
    agree(run)
    other = SHAPES[3].encode()
    agree(other + run + other + run)
    agree(run + bytes(8) + run)
    with pytest.raises(RemoteProtocolError, match=f"at byte {len(run)}: only 5 bytes"):
        columns.decode(run + bytes(5))


def test_sizes_that_only_add_up_to_a_run_are_no_run() -> None:
    short, long = PLAIN.encode(), replace(PLAIN, body=b"longer body").encode()
    agree((short + long) * 400)
    agree(short * 60 + long + short * 2 + long + short * 300)


def test_the_end_of_the_list_is_where_records_find_it() -> None:
    raw = PLAIN.encode()
    blank = (1000).to_bytes(4, "big") + record.MAGIC_BLANK.to_bytes(4, "big", signed=True)
    for rest in (blank, blank + bytes(2000), bytes(8), bytes(500), raw[:4] + bytes(300)):
        agree(raw * 3 + rest)
        assert len(columns.decode(raw * 3 + rest)) == 3
        assert len(columns.decode(rest)) == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_damage_is_refused_in_the_same_words(shape: StoredMessage) -> None:
    raw = shape.encode()
    for at in range(len(raw)):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            buffer = raw + raw[:at] + bytes((value,)) + raw[at + 1 :] + raw
            try:
                expected = len(list(record.iterate(buffer, unwrap=False)))
            except RemoteProtocolError as error:
                with pytest.raises(RemoteProtocolError) as caught:
                    columns.decode(buffer)
                assert str(caught.value) == str(error)
            else:
                assert len(columns.decode(buffer)) == expected


def test_masks_name_the_rows_whose_bodies_are_not_plain() -> None:
    found, _ = both(b"".join(message.encode() for message in SHAPES))
    assert np.flatnonzero(found.compressed).tolist() == [7]
    assert np.flatnonzero(found.wrapped).tolist() == [6]


def test_columns_are_native_numbers_and_have_names() -> None:
    found, _ = both(PLAIN.encode())
    assert found["queue_offset"].dtype == np.int64
    assert found["queue_id"].dtype == np.int32
    with pytest.raises(KeyError, match="'size' is no column of numbers; there are body_crc"):
        found["size"]


def test_one_property_of_every_row() -> None:
    buffer, found = with_properties(
        b"TAGS\x01a\x02KEYS\x01b\x02",
        b"KEYS\x01long enough\x02TAGS\x01c",
        b"",
        b"KEYS\x01x\x02",
        b"TAGS\x01with \x01 inside\x02",
        b"TAGS\x01old\x02TAGS\x01new\x02",
        b"TAGS\x01old\x02TAGS\x01\x02",
        b"XTAGS\x01no\x02TAG\x01no\x02\x01TAGS\x02",
        b"\x02\x02TAGS\x01late\x02",
        b"no separator",
        b"TAGS\x01" + b"v" * 30_000,
    )
    expected = [b"a", b"c", None, None, b"with \x01 inside", b"new", b"old", None, b"late", None]
    assert cut(buffer, found.property_ranges("TAGS")) == [*expected, b"v" * 30_000]
    assert cut(buffer, found.property_ranges("XTAGS"))[7] == b"no"
    assert set(cut(buffer, found.property_ranges("NONE"))) == {None}
    assert set(cut(buffer, found.property_ranges(""))) == {None}


def test_long_names_are_compared_whole() -> None:
    buffer, found = with_properties(
        b"__transactionId__\x01a\x02xxtransactionId__\x01b\x02", b"_transactionId__\x01c\x02"
    )
    assert cut(buffer, found.property_ranges("__transactionId__")) == [b"a", None]
    assert cut(buffer, found.property_ranges("xxtransactionId__")) == [b"b", None]


@pytest.mark.parametrize("count", [1, 5, 31, 32, 33, 200])
def test_entries_hold_each_name_once_with_the_value_that_counts(count: int) -> None:
    many = properties.encode({f"property-{number}": str(number) for number in range(count)})
    rows = [
        many,
        b"A\x011\x02B\x012\x02A\x013\x02",
        b"",
        many + many,
        b"A\x01x\x02A\x01\x02",
        b"nothing",
        b"\0A\x01x\x02A\x01y\x02A\0\x01z",
        many[:-1],
    ]
    buffer, found = with_properties(*rows)
    entries = found.entries()
    names, values = cut(buffer, entries.names), cut(buffer, entries.values)
    bounds = entries.offsets.tolist()
    for row, (start, end) in enumerate(pairwise(bounds)):
        expected = [(n.encode(), v.encode()) for n, v in properties.decode(rows[row]).items()]
        assert sorted(zip(names[start:end], values[start:end], strict=True)) == sorted(expected)


def test_the_last_row_ends_with_the_buffer() -> None:
    buffer, found = with_properties(*[b"LONGNAME\x01" + b"v" * 100 + b"\x02"] * 3, b"LONGNAME\x01w")
    assert cut(buffer, found.property_ranges("LONGNAME")) == [b"v" * 100] * 3 + [b"w"]


def test_bodies_are_checked_when_asked() -> None:
    good = PLAIN.encode()
    bad = good[:90] + b"x" + good[91:]
    columns.decode(good * 5).check_crc()
    found = columns.decode(good * 2 + bad + good)
    with pytest.raises(RemoteProtocolError, match=r"Topic\[3\] @ 1099511627776.*stored was 0x"):
        found.check_crc()


def test_buffers_of_any_kind_and_place_will_do() -> None:
    raw = b"".join(message.encode() for message in SHAPES)
    expected = columns.decode(raw)["reconsume_times"].tolist()
    inside = memoryview(bytearray(b"abc" + raw + b"def"))[3:-3]
    for buffer in (bytearray(raw), memoryview(raw), inside):
        assert columns.decode(buffer)["reconsume_times"].tolist() == expected


def test_hostile_sizes_take_no_memory() -> None:
    buffer = b"\0\0\0\x04" * 250_000
    tracemalloc.start()
    assert len(columns.decode(buffer)) == 0  # 0x00000004 is no magic number either
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000
