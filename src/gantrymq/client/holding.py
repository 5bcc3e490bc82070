"""The queues that a consumer has: how it comes by them, keeps them and lets them go.

```
             share ▶ lock (ordered) ▶ begin where the group is
  not ours ─────────────────────────────────────────────────────▶ read and handled
      ▲                                                               │
      └────── wait for the hand (ordered) ◀ stop reading ◀────────────┘  other share, lock lost,
              commit ▶ unlock (ordered)                                  offset moved or reset
```

A queue that is being left is neither ours nor free for us: it is taken anew only when it has been
left. One that has to go on at another offset is left and taken in one go.

**Rebalance** happens when it is asked for (a broker's notice, a route or a subscription that
changed, a queue that could not be taken) and every 20 seconds.

RocketMQ: RebalanceImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol

from gantrymq.client.consumer_config import ConsumerConfig
from gantrymq.client.engine import Engine
from gantrymq.client.handling import Batch, Handler
from gantrymq.client.hooks import ConsumeHook
from gantrymq.client.identity import now_ms
from gantrymq.client.offsets import OffsetStore
from gantrymq.client.reading import OwnedQueue, Reader
from gantrymq.client.rebalance import LOCK_LASTS, Locks, Share, Sharing, Unknown, differences
from gantrymq.errors import InvalidInput
from gantrymq.flows.offsets import Start
from gantrymq.flows.pulling import SQL, TAG, subscription_data
from gantrymq.model import MessageQueue
from gantrymq.protocol.enums import ConsumeFromWhere
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.names import is_retry_topic, wrap
from gantrymq.protocol.validation import check_topic
from gantrymq.rules.allocation import EVENLY, Strategy
from gantrymq.rules.filtering import EVERYTHING
from gantrymq.rules.redelivery import RetryPolicy

log = logging.getLogger("gantrymq.client")

_AT_LEAST: Final = 0.2
"""Seconds between one rebalance and the next, however often it is asked for."""
_SOON: Final = 0.5
"""Seconds until a rebalance is tried again that left something undone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a consumer consumes."""

    group: str
    """With its namespace, as brokers know it."""
    start: Start
    namespace: str = ""
    strategy: Strategy = EVENLY
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    config: ConsumerConfig = field(default_factory=ConsumerConfig)
    hooks: tuple[ConsumeHook, ...] = ()
    commits: bool = True
    """Whether offsets are committed without being asked to."""

    @property
    def in_order(self) -> bool:
        """Whether the messages of a queue are handled one after the other."""
        return self.config.ordered

    @property
    def everything(self) -> bool:
        """Broadcasting: each member gets all messages."""
        return self.config.broadcast

    @property
    def locks_queues(self) -> bool:
        """Whether queues have to be locked before they are read."""
        return self.in_order and not self.everything

    @property
    def from_where(self) -> ConsumeFromWhere:
        """What heartbeats say of `start`."""
        if self.start == "earliest":
            return ConsumeFromWhere.FIRST_OFFSET
        return (
            ConsumeFromWhere.LAST_OFFSET if self.start == "latest" else ConsumeFromWhere.TIMESTAMP
        )


@dataclass(slots=True, kw_only=True)
class Wanted:
    """A topic that the consumer wants, and who handles it."""

    topic: str | None
    """As the user calls it; None for the retry topic."""
    data: Subscription
    handler: Handler | None


def make_wanted(
    namespace: str,
    topic: str,
    *,
    tags: str = EVERYTHING,
    sql: str | None = None,
    handler: Handler | None = None,
) -> Wanted:
    """A topic and what is wanted of it, checked."""
    check_topic(topic)
    if sql is not None and tags != EVERYTHING:
        raise InvalidInput(f"topic {topic}: messages are chosen by tags or by SQL, not both")
    kind, expression = (TAG, tags) if sql is None else (SQL, sql)
    data = subscription_data(wrap(namespace, topic), expression, kind, version=now_ms())
    return Wanted(topic=topic, data=data, handler=handler)


class Shares(Protocol):
    """Whoever says which queues are ours."""

    def round(self) -> Callable[[str], Awaitable[Share]]:
        """What tells our share of each topic, for one rebalance."""
        ...


class Assigned:
    """Queues that the user has chosen, whoever else reads them."""

    def __init__(self) -> None:
        self.queues: frozenset[MessageQueue] = frozenset()

    def round(self) -> Callable[[str], Awaitable[Share]]:
        """What tells our share of each topic."""

        async def share_of(topic: str) -> Share:
            ours = frozenset(queue for queue in self.queues if queue.topic == topic)
            return Share(topic=topic, queues=ours, of=len(ours))

        return share_of


class Turns(Protocol):
    """Whoever sees to it that one hand at a time is at an ordered queue."""

    def enlist(self, queue: OwnedQueue) -> None:
        """Have somebody handle what an ordered queue has, if it may be handled now."""
        ...

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds; it is looked at whenever something was dealt with."""
        ...


