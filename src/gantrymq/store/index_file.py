"""One file of the key index.

```
 0  begin store time i64 | 8 end store time i64 | 16 begin log offset i64 | 24 end log offset i64 |
32  slots in use i32     | 36 entry count i32, beginning at 1 because there is no entry 0
40  slots, i32 each: the newest entry of all keys whose hash belongs there, 0 for none
 …  entries, 20 bytes: 0 hash i32 | 4 log offset i64 | 12 seconds since begin i32 | 16 older i32
```

The slot of a hash is the remainder by the number of slots; `older` is the next entry of that slot.
With RocketMQ's 5,000,000 slots and 20,000,000 entries a file has 420,000,040 bytes, most of them a
hole at first.

**Memory first.** Entries follow each other, so they are collected in memory and written a few
hundred at a time. Slots wait for the next `sync`, unless too many would: RocketMQ, which can have
the files next even if this process is killed, takes a slot that points past the header's count for
an empty one, and then finds none of the older entries behind it.

**After a crash** the header says what counts: `sync` brings entries and slots to the disk, and only
then the header. Entries past its count may be anything, and come again from the log. Slots may
point to them; what these pointed to before, `mend` finds by going through the entries that count.
"""

from __future__ import annotations

import contextlib
import errno
import sys
import threading
from array import array
from pathlib import Path
from struct import Struct
from typing import Final

from gantrymq.store.disk import File
from gantrymq.wire.javahash import INT_MAX

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
_MOST_SLOTS: Final = 400_000
"""Slots that wait for a sync; some 40 MB of memory."""
_STRETCH: Final = 2_000
"""Entries that one look at a key's chain goes through."""


def size_of(slots: int, entries: int) -> int:
    """How many bytes a file has."""
    return _HEADER_SIZE + slots * _SLOT_SIZE + entries * _ENTRY_SIZE


class IndexFile:
    """The file, open.

    Putting and finding happen on one thread; `sync` may run on another.

    RocketMQ: IndexFile, IndexHeader.
    """

    __slots__ = (
        "_entries_at", "_failed", "_fresh", "_lock", "_pending", "_slots", "_swap", "_synced",
        "_tail", "_view", "_written", "begin_log", "begin_ms", "count", "end_log", "end_ms",
        "entries", "file", "path", "used_slots",
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
        self._swap = threading.Lock()
        """Held for a moment by whoever adds an entry, and by `sync` while it takes the slots."""
        self._fresh: dict[int, int] = {}
        """The newest entries of slots, by their place, since the last sync; and, in `_written`,
        those that a sync is writing."""
        self._written: dict[int, int] = {}
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
        begin_ms = self.begin_ms
        seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
        if not 0 <= seconds <= INT_MAX:
            seconds = 0 if seconds < 0 else INT_MAX
        with self._swap:
            fresh = self._fresh
            older = (  # as `_newest` has it
                fresh.get(slot) or self._written.get(slot) or _unpack_slot(self._view, slot)[0]
            )
            if not 0 < older < count:
                older = 0
            fresh[slot] = count
            tail = self._tail
            tail += _pack_entry(key_hash, log_offset, seconds, older)
        if count == 1:
            self.begin_ms, self.begin_log = store_ms, log_offset
        if not older:
            self.used_slots += 1
        self.count = count + 1
        self.end_ms = store_ms
        self.end_log = log_offset
        if len(fresh) >= _MOST_SLOTS and self._lock.acquire(blocking=False):
            try:
                self._write_slots(self._take_slots())
            finally:
                self._lock.release()
        if len(tail) >= _HOLD_BACK:
            # no room: `sync` will say so, to someone who can do something about it
            with contextlib.suppress(OSError):
                self._write()

    def find(
        self,
        key_hash: int,
        begin_ms: int,
        end_ms: int,
        limit: int,
        found: list[int],
        at: int | None = None,
    ) -> int:
        """Add to `found` the log offsets of that hash within these times, newest first.

        Looks at so many entries at a time: what it gives is where to go on, 0 when all is done.
        """
        if at is None:
            at = self._newest(_HEADER_SIZE + key_hash % self._slots * _SLOT_SIZE)
        for _ in range(_STRETCH):
            if not 0 < at < self.count or len(found) >= limit:
                return 0
            entry_hash, log_offset, seconds, older = self._entry(at)
            store_ms = self.begin_ms + seconds * 1000
            if seconds < 0:
                return 0
            matches = entry_hash == key_hash and begin_ms <= store_ms <= end_ms
            if matches and log_offset not in found:
                found.append(log_offset)
            if store_ms < begin_ms or older >= at:
                return 0
            at = older
        return at

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
            with self._swap:
                end_ms, used_slots = self.end_ms, self.used_slots
                first, tail = self._pending
                new = bytes(tail)  # a copy, of whole entries
                slots = self._take_slots()
            count = first + len(new) // _ENTRY_SIZE
            self.file.write(self._place(first), new)
            self._write_slots(slots)
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

    def _newest(self, slot: int) -> int:
        """The number of the newest entry of the slot at that place."""
        found = self._fresh.get(slot) or self._written.get(slot)
        if found is None:
            (found,) = _unpack_slot(self._view, slot)
        return found

    def _take_slots(self) -> dict[int, int]:
        """Those that have to be written."""
        slots = self._written | self._fresh if self._written else self._fresh
        self._written, self._fresh = slots, {}
        return slots

    def _write_slots(self, slots: dict[int, int]) -> None:
        write = self.file.write
        for slot, number in slots.items():
            write(slot, _pack_slot(number))
        self._written = {}

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
