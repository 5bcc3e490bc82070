"""What tools want to know: how full topics are, how far groups have come, what went through.

RocketMQ: AdminBrokerProcessor.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gantrymq.broker.counting import item
from gantrymq.broker.offsets import end_offset, first_offset
from gantrymq.errors import BrokerFailure, TopicNotFound
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done
from gantrymq.protocol.brokers import CleanConsumeQueues, DeleteExpiredLog
from gantrymq.protocol.lite import BrokerLiteInfo, GetBrokerLiteInfo
from gantrymq.protocol.statistics import (
    BrokerConsumeStats,
    BrokerStats,
    ConsumeStatsReply,
    GetBrokerConsumeStats,
    GetBrokerStats,
    GetConsumeStats,
    GetGroupsOfTopic,
    GetSubscription,
    GetTimeSpans,
    GetTopicsOfGroup,
    GetTopicStats,
    GroupList,
    GroupProgress,
    QueueBounds,
    QueueProgress,
    QueueTimeSpan,
    SubscriptionReply,
    TimeSpans,
    TopicStats,
)
from gantrymq.protocol.topics import TopicList

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.protocol.topics import TopicSettings


def get_topic_stats(request: GetTopicStats, broker: Broker, _peer: Peer) -> TopicStats:
    """Where the queues of a topic begin and end."""
    topic, store = request.topic, broker.store
    settings = _topic(topic, broker)
    queues: dict[MessageQueue, QueueBounds] = {}
    for queue_id in range(max(settings.read_queues, settings.write_queues)):
        low, high = first_offset(store, topic, queue_id), end_offset(store, topic, queue_id)
        queues[_queue(topic, queue_id, broker)] = QueueBounds(
            min_offset=low,
            max_offset=high,
            last_update_ms=max(0, store.store_time(topic, queue_id, high - 1)),
        )
    return TopicStats(queues=queues, put_tps=broker.counts.put_tps(topic))


# --- how far groups have come ---------------------------------------------------------------------


def get_consume_stats(request: GetConsumeStats, broker: Broker, _peer: Peer) -> ConsumeStatsReply:
    """How far a group has come, in one topic, in some, or in all."""
    if request.topic:
        topics: Iterable[str] = (request.topic,)
    else:
        topics = request.topics or broker.offsets.topics_of(request.group)
    queues: dict[MessageQueue, QueueProgress] = {}
    tps = 0.0
    for topic, settings in _consumed(request.group, topics, broker):
        queues |= _progress(request.group, topic, settings.read_queues, broker)
        tps += broker.counts.get_tps(request.group, topic)
    return ConsumeStatsReply(queues=queues, consume_tps=tps)


async def get_broker_consume_stats(
    request: GetBrokerConsumeStats, broker: Broker, peer: Peer
) -> BrokerConsumeStats:
    """How far every group has come in every topic; others have a turn after each group."""
    groups: list[dict[str, list[GroupProgress]]] = []
    behind = in_flight = 0
    for group in list(broker.groups.table):
        await asyncio.sleep(0)
        progresses: list[GroupProgress] = []
        topics = broker.offsets.topics_of(group)
        for topic, settings in _consumed(group, topics, broker):
            if request.ordered and not settings.ordered:
                continue
            queues = _progress(group, topic, settings.write_queues, broker)
            tps = broker.counts.get_tps(group, topic)
            progresses.append(GroupProgress(queues=queues, consume_tps=tps))
            for one in queues.values():
                behind += one.broker_offset - one.consumer_offset
                in_flight += one.pull_offset - one.consumer_offset
        groups.append({group: progresses})
    return BrokerConsumeStats(
        groups=groups,
        broker_address=peer.local,
        total_behind=behind,
        total_in_flight=in_flight,
    )


def _consumed(
    group: str, topics: Iterable[str], broker: Broker
) -> Iterable[tuple[str, TopicSettings]]:
    """Those of the topics that exist and that the group still wants, as far as anyone knows."""
    for topic in topics:
        settings = broker.topics.table.get(topic)
        if settings is not None and not broker.consumers.is_unwanted(group, topic):
            yield topic, settings


def _progress(
    group: str, topic: str, queues: int, broker: Broker
) -> dict[MessageQueue, QueueProgress]:
    found: dict[MessageQueue, QueueProgress] = {}
    for queue_id in range(queues):
        offset = broker.offsets.query(group, topic, queue_id) or 0
        pulled = broker.offsets.query_pulled(group, topic, queue_id) or 0
        found[_queue(topic, queue_id, broker)] = QueueProgress(
            broker_offset=end_offset(broker.store, topic, queue_id),
            consumer_offset=offset,
            pull_offset=max(offset, pulled),
            last_ms=max(0, broker.store.store_time(topic, queue_id, offset - 1)),
        )
    return found


def get_time_spans(request: GetTimeSpans, broker: Broker, _peer: Peer) -> TimeSpans:
    """From when to when the messages of a topic are, and how late a group is."""
    settings = _topic(request.topic, broker)
    return TimeSpans(
        spans=[_span(request, queue_id, broker) for queue_id in range(settings.write_queues)]
    )


def _span(request: GetTimeSpans, queue_id: int, broker: Broker) -> QueueTimeSpan:
    topic, store = request.topic, broker.store
    low, high = first_offset(store, topic, queue_id), end_offset(store, topic, queue_id)
    offset = broker.offsets.query(request.group, topic, queue_id)
    oldest = store.store_time(topic, queue_id, low)
    newest = store.store_time(topic, queue_id, high - 1)
    consumed = store.store_time(topic, queue_id, offset - 1) if offset else oldest
    late = 0
    if (offset or 0) < high:
        following = store.store_time(topic, queue_id, offset or 0)
        late = broker.clock_ms() - following if following >= 0 else 0
    return QueueTimeSpan(
        queue=_queue(topic, queue_id, broker),
        min_ms=oldest,
        max_ms=newest,
        consumed_ms=consumed,
        delay_ms=late,
        min_text=_text(oldest),
        max_text=_text(newest),
        consumed_text=_text(consumed),
    )


def _text(ms: int) -> str:
    """A time in the form that RocketMQ gives it here."""
    when = time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(ms // 1000))
    return f"{when}:{ms % 1000:03d}"


# --- who consumes what ----------------------------------------------------------------------------


def get_groups_of_topic(request: GetGroupsOfTopic, broker: Broker, _peer: Peer) -> GroupList:
    """The groups that consume a topic now, or did."""
    online = broker.consumers.wanting(request.topic)
    return GroupList(groups={*online, *broker.offsets.groups_of(request.topic)})


def get_topics_of_group(request: GetTopicsOfGroup, broker: Broker, peer: Peer) -> TopicList:
    """The topics that a group has offsets in."""
    return TopicList(topics=broker.offsets.topics_of(request.group), broker_address=peer.local)


def get_subscription(request: GetSubscription, broker: Broker, _peer: Peer) -> SubscriptionReply:
    """What a group wants of a topic."""
    return SubscriptionReply(
        group=request.group,
        topic=request.topic,
        subscription=broker.consumers.subscription(request.group, request.topic or ""),
    )


# --- what went through ----------------------------------------------------------------------------


def get_broker_stats(request: GetBrokerStats, broker: Broker, _peer: Peer) -> BrokerStats:
    """One of the counts, over the last minute, hour and day."""
    found = broker.counts.find(request.name, request.key)
    if found is None:
        raise BrokerFailure.because(f"The stats <{request.name}> <{request.key}> not exist")
    counted, column = found
    return BrokerStats(
        minute=item(counted.minute, column),
        hour=item(counted.hour, column),
        day=item(counted.day, column),
    )


def get_broker_lite_info(
    _request: GetBrokerLiteInfo, broker: Broker, _peer: Peer
) -> BrokerLiteInfo:
    """There are no lite topics; what they would share with other topics is counted."""
    return BrokerLiteInfo(
        store_type="default",
        queue_table=len(broker.topics.table),
        offset_table=broker.offsets.count,
    )


# --- cleaning up ----------------------------------------------------------------------------------


def clean_consume_queues(_request: CleanConsumeQueues, broker: Broker, _peer: Peer) -> Done:
    """Drop what queues have of messages that are gone."""
    broker.store.clean()
    return Done()


def delete_expired_log(_request: DeleteExpiredLog, broker: Broker, _peer: Peer) -> Done:
    """Drop the files of the log that are past their time."""
    broker.store.clean()
    return Done()


def _topic(topic: str, broker: Broker) -> TopicSettings:
    settings = broker.topics.table.get(topic)
    if settings is None:
        raise TopicNotFound.because(f"topic[{topic}] not exist")
    return settings


def _queue(topic: str, queue_id: int, broker: Broker) -> MessageQueue:
    return MessageQueue(topic, broker.config.identity.name, queue_id)
