"""The key index: bytes as RocketMQ writes them, questions, rolling, crashes."""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from random import Random
from struct import unpack_from

import pytest

from gantrymq.errors import StoreError
from gantrymq.store import index_file
from gantrymq.store.disk import RealDisk
from gantrymq.store.index_file import IndexFile
from gantrymq.store.key_index import KeyHashes, KeyIndex
from gantrymq.store.steps import finish
from gantrymq.testing.faulty_disk import FaultyDisk, PowerCut
from gantrymq.wire.javahash import java_hash

ROOT = Path("/store/index")
NOW = 1_700_000_000_000
FOREVER = 2**62


def opened(disk: FaultyDisk, *, slots: int = 5, entries: int = 8, now_ms: int = NOW) -> KeyIndex:
    return KeyIndex(disk, ROOT, clock_ms=lambda: now_ms, slots=slots, entries=entries)


def names(disk: FaultyDisk) -> list[str]:
    return sorted(path.name for path in disk.tree() if path.parent == ROOT)


def key_hash(text: str) -> int:
    return abs(java_hash(text)) & 0x7FFF_FFFF


def hits(index: KeyIndex, key: str, *, limit: int = 64, begin: int = 0) -> list[int]:
    return index.query("T", key, limit, begin, FOREVER).log_offsets


def fill(index: KeyIndex, first: int, count: int) -> None:
    """Messages at 0, 100, 200 …, one a second, of the keys k0, k1, k2 in turn."""
    for number in range(first, first + count):
        index.put((), f"k{number % 3}", "T", number * 100, NOW + number * 1000)


# bytes

# Written by org.apache.rocketmq.store.index.IndexFile of RocketMQ 5.5.0, with 5 slots and 8
# entries: six keys in the first file and, once that was full, two more in the second.
FIRST = bytes.fromhex(
    """
    0000018bcfe56800 0000018bcfe58740 0000000000000000 0000000000000258 00000003 00000008
    00000006 00000007 00000002 00000000 00000000
    0000000000000000000000000000000000000000
    00013ff2 0000000000000000 00000000 00000000
    00013ff3 0000000000000064 00000000 00000000
    00013ff2 00000000000000c8 00000002 00000001
    00013ff7 000000000000012c 00000000 00000003
    04ce175d 0000000000000190 7fffffff 00000004
    00000000 00000000000001f4 00000007 00000000
    0001400b 0000000000000258 00000008 00000005
    """
)
SECOND = bytes.fromhex(
    """
    0000018bcfe5b620 0000018bcfe5ba08 0000000000000384 00000000000003e8 00000001 00000003
    00000000 00000002 00000000 00000000 00000000
    0000000000000000000000000000000000000000
    00013ff2 0000000000000384 0000000c 00000000
    00013ff2 00000000000003e8 00000001 00000001
    """
).ljust(220, b"\0")


def test_the_files_are_what_rocketmq_writes() -> None:
    disk = FaultyDisk()
    index = opened(disk)
    for key, log_offset, after_ms in (
        ("a", 0, 0),
        ("b", 100, 999),
        ("a", 200, 2000),
        ("f", 300, -5000),  # a clock that was set back
        ("é😀", 400, 3000 * 10**9),  # as many seconds as an int holds
    ):
        index.put((), key, "T", log_offset, NOW + after_ms)
    # a text whose hash has no positive counterpart; no topic and key of RocketMQ's make it
    index.files[0].put(key_hash("polygenelubricants"), 500, NOW + 7500)
    index.put(["z"], None, "T", 600, NOW + 8000)
    index.put(["a"], None, "T", 900, NOW + 20_000)
    index.put(["a"], None, "T", 1000, NOW + 21_000)
    index.sync()
    first, second = (disk.read(ROOT / name) for name in names(disk))
    assert first == FIRST
    assert second == SECOND


