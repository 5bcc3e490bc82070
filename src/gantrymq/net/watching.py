"""What the silence of a connection means, and from when on.

| rule | counts from | while | ends it as |
|---|---|---|---|
| idle | the last read or write that went through | always | `IDLE` |
| slow frame | the first bytes of the frame under way | a frame is incomplete | `SLOW_FRAME` |
| first frame | the connection's beginning | accepted, and no frame yet | `SILENT` |

Bytes that trickle in keep a connection from being idle, but not a frame from being slow. Bytes that
a peer does not read do not count as written once the transport has said that it is full, so that a
dead reader becomes idle even if there is always more for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gantrymq.net.endings import Ending
from gantrymq.net.options import PeerOptions


class Due(NamedTuple):
    """When a rule strikes, and what it then calls the ending."""

    at: float
    ending: Ending


class Watch:
    """The times that the rules look at; the owner tells it what it reads."""

    __slots__ = ("_begun", "_options", "awaits_first", "frame_since", "last_read")

    def __init__(self, options: PeerOptions, now: float, *, accepted: bool) -> None:
        self._options = options
        self._begun = now
        self.last_read = now
        self.frame_since: float | None = None
        self.awaits_first = accepted

    def read(self, now: float, completed: bool, mid_frame: bool) -> float | None:
        """Bytes came in, completed a frame or not, left one under way or not; since when it is."""
        self.last_read = now
        if completed:
            self.awaits_first = False
            self.frame_since = now if mid_frame else None
        elif mid_frame and self.frame_since is None:
            self.frame_since = now
        return self.frame_since

    def next_due(self, last_write: float) -> Due:
        """The rule that strikes first if nothing happens any more."""
        return min(self._rules(last_write), key=_when)

    def _rules(self, last_write: float) -> Iterator[Due]:
        options = self._options
        yield Due(max(self.last_read, last_write) + options.idle_timeout, Ending.IDLE)
        if self.frame_since is not None:
            yield Due(self.frame_since + options.frame_timeout, Ending.SLOW_FRAME)
        if self.awaits_first:
            yield Due(self._begun + options.first_frame_timeout, Ending.SILENT)


def _when(due: Due) -> float:
    return due.at
