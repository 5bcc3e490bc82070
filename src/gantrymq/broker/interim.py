"""What stands in for parts that are still being written; each goes when its part comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gantrymq.broker.keeping import Tree
from gantrymq.errors import BrokerFailure
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.store.config import StoreConfig
from gantrymq.store.disk import Disk
from gantrymq.store.queue_table import MakeQueue
from gantrymq.store.queues import QueueOpener
from gantrymq.store.shapes import Index
from gantrymq.wire import fastjson
from gantrymq.wire.record import StoredMessage


class OpenGroups:
    """Every group is there with the settings that a new one gets, and nobody is in it."""

    def settings(self, group: str) -> GroupSettings | None:
        """The settings of a new group."""
        return GroupSettings(group=group)

    def consumers(self, _group: str) -> None:
        """Nobody."""
        return

    def may_read(self, _group: str, _topic: str) -> bool:
        """Nobody forbade anything."""
        return True


class MemoryOffsets:
    """Offsets, forgotten at the end."""

    def __init__(self) -> None:
        self.table: dict[tuple[str, str, int], int] = {}

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """What comes before `offset` is done."""
        self.table[group, topic, queue_id] = offset

    def pulled(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Nobody asks for it yet."""

    def take_reset(self, _group: str, _topic: str, _queue_id: int) -> int | None:
        """Nobody gives such orders yet."""
        return None


class NoLocks:
    """Nobody holds a queue."""

    def any_held(self, _group: str) -> bool:
        """No."""
        return False


class NoDelays:
    """A message with a delay is refused: it would come too early."""

    def redirect(self, _message: StoredMessage) -> None:
        """Refuse it."""
        raise BrokerFailure.because("this broker has no delay levels yet")


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