def test_a_file_of_rocketmq_is_read_and_continued() -> None:
    disk = FaultyDisk()
    disk.make_directory(ROOT)
    disk.write(ROOT / "20231114221320000", FIRST)
    disk.write(ROOT / "20231114221320001", SECOND)
    index = opened(disk)
    assert (index.max_log_offset, index.max_store_ms) == (1000, NOW + 21_000)
    assert hits(index, "a") == [1000, 900, 200, 0]
    assert hits(index, "b") == [100]
    assert hits(index, "nothing") == []
    index.put(["a"], None, "T", 1100, NOW + 22_000)
    assert hits(index, "a") == [1100, 1000, 900, 200, 0]


def test_a_whole_file_has_420000040_bytes() -> None:
    disk = FaultyDisk()
    index = KeyIndex(disk, ROOT, clock_ms=lambda: NOW)
    assert (index.size, index._file_size) == (0, 420_000_040)


@pytest.mark.parametrize(
    "key", ["", "k", "1234567", "12345678", "123456789", "7F00000100002A139A5518B4AAC20F3A", "é",
            "polygenelubricants", "😀" * 20, "k" * 100],
)  # fmt: skip
@pytest.mark.parametrize("topic", ["", "T", "a-topic-with-a-name"])
def test_hashes_are_javas(topic: str, key: str) -> None:
    hashes = KeyHashes()
    for _ in range(2):
        assert hashes.of(topic, key) == key_hash(f"{topic}#{key}")


def test_few_beginnings_of_keys_are_remembered() -> None:
    hashes = KeyHashes()
    for number in range(10_000):
        hashes.of("T", f"{number}-the-rest")
    assert len(hashes._heads) <= 4096


# putting and asking


def test_a_message_is_found_by_each_of_its_keys_once() -> None:
    index = opened(FaultyDisk(), entries=20)
    index.put(["one", "", "two", "unique"], "unique", "T", 100, NOW)
    assert [hits(index, key) for key in ("one", "two", "unique", "")] == [[100]] * 3 + [[]]
    assert index.query("other", "one", 10, 0, FOREVER).log_offsets == []


def test_what_is_there_already_is_left() -> None:
    index = opened(FaultyDisk(), entries=20)
    fill(index, 0, 6)
    fill(index, 2, 3)
    assert (hits(index, "k0"), hits(index, "k1"), hits(index, "k2")) == (
        [300, 0], [400, 100], [500, 200],
    )  # fmt: skip


def test_a_hit_says_what_was_indexed_last() -> None:
    index = opened(FaultyDisk())
    assert index.query("T", "k", 1, 0, FOREVER) == ([], 0, 0)
    fill(index, 0, 5)
    assert index.query("T", "k", 1, 0, FOREVER) == ([], NOW + 4000, 400)
    assert (index.max_log_offset, index.max_store_ms) == (400, NOW + 4000)


def test_newest_first_within_times_and_limit_over_all_files() -> None:
    index = opened(FaultyDisk(), entries=8)
    fill(index, 0, 300)
    every = [number * 100 for number in range(297, -1, -3)]
    assert hits(index, "k0") == every[:64]
    assert hits(index, "k0", limit=5) == every[:5]
    assert hits(index, "k0", limit=1000) == every[:64]
    assert hits(index, "k0", limit=0) == []
    # the first entry of a file counts from where the file before ended: it is 1 s late, as Java's
    early = index.query("T", "k0", 64, NOW + 50_000, NOW + 100_000).log_offsets
    assert early == [number * 100 for number in range(99, 48, -3)]
    assert index.query("T", "k0", 64, 0, NOW + 9_000).log_offsets == [900, 600, 300, 0]
    assert index.query("T", "k0", 64, NOW + 400_000, FOREVER).log_offsets == []


