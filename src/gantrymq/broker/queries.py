"""Looking messages up: by a key or unique key, by their place in the log, or in their queue.

The index knows keys by their hash, so what is found may have another key; whoever asked looks at
the keys once more, as RocketMQ's clients do.

RocketMQ: QueryMessageProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import islice
from typing import TYPE_CHECKING, Final

from gantrymq.broker import filters
from gantrymq.broker.filters import Wanted
from gantrymq.errors import BrokerFailure, CorruptRecord, NotFound, ReplyError
from gantrymq.protocol.pulling import (
    QueryMessages,
    QueryMessagesReply,
    ViewMessage,
    ViewMessageReply,
)
from gantrymq.protocol.statistics import QueryConsumeQueue, QueueEntries, QueueEntry

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.store.lookups import Queried
    from gantrymq.store.steps import Steps
    from gantrymq.store.store import Store

UNIQUE_MOST: Final = 32
"""Messages looked for by a unique key. RocketMQ: defaultQueryMaxNum."""
_MOST: Final = 64
"""Messages of one answer. RocketMQ: maxMsgsNumBatch."""
_MOST_ENTRIES: Final = 1_000
_MOST_BYTES: Final = 8 * 1024 * 1024
_LAST: Final = 2**63 - 1


def query_messages(
    request: QueryMessages, broker: Broker, _peer: Peer
) -> QueryMessagesReply | Awaitable[QueryMessagesReply]:
    """The messages with a key's hash, as many as fit into an answer.

    Others have a turn after each stretch of a search that takes long.
    """
    search = broker.store.search(
        request.topic,
        request.key,
        limit=UNIQUE_MOST if request.unique else min(max(1, request.max_messages), _MOST),
        begin_ms=max(0, request.begin_ms),
        end_ms=request.end_ms if request.end_ms > 0 else _LAST,
    )
    try:
        next(search)
    except StopIteration as done:
        return _queried(done.value)
    return _queried_later(search)


async def _queried_later(search: Steps[Queried]) -> QueryMessagesReply:
    while True:
        await asyncio.sleep(0)
        try:
            next(search)
        except StopIteration as done:
            return _queried(done.value)


def _queried(found: Queried) -> QueryMessagesReply:
    if not found.pieces:
        nothing = NotFound.because("can not find message, maybe time range not correct")
        return QueryMessagesReply.refusing(
            nothing,
            index_ms=found.last_update_ms,
            index_log_offset=found.last_update_log_offset,
        )
    return QueryMessagesReply(
        index_ms=found.last_update_ms,
        index_log_offset=found.last_update_log_offset,
        body=b"".join(_that_fit(found.pieces)),
    )


def view_message(request: ViewMessage, broker: Broker, _peer: Peer) -> ViewMessageReply:
    """The message at a place of the log."""
    return ViewMessageReply(body=record_at(broker.store, request.log_offset))


def query_consume_queue(request: QueryConsumeQueue, broker: Broker, _peer: Peer) -> QueueEntries:
    """Entries of a queue, and whether a group would be given them."""
    topic, queue_id = request.topic or "", request.queue_id
    queue = broker.store.queue(topic, queue_id)
    if queue is None:
        raise BrokerFailure.because(f"{queue_id}@{topic} is not exist!")
    reply = QueueEntries(min_index=queue.min_offset, max_index=queue.max_offset)
    wanted: Wanted | None = None
    if request.group is not None:
        reply.subscription = broker.consumers.subscription(request.group, topic)
        if reply.subscription is None:
            reply.filter_data = f"{request.group}@{topic} is not online!"
        else:
            try:
                wanted = filters.asked_for(
                    broker,
                    request.group,
                    topic,
                    reply.subscription.expression,
                    reply.subscription.expression_type,
                )
            except ReplyError as refusal:
                reply.filter_data = refusal.remark
    if not queue.min_offset <= request.index < queue.max_offset:
        reply.remark = f"Index {request.index} of {queue_id}@{topic} is not exist!"
        return reply
    count = min(max(0, request.count), _MOST_ENTRIES, queue.max_offset - request.index)
    reply.entries = [
        QueueEntry(
            log_offset=at,
            size=size,
            tags_code=code,
            matches=wanted is not None and _matches(broker, wanted, at, code),
        )
        for at, size, code in islice(queue.entries(request.index, count), count)
    ]
    return reply


def _matches(broker: Broker, wanted: Wanted, at: int, code: int) -> bool:
    if wanted.code is not None and not wanted.code(code):
        return False
    if wanted.properties is None:
        return True
    try:
        return wanted.properties(broker.store.message_at(at).property_bytes)
    except CorruptRecord:
        return False


def record_at(store: Store, log_offset: int) -> bytes:
    """The record at a place of the log, or the refusal that says that there is none."""
    try:
        return store.message_at(log_offset).encode()
    except CorruptRecord as error:
        raise BrokerFailure.because(f"can not find message by the offset, {log_offset}") from error


def _that_fit(pieces: list[memoryview]) -> list[memoryview]:
    """The first of them, and the next ones as long as there is room."""
    room = _MOST_BYTES
    for number, piece in enumerate(pieces):
        room -= len(piece)
        if room < 0 and number:
            return pieces[:number]
    return pieces
