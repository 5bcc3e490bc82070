"""RocketMQ's own clients with `gantry up`: what they send is stored, and comes back to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import pytest
from gantry import Gantry
from peer import JavaPeer
from traffic import Traffic, bodies, messages, new_name

from gantrymq.wire.message_id import parse_offset_id


@pytest.fixture(scope="module")
def gantry(request: pytest.FixtureRequest) -> Iterator[Gantry]:
    with Gantry() as running:
        yield running
        running.keep = request.session.testsfailed > 0
        if running.keep:
            print(f"its log and files are kept in {running.home}")


@pytest.fixture
def traffic(version: str, peers: Callable[[str], JavaPeer], gantry: Gantry) -> Traffic:
    return Traffic(peers(version), gantry)


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
