"""Consume queues: bytes on disk, bounds, what goes, and what a new process finds."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from gantrymq.errors import CorruptRecord, StoreError
from gantrymq.store.consume_queue import FILE_SIZE, MAX_HOLE, ConsumeQueue
from gantrymq.store.disk import RealDisk
from gantrymq.store.queues import QueueOpener
from gantrymq.testing.faulty_disk import FaultyDisk, PowerCut

DIRECTORY = Path("/store/consumequeue/T/0")
TEN = 200
"""Bytes of a file with ten entries."""
BLANK = "0000000000000000 7fffffff 0000000000000000"


def opener(
    disk: FaultyDisk, times: Callable[[int], int] = lambda offset: offset, size: int = TEN
) -> QueueOpener:
    return QueueOpener(disk, times, file_size=size)


def opened(disk: FaultyDisk, size: int = TEN) -> ConsumeQueue:
    return opener(disk, size=size)(DIRECTORY)


def fill(queue: ConsumeQueue, count: int) -> None:
    """Records of 100 bytes side by side; each tags code is the queue offset."""
    for _ in range(count):
        at = queue.max_offset
        queue.append(at * 100, 100, at, at)


def offsets(queue: ConsumeQueue) -> list[int]:
    """What a reader sees who goes through the queue, by the tags codes of `fill`."""
    seen: list[int] = []
    at = queue.min_offset
    while at < queue.max_offset:
        part = [code for _, _, code in queue.entries(at, queue.max_offset - at)]
        assert part
        seen += part
        at += len(part)
    return seen


def files(disk: FaultyDisk) -> dict[str, str]:
    """The files of the queue: names without zeros in front, contents without zeros behind."""
    return {
        path.name.lstrip("0") or "0": data.hex().rstrip("0")
        for path, data in sorted(disk.tree().items())
        if path.parent == DIRECTORY
    }


def words(text: str) -> str:
    return text.replace(" ", "").replace("\n", "").rstrip("0")


# bytes


def test_an_entry_is_log_offset_size_and_tags_code_big_endian() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    queue.append(0, 0x123, -2, 0)
    queue.append(0x0123456789AB, 0x7FFFFFFE, 2**40 + 1, 1)
    queue.sync()
    assert files(disk) == {
        "0": words(
            """0000000000000000 00000123 fffffffffffffffe
               00000123456789ab 7ffffffe 0000010000000001"""
        )
    }
    assert list(queue.entries(0, 2)) == [(0, 0x123, -2), (0x0123456789AB, 0x7FFFFFFE, 2**40 + 1)]


def test_files_have_300000_entries_and_the_name_of_their_first_byte() -> None:
    disk = FaultyDisk()
    queue = opened(disk, FILE_SIZE)
    queue.append(5000, 10, 1, 600_001)
    queue.sync()
    assert {path.name: len(data) for path, data in disk.tree().items()} == {
        "00000000000012000000": 6_000_000
    }


def test_a_queue_that_starts_above_0_begins_with_blank_entries() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    queue.append(7000, 50, 9, 23)
    assert (queue.min_offset, queue.max_offset, queue.max_log_offset) == (23, 24, 7050)
    queue.sync()
    entry = "0000000000001b58 00000032 0000000000000009"
    assert files(disk) == {"400": words(BLANK * 3 + entry)}
    again = opened(disk)
    assert (again.min_offset, again.max_offset, again.max_log_offset) == (23, 24, 7050)


def test_a_queue_that_starts_at_the_beginning_of_a_file_needs_no_blanks() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    queue.append(7000, 50, 9, 20)
    queue.sync()
    assert files(disk) == {"400": words("0000000000001b58 00000032 0000000000000009")}


def test_a_hole_is_filled_with_blank_entries() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    queue.append(0, 100, 1, 0)
    queue.append(300, 100, 1, 3)
    queue.sync()
    first = "0000000000000000 00000064 0000000000000001"
    fourth = "000000000000012c 00000064 0000000000000001"
    assert files(disk) == {"0": words(first + BLANK * 2 + fourth)}
    assert [size for _, size, _ in queue.entries(0, 4)] == [100, 2**31 - 1, 2**31 - 1, 100]


# adding


def test_what_is_there_already_is_passed_over() -> None:
    queue = opened(FaultyDisk())
    fill(queue, 5)
    queue.append(300, 100, -1, 3)  # by its queue offset
    queue.append(400, 100, -1, 5)  # by its place in the log
    queue.append(499, 1, -1, 5)
    assert (offsets(queue), queue.max_offset, queue.max_log_offset) == ([0, 1, 2, 3, 4], 5, 500)


def test_a_queue_offset_that_can_only_come_from_a_damaged_record_is_refused() -> None:
    queue = opened(FaultyDisk())
    fill(queue, 5)
    with pytest.raises(CorruptRecord, match=rf"{6 + MAX_HOLE} is {MAX_HOLE + 1} ahead of .*/T/0"):
        queue.append(900, 100, 1, 6 + MAX_HOLE)
    with pytest.raises(CorruptRecord, match="more than"):
        opened(FaultyDisk()).append(0, 100, 1, 2**62)
    assert offsets(queue) == [0, 1, 2, 3, 4]


def test_no_file_is_made_before_it_is_needed() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    queue.sync()
    queue.close()
    assert disk.operations == 0
    queue = opened(disk)
    fill(queue, 800)
    assert disk.operations == 0
    queue.close()
    assert len(files(disk)) == 80


def test_a_queue_that_grows_fast_writes_by_itself() -> None:
    disk = FaultyDisk()
    queue = opened(disk, 40_000)
    fill(queue, 5_000)
    assert sorted(files(disk)) == ["0", "40000", "80000"]
    assert offsets(queue) == list(range(5_000))


def test_no_more_is_written_without_a_sync_than_recovery_looks_at() -> None:
    disk = FaultyDisk()
    queue = opened(disk, 30_000)
    fill(queue, 10_000)
    assert sorted(files(disk)) == ["0", "30000", "60000"]
    queue.sync()
    assert len(files(disk)) == 7
    fill(queue, 10_000)
    assert len(files(disk)) == 9
    assert offsets(queue) == list(range(20_000))


def test_a_full_disk_is_the_matter_of_sync_and_nothing_is_lost() -> None:
    disk = FaultyDisk(capacity=40_000)
    queue = opened(disk)
    fill(queue, 10_000)
    with pytest.raises(OSError, match=r"(?i)no space") as caught:
        queue.sync()
    assert caught.value.errno == errno.ENOSPC
    assert offsets(queue) == list(range(10_000))
    disk.capacity = 10**9
    queue.sync()
    assert offsets(opened(disk)) == list(range(10_000))


def test_after_a_failed_sync_no_later_one_counts() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 3)
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output error"):
        queue.sync()
    disk.sync_fails = False
    fill(queue, 3)
    with pytest.raises(OSError, match="a sync failed before"):
        queue.sync()
    assert offsets(queue) == list(range(6))


# reading


@pytest.mark.parametrize("synced", [True, False])
def test_entries_from_anywhere_in_any_number(synced: bool) -> None:
    queue = opened(FaultyDisk())
    fill(queue, 95)
    if synced:
        queue.sync()
    for first in range(95):
        for count in (0, 1, 2, 9, 10, 60, 95, 1000):
            codes = [code for _, _, code in queue.entries(first, count)]
            assert codes == list(range(first, first + len(codes)))
            least = min(count, 95 - first, 10 - first % 10)  # up to the end of the file at least
            assert least <= len(codes) <= count
    assert not list(queue.entries(95, 10))


def test_what_was_read_stays_as_it_was() -> None:
    queue = opened(FaultyDisk())
    fill(queue, 1200)
    old, new = queue.entries(0, 5), queue.entries(1190, 5)
    fill(queue, 5000)
    queue.sync()
    queue.clear()
    assert [code for _, _, code in old] == [0, 1, 2, 3, 4]
    assert [code for _, _, code in new] == [1190, 1191, 1192, 1193, 1194]


# what goes


def test_truncate_drops_what_ends_later_in_the_log() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 35)
    queue.sync()
    fill(queue, 10)
    queue.truncate(4500)
    assert queue.max_offset == 45
    queue.truncate(4450)
    assert (queue.max_offset, queue.max_log_offset) == (44, 4400)
    queue.truncate(1999)
    assert (queue.max_offset, queue.max_log_offset) == (19, 1900)
    assert sorted(files(disk)) == ["0", "200"]
    queue.append(1900, 100, 19, 19)
    queue.sync()
    assert offsets(opened(disk)) == list(range(20))


def test_truncate_to_nothing_keeps_the_name_that_says_where_the_queue_goes_on() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    queue.append(7000, 50, 9, 23)
    queue.append(7050, 50, 9, 24)
    queue.sync()
    queue.truncate(0)
    assert (queue.min_offset, queue.max_offset, queue.max_log_offset) == (23, 23, -1)
    queue.sync()
    again = opened(disk)
    assert (again.min_offset, again.max_offset, again.max_log_offset) == (23, 23, -1)
    assert files(disk) == {"400": words(BLANK * 3)}


def test_what_truncate_dropped_does_not_come_back() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 8)
    queue.sync()
    queue.truncate(500)
    queue.sync()
    for seed in range(20):
        left = opened(disk.after_power_cut(Random(seed)))
        left.recover()
        assert offsets(left) == [0, 1, 2, 3, 4]


def test_correct_min_drops_whole_files_and_counts_inside_the_first() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 35)
    queue.sync()
    queue.correct_min(99)
    assert (queue.min_offset, sorted(files(disk))) == (1, ["0", "200", "400", "600"])
    queue.correct_min(1_250)
    assert (queue.min_offset, sorted(files(disk))) == (13, ["200", "400", "600"])
    queue.correct_min(2_000)
    assert (queue.min_offset, sorted(files(disk))) == (20, ["400", "600"])
    queue.correct_min(300)
    assert queue.min_offset == 20
    again = opened(disk)
    again.correct_min(2_000)
    assert (again.min_offset, again.max_offset) == (20, 35)


def test_correct_min_with_nothing_left_keeps_the_number_of_the_next_message() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 20)
    queue.sync()
    queue.correct_min(2_000)
    assert (queue.min_offset, queue.max_offset, sorted(files(disk))) == (20, 20, ["200"])
    queue.append(2_000, 100, 20, 20)
    queue.correct_min(2_000)
    assert (queue.min_offset, offsets(queue)) == (20, [20])
    queue.correct_min(2_100)
    assert (queue.min_offset, queue.max_offset) == (21, 21)


def test_correct_min_touches_no_file_while_the_first_entry_is_good() -> None:
    disk = FaultyDisk()
    make = QueueOpener(disk, int, file_size=TEN, open_at_once=1)
    queue, other = make(DIRECTORY), make(DIRECTORY.parent / "1")
    for one in (queue, other):
        fill(one, 100)
        one.sync()
    queue.correct_min(500)
    list(other.entries(0, 1))
    for log_start in range(0, 500, 50):
        queue.correct_min(log_start)
    assert queue.min_offset == 5
    assert list(make._files._files) == [f"{DIRECTORY.parent}/1/{0:020d}"]


def test_holes_do_not_lead_searches_astray() -> None:
    queue = opened(FaultyDisk())
    for at in (0, 1, 7, 8, 30, 31, 32, 60):
        queue.append(at * 100, 100, at, at)
    queue.sync()
    queue.correct_min(900)
    assert queue.min_offset == 30
    assert queue.offset_at(3_101, "lower") == 32
    assert queue.offset_at(3_201, "lower") == 60
    assert queue.offset_at(5_000, "upper") == 32
    queue.truncate(6_099)
    assert queue.max_log_offset == 3_300
    assert queue.max_offset <= 60


def test_clear_begins_anew_and_stays_so() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 30)
    queue.sync()
    queue.clear()
    assert (queue.min_offset, queue.max_offset, queue.max_log_offset, queue.size) == (0, 0, -1, 0)
    for seed in range(10):
        assert not files(disk.after_power_cut(Random(seed)))
    queue.append(9000, 100, 1, 4)
    queue.sync()
    assert (queue.min_offset, queue.max_offset, queue.size) == (4, 5, TEN)


def test_destroy_removes_the_directory() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 30)
    queue.sync()
    queue.destroy()
    assert not disk.exists(DIRECTORY)
    queue.destroy()
    queue.sync()
    assert not disk.exists(DIRECTORY)


# by time


@pytest.mark.parametrize(
    ("store_ms", "lower", "upper"),
    [(5, 2, 2), (10, 2, 3), (11, 4, 3), (20, 4, 4), (25, 5, 4), (30, 5, 29), (31, 30, 29)],
)
def test_offset_at(store_ms: int, lower: int, upper: int) -> None:
    times = [1, 5, 10, 10, 20] + [30] * 25
    queue = opener(FaultyDisk(), lambda offset: times[offset // 100])(DIRECTORY)
    fill(queue, 30)
    queue.sync()
    queue.correct_min(200)
    assert queue.offset_at(store_ms, "lower") == lower
    assert queue.offset_at(store_ms, "upper") == upper


def test_offset_at_of_an_empty_queue_is_where_it_goes_on() -> None:
    queue = opened(FaultyDisk())
    assert (queue.offset_at(5, "lower"), queue.offset_at(5, "upper")) == (0, 0)
    fill(queue, 10)
    queue.correct_min(1_000)
    assert (queue.offset_at(5, "lower"), queue.offset_at(5, "upper")) == (10, 10)


def test_records_that_cannot_be_read_have_no_time_and_are_passed_by() -> None:
    queue = opener(FaultyDisk(), lambda offset: -1 if offset < 500 else offset)(DIRECTORY)
    fill(queue, 10)
    assert queue.offset_at(0, "lower") == 5
    assert queue.offset_at(650, "lower") == 7
    assert queue.offset_at(650, "upper") == 6
    assert queue.offset_at(100, "upper") == 0


# what a new process finds


def test_what_was_not_written_is_gone_after_a_crash_and_what_was_synced_is_not() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 25)
    queue.sync()
    fill(queue, 12)
    for left in (disk.after_kill(), disk.after_power_cut(Random(1))):
        again = opened(left)
        again.recover()
        assert (offsets(again), again.damaged) == (list(range(25)), False)


def test_recovery_cuts_at_the_first_entry_that_is_none() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 57)
    queue.close()
    disk.flip(DIRECTORY / f"{1000:020d}", 3 * 20 + 8, 0x80)  # the size of entry 53 becomes negative
    again = opened(disk)
    again.recover()
    assert (offsets(again), again.max_log_offset, again.damaged) == (list(range(53)), 5_300, True)
    again.close()
    assert sorted(files(disk)) == ["0", "1000", "200", "400", "600", "800"]


def test_recovery_cuts_where_log_offsets_go_back() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 57)
    queue.close()
    disk.flip(DIRECTORY / f"{800:020d}", 2 * 20 + 6, 0x10)  # entry 42 seems to be before 41
    again = opened(disk)
    again.recover()
    assert (offsets(again), again.damaged) == (list(range(42)), True)
    assert sorted(files(disk)) == ["0", "200", "400", "600", "800"]


def test_recovery_looks_at_the_last_three_files_only() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 57)
    queue.close()
    disk.flip(DIRECTORY / f"{400:020d}", 8, 0x80)
    again = opened(disk)
    again.recover()
    assert (again.max_offset, again.damaged) == (57, False)


def test_recovery_of_a_queue_that_has_only_blanks_left() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    queue.append(500, 100, 1, 17)
    queue.close()
    disk.flip(DIRECTORY / f"{200:020d}", 7 * 20 + 11, 100)  # the only entry now has size 0
    again = opened(disk)
    again.recover()
    assert (again.min_offset, again.max_offset, again.max_log_offset) == (17, 17, -1)


def test_after_recovery_even_what_a_killed_process_wrote_is_synced() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 20)
    disk.stop_at = disk.operations + 8  # when all is written, and some of it synced
    with pytest.raises(PowerCut):
        queue.sync()
    left = disk.after_kill()
    again = opened(left)
    again.recover()
    assert again.max_offset == 20
    again.sync()
    assert opened(left.after_power_cut(Random(3))).max_offset == 20


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 99, 100, 101])
def test_the_end_is_found_again(count: int) -> None:
    disk = FaultyDisk()
    queue = opened(disk, 2000)
    fill(queue, count)
    queue.close()
    again = opened(disk, 2000)
    assert (again.max_offset, again.max_log_offset) == (count, count * 100 or -1)


def test_files_of_another_size_are_refused() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 1)
    queue.close()
    with pytest.raises(StoreError, match=r"T/0/0{20} has 200 bytes; .* set to .* of 180"):
        opened(disk, 180)
    disk.write(DIRECTORY / f"{0:020d}", bytes(2000))
    with pytest.raises(StoreError, match=r"T/0/0{20} has 2000 bytes; .* set to .* of 4000"):
        opened(disk, 4000)


def test_a_last_file_that_was_cut_off_is_damaged() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 15)
    queue.close()
    disk.shorten(DIRECTORY / f"{200:020d}", 50)
    again = opened(disk)
    assert again.max_offset == 12
    again.recover()
    assert (again.max_offset, again.damaged) == (12, True)
    fill(again, 15)
    assert again.max_offset >= 15


def test_missing_files_in_between_are_named() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 50)
    queue.close()
    for base in (400, 600):
        disk.remove(DIRECTORY / f"{base:020d}")
    with pytest.raises(StoreError, match=r"after 0{17}200 comes 0{17}800; .* 2 files of 200"):
        opened(disk)


@pytest.mark.parametrize("name", ["backup", "00000000000000000010", "200"])
def test_files_of_other_names_are_refused(name: str) -> None:
    disk = FaultyDisk()
    disk.make_directory(DIRECTORY)
    disk.write(DIRECTORY / name, bytes(TEN))
    with pytest.raises(StoreError, match=f"{name}: files here are named by 20 digits"):
        opened(disk)


def test_an_empty_last_file_was_being_made_and_goes() -> None:
    disk = FaultyDisk()
    queue = opened(disk)
    fill(queue, 10)
    queue.close()
    disk.write(DIRECTORY / f"{200:020d}", b"")
    assert opened(disk).max_offset == 10
    assert sorted(files(disk)) == ["0"]


# threads and real files


@pytest.mark.usefixtures("no_leaks")
def test_syncing_beside_appending_and_reading(tmp_path: Path) -> None:
    make = QueueOpener(RealDisk(), int, file_size=2000, open_at_once=3)
    queue = make(tmp_path / "T" / "0")
    stop = threading.Event()
    problems: list[BaseException] = []

    def keep_syncing() -> None:
        try:
            while not stop.is_set():
                queue.sync()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    try:
        for round_ in range(1, 401):
            fill(queue, 50)
            for back in (1, 3, 55, 60, 800):
                first = max(queue.max_offset - back, 0)
                codes = [code for _, _, code in queue.entries(first, back)]
                assert codes == list(range(first, first + len(codes)))
                assert codes
            assert queue.max_offset == 50 * round_
    finally:
        stop.set()
        thread.join()
    assert not problems
    assert offsets(queue) == list(range(20_000))
    queue.close()
    again = make(tmp_path / "T" / "0")
    again.recover()
    assert offsets(again) == list(range(20_000))
    again.close()


@pytest.mark.usefixtures("no_leaks")
def test_few_files_are_open_and_closing_closes_them(tmp_path: Path) -> None:
    make = QueueOpener(RealDisk(), int, file_size=2000, open_at_once=4)
    queues = [make(tmp_path / "T" / str(number)) for number in range(20)]
    for queue in queues:
        fill(queue, 300)
        queue.sync()
    for queue in queues:
        assert offsets(queue) == list(range(300))
        assert make.open_files <= 4
    for queue in queues:
        queue.close()
    assert make.open_files == 0
