"""When a send is tried again, how long each attempt may take, and when to connect again.

One time budget covers a whole send. An attempt gets what is left of it, so that three attempts
never take three times as long as the caller allowed; where attempts are still to come, a cap can
keep the first from using it all up. A transport error means that another broker may well do, and so
do some of the answers a broker gives: it is shutting down, it is busy, it does not have the topic
yet. All others would be the same elsewhere, and are raised at once. So is an interruption.

Broken connections are made again after a pause that doubles, up to a limit, and of which a random
part is left out: clients that lost the same broker at once should not come back at once.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, Literal

from gantrymq.errors import CallTimeout, GantryError, ReplyError
from gantrymq.rules.delay import grown
from gantrymq.rules.given import Chance

RETRIED_CODES: Final[frozenset[int]] = frozenset({17, 14, 1, 2, 16, 204, 205, 1500})
"""The answers that a producer takes to another broker, unless told otherwise."""

Mode = Literal["sync", "async", "oneway"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRetries:
    """What is tried again, and how often.

    RocketMQ: DefaultMQProducer (retryTimesWhenSendFailed, retryResponseCodes and their neighbours).
    """

    retries: int = 2
    async_retries: int = 2
    codes: AbstractSet[int] = RETRIED_CODES
    another_broker_when_not_stored: bool = False
    longest_attempt: float | None = None

    def attempts(self, mode: Mode, *, queue_given: bool = False) -> int:
        """How many attempts a send has; a queue that the sender chose gets one."""
        if queue_given or mode == "oneway":
            return 1
        return 1 + (self.retries if mode == "sync" else self.async_retries)

    def covers(self, error: BaseException) -> bool:
        """Whether another broker may do better than the one that gave `error`."""
        if isinstance(error, ReplyError):
            return error.code in self.codes
        return isinstance(error, GantryError) and error.retriable

    def start(self, now: float, timeout: float, mode: Mode, *, queue_given: bool = False) -> Budget:
        """The budget of a send that begins now."""
        return Budget(
            started=now,
            timeout=timeout,
            attempts=self.attempts(mode, queue_given=queue_given),
            longest_attempt=self.longest_attempt,
        )


@dataclass(slots=True, kw_only=True)
class Budget:
    """The attempts and the time that one send has left."""

    started: float
    timeout: float
    attempts: int
    longest_attempt: float | None = None
    made: int = 0

    @property
    def exhausted(self) -> bool:
        """Whether all attempts are made."""
        return self.made >= self.attempts

    def next_attempt(self, now: float) -> float:
        """Begin an attempt: how long it may take. Past the time budget there is none."""
        left = self.started + self.timeout - now
        if left < 0:
            raise CallTimeout(
                f"call timeout: {now - self.started:.3f}s are gone of {self.timeout:.3f}s"
                f" after {self.made} of {self.attempts} attempts"
            )
        self.made += 1
        if self.longest_attempt is None or self.exhausted:
            return left
        return min(left, self.longest_attempt)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconnectPauses:
    """How long to wait before connecting again, in seconds."""

    first: float = 0.1
    longest: float = 60.0
    factor: float = 2.0
    jitter: float = 0.5

    def pause(self, failures: int, chance: Chance) -> float:
        """The pause after so many failures in a row; none before the first."""
        if failures < 1:
            return 0.0
        whole = grown(self.first, self.factor, failures - 1, longest=self.longest)
        return whole * (1 - self.jitter * chance.random())
