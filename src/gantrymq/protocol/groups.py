"""Producers and consumers at a broker: how they make themselves known, and who is there."""

from __future__ import annotations

from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    Reply,
    Request,
    RpcRequest,
    declared,
    in_body,
    named,
    of_frame,
)
from gantrymq.protocol.enums import ConsumeFromWhere, ConsumeType, LanguageName, MessageModel
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import PYTHON
from gantrymq.wire.versions import CURRENT


@declared
class Subscription:
    """What a group wants of a topic. `codes` are the Java hash codes of `tags`.

    RocketMQ: SubscriptionData.
    """

    topic: str
    expression: str = named("subString", default="*")
    expression_type: str = "TAG"
    tags: set[str] = named("tagsSet", default_factory=set)
    codes: set[Int] = named("codeSet", default_factory=set)
    version: Long = named("subVersion", default=0)
    class_filter: bool = named("classFilterMode", default=False)


@declared
class ProducerData:
    """A client as a member of a producer group. RocketMQ: ProducerData."""

    group: str = named("groupName")


@declared
class ConsumerData:
    """A client as a member of a consumer group. RocketMQ: ConsumerData."""

    group: str = named("groupName")
    consume_type: ConsumeType = ConsumeType.PUSH
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFromWhere = named("consumeFromWhere", default=ConsumeFromWhere.LAST_OFFSET)
    subscriptions: list[Subscription] = named("subscriptionDataSet", default_factory=list)
    unit_mode: bool = False


@declared
class HeartbeatReply(Reply):
    """Whether fingerprints are understood, and whether the subscriptions have to be sent again.

    `version` is the broker's.
    """

    supports_fingerprints: bool | None = named("IS_SUPPORT_HEART_BEAT_V2", default=None)
    subscriptions_changed: bool | None = named("IS_SUB_CHANGE", default=None)
    version: Int = of_frame("version", default=CURRENT)


@declared
class Heartbeat(RpcRequest[HeartbeatReply]):
    """Say which groups a client belongs to, and that it is alive.

    With a `fingerprint` of its subscriptions, a client may leave them out (`without_subscriptions`)
    until the answer says that they are not what the broker has.

    RocketMQ: HeartbeatData, code 34.
    """

    CODE = RequestCode.HEART_BEAT

    client_id: str = in_body("clientID")
    producers: list[ProducerData] = in_body("producerDataSet", default_factory=list)
    consumers: list[ConsumerData] = in_body("consumerDataSet", default_factory=list)
    fingerprint: Int = in_body("heartbeatFingerprint", default=0)
    without_subscriptions: bool = in_body("withoutSub", default=False)
    version: Int = of_frame("version", default=CURRENT)
    language: Int = of_frame("language", default=PYTHON)


@declared
class UnregisterClient(RpcRequest[Done]):
    """Leave a producer group, a consumer group, or one of each.

    RocketMQ: UnregisterClientRequestHeader, code 35.
    """

    CODE = RequestCode.UNREGISTER_CLIENT

    client_id: str = named("clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


@declared
class CheckClientConfig(Request[Done]):
    """Ask whether the broker can filter by a subscription's expression.

    RocketMQ: CheckClientRequestBody, code 46.
    """

    CODE = RequestCode.CHECK_CLIENT_CONFIG

    client_id: str | None = in_body(default=None)
    group: str = in_body()
    namespace: str | None = in_body(default=None)
    subscription: Subscription = in_body("subscriptionData")


@declared
class ConsumerListReply(Reply):
    """The ids of a group's clients. RocketMQ: GetConsumerListByGroupResponseBody."""

    client_ids: list[str] = in_body("consumerIdList", default_factory=list)


@declared
class GetConsumerList(RpcRequest[ConsumerListReply]):
    """Which clients are members of a consumer group.

    RocketMQ: GetConsumerListByGroupRequestHeader, code 38.
    """

    CODE = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    group: str = named("consumerGroup")


@declared
class NotifyConsumersChanged(RpcRequest[Done]):
    """Tell a client that its group has other members or subscriptions now; one-way.

    RocketMQ: NotifyConsumerIdsChangedRequestHeader, code 40.
    """

    CODE = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    group: str = named("consumerGroup")


@declared
class ClientConnection:
    """A client that is connected. RocketMQ: Connection."""

    client_id: str | None = None
    address: str | None = named("clientAddr", default=None)
    language: LanguageName | None = None
    version: Int = 0


@declared
class ConsumerConnections(Reply):
    """A consumer group's clients, and what they want. RocketMQ: ConsumerConnection."""

    connections: list[ClientConnection] = in_body("connectionSet", default_factory=list)
    subscriptions: dict[str, Subscription] = in_body("subscriptionTable", default_factory=dict)
    consume_type: ConsumeType | None = in_body(default=None)
    message_model: MessageModel | None = in_body(default=None)
    consume_from: ConsumeFromWhere | None = in_body("consumeFromWhere", default=None)


@declared
class GetConsumerConnections(RpcRequest[ConsumerConnections]):
    """Who consumes in a group, from where, and what.

    RocketMQ: GetConsumerConnectionListRequestHeader, code 203.
    """

    CODE = RequestCode.GET_CONSUMER_CONNECTION_LIST

    group: str = named("consumerGroup")


@declared
class ProducerConnections(Reply):
    """A producer group's clients. RocketMQ: ProducerConnection."""

    connections: list[ClientConnection] = in_body("connectionSet", default_factory=list)


@declared
class GetProducerConnections(RpcRequest[ProducerConnections]):
    """Who produces in a group.

    RocketMQ: GetProducerConnectionListRequestHeader, code 204.
    """

    CODE = RequestCode.GET_PRODUCER_CONNECTION_LIST

    group: str = named("producerGroup")


@declared
class ProducerInfo:
    """A producer that is connected. RocketMQ: ProducerInfo."""

    client_id: str | None = None
    address: str | None = named("remoteIP", default=None)
    language: LanguageName | None = None
    version: Int = 0
    last_update_ms: Long = named("lastUpdateTimestamp", default=0)


@declared
class AllProducers(Reply):
    """The producers of each group. RocketMQ: ProducerTableInfo."""

    producers: dict[str, list[ProducerInfo]] = in_body("data", default_factory=dict)


@declared
class GetAllProducers(Request[AllProducers]):
    """Who produces at a broker.

    RocketMQ: GetAllProducerInfoRequestHeader, code 328.
    """

    CODE = RequestCode.GET_ALL_PRODUCER_INFO
