from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from gantrymq.errors import StoreError
from gantrymq.store.disk import Disk, RealDisk
from gantrymq.store.queue_table import QueueTable
from gantrymq.store.queues import QueueOpener
from gantrymq.testing.faulty_disk import FaultyDisk
from tests.unit.store.plain import PlainQueue

HERE = Path("/q")


def table(disk: FaultyDisk) -> QueueTable:
    made = QueueTable(disk, HERE, lambda path: PlainQueue(disk, path, lambda at: at))
    made.load()
    return made


def filled() -> tuple[FaultyDisk, QueueTable]:
    disk = FaultyDisk()
    queues = table(disk)
    for topic, queue_id, count in (("A", 0, 3), ("A", 1, 1), ("%RETRY%g", 0, 2)):
        slot = queues.obtain(topic, queue_id)
        for offset in range(count):
            slot.append(100 * offset, 100, 0, offset)
    return disk, queues


def test_queues_are_found_again_where_they_were() -> None:
    disk, queues = filled()
    again = table(disk)
    assert again.totals() == queues.totals() == {"%RETRY%g": {"0": 2}, "A": {"0": 3, "1": 1}}
    assert again.obtain("A", 0).next_offset == 3
    assert again.max_log_offset == 300
    assert table(FaultyDisk()).max_log_offset == -1


def test_what_is_no_queue_is_passed_over() -> None:
    disk, _ = filled()
    disk.make_directory(HERE / "A" / "backup")
    disk.write(HERE / "A" / "7", b"x")
    disk.write(HERE / "B", b"x")
    assert len(table(disk).slots) == 3


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a\\b", "a\0b"])
def test_a_topic_that_would_leave_its_directory_is_refused(topic: str) -> None:
    queues = table(FaultyDisk())
    with pytest.raises(StoreError, match="cannot be a directory's name"):
        queues.obtain(topic, 0)
    queues.remove_topic(topic)
    with pytest.raises(StoreError, match="cannot be a directory's name"):
        queues.obtain("T", -1)


def test_a_removed_topic_is_gone_with_its_files() -> None:
    disk, queues = filled()
    queues.remove_topic("A")
    queues.remove_topic("nobody")
    assert list(table(disk).totals()) == list(queues.totals()) == ["%RETRY%g"]
    assert queues.obtain("A", 0).next_offset == 0


def test_truncating_sets_back_what_comes_next() -> None:
    _, queues = filled()
    queues.truncate(100)
    assert {slot.topic: slot.next_offset for slot in queues if slot.queue_id == 0} == {
        "A": 1,
        "%RETRY%g": 1,
    }
    queues.correct_min(200)
    assert all(slot.queue.min_offset == slot.queue.max_offset == 1 for slot in queues)


def real(disk: Disk, here: Path = HERE) -> QueueTable:
    made = QueueTable(disk, here, QueueOpener(disk, lambda at: at, file_size=200))
    made.load()
    return made


@pytest.mark.parametrize("count", [1, 100])
def test_queues_that_were_synced_survive_a_power_cut_few_or_many(count: int) -> None:
    disk = FaultyDisk()
    queues = real(disk)
    for offset in range(7):
        for queue_id in range(count):
            queues.obtain("T", queue_id).append(100 * offset, 100, 0, offset)
        if offset in (2, 5):
            queues.sync()
    for seed in range(5):
        found = real(disk.after_power_cut(Random(seed)))
        assert len(found.slots) == count
        assert all(6 <= slot.queue.max_offset <= 7 for slot in found)


def test_many_queues_are_brought_to_a_real_disk_together(tmp_path: Path) -> None:
    here = tmp_path / "consumequeue"
    queues = real(RealDisk(), here)
    for queue_id in range(40):
        queues.obtain("T", queue_id).append(0, 100, 0, 0)
    queues.sync()
    assert not any(slot.queue.unsynced for slot in queues)
    queues.close()
    assert real(RealDisk(), here).totals() == {"T": {str(one): 1 for one in range(40)}}
