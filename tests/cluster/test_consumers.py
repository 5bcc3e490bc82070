"""Consumers of a whole cluster: rows D1 to D9 of what the client has to do, in one process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from datetime import timedelta

import pytest

from gantrymq.errors import InvalidInput, ReplyError, StateError
from gantrymq.flows.groups import REASON, TRACEBACK
from gantrymq.model import MessageQueue, Subscription
from gantrymq.protocol.group_settings import GroupSettings, PutGroup
from gantrymq.protocol.locks import LockQueues
from gantrymq.protocol.offsets import UpdateConsumerOffset
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.resets import ResetOffsets
from gantrymq.rules.allocation import IN_TURN, by_consistent_hash
from gantrymq.rules.redelivery import GIVE_UP, GiveUp, RetryLater, RetryPolicy
from gantrymq.wire import record
from tests.cluster.consumers import Seen, Site, soon

ORDERS = [MessageQueue("orders", "broker-a", number) for number in range(4)]


async def dead_letters(site, group="billing"):
    """What is in the dead-letter topic of a group."""
    request = PullMessage(
        group="looker",
        topic=f"%DLQ%{group}",
        queue_id=0,
        offset=0,
        flags=int(PullFlag.SUBSCRIPTION),
        subscription="*",
    )
    try:
        return list(record.iterate((await site.ask(request)).body))
    except ReplyError:
        return []


async def until_dead(site, count, limit=60.0):
    end = asyncio.get_running_loop().time() + limit
    while len(found := await dead_letters(site)) < count:
        assert asyncio.get_running_loop().time() < end
        await asyncio.sleep(0.2)
    return found


# --- handling -------------------------------------------------------------------------------------


def test_messages_are_handled_and_their_offsets_committed(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            bodies = await site.send(10)
            seen = Seen()
            async with site.consumer(seen) as consumer:
                await soon(lambda: seen.has(bodies))
                bodies += await site.send(10)
                await soon(lambda: seen.has(bodies))
                assert consumer.queues == {*ORDERS, MessageQueue("%RETRY%billing", "broker-a", 0)}
            assert sum([await site.offset(queue) for queue in range(4)]) == 20
            assert not seen.repeats

    anywhere.run(main())


def test_offsets_are_committed_every_five_seconds(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            seen = Seen()
            async with site.consumer(seen, pull_wait=100.0):
                await site.send(4)
                await soon(lambda: len(seen.messages) == 4)
                await asyncio.sleep(5)
                assert [await site.offset(queue) for queue in range(4)] == [1, 1, 1, 1]

    memory.run(main())


@pytest.mark.parametrize("kind", ["tasks", "threads"])
@pytest.mark.parametrize("batch", [None, 5])
def test_handlers_of_every_kind(kind, batch, anywhere, tmp_path):
    async def main() -> None:
        got: list[object] = []

        async def in_a_task(given: object) -> None:
            await asyncio.sleep(0)
            got.append(given)

        handler = got.append if kind == "threads" else in_a_task
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            bodies = await site.send(40)
            async with site.consumer(handler, batch=batch):
                flat = lambda: [m for g in got for m in (g if isinstance(g, list) else [g])]  # noqa: E731
                await soon(lambda: len(flat()) >= 40)
            assert sorted(message.body for message in flat()) == sorted(bodies)
            if batch is not None:
                assert max(len(given) for given in got) == 5

    anywhere.run(main())


def test_as_many_handlers_as_are_allowed_are_at_work(anywhere, tmp_path):
    async def main() -> None:
        gate = asyncio.Event()
        at_work = 0

        async def handle(_message: object) -> None:
            nonlocal at_work
            at_work += 1
            await gate.wait()

        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            await site.send(40)
            async with site.consumer(handle, concurrency=7):
                await soon(lambda: at_work == 7)
                await asyncio.sleep(0.1)
                assert at_work == 7
                gate.set()
                await soon(lambda: at_work == 40)

    anywhere.run(main())


@pytest.mark.parametrize("world_name", ["tcp on uvloop"])
def test_as_many_threads_as_are_allowed_are_at_work(world_name, anywhere, tmp_path):
    if anywhere.loop == "virtual":
        return

    async def main() -> None:
        gate = threading.Event()
        at_work: list[object] = []

        def handle(message: object) -> None:
            at_work.append(message)
            assert gate.wait(20)

        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            await site.send(40)
            async with site.consumer(handle, concurrency=7):
                await soon(lambda: len(at_work) == 7)
                await asyncio.sleep(0.1)
                assert len(at_work) == 7
                gate.set()
                await soon(lambda: len(at_work) == 40)

    anywhere.run(main())


def test_a_loop_takes_messages_one_by_one(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            bodies = await site.send(8, queues=1)
            got = []
            async with site.consumer() as consumer:
                async for message in consumer:
                    got.append(message.body)
                    if len(got) == 8:
                        break
            assert got == bodies
            assert await site.offset(0) == 7  # the last was not said to be done

            async with site.consumer() as consumer:
                async for message in consumer:
                    assert message.body == bodies[-1]
                    consumer.done(message)
                    break
            assert await site.offset(0) == 8

    anywhere.run(main())


def test_several_loops_share_the_messages(memory, tmp_path):
    async def main() -> None:
        got: list[list[bytes]] = [[], []]

        async def take(consumer: object, number: int) -> None:
            async for message in consumer:  # type: ignore[attr-defined]
                await asyncio.sleep(1)
                got[number].append(message.body)

        async with Site(memory, tmp_path) as site:
            await site.topic()
            bodies = await site.send(10)
            async with site.consumer() as consumer, asyncio.TaskGroup() as group:
                group.create_task(take(consumer, 0))
                group.create_task(take(consumer, 1))
                await soon(lambda: len(got[0]) + len(got[1]) == 10)
                report = await consumer.close()
            assert report.is_clean
            assert sorted(got[0] + got[1]) == sorted(bodies)
            assert len(got[0]) == 5

    memory.run(main())


# --- failures -------------------------------------------------------------------------------------


def test_one_bad_handler_does_not_stop_the_others(memory, tmp_path):
    async def main() -> None:
        good, tries = Seen(), []

        async def bad(message: object) -> None:
            tries.append(message)
            raise ValueError("no")

        async with Site(memory, tmp_path) as site:
            await site.topic("orders")
            await site.topic("payments")
            async with site.consumer(bad) as consumer:
                await consumer.subscribe("payments", good)
                await site.send(5, "orders")
                bodies = await site.send(5, "payments")
                await soon(lambda: good.has(bodies) and len(tries) == 5)

    memory.run(main())


def test_a_failed_message_comes_again_with_growing_delays(memory, tmp_path):
    async def main() -> None:
        loop, times = asyncio.get_running_loop(), []

        async def handle(message: object) -> None:
            times.append((loop.time(), message.topic, message.retries))  # type: ignore[attr-defined]
            if len(times) < 4:
                raise ValueError("not yet")

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(1)
            async with site.consumer(handle):
                await soon(lambda: len(times) == 4, 200)
            assert [(topic, retries) for _, topic, retries in times] == [
                ("orders", number) for number in range(4)
            ]
            gaps = [round(b[0] - a[0]) for a, b in itertools.pairwise(times)]
            assert gaps == [10, 30, 60]
            assert await site.offset(0) == 1

    memory.run(main())


def test_the_policy_says_when_and_how_often(memory, tmp_path):
    async def main() -> None:
        loop, times = asyncio.get_running_loop(), {"slow": [], "wrong": [], "later": []}

        async def handle(message: object) -> None:
            kind = message.tag  # type: ignore[attr-defined]
            times[kind].append(loop.time())
            if kind == "slow":
                raise TimeoutError("slow")
            if kind == "wrong":
                raise KeyError("wrong")
            raise RetryLater("later", after=timedelta(seconds=5))

        policy = RetryPolicy(
            max_retries=2,
            by_error={OSError: timedelta(seconds=30), LookupError: GIVE_UP},
        )
        async with Site(memory, tmp_path) as site:
            await site.topic()
            for kind in times:
                await site.send(1, TAGS=kind)
            async with site.consumer(handle, retry=policy):
                found = await until_dead(site, 3, 200)
            gaps = {
                kind: [round(b - a) for a, b in itertools.pairwise(at)]
                for kind, at in times.items()
            }
            assert gaps == {"slow": [30, 30], "wrong": [], "later": [5, 5]}
            reasons = {message.find("TAGS"): message.find(REASON) for message in found}
            assert reasons == {
                "slow": "TimeoutError: slow",
                "wrong": "KeyError: 'wrong'",
                "later": "RetryLater: later",
            }

    memory.run(main())


def test_what_is_given_up_says_why(memory, tmp_path):
    async def main() -> None:
        async def handle(_message: object) -> None:
            raise GiveUp("it makes no sense")

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(1, TAGS="x", mine="1")
            async with site.consumer(handle):
                (found,) = await until_dead(site, 1)
            assert found.body == b"0"
            assert found.find(REASON) == "GiveUp: it makes no sense"
            assert "raise GiveUp" in (found.find(TRACEBACK) or "")
            assert found.find("DLQ_ORIGIN_TOPIC") == found.find("RETRY_TOPIC") == "orders"
            assert (found.find("mine"), found.find("TAGS")) == ("1", "x")
            assert await site.offset(0) == 1

    memory.run(main())


def test_of_a_list_some_messages_can_fail(memory, tmp_path):
    async def main() -> None:
        got = []

        async def handle(messages: list) -> None:
            got.append([message.body for message in messages])
            if len(got) == 1:
                raise RetryLater("these", after=timedelta(seconds=1), messages=messages[1:3])

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(4, queues=1)
            async with site.consumer(handle, batch=10):
                await soon(lambda: len(got) >= 2 and sum(map(len, got)) == 6)
            assert sorted(body for batch in got[1:] for body in batch) == [b"1", b"2"]

    memory.run(main())


def test_a_handler_that_takes_too_long_loses_its_message(memory, tmp_path, caplog):
    async def main() -> None:
        cancelled, tries = [], []

        async def handle(message: object) -> None:
            tries.append(message)
            if len(tries) == 1:
                try:
                    await asyncio.sleep(1e6)
                except asyncio.CancelledError:
                    cancelled.append(message)
                    raise

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(1)
            async with site.consumer(handle, handler_timeout=100.0):
                await soon(lambda: len(tries) == 2, 300)
            assert len(cancelled) == 1
            assert tries[1].retries == 1
        assert "was not done after" in caplog.text

    memory.run(main())


def test_a_message_that_nobody_takes_back_is_handled_here_again(memory, tmp_path):
    async def main() -> None:
        tries = []
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(1)

            async def handle(message: object) -> None:
                tries.append((message.topic, message.retries))  # type: ignore[attr-defined]
                if len(tries) == 1:
                    memory.network.at(site.brokers["a"].address).refuses = True
                    memory.network.at(site.brokers["a"].address).cut()
                    raise ValueError("no")
                memory.network.at(site.brokers["a"].address).refuses = False

            async with site.consumer(handle):
                await soon(lambda: len(tries) == 2)
                assert tries == [("orders", 0), ("orders", 1)]

    memory.run(main())


# --- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_in_order_even_when_some_fail(kind, anywhere, tmp_path):
    async def main() -> None:
        got, failed = [], set()

        def note(message):
            if message.body not in failed and message.body in (b"3", b"4", b"9"):
                failed.add(message.body)
                raise ValueError("once")
            got.append((message.queue.queue_id, int(message.body)))

        async def in_a_task(message):
            await asyncio.sleep(0.001)
            note(message)

        handler = note if kind == "threads" else in_a_task
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            await site.send(40)
            retry = RetryPolicy(pause=timedelta(seconds=0.05))
            async with site.consumer(handler, ordered=True, retry=retry):
                await soon(lambda: len(got) == 40)
            for queue in range(4):
                numbers = [number for at, number in got if at == queue]
                assert numbers == sorted(numbers)
            assert len(failed) == 3
            assert [await site.offset(queue) for queue in range(4)] == [10, 10, 10, 10]

    anywhere.run(main())


def test_ordered_messages_are_tried_in_place_until_they_are_given_up(memory, tmp_path):
    async def main() -> None:
        got = []

        async def handle(message):
            got.append((message.body, message.retries))
            if message.body == b"0":
                raise ValueError("never")

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(2, queues=1)
            retry = RetryPolicy(max_retries=3)
            async with site.consumer(handle, ordered=True, retry=retry):
                await soon(lambda: len(got) == 5)
                (dead,) = await until_dead(site, 1)
            assert got == [(b"0", 0), (b"0", 1), (b"0", 2), (b"0", 3), (b"1", 0)]
            assert dead.find(REASON) == "ValueError: never"

    memory.run(main())


def test_an_ordered_loop(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            bodies = await site.send(6, queues=2)
            got = []
            async with site.consumer(ordered=True) as consumer:
                async for message in consumer:
                    got.append(message)
                    if len(got) == 6:
                        consumer.done(message)
                        break
            for queue in range(2):
                assert [m.body for m in got if m.queue.queue_id == queue] == bodies[queue::2]
            assert [await site.offset(queue) for queue in range(2)] == [3, 3]

    memory.run(main())


def test_ordered_queues_are_handed_over_only_when_their_handler_is_done(memory, tmp_path):
    async def main() -> None:
        at, overlaps, got = {}, [], []

        def handler(name):
            async def handle(message):
                queue = message.queue
                if at.get(queue) is not None:
                    overlaps.append((queue, name, at[queue]))
                at[queue] = name
                try:
                    await asyncio.sleep(1.0)
                    got.append((queue.queue_id, int(message.body)))
                finally:
                    at[queue] = None

            return handle

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(60)
            async with site.consumer(handler("c1"), "c1", ordered=True) as one:
                await soon(lambda: len(got) > 8)
                async with site.consumer(handler("c2"), "c2", ordered=True) as two:
                    await soon(lambda: len(set(two.queues)) >= 2)
                    await soon(lambda: len(got) > 30)
                    assert not one.queues & two.queues
                await soon(lambda: len(got) >= 60, 200)
            assert not overlaps
            for queue in range(4):
                numbers = [number for at_, number in got if at_ == queue]
                assert numbers == sorted(numbers)
                assert len(numbers) == 15

    memory.run(main())


def test_locks_are_kept_for_as_long_as_it_takes(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(seen, ordered=True):
                await asyncio.sleep(200)
                bodies = await site.send(8)
                await soon(lambda: seen.has(bodies))
                wanted = LockQueues(group="billing", client_id="somebody", queues=set(ORDERS))
                assert (await site.ask(wanted)).locked == set()
            assert (await site.ask(wanted)).locked == set(ORDERS)

    memory.run(main())


# --- sharing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [None, IN_TURN, by_consistent_hash()])
def test_members_share_the_queues(strategy, memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        how = {} if strategy is None else {"strategy": strategy}
        async with Site(memory, tmp_path, ("a", "b")) as site:
            await site.topic()
            everything = {
                MessageQueue("orders", f"broker-{name}", number)
                for name in "ab"
                for number in range(4)
            }

            def owned(*members):
                parts = [{q for q in m.queues if q.topic == "orders"} for m in members]
                return sum(map(len, parts)) == 8 and set().union(*parts) == everything

            async with site.consumer(seen.by_name("c1"), "c1", **how) as one:
                await soon(lambda: owned(one))
                async with (
                    site.consumer(seen.by_name("c2"), "c2", **how) as two,
                    site.consumer(seen.by_name("c3"), "c3", **how) as three,
                ):
                    await soon(lambda: owned(one, two, three), 5)
                    bodies = await site.send(24) + await site.send(24, broker="b")
                    await soon(lambda: seen.has(bodies))
                    assert {name for name, got in seen.by.items() if got} == {"c1", "c2", "c3"}
                await soon(lambda: owned(one), 5)
                bodies += await site.send(8)
                await soon(lambda: seen.has(bodies))
            assert not seen.repeats

    memory.run(main())


def test_a_member_that_dies_leaves_its_queues_to_the_others(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            one, two = site.consumer(seen.by_name("c1"), "c1"), site.consumer(seen, "c2")
            await one.start()
            await two.start()
            await soon(lambda: len(one.queues & set(ORDERS)) == 2)
            await two._engine.pool.close()  # as a crash would: no goodbye
            await soon(lambda: set(ORDERS) <= one.queues, 5)
            bodies = await site.send(8)
            await soon(lambda: seen.has(bodies))
            assert len(seen.by["c1"]) == 8
            await one.close()
            await two.close()

    memory.run(main())


def test_broadcasting_gives_everything_to_everybody(memory, tmp_path):
    async def main() -> None:
        seen = {"c1": Seen(), "c2": Seen()}
        where = {"offsets_directory": str(tmp_path / "offsets"), "broadcast": True}
        async with Site(memory, tmp_path) as site:
            await site.topic()
            bodies = await site.send(8)
            async with (
                site.consumer(seen["c1"], "c1", **where) as one,
                site.consumer(seen["c2"], "c2", **where),
            ):
                await soon(lambda: all(s.has(bodies) for s in seen.values()))
                assert one.queues == set(ORDERS)
            more = await site.send(4)
            async with site.consumer(seen["c1"], "c1", **where):
                await soon(lambda: seen["c1"].has(more))
            assert not seen["c1"].repeats
            with pytest.raises(ReplyError):
                await site.offset(0)

    memory.run(main())


# --- what is wanted -------------------------------------------------------------------------------


def test_tags(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            for tag in ("Aa", "BB", "paid"):
                await site.send(2, TAGS=tag)
            async with site.consumer(seen, topics={"orders": "Aa || paid"}) as consumer:
                await soon(lambda: len(seen.messages) == 4)
                assert {message.tag for message in seen.messages} == {"Aa", "paid"}
                await consumer.subscribe("orders", seen, tags="BB")
                await site.send(2, TAGS="BB")
                await soon(lambda: len(seen.messages) == 6)
            assert sum([await site.offset(queue) for queue in range(4)]) == 8

    memory.run(main())


def test_topics_come_and_go(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic("orders")
            await site.topic("payments")
            async with site.consumer(seen) as consumer:
                await consumer.subscribe("payments", seen)
                bodies = await site.send(4, "payments")
                await soon(lambda: seen.has(bodies))
                await consumer.unsubscribe("payments")
                assert {queue.topic for queue in consumer.queues} == {"orders", "%RETRY%billing"}
                await site.send(4, "payments")
                bodies = await site.send(4, "orders")
                await soon(lambda: seen.has(bodies))
            assert len(seen.messages) == 8
            assert await site.offset(0, "payments") == 1

    memory.run(main())


def test_a_topic_that_is_made_later_is_found(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site, site.consumer(seen):
            await asyncio.sleep(10)
            await site.topic()
            bodies = await site.send(4)
            await soon(lambda: seen.has(bodies), 31)

    memory.run(main())


@pytest.mark.parametrize(("start", "first"), [("earliest", 0), ("latest", 8)])
def test_a_new_group_begins_where_it_is_told(start, first, memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(8)
            async with site.consumer(seen, start=start) as consumer:
                await soon(lambda: len(consumer.queues) == 5)
                await asyncio.sleep(1)
                await site.send(8)
                await soon(lambda: len(seen.messages) == 16 - first)
            assert min(int(body) for body in seen.bodies) == first

    memory.run(main())


def test_pausing(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(seen, pull_wait=1.0) as consumer:
                await soon(lambda: len(consumer.queues) == 5)
                consumer.pause()
                await asyncio.sleep(5)
                bodies = await site.send(8)
                await asyncio.sleep(20)
                assert not seen.messages
                consumer.resume()
                await soon(lambda: seen.has(bodies))

    memory.run(main())


def test_no_more_is_read_than_may_be_out(memory, tmp_path):
    async def main() -> None:
        gate, begun = asyncio.Event(), []

        async def handle(message):
            begun.append(message)
            await gate.wait()

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(100, queues=1)
            async with site.consumer(handle, flow_messages=10, pull_batch=4) as consumer:
                await soon(lambda: len(begun) >= 10)
                await asyncio.sleep(5)
                queue = consumer._work.holding.queues[ORDERS[0]]
                assert len(queue.in_flight) == 12
                assert "the limit is 10" in (queue.blocked or "")
                gate.set()
                await soon(lambda: len(begun) == 100)

    memory.run(main())


# --- offsets that move ----------------------------------------------------------------------------


def test_a_reset_is_followed_at_once(memory, tmp_path, caplog):
    caplog.set_level(logging.INFO)

    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            bodies = await site.send(8)
            async with site.consumer(seen):
                await soon(lambda: seen.has(bodies))
                await asyncio.sleep(6)
                await site.ask(
                    ResetOffsets(topic="orders", group="billing", timestamp_ms=0, force=True)
                )
                await soon(lambda: len(seen.messages) == 16, 20)
                await asyncio.sleep(6)
            assert [await site.offset(queue) for queue in range(4)] == [2, 2, 2, 2]
            assert set(seen.repeats.values()) == {2}

    memory.run(main())


def test_an_offset_beyond_the_end_goes_on_at_the_end(memory, tmp_path, caplog):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(4, queues=1)
            group = {"group": "billing", "topic": "orders", "queue_id": 0}
            await site.ask(PutGroup(settings=GroupSettings(group="billing")))
            await site.ask(UpdateConsumerOffset(offset=100, **group))
            async with site.consumer(seen):
                await asyncio.sleep(5)
                bodies = await site.send(4, queues=1)
                await soon(lambda: seen.has(bodies))
            assert len(seen.messages) == 4
        assert "ends at 4, before offset 100" in caplog.text

    memory.run(main())


# --- the end --------------------------------------------------------------------------------------


def test_closing_finishes_what_was_read(memory, tmp_path):
    async def main() -> None:
        got = []

        async def handle(message):
            await asyncio.sleep(0.5)
            got.append(message)

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(8, queues=1)
            consumer = site.consumer(handle, concurrency=2)
            await consumer.start()
            await soon(lambda: len(got) == 2)
            report = await consumer.close(10.0)
            assert (report.finished, report.given_back, report.left) == (6, 0, {})
            assert report.is_clean
            assert await site.offset(0) == 8

    memory.run(main())


def test_closing_has_a_deadline(memory, tmp_path):
    async def main() -> None:
        got = []

        async def handle(message):
            await asyncio.sleep(1 if message.body == b"0" else 1e6)
            got.append(message)

        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(5, queues=1)
            consumer = site.consumer(handle, concurrency=3)
            await consumer.start()
            await asyncio.sleep(0.5)
            began = asyncio.get_running_loop().time()
            report = await consumer.close(2.0)
            assert asyncio.get_running_loop().time() - began < 3
            assert (report.finished, report.given_back) == (1, 3)
            assert report.left == {ORDERS[0]: 1}
            assert str(report) == f"1 finished, 3 given back, 1 left in {ORDERS[0]}"
            assert await site.offset(0) == 4

    memory.run(main())


def test_a_cancelled_program_leaves_nothing_behind(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()

            async def program() -> None:
                async with site.consumer(seen):
                    await asyncio.sleep(1e6)

            task = asyncio.create_task(program())
            bodies = await site.send(4)
            await soon(lambda: seen.has(bodies))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert [await site.offset(queue) for queue in range(4)] == [1, 1, 1, 1]

    memory.run(main())


# --- mistakes -------------------------------------------------------------------------------------


def test_mistakes_are_told(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            with pytest.raises(InvalidInput, match="DEFAULT_CONSUMER"):
                site.consumer(print, group="DEFAULT_CONSUMER")
            with pytest.raises(InvalidInput, match="takes 'earliest'"):
                site.consumer(print, start="beginning")
            consumer = site.consumer(print)
            with pytest.raises(
                InvalidInput, match="either every topic of a consumer has a handler"
            ):
                await consumer.subscribe("payments")
            with pytest.raises(InvalidInput, match="by tags or by SQL, not both"):
                await consumer.subscribe("payments", print, tags="a", sql="a > 1")
            with pytest.raises(StateError, match="has not been started"):
                consumer.pause()
            with pytest.raises(ReplyError):  # which the broker says of the expression
                async with site.consumer(print, topics=Subscription("orders", "a >", "sql")):
                    pass

    memory.run(main())
