"""Sending a message: which queue, which broker, how often, and for how long.

```
           ┌─────────── another broker, while attempts and time are left ──────────────┐
           ▼                                                                           │
route ─▶ queue in turn ─▶ hooks ─▶ call ─┬─ stored ─▶ receipt                          │
                                         ├─ stored, not as safely as asked ─▶ receipt, or
                                         ├─ busy, gone, silent, no such topic … ───────┘
                                         └─ refused for good ─▶ SendFailed
```

One time budget covers the whole send, and every attempt gets what is left of it. A queue that the
sender chose has one attempt, since elsewhere the order he wanted would be lost. If the only broker
there is was busy or could not be reached, it is left a short while before it is tried again; with
another one at hand, that one is tried at once.

An attempt that ended without an answer may have been stored all the same. `maybe_stored` of the
error says that, and a later attempt that is refused does not take it back.

RocketMQ: DefaultMQProducerImpl.sendDefaultImpl.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol

from gantrymq.errors import (
    ClosedError,
    GantryError,
    InvalidInput,
    LocalProtocolError,
    NoAddress,
    SendFailed,
)
from gantrymq.flows.drafting import Draft, Drafting
from gantrymq.flows.send_errors import Trail, before_any, gave_up
from gantrymq.model import Message, MessageQueue, SendReceipt, SendStatus
from gantrymq.protocol.names import unwrap
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.rules.given import Chance
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues
from gantrymq.rules.retry import Budget, Mode, SendRetries
from gantrymq.rules.selectors import Selector, select_queue
from gantrymq.runtime import Runtime
from gantrymq.wire import properties as names

DEFAULT_TIMEOUT: Final = 3.0
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
_OURS: Final = (ClosedError, InvalidInput, LocalProtocolError)
"""Not the broker's doing, and raised as they are."""


class Places(Protocol):
    """Where topics and brokers are."""

    def ready_to_publish(self, topic: str) -> TopicQueues | None:
        """The queues that may be sent to, if they are known."""
        ...

    async def queues_to_publish(self, topic: str, *, timeout: float) -> TopicQueues:
        """The same, looked up if need be."""
        ...

    async def renew(self, topic: str) -> None:
        """Look again at where the topic is."""
        ...

    def doubt(self, topic: str) -> None:
        """What is known of the topic may be wrong: look again soon."""
        ...

    def address_to_send(self, broker: str) -> str | None:
        """Where the master of `broker` takes messages."""
        ...

    async def oldest_version(self, topic: str) -> int:
        """The version of the oldest broker that has the topic."""
        ...

    async def longest_delay(self, topic: str) -> float | None:
        """How many seconds ahead all brokers of the topic take messages; None if nobody says."""
        ...


@dataclass(slots=True)
class Attempt:
    """One attempt at a message, as hooks see it: before it is sent, and after."""

    draft: Draft
    queue: MessageQueue
    address: str
    mode: Mode
    receipt: SendReceipt | None = None
    error: BaseException | None = None
    notes: dict[object, Any] = field(default_factory=dict)
    """What hooks want to remember from `before` to `after`, each under itself."""


class Hooks(Protocol):
    """What a user, or tracing, wants to be told of attempts.

    RocketMQ: CheckForbiddenHook, SendMessageHook.
    """

    def check(self, attempt: Attempt) -> None:
        """Raise to forbid it."""
        ...

    def before(self, attempt: Attempt) -> None:
        """It is about to be sent."""
        ...

    def after(self, attempt: Attempt) -> None:
        """It was sent, or failed."""
        ...


@dataclass(slots=True, kw_only=True)
class Sender:
    """What the sends of one producer have in common."""

    places: Places
    choice: QueueChoice
    retries: SendRetries
    drafting: Drafting
    chance: Chance
    hooks: Hooks | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """A sender's own word on the queue: one that he names, or a selector and its argument."""

    queue: MessageQueue | None = None
    selector: Selector | None = None
    argument: object = None

    def queue_for(self, queues: TopicQueues, topic: str, message: Message) -> MessageQueue:
        """The queue it comes to; `topic` is the message's as brokers know it."""
        if self.queue is not None:
            return self.queue._replace(topic=topic)
        assert self.selector is not None
        return select_queue(self.selector, queues.queues, message, self.argument)


