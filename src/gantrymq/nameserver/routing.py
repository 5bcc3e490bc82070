"""Where a topic is: routes as clients want them, and the answers kept ready.

A route is the queues of a topic at every broker name, and the addresses of those brokers. Four
things can make it another one:

- *acting masters*: where the master of a name is gone and its queues may not be written to, the
  replica with the smallest id is shown as the master, so that clients go on reading, locking and
  committing there;
- *zones*: a client that asks for its own zone does not see masters of other zones;
- *order*: the queues of an order topic are listed as its key in the table of keys says;
- *open hosts*: brokers of this machine may leave it to us what host they are reached by.

Nearly everybody asks for the same routes again and again, so that an answer is written once, and
kept until the tables change.

RocketMQ: RouteInfoManager, ClientRequestProcessor, ZoneRouteRPCHook.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gantrymq.errors import BrokerFailure, TopicNotFound
from gantrymq.nameserver.dialling import any_open, dialled_host, with_host
from gantrymq.nameserver.keys import ORDER_TOPICS
from gantrymq.nameserver.state import MASTER, Place, Tables
from gantrymq.protocol.base import Buffer, declared, raw_body
from gantrymq.protocol.names import member_sync_topic
from gantrymq.protocol.routing import (
    BrokerData,
    BrokerMembers,
    BrokerMembersReply,
    ClusterInfo,
    GetBrokerMembers,
    GetClusterInfo,
    GetRoute,
    QueueData,
    RouteReply,
    TopicRoute,
)
from gantrymq.protocol.topics import WRITE
from gantrymq.wire.versions import V4_9_4

if TYPE_CHECKING:
    from gantrymq.nameserver.app import NameServer
    from gantrymq.net.peer import Peer

_NO_ACTING: Final = member_sync_topic("")
"""Topics that begin with this are how the brokers of one name talk among themselves."""


def find_route(tables: Tables, topic: str, *, acting_masters: bool = False) -> TopicRoute | None:
    """Where `topic` is; None if no broker has it."""
    queues = tables.topics.get(topic)
    if not queues:
        return None
    brokers = [tables.brokers[name] for name in queues if name in tables.brokers]
    if not brokers:
        return None
    if acting_masters and not topic.startswith(_NO_ACTING):
        brokers = [_with_acting_master(data, queues[str(data.name)]) for data in brokers]
    return TopicRoute(
        queues=list(queues.values()),
        brokers=brokers,
        filter_servers=_filter_servers(tables, brokers),
        mappings=tables.mappings.get(topic),
    )


def _with_acting_master(data: BrokerData, queues: QueueData) -> BrokerData:
    addresses = data.addresses
    if not addresses or MASTER in addresses or not data.acting_master or queues.perm & WRITE:
        return data
    least = min(addresses)
    rest = {broker_id: at for broker_id, at in addresses.items() if broker_id != least}
    return BrokerData(
        cluster=data.cluster,
        name=data.name,
        addresses={MASTER: addresses[least]} | rest,
        acting_master=data.acting_master,
        zone=data.zone,
    )


def _filter_servers(tables: Tables, brokers: list[BrokerData]) -> dict[str, list[str]]:
    if not tables.filter_servers:
        return {}
    places = (Place(str(data.cluster), at) for data in brokers for at in data.addresses.values())
    known = tables.filter_servers
    return {place.address: known[place] for place in places if place in known}


def in_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """The same without masters of other zones, their replicas and their queues.

    A broker without a master stays: better a far replica than nobody.
    """
    stay: list[BrokerData] = []
    gone: list[BrokerData] = []
    for data in route.brokers:
        (stay if _is_near(data, zone) else gone).append(data)
    names = {data.name for data in gone}
    addresses = {address for data in gone for address in data.addresses.values()}
    servers = route.filter_servers.items()
    return TopicRoute(
        queues=[queues for queues in route.queues if queues.broker not in names],
        brokers=stay,
        filter_servers={at: known for at, known in servers if at not in addresses},
        order=route.order,
        mappings=route.mappings,
    )


def _is_near(data: BrokerData, zone: str) -> bool:
    return MASTER not in data.addresses or (data.zone or "").casefold() == zone.casefold()


# --- answers --------------------------------------------------------------------------------------


@declared
class WrittenRoute(RouteReply):
    """A route that is written already; its own body goes before the inherited one."""

    body: Buffer = raw_body(default=b"")


class Answers:
    """Written routes, as long as they hold."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._edition = tables.edition
        self._kept: dict[tuple[str, bool, str], WrittenRoute] = {}
        self._some_open = any_open(tables.brokers.values())

    def __len__(self) -> int:
        return len(self._kept)

    def host_for(self, peer: Peer) -> str:
        """The host that routes name to `peer` where brokers name none; "" if all do."""
        self._look()
        return dialled_host(peer) if self._some_open else ""

    def find(self, topic: str, *, strict: bool, host: str = "") -> WrittenRoute | None:
        """The answer for `topic` in that dialect, if it is there and holds."""
        self._look()
        return self._kept.get((topic, strict, host))

    def keep(self, topic: str, route: TopicRoute, *, strict: bool, host: str = "") -> WrittenRoute:
        """Write the answer for `topic`, for everybody who asks from now on."""
        answer = self._kept[topic, strict, host] = written(route, strict=strict)
        return answer

    def _look(self) -> None:
        """Forget everything if the tables are not what they were."""
        if self._edition != self._tables.edition:
            self._kept.clear()
            self._edition = self._tables.edition
            self._some_open = any_open(self._tables.brokers.values())


