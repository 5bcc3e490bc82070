from __future__ import annotations

from random import Random

import pytest

from gantrymq.store.config import LogConfig, ReadConfig
from gantrymq.store.reading import MAX_PULL_BYTES, Found, Status
from gantrymq.wire.flags import BORN_HOST_IPV6
from gantrymq.wire.record import iterate
from tests.unit.store.plain import BLANK, ROOT, Bench, message

DELETED, MAX = 10, 20


@pytest.fixture
def ten_to_twenty() -> Bench:
    """The queue of semantics.md 7.6: its first offset is 10, its next one 20."""
    bench = Bench()
    for number in range(MAX):
        bench.put(body=b"%d" % number)
    queue = bench.store.queue("T", 0)
    assert queue is not None
    queue.correct_min(next(iter(queue.entries(DELETED, 1)))[0])
    assert (queue.min_offset, queue.max_offset) == (DELETED, MAX)
    return bench


def bodies(found: Found) -> list[bytes]:
    return [one.body for piece in found.pieces for one in iterate(bytes(piece))]


@pytest.mark.parametrize(
    ("offset", "status", "following"),
    [
        (0, Status.OFFSET_TOO_SMALL, 10),
        (9, Status.OFFSET_TOO_SMALL, 10),
        (15, Status.FOUND, 20),
        (20, Status.OFFSET_OVERFLOW_ONE, 20),
        (21, Status.OFFSET_OVERFLOW_BADLY, 20),
    ],
)
def test_offsets_scenario(
    ten_to_twenty: Bench, offset: int, status: Status, following: int
) -> None:
    found = ten_to_twenty.store.read("T", 0, offset)
    assert (found.status, found.next_offset) == (status, following)
    assert (found.min_offset, found.max_offset) == (DELETED, MAX)
    wanted = [b"%d" % number for number in range(15, 20)] if status is Status.FOUND else []
    assert bodies(found) == wanted


@pytest.mark.parametrize("offset", [0, 5])
@pytest.mark.parametrize("made", [False, True])
def test_an_empty_queue(offset: int, made: bool) -> None:
    bench = Bench()
    if made:
        bench.store._queues.obtain("T", 0)
    found = bench.store.read("T", 0, offset)
    assert (found.status, found.next_offset) == (Status.NO_MESSAGE_IN_QUEUE, 0)
    assert bench.store.queue("U", 0) is None  # reading begins no queue: anyone could fill the disk


def test_neighbours_in_the_log_are_one_piece() -> None:
    bench = Bench()
    for number in range(6):
        bench.put(body=b"%d" % number)
    bench.put("other")
    bench.put(body=b"6")
    found = bench.store.read("T", 0, 0)
    assert (len(found.pieces), found.count) == (2, 7)
    assert found.size == sum(map(len, found.pieces))
    assert all(piece.readonly for piece in found.pieces)
    assert bodies(found) == [b"%d" % number for number in range(7)]


def test_pieces_end_with_their_file() -> None:
    bench = Bench()
    for number in range(10):
        bench.put(body=b"%d" % number * 900)
    found = bench.store.read("T", 0, 0)
    assert len(found.pieces) == len(bench.store.log.segments.files) == 3
    assert len(bodies(found)) == 10