@dataclass(slots=True)
class Aim:
    """Where the first attempt of a send goes, and what it and its followers may take."""

    queues: TopicQueues
    queue: MessageQueue
    chosen: bool
    """Whether that is the sender's own word."""
    started: float
    begun: float
    timeout: float
    mode: Mode
    left: float
    """How long the first attempt may take."""


def aim(
    sender: Sender,
    message: Message,
    queues: TopicQueues,
    choice: Choice | None,
    *,
    started: float,
    begun: float,
    timeout: float,
    mode: Mode,
) -> Aim:
    """The queue for the first attempt at a message, which is begun now."""
    chosen = choice is not None
    queue = (
        sender.choice.choose(queues)
        if choice is None
        else choice.queue_for(queues, sender.drafting.topic_of(message), message)
    )
    left = started + timeout - begun
    longest = sender.retries.longest_attempt
    if longest is not None and sender.retries.attempts(mode, queue_given=chosen) > 1:
        left = min(left, longest)
    return Aim(queues, queue, chosen, started, begun, timeout, mode, max(0.0, left))


async def send(
    runtime: Runtime,
    sender: Sender,
    draft: Draft,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    mode: Mode = "sync",
    choice: Choice | None = None,
) -> SendReceipt:
    """Store the draft's messages; `SendFailed` says why not."""
    begun = started = runtime.now()
    queues = sender.places.ready_to_publish(draft.topic)
    if queues is None:
        queues = await find_queues(runtime, sender, draft.topic, timeout=timeout)
        begun = runtime.now()
    first = draft.messages[0]
    target = aim(
        sender, first, queues, choice, started=started, begun=begun, timeout=timeout, mode=mode
    )
    return await fire(runtime, sender, draft, target)


async def fire(runtime: Runtime, sender: Sender, draft: Draft, target: Aim) -> SendReceipt:
    """The first attempt, and whatever has to follow it."""
    receipt: SendReceipt | None = None
    failure: BaseException | None = None
    try:
        receipt = await attempt(
            runtime, sender, draft, target.queue, timeout=target.left, mode=target.mode
        )
        if receipt.status is SendStatus.OK:
            went_well(sender, target, runtime.now())
            return receipt
    except BaseException as error:
        failure = error
    return await go_on(runtime, sender, draft, target, receipt, failure)


def went_well(sender: Sender, target: Aim, now: float) -> None:
    """Take note of a first attempt that was all there was to do."""
    if sender.choice.send_latency_fault_enable:
        sender.choice.report(target.queue.broker, now - target.begun)


async def go_on(
    runtime: Runtime,
    sender: Sender,
    draft: Draft,
    target: Aim,
    receipt: SendReceipt | None,
    failure: BaseException | None,
) -> SendReceipt:
    """What becomes of a send whose first attempt did not simply end well."""
    budget = sender.retries.start(
        target.started, target.timeout, target.mode, queue_given=target.chosen
    )
    budget.made = 1
    course = _Course(runtime, sender, draft, target.queues, budget, target.mode)
    return await course.after(target.queue, target.begun, receipt, failure)