def written(route: TopicRoute, *, strict: bool) -> WrittenRoute:
    """The answer that says `route`; clients before 4.9.4 expect number keys without quotes."""
    body = RouteReply(route=route).command(bare_numbers=not strict).body
    return WrittenRoute(route=route, body=body)


def get_route(request: GetRoute, server: NameServer, peer: Peer) -> RouteReply:
    """Where a topic is."""
    if not server.serves_routes:
        raise BrokerFailure.because("name server not ready")
    topic, host = request.topic, server.answers.host_for(peer)
    strict = bool(request.strict_json) or request.version >= V4_9_4
    if request.zone_mode and request.zone and not request.zone.isspace():
        return written(in_zone(_route(server, topic, host), request.zone), strict=strict)
    return server.answers.find(topic, strict=strict, host=host) or server.answers.keep(
        topic, _route(server, topic, host), strict=strict, host=host
    )


def _route(server: NameServer, topic: str, host: str) -> TopicRoute:
    settings = server.config.routes
    route = find_route(server.tables, topic, acting_masters=settings.acting_masters)
    if route is None:
        raise TopicNotFound.because(f"No topic route info in name server for the topic: {topic}")
    route.brokers = [with_host(data, host) for data in route.brokers]
    if settings.order:
        route.order = server.keys.get(ORDER_TOPICS, topic)
    return route


def get_cluster_info(_request: GetClusterInfo, server: NameServer, peer: Peer) -> ClusterInfo:
    """Which brokers there are."""
    brokers, host = server.tables.brokers, server.answers.host_for(peer)
    if host:
        brokers = {name: with_host(data, host) for name, data in brokers.items()}
    return ClusterInfo(brokers=brokers, clusters=server.tables.clusters)


def get_members(request: GetBrokerMembers, server: NameServer, peer: Peer) -> BrokerMembersReply:
    """Which brokers share a name; nobody, if the name is not known."""
    data = server.tables.brokers.get(request.broker)
    if data is not None:
        data = with_host(data, server.answers.host_for(peer))
    return BrokerMembersReply(
        members=BrokerMembers(
            cluster=request.cluster,
            name=request.broker,
            addresses={} if data is None else data.addresses,
        )
    )
