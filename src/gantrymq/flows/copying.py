"""Stored messages copied as they are: into a topic, or into what one group alone will be given.

**Into a topic** a message goes as if it had just been sent there: everybody who consumes the topic
gets it. **Into a group** it goes through the group's retry topic, with the note that RocketMQ's own
retries have of the topic it came from: members of that group get it as a message of that topic, and
nobody else notices.

Body, tag, keys, unique id and the user's properties stay; what brokers wrote into the properties
for the first life of the message (delays, transactions, retries) does not. Where it came from is
written down in `REPLAYED_FROM`, as `topic[broker:queue] @ offset`.

Messages of one queue go to one queue, so their order stays.

RocketMQ has no such thing; its dashboard sends dead letters to one consumer each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gantrymq.errors import InvalidInput, NoRoute
from gantrymq.flows import clusters, group_settings, routing
from gantrymq.flows.members import group_members
from gantrymq.flows.reaching import Reach
from gantrymq.flows.topics import topic_route
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol import names
from gantrymq.protocol.enums import ConsumeType
from gantrymq.protocol.sending import SendMessage
from gantrymq.wire import properties
from gantrymq.wire.flags import COMPRESSED, COMPRESSION_BITS, MULTI_TAGS

ORIGIN: Final = "REPLAYED_FROM"
PRODUCER: Final = "gantry-replay"

_OF_ITS_FIRST_LIFE: Final = frozenset(
    (
        properties.DELAY, properties.RETRY_TOPIC, properties.REAL_TOPIC, properties.REAL_QUEUE_ID,
        properties.HALF_MESSAGE, properties.PRODUCER_GROUP, properties.MIN_OFFSET,
        properties.MAX_OFFSET, properties.ORIGIN_MESSAGE_ID, properties.RECONSUME_TIME,
        properties.MAX_RECONSUME_TIMES, properties.TRANSACTION_OFFSET,
        properties.CONSUME_START_TIME, properties.INNER_COUNT, properties.INNER_BASE,
        properties.CHECK_IMMUNITY_SECONDS, properties.PREPARED_QUEUE_OFFSET,
        properties.TRANSACTION_ID, properties.TRANSACTION_CHECK_TIMES, properties.POP_HANDLE,
        properties.POP_HANDLE_OFFSET, properties.FIRST_POP_TIME, properties.MULTI_DISPATCH,
        properties.MULTI_QUEUE_OFFSET, properties.TIMER_DELAY_SECONDS, properties.TIMER_DELAY_MS,
        properties.TIMER_DELIVER_MS, properties.TIMER_ENQUEUE_MS, properties.TIMER_DEQUEUE_MS,
        properties.TIMER_ROLL_TIMES, properties.TIMER_OUT_MS, properties.TIMER_DELETE_UNIQUE_KEY,
        properties.TIMER_DELAY_LEVEL, properties.TIMER_ROLL_LABEL, properties.CRC32,
        properties.DLQ_ORIGIN_TOPIC, properties.DLQ_ORIGIN_MESSAGE_ID,
        properties.START_DELIVER_TIME, properties.WAIT,
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where copies go: queues of one topic, and the addresses of their brokers."""

    topic: str
    queues: Sequence[MessageQueue]
    addresses: dict[str, str]
    group: str | None = None
    """The only group that gets them; None for everybody who consumes the topic."""

    def queue_for(self, source: MessageQueue) -> MessageQueue:
        """The queue that messages of `source` go to: of its own broker, if there is one."""
        own = [queue for queue in self.queues if queue.broker == source.broker] or self.queues
        return own[source.queue_id % len(own)]


async def into_topic(reach: Reach, topic: str) -> Destination:
    """Copies for everybody who consumes `topic`, which has to be there."""
    route = await topic_route(reach, topic)
    queues = routing.publish_queues(topic, route)
    if not queues:
        raise NoRoute(f"topic {topic} has no queue that can be written to: look at its permission")
    return Destination(topic=topic, queues=queues, addresses=await clusters.every_master(reach))


async def into_group(reach: Reach, group: str, origin: str) -> Destination:
    """Copies of messages of topic `origin` for `group` alone, which has to be known to brokers.

    Brokers make the group's retry topic when they are first sent something for it.
    """
    at = await clusters.every_master(reach)
    held = await group_settings.group_settings(reach, group)
    there = await group_members(reach, group)
    topic = names.retry_topic(group)
    if there.consume_type is ConsumeType.POP:
        topic = names.pop_retry_topic(group, origin)
    queues = [
        MessageQueue(topic, name, number)
        for name, settings in held.items()
        for number in range(max(1, settings.retry_queues))
        if name in at
    ]
    if not queues:
        raise InvalidInput(f"no broker that knows group {group} has a master now")
    return Destination(topic=topic, queues=queues, addresses=at, group=group)


async def copy(
    reach: Reach, message: ReceivedMessage, destination: Destination, *, origin: str
) -> tuple[MessageQueue, int]:
    """Store a copy; the queue it is in now, and its offset there.

    `origin` is the topic that members of a group see it in.
    """
    queue = destination.queue_for(message.queue)
    stored = message.stored
    request = SendMessage(
        group=PRODUCER,
        topic=queue.topic,
        queue_id=queue.queue_id,
        flags=stored.sys_flag & (COMPRESSED | COMPRESSION_BITS | MULTI_TAGS),
        born_ms=stored.born_ms,
        flag=stored.flag,
        properties=properties.join(copied_properties(message, destination.group, origin)),
        broker=queue.broker,
        body=stored.body,
    )
    said = await reach.ask(destination.addresses[queue.broker], request)
    return queue._replace(queue_id=said.queue_id), said.offset


def copied_properties(message: ReceivedMessage, group: str | None, origin: str) -> dict[str, str]:
    """The properties of a copy."""
    found = {
        name: value
        for name, value in message.all_properties.items()
        if name not in _OF_ITS_FIRST_LIFE
    }
    found.setdefault(ORIGIN, f"{message.queue} @ {message.offset}")
    if group is not None:
        found[properties.RETRY_TOPIC] = origin
        found[properties.ORIGIN_MESSAGE_ID] = origin_id(message)
    return found


def origin_id(message: ReceivedMessage) -> str:
    """The offset id of the first of all copies of a message."""
    named = (properties.DLQ_ORIGIN_MESSAGE_ID, properties.ORIGIN_MESSAGE_ID)
    return next(filter(None, map(message.find, named)), message.offset_id)


def origin_topic(message: ReceivedMessage) -> str:
    """The topic that a message was sent to before it was given back or given up."""
    named = (properties.DLQ_ORIGIN_TOPIC, properties.RETRY_TOPIC)
    return next(filter(None, map(message.find, named)), message.topic)
