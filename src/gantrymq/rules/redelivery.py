"""What becomes of a message whose handler failed.

A failed message goes back to the broker, which delivers it again after one of its delay levels: by
itself it takes one that grows with every failure, 10 s, 30 s, 1 min and so on. A policy can name
delays of its own, by the number of failures or by the kind of error; each becomes the shortest
level that is not shorter. A message that failed too often, or in a way that trying again cannot
mend, is given up: it goes to the group's dead-letter topic, with the reason.

An ordered consumer keeps the message and tries again in place after a pause, since what comes
behind it has to wait; it gives a message up only when it is told to.

Where several kinds of error fit, the nearest class counts, as with `except` clauses in the right
order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Final, TypeAlias

from gantrymq.errors import ConfigError, InvalidInput
from gantrymq.rules.delay import DELAY_LEVELS, MAX_RETRIES, DelayLevels, orderly_pause

BROKERS_CHOICE: Final = 0
"""The delay level that has the broker take its own."""
NEVER: Final = -1
"""The delay level that gives a message up."""


class Fate(Enum):
    """What may be named instead of a delay."""

    GIVE_UP = "give up"
    """Not again: to the dead-letter topic."""
    BROKERS_CHOICE = "as the broker does"
    """Again, after the delay that the broker takes by itself."""


GIVE_UP: Final = Fate.GIVE_UP

Remedy: TypeAlias = timedelta | Fate


class RetryLater(Exception):
    """A handler raises it to have its message delivered again, `after` a delay of its choice.

    A handler of lists can name the `messages` that are meant; the others count as handled.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        after: timedelta | None = None,
        messages: Sequence[object] = (),
    ) -> None:
        super().__init__(reason)
        self.after = after
        self.messages = tuple(messages)


class GiveUp(Exception):
    """A handler raises it to have its message put into the dead-letter topic, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a message is tried again, and when.

    RocketMQ: maxReconsumeTimes, suspendCurrentQueueTimeMillis.
    """

    max_retries: int | None = None
    """How often after the first time; by default 16, and without end for ordered consumers."""
    delays: Sequence[timedelta] = ()
    """By the number of failures, the last for all further ones; none means the broker's own."""
    by_error: Mapping[type[BaseException], Remedy] = field(default_factory=dict)
    """What to do about certain kinds of error."""
    pause: timedelta = timedelta(seconds=1)
    """Before an ordered consumer tries again: 10 ms to 30 s."""
    levels: DelayLevels = DELAY_LEVELS
    """The delays that the brokers know."""

    def __post_init__(self) -> None:
        if self.max_retries is not None and self.max_retries < 0:
            raise ConfigError(f"max_retries: {self.max_retries} is below 0")
        try:
            for delay in (*self.delays, *self.by_error.values()):
                self._level(delay)
        except InvalidInput as error:
            raise ConfigError(f"retry policy: {error}") from error

    @property
    def most(self) -> int:
        """How often a message may fail and still be delivered again."""
        return MAX_RETRIES if self.max_retries is None else self.max_retries

    def level(self, error: BaseException, failed_before: int) -> int:
        """The delay level for a message that just failed: 0 for the broker's, below 0 for never."""
        if isinstance(error, GiveUp) or failed_before >= self.most:
            return NEVER
        if isinstance(error, RetryLater) and error.after is not None:
            try:
                return self._level(error.after)
            except InvalidInput:
                return self.levels.highest
        for kind in type(error).__mro__:
            if (remedy := self.by_error.get(kind)) is not None:
                return self._level(remedy)
        if self.delays:
            return self._level(self.delays[min(failed_before, len(self.delays) - 1)])
        return BROKERS_CHOICE

    def ordered_pause(self, error: BaseException, failed_before: int) -> float | None:
        """Seconds until an ordered consumer tries again; None: the message is given up."""
        pause = self.pause
        if isinstance(error, GiveUp):
            return None
        if isinstance(error, RetryLater) and error.after is not None:
            pause = error.after
        else:
            for kind in type(error).__mro__:
                if (remedy := self.by_error.get(kind)) is not None:
                    if remedy is Fate.GIVE_UP:
                        return None
                    pause = remedy if isinstance(remedy, timedelta) else pause
                    break
        seconds = pause.total_seconds()
        return orderly_pause(failed_before, pause=seconds, max_retries=self.max_retries)

    def _level(self, remedy: Remedy) -> int:
        if isinstance(remedy, timedelta):
            return max(1, self.levels.level_for(remedy))
        return NEVER if remedy is Fate.GIVE_UP else BROKERS_CHOICE
