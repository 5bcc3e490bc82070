"""Which brokers to keep away from for a while, judged by how the last attempts at them went.

A broker that died stays in the producers' routes for up to half a minute, and a broker that is slow
stays for ever. So each attempt is reported here, and a broker that was slow or failed is left alone
for a time that grows with its latency:

| latency, ms (`>=`) | 4.x: left alone | | latency, ms (`>=`) | 5.x: left alone |
|---|---|---|---|---|
| 550 | 30 s | | 550 | 2 s |
| 1000 | 60 s | | 1800 | 5 s |
| 2000 | 120 s | | 3000 | 6 s |
| 3000 | 180 s | | 5000 | 10 s |
| 15000 | 600 s | | 15000 | 30 s |
| failed: counts as 30000 | 600 s | | failed: counts as 10000 | 10 s |

Two differences beyond the numbers. In 4.x the newest report rules: a good answer that comes late
frees the broker at once. In 5.x the time only moves forward. And 5.x knows a second fact, whether a
broker can be reached at all, which a probe may set right again: every 3 s the brokers whose last
look is older than 2 s are asked for something cheap.

A broker that nothing was reported of is available and reachable. The table holds immutable items
that are replaced whole, so readers need no lock.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from gantrymq.errors import ConfigError, ReplyError, TransportError
from gantrymq.rules.given import Chance, Clock
from gantrymq.rules.turns import PerContext, Turns, position

FaultVersion = Literal["4.x", "5.x"]
"""Which RocketMQ's rules to go by: 4.0 to 4.7, which the later 4.x vary, or 5.1.4 and up."""

PROBE_EVERY: Final = 3.0
"""Seconds between two rounds of the detector."""

PROBE_TIMEOUT: Final = 0.2
"""Seconds that a probe waits for its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """How long a broker is left alone after an answer that took so long, all in seconds.

    RocketMQ: MQFaultStrategy (latencyMax, notAvailableDuration).
    """

    latencies: tuple[float, ...]
    pauses: tuple[float, ...]
    failure_latency: float
    only_longer: bool

    def __post_init__(self) -> None:
        if len(self.latencies) != len(self.pauses):
            raise ConfigError(
                f"a back-off needs one pause for each latency:"
                f" {len(self.latencies)} latencies, {len(self.pauses)} pauses"
            )
        if list(self.latencies) != sorted(self.latencies):
            raise ConfigError(f"the latencies of a back-off have to rise: {self.latencies}")

    def pause(self, latency: float) -> float:
        """The pause of the highest threshold that `latency` reaches; 0 below the lowest."""
        reached = bisect_right(self.latencies, latency)
        return self.pauses[reached - 1] if reached else 0.0

    def pause_after(self, latency: float, *, failed: bool) -> float:
        """The pause that an attempt earns its broker."""
        return self.pause(self.failure_latency if failed else latency)

    def available_from(self, now: float, pause: float, before: float) -> float:
        """When a broker is available again that was to be at `before`, and now earned `pause`."""
        if self.only_longer and (pause == 0 or now + pause < before):
            return before
        return now + pause


BACK_OFF: Final[Mapping[FaultVersion, BackOff]] = MappingProxyType(
    {
        "4.x": BackOff(
            latencies=(0.05, 0.1, 0.55, 1.0, 2.0, 3.0, 15.0),
            pauses=(0.0, 0.0, 30.0, 60.0, 120.0, 180.0, 600.0),
            failure_latency=30.0,
            only_longer=False,
        ),
        "5.x": BackOff(
            latencies=(0.05, 0.1, 0.55, 1.8, 3.0, 5.0, 15.0),
            pauses=(0.0, 0.0, 2.0, 5.0, 6.0, 10.0, 30.0),
            failure_latency=10.0,
            only_longer=True,
        ),
    }
)


class FaultItem(NamedTuple):
    """What is held against a broker.

    RocketMQ: LatencyFaultToleranceImpl.FaultItem.
    """

    broker: str
    latency: float
    available_from: float = -math.inf
    reachable: bool = True
    probe_from: float = -math.inf

    def available(self, now: float) -> bool:
        """Whether its time of being left alone is over."""
        return now >= self.available_from

    def rank(self, now: float) -> tuple[bool, float, float]:
        """The sort key, best first: available, then lower latency, then earlier availability."""
        return not self.available(now), self.latency, self.available_from


class Verdict(NamedTuple):
    """What an attempt's outcome says of its broker."""

    failed: bool
    reachable: bool


