"""A member of a consumer group that asks for messages, from its start to its end.

Messages are read ahead into a `Buffer`, as far as the flow limits allow, and wait there until they
are asked for. What was given and is not known to be dealt with is *out*, like what waits: the
offset to commit is the first of them. Asking for more says that what was given before is dealt
with.

So a program that dies, or is left by an exception, gets its last messages again, and one that
commits before it closes does not.

RocketMQ: DefaultLitePullConsumerImpl.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final

from gantrymq.client.engine import Engine
from gantrymq.client.handling import Batch, Handler
from gantrymq.client.holding import Assigned, Holding, Manner, Wanted
from gantrymq.client.membership import GroupMember
from gantrymq.client.reading import OwnedQueue, Reader, Reading
from gantrymq.client.rebalance import Share, Sharing
from gantrymq.client.watching import Problem, problems
from gantrymq.errors import GantryError, PartlyDone, StateError
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.enums import ConsumeType
from gantrymq.protocol.groups import ConsumerData


class Buffer:
    """Messages that wait to be asked for: each queue's in order, the queues in turn."""

    def __init__(self) -> None:
        self._rows: dict[OwnedQueue, deque[ReceivedMessage]] = {}
        self._given: list[tuple[OwnedQueue, list[ReceivedMessage]]] = []
        self._waiter: asyncio.Future[None] | None = None
        self.closed = False

    def put(self, queue: OwnedQueue, messages: Iterable[ReceivedMessage]) -> None:
        """These were read."""
        row = self._rows.get(queue)
        if row is None:
            row = self._rows[queue] = deque()
        row.extend(messages)
        self.wake()

    def take(self, limit: int) -> list[ReceivedMessage]:
        """Up to `limit` messages of queues that are ours and not paused; they are given now."""
        found: list[ReceivedMessage] = []
        for queue in tuple(self._rows):
            row = self._rows[queue]
            if queue.paused:
                continue
            del self._rows[queue]  # it goes to the end, so that the others have their turn
            if queue.stopped:
                continue
            room = limit - len(found)
            if len(row) > room:
                some = [row.popleft() for _ in range(room)]
                self._rows[queue] = row
            else:
                some = list(row)
            self._given.append((queue, some))
            found += some
            if len(found) == limit:
                break
        return found

    async def wait(self) -> None:
        """Return when there may be something to take."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits."""
        return self._waiter is not None

    def wake(self) -> None:
        """Let whoever waits look."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def settle(self) -> None:
        """What was given is dealt with."""
        given, self._given = self._given, []
        for queue, messages in given:
            done = queue.in_flight.done
            for message in messages:
                done(message)
            queue.made_room()

    def take_back(self) -> None:
        """What was given was not received: it waits again, before the others."""
        given, self._given = self._given, []
        for queue, messages in reversed(given):
            if not queue.stopped:
                self._rows.setdefault(queue, deque()).extendleft(reversed(messages))

    def position(self, queue: OwnedQueue) -> int:
        """The offset of the next message of `queue` that will be given."""
        row = self._rows.get(queue)
        return row[0].offset if row else queue.in_flight.next_offset

    def drop(self, queue: OwnedQueue) -> None:
        """Forget what waits of `queue`."""
        self._rows.pop(queue, None)

    def close(self) -> None:
        """Nobody is to wait any more."""
        self.closed = True
        self._rows.clear()
        self.wake()


class _NoTurns:
    """Nobody handles anything here, so nobody is waited for."""

    def enlist(self, queue: OwnedQueue) -> None:
        """There are no turns."""

    async def until(self, condition: Callable[[], bool]) -> None:
        """No queue is ever in turn."""


def _nobody(batch: Batch) -> Handler:
    raise StateError(f"messages of {batch[0].topic} are asked for, and not handled")


class Pulling(GroupMember):
    """One member of a group that asks for messages, or a reader of queues that were assigned."""

    consume_type = ConsumeType.PULL

    def __init__(
        self,
        engine: Engine,
        how: Manner,
        wanted: Mapping[str, Wanted],
        assigned: Assigned | None,
    ) -> None:
        super().__init__(engine, how)
        self.buffer: Final = Buffer()
        self.assigned = assigned
        """The queues that the user has chosen; None while the group shares them."""
        self.last_asked = engine.runtime.now()
        self._sharing: Final = Sharing(engine, how.group, how.strategy, everything=how.everything)
        self.holding = Holding(engine, how, turns=_NoTurns(), handler_of=_nobody, shares=self)
        self.holding.wanted.update(wanted)
        config = how.config
        self.holding.reader = Reader(
            engine,
            Reading(
                group=how.group,
                namespace=how.namespace,
                batch=config.pull_batch,
                most_bytes=config.pull_bytes,
                wait=config.pull_wait,
                is_lite=True,
            ),
            begin=self.holding.begin,
            deliver=self.buffer.put,
            moved=self.holding.moved,
            rates=self.rates_of,
        )

    def round(self) -> Callable[[str], Awaitable[Share]]:
        """What tells our share of each topic: our own choice, or that of the group's strategy."""
        return (self._sharing if self.assigned is None else self.assigned).round()

    def consumer_data(self) -> ConsumerData | None:
        """What heartbeats say of it; who wants no share of the queues is no member of the group."""
        if self.assigned is not None or not self.holding.wanted:
            return None
        return super().consumer_data()

    def problems(self) -> list[Problem]:
        """What of its queues stands still; full ones do not, while messages are asked for."""
        now, after = self.engine.runtime.now(), self.how.config.alarm_after
        idle = now - self.last_asked > after and not self.buffer.is_waited_for
        return problems(self.holding, now, after, full_ones=idle)

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group; the queues that are ours are known when this returns, if they can be."""
        await super().start()
        with suppress(GantryError):  # then it is tried again, as always
            await self.holding.rebalance()

    async def close(self) -> None:
        """Commit what is dealt with, and leave the group."""
        await self._stop_reading()
        self.buffer.close()
        try:
            await self.holding.leave_all()
        finally:
            await self.engine.leave(self)

    async def want(self, wanted: Wanted) -> None:
        """Read one more topic, or the same with another filter."""
        await super().want(wanted)
        await self.holding.rebalance()

    async def assign(self, assigned: Assigned, wanted: Mapping[str, Wanted]) -> None:
        """Read these queues and no others."""
        await self.engine.routes.refresh(wanted)
        await self._check_filters(wanted.values())
        holding, self.assigned = self.holding, assigned
        for queue in tuple(holding.queues.values()):
            new = wanted.get(queue.key.topic)
            if new is None or new.data.expression != queue.wants.expression:
                holding.let_go(queue)
        holding.wanted.clear()
        holding.wanted.update(wanted)
        if not await holding.rebalance():
            holding.again.set()

    # --- messages -------------------------------------------------------------------------------

    async def poll(self, limit: int, timeout: float | None) -> list[ReceivedMessage]:
        """Up to `limit` messages, as soon as there is one; none after `timeout` seconds."""
        buffer, clock = self.buffer, self.engine.runtime.now
        if buffer.is_waited_for:
            raise StateError(
                f"group {self.group}: two polls wait at once; asking for more says that what was"
                f" given before is dealt with, so one consumer is polled by one task or thread"
            )
        self.last_asked = clock()
        buffer.settle()
        found = buffer.take(limit)
        if found or timeout == 0:
            return found
        try:
            async with asyncio.timeout(timeout):
                while not found and not buffer.closed:
                    await buffer.wait()
                    found = buffer.take(limit)
        except TimeoutError:
            return []
        finally:
            self.last_asked = clock()
        return found

    # --- places ---------------------------------------------------------------------------------

    def owned(self, key: MessageQueue) -> OwnedQueue:
        """A queue that is ours; `StateError` if it is not."""
        queue = self.holding.queues.get(key)
        if queue is None:
            ours = ", ".join(map(str, sorted(self.holding.queues))) or "none"
            raise StateError(
                f"queue {key} is not this consumer's of group {self.group} now; it has {ours}"
            )
        return queue

    def seek(self, key: MessageQueue, offset: int) -> None:
        """The next message of a queue to be given is the one at `offset`, or after it."""
        queue = self.owned(key)
        self.buffer.drop(queue)
        self.holding.seek(queue, offset)

    def pause_queues(self, keys: Collection[MessageQueue], *, paused: bool = True) -> None:
        """Give no messages of these queues, and read no more of them; or go on."""
        for queue in [self.owned(key) for key in keys]:
            queue.paused = paused
            queue.made_room()
        self.buffer.wake()

    def pause(self, topics: Collection[str] | None, *, paused: bool = True) -> None:
        """Give no messages of these topics, or of all, and read no more; or go on."""
        super().pause(topics, paused=paused)
        self.buffer.wake()

    def positions(self) -> dict[MessageQueue, int]:
        """Where the next message to be given is, in each queue of which that is known."""
        return {
            key: self.buffer.position(queue)
            for key, queue in self.holding.queues.items()
            if queue.begun
        }

    async def commit(self, offsets: Mapping[MessageQueue, int] | None) -> dict[MessageQueue, int]:
        """Keep these, or how far we are; what was kept. `PartlyDone` if some of it was not."""
        if offsets is None:
            self.buffer.settle()
            ours = self.holding.queues
            offsets = {k: q.in_flight.committable for k, q in ours.items() if q.to_commit}
        else:
            offsets = {self.owned(key).key: offset for key, offset in offsets.items()}
        failed = await self.holding.store.keep(offsets)
        done = {key: offset for key, offset in offsets.items() if key not in failed}
        for key, offset in done.items():
            if (queue := self.holding.queues.get(key)) is not None:
                queue.committed = offset
        if failed:
            raise PartlyDone(
                f"committing offsets of group {self.group}",
                "queues",
                done=tuple(map(str, done)),
                failed={str(key): error for key, error in failed.items()},
            )
        return done