@pytest.mark.parametrize(
    ("most", "size", "count"),
    [
        (3, 10_000, 3),
        (32, 10_000, 20),
        (32, 350, 3),  # of 107 bytes each
        (32, 1, 1),  # the first is always given, and 100 bytes are the least that is asked for
        (0, 10_000, 1),
        (-1, 10_000, 1),
    ],
)
def test_a_read_ends_where_the_asker_wants(most: int, size: int, count: int) -> None:
    bench = Bench()
    for _ in range(20):
        bench.put(body=b"x" * 15)
    found = bench.store.read("T", 0, 0, max_messages=most, max_bytes=size)
    assert (found.count, found.next_offset) == (count, count)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (ReadConfig(memory_messages=4), 4),
        (ReadConfig(memory_bytes=250), 2),
        (ReadConfig(disk_messages=4), 20),
        (ReadConfig(disk_messages=4, memory_ratio=1e-12), 4),
        (ReadConfig(disk_bytes=250, memory_ratio=1e-12), 2),
        (ReadConfig(memory_messages=4, memory_ratio=1e-12), 20),
        (ReadConfig(), 20),
    ],
)
def test_a_read_ends_where_the_settings_say_by_where_messages_are(
    config: ReadConfig, count: int
) -> None:
    bench = Bench(read=config)
    for _ in range(20):
        bench.put(body=b"x" * 15)
    found = bench.store.read("T", 0, 0, max_messages=1000)
    assert found.count == count
    assert found.far_behind == (config.memory_ratio < 0.1)


def test_big_pulls_are_given_to_those_who_ask() -> None:
    bench = Bench(log=LogConfig(segment_size=2**20))
    for _ in range(3000):
        bench.put(body=b"x")
    assert bench.store.read("T", 0, 0, max_messages=4096).count == 3000
    assert bench.store.read("T", 0, 0).count == 32
    assert ReadConfig().memory_messages == ReadConfig().disk_messages == 4096
    assert ReadConfig().memory_bytes == ReadConfig().disk_bytes == 4 * 2**20
    assert MAX_PULL_BYTES == 128 * 2**20


def test_a_filter_looks_at_codes_and_skips_what_it_refuses() -> None:
    bench = Bench()
    for number in range(12):
        bench.put(body=b"%d" % number, TAGS="even" if number % 2 == 0 else "odd")
    even = next(iter(bench.store.queue("T", 0).entries(0, 1)))[2]  # type: ignore[union-attr]
    found = bench.store.read("T", 0, 1, max_messages=3, matches=lambda code: code == even)
    assert bodies(found) == [b"2", b"4", b"6"]
    assert found.next_offset == 7  # as RocketMQ: full is full, whatever comes next
    nothing = bench.store.read("T", 0, 0, matches=lambda code: False)
    assert (nothing.status, nothing.next_offset) == (Status.NO_MATCHED_MESSAGE, 12)


def test_a_filter_gives_up_after_so_many_entries() -> None:
    bench = Bench(log=LogConfig(segment_size=2**20), read=ReadConfig(scan_bytes=100 * 20))
    for _ in range(300):
        bench.put(body=b"x")
    looked = bench.store.read("T", 0, 0, matches=lambda code: False)
    assert (looked.status, looked.next_offset) == (Status.NO_MATCHED_MESSAGE, 100)
    further = bench.store.read("T", 0, 0, max_messages=250, matches=lambda code: False)
    assert further.next_offset == 250


def test_messages_whose_file_went_are_passed_over() -> None:
    bench = Bench()
    for number in range(10):
        bench.put(body=b"%d" % number * 900)
    bench.store.log.segments.take_before(4096)
    found = bench.store.read("T", 0, 0)
    assert found.status is Status.FOUND
    assert bodies(found)[0] == b"4" * 900
    assert found.next_offset == 10
    bench.store.log.segments.take_before(8192)
    only = bench.store.read("T", 0, 0, max_messages=1)
    assert bodies(only) == [b"8" * 900]
    bench.store.log.segments.take_before(12288)
    gone = bench.store.read("T", 0, 0)
    assert (gone.status, gone.next_offset) == (Status.MESSAGE_WAS_REMOVING, 10)


