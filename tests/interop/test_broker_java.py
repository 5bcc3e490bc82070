"""RocketMQ's own clients with `gantry up`: what they send is stored, and comes back to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any, Final

import generated
import pytest
from gantry import Gantry
from peer import JavaPeer

from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.routing import GetRoute
from gantrymq.wire import record
from gantrymq.wire.message_id import parse_offset_id
from gantrymq.wire.record import StoredMessage

_NAMES: Final = count()
_WAIT_MS: Final = 45_000
"""A consumer of 5.5.0 may fail to send the heartbeat with which a rebalance ends, and try again
after half a minute: its first regular heartbeat holds the lock at that very moment."""


@pytest.fixture(scope="module")
def gantry(request: pytest.FixtureRequest) -> Iterator[Gantry]:
    with Gantry() as running:
        yield running
        running.keep = request.session.testsfailed > 0
        if running.keep:
            print(f"its log and files are kept in {running.home}")


def new_name(what: str) -> str:
    return f"{what}_{next(_NAMES)}"


def messages(rng: Random, number: int, *, tags: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [
        {
            "body": (generated.body(rng) or b"-") + n.to_bytes(4, "big"),
            "tag": tags[n % len(tags)] if tags else None,
            "keys": f"key{n}",
        }
        for n in range(number)
    ]


class Traffic:
    """Java's clients of one release, at one of our name servers."""

    def __init__(self, peer: JavaPeer, gantry: Gantry) -> None:
        self._peer = peer
        self.gantry = gantry

    def send(
        self, how: str, topic: str, what: list[dict[str, Any]], *, vip: bool = False
    ) -> list[dict[str, Any]]:
        item = {"how": how, "topic": topic, "messages": what, "vip": vip} | self._at()
        (results,) = self._peer.ask("traffic.send", [item])
        found: list[dict[str, Any]] = results
        return found

    def start(self, kind: str, name: str, topic: str, *, expression: str = "*") -> None:
        item = {"kind": kind, "name": name, "group": f"g_{name}", "topic": topic}
        self._peer.ask("consumer.start", [item | {"expression": expression} | self._at()])

    def take(self, name: str, wanted: int, *, wait_ms: int = _WAIT_MS) -> list[dict[str, Any]]:
        item = {"name": name, "count": wanted, "wait_ms": wait_ms}
        (taken,) = self._peer.ask("consumer.take", [item])
        found: list[dict[str, Any]] = taken
        return found

    def stop(self, name: str) -> None:
        self._peer.ask("consumer.stop", [{"name": name}])

    def stored(self, topic: str) -> list[StoredMessage]:
        """Everything in the topic, queue by queue, as our own client reads it."""
        with BlockingPeer.connect(self.gantry.name_server) as peer:
            route = peer.call(GetRoute(topic=topic), timeout=10).route
        found: list[StoredMessage] = []
        with BlockingPeer.connect(self.gantry.broker) as peer:
            for queue_id in range(route.queues[0].read_queues):
                found += _read(peer, topic, queue_id)
        return found

    def _at(self) -> dict[str, str]:
        return {"name_server": self.gantry.name_server}


def _read(peer: BlockingPeer, topic: str, queue_id: int) -> Iterator[StoredMessage]:
    offset = 0
    while True:
        request = PullMessage(
            group="ours",
            topic=topic,
            queue_id=queue_id,
            offset=offset,
            flags=PullFlag.SUBSCRIPTION,
            subscription="*",
        )
        reply = peer.call(request, timeout=10)
        found = list(record.iterate(reply.body))
        if not found:
            return
        assert [one.queue_offset for one in found] == list(range(offset, reply.next_offset))
        yield from found
        offset = reply.next_offset


@pytest.fixture
def traffic(version: str, peers: Callable[[str], JavaPeer], gantry: Gantry) -> Traffic:
    return Traffic(peers(version), gantry)


def bodies(found: list[dict[str, Any]]) -> list[bytes]:
    return [one["body"] for one in found]


# --- producers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["sync", "async", "ordered"])
def test_each_message_is_stored_where_the_answer_says(
    traffic: Traffic, how: str, rng: Random
) -> None:
    topic, sent = new_name(how), messages(rng, 40, tags=("A", "B"))
    results = traffic.send(how, topic, sent)
    assert {(one["status"], one["broker"]) for one in results} == {("SEND_OK", "broker-a")}
    assert {(one["region"], one["traced"]) for one in results} == {("DefaultRegion", True)}

    stored = {(one.queue_id, one.queue_offset): one for one in traffic.stored(topic)}
    assert len(stored) == 40
    for message, result in zip(sent, results, strict=True):
        found = stored[result["queue_id"], result["queue_offset"]]
        assert (found.content(), found.message_id) == (message["body"], result["unique_id"])
        kept = found.properties
        assert (kept["TAGS"], kept["KEYS"]) == (message["tag"], message["keys"])
        assert (kept["CLUSTER"], kept["MSG_REGION"]) == ("DefaultCluster", "DefaultRegion")
        assert parse_offset_id(result["offset_id"]).log_offset == found.log_offset
        assert found.store_host == traffic.gantry.broker
        found.check_crc()
    if how == "ordered":
        assert len({one["queue_id"] for one in results}) > 1


