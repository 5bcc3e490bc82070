"""`gantry bench`: how fast this cluster takes messages and gives them, from here.

Senders wait for each answer before they send the next message, so `--clients` is how many are under
way at a time, and latencies are those of single sends. A `roundtrip` measures from the send until
the handler has the message, by one clock, that of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli.latencies import Latencies
from gantrymq.cli.times import RATE, SPAN
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page

if TYPE_CHECKING:
    from gantrymq.model import Message, MessageQueue, ReceivedMessage

command = noun("bench", "Measure how fast a cluster is, from here.", "Measure.")

GROUP: Final = "gantry-bench"
_STAMP: Final = struct.Struct(">d")
_DRAIN: Final = 10.0


@dataclass(slots=True, kw_only=True)
class Load:
    """What is sent."""

    topic: str
    size: int
    clients: int
    count: int | None
    seconds: float
    rate: float
    batch: int = 1
    broker: str | None = None
    begun: int = 0
    sent: int = 0
    failed: int = 0
    first_error: str | None = None
    latencies: Latencies = field(default_factory=Latencies)
    elapsed: float = 0.0

    def body(self) -> bytes:
        """A body that says when it was made."""
        return _STAMP.pack(time.perf_counter()) + bytes(max(0, self.size - _STAMP.size))

    def is_over(self, start: float) -> bool:
        """Whether enough was sent."""
        if self.count is not None:
            return self.begun >= self.count
        return time.perf_counter() - start >= self.seconds


def _load_options(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--size", type=int, default=1024, show_default=True, help="Bytes each."),
            click.option("--clients", type=int, default=16, show_default=True, help="At a time."),
            click.option("--count", type=int, help="So many messages."),
            click.option("--seconds", type=SPAN, default=10.0, help="Or for so long.  [10s]"),
            click.option("--rate", type=RATE, default=0.0, help="So many a second at most."),
        )
    ):
        function = option(function)
    return function


@verb(command, "send")
@click.argument("topic")
@_load_options
@click.option("--batch", type=click.IntRange(1), default=1, help="So many in one request.")
@click.option("--broker", metavar="NAME", help="Only to this broker.")
def send(session: Session, topic: str, **given: Any) -> Page:
    """Send to TOPIC as fast as it goes, and show rate and latencies."""
    load = Load(topic=topic, **given)
    with session.bar("sending", load.count) as bar:
        _run(_send_all(session, load, bar))
    return _page(load)


@verb(command, "consume")
@click.argument("topic")
@click.option("--group", default=GROUP, show_default=True, help="As a member of this group.")
@click.option("--count", type=int, help="So many messages.")
@click.option("--seconds", type=SPAN, default=10.0, help="Or for so long.  [10s]")
@click.option("--clients", type=int, default=16, show_default=True, help="Handlers at a time.")
def consume(
    session: Session, topic: str, group: str, count: int | None, seconds: float, clients: int
) -> Page:
    """Consume TOPIC as fast as it goes, in a group of its own from the oldest message on.

    Latencies are from the send until here, by two clocks.
    """
    seen = Seen(count=count)
    with session.bar("consuming", count) as bar:
        _run(_consume(session, topic, group, seen, seconds, clients, bar))
    facts: list[tuple[Column, Any]] = [
        (Column("topic"), topic),
        (Column("messages", "count"), seen.messages),
        (Column("seconds", "span"), seen.elapsed),
        (Column("rate", "rate", "messages/s"), seen.rate),
        (Column("bytes_rate", "size", "bytes/s"), seen.bytes / seen.elapsed if seen.elapsed else 0),
        *seen.latencies.facts(),
    ]
    return Page(facts, {"latencies": seen.latencies.histogram()}, main="latencies")


@verb(command, "roundtrip")
@click.argument("topic")
@_load_options
def roundtrip(session: Session, topic: str, **given: Any) -> Page:
    """Send to TOPIC and consume it at the same time; latencies until the handler has each."""
    load, seen = Load(topic=topic, **given), Seen(by_stamp=True)
    group = f"{GROUP}-{os.getpid()}"
    try:
        with session.bar("round trips", load.count) as bar:
            _run(_roundtrip(session, load, group, seen, bar))
    finally:
        _forget(session, group)
    page = _page(load, seen.latencies)
    page.facts = [*page.facts, (Column("received", "count"), seen.messages)]
    return page


def _forget(session: Session, group: str) -> None:
    from gantrymq.errors import GantryError

    try:
        session.admin.delete_group(group)
    except GantryError as error:
        session.note(f"group {group} stays: {error}")


def _page(load: Load, latencies: Latencies | None = None) -> Page:
    found = load.latencies if latencies is None else latencies
    facts: list[tuple[Column, Any]] = [
        (Column("topic"), load.topic),
        (Column("messages", "count"), load.sent),
        (Column("failed", "count"), load.failed),
        (Column("seconds", "span"), load.elapsed),
        (Column("rate", "rate", "messages/s"), load.sent / load.elapsed if load.elapsed else 0.0),
        (
            Column("bytes_rate", "size", "bytes/s"),
            load.sent * load.size / load.elapsed if load.elapsed else 0,
        ),
        *found.facts(),
    ]
    if load.first_error is not None:
        facts.append((Column("first_error"), load.first_error))
    return Page(facts, {"latencies": found.histogram()}, main="latencies")


def _run(work: Any) -> None:
    from gantrymq.net import aio

    aio.run(work)


# --- sending --------------------------------------------------------------------------------------


async def _send_all(session: Session, load: Load, bar: Any) -> None:
    from gantrymq.client.producer import AsyncProducer

    queues = _queues_of(session, load)
    async with AsyncProducer(session.target.url, group=GROUP, **session.arguments()) as producer:
        start = time.perf_counter()
        turns = _Turns(start, load.rate)
        async with asyncio.TaskGroup() as tasks:
            for number in range(load.clients):
                queue = queues[number % len(queues)] if queues else None
                tasks.create_task(_sender(producer, load, start, turns, queue, bar))
        load.elapsed = time.perf_counter() - start


def _queues_of(session: Session, load: Load) -> list[MessageQueue]:
    """The queues of one broker, if only that is meant."""
    if load.broker is None:
        return []
    from gantrymq.errors import InvalidInput
    from gantrymq.flows.routing import publish_queues

    route = session.admin.topic_route(load.topic)
    found = [one for one in publish_queues(load.topic, route) if one.broker == load.broker]
    if not found:
        raise InvalidInput(f"broker {load.broker!r} has no queue of {load.topic} to send to")
    return found


class _Turns:
    """Whose turn it is when, of so many a second in all."""

    def __init__(self, start: float, rate: float) -> None:
        self._start = start
        self._rate = rate
        self._number = 0

    async def wait(self) -> None:
        if not self._rate:
            return
        ahead = self._start + self._number / self._rate - time.perf_counter()
        self._number += 1
        if ahead > 0:
            await asyncio.sleep(ahead)


async def _sender(
    producer: Any, load: Load, start: float, turns: _Turns, queue: MessageQueue | None, bar: Any
) -> None:
    from gantrymq.errors import GantryError

    where = {} if queue is None else {"queue": queue}
    while not load.is_over(start):
        await turns.wait()
        if load.is_over(start):
            return
        load.begun += load.batch
        began = time.perf_counter()
        try:
            if load.batch > 1:
                await producer.send_batch(_batch(load), **where)
            else:
                await producer.send(load.topic, load.body(), **where)
        except GantryError as error:
            load.failed += load.batch
            load.first_error = load.first_error or str(error)
            await asyncio.sleep(0.05)
            continue
        load.latencies.add(time.perf_counter() - began)
        load.sent += load.batch
        bar.add(load.batch)


def _batch(load: Load) -> list[Message]:
    from gantrymq.model import Message

    return [Message(load.topic, load.body()) for _ in range(load.batch)]


# --- consuming ------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was consumed."""

    count: int | None = None
    by_stamp: bool = False
    messages: int = 0
    bytes: int = 0
    latencies: Latencies = field(default_factory=Latencies)
    first: float = 0.0
    last: float = 0.0
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def elapsed(self) -> float:
        """Seconds from the first message to the last."""
        return self.last - self.first

    @property
    def rate(self) -> float | None:
        """Messages a second."""
        return (self.messages - 1) / self.elapsed if self.elapsed else None

    def take(self, message: ReceivedMessage) -> None:
        """One message."""
        now = time.perf_counter()
        self.first = self.first or now
        self.last = now
        self.messages += 1
        self.bytes += len(message.stored.body)
        if self.by_stamp:
            self.latencies.add(max(0.0, now - _STAMP.unpack_from(message.body)[0]))
        else:
            self.latencies.add(max(0.0, time.time() - message.stored.born_ms / 1000))
        if self.count is not None and self.messages >= self.count:
            self.done.set()


