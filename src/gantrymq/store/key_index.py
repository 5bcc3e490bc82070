"""The key index: where the messages are that have a certain key.

    index/<yyyyMMddHHmmssSSS, local time of its making>

Each file is a hash table on disk (`index_file`). The hash is Java's of `topic#key`, without its
sign. Keys are not kept, so who asks has to look whether a message that was found really has the
key. When a file is full another one is begun, and whole files go when the log before them went.

**After a crash** a file that was begun after the checkpoint goes, as RocketMQ has it, and the one
before is mended. RocketMQ does not put the messages of such files again, so that they are found by
key no more; here `recover` says from where on that has to be done.

RocketMQ: IndexService.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

from gantrymq.errors import StoreError
from gantrymq.store.disk import Disk
from gantrymq.store.index_file import IndexFile, size_of
from gantrymq.store.segment import is_cut_off
from gantrymq.store.steps import Steps, finish
from gantrymq.wire.javahash import INT_MAX, java_hash

SLOTS: Final = 5_000_000
ENTRIES: Final = 20_000_000
MAX_HITS: Final = 64

_INT_MASK: Final = 0xFFFF_FFFF
_COUNTER: Final = 4
"""Unique keys of one client that are made in the same millisecond differ in their last characters,
and those of the next milliseconds in as many before."""
_MOST_HEADS: Final = 4096
_NAME: Final = "%Y%m%d%H%M%S"
_NAME_LENGTH: Final = 17


class IndexHits(NamedTuple):
    """What a question to the index found.

    RocketMQ: QueryOffsetResult.
    """

    log_offsets: list[int]
    """Where messages with that key's hash are, newest first."""
    last_update_ms: int
    last_update_log_offset: int


