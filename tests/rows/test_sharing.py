"""Rows D1 to D10: how consumers of a group share the queues of a topic."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest

import gantrymq as gantry
from gantrymq.client.consumer_config import ConsumerConfig
from gantrymq.model import MessageQueue
from gantrymq.protocol.offsets import QueryConsumerOffset
from gantrymq.protocol.pulling import PullFlag
from gantrymq.rules.allocation import (
    EVENLY,
    IN_TURN,
    Strategy,
    by_config,
    by_consistent_hash,
    by_machine_room,
    by_nearby_machine_room,
    room_of,
)
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from gantrymq.wire.javahash import java_hash
from tests.rows.members import member, told
from tests.rows.platforms import NORTH, SOUTH
from tests.rows.site import Seen, Site, numbered, run, soon
from tests.rows.tap import Swallowed, Tap

NOTICE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
_NAMES = count(1)


def of_topic(consumer: gantry.AsyncConsumer, topic: str) -> set[MessageQueue]:
    """The queues of a topic that are a consumer's."""
    return {queue for queue in consumer.queues if queue.topic == topic}


def name() -> str:
    """An instance name of its own, in order."""
    return f"member-{next(_NAMES):04}"


async def fill(site: Site, bodies: list[bytes], topic: str | None = None) -> None:
    """Send messages, over all queues in turn."""
    async with site.async_producer(instance_name=name(), group=f"{site.group}-p") as producer:
        for body in bodies:
            await producer.send(site.topic if topic is None else topic, body)


def committed(site: Site, queue: MessageQueue, group: str | None = None) -> int:
    """How far a group has come in a queue, as its broker knows."""
    request = QueryConsumerOffset(
        group=group or site.group, topic=queue.topic, queue_id=queue.queue_id
    )
    return site.ask(queue.broker, request).offset


def beats(tap: Tap) -> list[dict[str, Any]]:
    """What heartbeats said."""
    return [orjson.loads(bytes(beat.body)) for beat in tap.requests(RequestCode.HEART_BEAT)]


