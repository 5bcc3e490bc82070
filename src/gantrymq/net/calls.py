"""The calls of one connection that wait for their reply, and the errors that end them without one.

A request carries a number, its *opaque*; the reply carries the same one. Both sides of a connection
number independently, so the numbers here say nothing about the peer's. Replies come in any order,
late, or never, and a peer can invent numbers: whatever answers no waiting call is counted and
dropped.

There is no data structure for deadlines. The table knows a time before which nothing is due, and
is walked when that time comes: once in several seconds for ordinary calls, which are nearly all
answered by then, and never more often than an alarm rings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol, TypeAlias

from gantrymq.errors import CallTimeout, ConnectionLost, GantryError
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command

NUMBERS: Final = 0x7FFF_FFFF
"""What a request's number is cut to."""
_LEAST_BLAME: Final = 0.1
_QUARTER: Final = 0.25

What: TypeAlias = object
"""A typed request, or a command's code: turned into text only if an error needs it."""


class Waiter(Protocol):
    """What is handed a reply, or the error that there will be none: a future, or the like of one.

    It is told in the middle of reading: it neither raises nor takes long.
    """

    def done(self) -> bool:
        """Whether nobody waits any more."""
        ...

    def set_result(self, command: Command, /) -> None:
        """The reply is here."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """There will be none."""
        ...


class Reception(Waiter, Protocol):
    """A waiter that is no future itself, and has one for what it makes of the reply."""

    @property
    def future(self) -> asyncio.Future[Any]:
        """Done some time after the waiter was told."""
        ...


Waiting: TypeAlias = tuple[asyncio.Future[Command] | Reception, What, float, float, bool]
"""One call: its waiter, what it asks, when it started, when it is overdue, and whether that would
be the connection's fault. Built for each call, so it is a bare tuple: a named one takes five times
as long."""


def describe(what: What) -> str:
    """`what` as an error names it."""
    return RequestCode(what).name if isinstance(what, int) else str(what)


def timeout_error(remote: str, what: What, seconds: float) -> CallTimeout:
    """No reply came in `seconds`."""
    return CallTimeout(f"no reply from {remote} in {seconds:.1f}s ({describe(what)})")


def lost_error(remote: str, why: str, what: What, elapsed: float) -> ConnectionLost:
    """The connection ended while the call waited."""
    return ConnectionLost(
        f"connection to {remote} ended: {why}; {describe(what)} had waited {elapsed:.1f}s"
    )


def blames_connection(timeout: float, left: float) -> bool:
    """Java's rule for `close_after_timeout`: did the wait itself have a fair share of the time?

    `left` is what was left of `timeout` when the request had been handed to the connection.
    """
    return left > _LEAST_BLAME or left > timeout * _QUARTER


class Calls:
    """Calls by their number."""

    __slots__ = ("_last", "due", "late", "waiting")

    def __init__(self) -> None:
        self.waiting: dict[int, Waiting] = {}
        """Public for the connection's innermost loop, which takes replies straight from it."""
        self.late = 0
        """Replies that came after their call had ended, or that no call asked for."""
        self.due = inf
        """Nothing is overdue before this time."""
        self._last = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def next_number(self) -> int:
        """The number of the next request on this connection."""
        self._last = number = (self._last + 1) & NUMBERS
        return number

    def expire(self, now: float, remote: str) -> list[Waiting]:
        """End what is overdue with `CallTimeout`; returns it."""
        if now < self.due:
            return []
        overdue = {number: call for number, call in self.waiting.items() if call[3] <= now}
        for number, (waiter, what, started, deadline, _) in overdue.items():
            del self.waiting[number]
            _fail(waiter, timeout_error(remote, what, deadline - started))
        self.due = min((call[3] for call in self.waiting.values()), default=inf)
        return list(overdue.values())

    def end(self, error: Callable[[What, float], GantryError]) -> None:
        """End every call with the error made for what it asked and when it started."""
        calls = list(self.waiting.values())
        self.waiting.clear()
        self.due = inf
        for waiter, what, started, *_ in calls:
            _fail(waiter, error(what, started))


def _fail(waiter: Waiter, error: GantryError) -> None:
    if not waiter.done():
        waiter.set_exception(error)
