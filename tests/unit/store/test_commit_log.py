from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from gantrymq.errors import CorruptRecord, StoreFull
from gantrymq.store.commit_log import CommitLog, check_body, read_whole
from gantrymq.store.segment import Segments
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire.record import StoredMessage
from tests.unit.store.plain import ROOT, Bench, message

HERE = Path("/log")


def log_of(size: int, disk: FaultyDisk | None = None) -> CommitLog:
    return CommitLog(Segments(disk or FaultyDisk(), HERE, size))


def put(log: CommitLog, count: int) -> int:
    if log.end + count + 8 > log.limit:
        log.roll()
    at = log.end
    log.put(b"m" * count)
    return at


def test_the_record_is_rocketmqs_to_the_byte() -> None:
    """Every field of semantics.md 1.2, written down once more and by hand."""
    bench = Bench()
    bench.now_ms = 1_700_000_000_123
    first = message("Orders", 0, b"first")
    bench.store.append(first)
    made = StoredMessage(
        "Orders", b"body!", b"TAGS\x01a\x02", queue_id=0, flag=7, sys_flag=0,
        born_ms=1_699_999_999_999, born_ip=b"\x0a\x01\x02\x03", born_port=5555,
        store_ip=b"\x7f\0\0\1", store_port=10911, reconsume_times=2, prepared_offset=99,
    )  # fmt: skip
    at = bench.store.append(made).log_offset
    parts = [
        struct.pack(">i", 91 + 5 + 6 + 7),
        bytes.fromhex("daa320a7"),
        struct.pack(">I", zlib.crc32(b"body!") & 0x7FFF_FFFF),
        struct.pack(">i", 0),
        struct.pack(">i", 7),
        struct.pack(">q", 1),  # the queue's second message
        struct.pack(">q", at),
        struct.pack(">i", 0),
        struct.pack(">q", 1_699_999_999_999),
        b"\x0a\x01\x02\x03" + struct.pack(">i", 5555),
        struct.pack(">q", 1_700_000_000_123),
        b"\x7f\0\0\1" + struct.pack(">i", 10911),
        struct.pack(">i", 2),
        struct.pack(">q", 99),
        struct.pack(">i", 5) + b"body!",
        b"\x06Orders",
        struct.pack(">h", 7) + b"TAGS\x01a\x02",
    ]
    wanted = b"".join(parts)
    assert bench.disk.read(ROOT / "commitlog" / ("0" * 20))[at : at + len(wanted)] == wanted
    assert made.size == len(wanted)


def test_a_long_topic_makes_a_record_of_the_second_version() -> None:
    bench = Bench()
    topic = "%RETRY%" + "g" * 121
    at = bench.store.append(message(topic, 0, b"x")).log_offset
    stored = bench.disk.read(ROOT / "commitlog" / ("0" * 20))[at:]
    assert stored[4:8] == bytes.fromhex("daa320ab")
    assert stored[88 + 1 : 88 + 1 + 2] == struct.pack(">h", 128)
    assert bench.store.message_at(at).topic == topic


def test_what_does_not_fit_goes_to_the_next_file_behind_a_blank() -> None:
    """The example of semantics.md 7.6: a file of 1000 bytes, 40 of which are left."""
    disk = FaultyDisk()
    log = log_of(1000, disk)
    put(log, 960)
    assert put(log, 40) == 1000
    first = disk.read(HERE / ("0" * 20))
    assert first[960:968] == struct.pack(">i", 40) + bytes.fromhex("cbd43194")
    assert first[968:] == bytes(32)
    assert disk.read(HERE / f"{1000:020d}")[:41] == b"m" * 40 + b"\0"


def test_a_record_with_just_room_for_a_blank_after_it_fits() -> None:
    disk = FaultyDisk()
    log = log_of(1000, disk)
    put(log, 960)
    assert put(log, 32) == 960
    assert len(log.segments.files) == 1
    put(log, 100)
    assert disk.read(HERE / ("0" * 20))[992:] == struct.pack(">i", 8) + bytes.fromhex("cbd43194")
    assert log.blank_at(992)
    assert not log.blank_at(960)
    assert log.next_file(992) == 1000


def test_a_full_disk_says_where_and_leaves_the_log_as_it_was() -> None:
    disk = FaultyDisk(capacity=1000)
    log = log_of(1000, disk)
    put(log, 900)
    for _ in range(2):
        with pytest.raises(StoreFull, match=r"no room for the commit log in /log, at offset 1000"):
            put(log, 200)
    disk.capacity = 5000
    assert put(log, 200) == 1000


