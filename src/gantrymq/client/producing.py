"""What a producer is, whichever face it has: its place in an engine, and how it sends.

Everything here that sends is a flow: it takes the `Channel` to send over, one on the engine's loop
or one that blocks, and awaits nothing else. What follows events (answers to requests, questions
about transactions, traces) belongs to the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gantrymq.client.config import ClientConfig
from gantrymq.client.engine import Engine, shared
from gantrymq.client.hooks import HookChain, SendHook, TransactionEnd
from gantrymq.client.identity import now_ms
from gantrymq.client.members import Member
from gantrymq.client.messages import PLAINLY, How
from gantrymq.client.places import EnginePlaces
from gantrymq.client.producer_config import DEFAULT_GROUP, ProducerConfig
from gantrymq.client.states import Life
from gantrymq.client.telemetry import send_spans
from gantrymq.client.tracing import SendTraces, Traces
from gantrymq.errors import ConfigError, GantryError, InvalidInput, SendFailed
from gantrymq.flows import recalling, sending, transactions
from gantrymq.flows.drafting import Draft, Drafting, MessageKind
from gantrymq.flows.probing import probe_round
from gantrymq.flows.sending import Sender, split_receipt
from gantrymq.flows.transactions import Half, half_properties
from gantrymq.model import Message, ReceivedMessage, SendReceipt
from gantrymq.net.network import Network
from gantrymq.protocol.groups import ProducerData
from gantrymq.protocol.names import unwrap, wrap
from gantrymq.protocol.transactions import CheckTransactionState, Decision, EndTransaction
from gantrymq.protocol.validation import check_producer_group
from gantrymq.rules.fault_avoidance import PROBE_EVERY, FaultVersion
from gantrymq.rules.queue_choice import QueueChoice
from gantrymq.rules.retry import Mode
from gantrymq.runtime import Runtime
from gantrymq.wire.versions import V5_0_0

if TYPE_CHECKING:
    from gantrymq.client.spans import SendSpans

log = logging.getLogger("gantrymq.client")

Verdict: TypeAlias = bool | None
"""Commit, roll back, or not known yet."""
Checker: TypeAlias = (
    Callable[[ReceivedMessage], Verdict] | Callable[[ReceivedMessage], Awaitable[Verdict]]
)
"""Says what became of a transaction that was left open."""

_REMEMBERED: Final = 10_000
"""Transactions whose end is remembered, in case the broker was not told."""


@dataclass(frozen=True, slots=True)
class Channel:
    """What flows send over: a runtime, and the sender that finds its way with it."""

    runtime: Runtime
    sender: Sender


class Producing(Member):
    """A producer's place in an engine."""

    kind = "producer"

    def __init__(
        self,
        client: ClientConfig,
        config: ProducerConfig,
        *,
        checker: Checker | None = None,
        hooks: Iterable[SendHook] = (),
        network: Network | None = None,
    ) -> None:
        check_producer_group(config.group)
        self.config: Final = config
        self.client: Final = client
        self.group = wrap(client.namespace or "", config.group)
        self.shared = config.group == DEFAULT_GROUP
        self.life: Final = Life(f"producer {config.group}")
        self.hooks: Final = HookChain(hooks)
        self.engine: Engine
        self.channel: Channel
        self.choice: QueueChoice
        self._spans: SendSpans | None = None
        self.traces: Traces | None = None
        self._tracing: SendTraces | None = None
        self._checker: Final = checker
        self._network: Final = network
        self._decided: OrderedDict[str, Decision] = OrderedDict()

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Join the engine; brokers know the producer when this returns."""
        self.life.begin()
        engine = shared(self.client, network=self._network)
        await engine.join(self)
        self.engine = engine
        self._watch(engine)
        self.choice = QueueChoice(
            engine.runtime.now if engine.in_memory else time.monotonic,
            engine.chance,
            version=self._fault_version(engine),
            send_latency_fault_enable=self.config.send_latency_fault_enable,
            probing=self.config.start_detector_enable,
        )
        places = EnginePlaces(
            engine, self.config.default_topic, self.config.default_topic_queue_nums
        )
        drafting = Drafting(self.config.draft_rules(self.client), engine.unique_ids, now_ms)
        sender = Sender(
            places=places,
            choice=self.choice,
            retries=self.config.send_retries(),
            drafting=drafting,
            chance=engine.chance,
            hooks=self.hooks if len(self.hooks) else None,
            namespace=self.client.namespace or "",
        )
        self.channel = Channel(engine.runtime, sender)
        if self.config.start_detector_enable:
            engine.spawn(self._probe(), "fault detector")
        self.life.began()

    async def close(self) -> None:
        """Leave the engine."""
        if self.life.end():
            try:
                if self.traces is not None:
                    await self.traces.close(self.config.close_timeout)
            finally:
                await self.engine.leave(self)

    def _watch(self, engine: Engine) -> None:
        """Begin to tell of sends whoever wants to be told."""
        if self.config.trace:
            self.traces = Traces(engine, self.config.group, self.config.trace_topic)
            self._tracing = SendTraces(self.traces, self.config.group)
            self.hooks.add(self._tracing)
        if self.config.telemetry:
            self._spans = send_spans(engine.client_id, self.client.namespace)

    @property
    def spans(self) -> SendSpans | None:
        """Where OpenTelemetry is told of sends; None where nobody wants to hear of them."""
        return None if self._spans is None or self._spans.idle else self._spans

    def _fault_version(self, engine: Engine) -> FaultVersion:
        if self.config.fault_version != "auto":
            return self.config.fault_version
        oldest = min(engine.versions.values(), default=V5_0_0)
        return "5.x" if oldest >= V5_0_0 else "4.x"

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(PROBE_EVERY)
            if self.choice.send_latency_fault_enable:
                await probe_round(self.engine.runtime, self.choice.faults, self.engine.routes)

    # --- as a member ----------------------------------------------------------------------------

    def producer_data(self) -> ProducerData:
        """What heartbeats say."""
        return ProducerData(group=self.group)

    # --- sending --------------------------------------------------------------------------------

    async def draft(
        self,
        channel: Channel,
        message: Message,
        how: How = PLAINLY,
        extra: Mapping[str, str] = MappingProxyType({}),
    ) -> Draft:
        """The message, ready; how it is delayed depends on the cluster."""
        drafting = channel.sender.drafting
        found = {**how.extra, **extra} if extra else how.extra
        if message.delay is None and message.deliver_at is None:
            return drafting.one(message, found, kind=how.kind)
        drafting.one(message, found)  # complain of what is wrong before asking anyone
        version = await sending.oldest_version(channel.runtime, channel.sender, message)
        draft = drafting.one(message, found, version=version, kind=how.kind)
        await sending.check_delay(channel.sender, draft)
        return draft

    async def send(
        self, channel: Channel, message: Message, how: How = PLAINLY, *, mode: Mode = "sync"
    ) -> SendReceipt:
        """Store a message."""
        self.life.check()
        spans = self.spans
        if spans is None:
            return await self._send(channel, message, how, mode)
        with spans.sending(message, how) as span:
            receipt = await self._send(channel, message, span.how, mode)
            span.stored(receipt)
            return receipt

    async def _send(self, channel: Channel, message: Message, how: How, mode: Mode) -> SendReceipt:
        ready = await self.draft(channel, message, how)
        return await sending.send(
            channel.runtime,
            channel.sender,
            ready,
            timeout=self.timeout_of(how),
            mode=mode,
            choice=how.choice,
        )

    async def send_oneway(self, channel: Channel, message: Message, how: How) -> None:
        """Send a message, and wait for nothing."""
        self.life.check()
        spans = self.spans
        if spans is None:
            await self._send_oneway(channel, message, how)
            return
        with spans.sending(message, how) as span:
            await self._send_oneway(channel, message, span.how)

    async def _send_oneway(self, channel: Channel, message: Message, how: How) -> None:
        ready = await self.draft(channel, message, how)
        timeout = self.timeout_of(how)
        await sending.send_oneway(
            channel.runtime, channel.sender, ready, timeout=timeout, choice=how.choice
        )

    async def send_batch(
        self, channel: Channel, messages: Iterable[Message], how: How
    ) -> list[SendReceipt]:
        """Store messages of one topic, in as few frames as they fit into."""
        self.life.check()
        given = tuple(messages)
        spans = self.spans
        if spans is None or not given:
            return await self._send_batch(channel, given, how)
        with spans.sending_batch(given) as span:
            receipts = await self._send_batch(channel, given, how, span.extras)
            span.stored(receipts[0])
            return receipts

    async def _send_batch(
        self,
        channel: Channel,
        messages: Sequence[Message],
        how: How,
        extras: Sequence[Mapping[str, str]] = (),
    ) -> list[SendReceipt]:
        receipts: list[SendReceipt] = []
        for draft in channel.sender.drafting.batches(messages, extras):
            try:
                receipt = await sending.send(
                    channel.runtime,
                    channel.sender,
                    draft,
                    timeout=self.timeout_of(how),
                    choice=how.choice,
                )
            except SendFailed as failed:
                failed.receipts = tuple(receipts)
                raise
            receipts += split_receipt(receipt, draft)
        return receipts

    async def recall(
        self, channel: Channel, which: SendReceipt | str, timeout: float | None
    ) -> str:
        """Take a delayed message back."""
        self.life.check()
        handle = which if isinstance(which, str) else which.recall_handle
        if handle is None:
            raise InvalidInput(
                "the message of this receipt cannot be taken back: it was not delayed by a time, or"
                " its broker is older than 5.0 and gives no handle for it"
            )
        limit = self.config.send_timeout if timeout is None else timeout
        what = recalling.parse_handle(handle)
        done = False
        try:
            found = await recalling.recall(channel.runtime, channel.sender, handle, timeout=limit)
            done = True
        finally:
            if self._tracing is not None:
                self._tracing.recalled(what.topic, what.message_id, success=done)
        return found

    def timeout_of(self, how: How) -> float:
        """How long a send may take."""
        return self.config.send_timeout if how.timeout is None else how.timeout

    # --- transactions ---------------------------------------------------------------------------

    async def begin_transaction(self, channel: Channel, message: Message, how: How) -> Half:
        """Store a half message."""
        self.life.check()
        self._check_transactional()
        spans = self.spans
        if spans is None:
            return await self._begin_transaction(channel, message, how)
        with spans.sending(message, how._replace(kind=MessageKind.HALF)) as span:
            half = await self._begin_transaction(channel, message, span.how)
            span.stored(half.receipt)
            return half

    async def _begin_transaction(self, channel: Channel, message: Message, how: How) -> Half:
        extra = {**how.extra, **half_properties(message, self.group)}
        draft = channel.sender.drafting.one(message, extra, kind=MessageKind.HALF)
        return await transactions.begin(
            channel.runtime,
            channel.sender,
            draft,
            timeout=self.timeout_of(how),
            choice=how.choice,
        )

    async def end_transaction(
        self, channel: Channel, half: Half, decision: Decision, remark: str | None = None
    ) -> bool:
        """Commit or roll back; whether the broker knows. If it does not, it will ask."""
        self._remember(half.transaction_id, decision)
        failure = await transactions.end(
            channel.runtime, channel.sender, half, decision, remark=remark
        )
        if len(self.hooks):
            self.hooks.ended(self._end_of(half, decision))
        if failure is None:
            return True
        log.warning(
            "transaction %s of %s ended with %s, and its broker could not be told; it will ask: %s",
            half.transaction_id,
            half.receipt.queue,
            decision.name,
            failure,
        )
        return False

    async def tell_end(self, channel: Channel, ending: EndTransaction) -> GantryError | None:
        """Tell a broker how a transaction ended that somebody has written down; the error, if so.

        That may have been another process: what counts is that it was of the same group.
        """
        self.life.check()
        return await transactions.tell(channel.runtime, channel.sender, ending)

    def _end_of(self, half: Half, decision: Decision) -> TransactionEnd:
        message = half.draft.messages[0]
        places = self.channel.sender.places
        return TransactionEnd(
            topic=message.topic,
            message_id=half.receipt.message_id,
            transaction_id=half.transaction_id,
            tag=message.tag,
            keys=message.keys,
            address=places.address_to_send(half.receipt.queue.broker) or "",
            decision=decision,
            from_check=False,
        )

    def check_transaction(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> None:
        """A broker asks what became of a transaction."""
        message.topic = unwrap(self.client.namespace or "", message.topic)
        self.engine.spawn(self._answer_check(request, message, address), "transaction check")

    async def _answer_check(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> None:
        transaction_id = request.transaction_id or message.message_id
        remark = None
        decision = self._decided.get(transaction_id)
        if decision is None:
            decision, remark = await self._ask_checker(message)
        failure = await transactions.answer_check(
            self.engine.runtime,
            address,
            request,
            group=self.group,
            message_id=message.message_id,
            decision=decision,
            remark=remark,
        )
        if len(self.hooks):
            self.hooks.ended(
                TransactionEnd(
                    topic=unwrap(self.client.namespace or "", message.topic),
                    message_id=message.message_id,
                    transaction_id=transaction_id,
                    tag=message.tag,
                    keys=message.keys,
                    address=address,
                    decision=decision,
                    from_check=True,
                )
            )
        if failure is not None:
            log.warning("the end of transaction %s could not be told: %s", transaction_id, failure)

    async def _ask_checker(self, message: ReceivedMessage) -> tuple[Decision, str | None]:
        if self._checker is None:
            return Decision.UNDECIDED, None
        try:
            if inspect.iscoroutinefunction(self._checker):
                verdict = await self._checker(message)
            else:
                verdict = await asyncio.to_thread(self._checker, message)
        except Exception as error:
            log.exception("the checker failed at transaction %s", message.message_id)
            return Decision.UNDECIDED, f"checkLocalTransaction: {error!r}"
        return decision_of(verdict), None

    def _remember(self, transaction_id: str, decision: Decision) -> None:
        if decision is Decision.UNDECIDED:
            return
        self._decided[transaction_id] = decision
        while len(self._decided) > _REMEMBERED:
            self._decided.popitem(last=False)

    def _check_transactional(self) -> None:
        missing = [
            what
            for what, there in (
                ("a group of its own (group=)", not self.shared),
                ("a checker (checker=), which says what became of what was left open",
                 self._checker is not None),
            )
            if not there
        ]  # fmt: skip
        if missing:
            raise ConfigError(
                f"a producer needs {' and '.join(missing)} for transactions: after a crash the"
                f" broker asks the group"
            )


def decision_of(verdict: Any) -> Decision:
    """What a checker's or a user's word comes to."""
    if verdict is None:
        return Decision.UNDECIDED
    if isinstance(verdict, Decision):
        return verdict
    return Decision.COMMIT if verdict else Decision.ROLLBACK
