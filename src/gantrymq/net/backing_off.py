"""When an address that failed may be tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from gantrymq.errors import ConnectFailed

BackOff: TypeAlias = Callable[[int], float]
"""From the number of failures in a row, 1 and up, to the seconds until the next attempt."""

_FIRST: Final = 0.1
_LONGEST: Final = 5.0
_ENOUGH: Final = 30
"""Doubling a number more often says no more."""


def doubling(failures: int) -> float:
    """0.1 s after the first failure, twice as long after each further one, 5 s at most."""
    return min(_LONGEST, _FIRST * 2.0 ** min(failures - 1, _ENOUGH))


class Attempts:
    """How it went with one address."""

    __slots__ = ("_failures", "_last_error", "_rule", "_until")

    def __init__(self, rule: BackOff) -> None:
        self._rule = rule
        self._failures = 0
        self._until = 0.0
        self._last_error = ""

    def check(self, address: str, now: float) -> None:
        """Raise `ConnectFailed` while the address is to be left alone."""
        left = self._until - now
        if self._failures and left > 0:
            raise ConnectFailed(
                f"{address} is left alone for another {left:.1f}s after {self._failures} "
                f"failures; the last: {self._last_error}"
            )

    def failed(self, error: ConnectFailed, now: float) -> None:
        """It could not be reached."""
        self._failures += 1
        self._until = now + self._rule(self._failures)
        self._last_error = str(error)

    def succeeded(self) -> None:
        """It was reached."""
        self._failures = 0
