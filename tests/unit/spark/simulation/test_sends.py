"""Simulated sends: sums that have to come out, and what strategies are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gantrymq.errors import ConfigError
from gantrymq.spark.simulation.lanes import STRATEGIES
from gantrymq.spark.simulation.sends import Plan, chunks_of, sample_of, simulate
from gantrymq.spark.simulation.world import SHAPES, Health, World, brokers_of, topics_of

SMALL = World(brokers=200, queues=3000, slow_share=0.05, gone_share=0.02)
PLAN = Plan(world=SMALL, sends=90_000, pause=0.5)
BY_NAME = {strategy.name: strategy for strategy in STRATEGIES}


def test_a_world_has_the_queues_that_were_asked_for():
    topics = topics_of(SMALL)
    sizes = [SHAPES[shape][0] * SHAPES[shape][1] for shape in topics.shape]
    assert SMALL.queues - max(b * q for b, q in SHAPES) <= sum(sizes) <= SMALL.queues
    assert topics.traffic.sum() == pytest.approx(1)
    for topic in range(len(topics)):
        brokers = brokers_of(SMALL, topics, topic)
        assert len(set(brokers.tolist())) == SHAPES[topics.shape[topic]][0]
        assert 0 <= brokers.min() <= brokers.max() < SMALL.brokers


def test_illness_begins_and_ends():
    health = Health(replace(SMALL, slow_share=0.5, gone_share=0.5))
    chance, brokers = np.random.default_rng(1), np.arange(200)
    for now, ill in ((59.9, False), (60.0, True), (179.9, True), (180.0, False)):
        moment = np.full(200, now)
        taken, silent = health.answer(brokers, moment, np.full(200, 3.0), chance)
        assert (silent.sum() >= 100) == ill
        assert (taken.mean() > 0.5) == ill
        assert health.answers_probes(brokers, moment).sum() == (100 if ill else 200)


def test_chunks_are_all_lanes_of_one_shape_each():
    topics = topics_of(SMALL)
    sample = sample_of(PLAN, topics)
    chunks = chunks_of(topics, sample)
    assert sum(chunk.stop - chunk.start for chunk in chunks) == len(sample.topic) == PLAN.lanes
    for chunk in chunks:
        assert len(set(topics.shape[sample.topic[chunk]].tolist())) == 1
    assert sample.weight.mean() == pytest.approx(1)


def seen(name: str, world: World = SMALL) -> list[float]:
    plan = replace(PLAN, world=world)
    topics = topics_of(world)
    parts = [
        simulate(plan, BY_NAME[name], number)
        for number in range(len(chunks_of(topics, sample_of(plan, topics))))
    ]
    sends = sum(part.sends.sum() for part in parts)
    assert sends == pytest.approx(sum(part.by_second[0].sum() for part in parts))
    assert sends == pytest.approx(plan.lanes * plan.steps)  # the mean weight is 1
    failed = sum(part.failed.sum() for part in parts)
    assert sends - failed == pytest.approx(sum(part.by_time.sum() for part in parts))
    slow = sum(part.slow.sum() for part in parts)
    return [failed / sends, slow / sends, sum(part.attempts.sum() for part in parts) / sends]


def test_where_nobody_is_ill_every_strategy_is_the_same():
    well = replace(SMALL, slow_share=0.0, gone_share=0.0)
    for name in BY_NAME:
        failed, slow, attempts = seen(name, well)
        assert (failed, attempts) == (0, 1)
        assert slow < 1e-4


def test_keeping_away_from_the_ill_spares_sends():
    plain, skipping = seen("round robin"), seen("skip the last")
    old, new = seen("latency fault of 4.x"), seen("latency fault of 5.x")
    assert plain[0] >= skipping[0] > new[0]
    assert skipping[0] > old[0]
    assert plain[1] > new[1] > old[1]  # 4.x leaves them alone for longer
    assert plain[2] > 1


def test_the_same_seed_gives_the_same():
    one, other = (simulate(PLAN, STRATEGIES[3], 1) for _ in range(2))
    assert np.array_equal(one.by_second, other.by_second)
    assert np.array_equal(one.spread, other.spread)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"brokers": 1}, "2 brokers at least"),
        ({"queues": 3}, "do not make a topic"),
        ({"slow_share": 0.9, "gone_share": 0.2}, "more than all"),
        ({"trouble_from": 400.0}, "does not lie within 300 s"),
    ],
)
def test_worlds_that_cannot_be(wrong, text):
    with pytest.raises(ConfigError, match=text):
        World(**wrong)


def test_a_plan_without_sends():
    with pytest.raises(ConfigError, match="has to be a send"):
        Plan(world=SMALL, sends=0)