class Holding:
    """The queues of one consumer."""

    def __init__(
        self,
        engine: Engine,
        how: Manner,
        *,
        turns: Turns,
        handler_of: Callable[[Batch], Handler],
        shares: Shares | None = None,
    ) -> None:
        self.wanted: dict[str, Wanted] = {}
        """By topic."""
        self.queues: dict[MessageQueue, OwnedQueue] = {}
        self.leaving: dict[MessageQueue, OwnedQueue] = {}
        self.members: dict[str, tuple[str, ...]] = {}
        """Topics with the members of the group that the last rebalance saw."""
        self.unknown: dict[str, tuple[float, str]] = {}
        """Topics of which it is not known which queues are ours: since when, and why."""
        self.missing: dict[MessageQueue, tuple[float, str]] = {}
        """Queues that are ours and could not be taken: since when, and why."""
        self.paused = False
        self.closing = False
        self.reader: Reader
        self.store: OffsetStore
        self.again = asyncio.Event()
        """Set it to have the queues shared anew."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when other queues are ours than before."""
        self.on_round: Callable[[], None] = lambda: None
        """Called after each rebalance."""
        self._how = how
        self._turns = turns
        self._handler_of = handler_of
        self._clock = engine.runtime.now
        self._sharing = shares or Sharing(
            engine, how.group, how.strategy, everything=how.everything
        )
        self._locks = Locks(engine, how.group)
        self._moves: dict[asyncio.Task[None], None] = {}

    # --- sharing --------------------------------------------------------------------------------

    async def rebalance_for_ever(self) -> None:
        """Own what is ours, as often as that may have changed."""
        while True:
            self.again.clear()
            try:
                done = await self.rebalance()
            except Exception:  # without it nobody would take the queues of who leaves
                log.exception("rebalance of group %s failed", self._how.group)
                done = False
            self.on_round()
            try:
                async with asyncio.timeout(self._how.config.rebalance_interval if done else _SOON):
                    await self.again.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(_AT_LEAST)

    async def rebalance(self) -> bool:
        """Own what is ours now, and nothing else; whether nothing was left undone."""
        done = True
        share_of = self._sharing.round()
        for topic in tuple(self.wanted):
            try:
                share = await share_of(topic)
            except Unknown as why:
                self._cannot_tell(topic, str(why))
                done = False
                continue
            if topic in self.wanted:
                self.unknown.pop(topic, None)
                self.members[topic] = share.members
                done = await self._own_exactly(topic, share.queues) and share.settled and done
        return done

    def _cannot_tell(self, topic: str, why: str) -> None:
        since, before = self.unknown.get(topic, (self._clock(), None))
        if before != why:
            level = logging.DEBUG if is_retry_topic(topic) or before is None else logging.INFO
            log.log(level, "group %s, topic %s: %s", self._how.group, topic, why)
        self.unknown[topic] = since, why

    async def _own_exactly(self, topic: str, ours: Collection[MessageQueue]) -> bool:
        """Leave what is not ours any more, take what is; whether all of it could be taken."""
        held = [key for key in self.queues if key.topic == topic]
        gone, new = differences(held, ours)
        for key in gone:
            self.let_go(self.queues[key])
        free = [key for key in new if key not in self.leaving]
        got, others, locked_until = await self._locked(topic, free)
        wanted = self.wanted.get(topic)
        if wanted is None or self.closing:
            return True
        for key in sorted(got):
            self._own(key, wanted, locked_until=locked_until)
        self._note_missing(topic, set(new) - got, others)
        if gone or got:
            names = _listed("new", got) + _listed("gone", gone)
            log.info(
                "group %s: %d queues of %s are ours%s", self._how.group, len(ours), topic, names
            )
            self._share_limits(topic)
            self.on_change()
        return len(got) == len(new)

    async def _locked(
        self, topic: str, free: Collection[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue], float]:
        """Those of `free` that may be taken, those that another member has, until when."""
        if not free or not self._how.locks_queues or is_retry_topic(topic):
            return set(free), set(), inf
        asked = self._clock()
        got, others = await self._locks.take(free)
        return got, others, asked + LOCK_LASTS

    def _note_missing(
        self, topic: str, missing: Collection[MessageQueue], others: Collection[MessageQueue]
    ) -> None:
        for key in [key for key in self.missing if key.topic == topic and key not in missing]:
            del self.missing[key]
        now = self._clock()
        for key in missing:
            why = "its broker does not answer"
            if key in self.leaving:
                why = "a handler is still at messages from before it was given to another member"
            elif key in others:
                why = "another member has locked it"
            since = self.missing[key][0] if key in self.missing else now
            self.missing[key] = since, why

    def _own(
        self,
        key: MessageQueue,
        wanted: Wanted,
        *,
        locked_until: float = inf,
        offset: int | None = None,
        committed: int | None = None,
    ) -> OwnedQueue:
        is_retry = is_retry_topic(key.topic)
        queue = OwnedQueue(
            key,
            wanted.data,
            wanted.handler,
            topic=wanted.topic,
            limits=self._how.config.limits,
            clock=self._clock,
            in_order=self._how.in_order and not is_retry,
            handler_of=self._handler_of if is_retry else None,
        )
        queue.locked_until = locked_until
        queue.paused = self.paused
        queue.begin_at, queue.committed = offset, committed
        self.queues[key] = queue
        self.reader.start(queue)
        return queue

    def _share_limits(self, topic: str) -> None:
        config = self._how.config
        messages, size = config.topic_flow_messages, config.topic_flow_bytes
        if messages is None and size is None:
            return
        ours = self.of_topic(topic)
        limits = config.limits.shared_by(len(ours), messages, size)
        for queue in ours:
            queue.limits = limits

    def of_topic(self, topic: str) -> list[OwnedQueue]:
        """The queues of a topic that are ours."""
        return [queue for key, queue in self.queues.items() if key.topic == topic]

    async def begin(self, queue: OwnedQueue) -> int:
        """Where to read a queue."""
        if queue.begin_at is not None:
            return queue.begin_at
        return await self.store.begin(queue.key, self._how.start)

    # --- leaving --------------------------------------------------------------------------------

    def let_go(self, queue: OwnedQueue) -> None:
        """Leave a queue: others may have it as soon as that is safe."""
        self._retire(queue)
        self._move(self._hand_over(queue), f"leaving {queue}")

    def _retire(self, queue: OwnedQueue) -> None:
        queue.stopped = True
        queue.stop_reading()
        self.queues.pop(queue.key, None)
        self.leaving[queue.key] = queue

    def _move(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"gantrymq {name}")
        self._moves[task] = None
        task.add_done_callback(self._moved_over)

    def _moved_over(self, task: asyncio.Task[None]) -> None:
        self._moves.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s of group %s failed", task.get_name(), self._how.group, exc_info=error)

    async def _hand_over(self, queue: OwnedQueue) -> None:
        try:
            await self._quiet(queue)
            if self._how.commits and queue.to_commit:
                await self.store.commit({queue.key: queue.in_flight.committable})
            if self._how.locks_queues:
                await self._locks.release([queue.key])
        finally:
            self.leaving.pop(queue.key, None)

    async def _quiet(self, queue: OwnedQueue) -> None:
        """Wait for the handler that is at an ordered queue; nobody else may begin before."""
        try:
            async with asyncio.timeout(self._how.config.alarm_after):
                await self._turns.until(lambda: not queue.in_turn)
        except TimeoutError:
            log.warning(
                "group %s: %s is not ours any more, but for %.0fs its handler has not come to an"
                " end; until then nobody can go on",
                self._how.group,
                queue,
                self._how.config.alarm_after,
            )
            await self._turns.until(lambda: not queue.in_turn)

    def moved(self, queue: OwnedQueue, offset: int, remark: str | None) -> None:
        """The broker does not have the offset that was to be read."""
        asked, group = queue.in_flight.next_offset, self._how.group
        if remark == "OFFSET_RESET":
            log.info("%s of %s goes on at %d: it was reset", queue, group, offset)
        elif offset > asked:
            log.warning(
                "messages %d to %d of %s are gone before group %s has had them: they are not kept"
                " for long enough; it goes on at %d",
                asked,
                offset - 1,
                queue,
                group,
                offset,
            )
        else:
            log.warning(
                "%s ends at %d, before offset %d of group %s, which goes on at its end",
                queue,
                offset,
                asked,
                group,
            )
        self.restart(queue, offset)

    def restart(self, queue: OwnedQueue, offset: int) -> None:
        """Leave a queue and take it again at `offset`."""
        self._retire(queue)
        self._move(self._take_again(queue, offset), f"moving {queue}")

    async def _take_again(self, queue: OwnedQueue, offset: int) -> None:
        try:
            await self._quiet(queue)
            if self._how.commits:
                await self.store.commit({queue.key: offset})
        finally:
            self.leaving.pop(queue.key, None)
        wanted = self.wanted.get(queue.key.topic)
        if wanted is not None and not self.closing and queue.key not in self.queues:
            kept = offset if self._how.commits else None
            self._own(
                queue.key, wanted, locked_until=queue.locked_until, offset=offset, committed=kept
            )
            self.again.set()

    def seek(self, queue: OwnedQueue, offset: int) -> OwnedQueue:
        """Go on at `offset` at once; nothing is committed by that alone."""
        queue.stopped = True
        queue.stop_reading()
        new = self._own(
            queue.key, self.wanted[queue.key.topic], offset=offset, committed=queue.committed
        )
        new.paused, new.limits = queue.paused, queue.limits
        return new

    async def leave_all(self) -> dict[MessageQueue, int]:
        """Leave everything; how many messages were not handled, by queue."""
        queues = tuple(self.queues.values())
        for queue in queues:
            queue.stopped = True
        if self._how.commits:
            await self.commit()
        for task in (moves := tuple(self._moves)):
            task.cancel()
        await asyncio.gather(*moves, return_exceptions=True)
        if self._how.locks_queues:
            await self._locks.release([*self.queues, *self.leaving])
        self.queues.clear()
        self.leaving.clear()
        return {queue.key: len(queue.in_flight) for queue in queues if len(queue.in_flight)}

    # --- keeping --------------------------------------------------------------------------------

    async def renew_locks(self) -> None:
        """Make the locks last longer; what another member has by now is left."""
        held = [*self.queues.values(), *self.leaving.values()]
        ordered = {queue.key: queue for queue in held if queue.in_order}
        asked = self._clock()
        ours, others = await self._locks.take(ordered)
        for key, queue in ordered.items():
            if key in ours:
                queue.locked_until = asked + LOCK_LASTS
                self._turns.enlist(queue)
            elif self.queues.get(key) is queue and (
                key in others or self._clock() >= queue.locked_until
            ):
                log.warning("group %s: the lock of %s is lost", self._how.group, key)
                queue.locked_until = 0.0
                self.let_go(queue)
                self.again.set()

    async def commit(self) -> None:
        """Keep how far the group has come in the queues that are ours."""
        now = {
            key: (queue, queue.in_flight.committable)
            for key, queue in self.queues.items()
            if queue.to_commit
        }
        if not now:
            return
        kept = await self.store.commit({key: offset for key, (_, offset) in now.items()})
        for key in kept:
            queue, offset = now[key]
            queue.committed = offset


def _listed(what: str, keys: Collection[MessageQueue]) -> str:
    return f"; {what}: {', '.join(map(str, sorted(keys)))}" if keys else ""
