"""Reading back what producers and consumers told of a message: RocketMQ's message traces.

Trace messages are found by the ids and keys of the messages that they tell of. A broker gives at
most 64 of them at once, the newest first, so more are asked for by ending earlier.

RocketMQ: DefaultMQAdminExtImpl.queryMessage of the trace topic.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from gantrymq.errors import GantryError, NotFound, RemoteProtocolError, TopicNotFound
from gantrymq.flows import lookup
from gantrymq.flows.reaching import Reach
from gantrymq.flows.trace_trees import MessageTrace, put_together
from gantrymq.model import ReceivedMessage
from gantrymq.protocol.names import TRACE_TOPIC
from gantrymq.protocol.tracing import TraceRecord, read_records
from gantrymq.wire import properties

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ROUNDS: Final = 16
"""Times that more is asked for: 1,024 trace messages of each broker."""


async def trace(
    reach: Reach, message_id: str, *, topic: str | None = None, trace_topic: str = TRACE_TOPIC
) -> MessageTrace:
    """What was told of a message, as a tree; `str()` of it is the text to show.

    `message_id` is of either kind: producers tell the unique one, so for an offset id the message
    is looked up, in `topic` if it is given. What neither a producer nor a consumer told is not in
    it: they do so where `trace=True` is set for them.
    """
    told = await told_of(reach, message_id, trace_topic=trace_topic)
    if told.is_empty:
        unique = await _unique_id(reach, message_id, topic)
        if unique is not None:
            told = await told_of(reach, unique, trace_topic=trace_topic)
    if told.is_empty:
        raise NotFound.because(
            f"nothing was told of message {message_id} in {trace_topic}: its producer and its "
            f"consumers write traces with trace=True (Java: enableMessageTrace), some moments "
            f"after the fact, to the topic that they were told; is it another one? Or they are "
            f"gone, as messages go after a while"
        )
    return told


async def told_of(reach: Reach, unique_id: str, *, trace_topic: str = TRACE_TOPIC) -> MessageTrace:
    """The same for a unique id; where nothing was told, the trace is empty."""
    records: dict[TraceRecord, None] = {}
    seen: set[tuple[str, int]] = set()
    end: datetime | None = None
    for _ in range(_ROUNDS):
        try:
            found = await lookup.messages_by_key(reach, trace_topic, unique_id, end=end)
        except (NotFound, TopicNotFound):
            break
        fresh = [one for one in found if (one.broker, one.stored.log_offset) not in seen]
        seen |= {(one.broker, one.stored.log_offset) for one in fresh}
        for message in fresh:
            records.update(dict.fromkeys(_records(message)))
        if not fresh or len(found) < lookup.MOST:
            break
        end = _EPOCH + timedelta(milliseconds=min(one.stored.store_ms for one in fresh))
    return put_together(unique_id, records)


def _records(message: ReceivedMessage) -> list[TraceRecord]:
    try:
        return list(read_records(message.body.decode("utf-8", "replace")))
    except RemoteProtocolError:
        return []  # somebody wrote something else into the topic


async def _unique_id(reach: Reach, message_id: str, topic: str | None) -> str | None:
    """The unique id of the message with an offset id."""
    try:
        found = await lookup.message_by_offset_id(reach, message_id, topic=topic)
    except GantryError:
        return None
    return found.find(properties.UNIQUE_KEY)
