"""Sends many messages from one task: in large frames, several of them under way at a time.

Each queue has at most one frame under way, so that messages keep their order in it; different
queues, and with them different brokers, work at the same time. A frame without a queue of its own
goes to the queues in turn; when an attempt fails it is tried at another broker. A frame that has to
go to a certain queue, because the order by a sharding key depends on it, is tried there again.

Nothing is given up before the time for a send is over, except what every broker would refuse. A
frame that ended without an answer may be stored and is sent again all the same: at least once.
"""

from __future__ import annotations

import itertools
from collections import deque
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple

from gantrymq.client.config import ClientConfig
from gantrymq.errors import (
    GantryError,
    InvalidInput,
    InvalidParameter,
    LocalProtocolError,
    NoAddress,
    ReplyError,
    SendFailed,
)
from gantrymq.flows import routing
from gantrymq.flows.routing import MASTER, NameServers
from gantrymq.model import MessageQueue, SendStatus
from gantrymq.protocol import names
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.runtime import Pending, Pipe, PipingRuntime

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_FEW: Final = 3


class Stored(NamedTuple):
    """A frame that a broker has stored."""

    queue: MessageQueue
    reply: SendReply


class Frame:
    """One request, of one message or many, and what became of it."""

    __slots__ = (
        "asked_at", "count", "first_row", "last_error", "pending", "pipe", "queue", "request",
        "shard", "stored", "topic", "tried",
    )  # fmt: skip

    def __init__(
        self, topic: str, request: SendMessage, first_row: int, count: int, shard: int | None = None
    ) -> None:
        self.topic = topic
        self.request = request
        self.first_row = first_row
        self.count = count
        self.shard = shard
        """The queue it has to go to, by its place among those of the topic."""
        self.queue: MessageQueue | None = None
        self.pending: Pending[SendReply] | None = None
        self.pipe: Pipe | None = None
        self.stored: Stored | None = None
        self.asked_at = 0.0
        self.tried: list[str] = []
        self.last_error: GantryError | None = None

    def __str__(self) -> str:
        last = self.first_row + self.count - 1
        rows = f"row {last:,}" if self.count == 1 else f"rows {self.first_row:,} to {last:,}"
        return f"{rows} for topic {self.topic}"


