"""Reading queues: what a subscription becomes on the wire, one pull, and a whole range.

A broker answers a pull with as many messages as it likes, 32 as a rule, and with where to go on.
That place counts, not the last message: what did not match was passed over. The broker matches by
the hash codes of tags, so what it sends is matched once more here, by the text.

RocketMQ: PullAPIWrapper, PullMessageProcessor.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from gantrymq.errors import BrokerFailure, GantryError, InvalidInput, RemoteProtocolError
from gantrymq.model import MessageQueue
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.names import TOOLS_GROUP, is_light_queue
from gantrymq.protocol.pulling import PullFlag, PullMessage, PullReply, PullStatus
from gantrymq.rules.filtering import EVERYTHING, parse_tags
from gantrymq.runtime import Runtime
from gantrymq.wire import properties as names
from gantrymq.wire import record
from gantrymq.wire.command import Buffer
from gantrymq.wire.properties import TAGS
from gantrymq.wire.record import StoredMessage

TIMEOUT: Final = 10.0
"""Seconds for a pull that does not wait for messages."""
BATCH: Final = 32
TAG: Final = "TAG"
SQL: Final = "SQL92"

_NO_TAGS: Final[frozenset[str]] = frozenset()
_PAUSES: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds before the same pull is tried again, by how often it failed in a row."""


def subscription_data(topic: str, expression: str, kind: str, *, version: int) -> Subscription:
    """What heartbeats say that a group wants of `topic`; `version` is a time in milliseconds.

    RocketMQ: FilterAPI.build.
    """
    if kind == TAG:
        tags = parse_tags(expression)
        return Subscription(
            topic=topic,
            expression=tags.expression,
            tags=set(tags.tags),
            codes=set(tags.codes),
            version=version,
        )
    if kind != SQL:
        raise InvalidInput(f"messages are filtered by {TAG} or {SQL}, not by {kind!r}")
    if not expression.strip():
        raise InvalidInput(
            f"the SQL expression for topic {topic} is empty; '*' with tags means all"
        )
    return Subscription(topic=topic, expression=expression, expression_type=kind, version=version)


def exact_tags(subscription: Subscription) -> AbstractSet[str]:
    """The tags that messages are matched by once more; none where all of them are wanted."""
    is_all = subscription.expression_type != TAG or subscription.expression == EVERYTHING
    return _NO_TAGS if is_all else frozenset(subscription.tags)


def messages_of(
    reply: PullReply, asked_offset: int, tags: AbstractSet[str] = _NO_TAGS, *, topic: str = ""
) -> list[StoredMessage]:
    """The messages that a pull gave, of those that were asked for.

    A batch that is stored as one comes whole, even when it was asked for from its middle. A static
    topic's messages carry the offsets of the broker's own queue; the answer says how far these are
    from the topic's. Messages of a light queue, if `topic` is one, are kept for another topic; what
    their place is in this one stands in their properties.
    """
    body = reply.body
    if not len(body):
        return []
    found = list(record.iterate(body))
    if reply.offset_delta:
        for message in found:
            message.queue_offset += reply.offset_delta
    if is_light_queue(topic):
        for message in found:
            _move_to_light(message, topic)
    if found and found[0].queue_offset < asked_offset:
        found = [message for message in found if message.queue_offset >= asked_offset]
    if tags:
        found = [message for message in found if message.find(TAGS) in tags]
    return found


def placed(body: Buffer, topic: str) -> Buffer:
    """The records that a pull of `topic` gave, with the places that they have there."""
    if not is_light_queue(topic) or not len(body):
        return body
    found = list(record.iterate(body))
    for message in found:
        _move_to_light(message, topic)
    return b"".join([message.encode() for message in found])


def _move_to_light(message: StoredMessage, topic: str) -> None:
    queues = (message.find(names.MULTI_DISPATCH) or "").split(",")
    places = (message.find(names.MULTI_QUEUE_OFFSET) or "").split(",")
    place = dict(zip(reversed(queues), reversed(places), strict=False)).get(topic, "")
    if not place.isdecimal():
        raise RemoteProtocolError(f"{message!r} came from light queue {topic}, and is not in it")
    message.topic, message.queue_id, message.queue_offset = topic, 0, int(place)


@dataclass(slots=True, kw_only=True)
class Pulled:
    """What one pull gave, and where to go on."""

    status: PullStatus
    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker: int


async def pull(
    runtime: Runtime,
    address: str,
    request: PullMessage,
    *,
    timeout: float = TIMEOUT,
    tags: AbstractSet[str] = _NO_TAGS,
) -> Pulled:
    """Ask once; `timeout` has to leave room for the waiting that `request` allows the broker."""
    reply = await runtime.call(address, request, timeout=timeout)
    return Pulled(
        status=reply.status,
        messages=messages_of(reply, request.offset, tags, topic=request.topic),
        next_offset=reply.next_offset,
        min_offset=reply.min_offset,
        max_offset=reply.max_offset,
        suggested_broker=reply.suggested_broker,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """A part of a queue, and where it can be read: addresses of its broker, the first preferred."""

    queue: MessageQueue
    start: int
    end: int
    addresses: tuple[str, ...]
    group: str = TOOLS_GROUP
    batch: int = BATCH
    expression: str = EVERYTHING
    expression_type: str = TAG
    tags: AbstractSet[str] = field(default_factory=frozenset)


class OffsetsGone(BrokerFailure):
    """Messages that were asked for are not there any more: `first` is the oldest that is."""

    def __init__(self, code: int, remark: str | None = None, *, first: int = 0) -> None:
        super().__init__(code, remark)
        self.first = first


async def read_range(
    runtime: Runtime, asked: Range, *, timeout: float = TIMEOUT, patience: float = 30.0
) -> AsyncIterator[list[StoredMessage]]:
    """The messages of a range, as they come, one list for each pull.

    A broker that cannot be reached is asked again, at its next address if it has one, until nothing
    has come for `patience` seconds. A range that begins before the oldest message there is raises
    `OffsetsGone`; one that ends after the last ends there.
    """
    offset, failures, since = asked.start, 0, runtime.now()
    while offset < asked.end:
        address = asked.addresses[failures % len(asked.addresses)]
        try:
            pulled = await pull(
                runtime, address, _request(asked, offset), timeout=timeout, tags=asked.tags
            )
        except GantryError as error:
            failures += 1
            if not error.retriable or runtime.now() - since > patience:
                raise
            await runtime.sleep(_PAUSES[min(failures, len(_PAUSES)) - 1])
            continue
        failures, since = 0, runtime.now()
        if pulled.status is PullStatus.OFFSET_MOVED:
            if pulled.next_offset <= offset:
                return  # the range begins after the end of the queue
            raise OffsetsGone(
                1,
                f"{asked.queue} @ {offset} to {pulled.next_offset} is not stored any more:"
                f" it was kept for too short a time for who reads it",
                first=pulled.next_offset,
            )
        if pulled.status is PullStatus.NOTHING_NEW or pulled.next_offset <= offset:
            return
        offset = pulled.next_offset
        if wanted := [m for m in pulled.messages if m.queue_offset < asked.end]:
            yield wanted


def _request(asked: Range, offset: int) -> PullMessage:
    queue = asked.queue
    return PullMessage(
        group=asked.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        offset=offset,
        max_messages=min(asked.batch, asked.end - offset),
        flags=int(PullFlag.SUBSCRIPTION),
        wait_ms=0,
        subscription=asked.expression,
        expression_type=asked.expression_type,
        broker=queue.broker,
    )
