"""From a user's message to the request that carries it: checked, named, compressed, made ready.

All of it happens before anything is sent, once for all attempts. What a user handed in is left as
it is: a compressed body, a namespace or an id go into the request, not into his message.

When a message is to be delivered is the one thing that depends on the cluster. Brokers of 5.x have
timers; older ones have a list of delays and nothing in between, and are not sent what they cannot
do.

RocketMQ: DefaultMQProducerImpl.sendKernelImpl.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from itertools import repeat
from typing import Final, NamedTuple

from gantrymq.errors import ClusterTooOld, InvalidInput
from gantrymq.model import Message, MessageQueue
from gantrymq.protocol.forms import SendForm
from gantrymq.protocol.names import AUTO_CREATE_TOPIC, is_retry_topic, light_queue, wrap
from gantrymq.protocol.sending import SendBatch, SendMessage
from gantrymq.protocol.validation import (
    MAX_BODY,
    check_batch,
    check_message,
    check_topic_to_send,
)
from gantrymq.rules.delay import DELAY_LEVELS
from gantrymq.wire import batch
from gantrymq.wire import properties as names
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.command import Buffer
from gantrymq.wire.compression import DEFAULT_THRESHOLD, compress_large
from gantrymq.wire.flags import Compression, Transaction
from gantrymq.wire.message_id import UniqueIds
from gantrymq.wire.versions import V5_0_0, describe

_NOTHING: Final[Mapping[str, str]] = {}
_MOST_FORMS: Final = 10_000
"""Queues whose forms, and topics whose names, are remembered at once."""


class MessageKind(Enum):
    """What a message is to those who watch it being sent. RocketMQ: MessageType."""

    NORMAL = "normal"
    HALF = "half"
    DELAYED = "delayed"
    ORDERED = "ordered"
    BATCH = "batch"
    REPLY = "reply"


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftRules:
    """How messages of one producer are made ready."""

    group: str
    namespace: str = ""
    max_body: int = MAX_BODY
    compress_over: int = DEFAULT_THRESHOLD
    compression: Compression = Compression.ZLIB
    compression_level: int | None = None
    default_topic: str = AUTO_CREATE_TOPIC
    default_topic_queues: int = 4
    long_header: bool = False
    """Write names out, as clients before 3.5 did."""
    unit_mode: bool = False


@dataclass(slots=True, kw_only=True)
class Draft:
    """A message ready to be sent: what is left to fill in is the queue."""

    messages: Sequence[Message]
    """What the user handed in; several in a batch."""
    request: SendMessage
    properties: dict[str, str]
    ids: tuple[str, ...]
    kind: MessageKind = MessageKind.NORMAL

    @property
    def topic(self) -> str:
        """As brokers know it."""
        return self.request.topic

    @property
    def due_ms(self) -> int | None:
        """When brokers are to deliver it, if it names a time; delay levels are none."""
        found = self.properties
        if (at := found.get(names.TIMER_DELIVER_MS)) is not None:
            return int(at)
        delay = found.get(names.TIMER_DELAY_MS)
        return None if delay is None else self.request.born_ms + int(delay)


class Entry(NamedTuple):
    """A message of a batch, ready to be put into one."""

    message: Message
    content: BatchMessage
    unique_id: str


class Plain(NamedTuple):
    """What a plain message brings to the form that it is sent in."""

    unique_id: str
    properties: str
    made_ms: int


class Drafting:
    """Makes the messages of one producer ready."""

    __slots__ = ("_forms", "_ids", "_now_ms", "_plain_size", "_sendable", "_wait", "rules")

    def __init__(self, rules: DraftRules, ids: UniqueIds, now_ms: Callable[[], int]) -> None:
        self.rules: Final = rules
        self._ids = ids
        self._now_ms = now_ms
        self._plain_size = min(rules.max_body, rules.compress_over - 1)
        self._wait = {
            stored: names.join(
                {names.WAIT: _truth(stored), names.INSTANCE_ID: rules.namespace or None}
            )
            for stored in (True, False)
        }
        self._sendable: set[str] = set()
        self._forms: dict[MessageQueue, SendForm | None] = {}

    def one(
        self,
        message: Message,
        extra: Mapping[str, str] = _NOTHING,
        *,
        version: int | None = None,
        kind: MessageKind = MessageKind.NORMAL,
        request_type: type[SendMessage] = SendMessage,
    ) -> Draft:
        """A single message; `extra` are properties that users may not set themselves.

        `version` is that of the oldest broker that may get it, where the message is to wait.
        """
        rules = self.rules
        check_message(message, max_body=rules.max_body)
        found, unique_id = self._properties(message, extra)
        if message.delay is not None or message.deliver_at is not None:
            found |= timing(message, version)
        if names.DELAY in found or names.TIMER_DELAY_MS in found or names.TIMER_DELIVER_MS in found:
            kind = MessageKind.DELAYED
        body, flags = message.body, 0
        if len(body) >= rules.compress_over:
            body, flags = compress_large(
                bytes(body), rules.compression, rules.compression_level, threshold=0
            )
        if found.get(names.HALF_MESSAGE) == "true":
            flags |= Transaction.PREPARED
            kind = MessageKind.HALF
        request = self._request(request_type, self.topic_of(message, kind), body)
        request.flags, request.flag = flags, message.flag
        if is_retry_topic(request.topic):
            _take_retries(request, found)
        if rules.long_header and request.LONG_CODE is not None:
            request.code = request.LONG_CODE
        return Draft(
            messages=(message,), request=request, properties=found, ids=(unique_id,), kind=kind
        )

    def plainly(self, message: Message, extra: Mapping[str, str]) -> Plain | None:
        """The same for a message that `form` has a place for; None if this is none.

        What is wrong with one may be left to `one` to find.
        """
        body = message.body
        if type(body) is not bytes or not 0 < len(body) <= self._plain_size or message.flag:
            return None
        unique_id, properties = self._labels(message, extra)
        return Plain(unique_id, properties, self._now_ms())

    def _labels(self, message: Message, extra: Mapping[str, str]) -> tuple[str, str]:
        """A message's id and its properties as text; its body, flag and times are in order."""
        if message.topic not in self._sendable:
            self._allow(message.topic)
        bare = not message.properties and message.tag is None and not message.keys
        special = message.delay_level or message.priority is not None or message.light_queues
        if extra or not bare or special:
            check_message(message, max_body=self.rules.max_body)
            found, unique_id = self._properties(message, extra)
            return unique_id, names.join(found)
        unique_id = self._ids.next()
        rest = self._wait[message.wait_stored]
        return unique_id, f"{names.UNIQUE_KEY}\x01{unique_id}\x02{rest}"

    def form(self, queue: MessageQueue) -> SendForm | None:
        """What plain messages for that queue are sent in; None if it takes the long way."""
        try:
            return self._forms[queue]
        except KeyError:
            return self._make_form(queue)

    def _make_form(self, queue: MessageQueue) -> SendForm | None:
        if len(self._forms) >= _MOST_FORMS:
            self._forms.clear()
        form = None
        if not is_retry_topic(queue.topic) and not self.rules.long_header:
            request = self._request(SendMessage, queue.topic, b"")
            request.queue_id, request.broker = queue.queue_id, queue.broker
            form = SendForm.of(request)
        self._forms[queue] = form
        return form

    def _allow(self, topic: str) -> None:
        check_topic_to_send(topic)
        if len(self._sendable) >= _MOST_FORMS:
            self._sendable.clear()
        self._sendable.add(topic)

    def topic_of(self, message: Message, kind: MessageKind = MessageKind.NORMAL) -> str:
        """The topic as brokers know it; the topics of answers are in no namespace."""
        space = self.rules.namespace
        return (
            wrap(space, message.topic) if space and kind is not MessageKind.REPLY else message.topic
        )

    def _request(self, kind: type[SendMessage], topic: str, body: Buffer) -> SendMessage:
        rules = self.rules
        return kind(
            group=rules.group,
            topic=topic,
            default_topic=rules.default_topic,
            default_topic_queues=rules.default_topic_queues,
            queue_id=0,
            born_ms=self._now_ms(),
            unit_mode=rules.unit_mode,
            body=body,
        )

    def batches(
        self, messages: Sequence[Message], extras: Sequence[Mapping[str, str]] = ()
    ) -> list[Draft]:
        """The messages in as few frames as they fit into, in their order.

        `extras` are properties that go with each of them.
        """
        check_batch(messages, max_body=self.rules.max_body)
        with_them = zip(messages, extras or repeat(_NOTHING, len(messages)), strict=True)
        entries = [self._entry(message, extra) for message, extra in with_them]
        drafts, at = [], 0
        for part in batch.split((entry.content for entry in entries), self.rules.max_body):
            end = at + len(part)
            drafts.append(self.batch(entries[at:end]))
            at = end
        return drafts

    def entry(self, message: Message, extra: Mapping[str, str] = _NOTHING) -> Entry:
        """One message of a batch that is still being gathered; none that is delayed."""
        body = message.body
        if type(body) is bytes and 0 < len(body) <= self.rules.max_body and not message.flag:
            unique_id, properties = self._labels(message, extra)
            try:
                return Entry(message, BatchMessage(body, properties.encode()), unique_id)
            except UnicodeEncodeError:
                pass  # the other way says what is wrong
        check_batch((message,), max_body=self.rules.max_body)
        return self._entry(message, extra)

    def _entry(self, message: Message, extra: Mapping[str, str] = _NOTHING) -> Entry:
        found, unique_id = self._properties(message, extra)
        content = BatchMessage(bytes(message.body), names.encode(found), message.flag)
        return Entry(message, content, unique_id)

    def batch(self, entries: Sequence[Entry]) -> Draft:
        """These messages, of one topic, in one frame."""
        first = entries[0].message
        body = batch.encode(entry.content for entry in entries)
        request = self._request(SendBatch, self.topic_of(first), body)
        return Draft(
            messages=[entry.message for entry in entries],
            request=request,
            properties={names.WAIT: _truth(first.wait_stored)},
            ids=tuple(entry.unique_id for entry in entries),
            kind=MessageKind.BATCH,
        )

    def _properties(self, message: Message, extra: Mapping[str, str]) -> tuple[dict[str, str], str]:
        found = {**message.properties, **extra} if extra else dict(message.properties)
        unique_id = found.get(names.UNIQUE_KEY)
        if unique_id is None:
            unique_id = found[names.UNIQUE_KEY] = self._ids.next()
        found[names.WAIT] = _truth(message.wait_stored)
        if message.tag is not None:
            found[names.TAGS] = message.tag
        if message.keys:
            found[names.KEYS] = " ".join(message.keys)
        if message.delay_level:
            found[names.DELAY] = str(message.delay_level)
        if message.priority is not None:
            found[names.PRIORITY] = str(message.priority)
        if message.light_queues:
            found[names.MULTI_DISPATCH] = ",".join(map(light_queue, message.light_queues))
        if self.rules.namespace:
            found[names.INSTANCE_ID] = self.rules.namespace
        return found, unique_id


