"""What tests of programs that use Gantry are given: a platform of their own, and questions to it.

```python
def test_a_failed_order_comes_again(gantry):
    with gantry.consumer("billing", topics="orders", handler=bill):
        place_order(gantry.url)
        gantry.clock.advance("1 min")
    gantry.assert_published("invoices", count=1)
```

In tests that are `async def` it is the same, awaited. A test that asks for nothing that only a
platform in memory can do runs against a real one, too: `pytest --gantry=rmq://localhost:9876`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import Any, Final, Protocol, TypeAlias

from gantrymq.client.admin import Admin, AsyncAdmin
from gantrymq.client.consumer import AsyncConsumer
from gantrymq.client.producer import AsyncProducer
from gantrymq.client.pull_consumer import AsyncPullConsumer
from gantrymq.client.reader import AsyncReader, Reader
from gantrymq.client.sync_consumer import Consumer
from gantrymq.client.sync_producer import Producer
from gantrymq.client.sync_pull_consumer import PullConsumer
from gantrymq.errors import (
    BrokerFailure,
    ConsumerOffline,
    GantryError,
    GroupNotFound,
    NoRoute,
    StateError,
    TopicNotFound,
)
from gantrymq.flows.offsets import Start
from gantrymq.model import ReceivedMessage
from gantrymq.settings import seconds
from gantrymq.testing.clock import VirtualLoop
from gantrymq.testing.embedded import Embedded
from gantrymq.testing.virtual_thread import VirtualThread

Body: TypeAlias = bytes | str | Mapping[str, Any] | list[Any]
Span: TypeAlias = str | float | timedelta
Test: TypeAlias = Callable[[ReceivedMessage], object]

_SHOWN: Final = 10
_LOOKS: Final = 0.1
_ON_THE_WAY: Final = 0.25
"""Seconds in which what fell due at the very end of a span reaches those who wait for it."""


class NeedsMemory(GantryError):
    """Asked of a real cluster, where nobody can do it: time cannot leap, nobody may be killed."""


class Site(Protocol):
    """The platform that a test talks to."""

    @property
    def url(self) -> str:
        """What programs are to connect to."""
        ...

    def wall_ns(self) -> int:
        """Its clock."""
        ...


class RealSite:
    """A cluster that somebody else runs; each test has a namespace of its own there."""

    def __init__(self, url: str) -> None:
        address, mark, query = url.partition("?")
        self.url = f"{address.rstrip('/')}/test-{token_hex(4)}{mark}{query}"

    def wall_ns(self) -> int:
        """The real time."""
        return round(datetime.now(UTC).timestamp() * 1e9)


class AsyncClock:
    """The time of the platform, and of every client in this process."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def now(self) -> datetime:
        """What time it is there."""
        return datetime.fromtimestamp(self._site.wall_ns() / 1e9, UTC)

    async def advance(self, span: Span) -> None:
        """Let `span` pass (`"16 min"`, seconds, a timedelta), with all that falls due meanwhile."""
        if not isinstance(self._site, Embedded):
            raise NeedsMemory(f"time cannot be made to pass at {self._site.url}")
        await self._site.start()
        if not isinstance(asyncio.get_running_loop(), VirtualLoop):
            raise StateError(
                "the loop of this test goes by the real time: pytest-asyncio from 1.4 on lets the"
                " fixture bring its own loop, and without that plug-in it does so, too"
            )
        await asyncio.sleep(seconds(span) + _ON_THE_WAY)


