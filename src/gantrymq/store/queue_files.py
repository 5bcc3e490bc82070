"""The files of consume queues: found by name, opened when needed, few of them open at a time.

A store can have ten thousand queues, and an open file costs two descriptors and a mapping. So a
queue knows its files as two numbers, where they begin and where they end, and `OpenFiles` keeps
those open, of all queues, that were used last.

**Threads.** `OpenFiles` belongs to the thread that appends, and with it all of `QueueFiles` except
`write_synced`, which opens files of its own. One lock for each queue, held by whoever makes or
removes its files, is up to the queue.
"""

from __future__ import annotations

import errno
from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import Final

from gantrymq.errors import StoreError
from gantrymq.store.disk import Disk, File
from gantrymq.store.segment import is_cut_off
from gantrymq.wire.command import Buffer

OPEN_AT_ONCE: Final = 128
"""Files of all queues together, unless told otherwise; each takes two descriptors."""

HOLD_BACK: Final = 816 * 20
"""Bytes of one queue, unless told otherwise; they come from its newest 816 messages."""

_ABOVE: Final = 3
"""Directories that a queue's own may be the first in: its topic's, `consumequeue`, the store's."""
_DIGITS: Final = 20
_WHOLE: Final = 100 * 20
"""Sizes of whole files are multiples of this, as any round number of entries makes them."""


class OpenFiles:
    """The files that are open now, of all queues of a store, and what they have in common."""

    __slots__ = ("_files", "_limit", "disk", "hold_back", "size")

    def __init__(
        self, disk: Disk, size: int, *, limit: int = OPEN_AT_ONCE, hold_back: int = HOLD_BACK
    ) -> None:
        self.disk = disk
        self.size = size
        self.hold_back = hold_back
        """How much a queue keeps in memory before it writes by itself."""
        self._limit = limit
        self._files: OrderedDict[str, File] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, path: str) -> File:
        """The file at `path`, opened if it is not open."""
        file = self._files.get(path)
        if file is None:
            return self._keep(path, self.disk.open(Path(path), self.size, thin=True))
        self._files.move_to_end(path)
        return file

    def create(self, path: str) -> File:
        """A new file at `path`."""
        return self._keep(path, self.disk.create(Path(path), self.size, thin=True))

    def close(self, path: str) -> None:
        """Close the file at `path` if it is open."""
        file = self._files.pop(path, None)
        if file is not None:
            file.close()

    def _keep(self, path: str, file: File) -> File:
        while len(self._files) >= self._limit:
            self._files.popitem(last=False)[1].close()
        self._files[path] = file
        return file


