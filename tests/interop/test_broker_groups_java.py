"""RocketMQ's own consumers as groups at `gantry up`: who gets what, what comes back, and when."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pytest
from conftest import or_skip
from gantry import Gantry
from peer import JavaPeer

from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.groups import GetConsumerList
from gantrymq.protocol.statistics import GetConsumeStats
from gantrymq.protocol.topics import GetTopics

_NAMES: Final = count()
_WAIT_MS: Final = 45_000
"""A consumer of 5.5.0 may fail to send the heartbeat with which a rebalance ends, and try again
after half a minute."""


class Mortal(JavaPeer):
    """A JVM that ends when it is told, without a goodbye to anyone."""

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Java:
    """Producers and consumers in one JVM, at one of our brokers."""

    def __init__(self, peer: JavaPeer, gantry: Gantry) -> None:
        self.peer = peer
        self.gantry = gantry

    def send(self, topic: str, bodies: list[bytes], **how: Any) -> None:
        messages = [
            {"body": body, "tag": "A", "keys": f"key{number}"} | how
            for number, body in enumerate(bodies)
        ]
        item = {"how": "ordered", "topic": topic, "messages": messages} | self._at()
        (results,) = self.peer.ask("traffic.send", [item])
        assert {one["status"] for one in results} == {"SEND_OK"}

    def start(self, kind: str, name: str, topic: str, group: str, **how: Any) -> None:
        item = {"kind": kind, "name": name, "group": group, "topic": topic, "expression": "*"}
        self.peer.ask("consumer.start", [item | how | self._at()])

    def take(self, name: str, wanted: int, *, wait_ms: int = _WAIT_MS) -> list[dict[str, Any]]:
        item = {"name": name, "count": wanted, "wait_ms": wait_ms}
        (taken,) = self.peer.ask("consumer.take", [item])
        found: list[dict[str, Any]] = taken
        return found

    def stop(self, *names: str) -> None:
        self.peer.ask("consumer.stop", [{"name": name} for name in names])

    def topics(self) -> set[str]:
        """The topics of the broker."""
        with BlockingPeer.connect(self.gantry.broker) as peer:
            return set(peer.call(GetTopics(), timeout=10).table.topics)

    def _at(self) -> dict[str, str]:
        return {"name_server": self.gantry.name_server}


@pytest.fixture(scope="module")
def gantry(request: pytest.FixtureRequest) -> Iterator[Gantry]:
    with Gantry() as running:
        yield running
        running.keep = request.session.testsfailed > 0
        if running.keep:
            print(f"its log and files are kept in {running.home}")


@pytest.fixture
def java(version: str, peers: Callable[[str], JavaPeer], gantry: Gantry) -> Java:
    return Java(peers(version), gantry)


@contextmanager
def mortal(java: Java) -> Iterator[tuple[Mortal, Java]]:
    """Another JVM of the same release."""
    with or_skip(lambda: Mortal(java.peer.version)) as peer:
        yield peer, Java(peer, java.gantry)


def name_for(what: str) -> str:
    return f"{what}_{next(_NAMES)}"


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def bodies(found: list[dict[str, Any]]) -> list[bytes]:
    return [bytes(one["body"]) for one in found]


def queues_of(found: list[dict[str, Any]]) -> set[int]:
    return {one["queue_id"] for one in found}


def until(condition: Callable[[], object], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds:g}s"
        time.sleep(0.05)


def members(gantry: Gantry, group: str) -> int:
    with BlockingPeer.connect(gantry.broker) as peer:
        return len(peer.call(GetConsumerList(group=group), timeout=10).client_ids)


def committed(gantry: Gantry, group: str, topic: str) -> int:
    """How many messages of a topic a group is done with."""
    with BlockingPeer.connect(gantry.broker) as peer:
        stats = peer.call(GetConsumeStats(group=group, topic=topic), timeout=10)
    return sum(one.consumer_offset for one in stats.queues.values())


# --- members --------------------------------------------------------------------------------------


def test_two_consumers_share_and_one_takes_over_when_the_other_dies(java: Java) -> None:
    topic = name_for("shared")
    group = f"g_{topic}"
    java.send(topic, numbered(8))
    java.start("push", topic, topic, group)
    assert len(java.take(topic, 8)) == 8
    with mortal(java) as (peer, other):
        other.start("push", "other", topic, group)
        until(lambda: members(java.gantry, group) == 2, "a second member")

        def shared() -> bool:
            java.send(topic, numbered(8))
            mine = java.take(topic, 8, wait_ms=500)
            yours = other.take("other", 8 - len(mine), wait_ms=500)
            return bool(mine and yours) and not queues_of(mine) & queues_of(yours)

        until(shared, "both get messages, each of its own queues")
        peer.kill()
        died, left = time.monotonic(), set(numbered(40, 1000))
        java.send(topic, sorted(left))
        while left and time.monotonic() - died < 5:
            left -= set(bodies(java.take(topic, len(left), wait_ms=200)))
        assert not left
    java.stop(topic)


def test_orderly_consumers_hand_queues_over_in_order(java: Java) -> None:
    topic = name_for("in_order")
    group = f"g_{topic}"
    first, second = f"{topic}_a", f"{topic}_b"
    java.send(topic, numbered(20))
    java.start("orderly", first, topic, group)
    found = java.take(first, 20)
    java.start("orderly", second, topic, group)
    until(lambda: members(java.gantry, group) == 2, "a second member")
    java.send(topic, numbered(20, 20))
    deadline = time.monotonic() + 60
    while len(found) < 40 and time.monotonic() < deadline:
        found += java.take(first, 20, wait_ms=300)
        found += java.take(second, 20, wait_ms=300)
    java.stop(first)
    java.send(topic, numbered(20, 40))
    found += java.take(second, 60 - len(found))
    java.stop(second)
    assert sorted(bodies(found)) == sorted(numbered(60))
    by_queue: dict[int, list[int]] = {}
    for one in found:
        by_queue.setdefault(one["queue_id"], []).append(one["queue_offset"])
    assert all(offsets == sorted(set(offsets)) for offsets in by_queue.values())


def test_in_broadcasting_everybody_gets_everything(java: Java) -> None:
    topic = name_for("fans")
    group = f"g_{topic}"
    names = [f"{topic}_{letter}" for letter in "abc"]
    java.send(topic, numbered(1))
    for name in names:
        java.start("push", name, topic, group, broadcast=True)
    java.send(topic, numbered(20, 1))
    for name in names:
        found = bodies(java.take(name, 21))
        assert set(found) == set(numbered(21)), name
    java.stop(*names)


# --- messages that come later ---------------------------------------------------------------------


def test_messages_with_a_delay_come_when_they_are_due(java: Java) -> None:
    topic = name_for("later")
    java.send(topic, numbered(1))
    java.start("push", topic, topic, f"g_{topic}")
    assert len(java.take(topic, 1)) == 1
    java.send(topic, numbered(10), level=2)
    java.send(topic, numbered(10, 10), level=1)
    found = java.take(topic, 20, wait_ms=15_000)
    java.stop(topic)
    assert sorted(bodies(found)[:10]) == sorted(numbered(10, 10))
    assert sorted(bodies(found)[10:]) == sorted(numbered(10))
    for one in found:
        delay = {b"1": 5, b"0": 1}[b"0" if bytes(one["body"]) in numbered(10, 10) else b"1"]
        late = one["store_time"] - one["born_time"] - 1000 * delay
        assert -5 <= late <= 100, f"{one['body']!r} was {late} ms late"


def test_a_message_that_fails_comes_back_and_is_given_up_in_the_end(java: Java) -> None:
    topic = name_for("failing")
    group, grave = f"g_{topic}", f"{topic}_grave"
    java.send(topic, [b"poison"])
    java.start("push", topic, topic, group, fails=99, level=1, max=2)
    # It looks for the route of its retry topic every half a minute, and at first there is none.
    attempts = java.take(topic, 3, wait_ms=2 * _WAIT_MS)
    assert [one["reconsume_times"] for one in attempts] == [0, 1, 2]
    assert {one["topic"] for one in attempts} == {topic}  # as the client shows it
    assert bodies(attempts) == [b"poison"] * 3
    until(lambda: f"%DLQ%{group}" in java.topics(), "a dead-letter topic")
    java.start("assigned", grave, f"%DLQ%{group}", f"g_{grave}")
    (dead,) = java.take(grave, 1)
    assert (bytes(dead["body"]), dead["reconsume_times"]) == (b"poison", 3)
    assert dead["properties"]["RETRY_TOPIC"] == topic
    assert dead["properties"]["ORIGIN_MESSAGE_ID"] == attempts[1]["properties"]["ORIGIN_MESSAGE_ID"]
    java.stop(topic, grave)


def test_an_orderly_consumer_gives_a_message_up_and_goes_on(java: Java) -> None:
    topic = name_for("stuck")
    group, grave = f"g_{topic}", f"{topic}_grave"
    java.send(topic, [b"poison"])
    java.start("orderly", topic, topic, group, fails=99, max=2)
    attempts = java.take(topic, 3)
    assert [one["reconsume_times"] for one in attempts] == [0, 1, 2]
    until(lambda: f"%DLQ%{group}" in java.topics(), "a dead-letter topic")
    java.start("assigned", grave, f"%DLQ%{group}", f"g_{grave}")
    (dead,) = java.take(grave, 1)
    assert bytes(dead["body"]) == b"poison"
    java.stop(topic, grave)


# --- offsets --------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_was(java: Java) -> None:
    topic = name_for("offsets")
    group = f"g_{topic}"
    java.send(topic, numbered(20))
    java.start("push", topic, topic, group)
    java.take(topic, 20)
    java.stop(topic)  # which commits

    until(lambda: committed(java.gantry, group, topic) == 20, "everything is committed")
    java.send(topic, numbered(8, 20))
    java.start("push", topic, topic, group)
    assert sorted(bodies(java.take(topic, 8))) == sorted(numbered(8, 20))
    assert java.take(topic, 1, wait_ms=300) == []
    java.stop(topic)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_consumers_go_on_after_the_broker_was_away(
    how: str, version: str, peers: Callable[[str], JavaPeer]
) -> None:
    with Gantry() as gantry:
        java, topic = Java(peers(version), gantry), name_for("away")
        java.send(topic, numbered(20))
        java.start("push", topic, topic, f"g_{topic}")
        assert len(java.take(topic, 20)) == 20
        until(lambda: committed(gantry, f"g_{topic}", topic) == 20, "everything is committed")
        time.sleep(6)  # in which the broker has written the offsets
        java.send(topic, numbered(4), level=2)
        (gantry.stop if how == "stop" else gantry.kill)()
        gantry.start()
        assert committed(gantry, f"g_{topic}", topic) == 20
        found = java.take(topic, 4, wait_ms=60_000)
        assert sorted(bodies(found)) == sorted(numbered(4))
        java.stop(topic)
