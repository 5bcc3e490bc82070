"""A queue that this client reads: where it begins, pull after pull, and what disturbs that.

One task for each queue asks the broker for messages; if there are none, the broker keeps the
question until some come, for 15 seconds at most. What the task was told last is kept, so that a
watchdog can say which queue stands still, and why.

| what happens | what the reader does |
|---|---|
| messages, or none that match | notes where to go on, and asks again at once |
| as much is out as may be | waits until something is dealt with |
| the offset is not there (any more) | tells the consumer, who begins anew at the one that is |
| the broker does not know the subscription | has a heartbeat sent, and asks again |
| the broker knows no lite pulls | asks with plain ones from then on |
| the broker is busy | asks again after 20 ms |
| the broker is away, or refuses | asks for the route, and again after a second |

RocketMQ: DefaultMQPushConsumerImpl.pullMessage, PullMessageService.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gantrymq.client.handling import Batch, Handler
from gantrymq.client.in_flight import FlowLimits, InFlight
from gantrymq.client.rates import Rates
from gantrymq.errors import (
    ConnectFailed,
    FlowControlled,
    GantryError,
    NotSupported,
    RemoteProtocolError,
    StateError,
    SubscriptionMissing,
    SubscriptionStale,
)
from gantrymq.flows.pulling import exact_tags, messages_of
from gantrymq.flows.routing import MASTER
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.names import unwrap
from gantrymq.protocol.pulling import LitePullMessage, PullFlag, PullMessage, PullStatus
from gantrymq.wire.properties import RETRY_TOPIC
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.client.engine import Engine

log = logging.getLogger("gantrymq.client")

GRACE: Final = 15.0
"""Seconds that an answer may take beyond the waiting at the broker."""
_AFTER_ERROR: Final = 1.0
_AFTER_FLOW_CONTROL: Final = 0.02
_AFTER_NO_OFFSET: Final = 3.0


class OwnedQueue:
    """One queue, what was read of it, and how it is doing."""

    __slots__ = (
        "_clock", "_waiter", "begin_at", "begun", "blocked", "blocked_since", "broker_id",
        "committed", "error", "handler", "handler_of_batch", "in_flight", "in_turn", "key",
        "last_consumed", "last_pull", "limits", "locked_until", "most_at_once", "paused", "reader",
        "stopped", "suspended", "tags", "topic", "waiting", "wants",
    )  # fmt: skip

    def __init__(
        self,
        key: MessageQueue,
        wants: Subscription,
        handler: Handler | None,
        *,
        topic: str | None,
        limits: FlowLimits,
        clock: Callable[[], float],
        in_order: bool = False,
        handler_of: Callable[[Batch], Handler] | None = None,
    ) -> None:
        self.key: Final = key
        self.wants = wants
        self.tags: AbstractSet[str] = exact_tags(wants)
        self.handler = handler
        self.handler_of_batch = handler_of
        """Who handles what, where messages of several topics are in one queue."""
        self.most_at_once = (handler.batch if handler is not None else None) or 1
        self.topic: Final = topic
        """The topic as the user calls it; None for the retry topic, which has those of several."""
        self.limits = limits
        self.in_flight = InFlight(0)
        self.reader: asyncio.Task[None] | None = None
        self.begin_at: int | None = None
        """Where to read, if that is known already."""
        self.begun = False
        """Whether it is known where to read."""
        self.stopped = False
        """Not ours any more: whatever becomes of its messages does not count."""
        self.paused = False
        self.broker_id = MASTER
        self.committed: int | None = None
        """What the offset store has, as far as we know."""
        self._clock = clock
        self._waiter: asyncio.Future[None] | None = None
        # --- for those who watch
        self.last_pull = clock()
        self.last_consumed = 0.0
        self.error: BaseException | None = None
        self.blocked: str | None = None
        self.blocked_since = 0.0
        # --- ordered consumers
        self.waiting: deque[ReceivedMessage] | None = deque() if in_order else None
        """Read and not handled yet, in order."""
        self.in_turn = False
        """Whether it stands in the row, or a hand is at it."""
        self.suspended = False
        """Whether a message of it failed, and is to be tried again later."""
        self.locked_until = 0.0

    def __str__(self) -> str:
        return str(self.key)

    @property
    def in_order(self) -> bool:
        """Whether its messages are handled one after the other."""
        return self.waiting is not None

    @property
    def to_commit(self) -> bool:
        """Whether the group has come further, or elsewhere, than what is kept of it."""
        return self.begun and self.in_flight.committable != self.committed

    def next_in_order(self) -> Batch | None:
        """The next messages to be handled, if they may be handled now; for any thread."""
        waiting = self.waiting
        if self.stopped or self.suspended or not waiting or self._clock() >= self.locked_until:
            return None
        batch = [waiting.popleft()]
        while len(batch) < self.most_at_once and waiting:
            batch.append(waiting.popleft())
        return batch

    def handler_of(self, batch: Batch) -> Handler:
        """Who handles these; `StateError` if nobody does."""
        if self.handler is not None:
            return self.handler
        if self.handler_of_batch is None:
            raise StateError(f"nobody handles the messages of {self.key}")
        return self.handler_of_batch(batch)

    def went_well(self) -> None:
        """Note that it was read."""
        self.last_pull = self._clock()
        self.error = None

    # --- room -----------------------------------------------------------------------------------

    def is_full(self) -> bool:
        """Whether no more is to be read for now."""
        before, self.blocked = self.blocked, self._why_full()
        if before is None and self.blocked is not None:
            self.blocked_since = self._clock()
        return self.blocked is not None

    def _why_full(self) -> str | None:
        if self.paused:
            return "it is paused"
        return self.in_flight.exceeds(self.limits, in_order=self.in_order)

    async def room(self) -> None:
        """Return when more may be read."""
        while self.is_full():
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def made_room(self) -> None:
        """Something was dealt with: let the reader look."""
        waiter = self._waiter
        if waiter is not None and not waiter.done() and not self.is_full():
            waiter.set_result(None)

    def stop_reading(self) -> None:
        """Ask the broker no more."""
        if self.reader is not None:
            self.reader.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How queues are read."""

    group: str
    namespace: str = ""
    batch: int = 32
    most_bytes: int = 256 * 1024
    wait: float = 15.0
    is_lite: bool = False
    """Whether it is a pull consumer, which sends its subscription with each pull."""
    commits: bool = False
    """Whether pulls tell the broker how far the group has come."""


