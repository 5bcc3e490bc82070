"""Finding messages: by either id, by key, by their place in a queue, and what a queue holds.

Two kinds of id look alike. An offset id says which broker stored the message and where, so one
question finds it. A unique id was made by the sender; brokers have an index of those, by topic and
by hash, so what comes back is looked at once more.

RocketMQ: MQAdminImpl.viewMessage, queryMessage.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from gantrymq.errors import (
    BrokerFailure,
    GantryError,
    InvalidInput,
    NotFound,
    RemoteProtocolError,
    TransportError,
)
from gantrymq.flows import clusters, offsets
from gantrymq.flows.pulling import OffsetsGone, Range, read_range
from gantrymq.flows.reaching import Reach, gather
from gantrymq.flows.topics import QueueState, brokers_of, list_topics, status_at
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol import names
from gantrymq.protocol.pulling import QueryMessages, ViewMessage
from gantrymq.wire import properties, record
from gantrymq.wire.message_id import OffsetId, parse_offset_id
from gantrymq.wire.record import StoredMessage

MOST: Final = 64
"""Messages that one question by key brings from a broker."""
BATCH: Final = 32
_LAST: Final = 2**63 - 1
_TOPICS_SEARCHED: Final = 500
_HIGHEST_PORT: Final = 65_535
"""What looks like an offset id and has a higher port is a unique id."""


# --- by id and key --------------------------------------------------------------------------------


async def find_message(
    reach: Reach, message_id: str, *, topic: str | None = None
) -> ReceivedMessage:
    """The message with this id, of either kind.

    A unique id is indexed by topic: without one, all topics are looked through. Some clients, those
    of the gRPC protocol for one, make unique ids of a form of their own.
    """
    unlike: InvalidInput | None = None
    try:
        return await message_by_offset_id(reach, message_id, topic=topic)
    except InvalidInput as error:
        unlike = error
    except (BrokerFailure, NotFound, TransportError, RemoteProtocolError):
        pass  # then it is a unique id, or the message is gone: the index will tell
    topics = [topic] if topic is not None else await list_topics(reach)
    for name in topics[:_TOPICS_SEARCHED]:
        whole = names.wrap(reach.namespace, name) if topic is None else name
        found = await messages_by_unique_id(reach, whole, message_id)
        if found:
            return found[0]
    if unlike is not None:
        raise unlike
    place = parse_offset_id(message_id)
    where = f"topic {topic}" if topic else f"{len(topics)} topics"
    raise NotFound.because(
        f"no message has the id {message_id} in {where}. As an offset id it means {place.host}:"
        f"{place.port} @ {place.log_offset}; as a unique id it may be in another topic, or the "
        f"message is gone (see gantry topic describe for the oldest)"
    )


async def message_by_offset_id(
    reach: Reach, message_id: str, *, topic: str | None = None
) -> ReceivedMessage:
    """The message that an offset id points to.

    The address in the id is that of the broker as it sees itself. Where nobody has registered under
    it, every broker is asked whether the message is its own, and then whoever is there.
    """
    place = parse_offset_id(message_id)
    own = f"{place.host}:{place.port}"
    known = {one.address: one.name for one in await clusters.list_brokers(reach)}
    tried = [own] if own in known else [*known, *([own] if place.port <= _HIGHEST_PORT else [])]
    why: GantryError | None = None
    for address in tried:
        try:
            found = await _view(reach, address, place, topic)
        except GantryError as error:
            why = why or error
            continue
        if (found.store_ip, found.store_port) == (place.ip, place.port) or address == own:
            return ReceivedMessage(found, known.get(address, address))
    raise why or NotFound.because(f"no broker has a message {message_id}")


async def _view(reach: Reach, address: str, place: OffsetId, topic: str | None) -> StoredMessage:
    said = await reach.ask(address, ViewMessage(topic=topic, log_offset=place.log_offset))
    found = record.decode(said.body)
    if found.log_offset != place.log_offset:
        raise NotFound.because(f"nothing is stored at {place.log_offset} of {address}")
    return found


async def messages_by_unique_id(reach: Reach, topic: str, unique_id: str) -> list[ReceivedMessage]:
    """The messages of a topic that have this unique id, the first stored first.

    There is more than one if a send was repeated.
    """
    found = await _query(reach, topic, unique_id, most=BATCH, unique=True)
    return [one for one in found if one.find(properties.UNIQUE_KEY) == unique_id]


async def messages_by_key(
    reach: Reach,
    topic: str,
    key: str,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    most: int = MOST,
) -> list[ReceivedMessage]:
    """The messages of a topic that have this key, the first stored first."""
    found = await _query(
        reach,
        topic,
        key,
        most=most,
        begin_ms=0 if begin is None else ms_of(begin),
        end_ms=_LAST if end is None else ms_of(end),
    )
    return [one for one in found if key in one.keys][:most]


async def _query(
    reach: Reach,
    topic: str,
    key: str,
    *,
    most: int,
    unique: bool | None = None,
    begin_ms: int = 0,
    end_ms: int = _LAST,
) -> list[ReceivedMessage]:
    at = await brokers_of(reach, topic)

    async def one(name: str) -> list[ReceivedMessage]:
        question = QueryMessages(
            topic=topic,
            key=key,
            max_messages=most,
            begin_ms=begin_ms,
            end_ms=end_ms,
            unique=unique,
        )
        try:
            said = await reach.ask(at[name], question)
        except NotFound:
            return []
        stored = record.iterate(said.body)
        return [ReceivedMessage(message, name) for message in stored if message.topic == topic]

    answers = (await gather(at, one)).some(f"look for {key} in {topic}")
    found = [message for messages in answers.values() for message in messages]
    return sorted(found, key=lambda message: (message.stored.store_ms, message.offset))


def ms_of(when: datetime) -> int:
    """A time as brokers count it."""
    return int(when.timestamp() * 1000)


# --- by place -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpan:
    """A stretch of a queue: from `start` up to, and without, `end`."""

    queue: MessageQueue
    address: str
    start: int
    end: int

    @property
    def messages(self) -> int:
        """How many offsets it has; of a queue with holes, fewer messages."""
        return max(0, self.end - self.start)


async def message_at(reach: Reach, queue: MessageQueue, offset: int) -> ReceivedMessage:
    """The message at an offset of a queue."""
    at = await brokers_of(reach, queue.topic)
    if queue.broker not in at:
        raise InvalidInput(f"broker {queue.broker!r} has no topic {queue.topic}; {', '.join(at)}")
    span = QueueSpan(queue=queue, address=at[queue.broker], start=offset, end=offset + 1)
    try:
        async for messages in read_span(reach, span, batch=1):
            return ReceivedMessage(messages[0], queue.broker)
    except OffsetsGone:
        pass
    state = await status_at(reach, queue.topic, {queue.broker: at[queue.broker]})
    there = [
        f"it goes from {one.min_offset} to {one.max_offset}"
        for one in state.queues
        if one.queue == queue
    ]
    raise NotFound.because(
        f"no message at {offset} of {queue}: {''.join(there) or 'there is no such queue'}"
    )


async def spans(
    reach: Reach,
    topic: str,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    queues: Collection[int | MessageQueue] | None = None,
) -> list[QueueSpan]:
    """The stretches of a topic's queues that hold the messages stored in a time range.

    Without a beginning from the oldest message on; without an end, up to the newest there is now.
    """
    at = await brokers_of(reach, topic)
    status = await status_at(reach, topic, at)
    found: list[QueueSpan] = []
    for state in status.queues:
        queue, address = state.queue, at[state.queue.broker]
        if queues is not None and queue not in queues and queue.queue_id not in queues:
            continue
        low, high = state.min_offset, state.max_offset
        first = low if begin is None else await offset_at(reach, address, state, begin)
        last = high if end is None else await offset_at(reach, address, state, end)
        found.append(QueueSpan(queue=queue, address=address, start=first, end=max(first, last)))
    return found


async def offset_at(reach: Reach, address: str, state: QueueState, when: datetime) -> int:
    """The offset of the first message stored at that time or later, the end where there is none.

    Where there is none, brokers of 4.x give the last message all the same, so they are not asked.
    """
    if state.last_ms is None or ms_of(when) > state.last_ms:
        return state.max_offset
    place = reach.reachable.get(address, address)
    found = await offsets.at_time(reach.runtime, place, state.queue, when, timeout=reach.timeout)
    return min(max(state.min_offset, found), state.max_offset)


def read_span(
    reach: Reach, span: QueueSpan, *, batch: int = BATCH
) -> AsyncIterator[list[StoredMessage]]:
    """The messages of a stretch, in batches as they come; holes are passed over."""
    asked = Range(
        queue=span.queue,
        start=span.start,
        end=span.end,
        addresses=(reach.reachable.get(span.address, span.address),),
        batch=batch,
    )
    return read_range(reach.runtime, asked)
