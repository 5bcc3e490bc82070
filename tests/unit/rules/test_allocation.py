from __future__ import annotations

from collections.abc import Sequence

import pytest

from gantrymq.errors import InvalidInput
from gantrymq.model import MessageQueue
from gantrymq.rules.allocation import (
    EVENLY,
    IN_TURN,
    STRATEGIES,
    Strategy,
    by_config,
    by_consistent_hash,
    by_machine_room,
    by_nearby_machine_room,
    even_share,
    ring_owners,
    ring_position,
    room_of,
    share_in_turn,
)


def queues_of(broker: str, count: int, topic: str = "TopicTest") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def shares(
    strategy: Strategy, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> list[list[int]]:
    """Each client's share, as places in the sorted list of queues."""
    ordered = sorted(queues)
    return [
        [ordered.index(queue) for queue in strategy.allocate(client, queues, clients)]
        for client in clients
    ]


def clients_of(count: int) -> list[str]:
    return [f"CID-{number}" for number in range(count)]


# Semantics 7.1.


@pytest.mark.parametrize(
    ("queues", "clients", "evenly", "in_turn"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]], [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (3, 5, [[0], [1], [2], [], []], [[0], [1], [2], [], []]),
        (
            10,
            4,
            [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]],
            [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]],
        ),
        (
            16,
            5,
            [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [13, 14, 15]],
            [[0, 5, 10, 15], [1, 6, 11], [2, 7, 12], [3, 8, 13], [4, 9, 14]],
        ),
    ],
)
def test_even_shares(
    queues: int, clients: int, evenly: list[list[int]], in_turn: list[list[int]]
) -> None:
    arguments = queues_of("broker-a", queues), clients_of(clients)
    assert shares(EVENLY, *arguments) == evenly
    assert shares(IN_TURN, *arguments) == in_turn
    assert [list(even_share(i, clients, queues)) for i in range(clients)] == evenly
    assert [list(share_in_turn(i, clients, queues)) for i in range(clients)] == in_turn


def test_config_gives_its_list_whatever_the_rest() -> None:
    fixed = queues_of("broker-a", 2)
    strategy = by_config(fixed)
    assert strategy.allocate("CID-0", queues_of("broker-b", 8), clients_of(3)) == fixed
    assert strategy.allocate("stranger", [], []) == fixed
    assert by_config([]).allocate("CID-0", fixed, clients_of(1)) == []


def test_a_configured_list_is_not_the_callers_to_change() -> None:
    fixed = queues_of("broker-a", 2)
    strategy = by_config(fixed)
    fixed.clear()
    strategy.allocate("CID-0", [], []).clear()
    assert len(strategy.allocate("CID-0", [], [])) == 2


def test_consistent_hash_of_eight_queues() -> None:
    queues = queues_of("broker-a", 8)
    strategy = by_consistent_hash()
    assert shares(strategy, queues, clients_of(3)) == [[3, 5, 6], [2, 4, 7], [0, 1]]
    assert shares(strategy, queues, clients_of(2)) == [[0, 3, 5, 6], [1, 2, 4, 7]]


def test_consistent_hash_of_two_brokers() -> None:
    queues = queues_of("broker-a", 4) + queues_of("broker-b", 4)
    assert shares(by_consistent_hash(), queues, clients_of(3)) == [[3, 4, 6], [2, 5, 7], [0, 1]]


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("CID-0-0", 1900518137),
        ("CID-1-0", 1110034835),
        ("CID-2-0", 3314329461),
        ("MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=0]", 1987926524),
        ("MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=1]", 4291349817),
        ("MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=2]", 853506239),
        ("MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=3]", 3652785994),
    ],
)
def test_ring_positions(key: str, place: int) -> None:
    assert ring_position(key) == place


def test_a_ring_may_be_of_another_size_and_hash() -> None:
    queues, clients = queues_of("broker-a", 100), clients_of(4)
    assert ring_owners(queues, clients, points=1) != ring_owners(queues, clients)
    places = {"CID-0-0": 10, "CID-1-0": 20}
    on_ring = by_consistent_hash(points=1, place=lambda key: places.get(key, len(key)))
    assert on_ring.allocate("CID-1", queues, clients_of(2)) == []  # every key is past both points
    assert len(on_ring.allocate("CID-0", queues, clients_of(2))) == 100
    with pytest.raises(InvalidInput, match="illegal virtualNodeCnt: 0"):
        by_consistent_hash(points=0)


