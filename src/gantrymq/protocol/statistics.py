"""What brokers count: how full topics are, how far groups lag, what went through."""

from __future__ import annotations

from gantrymq.model import MessageQueue
from gantrymq.protocol.base import (
    Int,
    Long,
    Reply,
    Request,
    RpcRequest,
    TopicRequest,
    declared,
    in_body,
    named,
)
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.text_forms import SemicolonJoined
from gantrymq.protocol.topics import TopicList
from gantrymq.wire.codes import RequestCode


@declared
class QueueBounds:
    """Where a queue begins and ends. RocketMQ: TopicOffset."""

    min_offset: Long = 0
    max_offset: Long = 0
    last_update_ms: Long = named("lastUpdateTimestamp", default=0)


@declared
class TopicStats(Reply):
    """The queues of a topic at a broker. RocketMQ: TopicStatsTable."""

    queues: dict[MessageQueue, QueueBounds] = in_body("offsetTable", default_factory=dict)
    put_tps: float = in_body("topicPutTps", default=0.0)


@declared
class GetTopicStats(TopicRequest[TopicStats]):
    """Where the queues of a topic begin and end.

    RocketMQ: GetTopicStatsInfoRequestHeader, code 202.
    """

    CODE = RequestCode.GET_TOPIC_STATS_INFO

    topic: str


@declared
class QueueProgress:
    """How far a group is behind in a queue. RocketMQ: OffsetWrapper."""

    broker_offset: Long = 0
    consumer_offset: Long = 0
    pull_offset: Long = 0
    last_ms: Long = named("lastTimestamp", default=0)


@declared
class GroupProgress:
    """How far a group is behind in each queue. RocketMQ: ConsumeStats."""

    queues: dict[MessageQueue, QueueProgress] = named("offsetTable", default_factory=dict)
    consume_tps: float = 0.0


@declared
class ConsumeStatsReply(Reply):
    """How far a group is behind. RocketMQ: ConsumeStats."""

    queues: dict[MessageQueue, QueueProgress] = in_body("offsetTable", default_factory=dict)
    consume_tps: float = in_body(default=0.0)


@declared
class GetConsumeStats(TopicRequest[ConsumeStatsReply]):
    """How far a group is behind, in one topic, in several, or in all that it subscribes to.

    RocketMQ: GetConsumeStatsRequestHeader, code 208.
    """

    CODE = RequestCode.GET_CONSUME_STATS

    group: str = named("consumerGroup")
    topic: str | None = None
    topics: SemicolonJoined | None = named("topicList", default=None)


@declared
class BrokerConsumeStats(Reply):
    """How far all groups of a broker are behind. RocketMQ: ConsumeStatsList."""

    groups: list[dict[str, list[GroupProgress]]] = in_body("consumeStatsList", default_factory=list)
    broker_address: str | None = in_body("brokerAddr", default=None)
    total_behind: Long = in_body("totalDiff", default=0)
    total_in_flight: Long = in_body("totalInflightDiff", default=0)


@declared
class GetBrokerConsumeStats(Request[BrokerConsumeStats]):
    """How far all groups of a broker are behind; `ordered`: only those that consume in order.

    RocketMQ: GetConsumeStatsInBrokerHeader, code 317.
    """

    CODE = RequestCode.GET_BROKER_CONSUME_STATS

    ordered: bool = named("isOrder", default=False)


@declared
class GroupList(Reply):
    """Names of groups. RocketMQ: GroupList."""

    groups: set[str] = in_body("groupList", default_factory=set)


@declared
class GetGroupsOfTopic(TopicRequest[GroupList]):
    """Which groups consume a topic.

    RocketMQ: QueryTopicConsumeByWhoRequestHeader, code 300.
    """

    CODE = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO

    topic: str


@declared
class GetTopicsOfGroup(RpcRequest[TopicList]):
    """Which topics a group consumes.

    RocketMQ: QueryTopicsByConsumerRequestHeader, code 343.
    """

    CODE = RequestCode.QUERY_TOPICS_BY_CONSUMER

    group: str