class Outcome(Enum):
    """How an attempt to send ended, as far as its broker is concerned."""

    ANSWERED = "answered"
    INTERRUPTED = "interrupted"
    FAILED_HERE = "failed here"  # on our side, before or after the network
    NO_ANSWER = "no answer"
    REFUSED = "refused"


def outcome_of(error: BaseException | None) -> Outcome:
    """The outcome that `error`, or none, stands for."""
    if error is None:
        return Outcome.ANSWERED
    if isinstance(error, ReplyError):
        return Outcome.REFUSED
    if isinstance(error, TransportError):
        return Outcome.NO_ANSWER
    return Outcome.FAILED_HERE if isinstance(error, Exception) else Outcome.INTERRUPTED


_VERDICTS: Final[Mapping[FaultVersion, Mapping[Outcome, Verdict]]] = MappingProxyType(
    {
        "4.x": {
            Outcome.ANSWERED: Verdict(failed=False, reachable=True),
            Outcome.INTERRUPTED: Verdict(failed=False, reachable=True),
            Outcome.FAILED_HERE: Verdict(failed=True, reachable=True),
            Outcome.NO_ANSWER: Verdict(failed=True, reachable=True),
            Outcome.REFUSED: Verdict(failed=True, reachable=True),
        },
        "5.x": {
            Outcome.ANSWERED: Verdict(failed=False, reachable=True),
            Outcome.INTERRUPTED: Verdict(failed=False, reachable=True),
            Outcome.FAILED_HERE: Verdict(failed=False, reachable=True),
            Outcome.NO_ANSWER: Verdict(failed=True, reachable=False),
            Outcome.REFUSED: Verdict(failed=True, reachable=False),
        },
    }
)


def verdict_on(outcome: Outcome, *, version: FaultVersion, probing: bool) -> Verdict:
    """What `outcome` says of its broker; `probing` tells whether a detector runs.

    Without one nobody would ever find a silent broker reachable again, so 5.x then calls it failed
    only.
    """
    verdict = _VERDICTS[version][outcome]
    if outcome is Outcome.NO_ANSWER and not probing:
        return verdict._replace(reachable=True)
    return verdict


class FaultAvoidance:
    """The brokers that attempts were reported of, and what follows from it.

    RocketMQ: LatencyFaultTolerance.
    """

    def __init__(
        self,
        clock: Clock,
        chance: Chance,
        *,
        back_off: BackOff = BACK_OFF["5.x"],
        probe_interval: float = 2.0,
        turns: Turns | None = None,
    ) -> None:
        self._clock = clock
        self._chance = chance
        self._back_off = back_off
        self._probe_interval = probe_interval
        self._turns = turns or PerContext(chance)
        self._items: dict[str, FaultItem] = {}

    def report(
        self, broker: str, latency: float, *, failed: bool = False, reachable: bool = True
    ) -> None:
        """Take note of an attempt at `broker` that took `latency` seconds."""
        known = self._items.get(broker, FaultItem(broker, latency))
        pause = self._back_off.pause_after(latency, failed=failed)
        self._items[broker] = known._replace(
            latency=latency,
            available_from=self._back_off.available_from(
                self._clock(), pause, known.available_from
            ),
            reachable=reachable,
        )

    def available(self, broker: str) -> bool:
        """Whether `broker` need not be left alone now."""
        item = self._items.get(broker)
        return item is None or item.available(self._clock())

    def reachable(self, broker: str) -> bool:
        """Whether nothing says that `broker` cannot be reached."""
        item = self._items.get(broker)
        return item is None or item.reachable

    def forget(self, broker: str) -> None:
        """Drop what is held against `broker`."""
        self._items.pop(broker, None)

    def pick_one_at_least(self) -> str | None:
        """A broker of the better half, in turns; None when nothing was ever reported.

        Equals are shuffled first, so that they share what comes.
        """
        items = self.items()
        self._chance.shuffle(items)
        now = self._clock()
        items.sort(key=lambda item: item.rank(now))
        if len(items) < 2:
            return items[0].broker if items else None
        return items[position(self._turns.next(), len(items) // 2)].broker

    def items(self) -> list[FaultItem]:
        """All that is held, as it is now."""
        return list(self._items.values())

    def due_for_probe(self) -> list[str]:
        """The brokers to probe in this round; each is due again after the probe interval."""
        now = self._clock()
        due = [item for item in self.items() if now >= item.probe_from]
        for item in due:
            self._items[item.broker] = item._replace(probe_from=now + self._probe_interval)
        return [item.broker for item in due]

    def found_reachable(self, broker: str) -> None:
        """A probe of `broker` was answered."""
        item = self._items.get(broker)
        if item is not None:
            self._items[broker] = item._replace(reachable=True)