class _Course:
    """A send whose first attempt did not end well: what has been tried, and what is left to try."""

    __slots__ = ("budget", "draft", "mode", "queues", "runtime", "sender", "stored", "trail")

    def __init__(
        self,
        runtime: Runtime,
        sender: Sender,
        draft: Draft,
        queues: TopicQueues,
        budget: Budget,
        mode: Mode,
    ) -> None:
        self.runtime = runtime
        self.sender = sender
        self.draft = draft
        self.queues = queues
        self.budget = budget
        self.mode = mode
        self.trail = Trail()
        self.stored: SendReceipt | None = None
        """Of an attempt whose message is stored, only not as safely as it should be."""

    async def after(
        self,
        queue: MessageQueue,
        begun: float,
        receipt: SendReceipt | None,
        failure: BaseException | None,
    ) -> SendReceipt:
        """Go on after the first attempt."""
        while True:
            done = self._judge(queue, begun, receipt, failure)
            if done is not None:
                return done
            queue, left = await self._next(queue, failure)
            if self.stored is not None and left is None:
                return self.stored
            begun = self.runtime.now()
            try:
                receipt, failure = await self._attempt(queue, left or 0.0), None
            except BaseException as error:
                receipt, failure = None, error

    async def _attempt(self, queue: MessageQueue, left: float) -> SendReceipt:
        return await attempt(
            self.runtime, self.sender, self.draft, queue, timeout=left, mode=self.mode
        )

    def _judge(
        self,
        queue: MessageQueue,
        begun: float,
        receipt: SendReceipt | None,
        failure: BaseException | None,
    ) -> SendReceipt | None:
        """The receipt to end with, or None to go on; raises what there is no going on from."""
        now = self.runtime.now()
        retries = self.sender.retries
        self.trail.brokers.append(queue.broker)
        self.sender.choice.report(queue.broker, now - begun, failure)
        if failure is None:
            assert receipt is not None
            self.stored = receipt
            ok = receipt.status is SendStatus.OK
            again = retries.another_broker_when_not_stored and not self.budget.exhausted
            return None if again and not ok else receipt
        if not isinstance(failure, GantryError) or isinstance(failure, _OURS):
            raise failure
        self.trail.failed(failure)
        if failure.refresh_route:
            self.sender.places.doubt(self.draft.topic)
        if not self.budget.exhausted and retries.covers(failure):
            return None
        if self.stored is not None:
            return self.stored
        late = now - self.budget.started >= self.budget.timeout
        raise self._error(failure, now, late=late) from failure

    async def _next(
        self, queue: MessageQueue, failure: BaseException | None
    ) -> tuple[MessageQueue, float | None]:
        """Where to try now, and for how long; None where the time is over and it was stored."""
        failed = queue.broker
        now = self.runtime.now()
        if now - self.budget.started >= self.budget.timeout:
            if self.stored is not None:
                return queue, None
            assert isinstance(failure, GantryError)
            raise self._error(failure, now, late=True) from failure
        left = self.budget.next_attempt(now)
        queue = self.sender.choice.choose(self.queues, failed=failed, retry=True)
        if queue.broker == failed:
            pause = min(_FIRST_PAUSE * 2.0 ** (self.budget.made - 2), _LONGEST_PAUSE, left / 2)
            await self.runtime.sleep(pause * (1 - self.sender.chance.random() / 2))
            left -= self.runtime.now() - now
        return queue, max(0.0, left)

    def _error(self, last: GantryError, now: float, *, late: bool) -> SendFailed:
        return gave_up(
            self.draft.messages[0].topic,
            self.trail,
            now - self.budget.started,
            last,
            out_of_time=self.budget.timeout if late else None,
        )


async def attempt(
    runtime: Runtime,
    sender: Sender,
    draft: Draft,
    queue: MessageQueue,
    *,
    timeout: float,
    mode: Mode = "sync",
) -> SendReceipt:
    """Send the draft to `queue`, once."""
    address = sender.places.address_to_send(queue.broker)
    if address is None:
        address = await _address(sender, draft, queue)
    hooks = sender.hooks
    if hooks is None:
        reply = await runtime.call(address, request_for(draft, queue), timeout=timeout)
        return receipt_of(sender, draft, queue, reply)
    request = draft.request
    request.queue_id = queue.queue_id
    request.broker = queue.broker
    seen = Attempt(draft, queue, address, mode)
    hooks.check(seen)
    hooks.before(seen)
    request.properties = names.join(draft.properties)
    try:
        reply = await runtime.call(address, request, timeout=timeout)
        seen.receipt = receipt = receipt_of(sender, draft, queue, reply)
    except BaseException as error:
        seen.error = error
        raise
    finally:
        hooks.after(seen)
    return receipt


async def send_oneway(
    runtime: Runtime,
    sender: Sender,
    draft: Draft,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    choice: Choice | None = None,
) -> None:
    """Send the draft once, to one broker, and wait for nothing: it may be lost."""
    started = runtime.now()
    queues = sender.places.ready_to_publish(draft.topic)
    if queues is None:
        queues = await find_queues(runtime, sender, draft.topic, timeout=timeout)
    queue = (
        sender.choice.choose(queues)
        if choice is None
        else choice.queue_for(queues, draft.topic, draft.messages[0])
    )
    try:
        await _tell(runtime, sender, draft, queue)
    except _OURS:
        raise
    except GantryError as error:
        trail = Trail([queue.broker])
        trail.failed(error)
        elapsed = runtime.now() - started
        raise gave_up(draft.messages[0].topic, trail, elapsed, error) from error


