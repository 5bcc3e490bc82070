"""Receive messages that nobody else has, and acknowledge each of them: RocketMQ 5's POP.

```python
with gantry.SimpleConsumer(
    "rmq://localhost:9876", group="billing", topics="orders", start="earliest"
) as consumer:
    while True:
        for message in consumer.receive():
            print(message.body)
            consumer.ack(message)
```

No member of the group owns a queue, so there is nothing to share out again when one comes or goes,
and a slow one holds up nobody else. The broker hides what it gives for a time (`invisible_for`);
what is not acknowledged until then is given to whoever asks next, and counts as one retry more.

| a member says | the broker |
|---|---|
| `ack` | does not give the message again |
| `change_invisibility` | hides it for another time, counted from now |
| `nack` | the same: it comes again after that time |
| `give_up` | puts it into the group's dead-letter topic |
| nothing | gives it again when its time is over |

This is a program of calls, with nothing that goes on between them but `renewing`. So the group has
no members that the broker would know of, and sends no heartbeats: a broker knows it by its calls.

RocketMQ: SimpleConsumer.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import Lock
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, Unpack

from gantrymq.client import loop_thread
from gantrymq.client.config import ClientArguments, ClientConfig, load_config
from gantrymq.client.consumer import Topics, subscriptions, wanted_of
from gantrymq.client.holding import Wanted, make_wanted
from gantrymq.client.identity import Origin, now_ms
from gantrymq.client.loop_thread import LoopThread
from gantrymq.client.reader import Places
from gantrymq.client.renewal import Renewal
from gantrymq.client.ways import blocking_for, pool_for
from gantrymq.errors import (
    ClosedError,
    GantryError,
    InvalidInput,
    NoRoute,
    NotSupported,
    StateError,
    TransportError,
)
from gantrymq.flows import groups, popping
from gantrymq.flows.groups import Failed, Verdict
from gantrymq.flows.popping import Asked, Popped, Wish
from gantrymq.flows.pulling import exact_tags
from gantrymq.flows.routing import MASTER
from gantrymq.model import ReceivedMessage
from gantrymq.net.aio import AsyncRuntime, Pool
from gantrymq.net.network import Network
from gantrymq.protocol.names import wrap
from gantrymq.protocol.pop_handles import PopHandle
from gantrymq.protocol.validation import check_consumer_group
from gantrymq.runtime import PipingRuntime, run_blocking

log = logging.getLogger("gantrymq.client")

Begin: TypeAlias = Literal["earliest", "latest"]
"""Where a group begins that is new to a queue."""
Span: TypeAlias = float | timedelta
"""Seconds, or as a timedelta."""

INVISIBLE: Final = 30.0
WAIT: Final = 15.0
MAX_RETRIES: Final = 16
_LONGEST: Final = 3 * 24 * 3600.0
"""Seconds for which brokers keep anything for later."""
_PAUSE: Final = 0.5
"""Seconds until brokers are asked again that could not be reached."""
_RENEWED_FOR: Final = 3600.0


class PoppedMessage(ReceivedMessage):
    """A message that is hidden from others, until it is acknowledged or its time is over.

    RocketMQ: MessageView.
    """

    __slots__ = ("asked_topic", "handle", "settled", "since_ms")

    def __init__(self, popped: Popped, *, topic: str, since_ms: int) -> None:
        super().__init__(popped.message, popped.broker, topic=topic)
        self.asked_topic: Final = popped.topic
        """The topic in full, as brokers know it."""
        self.handle: PopHandle = popped.handle
        """What stands for it at its broker; another one after each `change_invisibility`."""
        self.since_ms = since_ms
        """Since when it is hidden, by the clock of this machine."""
        self.settled = False
        """Whether it was acknowledged, or given back or up."""

    @property
    def hidden_until(self) -> datetime:
        """Until when nobody else gets it, by the clock of this machine."""
        return datetime.fromtimestamp((self.since_ms + self.handle.invisible_ms) / 1000, UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """For whom, and how."""

    group: str
    from_end: bool
    invisible: float
    max_retries: int | None


class _Core:
    """What both consumers do, as coroutines over whatever runtime they have."""

    def __init__(self, config: ClientConfig, runtime: PipingRuntime, terms: _Terms) -> None:
        self._config = config
        self._runtime = runtime
        self._terms = terms
        self._places = Places(config, runtime)
        self._turns = count()
        self._known: dict[str, tuple[float, list[str]]] = {}

    # --- receiving ------------------------------------------------------------------------------

    async def receive(
        self, wanted: dict[str, Wanted], limit: int, invisible: float, wait: float
    ) -> list[PoppedMessage]:
        """Messages of any of the topics; an error if no broker could be asked until the end."""
        deadline = self._runtime.now() + wait
        while True:
            left = max(0.0, deadline - self._runtime.now())
            try:
                asked = await self._asked(wanted, limit, invisible)
                found = await popping.receive(self._runtime, asked, now_ms=now_ms(), wait=left)
            except TransportError:
                self._known.clear()  # brokers may be elsewhere by now
                left = deadline - self._runtime.now()
                if left <= 0:
                    raise
                await self._runtime.sleep(min(left, _PAUSE))
                continue
            except NotSupported as refusal:
                raise _no_pop(refusal) from refusal
            except GantryError:
                self._known.clear()
                raise
            given = await self._given(wanted, found)
            if given or not found or self._runtime.now() >= deadline:
                return given

    async def _asked(self, wanted: dict[str, Wanted], limit: int, invisible: float) -> list[Asked]:
        """Whom to ask for what; each in front in turn."""
        asked = [
            Asked(self._wish(one, limit, invisible), broker, self._master(broker))
            for one in wanted.values()
            for broker in await self._brokers(one.data.topic)
        ]
        first = next(self._turns) % len(asked)
        return asked[first:] + asked[:first]

    def _wish(self, wanted: Wanted, limit: int, invisible: float) -> Wish:
        return Wish(
            group=self._terms.group,
            topic=wanted.data.topic,
            expression=wanted.data.expression,
            expression_type=wanted.data.expression_type,
            most=limit,
            invisible=invisible,
            from_end=self._terms.from_end,
        )

    async def _brokers(self, topic: str) -> list[str]:
        """Who has the topic and a master, by what is known or what name servers say."""
        at, found = self._known.get(topic, (0.0, []))
        if not found or self._runtime.now() - at > self._config.route_interval:
            queues = await self._places.queues(topic)
            names = dict.fromkeys(queue.broker for queue in queues)
            found = [name for name in names if MASTER in self._places.addresses(name)]
            self._known[topic] = (self._runtime.now(), found)
        if not found:
            raise NoRoute(f"no broker of {topic} has a master from which messages can be received")
        return found

    def _master(self, broker: str) -> str:
        return self._places.addresses(broker)[MASTER]

    async def _given(self, wanted: dict[str, Wanted], found: list[Popped]) -> list[PoppedMessage]:
        """What the user gets: of what came, that which matches and did not come too often."""
        since, given = now_ms(), []
        for popped in found:
            one = wanted[popped.topic]
            message = PoppedMessage(popped, topic=one.topic or popped.topic, since_ms=since)
            tags, most = exact_tags(one.data), self._terms.max_retries
            if tags and message.tag not in tags:
                await self._or_log(self.ack(message), "acknowledged, which is of no tag we want")
            elif most is not None and message.retries > most:
                why = f"it was received {message.retries} times, and never acknowledged"
                await self._or_log(self.give_up(message, why), "given up")
            else:
                given.append(message)
        return given

    async def _or_log(self, work: Awaitable[None], what: str) -> None:
        """A failure means that the message comes again, and is looked at once more."""
        try:
            await work
        except GantryError as error:
            log.warning("group %s: a message could not be %s: %s", self._terms.group, what, error)

    # --- what becomes of messages ---------------------------------------------------------------

    async def ack(self, *messages: PoppedMessage) -> None:
        """Acknowledge all of them that can be; the first error at the end."""
        errors: list[GantryError] = []
        for message in messages:
            message.settled = True
            try:
                await self._told(message, self._ack)
            except GantryError as error:
                message.settled = False
                errors.append(error)
        if errors:
            raise errors[0]

    async def _ack(self, message: PoppedMessage, address: str) -> None:
        await popping.acknowledge(
            self._runtime,
            address,
            self._terms.group,
            message.asked_topic,
            message.handle,
            timeout=self._config.call_timeout,
        )

    async def hide(self, message: PoppedMessage, seconds: float) -> None:
        """Hide it for another time, from now on."""

        async def change(message: PoppedMessage, address: str) -> None:
            since = now_ms()
            message.handle = await popping.change_invisibility(
                self._runtime,
                address,
                self._terms.group,
                message.asked_topic,
                message.handle,
                seconds,
                timeout=self._config.call_timeout,
            )
            message.since_ms = since

        await self._told(message, change)

    async def renew(self, message: PoppedMessage) -> None:
        """Hide it for as long as before, unless it is settled by now."""
        if message.settled:
            return
        await self.hide(message, message.handle.invisible_ms / 1000)
        if message.settled:  # while it was asked for: what was settled is another handle's
            await self._told(message, self._ack)

    async def give_up(self, message: PoppedMessage, reason: str) -> None:
        """Put it into the dead-letter topic, and acknowledge it."""
        await self._told(message, lambda given, address: self._bury(given, address, reason))
        await self.ack(message)

    async def _bury(self, message: PoppedMessage, address: str, reason: str) -> None:
        failed = Failed(
            message=message.stored,
            broker=message.broker,
            group=self._terms.group,
            verdict=Verdict(level=-1, reason=reason),
            born_ms=now_ms(),
        )
        await groups.give_back(self._runtime, address, failed)

    async def _told(
        self, message: PoppedMessage, tell: Callable[[PoppedMessage, str], Awaitable[None]]
    ) -> None:
        """Tell the message's broker; if it cannot be reached, once more where it is by now."""
        if MASTER not in self._places.addresses(message.broker):
            await self._places.queues(message.asked_topic)
        try:
            await tell(message, self._address(message))
        except TransportError:
            await self._places.queues(message.asked_topic)
            await tell(message, self._address(message))

    def _address(self, message: PoppedMessage) -> str:
        address = self._places.addresses(message.broker).get(MASTER)
        if address is None:
            raise NoRoute(f"broker {message.broker}, which gave {message!r}, has no master now")
        return address


