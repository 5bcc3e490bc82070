"""Owners found at once are those that every client works out for itself."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from gantrymq.errors import ConfigError
from gantrymq.model import MessageQueue
from gantrymq.rules.allocation import (
    EVENLY,
    IN_TURN,
    Strategy,
    by_consistent_hash,
    by_machine_room,
    by_nearby_machine_room,
)
from gantrymq.spark.simulation.shares import (
    EVENTS,
    ROOMS,
    WAYS,
    Group,
    Sharing,
    change_of,
    group_of,
    new_client,
    rests,
    room_of_name,
    sizes_of,
)
from gantrymq.spark.simulation.world import World, topics_of

PLAIN: dict[str, Strategy] = {
    "AVG": EVENLY,
    "AVG_BY_CIRCLE": IN_TURN,
    "CONSISTENT_HASH": by_consistent_hash(),
    "MACHINE_ROOM": by_machine_room([f"r{room}" for room in range(ROOMS)]),
    "MACHINE_ROOM_NEARBY-AVG": by_nearby_machine_room(
        EVENLY, queue_room=lambda queue: room_of_name(queue.broker), client_room=room_of_name
    ),
}


def test_every_way_is_here():
    assert set(WAYS) == set(PLAIN)


@pytest.mark.parametrize("name", WAYS)
def test_owners_are_those_of_the_plain_rules(name):
    random, chance = Random(name), np.random.default_rng(5)
    for _ in range(60):
        queues = sorted(
            MessageQueue("t", f"r{broker % ROOMS}@b{broker:02}", number)
            for broker in range(random.randint(1, 6))
            for number in range(random.randint(1, 5))
        )
        clients = sorted({new_client(chance) for _ in range(random.randint(1, 9))})
        owners = WAYS[name](queues, clients)
        for number, client in enumerate(clients):
            mine = [queue for queue, owner in zip(queues, owners, strict=True) if owner == number]
            assert mine == sorted(PLAIN[name].allocate(client, queues, clients))


def test_a_member_that_joins_takes_only_what_it_gets_on_the_ring():
    group = Group(
        queues=tuple(MessageQueue("t", "r0@b", number) for number in range(60)),
        clients=tuple(sorted(f"r0@10.0.0.{number}@1" for number in range(6))),
    )
    chance = np.random.default_rng(3)
    ring = change_of(group, "joins", WAYS["CONSISTENT_HASH"], chance)
    even = change_of(group, "joins", WAYS["AVG"], chance)
    assert ring.moved == 0
    assert even.moved > 0
    assert (even.queues, even.clients, even.idle, even.fullest) == (60, 6, 0, 1.0)
    assert even.needed in (8, 9)


def test_a_group_of_one_keeps_its_member():
    group = Group(queues=(MessageQueue("t", "r0@b", 0),), clients=("r0@c",))
    for event in ("leaves", "dies"):
        change = change_of(group, event, WAYS["AVG"], np.random.default_rng(3))
        assert (change.moved, change.needed) == (0, 0)


def test_groups_have_all_the_consumers():
    sharing = Sharing(world=World(brokers=60, queues=4000), consumers=5000)
    sizes = sizes_of(sharing)
    assert sizes.sum() == 5000
    assert sizes.min() >= 1
    group = group_of(sharing, topics_of(sharing.world), 3, 7)
    assert len(set(group.clients)) == 7
    assert list(group.queues) == sorted(group.queues)
    assert group == group_of(sharing, topics_of(sharing.world), 3, 7)
    with pytest.raises(ConfigError, match="0 consumers"):
        Sharing(world=World(), consumers=0)


def test_the_dead_are_missed_later_than_those_who_left():
    found = {event: rests(event, 20_000, np.random.default_rng(1)) for event in EVENTS}
    assert np.median(found["leaves"]) == np.median(found["joins"]) < 0.1
    assert np.quantile(found["dies"], 0.5) < 1
    assert 120 <= np.quantile(found["dies"], 0.95) <= 130
