from __future__ import annotations

import os
from pathlib import Path

import pytest

from gantrymq.store.disk import RealDisk
from gantrymq.store.lock import StoreInUse, StoreLock
from gantrymq.testing.faulty_disk import FaultyDisk

HERE = Path("/store")


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory(HERE)
    return disk


def test_while_it_is_held_the_files_are_rocketmqs(disk: FaultyDisk) -> None:
    lock = StoreLock(disk, HERE)
    assert disk.read(HERE / "lock") == b"lock"
    assert disk.read(HERE / "abort") == str(os.getpid()).encode()
    lock.release(in_order=True)
    assert not disk.exists(HERE / "abort")


def test_the_next_one_knows_whether_the_last_run_ended_in_order(disk: FaultyDisk) -> None:
    first = StoreLock(disk, HERE)
    assert not first.after_crash
    first.release(in_order=False)
    second = StoreLock(disk, HERE)
    assert second.after_crash
    second.release(in_order=True)
    assert not StoreLock(disk, HERE).after_crash


def test_a_second_one_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    disk = RealDisk()
    lock = StoreLock(disk, tmp_path)
    with pytest.raises(StoreInUse, match=f"{tmp_path} is in use by process {os.getpid()}$"):
        StoreLock(disk, tmp_path)
    lock.release(in_order=True)
    StoreLock(disk, tmp_path).release(in_order=True)


@pytest.mark.parametrize("text", [b"", b"not a number", None])
def test_a_holder_that_did_not_say_its_number_is_another_process(
    disk: FaultyDisk, text: bytes | None
) -> None:
    StoreLock(disk, HERE)
    if text is None:
        disk.remove(HERE / "abort")
    else:
        disk.write(HERE / "abort", text)
    with pytest.raises(StoreInUse, match="in use by another process"):
        StoreLock(disk, HERE)


def test_the_mark_of_a_run_is_there_before_anything_else_is_written(disk: FaultyDisk) -> None:
    StoreLock(disk, HERE)
    assert disk.history[-1] == "sync names of /store"
