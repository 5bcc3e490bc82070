"""RocketMQ's message traces: what producers and consumers tell of their messages, as messages.

Records wait in a row, and go out together: every 50 ms, up to a hundred in one message, under the
ids and keys of the messages that they tell of, by which consoles find them. They go to the trace
topic over the member's own connections, beside its work. Nothing that happens to them disturbs it:
where the row is full, or brokers do not take them, records are dropped, counted and told of in the
log. Who closes waits until they are sent, for a while.

What is traced is what Java clients trace: attempts that a broker answered, unless it said that it
wants no traces (`traceOn=false`), and messages that were not marked so when they were stored.

RocketMQ: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl,
EndTransactionTraceHookImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.client.handling import HandlerTimeout
from gantrymq.client.hooks import ConsumeHook, Handling, SendHook, TransactionEnd
from gantrymq.client.identity import now_ms
from gantrymq.client.places import EnginePlaces
from gantrymq.errors import GantryError
from gantrymq.flows import sending
from gantrymq.flows.drafting import Drafting, DraftRules, MessageKind
from gantrymq.flows.sending import Attempt, Sender
from gantrymq.model import Message, ReceivedMessage
from gantrymq.protocol.names import AUTO_CREATE_TOPIC
from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Recalled,
    Sent,
    TracedType,
    TraceRecord,
    TransactionEnded,
    write_records,
)
from gantrymq.protocol.transactions import Decision
from gantrymq.rules.queue_choice import QueueChoice
from gantrymq.rules.redelivery import GiveUp, RetryLater
from gantrymq.rules.retry import SendRetries
from gantrymq.wire import properties as names

if TYPE_CHECKING:
    from gantrymq.client.engine import Engine

log = logging.getLogger("gantrymq.client")

_GROUP: Final = "_INNER_TRACE_PRODUCER"
_WAITING: Final = 8192
"""Records that may wait to be sent."""
_TOGETHER: Final = 100
_LARGEST: Final = 128_000
"""Records in one message, and their characters. RocketMQ: AsyncTraceDispatcher.maxMsgSize."""
_LONGEST_KEYS: Final = 16_000
_LINGER: Final = 0.05
_TIMEOUT: Final = 5.0
_REGION: Final = "DefaultRegion"

_TYPES: Final = {
    MessageKind.HALF: TracedType.HALF,
    MessageKind.DELAYED: TracedType.DELAYED,
}
"""Ordered messages are traced as normal ones, as RocketMQ's clients do it: there is a number for
them, and readers of 4.x that come upon it give up on all that was traced together."""
_STATES: Final = {
    Decision.COMMIT: "COMMIT_MESSAGE",
    Decision.ROLLBACK: "ROLLBACK_MESSAGE",
    Decision.UNDECIDED: "UNKNOW",
}

SUCCESS: Final = 0
TIME_OUT: Final = 1
EXCEPTION: Final = 2
FAILED: Final = 4
"""How handling ended. RocketMQ: ConsumeReturnType."""


class _Line(NamedTuple):
    record: TraceRecord
    keys: tuple[str, ...]
    """By which the message that carries it is found."""


class Traces:
    """The traces of one producer or consumer on their way to the trace topic."""

    def __init__(self, engine: Engine, group: str, topic: str) -> None:
        self.topic: Final = topic
        self.dropped = 0
        """Records that nobody will ever read."""
        self._group: Final = group
        self._loop: Final = engine.loop
        self._runtime: Final = engine.runtime
        self._row: deque[_Line] = deque()
        self._some: Final = asyncio.Event()
        self._end: Final = asyncio.Event()
        self._told = False
        self._failing = False
        rules = DraftRules(group=f"{_GROUP}-{group}")
        self._sender: Final = Sender(
            places=EnginePlaces(engine, AUTO_CREATE_TOPIC, 4),
            choice=QueueChoice(engine.runtime.now, engine.chance),
            retries=SendRetries(),
            drafting=Drafting(rules, engine.unique_ids, now_ms),
            chance=engine.chance,
        )
        self._task: Final = engine.spawn(self._work(), "traces")

    def add(self, record: TraceRecord, keys: Iterable[str] = ()) -> None:
        """Have `record` sent, if there is room for it; for any thread."""
        if self._end.is_set() or len(self._row) >= _WAITING:
            self.dropped += 1
            return
        self._row.append(_Line(record, tuple(keys)))
        if not self._told:
            self._told = True
            with suppress(RuntimeError):  # the loop is closed, and with it all is over
                self._loop.call_soon_threadsafe(self._some.set)

    async def close(self, timeout: float) -> None:
        """Send what waits, for as long as `timeout`."""
        self._end.set()
        self._some.set()
        with suppress(TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(timeout):
                await self._task
        self.dropped += len(self._row)
        self._row.clear()
        if self.dropped:
            log.warning("%d traces of %s were dropped", self.dropped, self._group)

    async def _work(self) -> None:
        while not self._end.is_set():
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LINGER):
                    await self._end.wait()
            self._some.clear()
            self._told = False  # before looking, so that nothing is left behind
            while self._row:
                await self._send(self._next())

    def _next(self) -> list[_Line]:
        """What goes out in one message."""
        taken: list[_Line] = []
        size = keys = 0
        while self._row and len(taken) < _TOGETHER and size < _LARGEST and keys < _LONGEST_KEYS:
            line = self._row.popleft()
            taken.append(line)
            size += _size(line.record)
            keys += sum(len(key) + 1 for key in line.keys)
        return taken

    async def _send(self, lines: list[_Line]) -> None:
        stored = False
        try:
            body = write_records(line.record for line in lines).encode()
            keys = tuple({key: None for line in lines for key in line.keys})
            draft = self._sender.drafting.one(Message(self.topic, body, keys=keys))
            await sending.send(self._runtime, self._sender, draft, timeout=_TIMEOUT, mode="async")
            stored = True
        except GantryError as error:
            level = logging.DEBUG if self._failing else logging.WARNING
            log.log(
                level,
                "traces of %s cannot be sent to %s, which is there with traceTopicEnable=true: %s",
                self._group,
                self.topic,
                error,
            )
        finally:
            self._failing = not stored
            if not stored:
                self.dropped += len(lines)


class SendTraces(SendHook):
    """Tells what a producer does.

    RocketMQ: SendMessageTraceHookImpl, EndTransactionTraceHookImpl.
    """

    def __init__(self, traces: Traces, group: str) -> None:
        self._traces: Final = traces
        self._group: Final = group

    def before(self, attempt: Attempt) -> None:
        """Note the time."""
        attempt.notes[self] = now_ms()

    def after(self, attempt: Attempt) -> None:
        """Tell what a broker answered."""
        receipt, draft = attempt.receipt, attempt.draft
        if receipt is None or not receipt.traced or draft.topic == self._traces.topic:
            return
        began: int = attempt.notes[self]
        offset_ids = (receipt.offset_id or "").split(",")
        if len(offset_ids) != len(draft.ids):
            offset_ids = [receipt.offset_id or ""] * len(draft.ids)
        for message, unique_id, offset_id in zip(
            draft.messages, draft.ids, offset_ids, strict=True
        ):
            record = Sent(
                time_ms=began,
                region=receipt.region or _REGION,
                group=self._group,
                topic=message.topic,
                message_id=unique_id,
                tags=message.tag,
                keys=_joined(message.keys),
                store_host=attempt.address,
                body_length=len(message.body),
                cost_ms=max(0, now_ms() - began),
                type=_TYPES.get(draft.kind, TracedType.NORMAL),
                offset_id=offset_id or None,
                success=receipt.stored_safely,
            )
            self._traces.add(record, (unique_id, *message.keys))

    def ended(self, end: TransactionEnd) -> None:
        """Tell how a transaction ended."""
        record = TransactionEnded(
            time_ms=now_ms(),
            region=_REGION,
            group=self._group,
            topic=end.topic,
            message_id=end.message_id,
            tags=end.tag,
            keys=_joined(end.keys),
            store_host=end.address,
            type=TracedType.COMMITTED,
            transaction_id=end.transaction_id,
            state=_STATES[end.decision],
            from_check=end.from_check,
        )
        self._traces.add(record, (end.message_id, *end.keys))

    def recalled(self, topic: str, message_id: str, *, success: bool) -> None:
        """Tell that a timed message was taken back, or could not be."""
        record = Recalled(
            time_ms=now_ms(),
            region=_REGION,
            group=self._group,
            topic=topic,
            message_id=message_id,
            success=success,
        )
        self._traces.add(record, (message_id,))


class ConsumeTraces(ConsumeHook):
    """Tells what a consumer does. RocketMQ: ConsumeMessageTraceHookImpl."""

    def __init__(self, engine: Engine, traces: Traces) -> None:
        self._traces: Final = traces
        self._ids: Final = engine.unique_ids

    def before(self, handling: Handling) -> None:
        """Messages are about to be handled."""
        wanted = [message for message in handling.messages if self._is_traced(message)]
        if not wanted:
            return
        began, request_id = now_ms(), self._ids.next()
        handling.notes[self] = (wanted, began, request_id)
        for message in wanted:
            record = ConsumeBegun(
                time_ms=began,
                region=message.find(names.MSG_REGION),
                group=handling.group,
                request_id=request_id,
                message_id=message.message_id,
                retries=message.retries,
                keys=_joined(message.keys),
            )
            self._traces.add(record, (message.message_id, *message.keys))

    def after(self, handling: Handling) -> None:
        """They were handled, or failed."""
        if self not in handling.notes:
            return
        wanted, began, request_id = handling.notes[self]
        now = now_ms()
        for message in wanted:
            record = ConsumeEnded(
                request_id=request_id,
                message_id=message.message_id,
                cost_ms=max(0, now - began) // len(wanted),
                success=handling.error is None,
                keys=_joined(message.keys),
                context_code=_outcome(handling.error),
                time_ms=now,
                group=handling.group,
            )
            self._traces.add(record, (message.message_id, *message.keys))

    def _is_traced(self, message: ReceivedMessage) -> bool:
        return message.find(names.TRACE_ON) != "false" and message.topic != self._traces.topic


def _outcome(error: BaseException | None) -> int:
    if error is None:
        return SUCCESS
    if isinstance(error, HandlerTimeout | asyncio.CancelledError):
        return TIME_OUT
    return FAILED if isinstance(error, RetryLater | GiveUp) else EXCEPTION


def _joined(keys: tuple[str, ...]) -> str | None:
    return " ".join(keys) or None


def _size(record: TraceRecord) -> int:
    """About how many characters it takes, without writing it twice."""
    keys = getattr(record, "keys", None)
    return 250 + len(keys or "")
