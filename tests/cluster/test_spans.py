"""OpenTelemetry spans: what they say, how they hang together, and that nobody has to have it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode

from gantrymq.client.producer import AsyncProducer
from gantrymq.errors import SendFailed
from gantrymq.model import Message
from tests.cluster.consumers import Seen, Site, soon

KNOWN = {
    value
    for module in (messaging_attributes, error_attributes)
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
OURS = {
    "messaging.rocketmq.broker",
    "messaging.rocketmq.send_status",
    "messaging.rocketmq.message.retries",
}
"""What the conventions have no name for."""


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """OpenTelemetry set up as a program does it, for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)  # a program can do it only once
    yield exporter
    provider.shutdown()


def producer(site: Site, **how) -> AsyncProducer:
    asked = {"group": "shop", "name_servers": site.names.address, "network": site.where.network}
    return AsyncProducer(**(asked | how))


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def only(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    (span,) = named(exporter, name)
    return span


def ids(span) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id


# --- sends ----------------------------------------------------------------------------------------


def test_a_send_is_a_span_and_its_context_travels(anywhere, tmp_path, exported):
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            await site.topic()
            seen = Seen()
            async with producer(site) as shop, site.consumer(seen):
                receipt = await shop.send(
                    "orders", b"one beer", tag="drinks", keys=["k1"], order_key="a"
                )
                await soon(lambda: named(exported, "process orders"))
            sent, handled = only(exported, "send orders"), only(exported, "process orders")
            assert (sent.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
            told = dict(sent.attributes)
            assert told.pop("messaging.client.id") == shop.client_id
            assert told == {
                "messaging.system": "rocketmq",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": "orders",
                "messaging.destination.partition.id": str(receipt.queue.queue_id),
                "messaging.message.id": receipt.message_id,
                "messaging.message.body.size": 8,
                "messaging.rocketmq.broker": "broker-a",
                "messaging.rocketmq.message.type": "fifo",
                "messaging.rocketmq.message.tag": "drinks",
                "messaging.rocketmq.message.keys": ("k1",),
                "messaging.rocketmq.message.group": "a",
            }
            told = dict(handled.attributes)
            assert told["messaging.consumer.group.name"] == "billing"
            assert told["messaging.message.id"] == receipt.message_id
            assert told["messaging.rocketmq.consumption_model"] == "clustering"
            assert handled.parent.span_id == sent.context.span_id
            assert handled.context.trace_id == sent.context.trace_id
            (message,) = seen.messages
            trace_id, span_id = ids(sent)
            carried = message.properties["traceparent"]
            assert carried.startswith(f"00-{trace_id:032x}-{span_id:016x}-")

    anywhere.run(main())


def test_every_attribute_is_one_of_the_conventions_or_known_to_be_ours(memory, tmp_path, exported):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            seen = Seen()
            async with producer(site, checker=lambda _: True) as shop, site.consumer(seen):
                await shop.send("orders", b"1", tag="t", keys="k", delay_level=1)
                await shop.send_batch([Message("orders", b"2"), Message("orders", b"3")])
                async with shop.transaction("orders", b"4"):
                    pass
                await soon(lambda: len(named(exported, "process orders")) == 4)

    memory.run(main())
    used = {key for span in exported.get_finished_spans() for key in span.attributes}
    assert used - KNOWN == OURS & used
    assert "messaging.batch.message_count" in used
    types = {
        span.attributes.get("messaging.rocketmq.message.type")
        for span in exported.get_finished_spans()
    }
    assert {"delay", "transaction", "normal"} <= types


def test_a_send_is_a_child_of_what_its_sender_is_at(memory, tmp_path, exported):
    tracer = trace.get_tracer("shop")

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                with tracer.start_as_current_span("checkout") as at:
                    await shop.send("orders", b"1")
                    future = shop.send_nowait("orders", b"2")
                await future
                sends = named(exported, "send orders")
                assert [span.parent.span_id for span in sends] == [at.context.span_id] * 2

    memory.run(main())


def test_messages_gathered_on_the_way_have_spans_of_their_own(memory, tmp_path, exported):
    tracer = trace.get_tracer("shop")

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            seen = Seen()
            parents = []
            async with producer(site, auto_batch=True) as shop, site.consumer(seen):
                futures = []
                for n in range(3):
                    with tracer.start_as_current_span(f"request {n}") as at:
                        futures.append(shop.send_nowait("orders", b"%d" % n))
                        parents.append(at.context.span_id)
                await asyncio.gather(*futures)
                await soon(lambda: len(named(exported, "process orders")) == 3)
            sends = named(exported, "send orders")
            assert sorted(span.parent.span_id for span in sends) == sorted(parents)
            handled = named(exported, "process orders")
            assert {span.parent.span_id for span in handled} == {ids(span)[1] for span in sends}

    memory.run(main())


def test_a_batch_is_linked_to_its_messages_and_they_to_their_handling(memory, tmp_path, exported):
    async def handle(messages):
        assert trace.get_current_span().is_recording()

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic(queues=1)
            consumer = site.consumer(None, topics=())
            await consumer.subscribe("orders", handle, batch=10)
            async with producer(site) as shop:
                await shop.send_batch([Message("orders", b"%d" % n) for n in range(3)])
            async with consumer:
                await soon(lambda: named(exported, "process orders"))
        created = [ids(span) for span in named(exported, "create orders")]
        sent, handled = only(exported, "send orders"), only(exported, "process orders")
        assert sent.kind is SpanKind.CLIENT
        assert [ids(link) for link in sent.links] == created
        assert sorted(ids(link) for link in handled.links) == sorted(created)
        assert handled.parent is None
        assert handled.attributes["messaging.batch.message_count"] == 3

    memory.run(main())


def test_a_send_that_fails_says_so(memory, tmp_path, exported):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop:
                await shop.send("orders", b"first")
                await site.stop("a")
                with pytest.raises(SendFailed):
                    await shop.send("orders", b"second")
        first, second = named(exported, "send orders")
        assert first.status.status_code is StatusCode.UNSET
        assert second.status.status_code is StatusCode.ERROR
        assert second.attributes["error.type"] in ("SendFailed", "SendTimeout")
        assert second.events[0].name == "exception"

    memory.run(main())


# --- handling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_a_handler_works_inside_the_trace_of_its_message(memory, tmp_path, exported, kind):
    tracer = trace.get_tracer("billing")

    async def handle(message):
        await asyncio.sleep(0.01)
        with tracer.start_as_current_span("charge"):
            await asyncio.sleep(0.01)

    def handle_in_a_thread(message):
        with tracer.start_as_current_span("charge"):
            pass

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            handler = handle if kind == "async" else handle_in_a_thread
            async with producer(site) as shop, site.consumer(handler):
                for n in range(5):
                    await shop.send("orders", b"%d" % n)
                await soon(lambda: len(named(exported, "process orders")) == 5)
        handled = {ids(span) for span in named(exported, "process orders")}
        inner = named(exported, "charge")
        assert {(span.context.trace_id, span.parent.span_id) for span in inner} == handled
        assert not context.get_current()  # nothing is left behind

    memory.run(main())


def test_a_handler_that_fails_fails_its_span(memory, tmp_path, exported):
    class Declined(Exception):
        pass

    async def handle(message):
        raise Declined("no money")

    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop, site.consumer(handle):
                await shop.send("orders", b"1")
                await soon(lambda: named(exported, "process orders"))
        span = named(exported, "process orders")[0]
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "no money"
        assert span.attributes["error.type"].endswith("Declined")

    memory.run(main())


def test_a_loop_has_a_span_for_each_message_it_takes(memory, tmp_path, exported):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            async with producer(site) as shop, site.consumer(None) as consumer:
                for n in range(2):
                    await shop.send("orders", b"%d" % n)
                taken = 0
                async for message in consumer:
                    taken += 1
                    if taken == 2:
                        consumer.done(message)
                        break
        sends = {ids(span)[1] for span in named(exported, "send orders")}
        assert {span.parent.span_id for span in named(exported, "process orders")} == sends

    memory.run(main())


# --- where it is not wanted -----------------------------------------------------------------------


def test_it_can_be_switched_off(memory, tmp_path, exported):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            seen = Seen()
            async with (
                producer(site, telemetry=False) as shop,
                site.consumer(seen, telemetry=False),
            ):
                await shop.send("orders", b"1")
                await soon(lambda: seen.messages)
            assert "traceparent" not in seen.messages[0].properties

    memory.run(main())
    assert exported.get_finished_spans() == ()


def test_without_a_provider_nothing_is_added_to_messages(memory, tmp_path):
    async def main() -> None:
        async with Site(memory, tmp_path) as site:
            await site.topic()
            seen = Seen()
            async with producer(site) as shop, site.consumer(seen):
                await shop.send("orders", b"1")
                await soon(lambda: seen.messages)
            assert "traceparent" not in seen.messages[0].properties

    memory.run(main())


_IMPORTS = """
import sys
import gantrymq
from gantrymq import AsyncConsumer, AsyncProducer, Producer
assert not any(name.partition(".")[0] == "opentelemetry" for name in sys.modules)
sys.modules["opentelemetry"] = None  # as if it were not installed
from gantrymq.client.telemetry import handling_spans, send_spans
assert send_spans("me", None) is None
assert handling_spans("me", None, everything=False) is None
print("fine")
"""


def test_it_is_not_imported_before_somebody_starts_and_need_not_be_there():
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "fine\n", done.stderr
