"""Every file operation of the store goes through `Disk`, so that tests can stand in for the disk.

Files of the store have a set size from the start and are mapped. They are sparse: `write` has the
file system set aside room for what is written, and some more, and only then stores into the
mapping. A full disk therefore shows as an `OSError` there, and never as the signal that a mapping
without room behind it would bring. Of thin files the mapping is only read.

Readers get `view`, which is the mapping itself. It stays valid for as long as anyone holds a slice
of it, also after `close` and after the file was removed.

**What lasts.** Bytes survive the process once `write` returned, and the machine once `sync`
returned. A name (of a new, renamed or removed file) survives the machine once `sync_directory`
returned. After `sync` failed, nothing is known about the bytes: the system may have dropped them
and call the next sync a success. Whoever calls it must not try again.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from gantrymq.store import system
from gantrymq.wire.command import Buffer

STRIDE: Final = 64 * 1024
"""How far ahead of the writer pages are made ready, unless told otherwise: more would be felt."""
_ROOM: Final = 1024 * 1024
"""Files that are written at such strides are written on, so room is set aside further ahead."""

_ZERO_STEP: Final = 64 * 1024
_ZEROS: Final = bytes(_ZERO_STEP)


class Entry(NamedTuple):
    """What a directory holds under one name."""

    name: str
    size: int
    is_directory: bool
    modified_ms: int


class Usage(NamedTuple):
    """The file system under a path, in bytes: what is used and free to us, and how much is free.

    What is kept back from us, for the system's own use, counts as neither, as with `df`.
    """

    total: int
    free: int

    @property
    def ratio(self) -> float:
        """How much of it is used, from 0 to 1."""
        return 1 - self.free / self.total if self.total else 1.0


class File(Protocol):
    """One file of set size, mapped."""

    @property
    def view(self) -> memoryview:
        """All of its bytes, to read."""
        ...

    def write(self, at: int, data: Buffer) -> None:
        """Put `data` at byte `at`; `OSError` where the disk has no room for it."""
        ...

    def set_aside(self, end: int) -> None:
        """Have room for all bytes before `end`, so that writing them cannot fail for want of it."""
        ...

    def make_room(self, end: int) -> None:
        """Set aside room up to there on any thread, so that `write` seldom has to."""
        ...

    def zero_from(self, at: int) -> None:
        """Make everything from byte `at` on zeros; what is zeros already is not written."""
        ...

    def sync(self) -> None:
        """Return once what was written will survive the machine."""
        ...

    def resident(self, start: int, end: int) -> bool:
        """Whether these bytes are in memory, so that reading them does not wait for the disk."""
        ...

    def warm(self, start: int, end: int) -> None:
        """Bring these bytes into memory. Takes its time, without keeping other threads waiting."""
        ...

    def leave_memory(self) -> None:
        """Do without its pages in this process's memory; the system's cache keeps them."""
        ...

    def close(self) -> None:
        """Give up the file; slices of `view` that others hold stay valid."""
        ...


class Held(Protocol):
    """A lock that this process holds."""

    def release(self) -> None:
        """Let others have it."""
        ...


class Disk(Protocol):
    """What the store asks of a file system."""

    def create(self, path: Path, size: int, *, stride: int = STRIDE, thin: bool = False) -> File:
        """A new file of `size` zeros; an existing one is emptied first.

        One that is `thin` is one of many, and gets a little now and then.
        """
        ...

    def open(self, path: Path, size: int, *, stride: int = STRIDE, thin: bool = False) -> File:
        """A file that exists and has `size` bytes."""
        ...

    def extend(self, path: Path, size: int) -> None:
        """Make a file that is too short `size` bytes long, with zeros at its end."""
        ...

    def entries(self, directory: Path) -> list[Entry]:
        """What `directory` holds, sorted by name; nothing where there is no such directory."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or directory of this name."""
        ...

    def make_directory(self, directory: Path, *, lasting: bool = True) -> None:
        """Make it, and those above it, where they are missing; the new names last.

        Without `lasting` they do not until somebody syncs the directories that they are in.
        """
        ...

    def remove(self, path: Path) -> None:
        """Remove a file."""
        ...

    def remove_tree(self, directory: Path) -> None:
        """Remove a directory and all that is in it; nothing happens where it is missing."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in one step, in place of what had that name."""
        ...

    def read(self, path: Path) -> bytes:
        """All bytes of a small file."""
        ...

    def write(self, path: Path, data: bytes) -> None:
        """Make or replace a small file; its bytes last, its name is `sync_directory`'s business."""
        ...

    def sync_directory(self, directory: Path) -> None:
        """Return once the names in `directory` will survive the machine."""
        ...

    def hasten(self, directory: Path) -> None:
        """Bring much that was written there to the disk, sooner than file by file could.

        It promises nothing: that is up to each file's `sync`, which then has little left to do.
        """
        ...

    def lock(self, path: Path) -> Held | None:
        """Lock the first byte of a file, making it where it is missing; None if someone has it."""
        ...

    def usage(self, path: Path) -> Usage:
        """How full the file system under `path` is."""
        ...


