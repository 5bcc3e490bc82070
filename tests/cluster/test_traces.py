"""Traces in RocketMQ's format: what producers and consumers tell, and that it disturbs nothing."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from gantrymq.client.hooks import ConsumeHook, SendHook
from gantrymq.client.producer import AsyncProducer
from gantrymq.client.tracing import EXCEPTION, FAILED, SUCCESS, TIME_OUT
from gantrymq.errors import ReplyError, SendFailed
from gantrymq.model import Message
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Recalled,
    Sent,
    TracedType,
    TransactionEnded,
    read_records,
)
from gantrymq.rules.redelivery import RetryLater
from gantrymq.wire import properties, record
from tests.cluster.consumers import Seen, Site, soon

TRACES = "RMQ_SYS_TRACE_TOPIC"


def producer(site: Site, **how) -> AsyncProducer:
    asked = {
        "group": "shop",
        "name_servers": site.names.address,
        "network": site.where.network,
        "trace": True,
        "close_timeout": 5.0,
    }
    return AsyncProducer(**(asked | how))


async def stored(site: Site, topic: str = TRACES, queues: int = 8):
    """The messages of a topic, from all its queues."""
    found = []
    for queue_id in range(queues):
        request = PullMessage(
            group="looker",
            topic=topic,
            queue_id=queue_id,
            offset=0,
            flags=int(PullFlag.SUBSCRIPTION),
            subscription="*",
        )
        try:
            found += record.iterate((await site.ask(request)).body)
        except ReplyError:
            continue
    return found


async def traces(site: Site, topic: str = TRACES):
    """Every record that was traced."""
    return [
        one
        for message in await stored(site, topic)
        for one in read_records(message.content().decode())
    ]


def of(kind, records):
    return [one for one in records if isinstance(one, kind)]


# --- producers ------------------------------------------------------------------------------------


def test_nothing_is_traced_unless_asked_for(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site, trace=False) as shop:
                await shop.send("orders", b"one beer")
                assert shop.traces_dropped == 0
            assert await traces(site) == []

    memory.run(main())


def test_sends_are_traced_with_all_that_consoles_show(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                receipt = await shop.send("orders", b"one beer", tag="drinks", keys=["k1", "k2"])
                plain = await shop.send("orders", b"x" * 5000)
                late = await shop.send("orders", b"later", delay_level=3)
                keyed = await shop.send("orders", b"in order", order_key="a")
            found = {one.message_id: one for one in of(Sent, await traces(site))}
            assert len(found) == 4
            first = found[receipt.message_id]
            assert (first.group, first.topic, first.tags, first.keys) == (
                "shop", "orders", "drinks", "k1 k2",
            )  # fmt: skip
            assert (first.offset_id, first.store_host) == (
                receipt.offset_id, site.brokers["a"].address,
            )  # fmt: skip
            assert (first.region, first.type, first.success) == (
                "DefaultRegion", TracedType.NORMAL, True,
            )  # fmt: skip
            assert first.body_length == 8
            assert first.cost_ms >= 0
            assert found[plain.message_id].keys is None
            assert found[plain.message_id].body_length == 5000
            assert found[late.message_id].type is TracedType.DELAYED
            assert found[keyed.message_id].type is TracedType.NORMAL  # 4.x knows no other

    anywhere.run(main())


def test_a_trace_is_found_by_the_ids_and_keys_it_tells_of(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                receipt = await shop.send("orders", b"one beer", keys=["k1", "k2"])
            (carrier,) = await stored(site)
            keys = carrier.properties[properties.KEYS].split()
            assert keys == [receipt.message_id, "k1", "k2"]

    memory.run(main())


def test_each_message_of_a_batch_has_a_trace_of_its_own(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                messages = [Message("orders", b"%d" % n, tag=f"t{n}") for n in range(5)]
                receipts = await shop.send_batch(messages)
            found = of(Sent, await traces(site))
            assert {one.message_id for one in found} == {one.message_id for one in receipts}
            assert {one.offset_id for one in found} == {one.offset_id for one in receipts}
            assert {one.tags for one in found} == {f"t{n}" for n in range(5)}

    memory.run(main())


def test_many_traces_travel_together(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                sends = [await shop.send_soon("orders", b"x") for _ in range(250)]
                ids = {one.message_id for one in await asyncio.gather(*sends)}
            assert {one.message_id for one in await traces(site)} == ids
            assert len(await stored(site)) <= 10

    memory.run(main())


def test_both_ends_of_transactions_are_traced(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site, checker=lambda _: True) as shop:
                async with shop.transaction("orders", b"yes", keys="k1") as good:
                    pass
                with pytest.raises(ZeroDivisionError):
                    async with shop.transaction("orders", b"no") as bad:
                        raise ZeroDivisionError
            found = await traces(site)
            halves = {one.message_id: one for one in of(Sent, found)}
            assert {one.type for one in halves.values()} == {TracedType.HALF}
            ends = {one.message_id: one for one in of(TransactionEnded, found)}
            assert set(ends) == set(halves) == {good.receipt.message_id, bad.receipt.message_id}
            end = ends[good.receipt.message_id]
            assert (end.state, end.from_check, end.keys) == ("COMMIT_MESSAGE", False, "k1")
            assert end.transaction_id == good.transaction_id
            assert end.store_host == site.brokers["a"].address
            assert ends[bad.receipt.message_id].state == "ROLLBACK_MESSAGE"

    memory.run(main())


def test_an_end_that_the_broker_had_to_ask_for_is_traced_so(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site, checker=lambda _: True) as shop:
                async with shop.transaction("orders", b"?") as open_one:
                    await open_one.leave_open()
                seen = Seen()
                async with site.consumer(seen):
                    await soon(lambda: seen.messages, 300)
            states = {
                (one.state, one.from_check) for one in of(TransactionEnded, await traces(site))
            }
            assert {("UNKNOW", False), ("COMMIT_MESSAGE", True)} <= states

    memory.run(main())


def test_taking_a_message_back_is_traced(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                receipt = await shop.send("orders", b"later", delay=timedelta(minutes=5))
                await shop.recall(receipt.recall_handle)
            (told,) = of(Recalled, await traces(site))
            assert (told.message_id, told.topic) == (receipt.message_id, "orders")
            assert told.success

    memory.run(main())


def test_traces_go_to_the_topic_that_is_named(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.topic("watched", 2)
            async with producer(site, trace_topic="watched") as shop:
                await shop.send("orders", b"one beer")
            assert len(await traces(site, "watched")) == 1
            assert await traces(site) == []

    memory.run(main())


def test_what_cannot_be_traced_is_dropped_and_counted_and_told_of(memory, tmp_path, caplog):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site, trace_topic="SCHEDULE_TOPIC_XXXX") as shop:
                for _ in range(3):
                    await shop.send("orders", b"one beer")
                await soon(lambda: shop.traces_dropped == 3)
                assert (await shop.send("orders", b"one more")).stored_safely

    with caplog.at_level(logging.WARNING, "gantrymq.client"):
        memory.run(main())
    told = [entry.getMessage() for entry in caplog.records]
    assert sum("traces of shop cannot be sent to SCHEDULE_TOPIC_XXXX" in one for one in told) == 1
    assert any("4 traces of shop were dropped" in one for one in told)


def test_a_full_row_of_traces_holds_up_no_send(memory, tmp_path, monkeypatch):
    monkeypatch.setattr("gantrymq.client.tracing._WAITING", 10)

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                sends = [shop.send_nowait("orders", b"x") for _ in range(50)]
                assert len(await asyncio.gather(*sends)) == 50
                dropped = shop.traces_dropped
                assert dropped > 0
            assert len(await traces(site)) == 50 - dropped

    memory.run(main())


def test_no_broker_holds_up_the_end_for_longer_than_it_may(memory, tmp_path):
    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with Site(memory, tmp_path) as site:
            await site.topic()
            shop = producer(site, close_timeout=2.0)
            await shop.start()
            await shop.send("orders", b"one beer")
            await site.stop("a")
            began = loop.time()
            await shop.close()
            assert loop.time() - began < 10.0  # of virtual time: 2 s, and what the rest takes
            assert shop.traces_dropped == 1

    memory.run(main())


# --- consumers ------------------------------------------------------------------------------------


def test_handling_is_traced_before_and_after(anywhere, tmp_path):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            seen = Seen()
            async with producer(site, trace=False) as shop:
                receipt = await shop.send("orders", b"one beer", keys="k1")
            async with site.consumer(seen, trace=True):
                await soon(lambda: seen.messages)
            begun, ended = await traces(site)
            assert isinstance(begun, ConsumeBegun)
            assert isinstance(ended, ConsumeEnded)
            assert begun.message_id == ended.message_id == receipt.message_id
            assert begun.request_id == ended.request_id
            assert (begun.group, begun.retries, begun.keys) == ("billing", 0, "k1")
            assert begun.region == "DefaultRegion"
            assert (ended.success, ended.context_code, ended.group) == (True, SUCCESS, "billing")

    anywhere.run(main())


def test_failures_are_traced_for_what_they_are(memory, tmp_path):
    def handle(message):
        if message.body == b"later":
            raise RetryLater("not yet", after=timedelta(hours=1))
        if message.body == b"broken":
            raise ValueError("no good")

    async def slow(message):
        await asyncio.sleep(1000)

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.topic("slow")
            await site.send_one(b"later")
            await site.send_one(b"broken")
            await site.send_one(b"slow", "slow")
            async with site.consumer(handle, trace=True):
                await asyncio.sleep(5)
            async with site.consumer(
                slow, group="slow", topics="slow", trace=True, handler_timeout=10.0
            ):
                await asyncio.sleep(20)
            ended = of(ConsumeEnded, await traces(site))
            assert {one.context_code for one in ended} == {EXCEPTION, FAILED, TIME_OUT}
            assert not any(one.success for one in ended)

    memory.run(main())


def test_a_loop_that_takes_messages_is_traced_too(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            await site.send(3)
            async with site.consumer(None, trace=True) as consumer:
                taken = 0
                async for message in consumer:
                    taken += 1
                    if taken == 2:
                        consumer.retry(message, reason="later")
                    if taken == 3:
                        consumer.done(message)
                        break
            found = await traces(site)
            assert len(of(ConsumeBegun, found)) == 3
            codes = sorted(one.context_code for one in of(ConsumeEnded, found))
            assert codes == [SUCCESS, SUCCESS, FAILED]

    memory.run(main())


def test_consumers_of_traces_trace_nothing(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                await shop.send("orders", b"one beer")
            seen = Seen()
            async with site.consumer(seen, topics=TRACES, trace=True):
                await soon(lambda: seen.messages)
                await asyncio.sleep(5)
            assert len(await traces(site)) == 1

    memory.run(main())


# --- hooks ----------------------------------------------------------------------------------------


class Noting(SendHook):
    def __init__(self) -> None:
        self.said: list[tuple[str, object]] = []

    def check(self, attempt):
        self.said.append(("check", attempt.queue.broker))
        if attempt.draft.messages[0].tag == "forbidden":
            raise PermissionError("not this one")

    def before(self, attempt):
        self.said.append(("before", attempt.draft.kind.value))
        attempt.draft.properties["stamp"] = "seen"

    def after(self, attempt):
        self.said.append(("after", attempt.error or attempt.receipt))
        raise RuntimeError("a hook that fails")

    def ended(self, end):
        self.said.append(("ended", end.decision.name))


def test_send_hooks_see_every_kind_of_send(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            hook = Noting()
            async with producer(site, hooks=[hook], trace=False, checker=lambda _: True) as shop:
                receipt = await shop.send("orders", b"normal")
                await shop.send("orders", b"late", delay_level=1)
                await shop.send_oneway("orders", b"one way")
                async with shop.transaction("orders", b"half"):
                    pass
                with pytest.raises(PermissionError):
                    await shop.send("orders", b"no", tag="forbidden")
            assert [what for name, what in hook.said if name == "before"] == [
                "normal", "delayed", "normal", "half",
            ]  # fmt: skip
            ends = [what for name, what in hook.said if name == "after"]
            assert ends[0] == receipt
            assert ends[2] is None  # nobody answers a one-way message
            assert ("ended", "COMMIT") in hook.said
            assert hook.said[-1] == ("check", "broker-a")  # forbidden, and nothing after it
            found = await stored(site, "orders", 4)
            assert {m.properties["stamp"] for m in found} == {"seen"}

    memory.run(main())


def test_send_hooks_see_each_attempt_and_how_it_failed(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path, ("a", "b")) as site:
            await site.topic()
            hook = Noting()
            async with producer(site, hooks=[hook], trace=False) as shop:
                await shop.send("orders", b"first")
                await site.stop("a")
                await site.stop("b")
                hook.said.clear()
                with pytest.raises(SendFailed):
                    await shop.send("orders", b"nobody is there")
            errors = [what for name, what in hook.said if name == "after"]
            assert len(errors) == 3
            assert all(isinstance(error, Exception) for error in errors)

    memory.run(main())


class Watching(ConsumeHook):
    def __init__(self) -> None:
        self.said: list[tuple[str, object]] = []

    def before(self, handling):
        handling.notes[self] = len(handling.messages)
        self.said.append(("before", handling.group))

    def after(self, handling):
        self.said.append((f"after {handling.notes[self]}", handling.error))
        raise RuntimeError("a hook that fails")


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_consume_hooks_see_lists_and_failures(memory, tmp_path, kind):
    failure = ValueError("no good")

    async def handle(messages):
        raise failure

    def handle_in_a_thread(messages):
        raise failure

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            await site.send(3, queues=1)
            hook = Watching()
            handler = handle if kind == "async" else handle_in_a_thread
            consumer = site.consumer(None, topics=(), hooks=[hook])
            await consumer.subscribe("orders", handler, batch=3)
            async with consumer:
                await soon(lambda: len(hook.said) >= 2)
            assert hook.said[:2] == [("before", "billing"), ("after 3", failure)]

    memory.run(main())
