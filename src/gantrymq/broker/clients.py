"""Who is connected: the producers and consumers of each group, as their heartbeats tell.

A client names its groups every half a minute. One that has not done so for two minutes has left
them, and so has one whose connection ended. Whatever changes who is in a consumer group, or what
the group wants, is told to everybody in it at once (`NotifyConsumersChanged`), because each of them
works out its own share of the queues. RocketMQ tells nobody of a client that fell silent; here that
is a change like any other.

**Fingerprints.** A client that knows how may leave its subscriptions out of a heartbeat and send a
hash of them. The answer asks for all of them when that is not the hash that was seen last, and,
other than RocketMQ's, also when none was seen or nothing is known of what the group wants: a broker
that was started anew would otherwise never hear of it.

**Subscriptions of those who only pull** come with their pulls. They are kept apart for ten minutes,
so that tools can see them.

RocketMQ: ProducerManager, ConsumerManager, ConsumerGroupInfo, ClientManageProcessor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gantrymq.broker import filters
from gantrymq.errors import BrokerFailure, ConsumerOffline
from gantrymq.protocol.base import Done
from gantrymq.protocol.enums import ConsumeFromWhere, ConsumeType, MessageModel
from gantrymq.protocol.groups import (
    AllProducers,
    CheckClientConfig,
    ClientConnection,
    ConsumerConnections,
    ConsumerData,
    ConsumerListReply,
    GetAllProducers,
    GetConsumerConnections,
    GetConsumerList,
    GetProducerConnections,
    Heartbeat,
    HeartbeatReply,
    NotifyConsumersChanged,
    ProducerConnections,
    ProducerInfo,
    Subscription,
    UnregisterClient,
)
from gantrymq.protocol.names import retry_topic
from gantrymq.wire.codes import Language

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

SCAN_INTERVAL: Final = 10.0
LEARNT_FOR: Final = 600.0
"""Seconds for which a subscription that came with a pull is remembered."""
_MOST_LEARNT: Final = 100_000
_UNIT_SUBSCRIPTION: Final = 2
"""The flag of a topic that has subscribers in another unit."""


@dataclass(slots=True, kw_only=True, eq=False)
class Client:
    """A connection as a member of a group. RocketMQ: ClientChannelInfo."""

    peer: Peer
    client_id: str
    language: int
    version: int
    heard: float
    """When its last heartbeat came, in seconds; only differences mean anything."""
    heard_ms: int
    """The same by the wall clock, for people."""

    def connection(self) -> ClientConnection:
        """The client as tools see it."""
        return ClientConnection(
            client_id=self.client_id,
            address=self.peer.remote,
            language=Language(self.language),
            version=self.version,
        )


class Members:
    """Which clients each group has, and which groups each connection is in."""

    __slots__ = ("_by_id", "_groups_of", "by_group")

    def __init__(self) -> None:
        self.by_group: dict[str, dict[Peer, Client]] = {}
        self._by_id: dict[str, Client] = {}
        self._groups_of: dict[Peer, set[str]] = {}

    def put(self, group: str, client: Client) -> bool:
        """`client` was heard of; whether its connection was not in the group before."""
        members = self.by_group.setdefault(group, {})
        is_new = client.peer not in members
        members[client.peer] = self._by_id[client.client_id] = client
        self._groups_of.setdefault(client.peer, set()).add(group)
        return is_new

    def drop(self, group: str, peer: Peer) -> bool:
        """A connection is in the group no more; whether it was."""
        members = self.by_group.get(group, {})
        client = members.pop(peer, None)
        if client is None:
            return False
        if not members:
            del self.by_group[group]
        groups = self._groups_of[peer]
        groups.discard(group)
        if not groups:
            del self._groups_of[peer]
            known = self._by_id.get(client.client_id)
            if known is not None and known.peer is peer:
                del self._by_id[client.client_id]
        return True

    def find(self, client_id: str) -> Client | None:
        """The client of that id; of several connections the one that was heard of last."""
        return self._by_id.get(client_id)

    def groups_of(self, peer: Peer) -> tuple[str, ...]:
        """The groups that the connection is in."""
        return tuple(self._groups_of.get(peer, ()))

    def silent(self, since: float) -> list[tuple[str, Client]]:
        """The clients that were not heard of after `since`, with the group that misses them."""
        return [
            (group, client)
            for group, members in self.by_group.items()
            for client in members.values()
            if client.heard <= since
        ]

    def __contains__(self, peer: object) -> bool:
        return peer in self._groups_of


class Producers:
    """The producers of each group. RocketMQ: ProducerManager."""

    __slots__ = ("members",)

    def __init__(self) -> None:
        self.members = Members()

    def left(self, peer: Peer) -> None:
        """A connection ended."""
        for group in self.members.groups_of(peer):
            self.members.drop(group, peer)


@dataclass(slots=True, kw_only=True)
class ConsumerGroup:
    """A consumer group that has members, and what it wants. RocketMQ: ConsumerGroupInfo."""

    consume_type: ConsumeType = ConsumeType.PUSH
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    """By topic."""
    fingerprint: int = 0
    """Of what a member said last; 0 where none was sent."""

    def subscribe(self, wanted: Collection[Subscription]) -> bool:
        """The group wants exactly these; whether there are other topics among them than before.

        What it wants of a topic changes only with a newer version: members restart one by one.
        """
        known = self.subscriptions
        topics = {one.topic for one in wanted}
        changed = topics != known.keys()
        for gone in known.keys() - topics:
            del known[gone]
        for one in wanted:
            held = known.get(one.topic)
            if held is None or one.version > held.version:
                known[one.topic] = one
        return changed


@dataclass(slots=True)
class _Learnt:
    subscription: Subscription
    heard: float


class Consumers:
    """The consumers of each group. RocketMQ: ConsumerManager."""

    __slots__ = ("_learnt", "_learnt_count", "groups", "members", "notify")

    def __init__(self, *, notify: bool = True) -> None:
        self.members = Members()
        self.groups: dict[str, ConsumerGroup] = {}
        self.notify = notify
        """Whether the members of a group are told of changes at all."""
        self._learnt: dict[str, dict[str, _Learnt]] = {}
        self._learnt_count = 0

    def register(
        self,
        data: ConsumerData,
        client: Client,
        *,
        fingerprint: int = 0,
        without_subscriptions: bool = False,
        tell: bool = True,
    ) -> bool:
        """A member was heard of; whether it has to send the subscriptions that it left out."""
        group = self.groups.setdefault(data.group, ConsumerGroup())
        group.consume_type = data.consume_type
        group.message_model = data.message_model
        group.consume_from = data.consume_from
        held, group.fingerprint = group.fingerprint, fingerprint
        changed = self.members.put(data.group, client)
        if without_subscriptions:
            resend = held != fingerprint or not group.subscriptions
        else:
            resend = held not in (0, fingerprint)
            changed |= group.subscribe(data.subscriptions)
        if changed and tell:
            self._tell(data.group)
        return resend

    def unregister(self, group: str, peer: Peer, *, tell: bool = True) -> None:
        """A member left."""
        if not self.members.drop(group, peer):
            return
        if tell:
            self._tell(group)
        if group not in self.members.by_group:
            del self.groups[group]

    def left(self, peer: Peer) -> None:
        """A connection ended."""
        for group in self.members.groups_of(peer):
            self.unregister(group, peer)

    def learn(
        self, group: str, topic: str, expression: str, now: float, *, kind: str = filters.TAG
    ) -> None:
        """A pull said what the group wants of a topic."""
        topics = self._learnt.get(group)
        known = None if topics is None else topics.get(topic)
        if known is not None:
            known.heard = now
            held = known.subscription
            if held.expression == expression and held.expression_type == kind:
                return
        elif self._learnt_count >= _MOST_LEARNT:
            return
        else:
            self._learnt_count += 1
        wanted = Subscription(topic=topic, expression=expression, expression_type=kind)
        self._learnt.setdefault(group, {})[topic] = _Learnt(wanted, now)

    def forget_learnt(self, since: float) -> None:
        """Forget what pulls said, where none said it after `since`."""
        left = {
            group: {topic: one for topic, one in topics.items() if one.heard > since}
            for group, topics in self._learnt.items()
        }
        self._learnt = {group: topics for group, topics in left.items() if topics}
        self._learnt_count = sum(map(len, self._learnt.values()))

    # --- what others ask ------------------------------------------------------------------------

    def ids(self, group: str) -> list[str]:
        """The ids of a group's members; a client that just came back by a new connection once."""
        members = self.members.by_group.get(group, {})
        return list(dict.fromkeys(client.client_id for client in members.values()))

    def clients(self, group: str) -> list[Client]:
        """The members of a group."""
        return list(self.members.by_group.get(group, {}).values())

    def find(self, group: str, client_id: str) -> Client | None:
        """The member of that id; of several connections the one that was heard of last."""
        found = [one for one in self.clients(group) if one.client_id == client_id]
        return max(found, key=lambda one: one.heard, default=None)

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """What a group wants of a topic."""
        online = self.groups.get(group)
        found = None if online is None else online.subscriptions.get(topic)
        if found is None and (learnt := self._learnt.get(group, {}).get(topic)) is not None:
            return learnt.subscription
        return found

    def is_unwanted(self, group: str, topic: str) -> bool:
        """Whether the group is there and says what it wants, and that is nothing of this topic."""
        online = self.groups.get(group)
        says = online is not None and bool(online.subscriptions)
        return says and self.subscription(group, topic) is None

    def wanting(self, topic: str) -> Iterator[str]:
        """The groups with members that want something of a topic."""
        return (name for name, group in self.groups.items() if topic in group.subscriptions)

    def _tell(self, name: str) -> None:
        if not self.notify or self.groups[name].message_model is MessageModel.BROADCASTING:
            return
        notice = NotifyConsumersChanged(group=name)
        for peer in tuple(self.members.by_group.get(name, ())):
            if peer.is_open:
                peer.notify(notice)


