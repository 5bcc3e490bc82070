from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from gantrymq.errors import InvalidInput
from gantrymq.model import Message, MessageQueue
from gantrymq.rules.selectors import (
    select_at_random,
    select_by_hash,
    select_in_rooms,
    select_queue,
)
from gantrymq.rules.turns import RoundRobin

MESSAGE = Message(topic="T", body=b"x")


def queues_of(*brokers: str, each: int = 2) -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for broker in brokers for number in range(each)]


@pytest.mark.parametrize(
    ("arg", "place"),
    [
        ("TopicTest#KEY1", 1656969516 % 7),  # the hash itself is negative
        ("hello", 99162322 % 7),
        (-5, 5),
        (12, 5),
        (1 << 40, 256 % 7),
        (True, 1231 % 7),
    ],
)
def test_hash_is_the_absolute_java_remainder(arg: object, place: int) -> None:
    queues = queues_of("a", each=7)
    assert select_queue(select_by_hash, queues, MESSAGE, arg).queue_id == place


def test_hash_refuses_what_java_hashes_otherwise() -> None:
    with pytest.raises(InvalidInput, match="a tuple has no hash that Java clients agree on"):
        select_by_hash(queues_of("a"), MESSAGE, (1, 2))


def test_random_takes_each_queue_as_often(chance: random.Random) -> None:
    queues = queues_of("a", "b")
    select = select_at_random(chance)
    counted = Counter(select_queue(select, queues, MESSAGE, None) for _ in range(4000))
    assert set(counted) == set(queues)
    assert all(900 < times < 1100 for times in counted.values())


def test_machine_room_takes_its_queues_in_turn(chance: random.Random) -> None:
    queues = queues_of("r1@a", "r2@b", "plain")
    select = select_in_rooms({"r2"}, RoundRobin(chance, start=0))
    taken = [select_queue(select, queues, MESSAGE, None) for _ in range(4)]
    assert taken == queues_of("r2@b") * 2


def test_machine_room_takes_all_when_its_own_are_gone(chance: random.Random) -> None:
    queues = queues_of("r1@a", "r2@b")
    select = select_in_rooms({"r3"}, RoundRobin(chance, start=0))
    assert [select_queue(select, queues, MESSAGE, None) for _ in range(4)] == queues


def test_a_selector_of_ones_own_is_a_function() -> None:
    def by_body(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        return queues[(len(message.body) + int(str(arg))) % len(queues)]

    queues = queues_of("a", each=5)
    assert select_queue(by_body, queues, MESSAGE, 7) == queues[3]


def test_a_selector_that_names_no_queue_is_named_itself() -> None:
    def shy(queues: Sequence[MessageQueue], message: Message, arg: object) -> MessageQueue:
        return None  # type: ignore[return-value]

    with pytest.raises(
        InvalidInput, match=r"return null: selector shy gave None for 'k'.*2 queues"
    ):
        select_queue(shy, queues_of("a"), MESSAGE, "k")


def test_a_topic_without_queues_is_not_the_selectors_problem() -> None:
    with pytest.raises(InvalidInput, match="topic T has no queue"):
        select_queue(select_by_hash, [], MESSAGE, "k")
