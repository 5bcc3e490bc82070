from __future__ import annotations

import errno
import os
from pathlib import Path
from random import Random

import pytest

from gantrymq.testing.faulty_disk import SECTOR, FaultyDisk, PowerCut

HERE = Path("/here")
FILE = HERE / "file"


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory(HERE)
    return disk


def contents(disk: FaultyDisk) -> bytes | None:
    return disk.tree().get(FILE)


def outcomes(disk: FaultyDisk) -> set[bytes | None]:
    """All that may be left of the file without power."""
    return {contents(disk.after_power_cut(Random(seed))) for seed in range(60)}


def test_a_process_sees_what_it_wrote(disk: FaultyDisk) -> None:
    file = disk.create(FILE, 8)
    file.write(2, b"abc")
    assert bytes(file.view) == b"\0\0abc\0\0\0"
    assert bytes(disk.open(FILE, 8).view) == bytes(file.view)
    assert disk.after_kill().read(FILE) == bytes(file.view)


def test_without_power_each_sector_that_was_not_synced_is_new_or_old(disk: FaultyDisk) -> None:
    file = disk.create(FILE, 2 * SECTOR)
    file.write(0, b"a" * 2 * SECTOR)
    file.sync()
    disk.sync_directory(HERE)
    file.write(SECTOR - 1, b"bb")
    old, new = b"a" * SECTOR, b"a" * (SECTOR - 1) + b"b"
    after = b"b" + b"a" * (SECTOR - 1)
    assert outcomes(disk) == {old + old, new + old, old + after, new + after}
    file.sync()
    assert outcomes(disk) == {new + after}


def test_without_power_a_name_that_was_not_synced_may_be_gone_or_empty(disk: FaultyDisk) -> None:
    disk.create(FILE, 4)
    assert outcomes(disk) == {None, b"", bytes(4)}
    disk.sync_directory(HERE)
    assert outcomes(disk) == {bytes(4)}


def test_a_removed_file_may_come_back_until_the_directory_is_synced(disk: FaultyDisk) -> None:
    disk.write(FILE, b"data")
    disk.sync_directory(HERE)
    disk.remove(FILE)
    assert outcomes(disk) == {None, b"data"}
    disk.sync_directory(HERE)
    assert outcomes(disk) == {None}


def test_a_rename_happens_or_does_not(disk: FaultyDisk) -> None:
    disk.write(FILE, b"old")
    disk.sync_directory(HERE)
    disk.write(HERE / "fresh", b"new")
    disk.rename(HERE / "fresh", FILE)
    left = {
        tuple(
            sorted(
                (path.name, data) for path, data in disk.after_power_cut(Random(n)).tree().items()
            )
        )
        for n in range(60)
    }
    before = {(("file", b"old"),), (("file", b"old"), ("fresh", b"new"))}
    assert before | {(("file", b"new"),)} == {one for one in left if ("fresh", b"") not in one}


def test_names_last_in_their_order(disk: FaultyDisk) -> None:
    for name in "abc":
        disk.write(HERE / name, b"x")
    left = {
        "".join(sorted(path.name for path in disk.after_power_cut(Random(seed)).tree()))
        for seed in range(60)
    }
    assert left == {"", "a", "ab", "abc"}


def test_the_machine_stops_at_an_operation_and_stays_off(disk: FaultyDisk) -> None:
    file = disk.create(FILE, 8)
    disk.stop_at = disk.operations + 2
    file.write(0, b"12")
    disk.tear_at = 1
    with pytest.raises(PowerCut):
        file.write(2, b"34")
    for attempt in (file.sync, lambda: file.write(0, b"x"), lambda: disk.remove(FILE)):
        with pytest.raises(PowerCut):
            attempt()
    assert disk.after_kill().read(FILE)[:4] == b"123\0"


def test_what_a_failed_sync_dropped_stays_dropped(disk: FaultyDisk) -> None:
    file = disk.create(FILE, 4)
    file.sync()
    disk.sync_directory(HERE)
    file.write(0, b"data")
    disk.sync_fails = True
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        file.sync()
    disk.sync_fails = False
    file.sync()
    assert bytes(file.view) == b"data"
    assert outcomes(disk) == {bytes(4)}


def test_a_full_disk_takes_nothing_more_until_something_goes() -> None:
    disk = FaultyDisk(capacity=3000)
    disk.make_directory(HERE)
    first = disk.create(HERE / "a", 2000, stride=1000)
    second = disk.create(FILE, 4000, stride=1000)
    first.write(1500, b"x")
    second.write(0, b"x")
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        second.write(1000, b"x")
    assert (disk.used, disk.usage(HERE).free) == (3000, 0)
    disk.remove(HERE / "a")
    second.write(1000, b"x")


def test_a_sync_can_be_held_up_and_a_removed_file_not_synced(disk: FaultyDisk) -> None:
    seen: list[str] = []
    disk.before_sync = lambda path: seen.append(path.name)
    file = disk.create(FILE, 4)
    file.sync()
    disk.remove(FILE)
    with pytest.raises(FileNotFoundError):
        file.sync()
    assert seen == ["file", "file"]


def test_directories_locks_and_sizes(disk: FaultyDisk) -> None:
    disk.make_directory(HERE / "below")
    disk.write(HERE / "below" / "x", b"1")
    assert [(entry.name, entry.is_directory) for entry in disk.entries(HERE)] == [("below", True)]
    disk.remove_tree(HERE / "below")
    assert disk.entries(HERE) == []
    held = disk.lock(HERE / "lock")
    assert held is not None
    assert disk.lock(HERE / "lock") is None
    held.release()
    assert disk.lock(HERE / "lock") is not None
    assert disk.after_kill().lock(HERE / "lock") is not None
    with pytest.raises(ValueError, match="4 bytes, not 5"):
        disk.open(HERE / "lock", 5)
    with pytest.raises(FileNotFoundError):
        disk.create(Path("/elsewhere/file"), 1)
    with pytest.raises(FileNotFoundError):
        disk.usage(Path("/elsewhere"))


def test_cold_bytes_are_in_memory_once_they_were_warmed(disk: FaultyDisk) -> None:
    file = disk.create(FILE, 100)
    assert file.resident(0, 10)
    disk.cold = True
    assert not file.resident(0, 10)
    file.warm(0, 10)
    assert file.resident(0, 10)
