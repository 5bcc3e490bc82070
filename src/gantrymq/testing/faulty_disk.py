"""A disk in memory that can tear writes, lose what was not synced, fill up, fail, and stop.

It keeps apart what the process sees and what lasts. Bytes are kept by sector: a sector that was
written and not synced is, after `after_power_cut`, either as it was written last or as it was
synced last, each by itself, as drawn. Names are kept by directory: of the names that were made,
changed or removed since the directory was synced, the first few last, in their order, as drawn; the
last of those may be a file without any bytes. A sync that failed drops what it should have kept, as
Linux does, and the next one succeeds: a store that tries again is caught.

Every change is one operation, counted in `operations`. With `stop_at` the machine stops at the
operation of that number: if that is a write, after `tear_at` of its bytes. Then every operation
raises `PowerCut`, which is no `OSError`, so that nothing handles it by accident. What is there
afterwards is another disk: `after_kill()` if only the process died, else `after_power_cut(random)`.

Where threads and a broker are at work, nothing has to be stopped: `watch` is called after each
operation, while no other can happen, and may ask for that other disk; what is done on this one
afterwards, nobody will see.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from gantrymq.store.disk import STRIDE, Entry, File, Held, Usage
from gantrymq.wire.command import Buffer

SECTOR: Final = 512


class PowerCut(Exception):
    """The machine stopped here."""


@dataclass(slots=True, eq=False)
class _Inode:
    """The bytes of a file: as the process sees them, and as the platters have them."""

    data: bytearray
    kept: bytearray
    dirty: set[int] = field(default_factory=set)
    reserved: int = 0
    modified_ms: int = 0
    size_kept: bool = False

    def touch(self, start: int, end: int) -> None:
        self.dirty.update(range(start // SECTOR, -(-end // SECTOR)))

    def keep(self, sector: int) -> None:
        part = slice(sector * SECTOR, (sector + 1) * SECTOR)
        self.kept[part] = self.data[part]

    def keep_all(self) -> None:
        for sector in self.dirty:
            self.keep(sector)
        self.dirty.clear()
        self.size_kept = True

    def copy(self) -> _Inode:
        data = bytearray(self.data)
        return _Inode(data, bytearray(data), reserved=self.reserved, modified_ms=self.modified_ms,
                      size_kept=True)  # fmt: skip


@dataclass(slots=True)
class _Rename:
    """One change of names that lasts or does not: new names with their files, and gone ones."""

    made: dict[str, _Inode] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


class FaultyFile:
    """A file of a `FaultyDisk`."""

    __slots__ = ("_disk", "_inode", "_path", "_stride", "size", "view")

    def __init__(self, disk: FaultyDisk, path: Path, inode: _Inode, stride: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._stride = stride
        self.size = len(inode.data)
        self.view = memoryview(inode.data).toreadonly()

    def write(self, at: int, data: Buffer) -> None:
        """See `File`."""
        end = at + len(data)
        if end > self.size:
            raise ValueError(f"byte {end} is past the end of {self._path} ({self.size} bytes)")
        with self._disk.alone:
            self._disk.reserve(self._inode, min(self.size, -(-end // self._stride) * self._stride))
            count = self._disk.torn(len(data))
            self._inode.data[at : at + count] = data[:count]
            self._inode.touch(at, at + count)
            self._inode.modified_ms = self._disk.now_ms
            self._disk.step(f"write {self._path.name} {at} +{len(data)}")

    def set_aside(self, end: int) -> None:
        """See `File`."""
        with self._disk.alone:
            self._disk.reserve(self._inode, min(self.size, -(-end // self._stride) * self._stride))

    def make_room(self, end: int) -> None:
        """See `File`; here nothing takes time."""

    def zero_from(self, at: int) -> None:
        """See `File`."""
        self.write(at, bytes(self.size - at))

    def sync(self) -> None:
        """See `File`."""
        self._disk.before_sync(self._path)
        with self._disk.alone:
            self._disk.step(f"sync {self._path.name}")
            if self._disk.sync_fails:
                self._inode.dirty.clear()
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._path))
            if not self._disk.names(self._inode):
                raise FileNotFoundError(
                    errno.ENOENT, "removed while it was in use", str(self._path)
                )
            self._inode.keep_all()

    def resident(self, start: int, end: int) -> bool:
        """See `File`."""
        return not self._disk.cold or (self._path, start, end) in self._disk.warmed

    def warm(self, start: int, end: int) -> None:
        """See `File`."""
        self._disk.warmed.append((self._path, start, end))

    def leave_memory(self) -> None:
        """See `File`."""

    def close(self) -> None:
        """See `File`."""


class FaultyDisk:
    """The disk; its attributes may be changed at any time."""

    def __init__(self, *, capacity: int = 2**40) -> None:
        self.capacity = capacity
        self.operations = 0
        self.history: list[str] = []
        self.stop_at: int | None = None
        self.tear_at = 0
        self.sync_fails = False
        self.before_sync: Callable[[Path], object] = str
        self.watch: Callable[[str], object] = str
        self.alone = threading.RLock()
        """Held during every change."""
        self.now_ms = 0
        self.cold = False
        self.warmed: list[tuple[Path, int, int]] = []
        self._files: dict[Path, dict[str, _Inode]] = {}
        self._kept: dict[Path, dict[str, _Inode]] = {}
        self._changes: dict[Path, list[_Rename]] = {}
        self._locks: set[Path] = set()

    # what the store sees

    def create(
        self,
        path: Path,
        size: int,
        *,
        stride: int = STRIDE,
        thin: bool = False,  # noqa: ARG002
    ) -> File:
        """See `Disk`."""
        inode = _Inode(bytearray(size), bytearray(size), modified_ms=self.now_ms)
        self._change(path.parent, _Rename({path.name: inode}), f"create {path.name}")
        return FaultyFile(self, path, inode, stride)

    def open(
        self,
        path: Path,
        size: int,
        *,
        stride: int = STRIDE,
        thin: bool = False,  # noqa: ARG002
    ) -> File:
        """See `Disk`."""
        inode = self._inode(path)
        if len(inode.data) != size:
            raise ValueError(f"{path} has {len(inode.data)} bytes, not {size}")
        return FaultyFile(self, path, inode, stride)

    def extend(self, path: Path, size: int) -> None:
        """See `Disk`."""
        inode = self._inode(path)
        with self.alone:
            self.step(f"extend {path.name} to {size}")
            inode.data = inode.data.ljust(size, b"\0")
            inode.kept = inode.kept.ljust(size, b"\0")

    def entries(self, directory: Path) -> list[Entry]:
        """See `Disk`."""
        with self.alone:
            files = [
                Entry(name, len(inode.data), False, inode.modified_ms)
                for name, inode in self._files.get(directory, {}).items()
            ]
            below = {path.name for path in self._files if path.parent == directory != path}
        return sorted(files + [Entry(name, 0, True, 0) for name in below])

    def exists(self, path: Path) -> bool:
        """See `Disk`."""
        return path in self._files or path.name in self._files.get(path.parent, {})

    def make_directory(self, directory: Path, *, lasting: bool = True) -> None:  # noqa: ARG002
        """See `Disk`; directories last here at once."""
        with self.alone:
            self.step(f"make {directory}")
            for path in (directory, *directory.parents):
                self._files.setdefault(path, {})
                self._kept.setdefault(path, {})
                self._changes.setdefault(path, [])

    def remove(self, path: Path) -> None:
        """See `Disk`."""
        self._inode(path)
        self._change(path.parent, _Rename(gone=(path.name,)), f"remove {path.name}")

    def remove_tree(self, directory: Path) -> None:
        """See `Disk`."""
        with self.alone:
            for path in [path for path in self._files if path.is_relative_to(directory)]:
                for name in list(self._files[path]):
                    self.remove(path / name)
                del self._files[path]

    def rename(self, source: Path, target: Path) -> None:
        """See `Disk`."""
        with self.alone:
            change = _Rename({target.name: self._inode(source)}, (source.name,))
            self._change(target.parent, change, f"rename {source.name} to {target.name}")

    def read(self, path: Path) -> bytes:
        """See `Disk`."""
        return bytes(self._inode(path).data)

    def write(self, path: Path, data: bytes) -> None:
        """See `Disk`."""
        file = self.create(path, len(data))
        file.write(0, data)
        file.sync()

    def sync_directory(self, directory: Path) -> None:
        """See `Disk`."""
        with self.alone:
            self.step(f"sync names of {directory}")
            self._kept[directory] = dict(self._files[directory])
            self._changes[directory] = []

    def hasten(self, directory: Path) -> None:
        """See `Disk`: it promises nothing, and here it does nothing."""

    def lock(self, path: Path) -> Held | None:
        """See `Disk`."""
        if path in self._locks:
            return None
        if not self.exists(path):
            self.write(path, b"lock")
        self._locks.add(path)
        return _FaultyLock(self._locks, path)

    def usage(self, path: Path) -> Usage:
        """See `Disk`."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return Usage(self.capacity, self.capacity - self.used)

    # what tests see

    @property
    def used(self) -> int:
        """How many bytes are set aside for files."""
        with self.alone:
            return sum(inode.reserved for files in self._files.values() for inode in files.values())

    def tree(self, *, lasting: bool = False) -> dict[Path, bytes]:
        """All files, as the process sees them, or only what of their bytes was synced."""
        with self.alone:
            return {
                path / name: bytes(inode.kept if lasting else inode.data)
                for path, files in self._files.items()
                for name, inode in files.items()
            }

    def flip(self, path: Path, at: int, bits: int) -> None:
        """Damage one byte of a file, for good."""
        inode = self._inode(path)
        inode.data[at] ^= bits
        inode.kept[at] ^= bits

    def shorten(self, path: Path, size: int) -> None:
        """Cut a file off after `size` bytes, for good."""
        inode = self._inode(path)
        inode.data, inode.kept = inode.data[:size], inode.kept[:size]

    def wipe(self, path: Path, at: int) -> None:
        """Turn a file into zeros from byte `at` on, for good."""
        inode = self._inode(path)
        inode.data[at:] = inode.kept[at:] = bytes(len(inode.data) - at)

    def after_kill(self) -> FaultyDisk:
        """What the next process finds: all that was written."""
        left = FaultyDisk(capacity=self.capacity)
        with self.alone:
            for path, files in self._files.items():
                left._keep(path, {name: inode.copy() for name, inode in files.items()})
        return left

    def after_power_cut(self, random: Random) -> FaultyDisk:
        """What the next start of the machine finds: what was synced, and some of the rest."""
        left = FaultyDisk(capacity=self.capacity)
        with self.alone:
            for path in self._kept:
                left._keep(path, self._lasting(path, random))
        return left

    def _lasting(self, path: Path, random: Random) -> dict[str, _Inode]:
        names = dict(self._kept[path])
        changes = self._changes[path]
        lasting = changes[: random.randint(0, len(changes))]
        for change in lasting:
            for name in change.gone:
                names.pop(name, None)
            names.update(change.made)
        half_made = lasting[-1].made if lasting and random.random() < 0.5 else {}
        files = {}
        for name, inode in names.items():
            unfinished = name in half_made and not inode.size_kept
            files[name] = _empty() if unfinished else _survivor(inode, random)
        return files

    # for its files

    def step(self, what: str) -> None:
        """Count one operation, and stop at the one that was chosen; to be called `alone`."""
        self._check()
        self.operations += 1
        self.history.append(what)
        self._check()
        self.watch(what)

    def torn(self, count: int) -> int:
        """How many of `count` bytes the coming write gets done."""
        self._check()
        stops = self.stop_at is not None and self.operations + 1 >= self.stop_at
        return min(count, self.tear_at) if stops else count

    def reserve(self, inode: _Inode, end: int) -> None:
        """Set room aside, or say that there is none."""
        more = end - inode.reserved
        if more > 0:
            if self.used + more > self.capacity:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            inode.reserved = end

    def names(self, inode: _Inode) -> bool:
        """Whether the file still has a name."""
        return any(inode is other for files in self._files.values() for other in files.values())

    def _check(self) -> None:
        if self.stop_at is not None and self.operations >= self.stop_at:
            raise PowerCut(self.history[-1] if self.history else "before anything")

    def _inode(self, path: Path) -> _Inode:
        try:
            return self._files[path.parent][path.name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None

    def _change(self, directory: Path, change: _Rename, what: str) -> None:
        if directory not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(directory))
        with self.alone:
            self._check()
            files = self._files[directory]
            for name in change.gone:
                del files[name]
            files.update(change.made)
            self._changes[directory].append(change)
            self.step(what)

    def _keep(self, directory: Path, files: dict[str, _Inode]) -> None:
        self._files[directory] = files
        self._kept[directory] = dict(files)
        self._changes[directory] = []


@dataclass(slots=True)
class _FaultyLock:
    _locks: set[Path]
    _path: Path

    def release(self) -> None:
        self._locks.discard(self._path)


def _empty() -> _Inode:
    return _Inode(bytearray(), bytearray())


def _survivor(inode: _Inode, random: Random) -> _Inode:
    left = bytearray(inode.kept)
    for sector in sorted(inode.dirty):
        if random.random() < 0.5:
            part = slice(sector * SECTOR, (sector + 1) * SECTOR)
            left[part] = inode.data[part]
    return _Inode(left, bytearray(left), reserved=inode.reserved, size_kept=True)