def test_a_queue_at_the_very_place_of_a_point_is_its_clients() -> None:
    [queue] = queues_of("broker-a", 1)
    places = {"CID-0-0": 62, "CID-1-0": 61}
    owners = ring_owners([queue], clients_of(2), points=1, place=lambda key: places.get(key, 62))
    assert owners == ["CID-0"]


ROOMS = queues_of("r1@a", 4) + queues_of("r2@b", 4)


@pytest.mark.parametrize(
    ("rooms", "clients", "expected"),
    [
        ({"r1"}, 3, [[0, 3], [1], [2]]),
        ({"r1"}, 2, [[0, 1], [2, 3]]),
        ({"r1", "r2"}, 3, [[0, 1, 6], [2, 3, 7], [4, 5]]),
        ({"r3"}, 2, [[], []]),
    ],
)
def test_machine_room(rooms: set[str], clients: int, expected: list[list[int]]) -> None:
    assert shares(by_machine_room(rooms), ROOMS, clients_of(clients)) == expected


@pytest.mark.parametrize(
    ("broker", "room"),
    [("r1@a", "r1"), ("r1@a@", "r1"), ("@a", ""), ("a", None), ("r1@", None), ("r1@a@b", None)],
)
def test_the_room_is_what_javas_split_leaves(broker: str, room: str | None) -> None:
    assert room_of(MessageQueue("T", broker, 0)) == room


def nearby(homes: dict[str, str], inner: Strategy = EVENLY) -> Strategy:
    return by_nearby_machine_room(inner, queue_room=room_of, client_room=homes.get)


def test_nearby_gives_each_room_to_its_own_clients() -> None:
    strategy = nearby({"c0": "r1", "c1": "r1", "c2": "r2"})
    assert shares(strategy, ROOMS, ["c0", "c1", "c2"]) == [[0, 1], [2, 3], [4, 5, 6, 7]]


def test_nearby_shares_a_deserted_room_among_all() -> None:
    strategy = nearby(dict.fromkeys(("c0", "c1", "c2"), "r1"))
    assert shares(strategy, ROOMS, ["c0", "c1", "c2"]) == [[0, 1, 4, 5], [2, 6], [3, 7]]


def test_nearby_with_a_third_room_that_is_deserted() -> None:
    queues = ROOMS + queues_of("r3@c", 2)
    strategy = nearby({"c0": "r1", "c1": "r2"})
    assert shares(strategy, queues, ["c0", "c1"]) == [[0, 1, 2, 3, 8], [4, 5, 6, 7, 9]]


def test_nearby_wants_everyone_in_a_room() -> None:
    with pytest.raises(InvalidInput, match="room is null for c1"):
        nearby({"c0": "r1"}).allocate("c0", ROOMS, ["c0", "c1"])
    with pytest.raises(InvalidInput, match=r"room is null for TopicTest\[plain:0\]"):
        nearby({"c0": "r1"}).allocate("c0", queues_of("plain", 1), ["c0"])


def test_strategies_have_rocketmqs_names() -> None:
    assert set(STRATEGIES) == {"AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"}
    assert by_config([]).name == "CONFIG"
    assert by_machine_room([]).name == "MACHINE_ROOM"
    assert nearby({}).name == "MACHINE_ROOM_NEARBY-AVG"
    assert nearby({}, IN_TURN).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"


CHECKED = [EVENLY, IN_TURN, by_consistent_hash(), by_machine_room({"r1"}), nearby({"c": "r1"})]


@pytest.mark.parametrize("strategy", CHECKED, ids=lambda strategy: strategy.name)
def test_common_checks(strategy: Strategy) -> None:
    queues = queues_of("r1@a", 4)
    with pytest.raises(InvalidInput, match="currentCID is empty"):
        strategy.allocate("", queues, ["c"])
    with pytest.raises(InvalidInput, match="mqAll is empty: client c"):
        strategy.allocate("c", [], ["c"])
    with pytest.raises(InvalidInput, match="cidAll is empty"):
        strategy.allocate("c", queues, [])
    assert strategy.allocate("stranger", queues, ["c"]) == []
    assert strategy.allocate("c", queues, ["c"]) == queues


@pytest.mark.parametrize("strategy", CHECKED[:4], ids=lambda strategy: strategy.name)
def test_the_order_of_the_lists_does_not_matter(strategy: Strategy) -> None:
    clients = clients_of(3)
    for client in clients:
        sorted_share = strategy.allocate(client, ROOMS, clients)
        assert strategy.allocate(client, ROOMS[::-1], clients[::-1]) == sorted_share