class QueueFiles:
    """One queue's run of bytes, in files of one size without gaps: `start` up to `end`.

    Positions are bytes from the beginning of the queue. Nothing is open because of this object.

    RocketMQ: MappedFileQueue.
    """

    __slots__ = (
        "_above_synced", "_directory", "_failed", "_names_synced", "_open", "cut_off", "end",
        "start",
    )  # fmt: skip

    def __init__(self, files: OpenFiles, directory: Path) -> None:
        self._open = files
        self._directory = str(directory)  # a tenth of the memory of a Path
        self._names_synced = self._above_synced = True
        self._failed = False
        self.cut_off = False
        """Whether entries of the last file were gone when it was loaded."""
        self.start = 0
        self.end = 0

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return Path(self._directory)

    @property
    def exist(self) -> bool:
        """Whether there is a file."""
        return self.end > self.start

    @property
    def file_size(self) -> int:
        """How many bytes each file has."""
        return self._open.size

    @property
    def hold_back(self) -> int:
        """How many bytes may be kept in memory before they are written."""
        return self._open.hold_back

    def load(self) -> None:
        """Look which files there are; the rules are those of `Segments.load`."""
        directory, size = self.directory, self._open.size
        found = [
            entry
            for entry in self._open.disk.entries(directory)
            if not entry.is_directory and not entry.name.startswith(".")
        ]
        if found and found[-1].size == 0:
            self._open.disk.remove(directory / found.pop().name)
        bases = [self._base(entry.name) for entry in found]
        if found and is_cut_off([entry.size for entry in found], size, _WHOLE):
            self._open.disk.extend(directory / found[-1].name, size)
            found[-1] = found[-1]._replace(size=size)
            self.cut_off = True
        for entry in found:
            if entry.size != size:
                raise StoreError(
                    f"{directory / entry.name} has {entry.size} bytes; this store is set to consume"
                    f" queue files of {size}. Set that size back to what the store was made with"
                )
        for before, after in pairwise(bases):
            if after - before != size:
                raise StoreError(
                    f"{directory}: after {before:020d} comes {after:020d}; between them"
                    f" {(after - before) // size - 1} files of {size} bytes are missing"
                )
        self.start, self.end = (bases[0], bases[-1] + size) if bases else (0, 0)

    def read(self, at: int) -> memoryview:
        """The bytes from `at` on, to the end of the file that holds them."""
        base = at - at % self._open.size
        return self._open.get(self._path(base)).view[at - base :]

    def write(self, at: int, data: Buffer) -> None:
        """Put `data` at position `at`, which is in a file, or where the next one begins."""
        for base, start, part in self._parts(at, data):
            if base == self.end:
                self._open.disk.make_directory(self.directory)
                file = self._open.create(self._path(base))
                self._made(base)
            else:
                file = self._open.get(self._path(base))
            file.write(start, part)

    def write_synced(self, at: int, data: Buffer, since: int) -> None:
        """Put `data` at `at`; return once that, and all from `since` on, will survive the machine.

        Nothing of `OpenFiles` is touched, so this may run on another thread.
        """
        if self._failed:
            raise OSError(
                errno.EIO, "a sync failed before, and some of it is lost", self._directory
            )
        if not self.exist and not data:
            return
        size, since = self._open.size, max(since, self.start)
        parts = {base: (start, part) for base, start, part in self._parts(at, data)}
        for base in sorted({*parts, *range(since - since % size, self.end, size)}):
            file = self._borrow(base)
            try:
                if base in parts:
                    file.write(*parts[base])
                self._sync(file)
            finally:
                file.close()
        if not self._names_synced:
            self._sync_names()

    def write_apart(self, at: int, data: Buffer) -> None:
        """Put `data` at `at`, on any thread; `write_synced` has to follow, for it to survive."""
        for base, start, part in self._parts(at, data):
            file = self._borrow(base, lasting=False)
            try:
                file.write(start, part)
            finally:
                file.close()

    def begin(self, at: int) -> None:
        """Let the first file, once it is written, be the one that has the byte `at`."""
        self.start = self.end = at - at % self._open.size

    def cut(self, at: int) -> None:
        """Forget the bytes from `at` on: later files go, the rest of its own becomes zeros.

        The first file stays in any case: its name says where the queue goes on.
        """
        size, before = self._open.size, self.end
        while self.end - size > self.start and self.end - size >= at:  # a crash leaves no gap
            self._remove(self.end - size)
            self.end -= size
        if self.end < before:
            self._sync_names()  # or zeros may be on the disk and what follows them, too
        if self.start <= at < self.end:
            self._open.get(self._path(at - at % size)).zero_from(at % size)
        self._names_synced = False  # also those that a process made before it was killed

    def drop_before(self, at: int) -> int:
        """Remove the files that end at or before `at`, except the last; how many these were."""
        size, dropped = self._open.size, 0
        while self.start + size <= at and self.start + size < self.end:
            self._remove(self.start)
            self.start += size
            dropped += 1
        return dropped

    def clear(self) -> None:
        """Remove all files, for good."""
        if self.exist:
            while self.exist:
                self.end -= self._open.size
                self._remove(self.end)
            self._sync_names()
        self.start = self.end = 0

    def destroy(self) -> None:
        """Remove the directory."""
        self._open.disk.remove_tree(self.directory)

    def close(self) -> None:
        """Close those that are open."""
        for base in range(self.start, self.end, self._open.size):
            self._open.close(self._path(base))

    def _borrow(self, base: int, *, lasting: bool = True) -> File:
        disk, path = self._open.disk, Path(self._path(base))
        if base < self.end:
            return disk.open(path, self._open.size, thin=True)
        disk.make_directory(path.parent, lasting=lasting)
        self._above_synced = self._above_synced and (lasting or self.exist)
        file = disk.create(path, self._open.size, thin=True)
        self._made(base)
        return file

    def _sync_names(self) -> None:
        sync = self._open.disk.sync_directory
        sync(self.directory)
        if not self._above_synced:
            for above in list(self.directory.parents)[:_ABOVE]:
                sync(above)
            self._above_synced = True
        self._names_synced = True

    def _sync(self, file: File) -> None:
        try:
            file.sync()
        except OSError:
            self._failed = True  # the next one could succeed without what this one dropped
            raise

    def _parts(self, at: int, data: Buffer) -> list[tuple[int, int, memoryview]]:
        """`data` cut where files end: the base of each file, the place in it, the bytes."""
        size, whole, done = self._open.size, memoryview(data), 0
        parts = []
        while done < len(whole):
            start = (at + done) % size
            part = whole[done : done + size - start]
            parts.append((at + done - start, start, part))
            done += len(part)
        return parts

    def _made(self, base: int) -> None:
        self.end = base + self._open.size
        self._names_synced = False

    def _remove(self, base: int) -> None:
        path = self._path(base)
        self._open.close(path)
        self._open.disk.remove(Path(path))
        self._names_synced = False

    def _path(self, base: int) -> str:
        return f"{self._directory}/{base:0{_DIGITS}d}"

    def _base(self, name: str) -> int:
        if len(name) != _DIGITS or not name.isdecimal() or int(name) % self._open.size:
            raise StoreError(
                f"{self.directory / name}: files here are named by {_DIGITS} digits, a multiple of"
                f" their set size of {self._open.size} bytes"
            )
        return int(name)
