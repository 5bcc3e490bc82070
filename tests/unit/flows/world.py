"""A scripted cluster for the tests of flows: one name server, two brokers, topic orders."""

from __future__ import annotations

from gantrymq.errors import TopicNotFound
from gantrymq.flows.reaching import Reach
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done
from gantrymq.protocol.brokers import GetRuntimeInfo
from gantrymq.protocol.configs import KeyTable
from gantrymq.protocol.groups import Heartbeat, HeartbeatReply
from gantrymq.protocol.routing import (
    BrokerData,
    ClusterInfo,
    GetClusterInfo,
    GetRoute,
    QueueData,
    RouteReply,
    TopicRoute,
)
from gantrymq.protocol.statistics import GetTopicStats, QueueBounds, TopicStats
from gantrymq.protocol.topics import GetTopic, MappedTopicSettings, PutTopic, TopicReply
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire.versions import V5_5_0, ordinal

NS = "ns:9876"
A, B, REPLICA = "a:10911", "b:10911", "b1:10911"
NOW = 1_700_000_000_000
OLD = HeartbeatReply(version=ordinal(4, 9, 7))
ABSENT = TopicNotFound.because("No topic route info")


def route(topic: str = "orders", *brokers: str, queues: int = 2) -> RouteReply:
    """Where a topic is."""
    names = brokers or ("broker-a", "broker-b")
    data = {"broker-a": {0: A}, "broker-b": {0: B, 1: REPLICA}}
    return RouteReply(
        route=TopicRoute(
            queues=[
                QueueData(broker=name, read_queues=queues, write_queues=queues, perm=6)
                for name in names
            ],
            brokers=[BrokerData(cluster="C", name=name, addresses=data[name]) for name in names],
        )
    )


def cluster() -> ClusterInfo:
    """Who is there."""
    return ClusterInfo(
        brokers={
            "broker-a": BrokerData(cluster="C", name="broker-a", addresses={0: A}),
            "broker-b": BrokerData(cluster="C", name="broker-b", addresses={0: B, 1: REPLICA}),
        },
        clusters={"C": {"broker-a", "broker-b"}},
    )


def stats(
    broker: str, *bounds: tuple[int, int], topic: str = "orders", last_ms: int = NOW - 1000
) -> TopicStats:
    """The bounds of the queues of a broker."""
    return TopicStats(
        queues={
            MessageQueue(topic, broker, number): QueueBounds(
                min_offset=low, max_offset=high, last_update_ms=last_ms if high else 0
            )
            for number, (low, high) in enumerate(bounds)
        },
        put_tps=1.5,
    )


def settings(**fields: object) -> TopicReply:
    """What a broker keeps about a topic."""
    known: dict[str, object] = {"topic": "orders", "read_queues": 2, "write_queues": 2}
    return TopicReply(settings=MappedTopicSettings(**(known | fields)))  # type: ignore[arg-type]


def world() -> tuple[ScriptedRuntime, Reach]:
    """The runtime, and what flows get."""
    runtime = ScriptedRuntime()
    runtime.answer(NS, GetClusterInfo, cluster())
    runtime.answer(NS, GetRoute, route())
    for address, name in ((A, "broker-a"), (B, "broker-b"), (REPLICA, "broker-b")):
        runtime.answer(address, GetTopic, settings())
        runtime.answer(address, PutTopic, Done())
        runtime.answer(address, Heartbeat, HeartbeatReply(version=V5_5_0))
        runtime.answer(address, GetTopicStats, stats(name, (0, 10), (5, 7)))
        runtime.answer(
            address,
            GetRuntimeInfo,
            KeyTable(table={"brokerVersionDesc": "V5_5_0", "putTps": "3.5 2 1"}),
        )
    return runtime, Reach(runtime=runtime, name_servers=(NS,), now_ms=lambda: NOW)
