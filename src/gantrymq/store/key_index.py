"""The key index: where the messages are that have a certain key.

```
index/<yyyyMMddHHmmssSSS, local time of its making>

 0  begin store time i64 | 8 end store time i64 | 16 begin log offset i64 | 24 end log offset i64 |
32  slots in use i32     | 36 entry count i32, beginning at 1 because there is no entry 0
40  slots, i32 each: the newest entry of all keys whose hash belongs there, 0 for none
 …  entries, 20 bytes: 0 hash i32 | 4 log offset i64 | 12 seconds since begin i32 | 16 older i32
```

The hash is Java's of `topic#key`, without its sign; its slot is the remainder by the number of
slots; `older` is the next entry of that slot. Keys are not kept, so who asks has to look whether a
message that was found really has the key. With RocketMQ's 5,000,000 slots and 20,000,000 entries a
file has 420,000,040 bytes, most of them a hole at first.

**Memory first.** Entries follow each other, so they are collected in memory and written a few
hundred at a time. Slots lie anywhere and are written at once.

**After a crash** the header says what counts: `sync` brings entries and slots to the disk, and only
then the header. Entries past its count may be anything, and come again from the log. Slots may
point to them, and what they pointed to before is found by going through the entries that count.
A file that was begun after the checkpoint goes as a whole, as RocketMQ has it.

RocketMQ: IndexService, IndexFile, IndexHeader.
"""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
from array import array
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from gantrymq.errors import StoreError
from gantrymq.store.disk import Disk, File
from gantrymq.wire.javahash import INT_MAX, java_hash

SLOTS: Final = 5_000_000
ENTRIES: Final = 20_000_000
MAX_HITS: Final = 64

_HEADER: Final = Struct(">qqqqii")
_SLOT: Final = Struct(">i")
_ENTRY: Final = Struct(">iqii")
_HEADER_SIZE: Final = 40
_SLOT_SIZE: Final = 4
_ENTRY_SIZE: Final = 20
_pack_slot: Final = _SLOT.pack
_unpack_slot: Final = _SLOT.unpack_from
_pack_entry: Final = _ENTRY.pack
_unpack_entry: Final = _ENTRY.unpack_from
_HOLD_BACK: Final = 400 * _ENTRY_SIZE
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