class KeyIndex:
    """All files of the index, oldest first; an `Index` as the store wants it.

    Putting, asking and removing happen on one thread; `sync` may run on another.
    """

    __slots__ = (
        "_clock_ms", "_directory", "_disk", "_entries", "_files", "_hashes", "_lost",
        "_names_synced", "_slots", "max_log_offset", "max_store_ms",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        clock_ms: Callable[[], int],
        slots: int = SLOTS,
        entries: int = ENTRIES,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._clock_ms = clock_ms
        self._slots = slots
        self._entries = entries
        self._hashes = KeyHashes()
        self._names_synced = True
        self._lost = False
        self._files: list[IndexFile] = []
        self.max_log_offset = -1
        """The log offset of the newest message that is in it; -1 where there is none."""
        self.max_store_ms = 0
        """The store time of that message; 0 where there is none."""
        self._load()

    @property
    def size(self) -> int:
        """How many bytes its files have; sparse as they are, they take less of the disk."""
        return len(self._files) * self._file_size

    @property
    def files(self) -> Sequence[IndexFile]:
        """The files, oldest first."""
        return tuple(self._files)

    def put(
        self,
        keys: Sequence[str],
        unique_key: str | None,
        topic: str,
        log_offset: int,
        store_ms: int,
    ) -> None:
        """Add a message under all its keys; one that is there already is left."""
        if log_offset < self.max_log_offset:
            return
        hashes = self._hashes
        if unique_key is not None:
            self._last().put(hashes.of(topic, unique_key), log_offset, store_ms)
        for key in keys:
            if key:
                self._last().put(hashes.of(topic, key), log_offset, store_ms)
        self.max_log_offset = log_offset
        self.max_store_ms = store_ms

    def put_unique(self, key: str, topic: str, log_offset: int, store_ms: int) -> None:
        """What `put` does for a message that has only its unique key."""
        if log_offset < self.max_log_offset:
            return
        files = self._files
        file = files[-1] if files else None
        if file is None or file.count >= file.entries:
            file = self._last()
        file.put(self._hashes.of(topic, key), log_offset, store_ms)
        self.max_log_offset = log_offset
        self.max_store_ms = store_ms

    def search(
        self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int
    ) -> Steps[IndexHits]:
        """The newest messages with the key's hash, within these store times; at most 64.

        A key that very many messages have takes long, where the times are not those of its last.
        """
        found: list[int] = []
        limit = min(limit, MAX_HITS)
        key_hash = self._hashes.of(topic, key)
        for file in reversed(self._files):
            at = None
            while at != 0 and file.overlaps(begin_ms, end_ms):
                at = file.find(key_hash, begin_ms, end_ms, limit, found, at)
                if at:
                    yield
                    if file not in self._files:  # it went meanwhile, and all before it
                        break
            if file.begin_ms < begin_ms or len(found) >= limit or file not in self._files:
                break
        return IndexHits(found, self.max_store_ms, max(self.max_log_offset, 0))

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> IndexHits:
        """The same, all at once."""
        return finish(self.search(topic, key, limit, begin_ms, end_ms))

    def recover(self, trusted_ms: int) -> int | None:
        """Drop or mend, after a crash, what was written to after the last sync, at `trusted_ms`.

        Gives the log offset from which messages have to be put again, or None if no file went.
        """
        kept = 0
        for file in self._files:
            if file.count <= 1 or file.begin_ms > trusted_ms:
                break
            kept += 1
            if not file.is_full:
                file.mend()
                break
        self._names_synced = False
        if kept == len(self._files) and not self._lost:
            return None
        self._drop_from(kept)
        return max(self.max_log_offset, 0)

    def correct_min(self, log_start: int) -> None:
        """Remove the files that only know of messages before `log_start`, except the newest."""
        while len(self._files) > 1 and self._files[0].end_log < log_start:
            gone, *self._files = self._files
            self._remove(gone)

    def sync(self) -> None:
        """Return once all entries will survive the machine; may run on another thread."""
        for file in self._files:  # an older one first: what a newer one has comes after it
            file.sync()
        if not self._names_synced and self._files:
            self._names_synced = True  # first, for the other thread may take it back at any time
            try:
                self._disk.sync_directory(self._directory)
            except OSError:
                self._names_synced = False
                raise

    def close(self) -> None:
        """Close the files; what was put is in them, and on the disk.

        Unless the disk does not take it. Then `sync` has said so, or nobody asked and counts on it.
        """
        with contextlib.suppress(OSError):
            self.sync()
        for file in self._files:
            file.close()
        self._files = []

    @property
    def _file_size(self) -> int:
        return size_of(self._slots, self._entries)

    def _load(self) -> None:
        found = [
            entry
            for entry in self._disk.entries(self._directory)
            if not entry.is_directory and not entry.name.startswith(".")
        ]
        for name, *_ in found:
            if len(name) != _NAME_LENGTH or not name.isdecimal():
                raise StoreError(
                    f"{self._directory / name}: index files are named by a time, in"
                    f" {_NAME_LENGTH} digits"
                )
        sizes = [entry.size for entry in found]
        if found and (not sizes[-1] or is_cut_off(sizes, self._file_size, self._file_size)):
            self._lost = True  # what it had comes from the log again
            self._disk.remove(self._directory / found.pop().name)
        for name, size, *_ in found:
            path = self._directory / name
            if size != self._file_size:
                raise StoreError(
                    f"{path} has {size} bytes; this store is set to index files of"
                    f" {self._file_size}. Set slots and entries back to what the store was made"
                    f" with, or remove the index"
                )
            file = self._disk.open(path, size)
            self._files.append(IndexFile(path, file, self._slots, self._entries))
        sound = [file.is_sound for file in self._files]
        self._lost |= not all(sound)
        self._drop_from((*sound, False).index(False))

    def _drop_from(self, first: int) -> None:
        """Remove the files from that number on, the newest first."""
        while len(self._files) > first:
            self._remove(self._files.pop())
        self.max_log_offset, self.max_store_ms = -1, 0
        for file in self._files:
            if file.count > 1:
                self.max_log_offset, self.max_store_ms = file.end_log, file.end_ms

    def _remove(self, file: IndexFile) -> None:
        file.close()
        self._disk.remove(file.path)
        self._names_synced = False

    def _last(self) -> IndexFile:
        """The file that takes the next entry."""
        files = self._files
        if files:
            last = files[-1]
            if last.count < last.entries:
                return last
        self._disk.make_directory(self._directory)
        path = self._directory / self._next_name()
        raw = self._disk.create(path, self._file_size)
        file = IndexFile(path, raw, self._slots, self._entries)
        try:
            file.follow(files[-1] if files else None)
        except OSError:
            self._remove(file)
            raise
        self._files = [*files, file]
        self._names_synced = False
        return file

    def _next_name(self) -> str:
        """The local time, or just after the last name where a clock was set back."""
        name = _name(datetime.fromtimestamp(self._clock_ms() / 1000))
        last = self._files[-1].path.name if self._files else ""
        return name if name > last else _name(_time(last) + timedelta(milliseconds=1))


class KeyHashes:
    """The hashes of keys; those of what many keys begin with are remembered.

    A unique key has 32 characters, and most of them are the same for all messages of a client.
    """

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[str, int] = {}

    def of(self, topic: str, key: str) -> int:
        """Java's hash of `topic#key` without the sign."""
        text = f"{topic}#{key}"
        if len(text) > _COUNTER and text.isascii():
            head = text[:-_COUNTER]
            value = self._heads.get(head)
            if value is None:
                value = self._remember(head, self._of_head(head))
            a, b, c, d = text[-_COUNTER:].encode()
            value = (value * 923521 + a * 29791 + b * 961 + c * 31 + d) & _INT_MASK
            return value if value <= INT_MAX else (0x1_0000_0000 - value) & INT_MAX
        return abs(java_hash(text)) & INT_MAX

    def _of_head(self, text: str) -> int:
        head = text[:-_COUNTER]
        value = self._heads.get(head)
        if value is None:
            value = self._remember(head, java_hash(head))
        for unit in text[-_COUNTER:].encode():
            value = 31 * value + unit
        return value

    def _remember(self, head: str, value: int) -> int:
        if len(self._heads) >= _MOST_HEADS:
            self._heads.clear()
        self._heads[head] = value & _INT_MASK
        return value & _INT_MASK


def _name(time: datetime) -> str:
    return f"{time.strftime(_NAME)}{time.microsecond // 1000:03d}"


def _time(name: str) -> datetime:
    return datetime.strptime(name + "000", _NAME + "%f")
