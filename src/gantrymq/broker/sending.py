"""Taking messages from producers.

The checks come in RocketMQ's order, so that of two mistakes the same one is told:

| what | code |
|---|---|
| the broker is too busy | 2 |
| the broker takes no messages yet | 1 |
| the broker may not be written to, and the topic is ordered | 16 |
| the topic's name is none | 29 |
| only brokers write to the topic | 16 |
| there is no such topic and it cannot be made | 17 |
| there is no such queue | 29 |
| a retry topic of a group that there is not | 26 |
| a transaction, where there are to be none | 16 |
| what the store has to say | see `storing` |

Whether the topic itself may be written to is not asked: clients do not send where they may not.

**Properties** stay text, as they came: this broker's own are put at the end. Only where a producer
sent one of those itself are they taken apart.

RocketMQ: SendMessageProcessor, AbstractSendMessageProcessor.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NoReturn

from gantrymq.broker import message_types
from gantrymq.broker.config import IdentityConfig
from gantrymq.broker.hosts import hosts_of
from gantrymq.broker.message_types import PRIORITY_MARK
from gantrymq.broker.plain_sends import PlainProperties, put_plain, put_plain_batch
from gantrymq.broker.timed_sends import put_timed
from gantrymq.errors import (
    BrokerFailure,
    GroupNotFound,
    InvalidInput,
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    RemoteProtocolError,
    ReplyError,
    ServiceUnavailable,
    SystemBusy,
    TopicNotFound,
)
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.names import (
    POPS_TOPIC,
    RETRY_PREFIX,
    TIMER_TOPIC,
    UNSENDABLE_TOPICS,
    dead_letter_topic,
    group_of_derived_topic,
)
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.protocol.topics import WRITE, TopicSettings
from gantrymq.protocol.validation import TOPIC_MAX_LENGTH, check_topic_at_broker
from gantrymq.wire import batch, properties
from gantrymq.wire.flags import INNER_BATCH, MULTI_TAGS, TRANSACTION_BITS
from gantrymq.wire.properties import NAME_END, VALUE_END
from gantrymq.wire.record import StoredMessage
from gantrymq.wire.versions import V3_4_9

if TYPE_CHECKING:
    from random import Random

    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.store.store import Appended

_BUSY: Final = "[REJECTREQUEST]system busy, start flow control for a while"
_UNSENDABLE: Final = UNSENDABLE_TOPICS | {POPS_TOPIC}
_UNIQUE: Final = f"{properties.UNIQUE_KEY}{NAME_END}"
_HALF: Final = f"{properties.HALF_MESSAGE}{NAME_END}"
_UNIT: Final = 1
_UNIT_RETRY: Final = 2
"""Flags of topics that belong to a unit, and of retry topics of groups that subscribe across units.

