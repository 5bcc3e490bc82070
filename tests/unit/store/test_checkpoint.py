from __future__ import annotations

import struct
from pathlib import Path

import pytest

from gantrymq.store.checkpoint import Checkpoint
from gantrymq.testing.faulty_disk import FaultyDisk

PATH = Path("/store/checkpoint")


@pytest.fixture
def disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.make_directory(PATH.parent)
    return disk


def test_the_file_is_rocketmqs_to_the_byte(disk: FaultyDisk) -> None:
    point = Checkpoint(disk, PATH)
    point.log_ms, point.queues_ms, point.index_ms = 1, 2, 3
    point.master_flushed_offset, point.confirmed_offset = 4, 2**40
    point.save()
    assert disk.read(PATH) == struct.pack(">qqqqq", 1, 2, 3, 4, 2**40) + bytes(4096 - 40)
    again = Checkpoint(disk, PATH)
    assert (again.log_ms, again.queues_ms, again.index_ms) == (1, 2, 3)
    assert (again.master_flushed_offset, again.confirmed_offset) == (4, 2**40)
    again.close()


def test_a_missing_one_knows_nothing(disk: FaultyDisk) -> None:
    point = Checkpoint(disk, PATH)
    assert (point.log_ms, point.confirmed_offset, point.sure_ms) == (0, 0, 0)


@pytest.mark.parametrize("size", [0, 40, 5000])
def test_one_of_another_size_is_begun_anew(disk: FaultyDisk, size: int) -> None:
    disk.write(PATH, b"\1" * size)
    assert Checkpoint(disk, PATH).confirmed_offset == 0
    assert len(disk.read(PATH)) == 4096


def test_what_is_sure_by_time_is_three_seconds_behind_the_slower_part(disk: FaultyDisk) -> None:
    point = Checkpoint(disk, PATH)
    point.log_ms, point.queues_ms = 20_000, 10_000
    assert point.sure_ms == 7_000
    point.log_ms = 2_000
    assert point.sure_ms == 0
