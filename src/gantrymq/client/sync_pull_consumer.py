"""The pull consumer that blocks: its engine on the loop thread, messages to whoever asks.

```python
with PullConsumer("rmq://localhost:9876", group="billing", start="earliest") as consumer:
    consumer.subscribe("orders")
    for message in consumer.poll():
        print(message.body)
    consumer.commit()
```

It reads ahead while the program does something else, so it cannot be a flow that the caller's own
thread steps through. A poll goes over to the loop thread and comes back with as many messages as
are asked for, which is why it is better to ask for a hundred than for one.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack

from gantrymq.client import loop_thread
from gantrymq.client.consumer import Topics
from gantrymq.client.consumer_config import PullArguments
from gantrymq.client.loop_thread import LoopThread
from gantrymq.client.pull_consumer import AsyncPullConsumer, SeekTo, Which
from gantrymq.client.states import Life, ServiceState
from gantrymq.client.watching import Problem
from gantrymq.errors import ClosedError, GantryError
from gantrymq.flows.offsets import Bounds, Start
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.net.network import Network
from gantrymq.rules.allocation import EVENLY, Strategy
from gantrymq.runtime import run_blocking

T = TypeVar("T")


class PullConsumer:
    """A consumer that is asked for messages.

    RocketMQ: DefaultLitePullConsumer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        group: str,
        start: Start,
        topics: Topics = (),
        auto_commit: bool = True,
        strategy: Strategy = EVENLY,
        network: Network | None = None,
        **settings: Unpack[PullArguments],
    ) -> None:
        """`start` counts for a group that is new to a queue: `earliest`, `latest` or a time.

        With `auto_commit`, what is dealt with is committed from time to time, and at the end;
        without it, by `commit()` alone.
        """
        self._inner: Final = AsyncPullConsumer(
            url,
            group=group,
            start=start,
            topics=topics,
            auto_commit=auto_commit,
            strategy=strategy,
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
        """Join the group, and read ahead."""
        thread = loop_thread.borrow(self._inner._client)
        try:
            thread.call(self._inner.start())
        except BaseException:
            loop_thread.give_back(thread)
            raise
        self._thread = thread

    def close(self) -> None:
        """Leave the group; what the last poll gave counts as dealt with only after `commit()`."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is None and self._life.running:
            return  # another thread is closing it
        if thread is None or not thread.is_here:
            run_blocking(self._inner.close())
            return
        try:
            thread.call(self._inner.close())
        finally:
            loop_thread.give_back(thread)

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

    # --- topics and queues ----------------------------------------------------------------------

    def subscribe(self, topic: str, *, tags: str = "*", sql: str | None = None) -> None:
        """Take our share of a topic, or of the same one with another filter."""
        self._change(self._inner.subscribe(topic, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Take nothing of a topic any more."""
        self._change(self._inner.unsubscribe(topic))

    def assign(
        self, queues: Iterable[MessageQueue], *, tags: str = "*", sql: str | None = None
    ) -> None:
        """Read these queues and no others, without sharing them with anybody."""
        self._change(self._inner.assign(queues, tags=tags, sql=sql))

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

    def pause(self, *which: str | MessageQueue) -> None:
        """Give no messages of these topics and queues, or of all, and read no more of them."""
        self._running.do(self._inner.pause, *which)

    def resume(self, *which: str | MessageQueue) -> None:
        """Go on with them."""
        self._running.do(self._inner.resume, *which)

    # --- messages -------------------------------------------------------------------------------

    def poll(self, limit: int = 100, timeout: float | None = 5.0) -> list[ReceivedMessage]:
        """Up to `limit` messages, as soon as there is one; none after `timeout` seconds.

        With 0 it does not wait, with None for as long as it takes. What was given before counts as
        dealt with from now on.
        """
        thread = self._running
        try:
            return thread.call(self._inner.poll(limit, timeout))
        except GantryError:
            raise
        except BaseException:  # Ctrl-C: what is being given does not arrive
            thread.loop.call_soon_threadsafe(self._inner._take_back)
            raise

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> dict[MessageQueue, int]:
        """Keep how far the group is: behind everything given, or at `offsets`; what was new.

        Returns when the brokers have it, and raises `PartlyDone` if one of them did not take it.
        """
        return self._running.call(self._inner.commit(offsets))

    # --- places ---------------------------------------------------------------------------------

    def seek(self, which: Which, to: SeekTo) -> dict[MessageQueue, int]:
        """Go on elsewhere in queues of ours; where that is. What was read ahead is forgotten.

        `committed` is where the group was at the last commit, or begins if it never did.
        """
        return self._running.call(self._inner.seek(which, to))

    def positions(self) -> dict[MessageQueue, int]:
        """The offset of the next message that will be given, of each queue where it is known."""
        return self._running.do(self._inner.positions)

    def committed(self, *queues: MessageQueue) -> dict[MessageQueue, int | None]:
        """How far the group is by what is kept, in these queues or all of ours; None if nothing."""
        return self._running.call(self._inner.committed(*queues))

    def offset(self, queue: MessageQueue, to: SeekTo) -> int:
        """The offset that `to` stands for in any queue."""
        return self._running.call(self._inner.offset(queue, to))

    def bounds(self, queue: MessageQueue) -> Bounds:
        """The offsets that any queue has."""
        return self._running.call(self._inner.bounds(queue))

    def queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        """All queues of any topic that can be read."""
        return self._running.call(self._inner.queues_of(topic))

    # --- inside ---------------------------------------------------------------------------------

    @property
    def _running(self) -> LoopThread:
        self._life.check()
        if self._thread is None:
            raise ClosedError(f"consumer {self.group} is being started or closed")
        return self._thread

    def _change(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it there, or here before the start: then it waits for nothing."""
        thread = self._thread
        return run_blocking(work) if thread is None else thread.call(work)
