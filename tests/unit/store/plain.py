"""The simplest queues that a store can have, and what its tests say again and again.

One file for each queue, written at once: what is wrong in a test with these is wrong in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from struct import Struct
from typing import Any

from gantrymq.errors import GantryError
from gantrymq.store.config import (
    FlushConfig,
    IndexConfig,
    LogConfig,
    QueueConfig,
    ReadConfig,
    RetentionConfig,
    SpaceConfig,
    StoreConfig,
)
from gantrymq.store.disk import Disk, File
from gantrymq.store.opening import MakeParts
from gantrymq.store.parts import RocketParts
from gantrymq.store.queue_table import MakeQueue
from gantrymq.store.shapes import Boundary, Entry, Index, Queue
from gantrymq.store.store import Store
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage

ROOT = Path("/store")
ENTRY = Struct(">qiq")
FILE = 4000 * ENTRY.size
BLANK = (0, 2**31 - 1, 0)
FIRST = Struct(">q")


class PlainQueue:
    """Entries in one file, from the number in its first 8 bytes on."""

    def __init__(self, disk: Disk, directory: Path, store_time: Callable[[int], int]) -> None:
        self._disk, self._directory, self._store_time = disk, directory, store_time
        self._path = directory / "entries"
        if not disk.exists(self._path):
            disk.make_directory(directory)
        sizes = [entry.size for entry in disk.entries(directory)]
        self._file: File = (
            disk.open(self._path, FILE) if sizes == [FILE] else disk.create(self._path, FILE)
        )
        self._unnamed = True
        self.damaged = False
        self._load()

    def _load(self) -> None:
        self.min_offset = self.max_offset = self._first = FIRST.unpack_from(self._file.view)[0]
        while self._at(self.max_offset)[1] > 0:
            self.max_offset += 1

    def _at(self, offset: int) -> Entry:
        found: Entry = ENTRY.unpack_from(self._file.view, 8 + (offset - self._first) * ENTRY.size)
        return found

    @property
    def max_log_offset(self) -> int:
        if self.max_offset == self._first:
            return -1
        at, size, _ = self._at(self.max_offset - 1)
        return at + size

    @property
    def size(self) -> int:
        return FILE

    def append(self, log_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        if queue_offset < self.max_offset:
            return
        if self.max_offset == self._first:
            self._first = self.min_offset = self.max_offset = queue_offset
            self._file.write(0, FIRST.pack(queue_offset))
        while self.max_offset < queue_offset:
            self._add(BLANK)
        self._add((log_offset, size, tags_code))

    def _add(self, entry: Entry) -> None:
        at = 8 + (self.max_offset - self._first) * ENTRY.size
        self._file.write(at, ENTRY.pack(*entry))
        self.max_offset += 1

    def entries(self, first: int, count: int) -> Iterable[Entry]:
        return [self._at(offset) for offset in range(first, min(first + count, self.max_offset))]

    def truncate(self, log_end: int) -> None:
        kept, end = self._first, 0
        while kept < self.max_offset:
            at, size, _ = self._at(kept)
            if (at, size) != BLANK[:2]:
                if at + size > log_end or at < end:  # half an entry may look like an earlier one
                    break
                end = at + size
            kept += 1
        while kept > self._first and self._at(kept - 1) == BLANK:
            kept -= 1
        self.max_offset = kept
        self.min_offset = min(self.min_offset, kept)
        self._file.zero_from(8 + (kept - self._first) * ENTRY.size)

    def correct_min(self, log_start: int) -> None:
        while self.min_offset < self.max_offset and self._at(self.min_offset)[0] < log_start:
            self.min_offset += 1

    def offset_at(self, store_ms: int, boundary: Boundary) -> int:
        assert boundary == "lower"
        for offset in range(self.min_offset, self.max_offset):
            if self._store_time(self._at(offset)[0]) >= store_ms:
                return offset
        return self.max_offset

    def recover(self) -> None:
        self._load()

    @property
    def unsynced(self) -> bool:
        return True

    def write_out(self) -> None:
        pass

    def sync(self) -> None:
        self._file.sync()
        if self._unnamed:
            self._disk.sync_directory(self._directory)
            self._unnamed = False

    def clear(self) -> None:
        self._file.zero_from(0)
        self._first = self.min_offset = self.max_offset = 0

    def close(self) -> None:
        self._file.close()

    def destroy(self) -> None:
        self._file.close()
        self._disk.remove_tree(self._directory)


class PlainParts:
    def queues(
        self, disk: Disk, directory: Path, config: StoreConfig, store_time: Callable[[int], int]
    ) -> MakeQueue:
        def make(path: Path) -> Queue:
            return PlainQueue(disk, path, store_time)

        return make

    def index(self, disk: Disk, directory: Path, config: StoreConfig) -> Index | None:
        return None


PARTS = PlainParts()


class Bench:
    """A store on a disk in memory, and the clocks it goes by."""

    def __init__(
        self, disk: FaultyDisk | None = None, parts: MakeParts = PARTS, **groups: Any
    ) -> None:
        self.disk = disk or FaultyDisk()
        self.parts = parts
        self.now_ms = 1_000_000
        self.monotonic = 0.0
        self.aged = 0.0
        """Seconds that went by on both clocks; what `now_ms` is set to besides is a jump."""
        self.read_monotonic: Callable[[], float] = lambda: self.monotonic + self.aged
        self.hour = 12
        self.said: list[str] = []
        self.config = config(**groups)
        self.store = self.open()

    def age(self, ms: int) -> None:
        """Let so much time go by."""
        self.now_ms += ms
        self.aged += ms / 1000

    def open(self) -> Store:
        self.store = Store.open(
            ROOT,
            self.config,
            self.parts,
            disk=self.disk,
            clock_ms=lambda: self.now_ms,
            monotonic=self.read_monotonic,
            hour=lambda: self.hour,
            report=self.said.append,
        )
        return self.store

    def reopen(self, disk: FaultyDisk | None = None) -> Store:
        """Close properly, or leave it as a crash does and go on with what is left on `disk`."""
        if disk is None:
            closed = self.store.close()
            assert closed.problem is None
        else:
            self.disk = disk
        self.said.clear()
        return self.open()

    def put(self, topic: str = "T", queue_id: int = 0, body: bytes = b"hello", **more: str) -> int:
        """Append a message and give its queue offset."""
        return self.store.append(message(topic, queue_id, body, **more)).queue_offset

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Everything that the queue holds, in order."""
        return [found.body for found in self.messages(topic, queue_id)]

    def messages(self, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
        queue = self.store.queue(topic, queue_id)
        if queue is None:
            return []
        return [
            self.store.message_at(at)
            for at, size, code in queue.entries(queue.min_offset, 1_000_000)
            if (at, size, code) != BLANK
        ]


def config(
    *,
    segment_size: int = 4096,
    mode: str = "async",
    log: LogConfig | None = None,
    read: ReadConfig | None = None,
    retention: RetentionConfig | None = None,
    space: SpaceConfig | None = None,
) -> StoreConfig:
    return StoreConfig(
        log=log or LogConfig(segment_size=segment_size),
        queues=QueueConfig(file_size=20 * 50),
        index=IndexConfig(slots=10, entries=40),
        flush=FlushConfig(mode="sync" if mode == "sync" else "async"),
        read=read or ReadConfig(),
        retention=retention or RetentionConfig(),
        space=space or SpaceConfig(),
    )


def message(
    topic: str = "T", queue_id: int = 0, body: bytes = b"hello", **more: str
) -> StoredMessage:
    return StoredMessage(
        topic, body, properties.encode(more), queue_id=queue_id, born_ms=999, store_port=10911
    )


__all__ = ["ROOT", "Bench", "GantryError", "PlainParts", "RocketParts", "config", "message"]
