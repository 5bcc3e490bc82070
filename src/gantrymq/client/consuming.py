"""A member of a consumer group at work, from its start to its end.

The parts: `Holding` has the queues, `Reader` reads them, *hands* handle what was read, `Outcomes`
does what follows from that. Here they are joined, started and stopped.

**The end** has an order. First nothing new is read. What was read is handled, as far as the time
allows; handlers that are not done then are cut off, and their messages given back. Then offsets
are committed, locks released, and last the brokers are told.

RocketMQ: DefaultMQPushConsumerImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gantrymq.client.agreeing import Agreement
from gantrymq.client.engine import Engine
from gantrymq.client.handling import (
    AsyncHands,
    Batch,
    Handed,
    Handler,
    Hands,
    ThreadHands,
    call_once,
    watched,
)
from gantrymq.client.holding import Holding, Manner, Wanted
from gantrymq.client.hooks import ConsumeHooks
from gantrymq.client.identity import now_ms
from gantrymq.client.members import Member
from gantrymq.client.offsets import BrokerOffsets, LocalOffsets, local_path
from gantrymq.client.outcomes import Outcomes
from gantrymq.client.rates import Rates
from gantrymq.client.reading import OwnedQueue, Reader, Reading
from gantrymq.client.reporting import running_info
from gantrymq.client.telemetry import handling_spans
from gantrymq.client.tracing import ConsumeTraces, Traces
from gantrymq.client.watching import Alarm, Problem, problems
from gantrymq.errors import StateError
from gantrymq.flows.groups import check_filter
from gantrymq.flows.pulling import TAG
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.enums import ConsumeResult, ConsumeType, MessageModel
from gantrymq.protocol.groups import ConsumerData, Subscription
from gantrymq.protocol.names import retry_topic, unwrap
from gantrymq.protocol.running import ConsumeDirectlyReply, RunningInfo
from gantrymq.rules.redelivery import GiveUp, RetryLater
from gantrymq.wire.properties import RETRY_TOPIC

log = logging.getLogger("gantrymq.client")

_SETTLED: Final = 2.0
"""Seconds after a change of the group's members until they are asked what they want."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport:
    """What became of the messages that a consumer had when it was told to close."""

    finished: int
    """Handled well since then."""
    given_back: int
    """Given to the broker, to be delivered later: handlers failed, or were not done in time."""
    left: Mapping[MessageQueue, int]
    """Not handled, by queue: delivered again, from the offset that is committed."""

    @property
    def is_clean(self) -> bool:
        """Whether everything was finished."""
        return not self.given_back and not self.left

    def __str__(self) -> str:
        left = sum(self.left.values())
        where = f" in {', '.join(map(str, sorted(self.left)))}" if left else ""
        return f"{self.finished} finished, {self.given_back} given back, {left} left{where}"


