"""What a name server knows: plain data, and the few steps that keep its parts in agreement.

| table | from | to |
|---|---|---|
| `topics` | topic | broker name → how many queues, and what is allowed there |
| `brokers` | broker name | cluster, and the address of each broker id |
| `clusters` | cluster | broker names |
| `live` | cluster and address | when it was heard of last, and what it said then |
| `filter_servers` | cluster and address | addresses |
| `mappings` | static topic | broker name → logical queues |

`topics_of` is `topics` the other way round: without it, the loss of one broker would cost a walk
over every topic. Nothing here reads a clock; who calls hands the time in.

`edition` goes up with every change that an answer could show. Whoever keeps something that was made
of these tables, keeps the edition with it, and knows by that whether it still holds.

RocketMQ: RouteInfoManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.routing import BrokerData, QueueData
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.topics import WRITE

MASTER: Final = 0
"""The broker id of a master; replicas have larger ones."""


class Place(NamedTuple):
    """Where a broker is. RocketMQ: BrokerAddrInfo."""

    cluster: str
    address: str


Said: TypeAlias = tuple[object, ...]
"""Everything that a registration says, short enough to be kept."""


@dataclass(slots=True, kw_only=True)
class Live:
    """A broker that registered and has not gone since. RocketMQ: BrokerLiveInfo."""

    broker: str
    broker_id: int
    heard: float
    """The time of its last sign of life."""
    timeout: float
    """Seconds of silence after which it counts as gone."""
    version: DataVersion
    ha_address: str
    connection: object
    """What its registration came through: with that, the broker goes too."""
    said: Said
    edition: int
    """Its last registration, and the tables that it left behind."""


@dataclass(slots=True, kw_only=True)
class Tables:
    """Everything about topics and brokers."""

    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)
    brokers: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, set[str]] = field(default_factory=dict)
    live: dict[Place, Live] = field(default_factory=dict)
    filter_servers: dict[Place, list[str]] = field(default_factory=dict)
    mappings: dict[str, dict[str, QueueMapping]] = field(default_factory=dict)
    topics_of: dict[str, set[str]] = field(default_factory=dict)
    edition: int = 0

    def changed(self) -> None:
        """Whatever was made of these tables is old now."""
        self.edition += 1

    # --- topics ---------------------------------------------------------------------------------

    def put_queues(self, topic: str, queues: QueueData) -> None:
        """Have `topic` at a broker as `queues` says."""
        self.topics.setdefault(topic, {})[queues.broker] = queues
        self.topics_of.setdefault(queues.broker, set()).add(topic)
        self.changed()

    def drop_queues(self, topic: str, broker: str) -> None:
        """`topic` is no more at a broker, or anywhere if that was the last one."""
        at = self.topics.get(topic, {})
        if at.pop(broker, None) is None:
            return
        self.topics_of[broker].discard(topic)
        if not at:
            self._forget(topic)
        self.changed()

    def drop_topic(self, topic: str) -> None:
        """`topic` is nowhere any more."""
        for broker in tuple(self.topics.get(topic, ())):
            self.drop_queues(topic, broker)

    def set_permission(self, broker: str, *, clear: int = 0, put: int | None = None) -> int:
        """Clear bits of every topic's permission at a broker, or set it; how many topics it has."""
        names = self.topics_of.get(broker, ())
        for topic in names:
            queues = self.topics[topic][broker]
            queues.perm = queues.perm & ~clear if put is None else put
        if names:
            self.changed()
        return len(names)

    def _forget(self, topic: str) -> None:
        del self.topics[topic]
        self.mappings.pop(topic, None)

    # --- brokers --------------------------------------------------------------------------------

    def broker(self, name: str, cluster: str) -> BrokerData:
        """The brokers of that name, new in `cluster` if there are none; in `cluster` either way."""
        names = self.clusters.setdefault(cluster, set())
        data = self.brokers.get(name)
        if name not in names or data is None:
            names.add(name)
            self.changed()
        if data is None:
            data = self.brokers[name] = BrokerData(cluster=cluster, name=name)
        return data

    def drop_broker(self, name: str) -> None:
        """Nobody is left under that name: its topics and its place in the cluster go too."""
        self.brokers.pop(name, None)
        for cluster, names in tuple(self.clusters.items()):
            names.discard(name)
            if not names:
                del self.clusters[cluster]
        for topic in tuple(self.topics_of.pop(name, ())):
            self._drop_last(topic, name)
        self.changed()

    def _drop_last(self, topic: str, broker: str) -> None:
        at = self.topics[topic]
        del at[broker]
        if not at:
            self._forget(topic)

    def stop_writes(self, broker: str) -> None:
        """Nobody may write to that broker's queues."""
        self.set_permission(broker, clear=WRITE)

    def set_filter_servers(self, place: Place, servers: Iterable[str]) -> None:
        """The filter servers that are now at a broker; none, if there are none."""
        listed = list(servers)
        if self.filter_servers.get(place, []) == listed:
            return
        if listed:
            self.filter_servers[place] = listed
        else:
            del self.filter_servers[place]
        self.changed()