def test_a_long_search_is_done_in_stretches() -> None:
    index = opened(FaultyDisk(), entries=9000)
    for number in range(5000):
        index.put(["k"], None, "T", number, NOW + number * 1000)
    search = index.search("T", "k", 64, 0, NOW + 2000)
    assert [next(search), next(search)] == [None, None]
    with pytest.raises(StopIteration) as done:
        next(search)
    assert done.value.value.log_offsets[-3:] == [2, 1, 0]


def test_a_search_ends_where_a_file_goes_meanwhile() -> None:
    index = opened(FaultyDisk(), slots=1, entries=3000)
    for number in range(7000):
        index.put(["k"], None, "T", number, NOW)
    search = index.search("T", "another key in the only slot", 64, 0, FOREVER)
    next(search)
    index.correct_min(6999)
    assert len(index.files) == 1
    assert finish(search).log_offsets == []


def test_keys_of_one_slot_share_a_chain() -> None:
    index = opened(FaultyDisk(), slots=1, entries=100)
    fill(index, 0, 30)
    assert hits(index, "k1") == [number * 100 for number in range(28, 0, -3)]
    assert index.files[0].used_slots == 1


def test_damaged_chains_end() -> None:
    disk = FaultyDisk()
    index = opened(disk, slots=1, entries=100)
    fill(index, 0, 30)
    index.sync()
    path = index.files[0].path
    index = opened(disk, slots=1, entries=100)
    disk.flip(path, 40 + 4 + 20 * 20 + 19, 19 ^ 20)  # entry 20 points to itself
    assert hits(index, "k1") == [2800, 2500, 2200, 1900]
    disk.flip(path, 40 + 4 + 25 * 20 + 12, 0x80)  # entry 25 is of a negative time
    assert hits(index, "k1") == [2800, 2500]


# files


