"""Says how far streaming queries lag, and keeps a consumer group's offsets up with them.

Spark's own progress has the offsets of a query and, from this source, the ends of its queues. What
it lacks is the difference, and the age of what waits; and RocketMQ's tools know nothing of a query
at all. A listener adds both: after every micro-batch, the last one included, it works the lag out,
and commits what is finished to a consumer group, whose lag every tool then shows. Nobody reads that
group's offsets to go on from them: they stay Spark's.

```python
listener = gantrymq.spark.ProgressListener(nameServer="localhost:9876", group="archive")
spark.streams.addListener(listener)
```
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from gantrymq.client.reader import Places
from gantrymq.errors import ConfigError, GantryError, ReplyError
from gantrymq.flows import offsets
from gantrymq.model import MessageQueue
from gantrymq.net.lending import BlockingPool, BlockingRuntime
from gantrymq.protocol import names
from gantrymq.protocol.enums import ConsumeType
from gantrymq.protocol.groups import (
    ConsumerData,
    GetConsumerList,
    Heartbeat,
    UnregisterClient,
)
from gantrymq.protocol.names import TOOLS_GROUP
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.validation import check_consumer_group
from gantrymq.runtime import run_blocking
from gantrymq.spark.offsets import Positions, from_json
from gantrymq.spark.options import Options, parse
from gantrymq.wire import record

log = logging.getLogger("gantrymq.spark")

_ASKED: Final = 64
"""Queues that are asked how old their next message is."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """How far a query is behind in one queue."""

    messages: int
    seconds: float
    """The age of the oldest message that was not read, 0 where all were."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a query is behind."""

    query: str
    batch: int
    queues: Mapping[MessageQueue, QueueLag]

    @property
    def messages(self) -> int:
        """In all queues together."""
        return sum(lag.messages for lag in self.queues.values())

    @property
    def most_messages(self) -> int:
        """In the queue that has most."""
        return max((lag.messages for lag in self.queues.values()), default=0)

    @property
    def average_messages(self) -> float:
        """In a queue, on the average."""
        return self.messages / len(self.queues) if self.queues else 0.0

    @property
    def most_seconds(self) -> float:
        """The age of the oldest message."""
        return max((lag.seconds for lag in self.queues.values()), default=0.0)

    @property
    def average_seconds(self) -> float:
        """The ages of the queues' oldest messages, on the average."""
        ages = [lag.seconds for lag in self.queues.values()]
        return sum(ages) / len(ages) if ages else 0.0

    def __str__(self) -> str:
        return (
            f"{self.query} after batch {self.batch}: {self.messages:,} messages behind in"
            f" {len(self.queues)} queues, {self.most_messages:,} at most,"
            f" {self.average_messages:,.1f} on the average; the oldest {self.most_seconds:.1f}s old"
        )


