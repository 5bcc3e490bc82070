"""A long run of bytes kept in files of one size, each named by the offset of its first byte.

```
commitlog/00000000000000000000   bytes 0 … size-1
commitlog/00000000001073741824   bytes size … 2·size-1, and so on: 20 digits, no gaps
```

**Loading** follows RocketMQ: names are sorted, directories are passed over, an empty last file
(one that was just being made) is removed, and a file of any other size than the set one is refused,
since its offsets would all be wrong. Unlike RocketMQ's broker, which does not start then, we take a
last file that was cut off, as a copy that did not end leaves it: what is missing is zeros again. An
only file of a round size is refused all the same: the store may have been set to that.

The list of segments is replaced as a whole and never changed in place. Whoever took it, in
whatever thread, can finish with what it holds; and the bytes of a segment that is removed live on
while someone holds a slice of its view.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from gantrymq.errors import StoreError
from gantrymq.store.disk import STRIDE, Disk, File

_DIGITS: Final = 20
_WHOLE: Final = 1024 * 1024
"""Sizes of whole files are multiples of this; only small stores, of tests, have others."""


class Segment:
    """One of the files.

    RocketMQ: MappedFile.
    """

    __slots__ = ("base", "end", "file", "path", "view")

    def __init__(self, path: Path, file: File, base: int, size: int) -> None:
        self.path = path
        self.file = file
        self.base = base
        self.end = base + size
        self.view = file.view

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} of {self.end - self.base} bytes>"


class Segments:
    """All files of one run of bytes, oldest first.

    RocketMQ: MappedFileQueue.
    """

    __slots__ = ("_directory", "_disk", "_stride", "files", "size")

    def __init__(self, disk: Disk, directory: Path, size: int, *, stride: int = STRIDE) -> None:
        self._disk = disk
        self._directory = directory
        self._stride = stride
        self.size = size
        self.files: list[Segment] = []

    @property
    def directory(self) -> Path:
        """Where the files are."""
        return self._directory

    @property
    def start(self) -> int:
        """The offset of the first byte that there is a file for."""
        return self.files[0].base if self.files else 0

    @property
    def end(self) -> int:
        """The offset after the last byte that there is a file for."""
        return self.files[-1].end if self.files else 0

    def load(self) -> None:
        """Open what the directory holds."""
        found = [
            entry
            for entry in self._disk.entries(self._directory)
            if not entry.is_directory and not entry.name.startswith(".")
        ]
        if found and found[-1].size == 0:
            self._disk.remove(self._directory / found.pop().name)
        bases = [self._base(entry.name) for entry in found]
        if found and is_cut_off([entry.size for entry in found], self.size, _WHOLE):
            self._disk.extend(self._directory / found[-1].name, self.size)
            found[-1] = found[-1]._replace(size=self.size)
        for entry in found:
            if entry.size != self.size:
                self._refuse(entry.name, entry.size)
        for before, after in pairwise(bases):
            if after - before != self.size:
                raise StoreError(
                    f"{self._directory}: after {_name(before)} comes {_name(after)}; between them"
                    f" {(after - before) // self.size - 1} files of {self.size} bytes are missing"
                )
        self.files = [self._open(base) for base in bases]

    def find(self, offset: int) -> Segment | None:
        """The segment that has the byte at `offset`."""
        files = self.files
        if files:
            index = (offset - files[0].base) // self.size
            if 0 <= index < len(files):
                return files[index]
        return None

    def add(self, base: int | None = None) -> Segment:
        """A new segment after the last one, or at `base` where there is none."""
        if self.files:
            base = self.files[-1].end
        else:
            base = (base or 0) // self.size * self.size
            self._disk.make_directory(self._directory)
        path = self._directory / _name(base)
        made = Segment(path, self._disk.create(path, self.size, stride=self._stride), base,
                       self.size)  # fmt: skip
        self.files = [*self.files, made]
        return made

    def take_before(self, offset: int) -> list[Segment]:
        """Take out the segments that end at or before `offset`; their files are still there."""
        gone = [segment for segment in self.files if segment.end <= offset]
        if gone:
            self.files = self.files[len(gone) :]
        return gone

    def remove(self, segment: Segment) -> None:
        """Remove the file of a segment that was taken out."""
        segment.file.close()
        self._disk.remove(segment.path)

    def cut(self, offset: int) -> None:
        """Forget the bytes from `offset` on: later files go, the rest of its own becomes zeros."""
        gone = [segment for segment in self.files if segment.base > offset]
        self.files = self.files[: len(self.files) - len(gone)]
        for segment in reversed(gone):  # so that a crash on the way leaves no gap
            self.remove(segment)
        if self.files and offset < self.files[-1].end:
            self.files[-1].file.zero_from(offset - self.files[-1].base)

    def sync_names(self) -> None:
        """Return once files that were made or removed will be so after any crash."""
        if self._disk.exists(self._directory):
            self._disk.sync_directory(self._directory)

    def close(self) -> None:
        """Close all files."""
        for segment in self.files:
            segment.file.close()
        self.files = []

    def _open(self, base: int) -> Segment:
        path = self._directory / _name(base)
        return Segment(path, self._disk.open(path, self.size, stride=self._stride), base, self.size)

    def _base(self, name: str) -> int:
        if len(name) != _DIGITS or not name.isdecimal() or int(name) % self.size:
            raise StoreError(
                f"{self._directory / name}: files here are named by {_DIGITS} digits, a multiple of"
                f" their set size of {self.size} bytes"
            )
        return int(name)

    def _refuse(self, name: str, size: int) -> None:
        raise StoreError(
            f"{self._directory / name} has {size} bytes; this store is set to files of {self.size}."
            f" Set that size back to what the store was made with"
        )


def is_cut_off(sizes: Sequence[int], size: int, whole: int) -> bool:
    """Whether the last of some files was cut off, and not made when another size was set."""
    *before, last = sizes
    if last >= size or any(other != size for other in before):
        return False
    return bool(before or last % whole)


def _name(base: int) -> str:
    return f"{base:0{_DIGITS}d}"