def subscriptions(beat: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What a heartbeat says is wanted, by topic."""
    (consumer,) = beat["consumerDataSet"]
    return {wanted["topic"]: wanted for wanted in consumer["subscriptionDataSet"]}


def shared(consumers: list[gantry.AsyncConsumer], topic: str, queues: list[MessageQueue]) -> bool:
    """Whether each queue has one owner, and everybody some."""
    shares = [of_topic(one, topic) for one in consumers]
    owned = Counter(queue for share in shares for queue in share)
    return owned == Counter(queues) and all(shares)


# --- what is said ---------------------------------------------------------------------------------


def test_d1_push_over_pull_waits_at_the_broker(site: Site) -> None:
    taps = site.taps()

    async def main() -> None:
        seen = Seen()
        async with site.consumer(seen, rebalance_interval=600.0, pull_wait=120.0):
            pulls = lambda: [  # noqa: E731
                pull
                for tap in taps
                for pull in tap.requests(RequestCode.PULL_MESSAGE)
                if pull.fields["topic"] == site.topic
            ]
            await soon(lambda: len(pulls()) == 8, "a pull at each queue")
            assert all(int(pull.fields["sysFlag"]) & PullFlag.SUSPEND for pull in pulls())
            await fill(site, numbered(8))
            await soon(lambda: seen.has(numbered(8)), "what was sent")
            await soon(lambda: len(pulls()) == 16, "the next pull of each")
            again = Counter((pull.fields["queueId"]) for pull in pulls()[8:])
            assert set(again.values()) == {2}

    run(main())


def test_d2_subscription_says_what_is_wanted(site: Site) -> None:
    north = site.tap(NORTH)

    async def main() -> None:
        seen = Seen()
        producer = site.async_producer(group=f"{site.group}-p", instance_name=name())
        consumer = site.consumer(None, topics=(), heartbeat_interval=600.0)
        await consumer.subscribe(site.topic, seen, tags="red || Größe")
        async with producer, consumer:
            wanted = subscriptions(beats(north)[-1])
            assert set(wanted) == {site.topic, f"%RETRY%{site.group}"}
            first = wanted[site.topic]
            assert first["subString"] == "red || Größe"
            assert {*first["tagsSet"]} == {"red", "Größe"}
            assert {*first["codeSet"]} == {java_hash("red"), java_hash("Größe")}
            for tag in ("red", "green", "Größe", None):
                await producer.send(site.topic, str(tag).encode(), tag=tag)
            await soon(lambda: seen.has([b"red", "Größe".encode()]), "what is wanted")
            before = len(beats(north))
            await consumer.subscribe(site.topic, seen, tags="green")
            assert len(beats(north)) > before, "brokers hear of it at once"
            again = subscriptions(beats(north)[-1])[site.topic]
            assert again["subString"] == "green"
            assert again["subVersion"] > first["subVersion"]
            await producer.send(site.topic, b"greener", tag="green")
            await producer.send(site.topic, b"redder", tag="red")
            await soon(lambda: b"greener" in seen.bodies, "what is wanted now")

    run(main())


def test_d3_heartbeats_go_to_every_broker(site: Site) -> None:
    taps, at_names = site.taps(), site.tap_names()
    with Tap(site.platform.brokers[NORTH]) as replica:

        def with_a_replica(request: Command, answer: Command) -> None:
            body, master = bytes(answer.body), site.platform.brokers[NORTH].encode()
            for zero, one in ((b'"0"', b'"1"'), (b"0", b"1")):
                found = zero + b':"' + master + b'"'
                if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and found in body:
                    more = one + b':"' + replica.address.encode() + b'"'
                    answer.body = body.replace(found, found + b"," + more)
                    return

        at_names.answered = with_a_replica

        async def main() -> None:
            producer = site.async_producer()
            await producer.start()
            await producer.send(site.topic, b"hello")
            assert all(beats(tap) for tap in taps)
            assert not beats(replica), "replicas hear nothing of who only produces"
            (said,) = [beat["producerDataSet"] for beat in beats(taps[0])][-1:]
            assert said == [{"groupName": site.group}]
            assert beats(taps[0])[-1]["clientID"] == producer.client_id
            versions = producer.producing.engine.versions
            assert set(versions) == {tap.address for tap in taps}
            assert all(version > 0 for version in versions.values())
            group = f"{site.group}-c"
            async with site.consumer(Seen(), group=group, broadcast=False, start="latest"):
                assert beats(replica), "but of who consumes"
                (data,) = beats(replica)[-1]["consumerDataSet"]
                assert data["groupName"] == group
                assert data["consumeType"] == "CONSUME_PASSIVELY"
                assert data["messageModel"] == "CLUSTERING"
                assert data["consumeFromWhere"] == "CONSUME_FROM_LAST_OFFSET"
                assert data["unitMode"] is False
                assert site.topic in {one["topic"] for one in data["subscriptionDataSet"]}
            await producer.close()

        run(main())


def test_d3_heartbeats_do_not_pile_up(site: Site) -> None:
    north, opened = site.tap(NORTH), threading.Event()

    def hold(request: Command, _answer: Command) -> None:
        if request.code == RequestCode.HEART_BEAT:
            opened.wait(60)

    async def main() -> None:
        async with site.async_producer(heartbeat_interval=0.02, call_timeout=50.0) as producer:
            await soon(lambda: len(beats(north)) > 3, "heartbeats")
            north.answered = hold
            seen = len(beats(north))
            await soon(lambda: len(beats(north)) > seen, "one more")
            await asyncio.sleep(0.5)  # 25 intervals, in which nothing is to happen
            assert len(beats(north)) <= seen + 2
            opened.set()
            await soon(lambda: len(beats(north)) > seen + 4, "more of them")
            assert producer.state == "running"

    run(main())


# --- what brokers make of it ----------------------------------------------------------------------


def test_d4_brokers_registry_of_groups(site: Site) -> None:
    async def main() -> None:
        north, other = site.platform.brokers[NORTH], site.another_topic()
        async with member(north, "first") as first, member(north, "second") as second:
            await first.beat(site.group, {site.topic: 1})
            retry = f"%RETRY%{site.group}"
            await soon(lambda: retry in site.admin.list_topics(hidden=True), "a retry topic")
            settings = site.admin.topic_settings(retry).answers[NORTH]
            assert settings.read_queues == settings.write_queues == 1
            await told(first, 1)
            await second.beat(site.group, {site.topic: 1})
            await told(first, 2)
            assert await first.others(site.group) == {"first", "second"}
            await second.beat(site.group, {site.topic: 1, other: 1})
            await told(first, 3)
            found = site.admin.group_members(site.group)
            assert {one.client_id for one in found.members} == {"first", "second"}
            assert set(found.subscriptions) == {site.topic, other}
            await second.beat(site.group, {site.topic: 1})  # one topic less
            await told(first, 4)
            await second.beat(site.group, {site.topic: 2}, tags="blue")  # only newer
            found = site.admin.group_members(site.group)
            assert found.subscriptions[site.topic].expression == "blue"
            async with member(north, "third") as third:
                await third.beat(site.group, {site.topic: 2}, tags="blue")
                await told(first, 5)
                assert len(second.notices) == 4

    run(main())


def test_d5_events_reach_every_member(site: Site) -> None:
    async def main() -> None:
        north = site.platform.brokers[NORTH]
        async with member(north, "first") as first:
            await first.beat(site.group, (site.topic,))
            await told(first, 1)
            async with member(north, "second") as second:
                await second.beat(site.group, (site.topic,))
                await told(first, 2)
                await told(second, 1)
                await second.leave(site.group)
                await told(first, 3)
                assert await first.others(site.group) == {"first"}
                await second.beat(site.group, (site.topic,))
                await told(first, 4)
            await told(first, 5)  # its connection has ended
            assert await first.others(site.group) == {"first"}
            assert set(first.notices) == {site.group}
            site.admin.alter_group(site.group, notify_changes=False)
            async with member(north, "third") as third:
                await third.beat(site.group, (site.topic,))
                assert await first.others(site.group) == {"first", "third"}
            site.admin.alter_group(site.group, notify_changes=True)
            async with member(north, "fourth") as fourth:
                await fourth.beat(site.group, (site.topic,))
                await soon(lambda: len(first.notices) > 5, "a notice again")
                assert len(first.notices) <= 7  # of the third one's end, perhaps, and of the fourth

    run(main())


# --- who has which queue --------------------------------------------------------------------------


def test_d6_rebalance_at_once_when_told(site: Site) -> None:
    async def main() -> None:
        queues = site.queues()
        quiet = {"rebalance_interval": 600.0}
        first = site.consumer(Seen(), instance_name=name(), **quiet)
        second = site.consumer(Seen(), instance_name=name(), **quiet)
        async with first:
            await soon(lambda: of_topic(first, site.topic) == {*queues}, "all queues")
            async with second:
                both = [first, second]
                await soon(lambda: shared(both, site.topic, queues), "one owner of each queue")
                # Queues and members are sorted, so everybody comes to the same.
                assert of_topic(first, site.topic) == {*queues[:4]}
                assert of_topic(second, site.topic) == {*queues[4:]}
            await soon(lambda: of_topic(first, site.topic) == {*queues}, "all queues again")

    run(main())


def test_d6_rebalance_now_and_then_where_notices_are_lost(site: Site) -> None:
    assert ConsumerConfig().rebalance_interval == 20.0

    def deaf(command: Command) -> None:
        if command.code == NOTICE:
            raise Swallowed

    taps = site.taps()
    for tap in taps:
        tap.said = deaf

    async def main() -> None:
        queues = site.queues()
        first = site.consumer(Seen(), instance_name=name(), rebalance_interval=0.5)
        second = site.consumer(Seen(), instance_name=name(), rebalance_interval=0.5)
        async with first, second:
            await soon(lambda: shared([first, second], site.topic, queues), "one owner of each")
            assert len(of_topic(first, site.topic)) == 4
        assert any(told.code == NOTICE for tap in taps for told in tap.told)

    run(main())


def test_d6_rebalance_gives_everything_to_everybody_in_broadcasting(
    site: Site, tmp_path: Path
) -> None:
    async def main() -> None:
        seen = Seen()
        how: dict[str, Any] = {"broadcast": True, "offsets_directory": str(tmp_path)}
        names = [name(), name()]
        async with AsyncExitStack() as stack:
            for one in names:
                consumer = site.consumer(seen.by_name(one), instance_name=one, **how)
                await stack.enter_async_context(consumer)
            await fill(site, numbered(16))
            for one in names:
                await soon(lambda: len(seen.by[one]) == 16, "all messages")  # noqa: B023
                assert sorted(m.body for m in seen.by[one]) == sorted(numbered(16))

    run(main())


def room_of_client(client_id: str) -> str:
    """Every other member is in the south."""
    return ("north", "south")[int(client_id.rpartition("-")[2]) % 2]


STRATEGIES: dict[str, Any] = {
    "averagely": lambda _: EVENLY,
    "by circle": lambda _: IN_TURN,
    "config": by_config,
    "machine room": lambda _: by_machine_room(["north", "south"]),
    "machine room nearby": lambda _: by_nearby_machine_room(
        EVENLY, queue_room=room_of, client_room=room_of_client
    ),
    "consistent hash": lambda _: by_consistent_hash(),
}


@pytest.mark.parametrize("kind", list(STRATEGIES))
def test_d7_strategies_give_every_queue_one_owner(site: Site, kind: str) -> None:
    async def main() -> None:
        queues, seen = site.queues(), Seen()
        names = sorted(name() for _ in range(3))
        shares = [queues[0:3], queues[3:4], queues[4:8]]  # for the one that is told outright
        strategies: list[Strategy] = [STRATEGIES[kind](share) for share in shares]
        consumers = [
            site.consumer(seen.by_name(one), instance_name=one, strategy=strategy)
            for one, strategy in zip(names, strategies, strict=True)
        ]
        async with AsyncExitStack() as stack:
            for consumer in consumers:
                await stack.enter_async_context(consumer)
            ids = sorted(f"127.0.0.1@{one}" for one in names)
            expected = [
                {*strategy.allocate(mine, queues, ids)}
                for mine, strategy in zip(ids, strategies, strict=True)
            ]
            await soon(
                lambda: [of_topic(one, site.topic) for one in consumers] == expected,
                f"the shares of {kind}",
            )
            # not `shared`: a consistent hash of few queues may leave a member without any
            assert Counter(queue for share in expected for queue in share) == Counter(queues)
            await fill(site, numbered(24))
            await soon(lambda: len(seen.messages) >= 24, "all messages")
            assert seen.has(numbered(24))
            for one, share in zip(names, expected, strict=True):
                assert {message.queue for message in seen.by[one]} <= share

    run(main())


# --- handing over, and offsets --------------------------------------------------------------------


def test_d8_queue_hand_over_keeps_the_place(site: Site) -> None:
    async def main() -> None:
        queues, seen = site.queues(), Seen()
        names = [name(), name()]
        late: dict[str, Any] = {"commit_interval": 600.0}
        first = site.consumer(seen.by_name(names[0]), instance_name=names[0], **late)
        second = site.consumer(seen.by_name(names[1]), instance_name=names[1], **late)
        async with first:
            await fill(site, numbered(16))
            await soon(lambda: seen.has(numbered(16)), "all messages")
            async with second:
                await soon(lambda: shared([first, second], site.topic, queues), "two owners")
                handed = of_topic(second, site.topic)
                assert len(handed) == 4
                for queue in handed:
                    assert await asyncio.to_thread(committed, site, queue) == 2
                await fill(site, numbered(16, 16))
                await soon(lambda: {*seen.bodies} == {*numbered(32)}, "all messages")
        assert {message.queue for message in seen.by[names[1]]} == handed
        # Who takes a queue may begin before the other has said how far he came, never later.
        times = Counter(seen.bodies)
        twice = [message for message in seen.messages if times[message.body] > 1]
        assert {message.queue for message in twice} <= handed
        assert {message.offset for message in twice} <= {0, 1}
        fresh = Seen()
        async with site.consumer(fresh, group=f"{site.group}-new", start="latest") as newcomer:
            await soon(lambda: len(of_topic(newcomer, site.topic)) == 8, "all queues")
            await soon(lambda: not newcomer.problems, "a beginning of each")
            await until_fresh(site, fresh)

    run(main())


async def until_fresh(site: Site, fresh: Seen) -> None:
    """Send until each queue gave something new; nothing old may come."""
    got: set[MessageQueue] = set()
    for turn in range(200):
        await fill(site, [b"new-%d" % turn] * 8)
        await asyncio.sleep(0.1)
        got = {message.queue for message in fresh.messages}
        if len(got) == 8:
            break
    assert len(got) == 8
    assert all(body.startswith(b"new-") for body in fresh.bodies)


def test_d8_queue_hand_over_of_ordered_consumers_locks(site: Site) -> None:
    north = site.tap(NORTH)
    site.tap(SOUTH)

    async def main() -> None:
        queues, seen = site.queues(), Seen()
        names = [name(), name()]
        first = site.consumer(seen.by_name(names[0]), instance_name=names[0], ordered=True)
        second = site.consumer(seen.by_name(names[1]), instance_name=names[1], ordered=True)
        async with site.async_producer(instance_name=name(), group="p") as producer:

            async def send(start: int) -> None:
                for n in range(start, start + 24):
                    await producer.send(site.topic, b"%d" % n, order_key=n % 6, keys=str(n % 6))

            async with first:
                await send(0)
                await soon(lambda: len(seen.messages) == 24, "all messages")
                assert north.requests(RequestCode.LOCK_BATCH_MQ)
                assert not north.requests(RequestCode.UNLOCK_BATCH_MQ)
                async with second:
                    await send(24)
                    await soon(lambda: shared([first, second], site.topic, queues), "two owners")
                    await send(48)
                    await soon(lambda: len(seen.messages) >= 72, "all messages")
                    unlocks = north.requests(RequestCode.UNLOCK_BATCH_MQ)
                    tap_of_south = site.tap(SOUTH).requests(RequestCode.UNLOCK_BATCH_MQ)
                    assert unlocks or tap_of_south
        assert seen.has(numbered(72)), "nothing came twice"
        for key in range(6):
            mine = [int(m.body) for m in seen.messages if m.keys == (str(key),)]
            assert mine == sorted(mine), "in order, whoever handled it"

    run(main())


def test_d9_offsets_of_groups_are_kept_by_brokers(site: Site) -> None:
    assert ConsumerConfig().commit_interval == 5.0

    async def main() -> None:
        queues, seen = site.queues(), Seen()

        async def kept() -> list[int]:
            return [await asyncio.to_thread(committed, site, queue) for queue in queues]

        async with site.consumer(seen, commit_interval=0.3):
            await fill(site, numbered(16))
            await soon(lambda: len(seen.messages) == 16, "all messages")
            for _ in range(300):
                if await kept() == [2] * 8:
                    break
                await asyncio.sleep(0.1)
            assert await kept() == [2] * 8
        async with site.consumer(seen, commit_interval=600.0):
            await fill(site, numbered(8, 16))
            await soon(lambda: len(seen.messages) >= 24, "all messages")
        assert await kept() == [3] * 8, "at the end, too"
        assert seen.has(numbered(24))

    run(main())


def test_d9_offsets_in_broadcasting_are_kept_in_a_file(site: Site, tmp_path: Path) -> None:
    async def main() -> None:
        seen, mine = Seen(), name()
        how: dict[str, Any] = {
            "broadcast": True,
            "offsets_directory": str(tmp_path),
            "instance_name": mine,
        }
        async with site.consumer(seen, **how):
            await fill(site, numbered(16))
            await soon(lambda: len(seen.messages) == 16, "all messages")
        (file,) = await asyncio.to_thread(lambda: [*tmp_path.rglob("offsets.json")])
        assert file.parent.name == site.group
        assert mine in file.parent.parent.name
        assert (await asyncio.to_thread(file.read_bytes)).count(b"brokerName") == 8
        await fill(site, numbered(8, 16))
        async with site.consumer(seen, **how):
            await soon(lambda: len(seen.messages) >= 24, "what came meanwhile")
        assert seen.has(numbered(24)), "it went on where it was"

    run(main())
