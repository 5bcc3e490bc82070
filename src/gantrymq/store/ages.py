"""How old messages are, by a clock that may be wrong.

Store times are the wall clock's, so ages have to be, too. But what is removed because it is old is
gone, and a clock that is set ahead by mistake makes everything old at once. So a jump ahead (more
than the other clock, which never jumps, has gone on meanwhile) does not count until it has lasted
for a day. A jump back takes back as much of one that does not count yet.

A computer that slept looks the same, and its old messages stay for that day, too. A clock that is
wrong from the start on cannot be told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

JUMP: Final = 600.0
"""Seconds that a clock may be corrected by without more ado."""
TRUSTED_AFTER: Final = 24 * 3600.0

_MS: Final = 1000


class AgeClock:
    """The wall clock, but for jumps ahead that are new; to be read every now and then."""

    __slots__ = ("_clock_ms", "_held_ms", "_last", "_last_ms", "_monotonic", "_report", "_until")

    def __init__(
        self,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        report: Callable[[str], object],
    ) -> None:
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._report = report
        self._last_ms, self._last = clock_ms(), monotonic()
        self._held_ms = 0
        self._until = 0.0

    def now_ms(self) -> int:
        """The time by which ages go."""
        now_ms, now = self._clock_ms(), self._monotonic()
        ahead = now_ms - self._last_ms - int((now - self._last) * _MS)
        self._last_ms, self._last = now_ms, now
        if ahead > JUMP * _MS:
            self._held_ms += ahead
            self._until = now + TRUSTED_AFTER
            self._report(
                f"the clock went ahead by {ahead / _MS:.0f} s at once; if it stays so, messages"
                f" count as that much older in {TRUSTED_AFTER / 3600:.0f} hours"
            )
        elif ahead < -JUMP * _MS:
            self._held_ms = max(0, self._held_ms + ahead)
        if now >= self._until:
            self._held_ms = 0
        return now_ms - self._held_ms
