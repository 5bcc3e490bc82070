"""What brokers ask of consumers, what consumers say when something stands still, and faults."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gantrymq.model import MessageQueue
from gantrymq.protocol.enums import ConsumeResult
from gantrymq.protocol.resets import GetClientOffsets, OffsetTable, ResetClientOffsets
from gantrymq.protocol.running import ConsumeDirectly, GetRunningInfo
from gantrymq.rules.redelivery import RetryLater
from tests.cluster.consumers import Seen, Site, soon

ORDERS = [MessageQueue("orders", "broker-a", number) for number in range(4)]


def client_id(consumer):
    return consumer._engine.client_id


# --- requests -------------------------------------------------------------------------------------


def test_what_a_consumer_is_doing(memory, tmp_path):
    async def main() -> None:
        gate, seen = asyncio.Event(), Seen()

        async def handle_slowly(message):
            await gate.wait()

        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(handle_slowly, topics={"orders": "a || b"}) as consumer:
                await site.send(4, TAGS="a")
                await asyncio.sleep(31)
                info = await site.ask(
                    GetRunningInfo(group="billing", client_id=client_id(consumer), stacks=True)
                )
                gate.set()
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert info.properties["concurrency"] == "20"
            assert int(info.properties["PROP_CONSUMER_START_TIMESTAMP"]) > 1e12
            wants = {each.topic: each.tags for each in info.subscriptions}
            assert wants == {"orders": {"a", "b"}, "%RETRY%billing": set()}
            assert set(ORDERS) < set(info.queues)
            one = info.queues[ORDERS[0]]
            assert (one.commit_offset, one.cached, one.cached_min_offset) == (0, 1, 0)
            assert info.topics["orders"].pull_tps > 0
            assert "handle_slowly" in info.stacks
            assert "thread MainThread" in info.stacks
            assert "gantrymq rebalance" in info.stacks
            assert not seen.messages

    memory.run(main())


def test_where_a_consumer_stands(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(seen) as consumer:
                await site.send(6)
                await soon(lambda: len(seen.messages) == 6)
                found = await site.ask(GetClientOffsets(topic="orders", group="billing"))
                assert found.by_client == {
                    client_id(consumer): dict(zip(ORDERS, [2, 2, 1, 1], strict=True))
                }

    memory.run(main())


def test_a_client_is_told_to_go_on_elsewhere(memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(seen):
                bodies = await site.send(8)
                await soon(lambda: seen.has(bodies))
                table = OffsetTable({ORDERS[0]: 0, ORDERS[1]: 1})
                order = ResetClientOffsets(
                    topic="orders", group="billing", timestamp_ms=0, table=table
                )
                (member,) = site.brokers["a"].broker.consumers.members.by_group["billing"].values()
                member.peer.notify(order)
                await soon(lambda: len(seen.messages) == 11)
                await asyncio.sleep(6)
                assert [await site.offset(queue) for queue in range(4)] == [2, 2, 2, 2]

    memory.run(main())


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (None, ConsumeResult.SUCCESS),
        (ValueError("no"), ConsumeResult.THREW),
        (RetryLater("no"), ConsumeResult.LATER),
    ],
)
def test_one_message_is_consumed_directly(error, result, memory, tmp_path):
    async def main() -> None:
        got = []

        async def handle(message):
            got.append((message.topic, message.body))
            if len(got) > 1 and error is not None:
                raise error

        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(handle) as consumer:
                sent = await site.send_one(b"x")
                await soon(lambda: len(got) == 1)
                reply = await site.ask(
                    ConsumeDirectly(
                        group="billing",
                        client_id=client_id(consumer),
                        message_id=sent.message_id,
                        topic="orders",
                    )
                )
            assert got == [("orders", b"x")] * 2
            assert reply.result == result
            assert reply.explanation == (None if error is None else f"{type(error).__name__}: no")

    memory.run(main())


# --- guards ---------------------------------------------------------------------------------------


def test_members_that_want_different_things_are_told_of(memory, tmp_path, caplog):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with (
                site.consumer(Seen(), "c1", topics={"orders": "a"}),
                site.consumer(Seen(), "c2", topics={"orders": "b", "payments": "*"}),
            ):
                await asyncio.sleep(10)

    memory.run(main())
    (told, *_) = [r.message for r in caplog.records if "want different things" in r.message]
    assert "orders: 127.0.0.1@c" in told
    assert "wants tags a" in told
    assert "wants tags b" in told
    assert "payments" in told
    assert "wants nothing" in told


def test_members_that_agree_are_not(memory, tmp_path, caplog):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(Seen(), "c1"), site.consumer(Seen(), "c2"):
                await asyncio.sleep(10)

    memory.run(main())
    assert "different" not in caplog.text


def test_a_queue_that_nobody_reads_is_told_of(memory, tmp_path, caplog):
    caplog.set_level(logging.INFO, "gantrymq.client")

    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(seen) as consumer:
                await asyncio.sleep(5)
                assert not consumer.problems
                place = memory.network.at(site.brokers["a"].address)
                place.refuses = True
                place.cut()
                await asyncio.sleep(45)
                assert consumer.problems
                place.refuses = False
                await asyncio.sleep(20)
                assert not consumer.problems
                bodies = await site.send(4)
                await soon(lambda: seen.has(bodies))

    memory.run(main())
    (told,) = [r.message for r in caplog.records if "stand still" in r.message]
    assert "orders[broker-a:0], orders[broker-a:1]" in told
    assert "connection refused" in told
    assert "that is over" in caplog.text


def test_a_queue_that_another_has_locked_is_told_of(memory, tmp_path, caplog):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            site.brokers["a"].broker.locks.lock("billing", "a stranger", {ORDERS[2]})
            async with site.consumer(Seen(), ordered=True) as consumer:
                await asyncio.sleep(45)
                assert ORDERS[2] not in consumer.queues
                await asyncio.sleep(30)
                assert ORDERS[2] in consumer.queues

    memory.run(main())
    assert "orders[broker-a:2]: it is ours and cannot be taken: another member has" in caplog.text


def test_a_handler_that_hangs_is_told_of(memory, tmp_path, caplog):
    async def main() -> None:
        gate = asyncio.Event()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(40, queues=1)

            async def hang(message):
                if message.offset == 3:
                    await gate.wait()

            async with site.consumer(hang, flow_span=10):
                await asyncio.sleep(45)
                gate.set()

    memory.run(main())
    assert "orders[broker-a:0]: nothing more is read" in caplog.text
    assert "offset 3 has not been dealt with" in caplog.text


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["broker", "names", "both"])
@pytest.mark.parametrize("ordered", [False, True])
def test_consumers_go_on_after_a_restart(what, ordered, memory, tmp_path):
    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path, ("a", "b")) as site:
            await site.topic()
            async with (
                site.consumer(seen.by_name("c1"), "c1", ordered=ordered) as one,
                site.consumer(seen.by_name("c2"), "c2", ordered=ordered) as two,
            ):
                bodies = await site.send(8) + await site.send(8, broker="b")
                await soon(lambda: seen.has(bodies))
                await asyncio.sleep(6)
                if what != "names":
                    await site.stop("a")
                if what != "broker":
                    await site.stop_names()
                await asyncio.sleep(20)
                if what != "broker":
                    await site.start_names()
                if what != "names":
                    await site.start("a")
                more = await site.send(8) + await site.send(8, broker="b")
                await soon(lambda: seen.has(more), 30 if what != "both" else 65)
                await asyncio.sleep(45)
                everything = {q for q in one.queues | two.queues if q.topic == "orders"}
                assert len(everything) == 8
                assert not one.queues & two.queues
                last = await site.send(8) + await site.send(8, broker="b")
                await soon(lambda: seen.has(last))
                await asyncio.sleep(1)
            assert not set(seen.repeats) & set(last)

    memory.run(main())


def test_a_broker_whose_route_was_gone_is_read_again_within_seconds(memory, tmp_path):
    """The name server drops it at once, so it is in no route until it registers again."""

    async def main() -> None:
        seen, loop = Seen(), asyncio.get_running_loop()
        async with Site(memory, tmp_path, ("a", "b")) as site:
            await site.topic()
            async with site.consumer(seen):
                await site.stop("a")
                await asyncio.sleep(5)  # it is noticed that the route is without it
                await site.start("a")
                bodies, began = await site.send(4), loop.time()
                await soon(lambda: seen.has(bodies))
                assert loop.time() - began < 8, "and not at the next look at the routes"

    memory.run(main())


def test_a_broker_that_went_silent(memory, tmp_path):
    """Pulls that hang are given up, and asked again when it speaks."""

    async def main() -> None:
        seen = Seen()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with site.consumer(seen):
                bodies = await site.send(4)
                await soon(lambda: seen.has(bodies))
                place = memory.network.at(site.brokers["a"].address)
                place.stall()
                await asyncio.sleep(100)
                place.go_on()
                await asyncio.sleep(1)
                more = await site.send(4)
                await soon(lambda: seen.has(more), 30)

    memory.run(main())
