"""When a message is delivered: delay levels, and the pauses before a failed message comes back.

A broker knows a short list of delays, 18 unless it is told otherwise, and a message names one by
its number, from 1. Level 0 is no delay, and a level past the end means the last. The same list
spaces the retries: a message that failed n times before comes back at level 3 + n, so the sixteen
retries of an ordinary group take the pauses 10s 30s 1m … 2h, and then the message is put aside in
the group's dead-letter topic. POP consumers, and groups with a retry policy of their own, have
other lists.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from gantrymq.errors import ConfigError, InvalidInput

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LEVEL: Final = re.compile(r"([0-9]+)([smhd])")

FIRST_RETRY_LEVEL: Final = 3
MAX_RETRIES: Final = 16

POP_PAUSES: Final[tuple[int, ...]] = (
    *(10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200),
)
"""Seconds a POP consumer keeps a failed message hidden, by how often it failed before."""

REVIVE_PAUSES: Final[tuple[int, ...]] = (10, 20, *POP_PAUSES[1:])
"""Seconds until a broker tries again to write a POP retry, by how often it tried before."""


@dataclass(frozen=True, slots=True)
class DelayLevels:
    """A broker's list of delays in seconds, level 1 first.

    RocketMQ: MessageStoreConfig.messageDelayLevel.
    """

    seconds: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> DelayLevels:
        """Read a list such as `1s 5s 10m 2h 1d`."""
        if not text.split():
            raise ConfigError("messageDelayLevel is empty; it takes a list such as '1s 5s 10m 2h'")
        return cls(tuple(_seconds(word, number) for number, word in enumerate(text.split(), 1)))

    @property
    def highest(self) -> int:
        """The number of the last level."""
        return len(self.seconds)

    def delay(self, level: int) -> int:
        """The seconds that `level` waits; a level past the last is the last."""
        return self.seconds[min(level, self.highest) - 1] if level > 0 else 0

    def level_for(self, delay: timedelta) -> int:
        """The level with the shortest wait that is not shorter than `delay`."""
        wanted = delay.total_seconds()
        if wanted < 0:
            raise InvalidInput(f"a delay cannot be negative: {delay}")
        if wanted == 0:
            return 0
        ordered = sorted((seconds, level) for level, seconds in enumerate(self.seconds, 1))
        found = bisect_left(ordered, (wanted, 0))
        if found == len(ordered):
            raise InvalidInput(
                f"no delay level waits {delay}: the longest of the {self.highest} levels waits"
                f" {timedelta(seconds=ordered[-1][0])}; give a delivery time instead"
            )
        return ordered[found][1]


def _seconds(word: str, number: int) -> int:
    match = _LEVEL.fullmatch(word)
    if match is None:
        raise ConfigError(
            f"messageDelayLevel: level {number} is {word!r};"
            f" it has to be a number with one of the units s, m, h, d"
        )
    return int(match[1]) * _UNITS[match[2]]


DELAY_LEVELS: Final = DelayLevels.parse(
    "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
)
"""The levels of a broker that was not told otherwise."""


def retry_level(
    failed_before: int, *, asked: int = 0, max_retries: int = MAX_RETRIES
) -> int | None:
    """The delay level at which a message that just failed comes back; None means never again.

    `asked` is the consumer's wish: 0 leaves it to the broker, below 0 gives the message up.
    """
    if asked < 0 or failed_before >= max_retries:
        return None
    return asked or FIRST_RETRY_LEVEL + failed_before


def orderly_pause(
    failed_before: int, *, pause: float = 1.0, max_retries: int | None = None
) -> float | None:
    """Seconds until an orderly consumer takes the message again; None means: send it back."""
    if max_retries is not None and failed_before >= max_retries:
        return None
    return min(max(pause, 0.01), 30.0)


def pop_pause(failed_before: int, *, asked: int = 0, pauses: Sequence[int] = POP_PAUSES) -> int:
    """Seconds a failed message stays hidden from POP consumers; `asked` stands in for the count."""
    return pauses[min(asked or failed_before, len(pauses) - 1)]


def grown(first: float, factor: float, times: int, *, longest: float) -> float:
    """`first`, multiplied by `factor` so many times, but never more than `longest`."""
    for _ in range(times):
        if first >= longest:
            break
        first *= factor
    return min(first, longest)


class RetryPauses(Protocol):
    """How long a group's failed messages wait.

    RocketMQ: RetryPolicy.
    """

    def pause(self, failed_before: int) -> float:
        """Seconds until the next delivery of a message that failed so often before this time."""
        ...


@dataclass(frozen=True, slots=True)
class ListedPauses:
    """Pauses by a list, of which a first retry takes the third, as it does of the delay levels.

    RocketMQ: CustomizedRetryPolicy.
    """

    seconds: tuple[float, ...] = DELAY_LEVELS.seconds

    def __post_init__(self) -> None:
        if not self.seconds:
            raise ConfigError("a customized retry policy needs at least one pause")

    def pause(self, failed_before: int) -> float:
        """The pause in the list's third place, or the one that is `failed_before` places on."""
        return self.seconds[min(max(failed_before, 0) + 2, len(self.seconds) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingPauses:
    """Pauses that grow by a factor, up to a limit, in seconds.

    RocketMQ: ExponentialRetryPolicy.
    """

    first: float = 5.0
    longest: float = 7200.0
    factor: float = 2.0

    def pause(self, failed_before: int) -> float:
        """`first`, times `factor` for every failure before; RocketMQ counts up to 32 of them."""
        return grown(self.first, self.factor, min(failed_before, 32), longest=self.longest)
