"""What operating systems do differently about files: room, syncing, what is in memory, locks.

| | Linux | macOS | Windows |
|---|---|---|---|
| set room aside | `posix_fallocate` | a look at the free space | a look at the free space |
| bytes last after | `fdatasync` | `msync`, then `F_FULLFSYNC` | `FlushFileBuffers` |
| what is in memory | `mincore` | `mincore` | taken to be all |
| do without pages | `madvise` | | |
| lock | `fcntl` record lock, as Java's | the same | `LockFile` |

Record locks belong to a process and not to a descriptor: a second lock in the same process would be
granted, and closing *any* descriptor of the file would drop the first. Hence `_HELD`, and hence the
lock file is written by who locks it and by nobody else.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

BINARY: Final[int] = getattr(os, "O_BINARY", 0)

_LEAST_FREE: Final = 16 * 1024 * 1024
"""Where room cannot be set aside, this much has to be free for each stride."""
_POPULATE_WRITE: Final = 23
"""MADV_POPULATE_WRITE, of Linux 5.14 and later."""
_UNKNOWN_MEMORY: Final = 4 * 2**30
_WARM_STEP: Final = 1024 * 1024
_FULL_SYNC: Final = 51
"""F_FULLFSYNC; macOS's own fsync leaves the bytes in the drive's cache."""
_LOCK_TEXT: Final = b"lock"


def reserve(descriptor: int, start: int, end: int) -> None:
    """Have the file system set aside room for these bytes; `OSError` where it has none."""
    if sys.platform == "linux":
        try:
            os.posix_fallocate(descriptor, start, end - start)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        else:
            return
    if sys.platform != "win32":
        about = os.fstatvfs(descriptor)
        if about.f_bavail * about.f_frsize < _LEAST_FREE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fault_in(mapped: mmap.mmap, start: int, end: int) -> None:
    """Make pages ready to be written, many for the price of one fault; only a saving of time."""
    global _populate
    if _populate:
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        try:
            mapped.madvise(_POPULATE_WRITE, first, end - first)
        except OSError as error:
            if error.errno == errno.EINVAL:  # an older kernel
                _populate = False


_populate = sys.platform == "linux"


def sync(descriptor: int, mapped: mmap.mmap | None) -> None:
    """Return once the file's bytes, and what is needed to find them, will survive the machine."""
    if sys.platform == "linux":
        os.fdatasync(descriptor)
        return
    if mapped is not None:
        mapped.flush()
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def hasten(directory: Path) -> None:
    """Bring all that waits in this file system to the disk; what goes wrong is not told here."""
    if _syncfs is None:
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        _syncfs(descriptor)
    finally:
        os.close(descriptor)


def resident(mapped: mmap.mmap, start: int, end: int) -> bool:
    """Whether all these bytes are in memory."""
    if _mincore is None:
        return True
    first = start // mmap.PAGESIZE * mmap.PAGESIZE
    found = (ctypes.c_ubyte * -(-(end - first) // mmap.PAGESIZE))()
    if _mincore(_address(mapped) + first, end - first, found) != 0:
        return True
    return 0 not in bytes(found)


def leave_memory(mapped: mmap.mmap) -> None:
    """Let go of all pages of a mapped file, which stay in the system's cache.

    Called through `ctypes` because `mmap.madvise` would keep other threads waiting.
    """
    if _madvise is not None:
        _madvise(_address(mapped), len(mapped), mmap.MADV_DONTNEED)


def _address(mapped: mmap.mmap) -> int:
    # the object that knows the address also pins the mapping, so it must not outlive this line
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))


def stretches(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of a sparse file that may hold other bytes than zeros."""
    if sys.platform == "win32":
        yield start, end
        return
    while start < end:
        try:
            start = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        stop = min(os.lseek(descriptor, start, os.SEEK_HOLE), end)
        yield start, stop
        start = stop


def warm(descriptor: int, start: int, end: int) -> None:
    """Read these bytes for nothing but to have them in memory; other threads can run meanwhile."""
    if sys.platform != "win32":
        for at in range(start, end, _WARM_STEP):
            os.pread(descriptor, min(_WARM_STEP, end - at), at)


def memory() -> int:
    """The bytes of memory that this machine has; 4 GiB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN_MEMORY


class FileLock:
    """A held lock."""

    __slots__ = ("_descriptor", "_key")

    def __init__(self, descriptor: int, key: tuple[int, int]) -> None:
        self._descriptor = descriptor
        self._key = key
        _HELD.add(key)

    def release(self) -> None:
        """Let others have it."""
        _HELD.discard(self._key)
        os.close(self._descriptor)


def lock(path: Path) -> FileLock | None:
    """Lock the first byte of a file; None if someone has it already, this process included."""
    if path.exists() and _identity(path.stat()) in _HELD:
        return None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o644)
    try:
        if _try_lock(descriptor):
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, _LOCK_TEXT)
            return FileLock(descriptor, _identity(os.fstat(descriptor)))
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


_HELD: Final[set[tuple[int, int]]] = set()


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _try_lock(descriptor: int) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        raise
    return True


_Call: TypeAlias = Callable[[int, int, object], int]


def _of_c(name: str, last: type[ctypes.c_void_p] | type[ctypes.c_int]) -> _Call | None:
    """A function of the C library that takes an address, a length and one thing more."""
    try:
        found = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # TypeError: Windows has no library without a name
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, last)
    found.restype = ctypes.c_int
    call: _Call = found
    return call


_mincore: Final = None if sys.platform == "win32" else _of_c("mincore", ctypes.c_void_p)
_madvise: Final = _of_c("madvise", ctypes.c_int) if sys.platform == "linux" else None
_syncfs: Final = getattr(ctypes.CDLL(None), "syncfs", None) if sys.platform == "linux" else None
