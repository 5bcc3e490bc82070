"""What stands in for parts that are still being written; each goes when its part comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantrymq.broker.keeping import Tree
from gantrymq.store.config import StoreConfig
from gantrymq.store.disk import Disk
from gantrymq.store.queue_table import MakeQueue
from gantrymq.store.queues import QueueOpener
from gantrymq.store.shapes import Index
from gantrymq.wire import fastjson


class PlainFiles:
    """JSON files without a backup."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def load(self, name: str) -> Tree | None:
        """What the file says."""
        try:
            return fastjson.loads((self._directory / name).read_bytes())
        except FileNotFoundError:
            return None

    def save(self, name: str, tree: Tree) -> None:
        """Write the file."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / name).write_bytes(fastjson.dumps(tree))


class Parts:
    """Consume queues as they are, and no index yet."""

    def queues(
        self, disk: Disk, _directory: Path, config: StoreConfig, store_time: Callable[[int], int]
    ) -> MakeQueue:
        """What opens queues."""
        return QueueOpener(disk, store_time, file_size=config.queues.file_size)

    def index(self, _disk: Disk, _directory: Path, _config: StoreConfig) -> Index | None:
        """None."""
        return None
