"""The parts of a store as RocketMQ keeps them: consume queues and hash index files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gantrymq.store.config import StoreConfig
from gantrymq.store.consume_queue import StoreTime
from gantrymq.store.disk import Disk
from gantrymq.store.key_index import KeyIndex
from gantrymq.store.queues import QueueOpener


class RocketParts:
    """Makes them; a `MakeParts` for `Store.open`."""

    __slots__ = ("_clock_ms",)

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock_ms = clock_ms

    def queues(
        self, disk: Disk, directory: Path, config: StoreConfig, store_time: StoreTime
    ) -> QueueOpener:
        """What opens each consume queue, wherever it is."""
        del directory
        return QueueOpener(disk, store_time, file_size=config.queues.file_size)

    def index(self, disk: Disk, directory: Path, config: StoreConfig) -> KeyIndex | None:
        """The key index in `directory`, or None where none is to be kept."""
        if not config.index.enabled:
            return None
        return KeyIndex(
            disk, directory, clock_ms=self._clock_ms,
            slots=config.index.slots, entries=config.index.entries,
        )  # fmt: skip