RocketMQ: TopicSysFlag.
"""
_POP_HANDLE: Final = f"{properties.POP_HANDLE}{NAME_END}"


class Marks:
    """What a broker writes into the properties of every message.

    RocketMQ: SendMessageProcessor.buildMsgContext.
    """

    __slots__ = ("_names", "_next_id", "_suffix", "fields", "plain", "region", "traced")

    def __init__(self, identity: IdentityConfig, next_id: Callable[[], str]) -> None:
        self._next_id = next_id
        self.region = identity.region
        self.traced = identity.traced
        own = {
            properties.MSG_REGION: identity.region,
            properties.TRACE_ON: "true" if identity.traced else "false",
            properties.CLUSTER: identity.cluster,
        }
        self.fields = {name: own[name] for name in (properties.MSG_REGION, properties.TRACE_ON)}
        """What every answer to a producer carries, refusals as well."""
        self._suffix = properties.join(own)
        self._names = tuple(f"{name}{NAME_END}" for name in own)
        self.plain = PlainProperties(self._suffix)

    def put(self, text: str | None) -> tuple[str, str]:
        """The properties to be stored, and the unique key among them, made if there is none."""
        if not text:
            unique = self._next_id()
            return f"{_UNIQUE}{unique}{VALUE_END}{self._suffix}", unique
        region, traced, cluster = self._names
        if region in text or traced in text or cluster in text or _POP_HANDLE in text:
            text = self._without_ours(text)
        if text[-1:] != VALUE_END:
            text += VALUE_END
        unique = _unique_key(text)
        if not unique:
            unique = self._next_id()
            text = f"{text}{_UNIQUE}{unique}{VALUE_END}"
        return text + self._suffix, unique

    def _without_ours(self, text: str) -> str:
        found = properties.split(text)
        for name in (*self._names, _POP_HANDLE):
            found.pop(name.removesuffix(NAME_END), None)
        return "".join(f"{name}{NAME_END}{value}{VALUE_END}" for name, value in found.items())


def _unique_key(text: str) -> str:
    """As `properties.find_text`, but quicker where there is one such entry, as nearly always."""
    at = text.find(_UNIQUE)
    if at < 0:
        return ""
    if not at or text[at - 1] == VALUE_END:
        start = at + len(_UNIQUE)
        end = text.find(VALUE_END, start)
        if end > start and text.find(_UNIQUE, end) < 0:
            return text[start:end]
    return properties.find_text(text, properties.UNIQUE_KEY) or ""


def send_message(
    request: SendMessage, broker: Broker, peer: Peer
) -> SendReply | Awaitable[SendReply]:
    """Store one message, or those of a batch."""
    try:
        return _send(request, broker, peer)
    except ReplyError as refusal:
        refusal.fields = broker.marks.fields
        raise


def _send(request: SendMessage, broker: Broker, peer: Peer) -> SendReply | Awaitable[SendReply]:
    known = broker.topics.table.get(request.topic)
    settings = check(request, known, broker, peer)
    made_topic = known is None and broker.registrar.behind
    if request.batch:
        return _send_batch(request, settings, broker, peer, made_topic=made_topic)
    topic, body = request.topic, request.body
    if not len(body):
        raise MessageIllegal.because("the message is illegal: it has no body")
    if (plain := put_plain(request, settings, broker, peer)) is not None:
        appended, unique = plain
        reply = _reply(appended, request.queue_id, unique, broker)
        return _finish(reply, appended, broker, "", made_topic=made_topic)
    if (timed := put_timed(request, settings, broker, peer)) is not None:
        appended, unique, handle = timed
        reply = _reply(appended, request.queue_id, unique, broker)
        reply.recall_handle = handle
        return _finish(reply, appended, broker, "", made_topic=made_topic)
    text, unique = broker.marks.put(request.properties)
    half = _HALF in text and _is_half(text, request)
    if settings.attributes:
        message_types.check(settings, text, request, types=broker.config.topics.check_types)
    queue_id = request.queue_id
    if queue_id < 0:
        queue_id = any_queue(settings, broker.random)
    if PRIORITY_MARK in text:
        text, queue_id = message_types.prioritized(settings, text, queue_id)
    if topic.startswith(RETRY_PREFIX) and (derived := _given_up(request, broker)) is not None:
        topic, queue_id = derived, 0
        text = _without_delay(text)
    hosts = hosts_of(peer, broker.advertised)
    message = StoredMessage(
        topic=topic,
        body=body if isinstance(body, bytes) else bytes(body),
        property_bytes=text.encode("utf-8", "replace"),
        queue_id=queue_id,
        flag=request.flag,
        sys_flag=_flags(request, settings),
        born_ms=request.born_ms,
        born_ip=hosts.born_ip,
        born_port=hosts.born_port,
        store_ip=hosts.store_ip,
        store_port=hosts.store_port,
        reconsume_times=request.reconsume_times,
    )
    if half:
        appended = broker.transactions.begin(message, request.group)
    else:
        appended = broker.storing.put(message)
    reply = _reply(appended, queue_id, unique, broker)
    if message.topic == TIMER_TOPIC:
        reply.recall_handle = broker.timers.handle(message)
    return _finish(reply, appended, broker, text, made_topic=made_topic)


def _send_batch(
    request: SendMessage,
    settings: TopicSettings,
    broker: Broker,
    peer: Peer,
    *,
    made_topic: bool,
) -> SendReply | Awaitable[SendReply]:
    """Store the messages of a batch; each keeps the properties that it has."""
    common = request.properties or ""
    queue_id = request.queue_id
    if queue_id < 0:
        queue_id = any_queue(settings, broker.random)
    _check_batch(request, common, broker)
    try:
        messages = batch.decode(request.body)
    except RemoteProtocolError as error:
        raise MessageIllegal.because(f"the batch is illegal: {error}") from error
    if not messages:
        raise MessageIllegal.because("the batch is illegal: there is no message in it")
    appended = put_plain_batch(request, settings, broker, peer, queue_id, messages)
    if appended is None:
        hosts, flags = hosts_of(peer, broker.advertised), _flags(request, settings)
        taken = [
            StoredMessage(
                topic=request.topic,
                body=body,
                property_bytes=raw,
                queue_id=queue_id,
                flag=flag,
                sys_flag=flags,
                born_ms=request.born_ms,
                born_ip=hosts.born_ip,
                born_port=hosts.born_port,
                store_ip=hosts.store_ip,
                store_port=hosts.store_port,
                reconsume_times=request.reconsume_times,
            )
            for body, raw, flag in messages
        ]
        if settings.attributes:
            message_types.check_batch(settings, taken, types=broker.config.topics.check_types)
        appended = broker.storing.put_batch(taken)
    unique = properties.find_text(common, properties.UNIQUE_KEY)
    reply = _reply(appended, queue_id, unique, broker)
    return _finish(reply, appended, broker, common, made_topic=made_topic)


def _reply(appended: Appended, queue_id: int, unique: str | None, broker: Broker) -> SendReply:
    return SendReply(
        message_id=appended.offset_id,
        queue_id=queue_id,
        offset=appended.queue_offset,
        transaction_id=unique,
        region=broker.marks.region,
        traced=broker.marks.traced,
    )


def _finish(
    reply: SendReply, appended: Appended, broker: Broker, text: str, *, made_topic: bool
) -> SendReply | Awaitable[SendReply]:
    """The reply, now or when what it has to wait for is done."""
    delayed = made_topic or broker.topics.unkept
    if not delayed and not broker.storing.waits:
        return reply
    waits = broker.storing.waits and _is_true(text, properties.WAIT, otherwise=True)
    return _later(reply, appended, broker, waits=waits) if waits or delayed else reply


def _is_true(text: str, name: str, *, otherwise: bool = False) -> bool:
    """A property that says true or false, as Java reads it."""
    value = properties.find_text(text, name)
    return otherwise if value is None else value.lower() == "true"


def _is_half(text: str, request: SendMessage) -> bool:
    """Whether the message waits for a decision; one that failed and comes back has had its own."""
    if request.reconsume_times > 0 and properties.find_text(text, properties.DELAY):
        return False
    return _is_true(text, properties.HALF_MESSAGE)


async def _later(reply: SendReply, appended: Appended, broker: Broker, *, waits: bool) -> SendReply:
    """The reply once the disk has the message, and disk and name servers a topic that is new."""
    try:
        if waits:
            reply.status = await broker.storing.safety(appended.end)
        await topic_kept(broker)
    except ReplyError as refusal:
        refusal.fields = broker.marks.fields
        raise
    await broker.registrar.spread()
    return reply


async def topic_kept(broker: Broker) -> None:
    """Return when no crash can make the broker forget a topic whose messages it has."""
    try:
        await broker.topics.kept()
    except OSError as error:
        raise ServiceUnavailable.because(
            f"service not available now. The table of topics cannot be written: {error}"
        ) from error


# --- checks ---------------------------------------------------------------------------------------


def check(
    request: SendMessage, settings: TopicSettings | None, broker: Broker, peer: Peer
) -> TopicSettings:
    """The settings of the topic, made now if there are none; or why the message is not taken."""
    if (busy := broker.flow.refusal) is not None:
        raise SystemBusy.because(f"{_BUSY}: {busy}")
    start_ms = broker.config.sends.start_ms
    if start_ms and broker.clock_ms() < start_ms:
        raise BrokerFailure.because(f"broker unable to service, until {start_ms} ms since 1970")
    topic = request.topic
    if settings is None:
        settings = _make_topic(request, broker)
    elif settings.ordered and not broker.config.permission & WRITE:
        _refuse_writing(broker)
    if topic in _UNSENDABLE:
        raise NoPermission.because(f"Sending message to topic[{topic}] is forbidden.")
    queue_id = request.queue_id
    if queue_id >= settings.write_queues and queue_id >= settings.read_queues:
        most = max(settings.write_queues, settings.read_queues)
        raise InvalidParameter.because(
            f"request queueId[{queue_id}] is illegal, topic[{topic}] has {most} queues"
            f" Producer: {peer}"
        )
    return settings


def _make_topic(request: SendMessage, broker: Broker) -> TopicSettings:
    topic, topics = request.topic, broker.topics
    try:
        check_topic_at_broker(topic)
    except InvalidInput as error:
        raise InvalidParameter.because(str(error)) from error
    if topic in _UNSENDABLE:
        raise NoPermission.because(f"Sending message to topic[{topic}] is forbidden.")
    is_retry = topic.startswith(RETRY_PREFIX)
    flags = 0 if not request.unit_mode else _UNIT_RETRY if is_retry else _UNIT
    made = topics.make_for_send(
        topic, template=request.default_topic, queues=request.default_topic_queues, flags=flags
    )
    if made is None and is_retry:
        made = topics.make(topic, queues=1, flags=flags)
    if made is None:
        raise TopicNotFound.because(f"topic[{topic}] not exist, apply first please!")
    return made


def _refuse_writing(broker: Broker) -> NoReturn:
    raise NoPermission.because(
        f"the broker[{broker.config.identity.name}] sending message is forbidden"
    )


def _check_batch(request: SendMessage, common: str, broker: Broker) -> None:
    topic = request.topic
    if len(topic) > TOPIC_MAX_LENGTH:
        raise MessageIllegal.because(f"message topic length too long {len(topic)}")
    if topic.startswith(RETRY_PREFIX):
        raise MessageIllegal.because(f"batch request does not support retry group {topic}")
    if len(request.body) > broker.storing.largest:
        raise MessageIllegal.because(broker.storing.too_large(len(request.body)))
    level = properties.find_text(common, properties.DELAY)
    if level is not None and level.strip() not in ("", "0"):
        raise MessageIllegal.because(f"a batch cannot be delayed, this one asks for level {level}")
    if request.flags & TRANSACTION_BITS:
        raise MessageIllegal.because("a batch cannot be part of a transaction")


def any_queue(settings: TopicSettings, random: Random) -> int:
    """One of the queues that can be written to."""
    if settings.write_queues < 1:
        raise InvalidParameter.because(f"topic[{settings.topic}] has no queue to write to")
    return random.randrange(settings.write_queues)


def _flags(request: SendMessage, settings: TopicSettings) -> int:
    """The system flag to be stored; clients cannot say what a message is to a transaction."""
    flags = request.flags & ~TRANSACTION_BITS
    if flags & INNER_BATCH:
        raise MessageIllegal.because(f"system flag {flags:#x} says that the message is a batch")
    if settings.filter_type is TopicFilterType.MULTI_TAG:
        flags |= MULTI_TAGS
    return flags


# --- messages that a consumer sends again ---------------------------------------------------------


def _given_up(request: SendMessage, broker: Broker) -> str | None:
    """The dead-letter topic, if the message of a retry topic is not to be tried again.

    RocketMQ: SendMessageProcessor.handleRetryAndDLQ.
    """
    group = group_of_derived_topic(request.topic) or ""
    settings = broker.groups.settings(group)
    if settings is None:
        raise GroupNotFound.because(f"subscription group not exist, {group}")
    most = settings.max_retries
    if request.version >= V3_4_9 and request.max_reconsume_times is not None:
        most = request.max_reconsume_times
    if request.reconsume_times <= most and not broker.locks.any_held(group):
        return None
    dead = dead_letter_topic(group)
    broker.topics.make(dead, queues=1)
    return dead


def _without_delay(text: str) -> str:
    return properties.join(properties.split(text) | {properties.DELAY: "-1"})