class IndexFile:
    """One file of the index."""

    __slots__ = (
        "_entries_at", "_failed", "_lock", "_pending", "_slots", "_synced", "_tail", "_view",
        "begin_log", "begin_ms", "count", "end_log", "end_ms", "entries", "file", "path", "used_slots",
    )  # fmt: skip

    def __init__(self, path: Path, file: File, slots: int, entries: int) -> None:
        self.path = path
        self.file = file
        self._view = file.view
        self.entries = entries
        self._slots = slots
        self.begin_ms: int
        self.end_ms: int
        self.begin_log: int
        self.end_log: int
        self.used_slots: int
        self.count: int
        """The number of the next entry."""
        self._entries_at = _HEADER_SIZE + slots * _SLOT_SIZE
        self._lock = threading.Lock()
        self._failed = False
        (
            self.begin_ms,
            self.end_ms,
            self.begin_log,
            self.end_log,
            self.used_slots,
            self.count,
        ) = _HEADER.unpack_from(file.view)
        self.count = self._synced = max(self.count, 1)
        self._tail = bytearray()
        self._pending = self.count, self._tail
        """The entry that `_tail` begins with; the two change together."""

    def __repr__(self) -> str:
        return f"<IndexFile {self.path.name}, {self.count - 1} entries>"

    @property
    def is_full(self) -> bool:
        """Whether a further entry needs another file."""
        return self.count >= self.entries

    @property
    def is_sound(self) -> bool:
        """Whether the header fits the entries."""
        if self.count <= 1:
            return True
        return self.count <= self.entries and self._entry(self.count - 1)[1] == self.end_log

    def follow(self, other: IndexFile | None) -> None:
        """Begin after another file, and set room aside for all slots at once."""
        if other is not None:
            self.begin_ms = self.end_ms = other.end_ms
            self.begin_log = self.end_log = other.end_log
        self.file.write(self._entries_at - _SLOT_SIZE, bytes(_SLOT_SIZE))

    def put(self, key_hash: int, log_offset: int, store_ms: int) -> None:
        """Add an entry; the file must not be full."""
        slot = _HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE
        count = self.count
        older = _unpack_slot(self._view, slot)[0]
        if not 0 < older < count:
            older = 0
        self.file.write(slot, _pack_slot(count))
        begin_ms = self.begin_ms
        seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
        if not 0 <= seconds <= INT_MAX:
            seconds = 0 if seconds < 0 else INT_MAX
        tail = self._tail
        tail += _pack_entry(key_hash, log_offset, seconds, older)
        if count == 1:
            self.begin_ms, self.begin_log = store_ms, log_offset
        if not older:
            self.used_slots += 1
        self.count = count + 1
        self.end_ms = store_ms
        self.end_log = log_offset
        if len(tail) >= _HOLD_BACK:
            # no room: `sync` will say so, to someone who can do something about it
            with contextlib.suppress(OSError):
                self._write()

    def find(self, key_hash: int, begin_ms: int, end_ms: int, limit: int, found: list[int]) -> None:
        """Add to `found` the log offsets of that hash within these times, newest first."""
        at = _unpack_slot(self._view, _HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE)[0]
        while 0 < at < self.count and len(found) < limit:
            entry_hash, log_offset, seconds, older = self._entry(at)
            store_ms = self.begin_ms + seconds * 1000
            if seconds < 0:
                return
            matches = entry_hash == key_hash and begin_ms <= store_ms <= end_ms
            if matches and log_offset not in found:
                found.append(log_offset)
            if store_ms < begin_ms or older >= at:
                return
            at = older

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Whether messages of these times can be in this file."""
        return begin_ms <= self.end_ms and end_ms >= self.begin_ms

    def sync(self) -> None:
        """Bring all entries to the disk; may run on another thread."""
        if self._synced == self.count:
            return
        with self._lock:
            if self._synced == self.count:  # it was closed meanwhile
                return
            if self._failed:
                raise OSError(errno.EIO, "a sync failed before; some is lost", str(self.path))
            end_ms, used_slots = self.end_ms, self.used_slots
            first, tail = self._pending
            new = bytes(tail)  # a copy, of whole entries
            count = first + len(new) // _ENTRY_SIZE
            self.file.write(self._place(first), new)
            self._sync_file()
            end_log = _unpack_entry(self._view, self._place(count - 1))[1]
            header = self.begin_ms, end_ms, self.begin_log, end_log, used_slots, count
            self.file.write(0, _HEADER.pack(*header))
            self._sync_file()
            self._synced = count

    def mend(self) -> None:
        """Let slots that point past the end point to the newest entry that counts."""
        first_entry = self._place(1)
        slots = array("i", bytes(self._view[_HEADER_SIZE : self._entries_at]))
        if sys.byteorder == "little":
            slots.byteswap()
        count = self.count
        lost = {slot: 0 for slot, at in enumerate(slots) if at >= count or at < 0}
        if lost:
            entries = _ENTRY.iter_unpack(self._view[first_entry : self._place(count)])
            number = self._slots
            for at, entry in enumerate(entries, 1):
                slot = entry[0] % number
                if slot in lost:
                    lost[slot] = at
            for slot, at in lost.items():
                self.file.write(_HEADER_SIZE + slot * _SLOT_SIZE, _pack_slot(at))
            self._synced = 0

    def close(self) -> None:
        """Close the file, once nobody syncs it."""
        with self._lock:
            self.file.close()
            self._synced = self.count

    def _entry(self, at: int) -> tuple[int, int, int, int]:
        first, tail = self._pending
        if at >= first:
            return _unpack_entry(tail, (at - first) * _ENTRY_SIZE)
        return _unpack_entry(self._view, self._place(at))

    def _place(self, at: int) -> int:
        return self._entries_at + at * _ENTRY_SIZE

    def _write(self) -> None:
        first, tail = self._pending
        self.file.write(self._place(first), tail)
        self._tail = bytearray()
        self._pending = first + len(tail) // _ENTRY_SIZE, self._tail

    def _sync_file(self) -> None:
        try:
            self.file.sync()
        except OSError:
            self._failed = True  # the next one could succeed without what this one dropped
            raise


class KeyIndex:
    """All files of the index, oldest first; an `Index` as the store wants it.

    Putting, asking and removing happen on one thread; `sync` may run on another.
    """

    __slots__ = (
        "_clock_ms", "_directory", "_disk", "_entries", "_files", "_hashes", "_names_synced",
        "_slots", "max_log_offset", "max_store_ms",
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

    def query(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> IndexHits:
        """The newest messages with the key's hash, within these store times; at most 64."""
        found: list[int] = []
        limit = min(limit, MAX_HITS)
        key_hash = self._hashes.of(topic, key)
        for file in reversed(self._files):
            if file.overlaps(begin_ms, end_ms):
                file.find(key_hash, begin_ms, end_ms, limit, found)
            if file.begin_ms < begin_ms or len(found) >= limit:
                break
        return IndexHits(found, self.max_store_ms, max(self.max_log_offset, 0))

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
        if kept == len(self._files):
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
        return _HEADER_SIZE + self._slots * _SLOT_SIZE + self._entries * _ENTRY_SIZE

    def _load(self) -> None:
        found = [
            entry
            for entry in self._disk.entries(self._directory)
            if not entry.is_directory and not entry.name.startswith(".")
        ]
        if found and found[-1].size == 0:  # it was just being made
            self._disk.remove(self._directory / found.pop().name)
        for name, size, *_ in found:
            path = self._directory / name
            if len(name) != _NAME_LENGTH or not name.isdecimal():
                raise StoreError(
                    f"{path}: index files are named by a time, in {_NAME_LENGTH} digits"
                )
            if size != self._file_size:
                raise StoreError(
                    f"{path} has {size} bytes; this store is set to index files of"
                    f" {self._file_size}. Set slots and entries back to what the store was made"
                    f" with, or remove the index"
                )
            file = self._disk.open(path, size)
            self._files.append(IndexFile(path, file, self._slots, self._entries))
        sound = [file.is_sound for file in self._files]
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
        if text.isascii():
            head = text[:-_COUNTER]
            value = self._heads.get(head)
            if value is None:
                value = self._remember(head, self._of_head(head))
            for unit in text[-_COUNTER:].encode():
                value = 31 * value + unit
            value &= _INT_MASK
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
