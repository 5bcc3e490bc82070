"""The parts that a store gets unless it is told otherwise."""

from __future__ import annotations

from pathlib import Path

from gantrymq.store.config import IndexConfig, QueueConfig, StoreConfig
from gantrymq.store.parts import RocketParts
from gantrymq.testing.faulty_disk import FaultyDisk

STORE = Path("/store")


def test_they_go_by_the_settings() -> None:
    config = StoreConfig(queues=QueueConfig(file_size=400), index=IndexConfig(slots=10, entries=20))
    disk, parts = FaultyDisk(), RocketParts(lambda: 10**12)
    queue = parts.queues(disk, STORE / "consumequeue", config, int)(STORE / "consumequeue/T/3")
    queue.append(0, 100, 1, 0)
    queue.sync()
    index = parts.index(disk, STORE / "index", config)
    assert index is not None
    index.put(["k"], None, "T", 0, 10**12)
    index.sync()
    sizes = {str(path.parent): len(data) for path, data in disk.tree().items()}
    assert sizes == {"/store/consumequeue/T/3": 400, "/store/index": 40 + 4 * 10 + 20 * 20}


def test_without_an_index() -> None:
    config = StoreConfig(index=IndexConfig(enabled=False))
    assert RocketParts().index(FaultyDisk(), STORE, config) is None
