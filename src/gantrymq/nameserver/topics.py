"""The topics that a name server knows: listed, put in, taken out, opened and closed for writing.

RocketMQ: RouteInfoManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from gantrymq.errors import BrokerFailure
from gantrymq.nameserver.state import Tables
from gantrymq.protocol.base import Done
from gantrymq.protocol.registration import (
    AddWritePermission,
    TopicsAdded,
    TopicsWiped,
    WipeWritePermission,
)
from gantrymq.protocol.routing import (
    DeleteRoute,
    GetAllTopics,
    GetSystemTopics,
    GetTopicsOfCluster,
    GetUnitSubscribedPlainTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    QueueData,
    RegisterTopic,
)
from gantrymq.protocol.topics import READ, WRITE, TopicList

if TYPE_CHECKING:
    from gantrymq.nameserver.app import NameServer
    from gantrymq.net.peer import Peer

log = logging.getLogger("gantrymq.nameserver")

UNIT: Final = 1
"""The topic belongs to a unit."""
UNIT_SUBSCRIBED: Final = 2
"""Groups of a unit subscribe to it."""


# --- the tables -----------------------------------------------------------------------------------


def topics_of_cluster(tables: Tables, cluster: str) -> list[str]:
    """Every topic that a broker of `cluster` has."""
    found: dict[str, None] = {}
    for broker in sorted(tables.clusters.get(cluster, ())):
        found |= dict.fromkeys(tables.topics_of.get(broker, ()))
    return list(found)


def system_topics(tables: Tables) -> TopicList:
    """The names of clusters and brokers, and the address of a broker that knows the others."""
    names: dict[str, None] = {}
    for cluster, brokers in tables.clusters.items():
        names |= dict.fromkeys((cluster, *sorted(brokers)))
    addresses = (at for data in tables.brokers.values() for at in data.addresses.values())
    return TopicList(topics=list(names), broker_address=next(addresses, None))


def topics_where(tables: Tables, holds: Callable[[int], bool]) -> list[str]:
    """The topics whose flags, as the first broker has them, are as asked."""
    return [
        topic
        for topic, queues in tables.topics.items()
        if any(holds(data.flags) for data in list(queues.values())[:1])
    ]


def put_topic(tables: Tables, topic: str, queues: Iterable[QueueData]) -> None:
    """Make a topic's queues known, up to the first broker that is not."""
    is_new = topic not in tables.topics
    known = []
    for data in queues:
        if data.broker not in tables.brokers:
            log.warning("topic %s is said to be at %s, which is not here", topic, data.broker)
            if is_new:
                return
            break
        known.append(data)
    for data in known:
        tables.put_queues(topic, data)


def drop_topic(tables: Tables, topic: str, cluster: str | None = None) -> None:
    """Forget a topic, everywhere or at the brokers of one cluster."""
    if not cluster:
        tables.drop_topic(topic)
        return
    for broker in tables.clusters.get(cluster, ()):
        tables.drop_queues(topic, broker)


# --- answers --------------------------------------------------------------------------------------


def wipe_write(request: WipeWritePermission, server: NameServer, peer: Peer) -> TopicsWiped:
    """Have no more messages sent to a broker."""
    count = server.tables.set_permission(request.broker, clear=WRITE)
    log.info("%s closed %d topics of %s for writing", peer, count, request.broker)
    return TopicsWiped(count=count)


def add_write(request: AddWritePermission, server: NameServer, peer: Peer) -> TopicsAdded:
    """Have messages sent to a broker again."""
    count = server.tables.set_permission(request.broker, put=READ | WRITE)
    log.info("%s opened %d topics of %s for reading and writing", peer, count, request.broker)
    return TopicsAdded(count=count)


def get_all(_request: GetAllTopics, server: NameServer, _peer: Peer) -> TopicList:
    """Every topic."""
    _check_listing(server.config.routes.list_all_topics)
    return TopicList(topics=list(server.tables.topics))


def get_of_cluster(request: GetTopicsOfCluster, server: NameServer, _peer: Peer) -> TopicList:
    """The topics of a cluster; none, if there is no such cluster."""
    _check_listing(server.config.routes.list_topics)
    return TopicList(topics=topics_of_cluster(server.tables, request.cluster))


def get_system(_request: GetSystemTopics, server: NameServer, _peer: Peer) -> TopicList:
    """The topics that stand for clusters and brokers."""
    return system_topics(server.tables)


def get_unit(_request: GetUnitTopics, server: NameServer, _peer: Peer) -> TopicList:
    """The topics that belong to a unit."""
    return _listed(server, lambda flags: bool(flags & UNIT))


def get_unit_subscribed(
    _request: GetUnitSubscribedTopics, server: NameServer, _peer: Peer
) -> TopicList:
    """The topics that groups of a unit subscribe to."""
    return _listed(server, lambda flags: bool(flags & UNIT_SUBSCRIBED))


def get_unit_subscribed_plain(
    _request: GetUnitSubscribedPlainTopics, server: NameServer, _peer: Peer
) -> TopicList:
    """Those of them that belong to no unit."""
    return _listed(server, lambda flags: flags & (UNIT | UNIT_SUBSCRIBED) == UNIT_SUBSCRIBED)


def _listed(server: NameServer, holds: Callable[[int], bool]) -> TopicList:
    _check_listing(server.config.routes.list_topics)
    return TopicList(topics=topics_where(server.tables, holds))


def _check_listing(allowed: bool) -> None:
    if not allowed:
        raise BrokerFailure.because("disable")


def register_topic(request: RegisterTopic, server: NameServer, _peer: Peer) -> Done:
    """Put one topic in."""
    put_topic(server.tables, request.topic, request.route.queues)
    return Done()


def delete_route(request: DeleteRoute, server: NameServer, peer: Peer) -> Done:
    """Take one topic out."""
    drop_topic(server.tables, request.topic, request.cluster)
    log.info("%s deleted topic %s in %s", peer, request.topic, request.cluster or "every cluster")
    return Done()