def test_entries_that_point_nowhere_are_passed_over() -> None:
    bench = Bench()
    bench.put(body=b"first")
    queue = bench.store.queue("T", 0)
    assert queue is not None
    at = bench.store.append(message("U")).log_offset
    queue.append(at + 10**6, 100, 0, 3)  # beyond the end, after a hole
    queue.append(at + 10**7, 50, 0, 4)
    assert list(queue.entries(0, 5))[1:3] == [BLANK, BLANK]
    found = bench.store.read("T", 0, 0)
    assert bodies(found) == [b"first"]
    rest = bench.store.read("T", 0, found.next_offset)
    assert (rest.status, rest.next_offset) == (Status.MESSAGE_WAS_REMOVING, 5)


def test_old_messages_are_checked_and_damaged_ones_left_out_and_reported_once() -> None:
    bench = Bench()
    for number in range(6):
        bench.put(body=b"%d" % number * 10)
    places = [at for at, _, _ in bench.store.queue("T", 0).entries(0, 6)]  # type: ignore[union-attr]
    bench.reopen()
    for number in (0, 2, 5):
        bench.disk.flip(ROOT / "commitlog" / ("0" * 20), places[number] + 90, 1)
    for _ in range(2):
        found = bench.store.read("T", 0, 0)
        assert bodies(found) == [b"1" * 10, b"3" * 10, b"4" * 10]
        assert (found.count, found.next_offset) == (3, 6)
        assert found.size == sum(map(len, found.pieces))
    assert len(bench.said) == 3
    assert sorted(bench.store.damaged) == [places[0], places[2], places[5]]
    only = bench.store.read("T", 0, 2, max_messages=1)
    assert (only.status, only.next_offset, only.pieces) == (Status.MESSAGE_WAS_REMOVING, 3, [])


def test_what_this_process_wrote_is_not_checked_again_nor_anything_if_so_set() -> None:
    for verify in (True, False):
        bench = Bench(read=ReadConfig(verify=verify))
        if not verify:
            bench.put(body=b"one")
            bench.reopen()
        bench.put(body=b"two")
        bench.disk.flip(ROOT / "commitlog" / ("0" * 20), 90, 1)
        assert bench.store.read("T", 0, 0).count >= 1
        assert bench.store.damaged == {}


def old_and_cold() -> Bench:
    """So many bytes behind the end that nobody takes it for granted that they are in memory."""
    bench = Bench(log=LogConfig(segment_size=2**24))
    for number in range(3):
        bench.put(body=b"%d" % number)
    bench.reopen()
    for _ in range(5):
        bench.put("other", body=bytes(4 * 2**20))
    bench.disk.cold = True
    return bench


def test_cold_bytes_are_not_touched_before_they_are_warmed() -> None:
    bench = old_and_cold()
    bench.disk.flip(ROOT / "commitlog" / ("0" * 20), 88, 1)
    found = bench.store.read("T", 0, 0)
    assert (found.cold, found.count) == (True, 3)
    assert bench.said == []
    found = bench.store.warm(found)
    assert (found.cold, bodies(found)) == (False, [b"1", b"2"])
    assert len(bench.said) == 1
    assert bench.disk.warmed


def test_recent_bytes_are_taken_to_be_in_memory() -> None:
    bench = old_and_cold()
    found = bench.store.read("other", 0, 4)
    assert (found.cold, found.count) == (False, 1)


def test_each_run_is_asked_for_by_itself_where_all_between_is_not_in_memory() -> None:
    bench = old_and_cold()
    found = bench.store.read("T", 0, 0)
    assert found.cold
    segment, start, end = found.runs[0]
    segment.file.warm(start, end)
    assert not bench.store.read("T", 0, 0).cold


def test_a_piece_that_someone_holds_outlives_its_file() -> None:
    bench = Bench()
    for number in range(10):
        bench.put(body=b"%d" % number * 900)
    held = bench.store.read("T", 0, 0, max_messages=2).pieces
    for segment in bench.store.log.segments.take_before(8192):
        bench.store.log.segments.remove(segment)
    assert [one.body for piece in held for one in iterate(bytes(piece))] == [
        b"0" * 900,
        b"1" * 900,
    ]