def test_names_are_local_times_and_always_grow() -> None:
    disk = FaultyDisk()
    index = opened(disk, entries=2)
    fill(index, 0, 3)
    local = datetime.fromtimestamp(NOW // 1000).strftime("%Y%m%d%H%M%S")
    assert names(disk) == [f"{local}{ms:03d}" for ms in range(3)]
    for number, now_ms in ((3, NOW - 7_200_000), (4, NOW + 5_017)):
        index.close()
        index = opened(disk, entries=2, now_ms=now_ms)
        fill(index, number, 1)
    later = datetime.fromtimestamp(NOW // 1000 + 5).strftime("%Y%m%d%H%M%S")
    assert names(disk)[3:] == [f"{local}003", f"{later}017"]


def test_old_files_go_but_not_the_newest() -> None:
    disk = FaultyDisk()
    index = opened(disk, entries=8)
    fill(index, 0, 28)
    index.correct_min(600)
    assert len(names(disk)) == 4
    index.correct_min(1_301)
    assert [file.begin_log for file in index.files] == [1400, 2100]
    index.correct_min(10**6)
    assert [file.begin_log for file in index.files] == [2100]
    assert index.size == 220
    index.sync()
    assert (opened(disk, entries=8).max_log_offset) == 2700


def test_closing_keeps_all() -> None:
    disk = FaultyDisk()
    index = opened(disk, entries=1000)
    fill(index, 0, 900)
    index.close()
    index = opened(disk.after_power_cut(Random(2)), entries=1000)
    assert index.max_log_offset == 89_900
    assert hits(index, "k0", limit=3) == [89_700, 89_400, 89_100]


def test_files_of_another_size_or_name_are_refused() -> None:
    disk = FaultyDisk()
    index = opened(disk)
    fill(index, 0, 3)
    index.close()
    with pytest.raises(StoreError, match=r"has 220 bytes; .* index files of 216\. Set slots"):
        opened(disk, slots=4)
    disk.write(ROOT / "notes.txt", b"?")
    with pytest.raises(StoreError, match=r"notes.txt: index files are named by a time"):
        opened(disk)


def test_a_file_that_was_just_being_made_goes() -> None:
    disk = FaultyDisk()
    fill(opened(disk), 0, 1)
    disk.write(ROOT / "29991231235959999", b"")
    assert opened(disk).max_log_offset == -1
    assert len(names(disk)) == 1


@pytest.mark.parametrize("files", [1, 3])
def test_a_last_file_that_was_cut_off_goes_and_its_messages_come_again(files: int) -> None:
    disk = FaultyDisk()
    index = opened(disk)
    fill(index, 0, 7 * files)
    index.sync()
    trusted_ms, end = index.max_store_ms, index.max_log_offset
    index.close()
    disk.shorten(ROOT / names(disk)[-1], 99)
    again = opened(disk)
    assert len(again.files) == files - 1
    assert again.recover(trusted_ms) == max(again.max_log_offset, 0) < end


@pytest.mark.parametrize("byte", [39, 31, 40 + 20 + 7 * 20 + 4])
def test_a_damaged_file_and_those_after_it_go(byte: int) -> None:
    disk = FaultyDisk()
    index = opened(disk)
    fill(index, 0, 21)
    index.close()
    disk.flip(ROOT / names(disk)[1], byte, 0x50)
    index = opened(disk)
    assert (len(index.files), index.max_log_offset) == (1, 600)
    fill(index, 0, 21)
    assert hits(index, "k0") == [number * 100 for number in range(18, -1, -3)]


# room, and a disk that fails


def test_room_for_all_slots_is_set_aside_at_once() -> None:
    disk = FaultyDisk(capacity=100)
    index = opened(disk, slots=5000)
    with pytest.raises(OSError, match=r"(?i)no space"):
        fill(index, 0, 1)
    assert names(disk) == []
    disk.capacity = 10**6
    fill(index, 0, 5)
    assert hits(index, "k0") == [300, 0]


def test_no_room_for_entries_is_the_matter_of_sync_and_nothing_is_lost() -> None:
    disk = FaultyDisk(capacity=300_000)
    index = opened(disk, entries=50_000)
    fill(index, 0, 20_000)
    with pytest.raises(OSError, match=r"(?i)no space"):
        index.sync()
    assert hits(index, "k0", limit=2) == [1_999_800, 1_999_500]
    disk.capacity = 10**9
    index.sync()
    assert hits(opened(disk, entries=50_000), "k0", limit=2) == [1_999_800, 1_999_500]


def test_after_a_failed_sync_no_later_one_counts() -> None:
    disk = FaultyDisk()
    index = opened(disk)
    fill(index, 0, 3)
    disk.sync_fails = True
    with pytest.raises(OSError, match="Input/output error"):
        index.sync()
    disk.sync_fails = False
    with pytest.raises(OSError, match="a sync failed before"):
        index.sync()


# crashes


def test_slots_that_point_past_the_end_are_mended() -> None:
    disk = FaultyDisk()
    index = opened(disk, slots=3, entries=100)
    fill(index, 0, 20)
    index.sync()
    fill(index, 20, 30)
    for left in (disk.after_kill(), *(disk.after_power_cut(Random(seed)) for seed in range(30))):
        again = opened(left, slots=3, entries=100)
        assert again.recover(NOW + 19_000) is None
        assert again.max_log_offset == 1900
        every = [hits(again, f"k{key}") for key in range(3)]
        assert every == [
            [at * 100 for at in range(19, -1, -1) if at % 3 == key] for key in range(3)
        ]
        fill(again, 18, 5)  # dispatched again, from too early a point
        assert hits(again, "k0") == [number * 100 for number in range(21, -1, -3)]


def test_after_a_kill_no_slot_points_past_what_the_header_counts() -> None:
    """RocketMQ takes such a slot for an empty one, and does not find what is older."""
    disk = FaultyDisk()
    index = opened(disk, slots=3, entries=100)
    fill(index, 0, 20)
    index.sync()
    fill(index, 20, 30)
    for path, data in disk.after_kill().tree().items():
        count, *slots = unpack_from(">4i", data, 36)
        assert count == 21, path
        assert sorted(slots) == [18, 19, 20]


def test_slots_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "_MOST_SLOTS", 4)
    index = opened(FaultyDisk(), slots=64, entries=1000)
    fill(index, 0, 300)
    assert hits(index, "k0", limit=2) == [29_700, 29_400]
    assert len(index.files[0]._fresh) < 4


def test_what_was_begun_after_the_last_sync_goes() -> None:
    disk = FaultyDisk()
    index = opened(disk)
    fill(index, 0, 10)
    index.sync()
    fill(index, 10, 20)
    again = opened(disk.after_kill())
    assert again.recover(NOW + 9_000) == 900
    assert [file.count for file in again.files] == [8, 4]
    fill(again, 9, 21)
    assert hits(again, "k0") == [number * 100 for number in range(27, -1, -3)]


def test_without_a_checkpoint_all_goes() -> None:
    disk = FaultyDisk()
    index = opened(disk)
    fill(index, 0, 10)
    index.sync()
    again = opened(disk.after_kill())
    assert again.recover(0) == 0
    assert (again.files, again.max_log_offset) == ((), -1)
    assert names(disk.after_kill()) != []
    assert opened(FaultyDisk()).recover(0) is None


def test_mending_is_on_the_disk_after_a_sync() -> None:
    disk = FaultyDisk()
    index = opened(disk, slots=3, entries=100)
    fill(index, 0, 20)
    index.sync()
    fill(index, 20, 30)
    left = disk.after_kill()
    again = opened(left, slots=3, entries=100)
    again.recover(NOW + 19_000)
    again.sync()
    last = opened(left.after_power_cut(Random(1)), slots=3, entries=100)
    assert hits(last, "k2") == [1700, 1400, 1100, 800, 500, 200]


@pytest.mark.parametrize("stop", range(1, 12))
def test_a_sync_that_is_cut_short_leaves_the_one_before(stop: int) -> None:
    disk = FaultyDisk()
    index = opened(disk, slots=3, entries=12)
    fill(index, 0, 8)
    index.sync()
    fill(index, 8, 9)
    disk.stop_at = disk.operations + stop
    with suppress(PowerCut):
        index.sync()
    for seed in range(10):
        again = opened(disk.after_power_cut(Random(seed)), slots=3, entries=12)
        start = again.recover(NOW + 7_000)
        assert again.max_log_offset >= 700
        first = 7 if start is None else start // 100
        fill(again, first, 17 - first)
        assert hits(again, "k1") == [number * 100 for number in range(16, 0, -3)]


# threads


@pytest.mark.usefixtures("no_leaks")
def test_syncing_beside_putting_and_asking(tmp_path: Path) -> None:
    index = KeyIndex(RealDisk(), tmp_path, clock_ms=lambda: NOW, slots=64, entries=2000)
    stop = threading.Event()
    problems: list[BaseException] = []

    def keep_syncing() -> None:
        try:
            while not stop.is_set():
                index.sync()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=keep_syncing)
    thread.start()
    try:
        for start in range(0, 10_000, 50):
            fill(index, start, 50)
            index.correct_min((start - 5000) * 100)
            assert (
                hits(index, "k0", limit=5)
                == [number * 100 for number in range(start + 49, start, -1) if number % 3 == 0][:5]
            )
    finally:
        stop.set()
        thread.join()
    assert not problems
    index.close()
    again = KeyIndex(RealDisk(), tmp_path, clock_ms=lambda: NOW, slots=64, entries=2000)
    assert (again.max_log_offset, len(again.files)) == (999_900, 4)
    assert hits(again, "k0", limit=1) == [999_900]
    again.close()


def test_a_file_says_how_much_it_has() -> None:
    disk = FaultyDisk()
    disk.make_directory(ROOT)
    raw = disk.create(ROOT / "x", 220)
    assert repr(IndexFile(ROOT / "20231114221320000", raw, 5, 8)).endswith("000, 0 entries>")
