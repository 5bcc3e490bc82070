"""A cluster to try load balancing on: its topics, how busy they are, and which brokers go wrong.

Everything follows from the seed, so every worker of a Spark job makes the same world for itself and
nothing but numbers travels between them.

**Topics** have a shape, brokers times queues, drawn until there are as many queues as wanted. Their
traffic goes by Zipf's law: the busiest has a few per cent of everything.

**Brokers** answer in a time that is drawn from a log-normal distribution. Some are slow for a
while, and some are gone for a while; of those, half refuse connections, as after the death of a
process, and half say nothing at all, as after the death of a machine. All of it begins at one
moment and ends at one moment, so that a picture over time shows what it does and how it passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gantrymq.errors import ConfigError
from gantrymq.spark.simulation.lanes import Real, Truth, Whole

SHAPES: Final = ((2, 4), (4, 4), (4, 8), (8, 8), (16, 8), (32, 16))
"""Brokers and queues for each of them."""
_HOW_COMMON: Final = (0.10, 0.20, 0.25, 0.25, 0.15, 0.05)

HEALTHY, SLOW, REFUSING, SILENT = range(4)
REFUSED_IN: Final = 0.001
"""Seconds until a connection is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a simulation is about."""

    brokers: int = 10_000
    queues: int = 1_000_000
    seed: int = 1
    popularity: float = 0.8
    """The exponent of Zipf's law: 0 for topics that are all alike."""
    seconds: float = 300.0
    trouble_from: float = 60.0
    trouble_until: float = 180.0
    slow_share: float = 0.01
    gone_share: float = 0.002
    latency: float = 0.002
    """The median time of an answer."""
    slow_latency: float = 1.2
    """The same of a slow broker."""
    spread: float = 0.6
    """How wide the distributions are: the deviation of the logarithm."""

    def __post_init__(self) -> None:
        if self.brokers < SHAPES[0][0]:
            raise ConfigError(f"a world has {SHAPES[0][0]} brokers at least, not {self.brokers}")
        if self.queues < SHAPES[0][0] * SHAPES[0][1]:
            raise ConfigError(f"{self.queues} queues do not make a topic")
        if not 0 <= self.slow_share + self.gone_share <= 1:
            raise ConfigError("slow and gone brokers cannot be more than all")
        if not 0 <= self.trouble_from <= self.trouble_until <= self.seconds:
            raise ConfigError(
                f"trouble from {self.trouble_from:g} to {self.trouble_until:g} s does not lie"
                f" within {self.seconds:g} s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """All topics, as columns."""

    shape: Whole
    """Which of `SHAPES` each has."""
    traffic: Real
    """Which part of all messages goes to each."""
    seeds: Whole
    """What each topic's brokers are drawn from."""

    def __len__(self) -> int:
        return len(self.shape)


def topics_of(world: World) -> Topics:
    """The topics of a world."""
    chance = np.random.default_rng((world.seed, 1))
    usable = [n for n, (brokers, _) in enumerate(SHAPES) if brokers <= world.brokers]
    common = np.array([_HOW_COMMON[number] for number in usable])
    sizes = np.array([brokers * queues for brokers, queues in SHAPES])
    mean = float(sizes[usable] @ (common / common.sum()))
    drawn = chance.choice(usable, size=int(2 * world.queues / mean) + 10, p=common / common.sum())
    count = max(1, int(np.searchsorted(sizes[drawn].cumsum(), world.queues, side="right")))
    rank = chance.permutation(count) + 1
    traffic = rank.astype(float) ** -world.popularity
    return Topics(
        shape=drawn[:count],
        traffic=traffic / traffic.sum(),
        seeds=chance.integers(1 << 62, size=count),
    )


def brokers_of(world: World, topics: Topics, topic: int) -> Whole:
    """The numbers of a topic's brokers, in the order of their names."""
    count = SHAPES[topics.shape[topic]][0]
    chance = np.random.default_rng((world.seed, 2, int(topics.seeds[topic])))
    found: Whole = np.sort(chance.choice(world.brokers, size=count, replace=False))
    return found


class Health:
    """Which brokers are well, at any moment."""

    def __init__(self, world: World) -> None:
        self._world = world
        chance = np.random.default_rng((world.seed, 3))
        ill = chance.permutation(world.brokers)
        slow = round(world.brokers * world.slow_share)
        gone = round(world.brokers * world.gone_share)
        self.kind: Final = np.full(world.brokers, HEALTHY, np.int8)
        self.kind[ill[:slow]] = SLOW
        self.kind[ill[slow : slow + gone]] = REFUSING
        self.kind[ill[slow : slow + gone // 2]] = SILENT

    def troubled(self, now: Real) -> Truth:
        """Whether it is the time in which some are ill."""
        world = self._world
        return (now >= world.trouble_from) & (now < world.trouble_until)

    def answer(
        self, brokers: Whole, now: Real, patience: Real, chance: np.random.Generator
    ) -> tuple[Real, Truth]:
        """How long attempts take that begin now, and which of them get no answer."""
        world = self._world
        kind = np.where(self.troubled(now), self.kind[brokers], HEALTHY)
        middle = np.where(kind == SLOW, world.slow_latency, world.latency)
        taken = middle * np.exp(world.spread * chance.standard_normal(len(brokers)))
        taken[kind == REFUSING] = REFUSED_IN
        taken[kind == SILENT] = np.inf
        late = taken > patience
        return np.where(late, patience, taken), late | (kind == REFUSING)

    def answers_probes(self, brokers: Whole, now: Real) -> Truth:
        """Whether a probe gets through: slow brokers take connections, gone ones do not."""
        ill: Truth = self.troubled(now) & (self.kind[brokers] >= REFUSING)
        return ~ill