def test_one_way_messages_arrive(traffic: Traffic, rng: Random) -> None:
    topic, sent = new_name("oneway"), messages(rng, 30)
    traffic.send("sync", topic, sent[:1])  # so that the topic and its route are there
    traffic.send("oneway", topic, sent[1:])
    traffic.start("assigned", topic, topic)
    found = traffic.take(topic, len(sent))
    traffic.stop(topic)
    assert sorted(bodies(found)) == sorted(one["body"] for one in sent)


def test_a_batch_is_stored_message_by_message(traffic: Traffic, rng: Random) -> None:
    topic, sent = new_name("batch"), messages(rng, 25, tags=("A",))
    (result,) = traffic.send("batch", topic, sent)
    assert result["status"] == "SEND_OK"
    stored = traffic.stored(topic)
    assert [one.body for one in stored] == [one["body"] for one in sent]
    assert result["offset_id"].split(",") == [one.offset_id for one in stored]
    assert result["unique_id"].split(",") == [one.message_id for one in stored]
    assert [one.queue_offset for one in stored] == list(range(25))


def test_the_vip_port_takes_messages(traffic: Traffic, rng: Random) -> None:
    topic, sent = new_name("vip"), messages(rng, 3)
    results = traffic.send("sync", topic, sent, vip=True)
    assert [one["status"] for one in results] == ["SEND_OK"] * 3
    assert sorted(one.content() for one in traffic.stored(topic)) == sorted(
        one["body"] for one in sent
    )


# --- consumers ------------------------------------------------------------------------------------


def test_an_assigned_consumer_gets_everything(traffic: Traffic, rng: Random) -> None:
    topic, sent = new_name("assigned"), messages(rng, 60)
    traffic.send("sync", topic, sent[:30])
    traffic.start("assigned", topic, topic)
    found = traffic.take(topic, 30)
    traffic.send("async", topic, sent[30:])  # while it waits
    found += traffic.take(topic, 30)
    traffic.stop(topic)
    assert sorted(bodies(found)) == sorted(one["body"] for one in sent)


@pytest.mark.parametrize("kind", ["push", "orderly", "lite"])
def test_a_subscribed_consumer_gets_what_was_there_and_what_comes(
    traffic: Traffic, kind: str, rng: Random
) -> None:
    topic, sent = new_name(kind), messages(rng, 80)
    traffic.send("ordered", topic, sent[:40])
    traffic.start(kind, topic, topic)
    found = traffic.take(topic, 40)
    traffic.send("ordered", topic, sent[40:])
    found += traffic.take(topic, 40)
    traffic.stop(topic)
    assert sorted(bodies(found)) == sorted(one["body"] for one in sent)
    by_queue: dict[int, list[int]] = {}
    for one in found:
        by_queue.setdefault(one["queue_id"], []).append(one["queue_offset"])
    if kind != "push":  # which consumes with several threads
        assert all(offsets == sorted(offsets) for offsets in by_queue.values())


@pytest.mark.parametrize("kind", ["push", "lite"])
def test_a_consumer_gets_only_the_tags_that_it_wants(
    traffic: Traffic, kind: str, rng: Random
) -> None:
    topic, sent = new_name(f"tags_{kind}"), messages(rng, 60, tags=("A", "B", "C"))
    traffic.send("async", topic, sent[:30])
    traffic.start(kind, topic, topic, expression="A || C")
    wanted = [one["body"] for one in sent if one["tag"] != "B"]
    found = traffic.take(topic, 20)
    traffic.send("async", topic, sent[30:])
    found += traffic.take(topic, 20)
    assert sorted(bodies(found)) == sorted(wanted)
    assert traffic.take(topic, 1, wait_ms=300) == []
    traffic.stop(topic)


def test_a_waiting_consumer_is_woken_at_once(traffic: Traffic, rng: Random) -> None:
    topic = new_name("woken")
    traffic.send("sync", topic, messages(rng, 4))
    traffic.start("push", topic, topic)
    traffic.take(topic, 4)
    began = time.monotonic()
    for _ in range(20):
        traffic.send("sync", topic, messages(rng, 1))
        assert len(traffic.take(topic, 1)) == 1
    assert time.monotonic() - began < 10  # RocketMQ itself would look again every 5 s
    traffic.stop(topic)