def timing(message: Message, version: int | None) -> dict[str, str]:
    """The properties that make brokers of `version` deliver `message` when it is to be."""
    if message.delay_level or (message.delay is not None and message.deliver_at is not None):
        raise InvalidInput(
            "a message is delayed in one way: delay, deliver_at or delay_level; this one has"
            f" delay={message.delay}, deliver_at={message.deliver_at},"
            f" delay_level={message.delay_level}"
        )
    timers = version is None or version >= V5_0_0
    if message.deliver_at is not None:
        if message.deliver_at.tzinfo is None:
            raise InvalidInput(
                f"deliver_at={message.deliver_at} has no time zone: write it with one, or as"
                f" .astimezone() for the one of this machine"
            )
        if not timers:
            raise _too_old(f"deliver at {message.deliver_at}", version)
        return {names.TIMER_DELIVER_MS: str(round(message.deliver_at.timestamp() * 1000))}
    delay = message.delay or timedelta()
    if delay < timedelta():
        raise InvalidInput(f"a delay cannot be negative: {delay}")
    if timers:
        return {names.TIMER_DELAY_MS: str(round(delay.total_seconds() * 1000))} if delay else {}
    return _level(delay, version)


def _level(delay: timedelta, version: int | None) -> dict[str, str]:
    seconds = delay.total_seconds()
    if seconds == 0:
        return {}
    if seconds in DELAY_LEVELS.seconds:
        return {names.DELAY: str(DELAY_LEVELS.seconds.index(int(seconds)) + 1)}
    raise _too_old(f"deliver after {delay}", version)


def _too_old(what: str, version: int | None) -> ClusterTooOld:
    levels = ", ".join(str(timedelta(seconds=s)) for s in DELAY_LEVELS.seconds)
    return ClusterTooOld(
        f"the cluster cannot {what}: a broker of it has version {describe(version or 0)}, and"
        f" timers come with 5.0; it has delay levels 1 to {DELAY_LEVELS.highest} alone: {levels}"
    )


def _take_retries(request: SendMessage, found: dict[str, str]) -> None:
    """What consumers say of a message that they give back travels in the header."""
    times = found.pop(names.RECONSUME_TIME, None)
    if times is not None:
        request.reconsume_times = int(times)
    most = found.pop(names.MAX_RECONSUME_TIMES, None)
    if most is not None:
        request.max_reconsume_times = int(most)


def _truth(value: bool) -> str:
    return "true" if value else "false"