async def _tell(runtime: Runtime, sender: Sender, draft: Draft, queue: MessageQueue) -> None:
    """Send the draft to `queue`, and wait for nothing."""
    address = await _address(sender, draft, queue)
    request = draft.request
    request.queue_id = queue.queue_id
    request.broker = queue.broker
    hooks = sender.hooks
    if hooks is None:
        request.properties = names.join(draft.properties)
        await runtime.tell(address, request)
        return
    seen = Attempt(draft, queue, address, "oneway")
    hooks.check(seen)
    hooks.before(seen)
    request.properties = names.join(draft.properties)
    try:
        await runtime.tell(address, request)
    except BaseException as error:
        seen.error = error
        raise
    finally:
        hooks.after(seen)


async def oldest_version(runtime: Runtime, sender: Sender, message: Message) -> int:
    """The version that says how `message` is delayed; `SendFailed` if no broker tells."""
    started = runtime.now()
    try:
        return await sender.places.oldest_version(sender.drafting.topic_of(message))
    except ClosedError:
        raise
    except GantryError as error:
        raise before_any(message.topic, error, runtime.now() - started) from error


async def check_delay(sender: Sender, draft: Draft) -> None:
    """Refuse a message that is to wait for longer than its brokers say that messages may."""
    due_ms = draft.due_ms
    if due_ms is None:
        return
    longest = await sender.places.longest_delay(draft.topic)
    ahead = (due_ms - draft.request.born_ms) / 1000
    if longest is not None and ahead > longest:
        raise InvalidInput(
            f"{draft.messages[0].topic} takes messages that are due within"
            f" {timedelta(seconds=longest)}, as its brokers say (timerMaxDelaySec); this one is"
            f" due in {timedelta(seconds=round(ahead))}"
        )


# --- steps ----------------------------------------------------------------------------------------


async def find_queues(
    runtime: Runtime, sender: Sender, topic: str, *, timeout: float
) -> TopicQueues:
    """The queues of `topic`, looked up; `SendFailed` says why there are none."""
    started = runtime.now()
    try:
        return await sender.places.queues_to_publish(topic, timeout=timeout)
    except ClosedError:
        raise
    except GantryError as error:
        raise before_any(topic, error, runtime.now() - started) from error


async def _address(sender: Sender, draft: Draft, queue: MessageQueue) -> str:
    """Where the master of the queue's broker is; looked up once more if nobody knows."""
    places = sender.places
    address = places.address_to_send(queue.broker)
    if address is None:
        await places.renew(draft.topic)
        address = places.address_to_send(queue.broker)
        if address is None:
            raise NoAddress(
                f"The broker[{queue.broker}] not exist: no route has the address of its master"
            )
    return address


def request_for(draft: Draft, queue: MessageQueue) -> SendMessage:
    """The draft's request, ready to go to `queue`."""
    request = draft.request
    request.queue_id = queue.queue_id
    request.broker = queue.broker
    request.properties = names.join(draft.properties)
    return request


def receipt_of(sender: Sender, draft: Draft, queue: MessageQueue, reply: SendReply) -> SendReceipt:
    """Where the draft was stored, as `reply` says."""
    topic = queue.topic
    if sender.namespace:
        topic = unwrap(sender.namespace, topic)
    return SendReceipt(
        message_id=",".join(draft.ids) if len(draft.ids) > 1 else draft.ids[0],
        queue=MessageQueue(topic, queue.broker, reply.queue_id),
        offset=reply.offset,
        offset_id=reply.message_id,
        status=reply.status,
        transaction_id=reply.transaction_id,
        recall_handle=reply.recall_handle,
        region=reply.region,
        traced=reply.traced is not False,
    )


def split_receipt(receipt: SendReceipt, draft: Draft) -> list[SendReceipt]:
    """One receipt for each message of a batch, from the one for all."""
    places = (receipt.offset_id or "").split(",")
    return [
        SendReceipt(
            message_id=unique_id,
            queue=receipt.queue,
            offset=receipt.offset + number,
            offset_id=places[number] if len(places) == len(draft.ids) else receipt.offset_id,
            status=receipt.status,
            transaction_id=receipt.transaction_id,
            region=receipt.region,
            traced=receipt.traced,
        )
        for number, unique_id in enumerate(draft.ids)
    ]