def test_a_file_that_went_between_reading_and_warming_does_not_matter() -> None:
    bench = old_and_cold()
    found = bench.store.read("T", 0, 0)
    for segment in bench.store.log.segments.take_before(2**24):
        bench.store.log.segments.remove(segment)
    assert bodies(bench.store.warm(found)) == [b"0", b"1", b"2"]


def numbered() -> Bench:
    bench = Bench(log=LogConfig(segment_size=2**20))
    for number in range(40):
        bench.put(body=b"%d" % number, n=str(number % 4))
    return bench


def test_messages_are_chosen_by_their_properties() -> None:
    bench = numbered()
    seen: list[bytes] = []

    def accepts(raw: bytes) -> bool:
        seen.append(raw)
        return raw == b"n\x013\x02"

    found = bench.store.read("T", 0, 0, accepts=accepts, max_messages=5)
    assert bodies(found) == [b"3", b"7", b"11", b"15", b"19"]
    assert (found.status, found.count, found.next_offset) == (Status.FOUND, 5, 20)
    assert len(seen) == 20
    nothing = bench.store.read("T", 0, 0, accepts=lambda raw: False)
    assert (nothing.status, nothing.next_offset) == (Status.NO_MATCHED_MESSAGE, 40)
    neither = bench.store.read("T", 0, 0, matches=lambda code: False, accepts=accepts)
    assert (neither.status, len(seen)) == (Status.NO_MATCHED_MESSAGE, 20)


@pytest.mark.parametrize("seed", range(3))
def test_properties_are_read_alike_however_close_messages_lie(seed: int) -> None:
    random = Random(seed)
    bench = Bench(log=LogConfig(segment_size=2**18))
    topic, wanted = "T" * random.choice((1, 200)), list[bytes]()
    for number in range(600):
        if number // 100 % 2:  # for a while others lie between them
            bench.put("other", body=bytes(random.randrange(40_000)))
        body = b"%d:" % number + bytes(random.choice((0, 100, 3000)))
        made = message(topic, 0, body, n=str(number % 7))
        if random.random() < 0.2:
            made.born_ip, made.sys_flag = bytes(16), BORN_HOST_IPV6
        bench.store.append(made)
        if number % 7 == 3:
            wanted.append(body)
    found, offset = list[bytes](), 0
    while offset < 600:
        most = random.randrange(1, 50)
        one = bench.store.read(
            topic, 0, offset, max_messages=most, accepts=b"n\x013\x02".__eq__,
            mark=random.choice((b"", b"n\x013")),
        )  # fmt: skip
        found += bodies(one)
        offset = one.next_offset
    assert found == wanted


def test_properties_that_are_not_in_memory_are_not_touched_before_they_are_warmed() -> None:
    bench = old_and_cold()
    asked: list[bytes] = []

    def accepts(raw: bytes) -> bool:
        asked.append(raw)
        return len(asked) == 2

    found = bench.store.read("T", 0, 0, accepts=accepts)
    assert (found.cold, found.again, found.count, asked) == (True, True, 0, [])
    found = bench.store.warm(found)
    assert (found.cold, found.again, asked) == (False, True, [])
    found = bench.store.read("T", 0, 0, accepts=accepts, warmed=True)
    assert (found.again, found.count, len(asked)) == (False, 1, 3)
    assert bodies(bench.store.warm(found)) == [b"1"]


def test_a_record_that_went_is_not_asked_for_its_properties() -> None:
    bench = Bench()
    for number in range(10):
        bench.put(body=b"%d" % number * 900)
    for segment in bench.store.log.segments.take_before(8192):
        bench.store.log.segments.remove(segment)
    found = bench.store.read("T", 0, 0, accepts=lambda raw: False)
    assert (found.status, found.count) == (Status.MESSAGE_WAS_REMOVING, 0)
    found = bench.store.read("T", 0, 0, accepts=lambda raw: True)
    assert found.status is Status.FOUND