class Shipper:
    """Sends frames; to be closed when all are settled, or when nobody wants the rest."""

    def __init__(
        self,
        runtime: PipingRuntime,
        config: ClientConfig,
        *,
        timeout: float,
        first: int,
        depth: int = 1,
    ) -> None:
        """`first` says which queue comes first in turn.

        `depth` is how many frames a queue may have under way; order is kept with one alone.
        """
        self.runtime = runtime
        self._config = config
        self._timeout = timeout
        self._space = config.namespace or ""
        self._name_servers = NameServers(config.name_servers)
        self._turns = itertools.count(first)
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._first_seen: dict[str, tuple[MessageQueue, ...]] = {}
        self._addresses: dict[str, str] = {}
        self._pipes: dict[str, tuple[Pipe, AsyncExitStack]] = {}
        self._depth = depth
        self._flight: dict[MessageQueue, deque[Frame]] = {}
        self._order: deque[Frame] = deque()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues that `topic` had at first: shards keep theirs, also while a broker is away."""
        if topic not in self._first_seen:
            self._first_seen[topic] = await self._look(topic)
        return self._first_seen[topic]

    async def ship(self, frame: Frame) -> None:
        """Send a frame; waits while its queue has another one under way."""
        queues = await self.queues(frame.topic)
        frame.asked_at = self.runtime.now()
        if frame.shard is None:
            queues = self._queues[frame.topic]
            await self._put(frame, queues[next(self._turns) % len(queues)])
        else:
            await self._put(frame, queues[frame.shard % len(queues)])

    async def settle(self) -> None:
        """Return when everything that was sent is stored."""
        while self._order:
            await self._finish(self._order[0])

    async def close(self) -> None:
        """Give the connections back."""
        for _, stack in self._pipes.values():
            await stack.aclose()
        self._pipes.clear()

    # --- one frame ------------------------------------------------------------------------------

    async def _put(self, frame: Frame, queue: MessageQueue) -> None:
        flight = self._flight.setdefault(queue, deque())
        while len(flight) >= self._depth:
            await self._finish(flight[0])
        try:
            await self._begin(frame, queue)
        except GantryError as error:
            await self._again(frame, error)
        else:
            flight.append(frame)
            self._order.append(frame)

    async def _begin(self, frame: Frame, queue: MessageQueue) -> None:
        request = frame.request
        request.queue_id, request.broker = queue.queue_id, queue.broker
        frame.queue = queue
        frame.tried.append(queue.broker)
        frame.pipe = None
        frame.pipe = pipe = await self._pipe(queue.broker)
        left = max(0.001, frame.asked_at + self._timeout - self.runtime.now())
        frame.pending = await pipe.begin(request, timeout=left)

    async def _finish(self, frame: Frame) -> None:
        """Wait for the answer to a frame that is under way."""
        assert frame.pending is not None
        assert frame.queue is not None
        self._order.remove(frame)
        self._flight[frame.queue].remove(frame)
        left = max(0.001, frame.asked_at + self._timeout - self.runtime.now())
        try:
            reply = await frame.pending.reply(timeout=left)
            if reply.status is not SendStatus.OK:
                raise ReplyError.for_code(int(reply.status), f"stored as {reply.status.name} only")
        except GantryError as error:
            await self._again(frame, error)
        else:
            frame.stored = Stored(frame.queue, reply)

    async def _again(self, frame: Frame, error: GantryError) -> None:
        """Try a frame until it is stored, on its own; the others wait meanwhile."""
        pause = _FIRST_PAUSE
        while True:
            frame.last_error = error
            self._check(frame, error)
            assert frame.queue is not None
            if not isinstance(error, ReplyError):
                await self._drop(frame.queue.broker, frame.pipe)
            await self.runtime.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                queue = await self._another(frame)
            except GantryError as lookup:
                if not isinstance(error, ReplyError):  # a broker's own word says more
                    error = lookup
                continue
            try:
                await self._begin(frame, queue)
                assert frame.pending is not None
                left = frame.asked_at + self._timeout - self.runtime.now()
                reply = await frame.pending.reply(timeout=max(0.001, left))
                if reply.status is SendStatus.OK:
                    frame.stored = Stored(queue, reply)
                    return
                error = ReplyError.for_code(int(reply.status), f"stored as {reply.status.name}")
            except GantryError as again:
                error = again

    async def _another(self, frame: Frame) -> MessageQueue:
        """Where to try next: a queue of another broker, or else the same queue once more."""
        queues = await self._look(frame.topic)
        assert frame.queue is not None
        if frame.shard is not None and frame.queue in queues:
            return frame.queue
        others = [queue for queue in queues if queue.broker != frame.queue.broker]
        if not others and frame.queue in queues:
            return frame.queue
        others = others or list(queues)
        return others[next(self._turns) % len(others)]

    def _check(self, frame: Frame, error: GantryError) -> None:
        """Raise unless trying again can help, and there is time for it."""
        hopeless = isinstance(error, (InvalidInput, LocalProtocolError)) or (
            isinstance(error, ReplyError) and not error.retriable and error.code not in _UNSAFE
        )
        if isinstance(error, InvalidParameter) and len(frame.tried) < _FEW:
            hopeless = False  # a queue that is no more: the route will say so
        elapsed = self.runtime.now() - frame.asked_at
        if not hopeless and elapsed < self._timeout:
            return
        code = getattr(error, "code", 0)
        where = frame.queue.broker if frame.queue is not None else "no broker"
        raise SendFailed(
            f"{frame} could not be stored: {len(frame.tried)} attempts in {elapsed:.1f}s at"
            f" {', '.join(dict.fromkeys(frame.tried))}; the last at broker {where}, code {code}:"
            f" {error}",
            topic=frame.topic,
            brokers=tuple(frame.tried),
            elapsed=elapsed,
            code=code,
        ) from error

    # --- places ---------------------------------------------------------------------------------

    async def _look(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic and its brokers' addresses, asked for anew."""
        wire = names.wrap(self._space, topic)
        route, _ = await routing.fetch_route_to_publish(
            self.runtime, self._name_servers, wire, timeout=self._config.call_timeout
        )
        known = self._config.reachable
        for broker, by_id in routing.addresses(route).items():
            if MASTER in by_id:
                self._addresses[broker] = known.get(by_id[MASTER], by_id[MASTER])
        queues = routing.publish_queues(wire, route)
        if not queues:
            raise NoAddress(f"no broker of topic {topic} takes messages now")
        self._queues[topic] = queues
        return queues

    async def _pipe(self, broker: str) -> Pipe:
        if broker not in self._pipes:
            address = self._addresses.get(broker)
            if address is None:
                raise NoAddress(f"no route has the address of broker {broker}'s master")
            stack = AsyncExitStack()
            lent: Any = self.runtime.pipe(address, timeout=self._config.connect_timeout)
            self._pipes[broker] = await stack.enter_async_context(lent), stack
        return self._pipes[broker][0]

    async def _drop(self, broker: str, pipe: Pipe | None) -> None:
        """Forget a connection that failed; what was under way on it is found to have failed."""
        if broker in self._pipes and self._pipes[broker][0] is pipe:
            _, stack = self._pipes.pop(broker)
            await stack.aclose()


_UNSAFE: Final = frozenset(
    (SendStatus.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SLAVE_NOT_AVAILABLE)
)
"""Stored, though not as safely as the broker was told to: sent again until it is."""


def wire_topic(config: ClientConfig, topic: str) -> str:
    """The topic as brokers know it."""
    return names.wrap(config.namespace or "", topic)