def _no_pop(refusal: NotSupported) -> NotSupported:
    error = NotSupported.because(
        f"{refusal.peer or 'the broker'} does not know POP, which receiving single messages needs:"
        f" RocketMQ has it since 5.0. Use gantry.Consumer or gantry.PullConsumer"
        f" (AsyncConsumer, AsyncPullConsumer), which work with every broker"
        f" ({(refusal.remark or '').strip()})"
    )
    error.peer = refusal.peer
    return error


def seconds_of(span: Span, what: str, *, least: float = 0.001) -> float:
    """The seconds that a user's argument means."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else float(span)
    if not least <= seconds <= _LONGEST:
        raise InvalidInput(
            f"{what}={span!r}: a message can be hidden for {least:g} seconds up to three days"
        )
    return seconds


class _Simple:
    """What both consumers are: a group, topics, and usable until they are closed."""

    def __init__(
        self,
        config: ClientConfig,
        runtime: PipingRuntime,
        terms: _Terms,
        topics: Topics,
        group: str,
    ) -> None:
        self.group = group
        self._config: Final = config
        self._terms: Final = terms
        self._core: Final = _Core(config, runtime, terms)
        self._origin: Final = Origin()
        self._closed = False
        namespace = config.namespace or ""
        made = [wanted_of(namespace, one) for one in subscriptions(topics)]
        self._wanted = {one.data.topic: one for one in made}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group}>"

    @property
    def _does(self) -> _Core:
        if self._closed:
            raise ClosedError(f"this {type(self).__name__} was closed; make a new one to go on")
        self._origin.check(f"this {type(self).__name__}")
        return self._core

    async def _receive(
        self, limit: int, invisible_for: Span | None, wait: float
    ) -> list[PoppedMessage]:
        core, wanted = self._does, self._wanted
        if not wanted:
            raise StateError(f"consumer {self.group} has no topic: subscribe to one first")
        if limit < 1 or wait < 0:
            raise InvalidInput(f"limit={limit}, wait={wait}: at least 1 message, and 0 seconds")
        invisible = self._terms.invisible
        if invisible_for is not None:
            invisible = seconds_of(invisible_for, "invisible_for")
        return await core.receive(wanted, min(limit, popping.MOST), invisible, wait)

    async def _nack(self, message: PoppedMessage, after: Span) -> None:
        await self._does.hide(message, seconds_of(after, "after", least=0.0))
        message.settled = True

    def _subscribe(self, topic: str, tags: str, sql: str | None) -> None:
        self._does  # noqa: B018 - it is refused after close
        wanted = make_wanted(self._config.namespace or "", topic, tags=tags, sql=sql)
        self._wanted = {**self._wanted, wanted.data.topic: wanted}

    def _unsubscribe(self, topic: str) -> None:
        full = wrap(self._config.namespace or "", topic)
        self._wanted = {name: one for name, one in self._wanted.items() if name != full}

    def _closes(self) -> bool:
        """It is being closed; whether there is anything of this process's to close."""
        closed, self._closed = self._closed, True
        return not closed and self._origin.is_here


