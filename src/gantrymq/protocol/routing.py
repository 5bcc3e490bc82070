"""Which brokers have a topic, and everything else that a name server knows about topics."""

from __future__ import annotations

from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    Reply,
    Request,
    TopicRequest,
    declared,
    in_body,
    named,
    of_frame,
    whole_body,
)
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.topics import TopicList
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.versions import CURRENT


@declared
class BrokerMembers:
    """The brokers of one name, by id; the master is 0. RocketMQ: BrokerMemberGroup."""

    cluster: str | None = None
    name: str | None = named("brokerName", default=None)
    addresses: dict[Long, str] = named("brokerAddrs", default_factory=dict)


@declared
class BrokerData(BrokerMembers):
    """The same as routes have it. RocketMQ: BrokerData."""

    acting_master: bool = named("enableActingMaster", default=False)
    zone: str | None = named("zoneName", default=None)


@declared
class QueueData:
    """How many queues of a topic the brokers of one name have, and what is allowed there.

    RocketMQ: QueueData.
    """

    broker: str = named("brokerName")
    read_queues: Int = named("readQueueNums", default=0)
    write_queues: Int = named("writeQueueNums", default=0)
    perm: Int = 0
    flags: Int = named("topicSysFlag", default=0)


@declared
class TopicRoute:
    """Where a topic's queues are.

    `order` lists the queues of an order topic as `broker:n;broker:n`; `mappings` are there for
    static topics.

    RocketMQ: TopicRouteData.
    """

    queues: list[QueueData] = named("queueDatas", default_factory=list)
    brokers: list[BrokerData] = named("brokerDatas", default_factory=list)
    filter_servers: dict[str, list[str]] = named("filterServerTable", default_factory=dict)
    order: str | None = named("orderTopicConf", default=None)
    mappings: dict[str, QueueMapping] | None = named("topicQueueMappingByBroker", default=None)


@declared
class RouteReply(Reply):
    """A topic's route."""

    route: TopicRoute = whole_body()


@declared
class GetRoute(TopicRequest[RouteReply]):
    """Where a topic's queues are.

    Java answers clients before 4.9.4 with unquoted number keys, unless `strict_json` is set; the
    answer's `command(bare_numbers=True)` does the same. With `zone_mode`, masters of other zones
    than `zone` are left out.

    RocketMQ: GetRouteInfoRequestHeader, code 105.
    """

    CODE = RequestCode.GET_ROUTEINFO_BY_TOPIC

    topic: str
    strict_json: bool | None = named("acceptStandardJsonOnly", default=None)
    zone: str | None = named("__ZONE_NAME", default=None)
    zone_mode: bool | None = named("__ZONE_MODE", default=None)
    version: Int = of_frame("version", default=CURRENT)


@declared
class ClusterInfo(Reply):
    """The brokers by name, and their names by cluster. RocketMQ: ClusterInfo."""

    brokers: dict[str, BrokerData] = in_body("brokerAddrTable", default_factory=dict)
    clusters: dict[str, set[str]] = in_body("clusterAddrTable", default_factory=dict)


@declared
class GetClusterInfo(Request[ClusterInfo]):
    """Which brokers there are.

    RocketMQ: GET_BROKER_CLUSTER_INFO, code 106.
    """

    CODE = RequestCode.GET_BROKER_CLUSTER_INFO


@declared
class BrokerMembersReply(Reply):
    """The brokers of one name. RocketMQ: GetBrokerMemberGroupResponseBody."""

    members: BrokerMembers | None = in_body("brokerMemberGroup", default=None)


@declared
class GetBrokerMembers(Request[BrokerMembersReply]):
    """Which brokers share a name.

    RocketMQ: GetBrokerMemberGroupRequestHeader, code 901.
    """

    CODE = RequestCode.GET_BROKER_MEMBER_GROUP

    cluster: str = named("clusterName")
    broker: str = named("brokerName")


@declared
class GetAllTopics(Request[TopicList]):
    """The name of every topic.

    RocketMQ: GET_ALL_TOPIC_LIST_FROM_NAMESERVER, code 206.
    """

    CODE = RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER


@declared
class GetTopicsOfCluster(Request[TopicList]):
    """The topics that the brokers of a cluster have.

    RocketMQ: GetTopicsByClusterRequestHeader, code 224.
    """

    CODE = RequestCode.GET_TOPICS_BY_CLUSTER

    cluster: str


@declared
class GetSystemTopics(Request[TopicList]):
    """The names of clusters and brokers, which are topics too, and a broker to ask for the others.

    RocketMQ: GET_SYSTEM_TOPIC_LIST_FROM_NS, code 304.
    """

    CODE = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS


@declared
class GetUnitTopics(Request[TopicList]):
    """The topics that belong to a unit.

    RocketMQ: GET_UNIT_TOPIC_LIST, code 311.
    """

    CODE = RequestCode.GET_UNIT_TOPIC_LIST


@declared
class GetUnitSubscribedTopics(Request[TopicList]):
    """The topics that groups of a unit subscribe to.

    RocketMQ: GET_HAS_UNIT_SUB_TOPIC_LIST, code 312.
    """

    CODE = RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST


@declared
class GetUnitSubscribedPlainTopics(Request[TopicList]):
    """The topics that groups of a unit subscribe to and that belong to none.

    RocketMQ: GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, code 313.
    """

    CODE = RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST


@declared
class DeleteRoute(TopicRequest[Done]):
    """Forget a topic, everywhere or at the brokers of one cluster.

    RocketMQ: DeleteTopicFromNamesrvRequestHeader, code 216.
    """

    CODE = RequestCode.DELETE_TOPIC_IN_NAMESRV

    topic: str
    cluster: str | None = named("clusterName", default=None)


@declared
class RegisterTopic(TopicRequest[Done]):
    """Make one topic's queues known; only `queues` of the route are looked at.

    RocketMQ: RegisterTopicRequestHeader, code 217.
    """

    CODE = RequestCode.REGISTER_TOPIC_IN_NAMESRV

    topic: str
    route: TopicRoute = whole_body()
