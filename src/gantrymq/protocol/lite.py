"""Lite topics (5.5): many small topics under one parent, subscribed to one by one."""

from __future__ import annotations

from gantrymq.protocol.base import (
    Buffer,
    Done,
    Int,
    Long,
    OpenStrEnum,
    Reply,
    Request,
    RpcRequest,
    declared,
    in_body,
    named,
    of_frame,
    raw_body,
)
from gantrymq.protocol.popping import PopStatus
from gantrymq.protocol.statistics import QueueBounds, QueueProgress
from gantrymq.wire.codes import RequestCode


class LiteAction(OpenStrEnum):
    """What becomes of a client's lite topics. RocketMQ: LiteSubscriptionAction."""

    ADD = "PARTIAL_ADD"
    REMOVE = "PARTIAL_REMOVE"
    REPLACE_ALL = "COMPLETE_ADD"
    REMOVE_ALL = "COMPLETE_REMOVE"


class OffsetOptionType(OpenStrEnum):
    """How the start is given. RocketMQ: OffsetOption.Type."""

    POLICY = "POLICY"
    OFFSET = "OFFSET"
    TAIL = "TAIL_N"
    TIMESTAMP = "TIMESTAMP"


@declared
class OffsetOption:
    """Where to begin; of a POLICY 0 is the last offset, 1 the least, 2 the greatest.

    RocketMQ: OffsetOption.
    """

    type: OffsetOptionType | None = None
    value: Long = 0


@declared
class LiteSubscription:
    """A change to a client's lite topics. RocketMQ: LiteSubscriptionDTO."""

    action: LiteAction | None = None
    client_id: str | None = None
    group: str | None = None
    topic: str | None = None
    lite_topics: set[str] | None = named("liteTopicSet", default=None)
    offset: OffsetOption | None = named("offsetOption", default=None)
    version: Long = 0


@declared
class ChangeLiteSubscriptions(RpcRequest[Done]):
    """Say which lite topics a client wants.

    RocketMQ: LiteSubscriptionCtlRequestBody, code 200071.
    """

    CODE = RequestCode.LITE_SUBSCRIPTION_CTL

    changes: list[LiteSubscription] = in_body("subscriptionSet", default_factory=list)


@declared
class PopLiteReply(Reply):
    """Messages in stored form. RocketMQ: PopLiteMessageResponseHeader."""

    status: PopStatus = of_frame("code", default=PopStatus.FOUND)
    pop_ms: Long = named("popTime", default=0)
    invisible_ms: Long = named("invisibleTime", default=0)
    revive_queue_id: Int = named("reviveQid", default=0)
    start_offsets: str | None = named("startOffsetInfo", default=None)
    offsets: str | None = named("msgOffsetInfo", default=None)
    order_counts: str | None = named("orderCountInfo", default=None)
    body: Buffer = raw_body(default=b"")


@declared
class PopLiteMessages(RpcRequest[PopLiteReply]):
    """Take messages out of the lite topics that a client wants.

    RocketMQ: PopLiteMessageRequestHeader, code 200070.
    """

    CODE = RequestCode.POP_LITE_MESSAGE

    client_id: str
    group: str = named("consumerGroup")
    topic: str
    max_messages: Int = named("maxMsgNum")
    invisible_ms: Long = named("invisibleTime")
    poll_ms: Long = named("pollTime")
    born_ms: Long = named("bornTime")
    attempt_id: str | None = None


@declared
class NotifyUnsubscribeLite(RpcRequest[Done]):
    """Tell a client that it lost a lite topic; one-way.

    RocketMQ: NotifyUnsubscribeLiteRequestHeader, code 200073.
    """

    CODE = RequestCode.NOTIFY_UNSUBSCRIBE_LITE

    lite_topic: str
    group: str = named("consumerGroup")
    client_id: str


@declared
class BrokerLiteInfo(Reply):
    """Counts of lite topics and what they take. RocketMQ: GetBrokerLiteInfoResponseBody."""

    store_type: str | None = in_body(default=None)
    max_queues: Int = in_body("maxLmqNum", default=0)
    queues: Int = in_body("currentLmqNum", default=0)
    subscriptions: Int = in_body("liteSubscriptionCount", default=0)
    order_infos: Int = in_body("orderInfoCount", default=0)
    queue_table: Int = in_body("cqTableSize", default=0)
    offset_table: Int = in_body("offsetTableSize", default=0)
    event_map: Int = in_body("eventMapSize", default=0)
    topics: dict[str, Int] = in_body("topicMeta", default_factory=dict)
    groups: dict[str, set[str]] = in_body("groupMeta", default_factory=dict)


