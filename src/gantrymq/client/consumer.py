"""The consumer for asyncio: handlers are called with messages, or a loop takes them.

```python
async def bill(message):
    print(message.body)

async with AsyncConsumer("rmq://localhost:9876", group="billing", start="earliest") as consumer:
    await consumer.subscribe("orders", bill, tags="paid || refunded")
    await asyncio.sleep(3600)
```

A handler that returns has dealt with its message. One that raises has not: the message is delivered
again later, and after too many failures put aside in the group's dead-letter topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, TypeAlias, Unpack

from gantrymq.client.consumer_config import ConsumerArguments, load_consumer
from gantrymq.client.consuming import NOTHING_LEFT, Consuming, DrainReport
from gantrymq.client.engine import Engine, shared
from gantrymq.client.handling import Handler
from gantrymq.client.holding import Manner, Wanted, make_wanted
from gantrymq.client.hooks import ConsumeHook
from gantrymq.client.states import Life, ServiceState
from gantrymq.client.watching import Problem
from gantrymq.errors import ClosedError, InvalidInput
from gantrymq.flows.offsets import Start, check_start
from gantrymq.model import MessageQueue, ReceivedMessage, Subscription
from gantrymq.net.network import Network
from gantrymq.protocol.names import wrap
from gantrymq.protocol.validation import check_consumer_group
from gantrymq.rules.allocation import EVENLY, Strategy
from gantrymq.rules.redelivery import RetryLater, RetryPolicy

Topics: TypeAlias = str | Subscription | Iterable[str | Subscription] | Mapping[str, str]
"""Topics: names, names with the tags that are wanted, or subscriptions."""


class AsyncConsumer:
    """A member of a consumer group that is given messages.

    RocketMQ: DefaultMQPushConsumer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        group: str,
        start: Start,
        topics: Topics = (),
        handler: Callable[[Any], Any] | None = None,
        batch: int | None = None,
        strategy: Strategy = EVENLY,
        retry: RetryPolicy | None = None,
        hooks: Iterable[ConsumeHook] = (),
        network: Network | None = None,
        **settings: Unpack[ConsumerArguments],
    ) -> None:
        """`start` counts for a group that is new to a queue: `earliest`, `latest` or a time.

        With `batch`, `handler` takes a list of up to so many messages; else it takes one.
        """
        check_consumer_group(group)
        client, config = load_consumer(url, settings)
        self.group = group
        self._client = client
        self._network = network
        self._namespace = client.namespace or ""
        self._how = Manner(
            group=wrap(self._namespace, group),
            start=check_start(start),
            namespace=self._namespace,
            strategy=strategy,
            retry=RetryPolicy() if retry is None else retry,
            config=config,
            hooks=tuple(hooks),
        )
        self._life: Final = Life(f"consumer {group}")
        self._over = asyncio.Event()
        self._first: dict[str, Wanted] = {}
        for subscription in subscriptions(topics):
            self._note(wanted_of(self._namespace, subscription, _handler(handler, batch)))
        self._work: Consuming | None = None
        self._engine: Engine | None = None

    # --- life -----------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """Where the consumer is in its life."""
        return self._life.state

    @property
    def client_id(self) -> str:
        """By which brokers know it."""
        return "" if self._engine is None else self._engine.client_id

    async def start(self) -> None:
        """Join the group; messages come from now on."""
        self._life.begin()
        self._engine = shared(self._client, network=self._network)
        work = Consuming(self._engine, self._how, self._first)
        await work.start()
        if self._life.state is ServiceState.SHUTDOWN:
            await work.close(0)
            raise ClosedError(f"consumer {self.group} was closed while it was started")
        self._work = work
        self._life.began()

    async def close(self, timeout: float | None = None) -> DrainReport:
        """Finish what is being handled within `timeout` seconds, and leave the group."""
        was_running = self._life.end()
        work, self._work = self._work, None
        if work is None or not was_running:
            return NOTHING_LEFT
        try:
            return await work.close(self._how.config.close_timeout if timeout is None else timeout)
        finally:
            self._over.set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Return when the consumer has been closed, or after `timeout` seconds; which it was."""
        if self._life.state is ServiceState.SHUTDOWN and self._work is None:
            return True
        self._life.check()
        try:
            async with asyncio.timeout(timeout):
                await self._over.wait()
        except TimeoutError:
            return False
        return True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- topics ---------------------------------------------------------------------------------

    async def subscribe(
        self,
        topic: str,
        handler: Callable[[Any], Any] | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        batch: int | None = None,
    ) -> None:
        """Consume one more topic, or the same one with another filter or handler."""
        self._check_open()
        call = _handler(handler, batch)
        wanted = make_wanted(self._namespace, topic, tags=tags, sql=sql, handler=call)
        self._note(wanted)
        if self._work is not None:
            await self._work.want(wanted)

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more."""
        self._check_open()
        full = wrap(self._namespace, topic)
        self._first.pop(full, None)
        if self._work is not None:
            await self._work.unwant(full)

    def pause(self, *topics: str) -> None:
        """Read no more of these topics, or of all; what was read is handled."""
        self._running.pause(self._full(topics))

    def resume(self, *topics: str) -> None:
        """Read on."""
        self._running.pause(self._full(topics), paused=False)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        return frozenset(self._work.holding.queues) if self._work is not None else frozenset()

    @property
    def problems(self) -> list[Problem]:
        """Queues of this consumer that stand still, and why; the log tells of them, too."""
        return self._work.problems() if self._work is not None else []

    @property
    def traces_dropped(self) -> int:
        """How many traces could not be sent, or had no room to wait for it."""
        work = self._work
        return 0 if work is None or work.traces is None else work.traces.dropped

    # --- taking messages ------------------------------------------------------------------------

    def __aiter__(self) -> AsyncMessages:
        return AsyncMessages(self._running)

    def retry(
        self, message: ReceivedMessage, *, after: timedelta | None = None, reason: str = ""
    ) -> None:
        """Have a message that was taken from the consumer delivered again later."""
        self._running.handed.put_back(message, RetryLater(reason, after=after))

    def done(self, message: ReceivedMessage) -> None:
        """Say that a message that was taken from the consumer is dealt with."""
        self._running.handed.put_back(message)

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _running(self) -> Consuming:
        self._life.check()
        assert self._work is not None
        return self._work

    def _check_open(self) -> None:
        """Topics may be named before the start, and while it runs."""
        if self._life.state is not ServiceState.CREATED:
            self._life.check()

    def _full(self, topics: Collection[str]) -> set[str] | None:
        return {wrap(self._namespace, topic) for topic in topics} if topics else None

    def _note(self, wanted: Wanted) -> None:
        others = [w for w in self._first.values() if w.data.topic != wanted.data.topic]
        if any((other.handler is None) != (wanted.handler is None) for other in others):
            raise InvalidInput(
                f"topic {wanted.topic}: either every topic of a consumer has a handler, or none has"
                f" and the messages are taken with `async for`"
            )
        self._first[wanted.data.topic] = wanted


