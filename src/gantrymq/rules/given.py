"""What a rule may be given from outside: the time, and chance.

Rules read no clock and draw no random numbers of their own, so every decision can be replayed. Pass
`time.monotonic` and a `random.Random` in production, a virtual clock and a seeded one in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

Clock = Callable[[], float]
"""Seconds, from any origin, never going back."""


class Chance(Protocol):
    """The part of `random.Random` that rules use."""

    def random(self) -> float:
        """A number in [0, 1)."""
        ...

    def randrange(self, stop: int, /) -> int:
        """A whole number in [0, stop)."""
        ...

    def shuffle(self, x: list[Any], /) -> None:
        """Put `x` into a random order, in place."""
        ...