def test_views_are_of_what_was_written_and_within_one_file() -> None:
    log = log_of(1000)
    put(log, 900)
    put(log, 500)
    assert log.view(0, 900) == b"m" * 900
    assert log.view(890, 11) is not None
    assert log.view(1499, 1) == b"m"
    for offset, size in ((1499, 2), (990, 20), (-1, 1), (0, -1), (5000, 1)):
        assert log.view(offset, size) is None


def test_the_store_time_is_read_from_the_record() -> None:
    bench = Bench()
    v6 = message("T", 0, b"x")
    v6.born_ip = bytes(15) + b"\1"
    bench.now_ms = 777
    places = [bench.store.append(one).log_offset for one in (message(), v6)]
    assert [bench.store.log.store_time(at) for at in places] == [777, 777]
    assert bench.store.log.store_time(bench.store.log_end) == -1


def test_only_a_whole_record_in_its_place_is_read() -> None:
    bench = Bench()
    made = message("T", 0, b"the body of it", KEYS="k" * 40)
    bench.store.append(message())
    at = bench.store.append(made).log_offset
    path = ROOT / "commitlog" / ("0" * 20)
    segment = bench.store.log.segments.files[0]
    assert read_whole(segment, at) == made
    end = at + made.size
    for place, bits, why in (
        (at + 3, 1, "do not make up|does not fit"),
        (at + 4, 1, "no message's magic"),
        (at + 35, 4, "belongs at"),
        (at + 90, 1, "CRC"),
        (end - 1, 2, "never written"),
    ):
        bench.disk.flip(path, place, bits)
        with pytest.raises(CorruptRecord, match=rf"log offset {at}: .*({why})"):
            read_whole(segment, at)
        bench.disk.flip(path, place, bits)
    assert read_whole(segment, at) == made
    for nowhere in (end, 4096 - 10, 100_000):
        with pytest.raises(CorruptRecord):
            bench.store.log.message(nowhere)


def test_a_part_that_never_reached_the_disk_shows_where_no_checksum_looks() -> None:
    bench = Bench()
    made = message("T", 0, b"body", KEYS="k" * 40)
    at = bench.store.append(made).log_offset
    segment = bench.store.log.segments.files[0]
    segment.file.write(at + made.size - 30, bytes(16))
    with pytest.raises(CorruptRecord, match="was never written"):
        read_whole(segment, at)


def test_a_wrong_size_is_found_without_copying_so_much() -> None:
    bench = Bench()
    at = bench.store.append(message()).log_offset
    segment = bench.store.log.segments.files[0]
    segment.file.write(at + 200, struct.pack(">i", 2**31 - 1) + bytes.fromhex("daa320a7"))
    with pytest.raises(CorruptRecord, match="belongs at 0"):
        read_whole(segment, at + 200)


@pytest.mark.parametrize("ip", [b"\x7f\0\0\1", bytes(15) + b"\1"])
def test_the_quick_check_sees_whatever_would_keep_a_reader_from_reading(ip: bytes) -> None:
    bench = Bench()
    made = message("T", 0, b"the body")
    made.born_ip = made.store_ip = ip
    bench.store.append(message())
    at = bench.store.append(made).log_offset
    segment = bench.store.log.segments.files[0]
    path = ROOT / "commitlog" / ("0" * 20)
    assert check_body(segment, at, made.size) is None
    assert "size" in (check_body(segment, at, made.size + 1) or "")
    body = at + 88 + 24 * (len(ip) == 16)
    end = at + made.size
    for place, why in (
        (at + 7, "magic"),
        (at + 35, "place"),
        (body - 1, "body size"),
        (body, "CRC"),
        (body + 8, "do not end where it ends"),  # the topic's length
        (end - 1, "do not end where it ends"),  # the properties'
    ):
        bench.disk.flip(path, place, 64)
        assert why in (check_body(segment, at, made.size) or "")
        bench.disk.flip(path, place, 64)


def test_the_quick_check_refuses_a_topic_that_readers_do() -> None:
    bench = Bench()
    made = message("t" * 127, 0, b"b", p="x" * 200)
    at = bench.store.append(made).log_offset
    segment = bench.store.log.segments.files[0]
    length = at + 88 + 1
    grown = 127 + 10  # and the ten bytes less of properties are made up for by their length
    raw_at = length + 1 + grown
    segment.file.write(length, bytes([grown]))
    segment.file.write(raw_at, struct.pack(">h", made.size - (raw_at - at) - 2))
    assert "too long" in (check_body(segment, at, made.size) or "")