def expire(producers: Producers, consumers: Consumers, *, since: float) -> list[Peer]:
    """Take out who was not heard of after `since`; the connections that nobody needs any more."""
    silent = []
    for group, client in producers.members.silent(since):
        producers.members.drop(group, client.peer)
        silent.append(client.peer)
    for group, client in consumers.members.silent(since):
        consumers.unregister(group, client.peer)
        silent.append(client.peer)
    return [
        peer
        for peer in dict.fromkeys(silent)
        if peer not in producers.members and peer not in consumers.members
    ]


# --- answers --------------------------------------------------------------------------------------


def heartbeat(request: Heartbeat, broker: Broker, peer: Peer) -> HeartbeatReply:
    """Note which groups a client is in, and make what they need."""
    client = Client(
        peer=peer,
        client_id=request.client_id,
        language=request.language,
        version=request.version,
        heard=broker.now(),
        heard_ms=broker.clock_ms(),
    )
    resend = False
    for data in request.consumers:
        resend |= _join(data, client, request, broker)
    for producer in request.producers:
        broker.producers.members.put(producer.group, client)
    return HeartbeatReply(
        supports_fingerprints=True,
        subscriptions_changed=resend if request.fingerprint else True,
    )


def _join(data: ConsumerData, client: Client, request: Heartbeat, broker: Broker) -> bool:
    settings = broker.groups.settings(data.group)
    if settings is None:
        return False  # RocketMQ passes such a group over, too; its pulls are refused
    flags = _UNIT_SUBSCRIPTION if data.unit_mode else 0
    broker.topics.make(retry_topic(data.group), queues=settings.retry_queues, flags=flags)
    return broker.consumers.register(
        data,
        client,
        fingerprint=request.fingerprint,
        without_subscriptions=request.fingerprint != 0 and request.without_subscriptions,
        tell=settings.notify_changes,
    )


