"""A consume queue: for each message of one queue of a topic, where it is in the log.

```
consumequeue/<topic>/<queue id>/00000000000000000000    entries 0 … 299,999
                                00000000000006000000    entries 300,000 … 599,999, and so on
```

The place of an entry, of 20 bytes (`queue_entries`), is its queue offset. Files have a set size and
are zeros after the last entry. Blank entries stand where no message is: before the first entry of a
queue that does not start at a file's beginning, and for messages whose records are lost.

**Memory first.** An append adds 20 bytes to `_tail`, which ends with the newest entry. `sync`,
called every few seconds, writes them to the file and leaves the last few in memory, for those who
read at the end of the queue, who are most. A queue that fills up faster writes by itself. So with
ten thousand queues an append costs no system call, and a read at the end opens no file. What a
crash takes from memory is written again from the log.

```
queue offset   min_offset             _tail_start   _written    max_offset
                   │──────── in files ──────┼────────────│            │
                                            │──────── in _tail ───────│
```

**Threads.** Only `sync` may run beside the rest. The lock is held by it, and by whatever else takes
entries out of the tail or makes or removes files. Appending and reading do without: an append that
finds the lock taken writes later; a read counts from the end of the tail, which only its own thread
moves, and looks into the file where the tail has become too short.

RocketMQ: ConsumeQueue.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, TypeAlias

from gantrymq.errors import CorruptRecord
from gantrymq.store.queue_entries import (
    BLANK,
    BLANK_SIZE,
    ENTRY,
    ENTRY_SIZE,
    after_blanks,
    first_from,
    first_where,
    last_until,
)
from gantrymq.store.queue_files import OpenFiles, QueueFiles
from gantrymq.store.shapes import Boundary, Entry

ENTRIES_PER_FILE: Final = 300_000
FILE_SIZE: Final = ENTRIES_PER_FILE * ENTRY_SIZE
MAX_HOLE: Final = 10 * ENTRIES_PER_FILE
"""A queue offset that is further ahead than this comes from a damaged record, not from a hole."""

StoreTime: TypeAlias = Callable[[int], int]
"""The store time in ms of the record at a log offset; negative where there is no such record."""

_pack: Final = ENTRY.pack
_unpack_from: Final = ENTRY.unpack_from
_iter_unpack: Final = ENTRY.iter_unpack
_BLANKS: Final = BLANK * 1024
_MAX_OFFSET: Final = (2**63 - 1) // ENTRY_SIZE

_KEPT: Final = 16
"""The part of what may be unwritten that stays in memory: 1 KiB with the ordinary 16."""
_BEFORE_FILES: Final = 4
"""So many times that may be unwritten before there is a directory, because making one waits for the
disk: that is left to `sync` as long as it is bearable."""
_UNSYNCED_FILES: Final = 3
"""The last ones; those before them are on the disk, so nobody looks through them after a crash."""


class ConsumeQueue:
    """The entries of one queue; a `Queue` as the store wants it."""

    __slots__ = (
        "_files", "_first_log", "_lock", "_spill_at", "_store_time", "_synced", "_tail",
        "_tail_start", "_written", "damaged", "max_log_offset", "max_offset", "min_offset",
    )  # fmt: skip

    def __init__(self, files: OpenFiles, directory: Path, store_time: StoreTime) -> None:
        self._files = QueueFiles(files, directory)
        self._store_time = store_time
        self._lock = threading.Lock()
        self.min_offset = self.max_offset = 0
        """The bounds of what can be read: the first, and one past the last."""
        self.max_log_offset = -1
        """Where the record of the last entry ends in the log; -1 where there is no entry."""
        self.damaged = False
        """Whether `recover` came upon bytes that are no entry and not what unwritten entries are,
        or a file that was cut off.

        Then entries may be gone that were on the disk for long, and only reading all of the log
        brings them back.
        """
        self._tail = bytearray()
        self._tail_start = self._written = self._synced = 0
        self._spill_at = self._files.hold_back * _BEFORE_FILES
        self._first_log = -1
        """The log offset of the entry at `min_offset`, as long as nobody needs it -1."""
        self._files.load()
        if self._files.exist:
            self._settle(self._find_end())

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self._files.directory}, {self.min_offset} to {self.max_offset}>"

    @property
    def size(self) -> int:
        """How many bytes its files have; sparse as they are, they take less of the disk."""
        return self._files.end - self._files.start

    # adding

    def append(self, log_offset: int, size: int, tags_code: int, queue_offset: int) -> None:
        """Add the entry of `queue_offset`.

        One that is there already is passed over, and one whose record ends before the last one's.
        Where others are missing before it, blank entries fill the gap; in a new queue `min_offset`
        is then `queue_offset`.
        """
        if queue_offset != self.max_offset or log_offset < self.max_log_offset:
            if queue_offset < self.max_offset or log_offset < self.max_log_offset:
                return
            self._skip_to(queue_offset)
        tail = self._tail
        tail += _pack(log_offset, size, tags_code)
        self.max_offset = queue_offset + 1
        self.max_log_offset = log_offset + size
        if len(tail) >= self._spill_at:
            self._spill()

    def _skip_to(self, queue_offset: int) -> None:
        if queue_offset > _MAX_OFFSET:
            raise CorruptRecord(f"queue offset {queue_offset} is more than {self!r} can have")
        if self.max_log_offset < 0 and not self._files.exist:
            self._begin(queue_offset)
            return
        gap = queue_offset - self.max_offset
        if gap > MAX_HOLE:
            raise CorruptRecord(f"queue offset {queue_offset} is {gap} ahead of {self!r}")
        self._tail += BLANK * gap

    def _begin(self, first: int) -> None:
        """Be a queue without entries that starts at queue offset `first`."""
        self._files.begin(first * ENTRY_SIZE)
        start = self._files.start // ENTRY_SIZE
        self.min_offset = self.max_offset = first
        self._first_log = -1
        self._tail = bytearray(BLANK * (first - start))
        self._tail_start = self._written = self._synced = start
        self._spill_at = self._files.hold_back * _BEFORE_FILES

    def _spill(self) -> None:
        """Write the tail to the file; not now if that cannot be now."""
        self._spill_at = len(self._tail) + self._files.hold_back
        if not self._lock.acquire(blocking=False):
            return
        try:
            # no room: `sync` will say so, to someone who can do something about it
            with contextlib.suppress(OSError):
                if self._write():
                    self._trim()
        finally:
            self._lock.release()

    def _write(self) -> bool:
        """Write the tail unless more files would then have to be looked at after a crash."""
        unwritten = self._unwritten()
        if not self._may_write(unwritten):
            return False
        self._files.write(self._written * ENTRY_SIZE, unwritten)
        self._written += len(unwritten) // ENTRY_SIZE
        return True

    def _may_write(self, unwritten: bytearray) -> bool:
        size = self._files.file_size
        first = max(self._synced * ENTRY_SIZE // size, 0)
        return self._written * ENTRY_SIZE + len(unwritten) <= (first + _UNSYNCED_FILES) * size

    @property
    def unsynced(self) -> bool:
        """Whether `sync` has something to do."""
        return self._synced != self.max_offset

    def write_out(self) -> None:
        """Write what is held back, because a `sync` of many queues follows; on any thread."""
        with self._lock:
            unwritten = self._unwritten()
            if unwritten and self._may_write(unwritten):
                self._files.write_apart(self._written * ENTRY_SIZE, unwritten)
                self._written += len(unwritten) // ENTRY_SIZE
                self._trim()

    def sync(self) -> None:
        """Return once all entries will survive the machine; may run on another thread."""
        if not self.unsynced:
            return
        with self._lock:
            unwritten = self._unwritten()
            self._files.write_synced(
                self._written * ENTRY_SIZE, unwritten, self._synced * ENTRY_SIZE
            )
            self._synced = self._written = self._written + len(unwritten) // ENTRY_SIZE
            self._trim()

    def _unwritten(self) -> bytearray:
        return self._tail[(self._written - self._tail_start) * ENTRY_SIZE :]

    def _trim(self) -> None:
        excess = (len(self._tail) - self._files.hold_back // _KEPT) // ENTRY_SIZE
        excess = min(excess, self._written - self._tail_start)
        if excess > 0:
            del self._tail[: excess * ENTRY_SIZE]
            self._tail_start += excess
        self._spill_at = self._files.hold_back

    # reading

    def entries(self, first: int, count: int) -> Iterator[Entry]:
        """Up to `count` entries from queue offset `first` on, which is within the bounds.

        Ends early at the end of a file. What it gives stays as it was, whatever is appended.
        """
        back = (self.max_offset - first) * ENTRY_SIZE
        wanted = min(count * ENTRY_SIZE, back)
        if wanted <= 0:
            return iter(())
        if back <= len(self._tail):
            newest = self._tail[-back : wanted - back or None]
            if len(newest) == wanted:
                return _iter_unpack(newest)
        older = self._files.read(first * ENTRY_SIZE)
        length = min(wanted, len(older), (self._written - first) * ENTRY_SIZE)
        found = _iter_unpack(older[:length])
        if length in (wanted, len(older)):
            return found
        done = length // ENTRY_SIZE
        return chain(found, self.entries(first + done, count - done))

    def offset_at(self, store_ms: int, boundary: Boundary) -> int:
        """The queue offset of that time, within the bounds.

        Of several messages of that time it is the first (lower) or the last (upper). Where there is
        none, it is the next later one (lower; past the end, if there is none either), or the next
        earlier one (upper; the first one, if there is none either).

        RocketMQ: getOffsetInQueueByTime, BoundaryType.
        """
        find = first_from if boundary == "lower" else last_until
        return find(self._time, store_ms, self.min_offset, self.max_offset)

    def _time(self, at: int) -> int:
        log_offset, size, _ = self._entry(at)
        return -1 if size == BLANK_SIZE else self._store_time(log_offset)

    def _entry(self, at: int) -> Entry:
        back = (self.max_offset - at) * ENTRY_SIZE
        if back <= len(self._tail):
            entry = self._tail[-back : ENTRY_SIZE - back or None]
            if len(entry) == ENTRY_SIZE:
                return _unpack_from(entry)
        return self._entry_in_files(at)

    def _entry_in_files(self, at: int) -> Entry:
        return _unpack_from(self._files.read(at * ENTRY_SIZE))

    # what goes

    def truncate(self, log_end: int) -> None:
        """Drop the entries of records that end after `log_end`."""
        if self.max_log_offset > log_end:
            self._cut(self._first_where(lambda at, size: at + size > log_end))

    def correct_min(self, log_start: int) -> None:
        """Drop, from the front, what points before `log_start`: whole files, else by number.

        Where every entry does, `min_offset` becomes `max_offset`, which stays. The last file stays
        in any case, because it says where the queue goes on.
        """
        if self._first_log >= log_start or self.min_offset == self.max_offset:
            return
        first = self.max_offset
        self._first_log = -1
        if self.max_log_offset > log_start:
            first = self._first_where(lambda offset, _: offset >= log_start)
            self._first_log = self._entry(first)[0] if first < self.max_offset else -1
        if first > self.min_offset:
            self.min_offset = first
            if self._files.start + self._files.file_size <= first * ENTRY_SIZE:
                with self._lock:
                    self._files.drop_before(first * ENTRY_SIZE)

    def _first_where(self, holds: Callable[[int, int], bool]) -> int:
        return first_where(self._entry, self.min_offset, self.max_offset, holds)

    def _cut(self, end: int) -> None:
        """Forget the entries from queue offset `end` on."""
        with self._lock:
            self._files.cut(end * ENTRY_SIZE)
            self._tail_start = min(self._tail_start, end)
            del self._tail[(end - self._tail_start) * ENTRY_SIZE :]
            self._written = min(self._written, end)
            self._synced = min(self._synced, end - 1)  # the zeros have to reach the disk, too
        self.max_offset = end
        self.max_log_offset = self._last_log_end(self.min_offset, end)

    def clear(self) -> None:
        """Drop all entries; the next one may have any queue offset, as in a new queue."""
        with self._lock:
            self._files.clear()
            self._begin(0)
            self.max_log_offset = -1

    def destroy(self) -> None:
        """Remove its files, and its directory."""
        self.clear()
        self._files.destroy()

    def close(self) -> None:
        """Close its files; what was appended is in them, and on the disk.

        Unless the disk does not take it. Then `sync` has said so, or nobody asked and counts on it.
        """
        with contextlib.suppress(OSError):
            self.sync()
        with self._lock:
            self._files.close()

    # finding out what is there

    def recover(self) -> None:
        """Find the last whole entry after a crash; what follows it is dropped.

        As in RocketMQ the last three files are looked at. What is older was on the disk.
        """
        files = self._files
        if files.exist:
            first = files.start // ENTRY_SIZE
            start = max(first, (files.end - _UNSYNCED_FILES * files.file_size) // ENTRY_SIZE)
            end = self._scan(start, max(self._last_log_end(first, start), 0))
            self.damaged |= files.cut_off
            with self._lock:
                files.cut(end * ENTRY_SIZE)
            self._settle(end)
            self._synced = min(start, end - 1)  # the last process may have left it to the system

    def _scan(self, at: int, log_end: int) -> int:
        """Where the unbroken run of entries ends that begins at queue offset `at`."""
        self.damaged = False
        while at * ENTRY_SIZE < self._files.end:
            for log_offset, size, tags_code in _iter_unpack(self._files.read(at * ENTRY_SIZE)):
                if size == BLANK_SIZE and log_offset == 0:
                    at += 1
                elif size > 0 and log_offset >= log_end:
                    at += 1
                    log_end = log_offset + size
                else:
                    self.damaged = bool(log_offset or size or tags_code)
                    return at
        return at

    def _find_end(self) -> int:
        """The queue offset after the last entry, if nothing is damaged."""
        files = self._files
        low, end = (files.end - files.file_size) // ENTRY_SIZE, files.end // ENTRY_SIZE
        # Reading a hole makes the system fill pages with zeros, so begin where a small queue ends.
        step = 1
        while low + step <= end and self._is_entry(low + step - 1):
            low += step
            step *= 2
        high = min(low + step - 1, end)
        while low < high:
            middle = (low + high) // 2
            if self._is_entry(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _is_entry(self, at: int) -> bool:
        return self._entry_in_files(at)[1] > 0

    def _settle(self, end: int) -> None:
        """Go on after what the files hold before queue offset `end`."""
        self._tail = bytearray()
        self._tail_start = self._written = self._synced = end
        self._spill_at = self._files.hold_back
        self._first_log = -1
        self.max_offset = end
        self.min_offset = self._first_entry(self._files.start // ENTRY_SIZE, end)
        self.max_log_offset = self._last_log_end(self.min_offset, end)

    def _first_entry(self, at: int, end: int) -> int:
        """The first entry that is not blank, from queue offset `at` on."""
        while at < end and self._entry_in_files(at)[1] == BLANK_SIZE:
            view = self._files.read(at * ENTRY_SIZE)[: (end - at) * ENTRY_SIZE]
            length = min(len(view), len(_BLANKS))
            if view[:length] != _BLANKS[:length]:
                return after_blanks(self._entry, at, end)
            at += length // ENTRY_SIZE
        return at

    def _last_log_end(self, first: int, end: int) -> int:
        """Where the last record ends that the entries from `first` up to `end` point to."""
        for at in range(end - 1, first - 1, -1):
            log_offset, size, _ = self._entry(at)
            if size != BLANK_SIZE:
                return log_offset + size
        return -1
