"""Messages that a consumer could not deal with and sends back, to be given them again later.

The broker reads the message from its log and stores it once more, in the group's retry topic, with
a delay level that grows with every failure. One that failed too often, or that the consumer gives
up, goes to the group's dead-letter topic, where nobody consumes. Both keep the topic that it was
first sent to and the id that it had there.

RocketMQ: AbstractSendMessageProcessor.consumerSendMsgBack.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gantrymq.broker.hosts import hosts_of
from gantrymq.broker.sending import topic_kept
from gantrymq.errors import (
    BrokerFailure,
    CorruptRecord,
    GroupNotFound,
    MessageIllegal,
    NoPermission,
    ReplyError,
    ServiceUnavailable,
)
from gantrymq.protocol.base import Done
from gantrymq.protocol.names import dead_letter_topic, retry_topic
from gantrymq.protocol.sending import SendBack
from gantrymq.protocol.topics import WRITE, TopicSettings
from gantrymq.rules.delay import retry_level
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage
from gantrymq.wire.versions import V3_4_9

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.protocol.group_settings import GroupSettings
    from gantrymq.store.store import Appended

_UNIT_SUBSCRIPTION = 2


def send_back(request: SendBack, broker: Broker, peer: Peer) -> Done | Awaitable[Done]:
    """Store a message once more, for its group to consume it later or never again.

    The group counts on that from the answer on: it commits the offset after the message. So the
    answer waits for the disk where that of a producer would; RocketMQ's does not.
    """
    group = broker.groups.settings(request.group)
    if group is None:
        raise GroupNotFound.because(f"subscription group not exist, {request.group}")
    if not broker.config.permission & WRITE:
        name = broker.config.identity.name
        raise NoPermission.because(f"the broker[{name}] sending message is forbidden")
    if group.retry_queues <= 0:
        return Done()
    topic = _retry_topic(request, group, broker)
    try:
        message = broker.store.message_at(request.log_offset)
    except CorruptRecord as error:
        raise BrokerFailure.because(f"look message by offset failed, {error}") from error
    found = message.properties
    origin = found.setdefault(properties.RETRY_TOPIC, message.topic)
    found.setdefault(properties.ORIGIN_MESSAGE_ID, message.offset_id)
    found[properties.WAIT] = "false"
    level = _level(request, group, message)
    if level is None:
        topic = broker.topics.make(dead_letter_topic(request.group), queues=1)
    found[properties.DELAY] = str(level or 0)
    _move(message, topic, found, broker, peer)
    try:
        appended = broker.storing.put(message)
    except (MessageIllegal, ServiceUnavailable) as error:
        raise _failure(error) from error
    broker.counts.sent_back(request.group, origin, gave_up=level is None)
    if broker.storing.waits or broker.topics.unkept:
        return _once_safe(appended, broker)
    return Done()


async def _once_safe(appended: Appended, broker: Broker) -> Done:
    try:
        if broker.storing.waits:
            await broker.storing.safety(appended.end)
        await topic_kept(broker)
    except ServiceUnavailable as error:
        raise _failure(error) from error
    return Done()


def _failure(error: ReplyError) -> BrokerFailure:
    status = "MESSAGE_ILLEGAL" if error.code == MessageIllegal.CODE else "SERVICE_NOT_AVAILABLE"
    return BrokerFailure.because(f"{status}: {error.remark}")


def _retry_topic(request: SendBack, group: GroupSettings, broker: Broker) -> TopicSettings:
    name = retry_topic(request.group)
    flags = _UNIT_SUBSCRIPTION if request.unit_mode else 0
    topic = broker.topics.make(name, queues=group.retry_queues, flags=flags)
    if not topic.perm & WRITE:
        raise NoPermission.because(f"the topic[{name}] sending message is forbidden")
    return topic


def _level(request: SendBack, group: GroupSettings, message: StoredMessage) -> int | None:
    """The delay level; None if the message is given up."""
    most = group.max_retries
    if request.version >= V3_4_9 and request.max_reconsume_times is not None:
        most = request.max_reconsume_times
    return retry_level(message.reconsume_times, asked=request.delay_level, max_retries=most)


def _move(
    message: StoredMessage,
    topic: TopicSettings,
    found: dict[str, str],
    broker: Broker,
    peer: Peer,
) -> None:
    """Make `message` the one that is stored in `topic`, by this broker."""
    hosts = hosts_of(peer, broker.advertised)
    message.topic = str(topic.topic)
    message.queue_id = broker.random.randrange(max(1, topic.write_queues))
    message.property_bytes = properties.encode(found)
    message.reconsume_times += 1
    message.prepared_offset = 0
    message.store_ip, message.store_port = hosts.store_ip, hosts.store_port
