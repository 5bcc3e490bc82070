"""One timer per connection for everything that connection has to do at a time.

A timer for each call costs more than the call's bookkeeping, and nearly all of them are cancelled.
So a connection has one `Alarm`. Whoever needs to be looked at by a certain time says so with `by`,
which is a comparison as long as the alarm is set earlier already. When it rings, the owner looks
at everything that is due and says when to ring next. It rings at most once in `RESOLUTION` seconds
and so is at most that late, however many deadlines there are.

A loop that was kept busy is late with everything, and its first turn may come to the alarm before
it comes to the replies that wait in the sockets. An alarm that finds itself late therefore rings
one `RESOLUTION` later still: nobody is blamed for what was there in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf
from typing import Final

RESOLUTION: Final = 0.01
SLACK: Final = 0.001
"""Loops round their timers to milliseconds; what is due within one is due."""
_BUSY: Final = 0.05
"""An alarm that is so late was kept from ringing."""


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's time, as it is now.

    uvloop reads the clock once in each turn. To a call made at the end of a long one it would seem
    that much of its time has passed already.
    """
    return time.monotonic if type(loop).__module__.startswith("uvloop") else loop.time


class Alarm:
    """Rings at the earliest time that anyone asked for."""

    __slots__ = ("_clock", "_handle", "_loop", "_ring", "at")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[float], float]) -> None:
        """`ring` gets the time up to which things are due, and says when to ring next."""
        self._loop = loop
        self._clock = clock_of(loop)
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None
        self.at = inf

    def by(self, when: float) -> None:
        """Ring at `when` at the latest."""
        if when < self.at:
            if self._handle is not None:
                self._handle.cancel()
            self.at = when
            self._handle = self._loop.call_later(when - self._clock(), self._fire)

    def stop(self) -> None:
        """Never ring again; `by` does nothing from now on."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self.at = -inf

    def _fire(self) -> None:
        now = self._clock()
        late = now - self.at > _BUSY
        self._handle = None
        self.at = inf
        when = now if late else self._ring(now + SLACK)
        if when < inf:
            self.by(max(when, now + RESOLUTION))
