"""The timer wheel: for each second of two weeks, where its last unit is in the timer log.

```
 0 second i64 | 8 first unit i64 | 16 last unit i64 | 24 how many i32 | 28 not used i32
```

1,209,600 such slots make the file, whose size never changes; a second's slot is the one of its
number modulo that. What another second left in a slot counts as nothing. Units are told by their
place in the timer log, -1 is none.

RocketMQ: TimerWheel, Slot.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from gantrymq.store.disk import Disk, File

SLOTS: Final = 2 * 7 * 24 * 3600
_SLOT: Final = Struct(">qqqii")
_NONE: Final = -1
_PAGE: Final = 4096
_ZEROS: Final = bytes(_PAGE)


class Slot(NamedTuple):
    """What the wheel has for a second. RocketMQ: Slot."""

    first: int
    last: int
    number: int

    @property
    def used(self) -> bool:
        """Whether there are units."""
        return self.last >= 0


EMPTY: Final = Slot(_NONE, _NONE, 0)


class TimerWheel:
    """The file, open."""

    __slots__ = ("_file", "_slots", "_view", "is_new", "used")

    def __init__(self, disk: Disk, path: Path, *, slots: int = SLOTS) -> None:
        size = slots * _SLOT.size
        sizes = {entry.name: entry.size for entry in disk.entries(path.parent)}
        self.used = 0
        """How many seconds have units; after `count`, which a start has to call."""
        self.is_new = sizes.get(path.name) != size
        """Whether there was no file, or one of another size, so that it knows of nothing."""
        if not self.is_new:
            self._file: File = disk.open(path, size, stride=_PAGE)
        else:
            self._file = disk.create(path, size, stride=_PAGE)
        self._file.set_aside(size)  # so that no message is half placed when the disk is full
        self._view = self._file.view
        self._slots = slots

    def get(self, second: int) -> Slot:
        """What there is for a second."""
        held, first, last, count, _ = _SLOT.unpack_from(self._view, self._at(second))
        return Slot(first, last, count) if held == second and last >= 0 else EMPTY

    def put(self, second: int, slot: Slot, before: Slot | None = None) -> None:
        """Set what there is for a second; `before` is what there was, if that is known."""
        if not (before or self.get(second)).used:
            self.used += 1
        self._file.write(self._at(second), _SLOT.pack(second, *slot, 0))

    def clear(self, second: int) -> None:
        """There is nothing for that second any more."""
        if self.get(second).used:
            self.used -= 1
            self._file.write(self._at(second), _SLOT.pack(second, *EMPTY, 0))

    def seconds(self, start: int) -> Iterator[tuple[int, Slot]]:
        """All seconds from `start` on that have units, in no order."""
        start = max(start, 1)  # a slot of zeros is one of second 0, which nobody waits for
        for at in range(0, len(self._view), _PAGE):
            page = bytes(self._view[at : at + _PAGE])
            if page != _ZEROS[: len(page)]:
                for second, first, last, number, _ in _SLOT.iter_unpack(page):
                    if second >= start and last >= 0:
                        yield second, Slot(first, last, number)

    def count(self, start: int) -> int:
        """Count the seconds that have units, where those before `start` are none; the last unit."""
        self.used, newest = 0, _NONE
        for _, slot in self.seconds(start):
            self.used += 1
            newest = max(newest, slot.last)
        return newest

    def wipe(self) -> None:
        """Make all slots empty."""
        self._file.zero_from(0)
        self.used = 0

    def sync(self) -> None:
        """Return once everything so far will survive the machine."""
        self._file.sync()

    def leave_memory(self) -> None:
        """Let go of its pages in this process's memory."""
        self._file.leave_memory()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _at(self, second: int) -> int:
        return second % self._slots * _SLOT.size
