"""The consumer that blocks: its engine on the loop thread, handlers in threads of their own.

```python
def bill(message):
    print(message.body)

with Consumer("rmq://localhost:9876", group="billing", start="earliest") as consumer:
    consumer.subscribe("orders", bill, tags="paid || refunded")
    consumer.wait()
```

Nothing here reads, shares queues or commits: that is `AsyncConsumer`, which runs where heartbeats
and routes of all blocking clients are seen to. A handler that is an `async def` runs there, too, so
it must not block.

Ctrl-C ends whatever the program waits for here with `KeyboardInterrupt`; leaving the `with` block
then drains the consumer as it always does.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, Unpack

from gantrymq.client import loop_thread
from gantrymq.client.consumer import AsyncConsumer, AsyncMessages, Topics
from gantrymq.client.consumer_config import ConsumerArguments
from gantrymq.client.consuming import NOTHING_LEFT, DrainReport
from gantrymq.client.hooks import ConsumeHook
from gantrymq.client.loop_thread import LoopThread
from gantrymq.client.states import Life, ServiceState
from gantrymq.client.watching import Problem
from gantrymq.errors import ClosedError
from gantrymq.flows.offsets import Start
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.net.network import Network
from gantrymq.rules.allocation import EVENLY, Strategy
from gantrymq.rules.redelivery import RetryPolicy
from gantrymq.runtime import run_blocking


class Consumer:
    """A member of a consumer group that is given messages.

    ```python
    with Consumer("rmq://localhost:9876", group="billing", start="latest", topics="orders") as c:
        for message in c:
            print(message.body)
    ```

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
        self._inner: Final = AsyncConsumer(
            url,
            group=group,
            start=start,
            topics=topics,
            handler=handler,
            batch=batch,
            strategy=strategy,
            retry=retry,
            hooks=hooks,
            network=network,
            **settings,
        )
        self.group = group
        self._life: Final[Life] = self._inner._life
        self._lock: Final = threading.Lock()
        self._thread: LoopThread | None = None

    # --- life -----------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """Where the consumer is in its life."""
        return self._inner.state

    @property
    def client_id(self) -> str:
        """By which brokers know it."""
        return self._inner.client_id

    def start(self) -> None:
        """Join the group; messages come from now on."""
        thread = loop_thread.borrow(self._inner._client)
        try:
            thread.call(self._inner.start())
        except BaseException:
            loop_thread.give_back(thread)
            raise
        self._thread = thread

    def close(self, timeout: float | None = None) -> DrainReport:
        """Finish what is being handled within `timeout` seconds, and leave the group."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None and self._life.running:
            return NOTHING_LEFT  # another thread is closing it
        if thread is None or not thread.is_here:
            return run_blocking(self._inner.close(0))
        try:
            return thread.call(self._inner.close(timeout))
        finally:
            loop_thread.give_back(thread)

    def wait(self, timeout: float | None = None) -> bool:
        """Return when the consumer has been closed, or after `timeout` seconds; which it was."""
        thread = self._thread
        if thread is None:
            return run_blocking(self._inner.wait(timeout))
        try:
            return thread.call(self._inner.wait(timeout))
        except ClosedError:
            if thread.is_here:
                return True
            raise

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- topics ---------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: str,
        handler: Callable[[Any], Any] | None = None,
        *,
        tags: str = "*",
        sql: str | None = None,
        batch: int | None = None,
    ) -> None:
        """Consume one more topic, or the same one with another filter or handler."""
        work = self._inner.subscribe(topic, handler, tags=tags, sql=sql, batch=batch)
        if self._thread is None:
            run_blocking(work)
        else:
            self._thread.call(work)

    def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more."""
        work = self._inner.unsubscribe(topic)
        if self._thread is None:
            run_blocking(work)
        else:
            self._thread.call(work)

    def pause(self, *topics: str) -> None:
        """Read no more of these topics, or of all; what was read is handled."""
        self._running.do(self._inner.pause, *topics)

    def resume(self, *topics: str) -> None:
        """Read on."""
        self._running.do(self._inner.resume, *topics)

    @property
    def queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        thread = self._thread
        return frozenset() if thread is None else thread.do(lambda: self._inner.queues)

    @property
    def problems(self) -> list[Problem]:
        """Queues of this consumer that stand still, and why; the log tells of them, too."""
        thread = self._thread
        return [] if thread is None else thread.do(lambda: self._inner.problems)

    @property
    def traces_dropped(self) -> int:
        """How many traces could not be sent, or had no room to wait for it."""
        return self._inner.traces_dropped

    # --- taking messages ------------------------------------------------------------------------

    def __iter__(self) -> Messages:
        thread = self._running
        return Messages(thread, thread.do(self._inner.__aiter__))

    def retry(
        self, message: ReceivedMessage, *, after: timedelta | None = None, reason: str = ""
    ) -> None:
        """Have a message that was taken from the consumer delivered again later."""
        self._running.do(lambda: self._inner.retry(message, after=after, reason=reason))

    def done(self, message: ReceivedMessage) -> None:
        """Say that a message that was taken from the consumer is dealt with."""
        self._running.do(self._inner.done, message)

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _running(self) -> LoopThread:
        self._life.check()
        if self._thread is None:
            raise ClosedError(f"consumer {self.group} is being started or closed")
        return self._thread


class Messages:
    """The messages of a consumer, one by one; asking for the next says that the last is done."""

    __slots__ = ("_there", "_thread")

    def __init__(self, thread: LoopThread, there: AsyncMessages) -> None:
        self._thread = thread
        self._there = there

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        try:
            return self._thread.call(self._next())
        except ClosedError:
            if self._thread.is_here:
                raise StopIteration from None
            raise

    async def _next(self) -> ReceivedMessage:
        try:
            return await self._there.__anext__()
        except StopAsyncIteration:
            raise ClosedError("the consumer was closed") from None

    def __del__(self) -> None:
        with contextlib.suppress(RuntimeError):  # its loop is closed, and everything was left
            self._thread.loop.call_soon_threadsafe(self._there.leave)