class MappedFile:
    """A real file."""

    __slots__ = ("_descriptor", "_map", "_path", "_ready", "_room", "_stride", "size", "view")

    def __init__(self, path: Path, descriptor: int, size: int, stride: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._stride = stride
        self._ready = self._room = 0
        self.size = size
        self._enter_memory()

    def _enter_memory(self) -> None:
        self._map = mmap.mmap(self._descriptor, self.size)
        self.view = memoryview(self._map).toreadonly()

    def write(self, at: int, data: Buffer) -> None:
        """See `File`."""
        end = at + len(data)
        if end > self._ready:
            self._get_ready(end)
        self._map[at:end] = data

    def set_aside(self, end: int) -> None:
        """See `File`."""
        if end > self._ready:
            self._get_ready(end)

    def make_room(self, end: int) -> None:
        """See `File`."""
        room = min(self.size, -(-end // _ROOM) * _ROOM)
        if room > self._room:
            system.reserve(self._descriptor, self._room, room)
            self._room = room

    def zero_from(self, at: int) -> None:
        """See `File`."""
        for start, end in system.stretches(self._descriptor, at, self.size):
            for step in range(start, end, _ZERO_STEP):
                stop = min(step + _ZERO_STEP, end)
                if self.view[step:stop] != _ZEROS[: stop - step]:
                    self._map[step:stop] = _ZEROS[: stop - step]

    def sync(self) -> None:
        """See `File`."""
        self._check_name()
        system.sync(self._descriptor, self._map)

    def _check_name(self) -> None:
        """A file without a name is lost already, whatever the system says."""
        if os.fstat(self._descriptor).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "removed while it was in use", str(self._path))

    def resident(self, start: int, end: int) -> bool:
        """See `File`."""
        return system.resident(self._map, start, end)

    def warm(self, start: int, end: int) -> None:
        """See `File`."""
        system.warm(self._descriptor, start, end)

    def leave_memory(self) -> None:
        """See `File`."""
        system.leave_memory(self._map)

    def close(self) -> None:
        """See `File`. The mapping goes with the last reference to this object or to a slice."""
        os.close(self._descriptor)

    def _get_ready(self, end: int) -> None:
        stride = self._stride
        target = min(self.size, -(-end // stride) * stride)
        if end > target:
            raise ValueError(f"byte {end} is past the end of {self._path} ({self.size} bytes)")
        if target > self._room:
            step = _ROOM if stride >= STRIDE else stride
            room = min(self.size, -(-target // step) * step)
            system.reserve(self._descriptor, self._room, room)
            self._room = room
        system.fault_in(self._map, max(self._ready, target - stride), target)
        self._ready = target


class ThinFile(MappedFile):
    """A real file that gets a little now and then, and of which there are very many.

    It is written without its mapping, which is made when somebody reads. A store into a mapping has
    the system read what is there, with as much around it as it thinks useful: up to 2 MiB of zeros
    for each new file, a thousand times what was written, and 1 ms to clear them.
    """

    __slots__ = ()

    def _enter_memory(self) -> None:
        """Not yet."""

    def __getattr__(self, name: str) -> Any:
        """What only comes with the mapping."""
        if name not in ("_map", "view"):
            raise AttributeError(name)
        if self._descriptor < 0:
            raise ValueError(f"{self._path} is closed")
        super()._enter_memory()
        return getattr(self, name)

    def sync(self) -> None:
        """See `File`."""
        self._check_name()
        system.sync(self._descriptor, None)

    def close(self) -> None:
        """See `File`."""
        super().close()
        self._descriptor = -1

    def write(self, at: int, data: Buffer) -> None:
        """See `File`."""
        if at + len(data) > self.size:
            raise ValueError(f"byte {at + len(data)} is past the end of {self._path} ({self.size})")
        rest = memoryview(data)
        while rest:
            done = os.pwrite(self._descriptor, rest, at)
            at += done
            rest = rest[done:]


class RealDisk:
    """The operating system's file system."""

    def create(self, path: Path, size: int, *, stride: int = STRIDE, thin: bool = False) -> File:
        """See `Disk`."""
        return self._map(path, size, stride, os.O_CREAT | os.O_TRUNC, thin)

    def open(self, path: Path, size: int, *, stride: int = STRIDE, thin: bool = False) -> File:
        """See `Disk`."""
        return self._map(path, size, stride, 0, thin)

    def extend(self, path: Path, size: int) -> None:
        """See `Disk`."""
        os.truncate(path, size)

    def entries(self, directory: Path) -> list[Entry]:
        """See `Disk`."""
        try:
            with os.scandir(directory) as found:
                return sorted(map(_entry, found))
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        """See `Disk`."""
        return path.exists()

    def make_directory(self, directory: Path, *, lasting: bool = True) -> None:
        """See `Disk`."""
        if directory.is_dir():
            return
        self.make_directory(directory.parent, lasting=lasting)
        directory.mkdir(exist_ok=True)
        if lasting:
            self.sync_directory(directory.parent)

    def remove(self, path: Path) -> None:
        """See `Disk`."""
        path.unlink()

    def remove_tree(self, directory: Path) -> None:
        """See `Disk`."""
        if directory.exists():
            shutil.rmtree(directory)

    def rename(self, source: Path, target: Path) -> None:
        """See `Disk`."""
        source.replace(target)

    def read(self, path: Path) -> bytes:
        """See `Disk`."""
        return path.read_bytes()

    def write(self, path: Path, data: bytes) -> None:
        """See `Disk`."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            system.sync(file.fileno(), None)

    def sync_directory(self, directory: Path) -> None:
        """See `Disk`."""
        if sys.platform == "win32":
            return  # its file systems log changes of names by themselves
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def hasten(self, directory: Path) -> None:
        """See `Disk`."""
        system.hasten(directory)

    def lock(self, path: Path) -> Held | None:
        """See `Disk`."""
        return system.lock(path)

    def usage(self, path: Path) -> Usage:
        """See `Disk`."""
        _, used, free = shutil.disk_usage(path)
        return Usage(used + free, free)

    def _map(self, path: Path, size: int, stride: int, how: int, thin: bool) -> File:
        descriptor = os.open(path, os.O_RDWR | how | system.BINARY, 0o644)
        try:
            if how & os.O_CREAT:
                os.ftruncate(descriptor, size)
            kind = ThinFile if thin and sys.platform != "win32" else MappedFile
            return kind(path, descriptor, size, stride)
        except BaseException:
            os.close(descriptor)
            raise


def replace_whole(disk: Disk, path: Path, data: bytes) -> None:
    """Put `data` in place of a small file so that after any crash there is the old or the new."""
    fresh = path.with_name(path.name + ".tmp")
    disk.write(fresh, data)
    disk.rename(fresh, path)
    disk.sync_directory(path.parent)


def _entry(found: os.DirEntry[str]) -> Entry:
    about = found.stat()
    return Entry(found.name, about.st_size, found.is_dir(), about.st_mtime_ns // 1_000_000)
