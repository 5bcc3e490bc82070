"""Lanes choose what the plain rules choose, for every strategy, choice by choice."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
import pytest

from gantrymq.errors import CallTimeout
from gantrymq.model import MessageQueue
from gantrymq.rules.fault_avoidance import BACK_OFF, FaultAvoidance
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues
from gantrymq.rules.turns import RoundRobin
from gantrymq.spark.simulation.lanes import NONE, STRATEGIES, Lanes, Strategy, pauses, positions
from gantrymq.wire.javahash import INT_MAX, INT_MIN


class Restarts:
    """Chance whose whole numbers are those that somebody else drew; it never shuffles."""

    def __init__(self) -> None:
        self.next = 0

    def random(self) -> float:
        raise AssertionError("nobody asks for it")

    def randrange(self, stop: int, /) -> int:
        assert stop == INT_MAX
        return self.next

    def shuffle(self, x: list[Any], /) -> None:
        pass


class Drawn:
    """numpy's chance with a memory of the whole numbers it gave."""

    def __init__(self, seed: int) -> None:
        self._real = np.random.default_rng(seed)
        self.last: Any = None

    def integers(self, high: int, size: int) -> Any:
        self.last = self._real.integers(high, size=size)
        return self.last

    def random(self, shape: Any) -> Any:
        return self._real.random(shape)


@dataclass(slots=True, kw_only=True)
class Plain:
    """One producer by the rules themselves."""

    choice: QueueChoice
    topic: TopicQueues
    chance: Restarts
    now: float = 0.0

    @classmethod
    def make(cls, strategy: Strategy, brokers: int, queues: int, turn: int, pick: int) -> Plain:
        chance = Restarts()
        names = [f"b{number:02}" for number in range(brokers)]
        topic = TopicQueues.of(
            [MessageQueue("t", name, number) for name in names for number in range(queues)],
            RoundRobin(chance, start=turn),
        )
        made = cls(choice=QueueChoice(lambda: 0.0, chance), topic=topic, chance=chance)
        made.choice = QueueChoice(
            lambda: made.now,
            chance,
            version=strategy.version,
            send_latency_fault_enable=strategy.keeps_away,
            probing=strategy.probes,
        )
        made.choice.faults = FaultAvoidance(  # type: ignore[misc]
            lambda: made.now,
            chance,
            back_off=BACK_OFF[strategy.version],
            turns=RoundRobin(chance, start=pick),
        )
        return made


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
@pytest.mark.parametrize(("brokers", "queues"), [(1, 3), (2, 4), (5, 1), (8, 4)])
def test_every_choice_is_that_of_the_plain_rules(strategy, brokers, queues):
    count, random, drawn = 40, Random(brokers * 100 + queues), Drawn(7)
    turns = [random.randrange(INT_MAX) for _ in range(count)]
    turns[0], turns[1] = INT_MAX - 1, INT_MIN  # the counter of a Java int wraps
    picks = [random.randrange(1000) for _ in range(count)]
    plain = [
        Plain.make(strategy, brokers, queues, turn, pick)
        for turn, pick in zip(turns, picks, strict=True)
    ]
    lanes = Lanes(
        strategy,
        brokers=brokers,
        queues=queues,
        turns=np.array(turns),
        picks=np.array(picks),
        chance=drawn,  # type: ignore[arg-type]
    )
    rows, now = np.arange(count), np.zeros(count)
    failed = np.full(count, NONE)
    seen = set()
    for _ in range(60):
        again = np.flatnonzero(failed != NONE)
        first = np.flatnonzero(failed == NONE)
        chosen = np.zeros((2, count), int)
        if len(first):
            chosen[:, first] = lanes.choose(now[first], rows[first])
        if len(again):
            drawn.last = None
            chosen[:, again] = lanes.choose(now[again], rows[again], failed=failed[again])
        restarts = dict(zip(again, drawn.last, strict=True)) if drawn.last is not None else {}
        elapsed = np.array([random.choice((0.01, 0.2, 0.6, 1.5, 4.0, 20.0)) for _ in rows])
        # latencies that are never equal leave nothing to the shuffle
        elapsed += np.array([random.random() / 1000 for _ in rows])
        silent = np.array([random.random() < 0.3 for _ in rows])
        for row, one in enumerate(plain):
            one.now = now[row]
            one.chance.next = int(restarts.get(row, 0))
            name = None if failed[row] == NONE else f"b{failed[row]:02}"
            skips = strategy.skips_failed or strategy.keeps_away
            queue = one.choice.choose(
                one.topic, failed=name if skips else None, retry=name is not None
            )
            assert (queue.broker, queue.queue_id) == (f"b{chosen[0, row]:02}", chosen[1, row])
            seen.add((int(chosen[0, row]), int(chosen[1, row])))
            error = CallTimeout("no reply") if silent[row] else None
            one.now = now[row] + elapsed[row]
            one.choice.report(queue.broker, elapsed[row], error)
        lanes.report(now + elapsed, rows, chosen[0], elapsed, silent=silent)
        failed = np.where(silent, chosen[0], NONE)
        now += elapsed * 0.3 + np.array([random.choice((0.0, 1.0, 40.0)) for _ in rows])
        if strategy.probes:
            probe(lanes, plain, now, random)
    assert len(seen) == brokers * queues


def probe(lanes, plain, now, random):
    rows = np.array(sorted(random.sample(range(len(plain)), 10)))
    found, brokers = lanes.due_for_probe(now[rows], rows)
    wanted = []
    for row in rows:
        plain[row].now = now[row]
        wanted += [(row, int(name[1:])) for name in plain[row].choice.faults.due_for_probe()]
    assert sorted(zip(found, brokers, strict=True)) == sorted(wanted)
    answered = np.array([random.random() < 0.5 for _ in found], bool)
    lanes.found_reachable(found[answered], brokers[answered])
    for row, broker in zip(found[answered], brokers[answered], strict=True):
        plain[row].choice.faults.found_reachable(f"b{broker:02}")


def test_positions_and_pauses_are_those_of_the_plain_rules():
    turns = [INT_MIN, INT_MIN + 1, -1, 0, 1, 7, INT_MAX]
    assert positions(np.array(turns), 5).tolist() == [0, INT_MAX % 5, 1, 0, 1, 2, INT_MAX % 5]
    for back_off in BACK_OFF.values():
        found = sorted({edge + shift for edge in back_off.latencies for shift in (-1e-6, 0, 1e-6)})
        assert pauses(back_off, np.array(found)).tolist() == [back_off.pause(one) for one in found]