class AsyncGantry:
    """A platform for one test, on the loop of the test."""

    def __init__(self, site: Site) -> None:
        self._site: Final = site
        self.clock: Final = AsyncClock(site)

    @property
    def url(self) -> str:
        """What programs are to connect to."""
        return self._site.url

    async def close(self) -> None:
        """End the platform, on its loop."""
        if isinstance(self._site, Embedded):
            await self._site.close()

    # --- clients --------------------------------------------------------------------------------

    def producer(self, **settings: Any) -> AsyncProducer:
        """A producer of the platform, to be used with `async with`."""
        return AsyncProducer(self.url, **settings)

    def consumer(self, group: str, *, start: Start = "earliest", **settings: Any) -> AsyncConsumer:
        """A member of a group, to be used with `async with`."""
        return AsyncConsumer(self.url, group=group, start=start, **settings)

    def pull_consumer(
        self, group: str, *, start: Start = "earliest", **settings: Any
    ) -> AsyncPullConsumer:
        """The same, for messages that are asked for."""
        return AsyncPullConsumer(self.url, group=group, start=start, **settings)

    def admin(self) -> AsyncAdmin:
        """Who looks after the platform, to be used with `async with`."""
        return AsyncAdmin(self.url)

    def reader(self, **settings: Any) -> AsyncReader:
        """Who reads topics without a group, to be used with `async with`."""
        return AsyncReader(self.url, **settings)

    # --- what there is --------------------------------------------------------------------------

    async def create_topic(self, topic: str, **settings: Any) -> None:
        """Make a topic with such settings, instead of having the first message make it."""
        async with self.admin() as admin:
            await admin.create_topic(topic, **settings)

    async def published(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic, in the order of storing; none if there is no such topic."""
        async with self.reader() as reader:
            try:
                found = [message async for message in reader.messages(topic)]
            except (NoRoute, TopicNotFound):
                return []
        return sorted(
            found, key=lambda message: (message.stored.store_ms, message.stored.log_offset)
        )

    async def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """The messages that a group has given up."""
        return await self.published(f"%DLQ%{group}")

    async def assert_published(
        self, topic: str, body: Body | None = None, *, count: int | None = None,
        tag: str | None = None, key: str | None = None, where: Test | None = None,
        **properties: str,
    ) -> list[ReceivedMessage]:  # fmt: skip
        """Fail unless the topic has such a message, or exactly `count` of them; returns them.

        A body that is a mapping or a list is compared as JSON.
        """
        there = await self.published(topic)
        wanted = _Wanted(body, tag, key, where, properties)
        found = [message for message in there if wanted.fits(message)]
        if (count is None and not found) or (count is not None and len(found) != count):
            raise AssertionError(_missing(topic, there, len(found), count, wanted))
        return found

    async def assert_nothing_published(self, topic: str) -> None:
        """Fail if the topic has a message."""
        await self.assert_published(topic, count=0)

    async def settle(self, group: str, *, within: Span = "1 h") -> None:
        """Return when a group has dealt with every message that it can get now."""
        deadline = self.clock.now() + timedelta(seconds=seconds(within))
        async with self.admin() as admin:
            while left := await _backlog(admin, group):
                if self.clock.now() >= deadline:
                    raise AssertionError(f"group {group} is not done: {left}")
                await asyncio.sleep(_LOOKS)

    # --- faults ---------------------------------------------------------------------------------

    async def kill(self, broker: str | None = None) -> None:
        """End a broker as `kill -9` does."""
        await (await self._embedded("a broker is not killed")).kill(broker)

    async def restart(self, broker: str | None = None) -> None:
        """Start a broker that was killed, with what it had written."""
        await (await self._embedded("a broker is not started")).restart(broker)

    @asynccontextmanager
    async def partition(self, broker: str | None = None) -> AsyncIterator[None]:
        """Have nobody reach a broker until the block ends."""
        site = await self._embedded("a network is not cut")
        with site.partition(broker):
            yield

    async def _embedded(self, what: str) -> Embedded:
        if not isinstance(self._site, Embedded):
            raise NeedsMemory(f"{what} at {self.url}")
        await self._site.start()
        return self._site


class Clock:
    """The same, for tests that block."""

    def __init__(self, clock: AsyncClock, run: Callable[[Any], Any]) -> None:
        self._clock = clock
        self._run = run

    def now(self) -> datetime:
        """What time it is there."""
        return self._clock.now()

    def advance(self, span: Span) -> None:
        """Let `span` pass (`"16 min"`, seconds, a timedelta), with all that falls due meanwhile."""
        self._run(self._clock.advance(span))


class Gantry:
    """A platform for one test, on a thread of its own."""

    def __init__(self, inner: AsyncGantry, thread: VirtualThread | None) -> None:
        self._inner: Final = inner
        self._run: Final[Callable[[Any], Any]] = asyncio.run if thread is None else thread.call
        self.clock: Final = Clock(inner.clock, self._run)

    @property
    def url(self) -> str:
        """What programs are to connect to."""
        return self._inner.url

    # --- clients --------------------------------------------------------------------------------

    def producer(self, **settings: Any) -> Producer:
        """A producer of the platform, to be used with `with`."""
        return Producer(self.url, **settings)

    def consumer(self, group: str, *, start: Start = "earliest", **settings: Any) -> Consumer:
        """A member of a group, to be used with `with`."""
        return Consumer(self.url, group=group, start=start, **settings)

    def pull_consumer(
        self, group: str, *, start: Start = "earliest", **settings: Any
    ) -> PullConsumer:
        """The same, for messages that are asked for."""
        return PullConsumer(self.url, group=group, start=start, **settings)

    def admin(self) -> Admin:
        """Who looks after the platform, to be used with `with`."""
        return Admin(self.url)

    def reader(self, **settings: Any) -> Reader:
        """Who reads topics without a group, to be used with `with`."""
        return Reader(self.url, **settings)

    # --- what there is --------------------------------------------------------------------------

    def create_topic(self, topic: str, **settings: Any) -> None:
        """Make a topic with such settings, instead of having the first message make it."""
        self._run(self._inner.create_topic(topic, **settings))

    def published(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic, in the order of storing; none if there is no such topic."""
        found: list[ReceivedMessage] = self._run(self._inner.published(topic))
        return found

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """The messages that a group has given up."""
        found: list[ReceivedMessage] = self._run(self._inner.dead_letters(group))
        return found

    def assert_published(
        self, topic: str, body: Body | None = None, *, count: int | None = None,
        tag: str | None = None, key: str | None = None, where: Test | None = None,
        **properties: str,
    ) -> list[ReceivedMessage]:  # fmt: skip
        """Fail unless the topic has such a message, or exactly `count` of them; returns them.

        A body that is a mapping or a list is compared as JSON.
        """
        asked = self._inner.assert_published(
            topic, body, count=count, tag=tag, key=key, where=where, **properties
        )
        found: list[ReceivedMessage] = self._run(asked)
        return found

    def assert_nothing_published(self, topic: str) -> None:
        """Fail if the topic has a message."""
        self._run(self._inner.assert_nothing_published(topic))

    def settle(self, group: str, *, within: Span = "1 h") -> None:
        """Return when a group has dealt with every message that it can get now."""
        self._run(self._inner.settle(group, within=within))

    # --- faults ---------------------------------------------------------------------------------

    def kill(self, broker: str | None = None) -> None:
        """End a broker as `kill -9` does."""
        self._run(self._inner.kill(broker))

    def restart(self, broker: str | None = None) -> None:
        """Start a broker that was killed, with what it had written."""
        self._run(self._inner.restart(broker))

    @contextmanager
    def partition(self, broker: str | None = None) -> Iterator[None]:
        """Have nobody reach a broker until the block ends."""
        cut = self._inner.partition(broker)
        self._run(cut.__aenter__())
        try:
            yield
        finally:
            self._run(cut.__aexit__(None, None, None))


# --- making them ----------------------------------------------------------------------------------


@contextmanager
def blocking(url: str | None = None, **how: Any) -> Iterator[Gantry]:
    """A platform for a test that blocks; with `url` one that somebody else runs."""
    if url is not None:
        yield Gantry(AsyncGantry(RealSite(url)), None)
        return
    thread = VirtualThread()
    try:
        site = Embedded(thread=thread, **how)
        site.announce()
        try:
            thread.call(site.start())
            yield Gantry(AsyncGantry(site), thread)
        finally:
            thread.call(site.close())
    finally:
        thread.stop()


@contextmanager
def awaited(url: str | None = None, **how: Any) -> Iterator[AsyncGantry]:
    """A platform for a test that awaits: it starts on the loop on which it is first used.

    Whoever ends that loop ends the platform before, if it can; else it ends here.
    """
    if url is not None:
        yield AsyncGantry(RealSite(url))
        return
    site = Embedded(**how)
    site.announce()
    try:
        yield AsyncGantry(site)
    finally:
        loop = site.loop
        if loop is not None and not loop.is_closed() and not loop.is_running():
            loop.run_until_complete(site.close())
        site.forget()


# --- comparing ------------------------------------------------------------------------------------


class _Wanted:
    """What a message is to be like."""

    def __init__(
        self,
        body: Body | None,
        tag: str | None,
        key: str | None,
        where: Test | None,
        properties: Mapping[str, str],
    ) -> None:
        self._body = body
        self._tag = tag
        self._key = key
        self._where = where
        self._properties = properties

    def fits(self, message: ReceivedMessage) -> bool:
        return (
            (self._body is None or _same(self._body, message.body))
            and (self._tag is None or message.tag == self._tag)
            and (self._key is None or self._key in message.keys)
            and all(message.find(name) == text for name, text in self._properties.items())
            and (self._where is None or bool(self._where(message)))
        )

    def __str__(self) -> str:
        named = {"body": self._body, "tag": self._tag, "key": self._key, "where": self._where}
        parts = [f"{name}={value!r}" for name, value in named.items() if value is not None]
        parts += [f"{name}={value!r}" for name, value in self._properties.items()]
        return ", ".join(parts) or "any"


def _same(wanted: Body, body: bytes) -> bool:
    if isinstance(wanted, bytes):
        return body == wanted
    if isinstance(wanted, str):
        return body == wanted.encode()
    try:
        return bool(json.loads(body) == wanted)
    except ValueError:
        return False


def _missing(
    topic: str, there: list[ReceivedMessage], found: int, count: int | None, wanted: _Wanted
) -> str:
    number = "at least one" if count is None else str(count)
    lines = [
        f"expected {number} in {topic} ({wanted}), found {found}; of {len(there)} messages there:"
    ]
    lines += [
        f"  {message.queue} @ {message.offset}: {message.body[:80]!r}"
        f" tag={message.tag!r} keys={message.keys} {message.properties or ''}".rstrip()
        for message in there[:_SHOWN]
    ]
    if len(there) > _SHOWN:
        lines.append(f"  and {len(there) - _SHOWN} more")
    return "\n".join(lines)


async def _backlog(admin: AsyncAdmin, group: str) -> str:
    """What a group has still to do, in words; empty if nothing."""
    try:
        lag = await admin.group_lag(group)
        wanted = (await admin.group_members(group)).subscriptions
        begun = set(lag.topics)
        unread = [topic for topic in sorted(wanted) if topic not in begun]
        waiting = [topic for topic in unread if await _has_messages(admin, topic)]
    except (GroupNotFound, BrokerFailure, ConsumerOffline, NoRoute) as error:
        return str(error)
    return ", ".join(
        [f"{topic}: it has not committed anything" for topic in waiting]
        + [
            f"{one.queue}: {one.messages if one.messages is not None else one.why}"
            for one in lag.queues
            if one.messages != 0 and one.max_offset != one.min_offset
        ]
    )


async def _has_messages(admin: AsyncAdmin, topic: str) -> bool:
    try:
        return (await admin.topic_status(topic)).messages != 0
    except (NoRoute, TopicNotFound):
        return False
