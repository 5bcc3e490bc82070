from __future__ import annotations

from pathlib import Path

import pytest

from gantrymq.errors import StoreError
from gantrymq.store.segment import Segments
from gantrymq.testing.faulty_disk import FaultyDisk, PowerCut

HERE = Path("/log")
SIZE = 1000


def made(disk: FaultyDisk, count: int) -> Segments:
    segments = Segments(disk, HERE, SIZE)
    for _ in range(count):
        segments.add()
    return segments


def loaded(disk: FaultyDisk) -> Segments:
    segments = Segments(disk, HERE, SIZE)
    segments.load()
    return segments


def names(disk: FaultyDisk) -> list[str]:
    return [entry.name for entry in disk.entries(HERE) if not entry.is_directory]


def test_files_are_named_by_the_offset_of_their_first_byte() -> None:
    disk = FaultyDisk()
    segments = made(disk, 3)
    assert names(disk) == ["0" * 20, "0" * 16 + "1000", "0" * 16 + "2000"]
    assert (segments.start, segments.end) == (0, 3000)
    assert [segment.base for segment in loaded(disk).files] == [0, 1000, 2000]


def test_the_first_file_may_begin_later_but_at_a_multiple() -> None:
    segments = Segments(FaultyDisk(), HERE, SIZE)
    assert segments.add(5400).base == 5000
    assert segments.add().base == 6000
    assert (segments.start, segments.end) == (5000, 7000)


@pytest.mark.parametrize(
    ("offset", "base"), [(0, 0), (999, 0), (1000, 1000), (2999, 2000), (3000, None), (-1, None)]
)
def test_find(offset: int, base: int | None) -> None:
    found = made(FaultyDisk(), 3).find(offset)
    assert (found.base if found else None) == base
    assert Segments(FaultyDisk(), HERE, SIZE).find(0) is None


def test_an_empty_last_file_was_just_being_made_and_goes() -> None:
    disk = FaultyDisk()
    made(disk, 2)
    disk.write(HERE / f"{2000:020d}", b"")
    assert loaded(disk).end == 2000
    assert len(names(disk)) == 2


@pytest.mark.parametrize(("count", "size"), [(1, 1001), (2, 999), (2, 1001), (2, 1)])
def test_a_file_of_another_size_is_refused(count: int, size: int) -> None:
    disk = FaultyDisk()
    made(disk, 1)
    for number in range(1, count + 1):  # more than the last one, if it is a smaller one
        disk.write(HERE / f"{number * 1000:020d}", bytes(size))
    with pytest.raises(StoreError, match=rf"{1000:020d} has {size} bytes; .* files of 1000"):
        loaded(disk)


@pytest.mark.parametrize("size", [1, 512, 999])
@pytest.mark.parametrize("count", [1, 3])
def test_a_last_file_that_was_cut_off_has_zeros_for_what_is_missing(count: int, size: int) -> None:
    disk = FaultyDisk()
    segments = made(disk, count)
    last = segments.files[-1]
    last.file.write(0, b"x" * SIZE)
    segments.close()
    disk.shorten(last.path, size)
    again = loaded(disk.after_kill()).files[-1]
    assert bytes(again.view) == b"x" * size + bytes(SIZE - size)


def test_an_only_file_of_a_round_size_may_be_what_the_store_was_set_to() -> None:
    disk = FaultyDisk()
    disk.make_directory(HERE)
    disk.write(HERE / f"{0:020d}", bytes(1 << 20))
    segments = Segments(disk, HERE, 1 << 21)
    with pytest.raises(StoreError, match="Set that size back"):
        segments.load()


def test_a_missing_file_is_named() -> None:
    disk = FaultyDisk()
    made(disk, 4)
    disk.remove(HERE / f"{1000:020d}")
    disk.remove(HERE / f"{2000:020d}")
    with pytest.raises(StoreError, match=r"after 0{20} comes 0{16}3000; between them 2 files"):
        loaded(disk)


@pytest.mark.parametrize("name", ["1000", "x" * 20, f"{500:020d}"])
def test_a_name_that_is_no_offset_is_refused(name: str) -> None:
    disk = FaultyDisk()
    disk.make_directory(HERE)
    disk.write(HERE / name, bytes(SIZE))
    with pytest.raises(StoreError, match="named by 20 digits, a multiple of"):
        loaded(disk)


def test_directories_and_hidden_files_are_passed_over() -> None:
    disk = FaultyDisk()
    made(disk, 1)
    disk.make_directory(HERE / "below")
    disk.write(HERE / ".DS_Store", b"x")
    assert len(loaded(disk).files) == 1


def test_files_that_are_taken_out_are_still_there_until_they_are_removed() -> None:
    disk = FaultyDisk()
    segments = made(disk, 4)
    listed = segments.files
    assert segments.take_before(999) == []
    gone = segments.take_before(2500)
    assert [segment.base for segment in gone] == [0, 1000]
    assert (segments.start, len(listed), len(names(disk))) == (2000, 4, 4)
    held = gone[0].view[:4]
    for segment in gone:
        segments.remove(segment)
    assert names(disk) == [f"{2000:020d}", f"{3000:020d}"]
    assert bytes(held) == bytes(4)


def test_cut_removes_later_files_and_leaves_zeros() -> None:
    disk = FaultyDisk()
    segments = made(disk, 4)
    for segment in segments.files:
        segment.file.write(0, b"x" * SIZE)
    segments.cut(1300)
    assert names(disk) == ["0" * 20, f"{1000:020d}"]
    assert disk.read(HERE / f"{1000:020d}") == b"x" * 300 + bytes(700)
    segments.cut(1000)  # the file in which the next byte goes stays
    assert disk.read(HERE / f"{1000:020d}") == bytes(1000)
    assert disk.read(HERE / f"{0:020d}") == b"x" * SIZE


def test_a_crash_while_files_are_cut_off_leaves_no_gap() -> None:
    for stop in range(1, 8):
        disk = FaultyDisk()
        segments = made(disk, 5)
        disk.stop_at = disk.operations + stop
        try:
            segments.cut(100)
        except PowerCut:
            loaded(disk.after_kill())


def test_syncing_names_of_a_directory_that_does_not_exist_is_nothing() -> None:
    Segments(FaultyDisk(), HERE, SIZE).sync_names()
