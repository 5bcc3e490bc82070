"""A member of a consumer group that is given messages, from its start to its end.

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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

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
from gantrymq.client.membership import GroupMember
from gantrymq.client.outcomes import Outcomes
from gantrymq.client.reading import OwnedQueue, Reader, Reading
from gantrymq.client.telemetry import handling_spans
from gantrymq.client.tracing import ConsumeTraces, Traces
from gantrymq.errors import StateError
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.enums import ConsumeResult, ConsumeType
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.names import retry_topic, unwrap
from gantrymq.protocol.running import ConsumeDirectlyReply
from gantrymq.rules.redelivery import GiveUp, RetryLater
from gantrymq.wire.properties import RETRY_TOPIC

log = logging.getLogger("gantrymq.client")


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


NOTHING_LEFT: Final = DrainReport(finished=0, given_back=0, left={})


class Consuming(GroupMember):
    """One member of a group that is given messages."""

    consume_type = ConsumeType.PUSH

    def __init__(self, engine: Engine, how: Manner, wanted: Mapping[str, Wanted]) -> None:
        super().__init__(engine, how)
        self.outcomes = Outcomes(
            engine,
            how.group,
            how.retry,
            everything=how.everything,
            hands_of=self._hands_of,
            rates=self.rates_of,
        )
        self.holding = Holding(engine, how, turns=self.outcomes, handler_of=self._handler_of)
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
        self._hands: dict[str, Hands] = {"handed": self.handed}
        self.traces: Traces | None = None
        self._hooks = ConsumeHooks(how.group, how.hooks)

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

    # --- the start ------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the group, and begin."""
        how = self.how
        if not how.everything:
            topic = retry_topic(how.group)
            data = Subscription(topic=topic, version=now_ms())
            self.holding.wanted[topic] = Wanted(topic=None, data=data, handler=None)
        await super().start()
        if how.locks_queues:
            self._spawn(self._every(how.config.lock_interval, self.holding.renew_locks), "locks")
        if not how.in_order:
            look = min(max(how.config.handler_timeout / 4, 0.05), 60.0)
            self._spawn(self._every(look, self._give_back_overdue), "handler time-outs")

    def _joined(self) -> None:
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

    async def want(self, wanted: Wanted) -> None:
        """Read one more topic, or the same with another filter or handler."""
        self._watch_handler(wanted)
        await super().want(wanted)

    # --- the end --------------------------------------------------------------------------------

    async def close(self, timeout: float) -> DrainReport:
        """Finish what can be finished in that time, and leave the group."""
        await self._stop_reading()
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