def _terms(
    config: ClientConfig, group: str, start: Begin, invisible_for: Span, max_retries: int | None
) -> _Terms:
    check_consumer_group(group)
    if start not in ("earliest", "latest"):
        raise InvalidInput(
            f"start={start!r}: a group that pops begins at 'earliest' or at 'latest'. For any other"
            f" place, move the group there before: gantry.Admin(...).reset_offsets(...)"
        )
    return _Terms(
        group=wrap(config.namespace or "", group),
        from_end=start == "latest",
        invisible=seconds_of(invisible_for, "invisible_for"),
        max_retries=max_retries,
    )


class AsyncSimpleConsumer(_Simple):
    """Receives messages that are hidden from others meanwhile, and acknowledges each of them.

    ```python
    async with gantry.AsyncSimpleConsumer(
        "rmq://localhost:9876", group="billing", topics="orders", start="earliest"
    ) as consumer:
        for message in await consumer.receive():
            print(message.body)
            await consumer.ack(message)
    ```

    RocketMQ: SimpleConsumer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        group: str,
        start: Begin,
        topics: Topics = (),
        invisible_for: Span = INVISIBLE,
        max_retries: int | None = MAX_RETRIES,
        network: Network | None = None,
        **client: Unpack[ClientArguments],
    ) -> None:
        """`start` counts for queues that the group is new to: `earliest`, or `latest`.

        RocketMQ's brokers take `latest` loosely, and give some of what is there as well. Messages
        are hidden for `invisible_for`, if `receive` does not say otherwise. What came again more
        than `max_retries` times is put into the dead-letter topic instead of being given; with
        None it is given for ever.
        """
        config = load_config(url, arguments=client)
        terms = _terms(config, group, start, invisible_for, max_retries)
        self._pool = pool_for(config, network)
        super().__init__(config, AsyncRuntime(self._pool), terms, topics, group)

    async def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Receive messages of this topic too, or of the same one with another filter."""
        self._subscribe(topic, tags, sql)

    async def unsubscribe(self, topic: str) -> None:
        """Receive nothing of a topic any more."""
        self._unsubscribe(topic)

    async def receive(
        self, limit: int = 16, *, invisible_for: Span | None = None, wait: float = WAIT
    ) -> list[PoppedMessage]:
        """Up to `limit` messages (32 at most), as soon as there is one; none after `wait` seconds.

        Nobody else gets them for `invisible_for`. While no broker can be reached it goes on trying
        for as long as it may wait.
        """
        return await self._receive(limit, invisible_for, wait)

    async def ack(self, *messages: PoppedMessage) -> None:
        """Messages are dealt with: they do not come again.

        If their time was over before, somebody else may have them already.
        """
        await self._does.ack(*messages)

    async def change_invisibility(self, message: PoppedMessage, invisible_for: Span) -> None:
        """Hide a message for that time from now on, instead of what is left of the one before."""
        await self._does.hide(message, seconds_of(invisible_for, "invisible_for"))

    async def nack(self, message: PoppedMessage, *, after: Span = 0.0) -> None:
        """A message is not dealt with: it comes again after that time, as one retry more."""
        await self._nack(message, after)

    async def give_up(self, message: PoppedMessage, reason: str = "given up") -> None:
        """Put a message into the group's dead-letter topic, with the reason; it is acknowledged."""
        await self._does.give_up(message, reason)

    @asynccontextmanager
    async def renewing(
        self, *messages: PoppedMessage, at_most: Span = _RENEWED_FOR
    ) -> AsyncIterator[None]:
        """Keep messages hidden while the block lasts, but no longer than `at_most`.

        Each is hidden anew when half of its time is over. They may be acknowledged in the block.
        """
        seconds = seconds_of(at_most, "at_most")
        async with Renewal(self._does.renew, messages, seconds).going_on():
            yield

    async def close(self) -> None:
        """Close its connections; what is not acknowledged comes again when its time is over."""
        if self._closes():
            await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class SimpleConsumer(_Simple):
    """Receives messages that are hidden from others meanwhile, on the caller's own thread.

    ```python
    with gantry.SimpleConsumer(
        "rmq://localhost:9876", group="billing", topics="orders", start="earliest"
    ) as consumer:
        for message in consumer.receive():
            print(message.body)
            consumer.ack(message)
    ```

    Any number of threads may share one.

    RocketMQ: SimpleConsumer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        group: str,
        start: Begin,
        topics: Topics = (),
        invisible_for: Span = INVISIBLE,
        max_retries: int | None = MAX_RETRIES,
        **client: Unpack[ClientArguments],
    ) -> None:
        """`start` counts for queues that the group is new to: `earliest`, or `latest`.

        RocketMQ's brokers take `latest` loosely, and give some of what is there as well. Messages
        are hidden for `invisible_for`, if `receive` does not say otherwise. What came again more
        than `max_retries` times is put into the dead-letter topic instead of being given; with
        None it is given for ever.
        """
        config = load_config(url, arguments=client)
        terms = _terms(config, group, start, invisible_for, max_retries)
        self._blocking = blocking_for(config)
        self._lock = Lock()
        self._aside: _Aside | None = None
        super().__init__(config, self._blocking.runtime, terms, topics, group)

    def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Receive messages of this topic too, or of the same one with another filter."""
        self._subscribe(topic, tags, sql)

    def unsubscribe(self, topic: str) -> None:
        """Receive nothing of a topic any more."""
        self._unsubscribe(topic)

    def receive(
        self, limit: int = 16, *, invisible_for: Span | None = None, wait: float = WAIT
    ) -> list[PoppedMessage]:
        """Up to `limit` messages (32 at most), as soon as there is one; none after `wait` seconds.

        Nobody else gets them for `invisible_for`. While no broker can be reached it goes on trying
        for as long as it may wait.
        """
        return run_blocking(self._receive(limit, invisible_for, wait))

    def ack(self, *messages: PoppedMessage) -> None:
        """Messages are dealt with: they do not come again.

        If their time was over before, somebody else may have them already.
        """
        run_blocking(self._does.ack(*messages))

    def change_invisibility(self, message: PoppedMessage, invisible_for: Span) -> None:
        """Hide a message for that time from now on, instead of what is left of the one before."""
        run_blocking(self._does.hide(message, seconds_of(invisible_for, "invisible_for")))

    def nack(self, message: PoppedMessage, *, after: Span = 0.0) -> None:
        """A message is not dealt with: it comes again after that time, as one retry more."""
        run_blocking(self._nack(message, after))

    def give_up(self, message: PoppedMessage, reason: str = "given up") -> None:
        """Put a message into the group's dead-letter topic, with the reason; it is acknowledged."""
        run_blocking(self._does.give_up(message, reason))

    @contextmanager
    def renewing(self, *messages: PoppedMessage, at_most: Span = _RENEWED_FOR) -> Iterator[None]:
        """Keep messages hidden while the block lasts, but no longer than `at_most`.

        Each is hidden anew when half of its time is over. They may be acknowledged in the block.
        """
        seconds = seconds_of(at_most, "at_most")
        aside = self._beside()
        renewal = Renewal(aside.core.renew, messages, seconds)
        going_on = aside.thread.submit(renewal.run())
        try:
            yield
        finally:
            aside.thread.loop.call_soon_threadsafe(renewal.end)
            going_on.result()

    def _beside(self) -> _Aside:
        self._does  # noqa: B018 - it is refused after close
        with self._lock:
            if self._aside is None:
                self._aside = _Aside(self._config, self._terms)
            return self._aside

    def close(self) -> None:
        """Close its connections; what is not acknowledged comes again when its time is over."""
        if self._closes():
            with self._lock:
                aside, self._aside = self._aside, None
            if aside is not None:
                aside.close()
            self._blocking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class _Aside:
    """What renews while the caller's thread is busy: the loop thread, and connections there."""

    def __init__(self, config: ClientConfig, terms: _Terms) -> None:
        self.thread: Final[LoopThread] = loop_thread.borrow(config)
        self._pool: Final[Pool] = self.thread.do(pool_for, config)
        self.core: Final = _Core(config, AsyncRuntime(self._pool), terms)

    def close(self) -> None:
        """Close the connections, and give the thread back."""
        try:
            self.thread.call(self._pool.close())
        finally:
            loop_thread.give_back(self.thread)