@declared
class GetBrokerLiteInfo(Request[BrokerLiteInfo]):
    """How many lite topics a broker has.

    RocketMQ: GET_BROKER_LITE_INFO, code 200074.
    """

    CODE = RequestCode.GET_BROKER_LITE_INFO


@declared
class ParentTopicInfo(Reply):
    """A parent topic's lite topics, counted. RocketMQ: GetParentTopicInfoResponseBody."""

    topic: str | None = in_body(default=None)
    ttl_minutes: Int = in_body("ttl", default=0)
    groups: set[str] = in_body(default_factory=set)
    queues: Int = in_body("lmqNum", default=0)
    lite_topics: Int = in_body("liteTopicCount", default=0)


@declared
class GetParentTopicInfo(Request[ParentTopicInfo]):
    """How many lite topics a topic has.

    RocketMQ: GetParentTopicInfoRequestHeader, code 200075.
    """

    CODE = RequestCode.GET_PARENT_TOPIC_INFO

    topic: str


@declared
class LiteClient:
    """A client of a group. RocketMQ: ClientGroup."""

    client_id: str | None = None
    group: str | None = None


@declared
class LiteTopicInfo(Reply):
    """A lite topic and who wants it. RocketMQ: GetLiteTopicInfoResponseBody."""

    parent_topic: str | None = in_body(default=None)
    lite_topic: str | None = in_body(default=None)
    subscribers: list[LiteClient] = in_body("subscriber", default_factory=list)
    bounds: QueueBounds | None = in_body("topicOffset", default=None)
    sharded_here: bool = in_body("shardingToBroker", default=False)


@declared
class GetLiteTopicInfo(Request[LiteTopicInfo]):
    """Who wants a lite topic.

    RocketMQ: GetLiteTopicInfoRequestHeader, code 200076.
    """

    CODE = RequestCode.GET_LITE_TOPIC_INFO

    parent_topic: str | None = None
    lite_topic: str | None = None


@declared
class LiteClientInfo(Reply):
    """What a client wants of a parent topic. RocketMQ: GetLiteClientInfoResponseBody."""

    parent_topic: str | None = in_body(default=None)
    group: str | None = in_body(default=None)
    client_id: str | None = in_body(default=None)
    last_access_ms: Long = in_body("lastAccessTime", default=0)
    last_consume_ms: Long = in_body("lastConsumeTime", default=0)
    lite_topic_count: Int = in_body(default=0)
    lite_topics: set[str] = in_body("liteTopicSet", default_factory=set)


@declared
class GetLiteClientInfo(Request[LiteClientInfo]):
    """Which lite topics a client wants.

    RocketMQ: GetLiteClientInfoRequestHeader, code 200077.
    """

    CODE = RequestCode.GET_LITE_CLIENT_INFO

    parent_topic: str | None = None
    group: str | None = None
    client_id: str | None = None
    most: Int = named("maxCount", default=1000)


@declared
class LiteLag:
    """How far a group is behind in a lite topic. RocketMQ: LiteLagInfo."""

    lite_topic: str | None = None
    count: Long = named("lagCount", default=0)
    earliest_ms: Long = named("earliestUnconsumedTimestamp", default=0)


@declared
class LiteGroupInfo(Reply):
    """How far a group is behind in its lite topics. RocketMQ: GetLiteGroupInfoResponseBody."""

    group: str | None = in_body(default=None)
    parent_topic: str | None = in_body(default=None)
    lite_topic: str | None = in_body(default=None)
    earliest_ms: Long = in_body("earliestUnconsumedTimestamp", default=0)
    total_behind: Long = in_body("totalLagCount", default=0)
    progress: QueueProgress | None = in_body("liteTopicOffsetWrapper", default=None)
    most_behind: list[LiteLag] = in_body("lagCountTopK", default_factory=list)
    longest_behind: list[LiteLag] = in_body("lagTimestampTopK", default_factory=list)


@declared
class GetLiteGroupInfo(Request[LiteGroupInfo]):
    """How far a group is behind in its lite topics, with the `top` worst.

    RocketMQ: GetLiteGroupInfoRequestHeader, code 200078.
    """

    CODE = RequestCode.GET_LITE_GROUP_INFO

    group: str
    lite_topic: str | None = None
    top: Int = named("topK", default=0)


@declared
class TriggerLiteDispatch(Request[Done]):
    """Have the lite topics of a group, or of one client, looked at now.

    RocketMQ: TriggerLiteDispatchRequestHeader, code 200079.
    """

    CODE = RequestCode.TRIGGER_LITE_DISPATCH

    group: str
    client_id: str | None = None
