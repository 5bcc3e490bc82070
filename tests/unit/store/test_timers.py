from __future__ import annotations

from pathlib import Path
from random import Random

from gantrymq.store.timer_log import PLAIN, UNIT_SIZE, Unit
from gantrymq.store.timers import Entry, TimerFiles
from gantrymq.testing.faulty_disk import FaultyDisk

ROOT = Path("/store")
NOW_MS = 1_700_000_000_000
FILE_SIZE = 1 << 14


def opened(disk: FaultyDisk) -> TimerFiles:
    return TimerFiles(disk, ROOT, FILE_SIZE, slots=600)


def entries(numbers: range) -> list[Entry]:
    due = [NOW_MS + 1000 * (number % 50) for number in numbers]
    return [
        Entry(due_ms, PLAIN, due_ms, number * 1000, 500, 7)
        for number, due_ms in zip(numbers, due, strict=True)
    ]


def numbers(files: TimerFiles) -> list[int]:
    """What the wheel leads to."""
    found = []
    for _, slot in files.wheel.seconds(0):
        found += [unit.log_offset // 1000 for _, unit in files.chain(slot)]
    return sorted(found)


def test_what_was_cut_off_does_not_come_back_behind_newer_units() -> None:
    said: list[str] = []
    for seed in range(20):
        disk = FaultyDisk()
        disk.make_directory(ROOT)
        files = opened(disk)
        files.add(entries(range(100)), NOW_MS)
        files.save(files.check)  # all of it is on the disk, and nobody knows

        def lost_from_30(unit: Unit) -> int | None:
            return unit.log_offset // 1000 if unit.log_offset < 30_000 else None

        again = opened(disk)
        assert again.recover(lost_from_30, said.append) == 30
        again.add(entries(range(30, 34)), NOW_MS)
        left = disk.after_power_cut(Random(seed))
        last = opened(left)
        last.recover(lambda unit: unit.log_offset // 1000, said.append)
        kept = numbers(last)
        assert kept == list(range(len(kept)))
        assert 30 <= len(kept) <= 34
        assert last.log.end == len(kept) * UNIT_SIZE
    assert "the message of what follows is lost" in said[0]
