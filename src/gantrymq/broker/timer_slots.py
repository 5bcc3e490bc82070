"""The seconds of the timer wheel that are being delivered: what of them is in memory.

A second is *opened* one and a half before it begins: its units are read and put in order. Messages
that come later for a second that is open already are held in memory, and their units are put into
the next one that is not; so every message is in the wheel until it has been delivered.

```
 closed ──opened──▶ open ──all delivered──▶ done ──the disk has that──▶ cleared
```

A second that is done is cleared in the wheel, but not before the disk has what was delivered. So
seconds that have passed are empty, and may be used again by a clock that was set back.

What a start has to know is `low`: no second before it has anything left, and since which place in
the log anything was delivered of those from it on.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.rules.timing import SECOND_MS
from gantrymq.store.timer_log import DELETE, ROLL, Unit

if TYPE_CHECKING:
    from gantrymq.store.store import Store
    from gantrymq.store.timer_wheel import Slot
    from gantrymq.store.timers import TimerFiles

log = logging.getLogger("gantrymq.broker")

AHEAD_MS: Final = 1500
_MOST: Final = 50_000
"""Messages in memory above which no second is opened that is due already."""
_AT_ONCE: Final = 1000
"""Units that are read on the loop; more are read in a thread."""
_GAP: Final = 1000
"""Seconds that are looked at one by one; in a longer stretch the wheel is searched."""
_OLD: Final = 11 * 24 * 3600
"""Seconds after which a slot might soon be needed by another second."""
_RECENT: Final = 16 * 1024 * 1024
_PLACE_BITS: Final = 50
_ROLL_BIT: Final = 1 << _PLACE_BITS
_PLACE: Final = _ROLL_BIT - 1
_TIME_SHIFT: Final = _PLACE_BITS + 1


class Held(NamedTuple):
    """A message in memory."""

    look_ms: int
    log_offset: int
    rolls: bool
    """Whether it is to be stored anew, and not to be delivered."""
    second: int
    """The second that its unit is in."""


@dataclass(slots=True)
class _Open:
    """A second that is open, or has units of messages that are held."""

    since: int
    """Where the log ended before anything of it was delivered."""
    left: int = 1
    """Messages that are held, and one more until all its units are read."""


@dataclass(slots=True, order=True)
class _Read:
    """The units of a second, in order: ms of the second, whether it rolls, log offset."""

    second: int
    units: list[int] = field(compare=False)


class TimerSlots:
    """What is near."""

    def __init__(
        self,
        files: TimerFiles,
        store: Store,
        *,
        takes_back: Callable[[int, int], object],
        changed: Callable[[], object],
    ) -> None:
        """`takes_back` is told of the log offset and the second of each message that takes another
        back, `changed` when units came that took a while to read.
        """
        self._files = files
        self._store = store
        self._takes_back = takes_back
        self._changed = changed
        self._began = files.log.end
        self.next = files.check.read_ms // SECOND_MS
        """The first second that was not opened, except for those that are to be opened again."""
        self._waiting: deque[int] = deque()
        self._again: list[int] = []
        self._open: dict[int, _Open] = {}
        self._read: list[_Read] = []
        self._late: list[Held] = []
        self._done: deque[tuple[int, int]] = deque()
        self._reading: set[asyncio.Task[list[int]]] = set()
        self._horizon = 0
        self.count = 0
        """How many messages are in memory."""

    # --- opening --------------------------------------------------------------------------------

    def advance(self, now_ms: int) -> None:
        """Open the seconds that are near."""
        self._horizon = target = (now_ms + AHEAD_MS) // SECOND_MS
        if self.next <= target:
            self._waiting.extend(self._used(target))
            self.next = target + 1
        while self._again and self._again[0] <= target:
            self._waiting.append(heappop(self._again))
        waiting, oldest = self._waiting, target - _OLD
        while waiting and (self.count < _MOST or waiting[0] <= oldest):
            self._begin(waiting.popleft())

    def _used(self, target: int) -> Iterable[int]:
        """The seconds up to `target` that have units and were not opened."""
        wheel, first = self._files.wheel, self.next
        if not wheel.used:
            return ()
        if target - first < _GAP:
            return (second for second in range(first, target + 1) if wheel.get(second).used)
        return sorted(second for second, _ in wheel.seconds(first) if second <= target)

    def _begin(self, second: int) -> None:
        slot = self._files.wheel.get(second)
        self._open.setdefault(second, _Open(self._store.log_end))
        if self._is_near(slot):
            self._take(second, self._units(second, self._files.chain(slot)))
        else:
            reading = asyncio.create_task(asyncio.to_thread(self._fetch, second, slot))
            self._reading.add(reading)
            reading.add_done_callback(lambda done: self._fetched(second, done))

    def _is_near(self, slot: Slot) -> bool:
        """Whether the units and the messages of a slot are few, and surely in memory."""
        if slot.number > _AT_ONCE or not self._files.is_hot(slot):
            return False
        first = self._files.log.unit(slot.first)
        return first is not None and first.log_offset >= self._store.log_end - _RECENT

    def _fetch(self, second: int, slot: Slot) -> list[int]:
        """In a thread: the units of a slot, with their messages brought into memory."""
        units = self._units(second, self._files.fetched(slot))
        self._store.warm_records(sorted(unit & _PLACE for unit in units))
        return units

    def _fetched(self, second: int, reading: asyncio.Task[list[int]]) -> None:
        self._reading.discard(reading)
        if reading.cancelled():
            return
        if (error := reading.exception()) is not None:
            log.error("the messages due at %d s could not be read yet: %s", second, error)
            self._waiting.append(second)
            return
        self._take(second, reading.result())
        self._changed()

    def _units(self, second: int, chain: Iterable[tuple[int, Unit]]) -> list[int]:
        """What is to be looked at in that second, the last first."""
        start = second * SECOND_MS
        found = []
        for place, unit in chain:
            if unit.magic & (DELETE | ROLL) == DELETE:
                found.append(-1 - unit.log_offset)
                continue
            rolls = unit.magic & ROLL
            look_ms = unit.slot_ms + 1 if rolls else unit.due_ms or start + SECOND_MS
            if look_ms <= start:
                if place >= self._began:  # it came late, and is in memory since then
                    continue
                look_ms = start + 1
            time = look_ms - start - 1
            found.append(time << _TIME_SHIFT | bool(rolls) << _PLACE_BITS | unit.log_offset)
        found.sort(reverse=True)
        return found

    def _take(self, second: int, units: list[int]) -> None:
        """A second was read."""
        while units and units[-1] < 0:
            self._takes_back(-1 - units.pop(), second)
        if units:
            insort(self._read, _Read(second, units))
            self._open[second].left += len(units)
            self.count += len(units)
        self._finish(second)

    # --- what is held ---------------------------------------------------------------------------

    def place(self, look_ms: int) -> tuple[int, bool]:
        """A time in the slot for a message that is looked at then; whether it has to be held."""
        slot_ms = look_ms - 1
        second = slot_ms // SECOND_MS
        if second >= self.next:
            return slot_ms, False
        if second > self._horizon and second not in self._open:  # it was cleared: time went back
            if second not in self._again:
                heappush(self._again, second)
            return slot_ms, False
        return self.next * SECOND_MS, True

    def hold(self, look_ms: int, log_offset: int, *, rolls: bool) -> None:
        """Hold a message whose unit goes into the next second that is not open."""
        found = self._open.setdefault(self.next, _Open(self._store.log_end))
        found.left += 1
        self.count += 1
        heappush(self._late, Held(look_ms, log_offset, rolls, self.next))

    def first(self) -> Held | None:
        """The message that is to be looked at first."""
        late, read = self._late, self._read
        if not read:
            return late[0] if late else None
        second, units = read[0].second, read[0].units
        look_ms = second * SECOND_MS + (units[-1] >> _TIME_SHIFT) + 1
        if late and late[0].look_ms < look_ms:
            return late[0]
        unit = units[-1]
        return Held(look_ms, unit & _PLACE, bool(unit & _ROLL_BIT), second)

    def due(self, now_ms: int, most: int) -> list[int]:
        """Log offsets of messages that come first and are due, all of one second, none that rolls.

        There may be more of them, or others, which `first` gives.
        """
        if not self._read:
            return []
        second, units = self._read[0].second, self._read[0].units
        until_ms = min(now_ms, self._late[0].look_ms) if self._late else now_ms
        last = (until_ms - second * SECOND_MS) << _TIME_SHIFT
        found = []
        for unit in units[: -most - 1 : -1]:
            if unit >= last or unit & _ROLL_BIT:
                break
            found.append(unit & _PLACE)
        return found

    def drop_due(self, number: int) -> None:
        """So many of those are seen to."""
        second, units = self._read[0].second, self._read[0].units
        del units[-number:]
        if not units:
            del self._read[0]
        self.count -= number
        self._finish(second, number)

    def drop(self, held: Held) -> None:
        """The message that was first is seen to."""
        if self._late and self._late[0] is held:
            heappop(self._late)
        else:
            units = self._read[0].units
            units.pop()
            if not units:
                del self._read[0]
        self.count -= 1
        self._finish(held.second)

    def next_opening(self) -> int | None:
        """When the next second has to be opened, in ms; None if nothing waits."""
        if self._waiting and self.count < _MOST:
            return 0
        seconds = [self._again[0]] if self._again else []
        if self._files.wheel.used:
            seconds.append(self.next)
        return min(seconds) * SECOND_MS - AHEAD_MS if seconds else None

    # --- what is done ---------------------------------------------------------------------------

    def settle(self, flushed_to: int) -> bool:
        """Clear the seconds that are done as far as the disk knows; whether there were any."""
        done, before = self._done, len(self._done)
        while done and done[0][1] <= flushed_to:
            second, _ = done.popleft()
            self._files.wheel.clear(second)
            del self._open[second]
        return len(done) < before

    def low(self) -> tuple[int, int]:
        """The first second that has something left, and since where in the log it was delivered."""
        seconds = [self.next, *self._open, *self._again, *self._waiting]
        since = [self._store.log_end, *(one.since for one in self._open.values())]
        return min(seconds), min(since)

    async def close(self) -> None:
        """Return when nothing is read any more."""
        await asyncio.gather(*self._reading, return_exceptions=True)

    def _finish(self, second: int, number: int = 1) -> None:
        found = self._open[second]
        found.left -= number
        if not found.left:
            self._done.append((second, self._store.log_end))
