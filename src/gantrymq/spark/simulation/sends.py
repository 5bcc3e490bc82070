"""Sends by the hundred million: what producers go through while some brokers are slow or gone.

The topics of a world are sampled: a *lane* is one producer of one topic, and busy topics get more
lanes, though not in proportion, because rare topics should be seen, too. Each send counts with the
weight that makes up for it, so sums over lanes are estimates for the whole traffic.

A lane sends, waits for its answer, waits a little, and sends again until its time is over. A send
is what `flows.sending` makes of it: up to three attempts within one time budget, the second and
third wherever the strategy says after a failure.

Lanes of one shape are simulated together, in chunks; a chunk under one strategy is the unit of work
of a Spark task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from gantrymq.errors import ConfigError
from gantrymq.rules.fault_avoidance import PROBE_EVERY
from gantrymq.rules.retry import SendRetries
from gantrymq.spark.simulation.lanes import Lanes, Real, Strategy, Whole
from gantrymq.spark.simulation.world import SHAPES, Health, Topics, World, brokers_of, topics_of
from gantrymq.wire.javahash import INT_MAX

TIMEOUT: Final = 3.0
SLOW_SEND: Final = 0.5
"""Seconds from which a send counts as slow."""
LANES: Final = 8192
"""Lanes of a chunk."""
EVENNESS: Final = 0.5
"""Lanes go by the traffic to this power: 1 would leave rare topics out, 0 all are seen alike."""
BINS: Final = np.logspace(-4, 1, 101)
"""The edges by which the times of sends are counted, in seconds."""
ATTEMPTS: Final = SendRetries().attempts("sync")
_PICKS: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is simulated of a world."""

    world: World
    sends: int
    """By all lanes together, under each strategy."""
    pause: float = 0.1
    """Seconds between an answer and the next send of a lane."""

    def __post_init__(self) -> None:
        if self.sends < 1:
            raise ConfigError(f"there has to be a send, not {self.sends}")

    @property
    def steps(self) -> int:
        """Sends of one lane: as many as its time allows, and fewer where there are few in all."""
        return max(1, min(self.sends, round(self.world.seconds / self.pause)))

    @property
    def lanes(self) -> int:
        """How many lanes there are."""
        return max(1, round(self.sends / self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The lanes of all topics."""

    topic: Whole
    """The topic of each lane; lanes of one shape, and of one topic, lie together."""
    weight: Real
    """What one send of each lane stands for; the mean is 1."""


def sample_of(plan: Plan, topics: Topics) -> Sample:
    """Which topics are looked at, and how closely."""
    chance = np.random.default_rng((plan.world.seed, 4))
    odds = topics.traffic**EVENNESS
    odds /= odds.sum()
    drawn = chance.choice(len(topics), size=plan.lanes, p=odds)
    topic = drawn[np.lexsort((drawn, topics.shape[drawn]))]
    weight = topics.traffic[topic] / odds[topic]
    return Sample(topic=topic, weight=weight / weight.mean())


def chunks_of(topics: Topics, sample: Sample) -> list[slice]:
    """The sample cut where the shape changes, and into pieces that fit into a processor's cache."""
    shapes = topics.shape[sample.topic]
    edges = [0, *(np.flatnonzero(np.diff(shapes)) + 1).tolist(), len(shapes)]
    return [
        slice(start, min(start + LANES, end))
        for begin, end in pairwise(edges)
        for start in range(begin, end, LANES)
    ]


@dataclass(slots=True, kw_only=True)
class Seen:
    """What came of a chunk: sums of weights, unless said otherwise."""

    topics: Whole
    """Which topics it looked at."""
    sends: Real
    """By topic; so are the next three."""
    failed: Real
    slow: Real
    attempts: Real
    spread: Real
    """By topic: how unevenly its queues got messages, as deviation over mean, not weighted."""
    fullest: Real
    """By topic: what the fullest queue got, over the mean."""
    by_second: Real
    """Rows for sends, failed and slow ones; columns for the seconds in which they began."""
    by_time: Real
    """How many successful sends took how long, by `BINS`."""


class _Tally:
    """Counts while lanes send."""

    def __init__(self, plan: Plan, owner: Whole, weight: Real, size: int) -> None:
        self.owner = owner
        self.weight = weight
        count = int(owner[-1]) + 1
        self.queues = np.zeros((count, size))
        self.by_topic = np.zeros((4, count))
        self.by_second = np.zeros((3, int(np.ceil(plan.world.seconds)) + 1))
        self.by_time = np.zeros(len(BINS) + 1)

    def add(self, began: Real, taken: Real, stored: Whole, attempts: Whole) -> None:
        """One send of every lane: `stored` is the place of its queue, or negative if it failed."""
        weight, failed = self.weight, stored < 0
        slow = ~failed & (taken >= SLOW_SEND)
        second = np.minimum(began.astype(int), self.by_second.shape[1] - 1)
        for row, counted in enumerate((weight, weight * failed, weight * slow)):
            self.by_topic[row] += np.bincount(self.owner, counted, self.by_topic.shape[1])
            self.by_second[row] += np.bincount(second, counted, self.by_second.shape[1])
        tried = weight * attempts
        self.by_topic[3] += np.bincount(self.owner, tried, self.by_topic.shape[1])
        well = ~failed
        places = np.searchsorted(BINS, taken[well], side="right")
        self.by_time += np.bincount(places, weight[well], len(self.by_time))
        flat = self.owner[well] * self.queues.shape[1] + stored[well]
        self.queues += np.bincount(flat, minlength=self.queues.size).reshape(self.queues.shape)


def simulate(plan: Plan, strategy: Strategy, number: int) -> Seen:
    """Chunk `number` of the plan under a strategy."""
    world = plan.world
    topics = topics_of(world)
    sample = sample_of(plan, topics)
    chunk = chunks_of(topics, sample)[number]
    topic, weight = sample.topic[chunk], sample.weight[chunk]
    found, owner = np.unique(topic, return_inverse=True)
    brokers, queues = SHAPES[topics.shape[topic[0]]]
    chance = np.random.default_rng((world.seed, 5, number))
    lanes = Lanes(
        strategy,
        brokers=brokers,
        queues=queues,
        turns=chance.integers(INT_MAX, size=len(topic)),
        picks=chance.integers(_PICKS, size=len(topic)),
        chance=chance,
    )
    numbers = np.stack([brokers_of(world, topics, int(one)) for one in found])[owner]
    tally = _Tally(plan, owner, weight, lanes.size)
    for began, taken, stored, attempts in _run(plan, lanes, numbers, Health(world), chance):
        tally.add(began, taken, stored, attempts)
    mean = np.maximum(tally.queues.mean(axis=1), 1e-12)
    sends, failed, slow, tried = tally.by_topic
    return Seen(
        topics=found,
        sends=sends,
        failed=failed,
        slow=slow,
        attempts=tried,
        spread=tally.queues.std(axis=1) / mean,
        fullest=tally.queues.max(axis=1) / mean,
        by_second=tally.by_second,
        by_time=tally.by_time,
    )


def _run(
    plan: Plan, lanes: Lanes, numbers: Whole, health: Health, chance: np.random.Generator
) -> Iterator[tuple[Real, Real, Whole, Whole]]:
    """Each step: when the sends began, how long they took, where they were stored, in how many."""
    count = len(lanes)
    now = chance.random(count) * min(plan.pause * plan.steps, plan.world.seconds)
    if plan.steps * plan.pause >= plan.world.seconds * 0.99:
        now = chance.random(count) * plan.pause
    probe_at = chance.random(count) * PROBE_EVERY
    for _ in range(plan.steps):
        if lanes.strategy.probes:
            _probe(lanes, numbers, health, now, probe_at)
        taken, stored, attempts = _send(lanes, numbers, health, now, chance)
        yield now, taken, stored, attempts
        now = now + taken + plan.pause


def _send(
    lanes: Lanes, numbers: Whole, health: Health, began: Real, chance: np.random.Generator
) -> tuple[Real, Whole, Whole]:
    """One send of every lane."""
    count = len(lanes)
    taken = np.zeros(count)
    stored = np.full(count, -1)
    attempts = np.zeros(count, np.int64)
    rows = np.arange(count)
    failed: Whole | None = None
    for _ in range(ATTEMPTS):
        now = began[rows] + taken[rows]
        brokers, ids = lanes.choose(now, rows, failed=failed)
        left = TIMEOUT - taken[rows]
        elapsed, silent = health.answer(numbers[rows, brokers], now, left, chance)
        lanes.report(now + elapsed, rows, brokers, elapsed, silent=silent)
        attempts[rows] += 1
        taken[rows] += elapsed
        well = ~silent
        stored[rows[well]] = brokers[well] * lanes.queues + ids[well]
        again = silent & (taken[rows] < TIMEOUT)
        rows, failed = rows[again], brokers[again]
        if not len(rows):
            break
    return taken, stored, attempts


def _probe(lanes: Lanes, numbers: Whole, health: Health, now: Real, probe_at: Real) -> None:
    """The round of the detector of each lane whose time has come."""
    rows = np.flatnonzero(now >= probe_at)
    if not len(rows):
        return
    probe_at[rows] = now[rows] + PROBE_EVERY
    found, brokers = lanes.due_for_probe(now[rows], rows)
    answered = health.answers_probes(numbers[found, brokers], now[found])
    lanes.found_reachable(found[answered], brokers[answered])