class AsyncMessages:
    """The messages of a consumer, one by one; asking for the next says that the last is done."""

    __slots__ = ("_last", "_work")

    def __init__(self, work: Consuming) -> None:
        self._work = work
        self._last: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        last, self._last = self._last, None
        if last is not None:
            self._work.handed.put_back(last)
        message = await self._work.handed.take()
        if message is None:
            raise StopAsyncIteration
        self._last = message
        return message

    def leave(self) -> None:
        """Say nothing of the last one: it is delivered again."""
        last, self._last = self._last, None
        if last is not None:
            self._work.handed.abandon(last)

    def __del__(self) -> None:
        self.leave()


def subscriptions(topics: Topics) -> list[Subscription]:
    """What `topics` says, spelled out."""
    if isinstance(topics, str):
        return [Subscription(topics)]
    if isinstance(topics, Subscription):
        return [topics]
    if isinstance(topics, Mapping):
        return [Subscription(topic, tags) for topic, tags in topics.items()]
    return [Subscription(topic) if isinstance(topic, str) else topic for topic in topics]


def wanted_of(namespace: str, subscription: Subscription, handler: Handler | None = None) -> Wanted:
    """What a subscription asks for."""
    topic, expression = subscription.topic, subscription.expression
    if subscription.kind == "tag":
        return make_wanted(namespace, topic, tags=expression, handler=handler)
    return make_wanted(namespace, topic, sql=expression, handler=handler)


def _handler(call: Callable[[Any], Any] | None, batch: int | None) -> Handler | None:
    if call is None:
        return None
    if not callable(call):
        raise InvalidInput(f"handler {call!r} cannot be called")
    if batch is not None and batch < 1:
        raise InvalidInput(f"batch={batch}: a list has one message at least")
    return Handler(call, batch)
