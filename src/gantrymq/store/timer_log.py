"""The timer log: for each message that waits, when it is due and where it is in the commit log.

```
 0 size i32 = 52 | 4 the unit before it in its slot i64 | 12 magic i32 | 16 written at i64 |
24 ms from then to the slot i32 | 28 log offset i64 | 36 size of the record i32 |
40 hash of its topic i32 | 44 due at i64
```

Times are ms since 1970. The magic number has bit 0 set, bit 1 where the message is to be stored
anew at the slot's time since it is due much later, and bit 2 where it takes another back. RocketMQ
leaves the last field 0; we put down there when the message is due to the millisecond, or `DONE`
where somebody has already seen to it. Files have 100 MiB; where fewer than 52 + 16 bytes are left
of one, a blank takes its place:

```
 0 what is left i32 | 4 zeros i64 | 12 magic -875286124 i32
```

RocketMQ: TimerLog, TimerMessageStore.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from gantrymq.store.segment import Segment, Segments
from gantrymq.wire.record import MAGIC_BLANK

UNIT_SIZE: Final = 52
PLAIN: Final = 1
ROLL: Final = 2
DELETE: Final = 4
DONE: Final = -1

_UNIT: Final = Struct(">iqiqiqiiq")
_UNIT_HEAD: Final = Struct(">iqiqiq")
_NEVER: Final = 2**63 - 1
_BLANK: Final = Struct(">iqi")
_DUE: Final = Struct(">q")
_DUE_AT: Final = 44
_BLOCK: Final = 1024 * 1024
_MAGICS: Final = frozenset(PLAIN | roll | delete for roll in (0, ROLL) for delete in (0, DELETE))


class Unit(NamedTuple):
    """One message that waits."""

    previous: int
    magic: int
    written_ms: int
    wait_ms: int
    log_offset: int
    size: int
    topic_hash: int
    due_ms: int

    @property
    def slot_ms(self) -> int:
        """A time in the second to which it belongs."""
        return self.written_ms + self.wait_ms


class TimerLog:
    """The log, open for appending by one thread and for reading by any."""

    __slots__ = ("end", "segments")

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.end = segments.start
        """Where the next unit goes; to be set after a start by who knows."""

    @property
    def start(self) -> int:
        """The place of the oldest unit that is kept."""
        return self.segments.start if self.segments.files else self.end

    def place(self) -> int:
        """Where the next unit goes, in a new file if there is no room in the last one."""
        segment = self.segments.find(self.end) if self.segments.files else None
        if segment is not None:
            left = segment.end - self.end
            if left >= UNIT_SIZE + _BLANK.size:
                return self.end
            segment.file.write(self.end - segment.base, _BLANK.pack(left, 0, MAGIC_BLANK))
            self.end = segment.end
        made = self.segments.find(self.end) or self.segments.add(self.end)
        self.end = made.base
        return self.end

    def room(self, most: int) -> int:
        """How many units, of so many, fit from `place` on before a new file has to begin.

        Room for them is set aside; `OSError` where the disk has none.
        """
        segment = self.segments.find(self.place())
        assert segment is not None
        count = min(most, (segment.end - self.end - _BLANK.size) // UNIT_SIZE)
        segment.file.set_aside(self.end - segment.base + count * UNIT_SIZE)
        return count

    def write(self, units: list[Unit]) -> None:
        """Write units from `place` on; no more than there is `room` for."""
        segment = self.segments.find(self.end)
        assert segment is not None
        data = b"".join([_UNIT.pack(UNIT_SIZE, *unit) for unit in units])
        segment.file.write(self.end - segment.base, data)
        self.end += len(data)

    def unit(self, at: int) -> Unit | None:
        """The unit at a place; None if there is none."""
        segment = self.segments.find(at)
        if segment is None or at + UNIT_SIZE > min(segment.end, self.end):
            return None
        size, *fields = _UNIT.unpack_from(segment.view, at - segment.base)
        return Unit(*fields) if size == UNIT_SIZE and fields[1] in _MAGICS else None

    def chain(self, last: int, *, warm: bool = False) -> Iterator[tuple[int, Unit]]:
        """A slot's units with their places, the newest first; `warm` brings them into memory."""
        at, block = last, -1
        while at >= self.start and (unit := self.unit(at)) is not None:
            if unit.due_ms != DONE:
                yield at, unit
            if unit.previous >= at:  # nonsense, and no end
                return
            at = unit.previous
            if warm and at >= 0 and at // _BLOCK != block:
                block = at // _BLOCK
                self._warm(block * _BLOCK)

    def units(self, start: int) -> Iterator[tuple[int, Unit]]:
        """The units from a place on, as far as they are whole, with their places."""
        at = start
        while (segment := self.segments.find(at)) is not None:
            if segment.end - at < UNIT_SIZE + _BLANK.size or _is_blank(segment, at):
                at = segment.end
                continue
            size, *fields = _UNIT.unpack_from(segment.view, at - segment.base)
            if size != UNIT_SIZE or fields[1] not in _MAGICS or fields[0] >= at:
                return
            yield at, Unit(*fields)
            at += UNIT_SIZE

    def reaches(self, at: int) -> bool:
        """Whether what was written before a place is still there, as the last of it tells."""
        segment = self.segments.find(at - 1) if at else None
        if segment is None or at - segment.base < UNIT_SIZE:
            return at == 0
        size, _, magic, *_ = _UNIT_HEAD.unpack_from(segment.view, at - UNIT_SIZE - segment.base)
        return at == segment.end or (size == UNIT_SIZE and magic in _MAGICS)

    def find(self, log_offset: int) -> int | None:
        """Where the unit of the message at a log offset is; units are in the order of these."""
        files = [one for one in self.segments.files if one.base < self.end]
        after = bisect_right(files, log_offset, key=_first_offset)
        if not after:
            return None
        segment = files[after - 1]
        number = (min(segment.end, self.end) - segment.base) // UNIT_SIZE
        index = bisect_left(
            range(number), log_offset, key=lambda index: _offset_of(segment, index * UNIT_SIZE)
        )
        found = index < number and _offset_of(segment, index * UNIT_SIZE) == log_offset
        return segment.base + index * UNIT_SIZE if found else None

    def done(self, at: int) -> None:
        """Put down that somebody has seen to the unit at a place; it lasts when all is synced."""
        segment = self.segments.find(at)
        if segment is not None:
            segment.file.write(at - segment.base + _DUE_AT, _DUE.pack(DONE))

    def cut(self, end: int) -> None:
        """Make `end` the end; what follows it is gone."""
        self.segments.cut(end)
        self.end = end

    def remove_before(self, log_start: int) -> None:
        """Remove the files whose units are all about messages that the commit log has no more."""
        for segment in self.segments.files[:-1]:
            following = self.segments.find(segment.end)
            first = None if following is None else self.unit(following.base)
            if first is None or first.log_offset >= log_start:
                return
            for gone in self.segments.take_before(segment.end):
                self.segments.remove(gone)

    def _warm(self, start: int) -> None:
        """Bring a block into memory, without keeping other threads waiting for the disk."""
        for segment in self.segments.files:
            first, end = max(start, segment.base), min(start + _BLOCK, segment.end)
            if first < end and not segment.file.resident(first - segment.base, end - segment.base):
                segment.file.warm(first - segment.base, end - segment.base)

    def sync(self, start: int) -> None:
        """Return once everything from `start` on will survive the machine."""
        for segment in self.segments.files:
            if segment.end > start:
                segment.file.sync()
        self.segments.sync_names()

    def leave_memory(self) -> None:
        """Let go of the pages of full files."""
        for segment in self.segments.files[:-1]:
            segment.file.leave_memory()

    def close(self) -> None:
        """Close all files."""
        self.segments.close()


def _first_offset(segment: Segment) -> int:
    return _offset_of(segment, 0)


def _offset_of(segment: Segment, at: int) -> int:
    """The log offset that the unit at a byte of a file has; of a blank, one that is too large."""
    size, *_, log_offset = _UNIT_HEAD.unpack_from(segment.view, at)
    return log_offset if size == UNIT_SIZE else _NEVER


def _is_blank(segment: Segment, at: int) -> bool:
    return _BLANK.unpack_from(segment.view, at - segment.base) == (segment.end - at, 0, MAGIC_BLANK)