class Consuming(Member):
    """One member of a group."""

    kind = "consumer"

    def __init__(self, engine: Engine, how: Manner, wanted: Mapping[str, Wanted]) -> None:
        self.engine = engine
        self.how = how
        self.group = how.group
        self.rates: dict[str, Rates] = {}
        self.started_ms = 0
        self.outcomes = Outcomes(
            engine,
            how.group,
            how.retry,
            everything=how.everything,
            hands_of=self._hands_of,
            rates=self.rates_of,
        )
        self.holding = Holding(engine, how, outcomes=self.outcomes, handler_of=self._handler_of)
        self.holding.wanted.update(wanted)
        self.holding.reader = Reader(
            engine,
            Reading(
                group=how.group,
                namespace=how.namespace,
                batch=how.config.pull_batch,
                most_bytes=how.config.pull_bytes,
                wait=how.config.pull_wait,
                commits=not how.everything,
            ),
            begin=self.holding.begin,
            deliver=self._deliver,
            moved=self.holding.moved,
            rates=self.rates_of,
        )
        self.handed = Handed(self.outcomes)
        self.holding.on_round = self._members_seen
        self._alarm = Alarm(how.group)
        self._agreement = Agreement(engine, how.group)
        self._members: set[str] = set()
        self._hands: dict[str, Hands] = {"handed": self.handed}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unwatch: Callable[[], None] = lambda: None
        self.traces: Traces | None = None
        self._hooks = ConsumeHooks(how.group, how.hooks)

    # --- what the engine asks -------------------------------------------------------------------

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say of it."""
        how = self.how
        model = MessageModel.BROADCASTING if how.everything else MessageModel.CLUSTERING
        return ConsumerData(
            group=how.group,
            consume_type=ConsumeType.PUSH,
            message_model=model,
            consume_from=how.from_where,
            subscriptions=[wanted.data for wanted in self.holding.wanted.values()],
            unit_mode=self.engine.config.unit_mode,
        )

    def topics(self) -> Collection[str]:
        """The topics that it reads."""
        return tuple(self.holding.wanted)

    def members_changed(self) -> None:
        """Share the queues anew, at once."""
        self.holding.again.set()

    def offsets(self, topic: str) -> dict[MessageQueue, int]:
        """How far it has come in the queues of `topic` that it has."""
        return {
            queue.key: queue.in_flight.committable
            for queue in self.holding.of_topic(topic)
            if queue.begun
        }

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets in the queues that are ours."""
        for queue in self.holding.of_topic(topic):
            if (offset := offsets.get(queue.key)) is not None:
                log.info("%s of %s goes on at %d, as it was told", queue, self.group, offset)
                self.holding.restart(queue, offset)

    def running_info(self, *, stacks: bool) -> RunningInfo:
        """What it is doing."""
        return running_info(self, stacks=stacks)

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeDirectlyReply:
        """Have one message handled now, and say what came of it; no offset moves."""
        origin = message.find(RETRY_TOPIC) or message.stored.topic
        message.topic = unwrap(self.how.namespace, origin)
        handler = self._handler_of([message])
        began = self.engine.runtime.now()
        error = await call_once(handler, message)
        result = ConsumeResult.SUCCESS if error is None else ConsumeResult.THREW
        if isinstance(error, RetryLater | GiveUp):
            result = ConsumeResult.LATER
        return ConsumeDirectlyReply(
            ordered=self.how.in_order,
            result=result,
            explanation=None if error is None else f"{type(error).__name__}: {error}",
            spent_ms=round(1000 * (self.engine.runtime.now() - began)),
        )

    def problems(self) -> list[Problem]:
        """What of its queues stands still, and why."""
        return problems(self.holding, self.engine.runtime.now(), self.how.config.alarm_after)

    async def _watch(self) -> None:
        now = self.engine.runtime.now()
        for rates in self.rates.values():
            rates.sample(now)
        self._alarm.look(self.problems(), now)

    def _members_seen(self) -> None:
        """Ask the others what they want, if they are others than before."""
        members = {one for members in self.holding.members.values() for one in members}
        if members != self._members and self.how.config.check_subscriptions:
            self._members = members
            self._spawn(self._compare(members), "comparing subscriptions")

    async def _compare(self, members: Collection[str]) -> None:
        await asyncio.sleep(_SETTLED)
        data = [wanted.data for wanted in self.holding.wanted.values()]
        for queue in tuple(self.holding.queues):
            if (address := self.engine.routes.master(queue.broker)) is not None:
                await self._agreement.check(data, members, address)
                return

    # --- the start ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group, and begin."""
        how, engine, holding = self.how, self.engine, self.holding
        if not how.everything:
            topic = retry_topic(how.group)
            data = Subscription(topic=topic, version=now_ms())
            holding.wanted[topic] = Wanted(topic=None, data=data, handler=None)
        await engine.join(self)
        try:
            await self._check_filters(holding.wanted.values())
        except BaseException:
            await engine.leave(self)
            raise
        self.started_ms = now_ms()
        self._watch_handlers()
        holding.store = self._offset_store()
        self._unwatch = engine.routes.watch(self._route_changed)
        self._spawn(holding.rebalance_for_ever(), "rebalance")
        self._spawn(self._every(how.config.commit_interval, holding.commit), "commits")
        self._spawn(self._every(how.config.alarm_after / 3, self._watch), "alarms")
        if how.locks_queues:
            self._spawn(self._every(how.config.lock_interval, holding.renew_locks), "locks")
        if not how.in_order:
            look = min(max(how.config.handler_timeout / 4, 0.05), 60.0)
            self._spawn(self._every(look, self._give_back_overdue), "handler time-outs")

    def _watch_handlers(self) -> None:
        """Have the hooks, traces and OpenTelemetry around whoever handles messages."""
        how, engine = self.how, self.engine
        group = unwrap(how.namespace, how.group)
        hooks = list(how.hooks)
        if how.config.trace:
            self.traces = Traces(engine, group, how.config.trace_topic)
            hooks.append(ConsumeTraces(engine, self.traces))
        if how.config.telemetry:
            spans = handling_spans(engine.client_id, how.namespace, everything=how.everything)
            hooks += [spans] if spans is not None else []
        if not hooks:
            return
        self._hooks = ConsumeHooks(group, hooks)
        self.handed.hooks = self._hooks
        for wanted in self.holding.wanted.values():
            self._watch_handler(wanted)

    def _watch_handler(self, wanted: Wanted) -> None:
        if wanted.handler is not None and len(self._hooks):
            wanted.handler = watched(wanted.handler, self._hooks)

    def _offset_store(self) -> BrokerOffsets | LocalOffsets:
        engine, config = self.engine, self.how.config
        if not self.how.everything:
            return BrokerOffsets(engine, self.group)
        name = f"{engine.client_id.partition('@')[0]}@{engine.config.instance_name}"
        directory = None if config.offsets_directory is None else Path(config.offsets_directory)
        return LocalOffsets(engine, local_path(directory, name, self.group))

    async def _check_filters(self, wanted: Iterable[Wanted]) -> None:
        """Have brokers say whether they can filter, before anything is missed."""
        routes = self.engine.routes
        for want in wanted:
            if want.data.expression_type == TAG:
                continue
            queues = await routes.queues_to_subscribe(want.data.topic)
            for broker in sorted({queue.broker for queue in queues}):
                if (address := routes.address(broker)) is not None:
                    await check_filter(
                        self.engine.runtime,
                        address,
                        self.group,
                        want.data,
                        client_id=self.engine.client_id,
                    )

    def _route_changed(self, topic: str) -> None:
        if topic in self.holding.wanted:
            self.holding.again.set()

    # --- changes --------------------------------------------------------------------------------

    async def want(self, wanted: Wanted) -> None:
        """Read one more topic, or the same with another filter or handler."""
        topic = wanted.data.topic
        await self.engine.routes.refresh([topic])
        await self._check_filters([wanted])
        for queue in self.holding.of_topic(topic):
            self.holding.let_go(queue)
        self._watch_handler(wanted)
        self.holding.wanted[topic] = wanted
        await self.engine.beat()
        self.holding.again.set()

    async def unwant(self, topic: str) -> None:
        """Read a topic no more."""
        for table in (self.holding.wanted, self.holding.members, self.holding.unknown):
            table.pop(topic, None)
        for queue in self.holding.of_topic(topic):
            self.holding.let_go(queue)
        await self.engine.beat()

    def pause(self, topics: Collection[str] | None, *, paused: bool = True) -> None:
        """Read no more for now, or read on; what was read is handled."""
        if topics is None:
            self.holding.paused = paused
        for queue in self.holding.queues.values():
            if topics is None or queue.key.topic in topics:
                queue.paused = paused
                queue.made_room()

    # --- the end --------------------------------------------------------------------------------

    async def close(self, timeout: float) -> DrainReport:
        """Finish what can be finished in that time, and leave the group."""
        self.holding.closing = True
        self._unwatch()
        readers = (queue.reader for queue in self.holding.queues.values())
        tasks = [*self._tasks, *(reader for reader in readers if reader is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        tally = self.outcomes.tally
        finished, given_back = tally.finished, tally.given_back
        try:
            await self._finish(timeout)
        finally:
            await self.outcomes.close()
            left = await self.holding.leave_all()
            if self.traces is not None:
                await self.traces.close(self.how.config.close_timeout)
            await self.engine.leave(self)
        return DrainReport(
            finished=tally.finished - finished, given_back=tally.given_back - given_back, left=left
        )

    async def _finish(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                await self.outcomes.until(self._nothing_left)
        except TimeoutError:
            pass
        for hands in tuple(self._hands.values()):
            for queue, batch in await hands.close():
                assert isinstance(queue, OwnedQueue)
                if not queue.in_order and not self.how.everything:
                    still = [message for message in batch if message in queue.in_flight]
                    cut = asyncio.CancelledError("the consumer closed")
                    await self.outcomes.give_back(queue, still, cut)

    def _nothing_left(self) -> bool:
        holding = self.holding
        if self.outcomes.under_way or any(q.in_turn for q in holding.leaving.values()):
            return False
        if any(hands.busy() for hands in self._hands.values()):
            return False
        return self.handed.is_used or not any(len(q.in_flight) for q in holding.queues.values())

    # --- handling -------------------------------------------------------------------------------

    def rates_of(self, topic: str) -> Rates:
        """The rates of a topic."""
        rates = self.rates.get(topic)
        if rates is None:
            rates = self.rates[topic] = Rates.since(self.engine.runtime.now())
        return rates

    def _handler_of(self, batch: Batch) -> Handler:
        topic = batch[0].topic
        for wanted in self.holding.wanted.values():
            if wanted.topic == topic and wanted.handler is not None:
                return wanted.handler
        raise StateError(f"nobody handles topic {topic} here, but a message of it was retried")

    def _deliver(self, queue: OwnedQueue, messages: list[ReceivedMessage]) -> None:
        if queue.in_order:
            assert queue.waiting is not None
            queue.waiting.extend(messages)
            self.outcomes.enlist(queue)
        elif queue.handler_of_batch is None:
            self._give(queue, queue.handler, messages)
        else:
            by_topic: dict[str, list[ReceivedMessage]] = {}
            for message in messages:
                by_topic.setdefault(message.topic, []).append(message)
            for some in by_topic.values():
                self._give(queue, self._handler_or_none(some), some)

    def _handler_or_none(self, batch: Batch) -> Handler | None:
        try:
            return self._handler_of(batch)
        except StateError:
            return None

    def _give(
        self, queue: OwnedQueue, handler: Handler | None, messages: list[ReceivedMessage]
    ) -> None:
        hands = self._hands_for(handler)
        if handler is None or handler.batch is None:
            hands.give([(queue, [message]) for message in messages])
            return
        size = handler.batch
        hands.give([(queue, messages[at : at + size]) for at in range(0, len(messages), size)])

    def _hands_of(self, queue: OwnedQueue, batch: Batch) -> Hands:
        handler = queue.handler
        if handler is None and queue.handler_of_batch is not None:
            handler = self._handler_or_none(batch)
        return self._hands_for(handler)

    def _hands_for(self, handler: Handler | None) -> Hands:
        kind = "handed" if handler is None else "tasks" if handler.is_async else "threads"
        if kind == "handed" and any(w.handler is not None for w in self.holding.wanted.values()):
            kind = "tasks"  # which finds that nobody handles it, and says so
        hands = self._hands.get(kind)
        if hands is None:
            make = AsyncHands if kind == "tasks" else ThreadHands
            hands = self._hands[kind] = make(self.outcomes, self.how.config.concurrency)
        return hands

    async def _give_back_overdue(self) -> None:
        limit = self.how.config.handler_timeout
        for hands in tuple(self._hands.values()):
            for row, batch, seconds in hands.overdue(limit):
                assert isinstance(row, OwnedQueue)
                self.outcomes.overdue(row, batch, seconds)

    # --- tasks ----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=f"gantrymq {name}")
        self._tasks.add(task)
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s of group %s failed", task.get_name(), self.group, exc_info=error)

    async def _every(self, seconds: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await do()
            except Exception:  # the next time may be better, and there has to be a next time
                log.exception("group %s", self.group)
