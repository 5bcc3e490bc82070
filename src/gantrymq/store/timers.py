"""The files of messages that wait for a time of their own, and how they are made to agree.

```
<store>/timerwheel            for each second, its last unit                  see `timer_wheel`
        timerlog/<place>      a unit for each message that waits              see `timer_log`
        config/timercheck     up to where they are known to be on the disk:

 0 ms up to which all is delivered i64 | 8 place in the timer log i64 | 16 offset in the queue i64 |
24 the master's offset i64 | 32 state version, timestamp, counter of the data version 3 x i64 |
64 "GantryMQ" i64 | 72 the first field again i64 | 80 log offset i64 | zeros up to 4096
```

The messages themselves are in the commit log, in queue 0 of `rmq_sys_wheel_timer`, and that queue
is the truth. Everything delivered before the time of the first field is on the disk, and so is
every message whose unit is before the place of the second. What else was delivered is found in the
commit log from the offset on that is at 80; RocketMQ does not know of it, and where its broker ran
since, the field at 72 gives that away.

**A start** reads the units after that place. Those of messages that the commit log has lost go, as
does everything after them; the rest is put into the wheel where it is not there already. Only where
the wheel knows of units that are gone, which takes a power cut, or is gone itself, is it made anew
from all units. Where the timer log is gone, all begins again with the first message of the queue.

RocketMQ: TimerMessageStore, TimerCheckpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from gantrymq.store.disk import Disk, File
from gantrymq.store.segment import Segments
from gantrymq.store.timer_log import DELETE, DONE, UNIT_SIZE, TimerLog, Unit
from gantrymq.store.timer_wheel import SLOTS, Slot, TimerWheel

CHECK_SIZE: Final = 4096
_FIELDS: Final = Struct(">qqqqqqq")
_OURS: Final = Struct(">qqq")
_OURS_AT: Final = 64
_RECENT: Final = 8 * 1024 * 1024
_OURS_MARK: Final = int.from_bytes(b"GantryMQ", "big")


@dataclass(slots=True, kw_only=True)
class TimerCheck:
    """How far everything is on the disk. RocketMQ: TimerCheckpoint."""

    read_ms: int = 0
    """What was due before has been delivered."""
    place: int = 0
    """The units before it are in the log and in the wheel."""
    queue_offset: int = 0
    """The messages before it have their units there."""
    log_offset: int | None = None
    """Before it in the commit log, nothing was delivered that was due at `read_ms` or later."""
    version: tuple[int, int, int] = (0, 0, 0)


class _CheckFile:
    __slots__ = ("_file",)

    def __init__(self, disk: Disk, path: Path) -> None:
        sizes = {entry.name: entry.size for entry in disk.entries(path.parent)}
        disk.make_directory(path.parent)
        whole = sizes.get(path.name) == CHECK_SIZE
        self._file: File = disk.open(path, CHECK_SIZE) if whole else disk.create(path, CHECK_SIZE)

    def read(self) -> TimerCheck:
        read_ms, place, queue_offset, _, *version = _FIELDS.unpack_from(self._file.view)
        mark, same_ms, log_offset = _OURS.unpack_from(self._file.view, _OURS_AT)
        ours = (mark, same_ms) == (_OURS_MARK, read_ms)
        first, second, third = version
        return TimerCheck(
            read_ms=read_ms,
            place=place,
            queue_offset=queue_offset,
            log_offset=log_offset if ours else None,
            version=(first, second, third),
        )

    def write(self, check: TimerCheck) -> None:
        fields = check.read_ms, check.place, check.queue_offset, check.queue_offset
        data = _FIELDS.pack(*fields, *check.version)
        ours = _OURS.pack(_OURS_MARK, check.read_ms, check.log_offset or 0)
        self._file.write(0, data.ljust(_OURS_AT, b"\0") + ours)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class Entry(NamedTuple):
    """A message that is to wait."""

    slot_ms: int
    """A time in the second of the wheel where it is looked at next."""
    magic: int
    due_ms: int
    log_offset: int
    size: int
    topic_hash: int


class TimerFiles:
    """The files, open. Appending, and whatever changes the wheel, happens on one thread."""

    def __init__(self, disk: Disk, directory: Path, file_size: int, *, slots: int = SLOTS) -> None:
        segments = Segments(disk, directory / "timerlog", file_size)
        segments.load()
        self._check = _CheckFile(disk, directory / "config" / "timercheck")
        known = self.are_there(disk, directory)
        self.check = self._check.read() if known else TimerCheck()
        """What was saved last."""
        self.wheel = TimerWheel(disk, directory / "timerwheel", slots=slots)
        self.log = TimerLog(segments)
        if self.check.log_offset is not None and not self.log.reaches(self.check.place):
            self.check = TimerCheck()  # the log is gone; the queue has everything
        self._synced = 0

    @staticmethod
    def are_there(disk: Disk, directory: Path) -> bool:
        """Whether messages have ever waited here."""
        return disk.exists(directory / "timerwheel")

    # --- a start --------------------------------------------------------------------------------

    def recover(
        self,
        queue_offset_of: Callable[[Unit], int | None],
        report: Callable[[str], object],
    ) -> int:
        """Make the files agree with each other and the commit log; the next offset of the queue.

        `queue_offset_of` gives the queue offset of the message that a unit is about, None if the
        commit log has no such message.
        """
        check, log = self.check, self.log
        end = self._synced = max(check.place, log.segments.start)
        queue_offset, fresh = check.queue_offset, []
        for at, unit in log.units(end):
            offset = queue_offset_of(unit)
            if offset is None:
                report(f"the timer log ends at {at}: the message of what follows is lost")
                break
            end, queue_offset = at + UNIT_SIZE, offset + 1
            fresh.append((at, unit))
        log.cut(end)
        log.sync(end)  # or else a power cut may bring back what was cut off, behind newer units
        first_second = check.read_ms // 1000
        if self.wheel.count(first_second) >= end or (self.wheel.is_new and end):
            report("the timer wheel does not fit the timer log; it is made anew")
            self.wheel.wipe()
            self._link(log.units(log.segments.start), first_second)
            self.wheel.sync()
        else:
            self._link(fresh, first_second)
        return queue_offset

    def _link(self, units: Iterable[tuple[int, Unit]], first_second: int) -> None:
        for at, unit in units:
            second = unit.slot_ms // 1000
            slot = self.wheel.get(second)
            if second >= first_second and slot.last < at and unit.due_ms != DONE:
                self.wheel.put(second, _longer(slot, at, unit.magic))

    def forget(self, log_offsets: Iterable[int]) -> None:
        """Have the messages at these log offsets wait no more; the next `save` makes it last."""
        for log_offset in log_offsets:
            place = self.log.find(log_offset)
            if place is not None:
                self.log.done(place)
                self._synced = min(self._synced, place)

    # --- on the way -----------------------------------------------------------------------------

    def room(self, most: int) -> int:
        """How many messages, of so many, can be added surely; `OSError` if the disk is full."""
        return self.log.room(most)

    def add(self, entries: list[Entry], now_ms: int) -> None:
        """Have messages wait; see `room` before."""
        while entries:
            room = self.log.room(len(entries))
            self._add(entries[:room], now_ms)
            entries = entries[room:]

    def _add(self, entries: list[Entry], now_ms: int) -> None:
        at = self.log.place()
        slots: dict[int, Slot] = {}
        before: dict[int, Slot] = {}
        units = []
        for slot_ms, magic, due_ms, log_offset, size, topic_hash in entries:
            second = slot_ms // 1000
            slot = slots.get(second)
            if slot is None:
                slot = before[second] = self.wheel.get(second)
            wait_ms = slot_ms - now_ms
            units.append(
                Unit(slot.last, magic, now_ms, wait_ms, log_offset, size, topic_hash, due_ms)
            )
            slots[second] = _longer(slot, at, magic)
            at += UNIT_SIZE
        self.log.write(units)  # first, so that the wheel never knows of what is not there
        for second, slot in slots.items():
            self.wheel.put(second, slot, before[second])

    def is_hot(self, slot: Slot) -> bool:
        """Whether all of a slot was written a moment ago, and so is in memory."""
        return slot.first >= self.log.end - _RECENT

    def chain(self, slot: Slot) -> Iterator[tuple[int, Unit]]:
        """A slot's units with their places, the newest first; they may have to be fetched."""
        return self.log.chain(slot.last)

    def fetched(self, slot: Slot) -> Iterator[tuple[int, Unit]]:
        """The same in another thread, which brings into memory what is not there."""
        return self.log.chain(slot.last, warm=True)

    def save(self, check: TimerCheck) -> None:
        """Return once all is on the disk up to what `check` says; in any thread."""
        self.log.sync(self._synced)
        self._synced = check.place
        self.wheel.sync()
        self._check.write(check)
        self.check = check

    def leave_memory(self) -> None:
        """Let go of pages in this process's memory that are hardly needed."""
        self.log.leave_memory()
        self.wheel.leave_memory()

    def close(self) -> None:
        """Close all files."""
        self.wheel.close()
        self.log.close()
        self._check.close()


def _longer(slot: Slot, at: int, magic: int) -> Slot:
    number = slot.number - 1 if magic & DELETE else slot.number + 1
    return Slot(slot.first if slot.used else at, at, number)