class ProgressListener(StreamingQueryListener):
    """Works out the lag after every micro-batch, and commits to a group if one is named.

    Options are those of the format. With `query` only that query, by its name, is listened to.
    """

    def __init__(
        self,
        *,
        query: str | None = None,
        on_lag: Callable[[Lag], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._options: Options = parse({name: str(value) for name, value in options.items()})
        if not self._options.client.name_servers:
            raise ConfigError("give the listener the option nameServer, or url")
        self._group = self._options.source.group
        if self._group is not None:
            check_consumer_group(self._group)
        self._query = query
        self._on_lag = on_lag
        config = self._options.client
        self._pool = BlockingPool(
            options=config.peer_options,
            tls=config.client_tls,
            connect_timeout=config.connect_timeout,
        )
        self._runtime = BlockingRuntime(self._pool)
        self._places = Places(config, self._runtime)
        self._space = config.namespace or ""
        self._changed = threading.Condition()
        self._introduced: set[str] = set()
        self.lags: dict[str, Lag] = {}
        """The last lag of each query, by its id."""
        self.committed: Positions = {}
        """What was committed to the group."""

    # --- what Spark calls -------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """All was said with the last micro-batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is finished."""
        progress = event.progress
        if self._query is not None and progress.name != self._query:
            return
        done: Positions = {}
        ends: Positions = {}
        for source in progress.sources:
            positions = _positions(source.endOffset)
            if positions is not None:
                done |= positions
                ends |= _positions(source.latestOffset) or {}
        if not done:
            return
        name = progress.name or str(progress.id)
        self._commit(done)
        lag = Lag(name, progress.batchId, self._lags(done, ends))
        log.info("%s", lag)
        with self._changed:
            self.lags[str(progress.id)] = lag
            self._changed.notify_all()
        if self._on_lag is not None:
            self._on_lag(lag)

    # --- what others call -------------------------------------------------------------------------

    def wait_for_batch(self, query_id: object, batch: int, timeout: float = 30.0) -> bool:
        """Return when it has heard of that micro-batch; Spark tells it a moment later."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while (lag := self.lags.get(str(query_id))) is None or lag.batch < batch:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """Close its connections."""
        self._pool.close()

    # --- the work ---------------------------------------------------------------------------------

    def _commit(self, done: Positions) -> None:
        if self._group is None:
            return
        for queue, offset in done.items():
            if self.committed.get(queue) == offset:
                continue
            try:
                run_blocking(self._introduce(queue))
                run_blocking(self._commit_one(queue, offset))
            except GantryError as error:
                log.warning(
                    "%s @ %d was not committed to %s: %s", queue, offset, self._group, error
                )
            else:
                self.committed[queue] = offset

    async def _introduce(self, queue: MessageQueue) -> None:
        """Have the queue's broker know the group, as it knows one that had a consumer.

        Tools show nothing of a group that never had one. If it has any now, all is well.
        """
        wire = self._wire(queue)
        if queue.broker in self._introduced or self._group is None:
            return
        address = await self._places.address(wire)
        group, client = names.wrap(self._space, self._group), f"spark@{uuid4()}"
        with contextlib.suppress(ReplyError):
            members = await self._runtime.call(address, GetConsumerList(group=group), timeout=3.0)
            if members.client_ids:
                self._introduced.add(queue.broker)
                return
        data = ConsumerData(group=group, consume_type=ConsumeType.PULL)
        beat = Heartbeat(client_id=client, consumers=[data])
        await self._runtime.call(address, beat, timeout=3.0)
        leave = UnregisterClient(client_id=client, consumer_group=group)
        await self._runtime.call(address, leave, timeout=3.0)
        self._introduced.add(queue.broker)

    async def _commit_one(self, queue: MessageQueue, offset: int) -> None:
        wire = self._wire(queue)
        address = await self._places.address(wire)
        assert self._group is not None
        group = names.wrap(self._space, self._group)
        await offsets.commit(self._runtime, address, wire, group, offset)

    def _lags(self, done: Positions, ends: Positions) -> dict[MessageQueue, QueueLag]:
        found: dict[MessageQueue, QueueLag] = {}
        asked = 0
        for queue, offset in done.items():
            behind = max(0, ends.get(queue, offset) - offset)
            age = 0.0
            if behind and asked < _ASKED:
                asked += 1
                age = self._age(queue, offset)
            found[queue] = QueueLag(behind, age)
        return found

    def _age(self, queue: MessageQueue, offset: int) -> float:
        try:
            stored_ms = run_blocking(self._stored_ms(queue, offset))
        except GantryError as error:
            log.warning("nobody says how old %s @ %d is: %s", queue, offset, error)
            return 0.0
        return 0.0 if stored_ms is None else max(0.0, time.time() - stored_ms / 1000)

    async def _stored_ms(self, queue: MessageQueue, offset: int) -> int | None:
        wire = self._wire(queue)
        request = PullMessage(
            group=TOOLS_GROUP,
            topic=wire.topic,
            queue_id=wire.queue_id,
            offset=offset,
            max_messages=1,
            flags=int(PullFlag.SUBSCRIPTION),
            wait_ms=0,
            subscription="*",
            expression_type="TAG",
        )
        address = await self._places.address(wire)
        reply = await self._runtime.call(address, request, timeout=3.0)
        message = next(iter(record.iterate(reply.body)), None)
        return None if message is None else message.store_ms

    def _wire(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=names.wrap(self._space, queue.topic))


def _positions(text: str | None) -> Positions | None:
    """The positions of a source of ours; None of any other."""
    try:
        tree = json.loads(text or "null")
        return from_json(tree, "offset") if isinstance(tree, dict) and tree else None
    except (ValueError, ConfigError):
        return None