async def _consume(
    session: Session,
    topic: str,
    group: str,
    seen: Seen,
    seconds: float,
    clients: int,
    bar: Any,
) -> None:
    async with _consumer(session, topic, group, seen, clients, bar):
        await _in_time(seen.done, seconds)


def _consumer(session: Session, topic: str, group: str, seen: Seen, clients: int, bar: Any) -> Any:
    from gantrymq.client.consumer import AsyncConsumer

    async def handle(message: ReceivedMessage) -> None:
        seen.take(message)
        bar.add()

    return AsyncConsumer(
        session.target.url,
        group=group,
        topics=topic,
        handler=handle,
        concurrency=clients,
        start="earliest",
        **session.arguments(),
    )


async def _roundtrip(session: Session, load: Load, group: str, seen: Seen, bar: Any) -> None:
    class Quiet:
        def add(self, count: int = 1) -> None:
            pass

    session.admin.create_group(group)
    status = session.admin.topic_status(load.topic)
    if any(one.messages for one in status.queues):
        session.note(
            f"{load.topic} has {status.messages:,} messages already; only new ones are counted"
        )
        session.admin.reset_offsets(group, load.topic, "latest")
    async with _consumer(session, load.topic, group, seen, load.clients, bar):
        await _send_all(session, load, Quiet())
        seen.count = load.sent
        if seen.messages < load.sent:
            await _in_time(seen.done, _DRAIN)


async def _in_time(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