class Reader:
    """Reads queues for one consumer."""

    def __init__(
        self,
        engine: Engine,
        how: Reading,
        *,
        begin: Callable[[OwnedQueue], Awaitable[int]],
        deliver: Callable[[OwnedQueue, list[ReceivedMessage]], None],
        moved: Callable[[OwnedQueue, int, str | None], None],
        rates: Callable[[str], Rates],
    ) -> None:
        self._engine = engine
        self._how = how
        self._begin = begin
        self._deliver = deliver
        self._moved = moved
        self._rates = rates
        self._without_lite: set[str] = set()
        """Addresses of brokers that know no lite pulls: those before 5.0."""

    def start(self, queue: OwnedQueue) -> None:
        """Read `queue` until it is stopped."""
        loop = asyncio.get_running_loop()
        queue.reader = loop.create_task(self._read(queue), name=f"gantrymq reading {queue}")

    async def _read(self, queue: OwnedQueue) -> None:
        while not queue.begun:
            try:
                queue.in_flight = InFlight(await self._begin(queue))
                queue.begun = True
            except GantryError as error:
                queue.error = error
                log.debug("it is not known where to read %s: %s", queue, error)
                await asyncio.sleep(_AFTER_NO_OFFSET)
        while True:
            if queue.is_full():
                await queue.room()
            try:
                await self._pull(queue)
            except GantryError as error:
                queue.error = error
                await self._after(queue, error)
            except Exception as error:  # a fault of ours must not leave a queue without a reader
                queue.error = error
                log.exception("reading %s failed", queue)
                await asyncio.sleep(_AFTER_ERROR)

    async def _pull(self, queue: OwnedQueue) -> None:
        how, in_flight = self._how, queue.in_flight
        offset = in_flight.next_offset
        address = self._engine.routes.address(queue.key.broker, queue.broker_id)
        if address is None:
            raise ConnectFailed(f"no route names broker {queue.key.broker}, where {queue} is")
        runtime = self._engine.runtime
        asked = runtime.now()
        is_lite = how.is_lite and address not in self._without_lite
        request = self._request(queue, offset, LitePullMessage if is_lite else PullMessage)
        try:
            reply = await runtime.call(address, request, timeout=how.wait + GRACE)
        except NotSupported:
            if not is_lite:
                raise
            self._without_lite.add(address)
            return
        if queue.in_flight is not in_flight or in_flight.next_offset != offset:
            return  # it was told to go on elsewhere while the broker was thinking
        queue.broker_id = reply.suggested_broker
        queue.went_well()
        if reply.status is PullStatus.OFFSET_MOVED:
            self._moved(queue, reply.next_offset, reply.remark)
            return
        found = messages_of(reply, offset, queue.tags, topic=queue.key.topic)
        if not found:
            in_flight.take((), reply.next_offset)
            return
        broker, topic = queue.key.broker, queue.topic
        if topic is None:
            messages = [
                ReceivedMessage(stored, broker, topic=self._origin(stored)) for stored in found
            ]
        else:
            messages = [ReceivedMessage(stored, broker, topic=topic) for stored in found]
        totals = self._rates(topic or queue.key.topic).now
        totals.pulls += 1
        totals.pulled += len(messages)
        totals.pull_seconds += runtime.now() - asked
        in_flight.take(messages, reply.next_offset)
        self._deliver(queue, messages)

    def _origin(self, stored: StoredMessage) -> str:
        """The topic that a message of the retry topic was first sent to."""
        return unwrap(self._how.namespace, stored.find(RETRY_TOPIC) or stored.topic)

    def _request(self, queue: OwnedQueue, offset: int, kind: type[PullMessage]) -> PullMessage:
        how, key, wants = self._how, queue.key, queue.wants
        flags = PullFlag.SUSPEND
        commit = 0
        if how.commits and queue.broker_id == MASTER and queue.in_flight.committable > 0:
            flags |= PullFlag.COMMIT_OFFSET
            commit = queue.in_flight.committable
        if how.is_lite:
            flags |= PullFlag.SUBSCRIPTION | PullFlag.LITE_PULL
        return kind(
            group=how.group,
            topic=key.topic,
            queue_id=key.queue_id,
            offset=offset,
            max_messages=how.batch,
            max_bytes=how.most_bytes,
            flags=int(flags),
            commit_offset=commit,
            wait_ms=round(how.wait * 1000),
            subscription=wants.expression if how.is_lite else None,
            subscription_version=wants.version,
            expression_type=wants.expression_type,
            broker=key.broker,
        )

    async def _after(self, queue: OwnedQueue, error: GantryError) -> None:
        """What is to be done before the next try."""
        if isinstance(error, FlowControlled):
            await asyncio.sleep(_AFTER_FLOW_CONTROL)
            return
        log.debug("reading %s: %s", queue, error)
        if isinstance(error, SubscriptionMissing | SubscriptionStale):
            await self._engine.beat()
        elif isinstance(error, RemoteProtocolError):
            log.error("reading %s @ %d: %s", queue, queue.in_flight.next_offset, error)
        elif error.refresh_route:
            queue.broker_id = MASTER
            await self._engine.routes.renew(queue.key.topic)
        await asyncio.sleep(_AFTER_ERROR * (0.8 + 0.4 * self._engine.chance.random()))
