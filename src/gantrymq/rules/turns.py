"""Whose turn it is: the counter behind round robin, one for each thread of control.

A producer takes queue `abs(counter) mod n` and counts on, from a random start so that a thousand
producers that start together do not all begin at queue 0. The counter is a Java `int`: after
2147483647 comes -2147483648, whose absolute value does not exist in 32 bits. Java's `Math.abs`
gives it back unchanged, the remainder comes out negative, and RocketMQ takes queue 0 instead. So
does `position`.

RocketMQ keeps a counter per thread. `PerContext` keeps one per context: that is one per thread in
the blocking API and one per task in the asynchronous one. A task that is started by code which has
already taken a turn goes on with that code's counter: were it to start its own copy from there, a
hundred tasks started in a row would all send to the same queue.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from gantrymq.rules.given import Chance
from gantrymq.wire.javahash import INT_MAX, INT_MIN


class Turns(Protocol):
    """A counter that queues are taken by."""

    def next(self) -> int:
        """The number of this turn; the following call gives the next one."""
        ...

    def restart(self) -> None:
        """Go on from a new random number."""
        ...


def position(turn: int, size: int) -> int:
    """The place in a list of `size` that turn number `turn` takes; `turn` is any Java `int`."""
    return abs(turn) % size if turn > INT_MIN else 0


class RoundRobin:
    """A counter for one thread of control.

    RocketMQ: ThreadLocalIndex.
    """

    __slots__ = ("_chance", "_turn")

    def __init__(self, chance: Chance, *, start: int | None = None) -> None:
        self._chance = chance
        self._turn = chance.randrange(INT_MAX) if start is None else start

    def next(self) -> int:
        """The number of this turn, in the range of a Java `int`."""
        turn = self._turn
        self._turn = turn + 1 if turn < INT_MAX else INT_MIN
        return turn

    def restart(self) -> None:
        """Go on from a new random number."""
        self._turn = self._chance.randrange(INT_MAX)


class PerContext:
    """A counter per thread of control: each thread, and each task, finds its own.

    RocketMQ: ThreadLocalIndex.
    """

    __slots__ = ("__weakref__", "_chance")

    def __init__(self, chance: Chance) -> None:
        self._chance = chance

    def next(self) -> int:
        """The turn's number of whoever asks."""
        return self._mine().next()

    def restart(self) -> None:
        """Go on from a new random number here; others keep theirs."""
        self._mine().restart()

    def _mine(self) -> RoundRobin:
        here = _COUNTERS.get()
        mine = here.get(self) if here is not None else None
        if mine is None:
            mine = RoundRobin(self._chance)
            # A new table, since contexts copied from one another hold the same one.
            here = WeakKeyDictionary(here or {})
            here[self] = mine
            _COUNTERS.set(here)
        return mine


# One variable for all counters: contexts hold their variables for ever, and counters come and go
# with their routes.
_COUNTERS: Final[ContextVar[WeakKeyDictionary[PerContext, RoundRobin] | None]] = ContextVar(
    "gantrymq_turns", default=None
)
