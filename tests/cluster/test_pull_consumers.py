"""Consumers that ask for messages: row D10 of what the client has to do, in one process."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime, timedelta

import pytest

from gantrymq.client.offsets import read_offsets
from gantrymq.client.states import ServiceState
from gantrymq.errors import ClosedError, InvalidInput, NoRoute, PartlyDone, StateError
from gantrymq.model import MessageQueue, Subscription
from gantrymq.protocol.groups import GetConsumerList
from gantrymq.protocol.resets import ResetOffsets
from tests.cluster.consumers import Site, soon

ORDERS = [MessageQueue("orders", "broker-a", number) for number in range(4)]


async def take(consumer, count, limit=100):
    """So many messages, over as many polls as it takes."""
    found = []
    for _ in range(100):
        if len(found) >= count:
            return found
        found += await consumer.poll(limit)
    raise AssertionError(f"only {len(found)} came")


def bodies(messages):
    return [message.body for message in messages]


# --- taking messages ------------------------------------------------------------------------------


def test_messages_are_polled_and_committed(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            sent = await site.send(10)
            async with site.pull_consumer(topics="orders") as consumer:
                assert consumer.queues == frozenset(ORDERS)
                found = await take(consumer, 10)
                assert sorted(bodies(found)) == sorted(sent)
                assert {message.topic for message in found} == {"orders"}
                for _, some in itertools.groupby(
                    sorted(found, key=lambda m: m.queue), key=lambda m: m.queue
                ):
                    offsets = [message.offset for message in some]
                    assert offsets == sorted(offsets)
                assert await consumer.commit() == dict(zip(ORDERS, (3, 3, 2, 2), strict=True))
                assert await consumer.commit() == {}
                assert sum([await site.offset(queue) for queue in range(4)]) == 10
                assert await consumer.poll(timeout=0) == []
                sent = await site.send(2)
                assert sorted(bodies(await take(consumer, 2))) == sorted(sent)

    anywhere.run(main())


def test_as_many_as_are_asked_for_and_each_queue_in_its_turn(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(40)
            async with site.pull_consumer(topics="orders") as consumer:
                await asyncio.sleep(1)
                polls = [await consumer.poll(3) for _ in range(4)]
                assert [len(found) for found in polls] == [3] * 4
                assert len({message.queue for found in polls for message in found}) == 4
                assert len(await consumer.poll(100)) == 28
                with pytest.raises(InvalidInput, match="limit=0"):
                    await consumer.poll(0)

    memory.run(main())


def test_a_poll_waits_for_as_long_as_it_is_told(memory, tmp_path):
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.pull_consumer(topics="orders") as consumer:
                began = loop.time()
                assert await consumer.poll(timeout=7.0) == []
                assert 6.9 < loop.time() - began < 7.5
                waiting = asyncio.create_task(consumer.poll(timeout=None))
                await asyncio.sleep(60)
                with pytest.raises(StateError, match="two polls wait at once"):
                    await consumer.poll()
                (sent,) = await site.send(1)
                assert bodies(await waiting) == [sent]
                cancelled = asyncio.create_task(consumer.poll(timeout=None))
                await asyncio.sleep(1)
                cancelled.cancel()
                await asyncio.gather(cancelled, return_exceptions=True)
                (sent,) = await site.send(1)
                assert bodies(await consumer.poll()) == [sent]

    memory.run(main())


def test_what_the_last_poll_gave_is_given_again_unless_it_is_committed(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(9, queues=1)
            async with site.pull_consumer(topics="orders") as consumer:
                assert bodies(await consumer.poll(3)) == [b"0", b"1", b"2"]
                assert bodies(await consumer.poll(3)) == [b"3", b"4", b"5"]
            assert await site.offset(0) == 3
            async with site.pull_consumer(topics="orders") as consumer:
                assert bodies(await consumer.poll(3)) == [b"3", b"4", b"5"]
                assert await consumer.commit() == {ORDERS[0]: 6}
            assert await site.offset(0) == 6

    memory.run(main())


def test_offsets_are_committed_from_time_to_time(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(9, queues=1)
            async with site.pull_consumer(topics="orders") as consumer:
                await consumer.poll(3)
                await consumer.poll(3)
                await asyncio.sleep(6)
                assert await site.offset(0) == 3

    memory.run(main())


def test_without_auto_commit_nothing_is_committed_unasked(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(9, queues=1)
            async with site.pull_consumer(topics="orders", auto_commit=False) as consumer:
                await consumer.poll(3)
                assert await consumer.commit() == {ORDERS[0]: 3}
                await consumer.poll(3)
                await consumer.poll(3)
                await asyncio.sleep(20)
                assert await consumer.committed() == {ORDERS[0]: 3}
                assert consumer.positions() == {ORDERS[0]: 9}
            assert await site.offset(0) == 3
            async with site.pull_consumer(topics="orders", auto_commit=False) as consumer:
                assert (await consumer.poll(1))[0].offset == 3
                assert await consumer.commit({ORDERS[0]: 1}) == {ORDERS[0]: 1}
            assert await site.offset(0) == 1

    memory.run(main())


def test_a_commit_that_fails_says_where(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path, ("a", "b")) as site:
            await site.topic(queues=1)
            for broker in "ab":
                await site.send(1, queues=1, broker=broker)
            async with site.pull_consumer(topics="orders", call_timeout=1.0) as consumer:
                await take(consumer, 2)
                await site.stop("b")
                with pytest.raises(PartlyDone, match=r"orders\[broker-b:0\]") as failed:
                    await consumer.commit()
                assert failed.value.done == ("orders[broker-a:0]",)
                await site.start("b")

    memory.run(main())


# --- places ---------------------------------------------------------------------------------------


def test_seeking(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(20, queues=1)
            (queue,) = ORDERS[:1]
            async with site.pull_consumer(topics="orders") as consumer:
                assert (await consumer.poll(5))[-1].body == b"4"
                assert await consumer.seek(queue, 10) == {queue: 10}
                assert consumer.positions() in ({}, {queue: 10})
                assert bodies(await consumer.poll(2)) == [b"10", b"11"]
                assert consumer.positions() == {queue: 12}
                assert await consumer.seek("orders", "earliest") == {queue: 0}
                assert (await consumer.poll(1))[0].body == b"0"
                assert await consumer.seek([queue], "latest") == {queue: 20}
                assert await consumer.poll(timeout=0.05) == []
                await consumer.seek(queue, 3)
                assert await consumer.commit() in ({}, {queue: 3})
                assert (await consumer.poll(1))[0].body == b"3"
                await consumer.commit()
                assert await consumer.seek(queue, "committed") == {queue: 4}
                assert (await consumer.poll(1))[0].body == b"4"
            assert await site.offset(0) == 4

    anywhere.run(main())


def test_seeking_to_a_time(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            for _ in range(5):
                await site.send(1, queues=1)
                await asyncio.sleep(10)
            async with site.pull_consumer(topics="orders") as consumer:
                first = (await consumer.poll(1))[0].stored_at
                wanted = first + timedelta(seconds=25)
                assert await consumer.seek("orders", wanted) == {ORDERS[0]: 3}
                assert bodies(await consumer.poll(1)) == [b"3"]
                assert await consumer.offset(ORDERS[0], first) == 0
                future = datetime(2100, 1, 1, tzinfo=UTC)
                assert await consumer.offset(ORDERS[0], future) == 5
                bounds = await consumer.bounds(ORDERS[0])
                assert (bounds.least, bounds.end) == (0, 5)

    memory.run(main())


def test_a_seek_that_was_not_committed_does_not_move_the_group(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(9, queues=1)
            async with site.pull_consumer(topics="orders", auto_commit=False) as consumer:
                await consumer.poll(9)
                await consumer.commit()
                await consumer.seek("orders", 2)
                assert (await consumer.poll(1))[0].offset == 2
            assert await site.offset(0) == 9
            async with site.pull_consumer(topics="orders", auto_commit=False) as consumer:
                await consumer.seek("orders", 2)
                await soon(lambda: consumer.positions() == {ORDERS[0]: 2})
                assert await consumer.commit() == {ORDERS[0]: 2}
            assert await site.offset(0) == 2

    memory.run(main())


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 8), ("time", 4)])
@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_a_new_group_begins_where_it_is_told(start, first, way, memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(4, queues=1)
            await asyncio.sleep(10)
            await site.send(4, queues=1)
            where = start
            if start == "time":
                async with site.pull_consumer(group="looker", topics="orders") as looker:
                    found = await take(looker, 8)
                where = found[3].stored_at + timedelta(seconds=1)
            async with site.pull_consumer(start=where) as consumer:
                if way == "subscribe":
                    await consumer.subscribe("orders")
                else:
                    await consumer.assign(ORDERS[:1])
                await asyncio.sleep(1)
                await site.send(1, queues=1)
                assert (await consumer.poll(1))[0].offset == first

    memory.run(main())


def test_a_reset_is_followed(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(8, queues=1)
            async with site.pull_consumer(topics="orders") as consumer:
                await take(consumer, 8)
                await consumer.commit()
                await site.ask(
                    ResetOffsets(topic="orders", group="billing", timestamp_ms=0, force=True)
                )
                assert bodies(await take(consumer, 8)) == [b"%d" % n for n in range(8)]

    memory.run(main())


# --- topics and queues ----------------------------------------------------------------------------


def test_members_share_the_queues_and_hand_them_over(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            one = site.pull_consumer("c1", topics="orders")
            two = site.pull_consumer("c2", topics="orders")
            async with one:
                sent = await site.send(20)
                seen = bodies(await take(one, 20))
                await one.commit()
                async with two:
                    await soon(lambda: len(one.queues) == len(two.queues) == 2)
                    assert one.queues | two.queues == frozenset(ORDERS)
                    more = await site.send(20)
                    mine, yours = await asyncio.gather(take(one, 10), take(two, 10))
                    assert sorted(bodies(mine + yours)) == sorted(more)
                    await two.commit()
                    await one.commit()
                await soon(lambda: len(one.queues) == 4)
                last = await site.send(4)
                assert sorted(bodies(await take(one, 4))) == sorted(last)
            assert sorted(seen) == sorted(sent)

    memory.run(main())


def test_a_pull_consumer_shares_with_one_that_is_given_messages(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            got = []

            async def handle(message):
                got.append(message)

            async with (
                site.consumer(handle, "c1") as given,
                site.pull_consumer("c2", topics="orders") as asked,
            ):
                await soon(lambda: len(asked.queues) == 2 and len(given.queues) == 3)
                sent = await site.send(20)
                found = await take(asked, 10)
                await soon(lambda: len(got) == 10)
                assert sorted(bodies(found + got)) == sorted(sent)

    memory.run(main())


def test_assigned_queues_are_shared_with_nobody(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            await site.send(20)
            async with (
                site.pull_consumer("c1", topics="orders") as member,
                site.pull_consumer("c2") as alone,
            ):
                assert await alone.queues_of("orders") == tuple(ORDERS)
                await alone.assign(ORDERS[:2])
                assert alone.queues == frozenset(ORDERS[:2])
                assert member.queues == frozenset(ORDERS)
                assert {m.queue for m in await take(alone, 10)} == set(ORDERS[:2])
                await alone.assign([ORDERS[3]])
                assert alone.queues == {ORDERS[3]}
                assert {m.queue for m in await take(alone, 5)} == {ORDERS[3]}
                assert await alone.commit() == {ORDERS[3]: 5}
                members = await site.ask(GetConsumerList(group="billing"))
                assert members.client_ids == [member.client_id]
                assert alone.client_id
                assert await site.offset(3) == 5

    anywhere.run(main())


def test_it_subscribes_or_is_assigned_queues_but_not_both(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.pull_consumer(topics="orders") as consumer:
                with pytest.raises(StateError, match="has subscribed to orders"):
                    await consumer.assign(ORDERS)
                await consumer.unsubscribe("orders")
                assert consumer.queues == frozenset()
                await consumer.assign(ORDERS)
                with pytest.raises(StateError, match="has assigned queues"):
                    await consumer.subscribe("orders")

    memory.run(main())


@pytest.mark.parametrize("way", ["subscribe", "assign"])
def test_tags(way, memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            for tag in ("red", "blue", "green"):
                await site.send(4, TAGS=tag)
            async with site.pull_consumer() as consumer:
                if way == "subscribe":
                    await consumer.subscribe("orders", tags="red || green")
                else:
                    await consumer.assign(ORDERS, tags="red || green")
                found = await take(consumer, 8)
                assert {message.tag for message in found} == {"red", "green"}
                assert len(found) == 8
                await consumer.commit()
            assert sum([await site.offset(queue) for queue in range(4)]) == 12
            with pytest.raises(InvalidInput, match="by tags or by SQL, not both"):
                await site.pull_consumer().subscribe("orders", tags="a", sql="a > 1")

    memory.run(main())


def test_another_filter_for_the_same_topic(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.pull_consumer(topics=Subscription("orders", "red")) as consumer:
                await site.send(4, TAGS="red")
                await take(consumer, 4)
                await consumer.commit()
                await consumer.subscribe("orders", tags="blue")
                await soon(lambda: len(consumer.queues) == 4)
                await site.send(4, TAGS="red")
                await site.send(4, TAGS="blue")
                assert {message.tag for message in await take(consumer, 4)} == {"blue"}

    memory.run(main())


def test_a_topic_that_is_made_later_is_found(memory, tmp_path):
    async def main() -> None:
        async with (
            Site(memory, tmp_path) as site,
            site.pull_consumer(topics="orders") as consumer,
        ):
            assert consumer.queues == frozenset()
            await site.topic()
            sent = await site.send(4)
            found = []
            while len(found) < 4:
                found += await consumer.poll(timeout=60)
            assert sorted(bodies(found)) == sorted(sent)
            with pytest.raises(NoRoute):
                await consumer.queues_of("nothing")

    memory.run(main())


def test_broadcasting_keeps_offsets_in_a_file(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path / "site") as site:
            await site.topic()
            sent = await site.send(8)
            how = {"topics": "orders", "broadcast": True, "offsets_directory": str(tmp_path)}
            async with (
                site.pull_consumer("c1", **how) as one,
                site.pull_consumer("c2", **how) as two,
            ):
                for each in (one, two):
                    assert each.queues == frozenset(ORDERS)
                    assert sorted(bodies(await take(each, 8))) == sorted(sent)
                await one.commit()
            kept = {
                file.parts[-3].partition("@")[2]: sum(read_offsets(file).values())
                for file in tmp_path.rglob("offsets.json")
            }
            assert kept["c1"] == 8
            assert kept["c2"] < 8  # what its last poll gave is not known to be dealt with
            sent = await site.send(4)
            async with site.pull_consumer("c1", **how) as one:
                assert sorted(bodies(await take(one, 4))) == sorted(sent)

    memory.run(main())


def test_pausing(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            async with site.pull_consumer(topics="orders", pull_wait=0.2) as consumer:
                consumer.pause(ORDERS[0], ORDERS[1])
                await site.send(8)
                found = await take(consumer, 4)
                assert {message.queue for message in found} == set(ORDERS[2:])
                assert await consumer.poll(timeout=0.3) == []
                consumer.resume(ORDERS[0])
                assert {message.queue for message in await take(consumer, 2)} == {ORDERS[0]}
                consumer.pause("orders")
                await site.send(4)
                assert await consumer.poll(timeout=0.3) == []
                consumer.resume()
                assert len(await take(consumer, 6)) == 6
                with pytest.raises(StateError, match="is not this consumer's"):
                    consumer.pause(MessageQueue("orders", "broker-z", 0))

    anywhere.run(main())


def test_a_seek_keeps_a_pause(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(4, queues=1)
            async with site.pull_consumer(topics="orders") as consumer:
                consumer.pause(ORDERS[0])
                await consumer.seek(ORDERS[0], 2)
                assert await consumer.poll() == []
                consumer.resume(ORDERS[0])
                assert bodies(await consumer.poll()) == [b"2", b"3"]

    memory.run(main())


# --- limits and problems --------------------------------------------------------------------------


def test_no_more_is_read_than_may_wait(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(100, queues=1)
            how = {"topics": "orders", "flow_messages": 10, "pull_batch": 4, "alarm_after": 5.0}
            async with site.pull_consumer(**how) as consumer:
                await asyncio.sleep(20)
                queue = consumer._work.holding.queues[ORDERS[0]]
                assert len(queue.in_flight) == 12
                (problem,) = consumer.problems
                assert "nothing more is read: 12 messages are out" in str(problem)
                await consumer.poll(2)
                assert consumer.problems == []
                assert len(await take(consumer, 98)) == 98

    memory.run(main())


def test_reading_goes_on_after_a_restart_of_the_broker(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(3, queues=1)
            async with site.pull_consumer(topics="orders") as consumer:
                assert len(await take(consumer, 3)) == 3
                await site.stop("a")
                await asyncio.sleep(5)
                await site.start("a")
                sent = await site.send(3, queues=1)
                assert bodies(await take(consumer, 3)) == sent

    memory.run(main())


# --- life -----------------------------------------------------------------------------------------


def test_use_before_the_start_and_after_the_end(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            consumer = site.pull_consumer()
            await consumer.assign(ORDERS[:1])
            with pytest.raises(StateError, match="has not been started"):
                await consumer.poll()
            async with consumer:
                assert consumer.state is ServiceState.RUNNING
                assert consumer.queues == {ORDERS[0]}
                waiting = asyncio.create_task(consumer.poll(timeout=None))
                await asyncio.sleep(1)
                await consumer.close()
                assert await waiting == []
            assert consumer.state is ServiceState.SHUTDOWN
            for use in (
                consumer.poll(),
                consumer.commit(),
                consumer.seek("orders", 0),
                consumer.committed(),
                consumer.subscribe("orders"),
                consumer.assign(()),
                consumer.start(),
            ):
                with pytest.raises(ClosedError, match="was closed"):
                    await use

    memory.run(main())


def test_mistakes_are_told(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(8)
            with pytest.raises(InvalidInput, match="DEFAULT_CONSUMER"):
                site.pull_consumer(group="DEFAULT_CONSUMER")
            with pytest.raises(InvalidInput, match="takes 'earliest'"):
                site.pull_consumer(start="beginning")
            async with site.pull_consumer(topics="orders") as consumer:
                with pytest.raises(InvalidInput, match="has no offset 99: it has those from 0 on"):
                    await consumer.seek(ORDERS[0], 99)
                with pytest.raises(InvalidInput, match="is meant for one queue, and these are 4"):
                    await consumer.seek("orders", 1)
                with pytest.raises(InvalidInput, match="'begin' is no place in a queue"):
                    await consumer.seek("orders", "begin")
                with pytest.raises(InvalidInput, match="no time zone"):
                    await consumer.seek("orders", datetime(2026, 1, 1))
                with pytest.raises(StateError, match="no queue of topic payments"):
                    await consumer.seek("payments", "earliest")
                with pytest.raises(StateError, match="is not this consumer's of group billing now"):
                    await consumer.seek(MessageQueue("orders", "broker-a", 9), "earliest")

    memory.run(main())