def unregister_client(request: UnregisterClient, broker: Broker, peer: Peer) -> Done:
    """A client leaves the groups that it names."""
    if request.producer_group:
        broker.producers.members.drop(request.producer_group, peer)
    if request.consumer_group:
        settings = broker.groups.table.get(request.consumer_group)
        tell = settings is None or settings.notify_changes
        broker.consumers.unregister(request.consumer_group, peer, tell=tell)
    return Done()


def check_client_config(request: CheckClientConfig, broker: Broker, _peer: Peer) -> Done:
    """Refuse a subscription that this broker cannot filter by."""
    filters.check(broker, request.subscription)
    return Done()


def get_consumer_list(request: GetConsumerList, broker: Broker, _peer: Peer) -> ConsumerListReply:
    """The ids of a group's members."""
    found = broker.consumers.ids(request.group)
    if not found:
        raise BrokerFailure.because(f"no consumer for this group, {request.group}")
    return ConsumerListReply(client_ids=found)


def get_consumer_connections(
    request: GetConsumerConnections, broker: Broker, _peer: Peer
) -> ConsumerConnections:
    """Who is in a consumer group, and what it wants."""
    group = broker.consumers.groups.get(request.group)
    if group is None:
        raise ConsumerOffline.because(f"the consumer group[{request.group}] not online")
    return ConsumerConnections(
        connections=[client.connection() for client in broker.consumers.clients(request.group)],
        subscriptions=group.subscriptions,
        consume_type=group.consume_type,
        message_model=group.message_model,
        consume_from=group.consume_from,
    )


def get_producer_connections(
    request: GetProducerConnections, broker: Broker, _peer: Peer
) -> ProducerConnections:
    """Who is in a producer group."""
    members = broker.producers.members.by_group.get(request.group)
    if members is None:
        raise BrokerFailure.because(f"the producer group[{request.group}] not exist")
    return ProducerConnections(connections=[client.connection() for client in members.values()])


def get_all_producers(_request: GetAllProducers, broker: Broker, _peer: Peer) -> AllProducers:
    """Who is in which producer group."""
    return AllProducers(
        producers={
            group: [
                ProducerInfo(
                    client_id=client.client_id,
                    address=client.peer.remote,
                    language=Language(client.language),
                    version=client.version,
                    last_update_ms=client.heard_ms,
                )
                for client in members.values()
            ]
            for group, members in broker.producers.members.by_group.items()
        }
    )