@declared
class SubscriptionReply(Reply):
    """What a group wants of a topic. RocketMQ: QuerySubscriptionResponseBody."""

    group: str | None = in_body(default=None)
    topic: str | None = in_body(default=None)
    subscription: Subscription | None = in_body("subscriptionData", default=None)


@declared
class GetSubscription(TopicRequest[SubscriptionReply]):
    """What a group wants of a topic.

    RocketMQ: QuerySubscriptionByConsumerRequestHeader, code 345.
    """

    CODE = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER

    group: str
    topic: str | None = None


@declared
class QueueTimeSpan:
    """When a queue's messages were stored, and how late a group is. RocketMQ: QueueTimeSpan."""

    queue: MessageQueue | None = named("messageQueue", default=None)
    min_ms: Long = named("minTimeStamp", default=0)
    max_ms: Long = named("maxTimeStamp", default=0)
    consumed_ms: Long = named("consumeTimeStamp", default=0)
    delay_ms: Long = named("delayTime", default=0)
    min_text: str | None = named("minTimeStampStr", default=None)
    max_text: str | None = named("maxTimeStampStr", default=None)
    consumed_text: str | None = named("consumeTimeStampStr", default=None)


@declared
class TimeSpans(Reply):
    """The time spans of each queue. RocketMQ: QueryConsumeTimeSpanBody."""

    spans: list[QueueTimeSpan] = in_body("consumeTimeSpanSet", default_factory=list)


@declared
class GetTimeSpans(TopicRequest[TimeSpans]):
    """How late a group is in the queues of a topic, in time.

    RocketMQ: QueryConsumeTimeSpanRequestHeader, code 303.
    """

    CODE = RequestCode.QUERY_CONSUME_TIME_SPAN

    topic: str
    group: str


@declared
class StatsItem:
    """A count over one stretch of time. RocketMQ: BrokerStatsItem."""

    sum: Long = 0
    tps: float = 0.0
    average: float = named("avgpt", default=0.0)


@declared
class BrokerStats(Reply):
    """A count over the last minute, hour and day. RocketMQ: BrokerStatsData."""

    minute: StatsItem | None = in_body("statsMinute", default=None)
    hour: StatsItem | None = in_body("statsHour", default=None)
    day: StatsItem | None = in_body("statsDay", default=None)


@declared
class GetBrokerStats(Request[BrokerStats]):
    """One of the counts that a broker keeps, `TOPIC_PUT_NUMS` of a topic for example.

    RocketMQ: ViewBrokerStatsDataRequestHeader, code 315.
    """

    CODE = RequestCode.VIEW_BROKER_STATS_DATA

    name: str = named("statsName")
    key: str = named("statsKey")


@declared
class QueueEntry:
    """One entry of a consume queue, and what a filter makes of it. RocketMQ: ConsumeQueueData."""

    log_offset: Long = named("physicOffset", default=0)
    size: Int = named("physicSize", default=0)
    tags_code: Long = 0
    extension: str | None = named("extendDataJson", default=None)
    bit_map: str | None = None
    matches: bool = named("eval", default=False)
    message: str | None = named("msg", default=None)


@declared
class QueueEntries(Reply):
    """Entries of a consume queue. RocketMQ: QueryConsumeQueueResponseBody."""

    entries: list[QueueEntry] = in_body("queueData", default_factory=list)
    subscription: Subscription | None = in_body("subscriptionData", default=None)
    filter_data: str | None = in_body(default=None)
    min_index: Long = in_body("minQueueIndex", default=0)
    max_index: Long = in_body("maxQueueIndex", default=0)


@declared
class QueryConsumeQueue(TopicRequest[QueueEntries]):
    """Look into a consume queue, as a group would see it.

    RocketMQ: QueryConsumeQueueRequestHeader, code 321.
    """

    CODE = RequestCode.QUERY_CONSUME_QUEUE

    topic: str | None = None
    queue_id: Int = 0
    index: Long = 0
    count: Int = 0
    group: str | None = named("consumerGroup", default=None)
