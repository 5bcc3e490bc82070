"""Who is connected: members of consumer groups, producers, and what a client is doing.

A consumer sends its heartbeat to every broker of its topics, so brokers see the same members, more
or less; what they say is put together by client id. What a member wants is known to brokers only
for the group as a whole: members that want different things overwrite each other there. So that is
found out by asking the members themselves.

RocketMQ: ConsumerConnectionSubCommand, ConsumerStatusSubCommand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gantrymq.errors import (
    BrokerFailure,
    ConsumerOffline,
    GantryError,
    InvalidInput,
    NotFound,
    NotSupported,
)
from gantrymq.flows import clusters
from gantrymq.flows.reaching import Gathered, Reach, gather
from gantrymq.protocol.enums import ConsumeFromWhere, ConsumeType, MessageModel
from gantrymq.protocol.groups import (
    ClientConnection,
    ConsumerConnections,
    GetAllProducers,
    GetConsumerConnections,
    GetProducerConnections,
    Subscription,
)
from gantrymq.protocol.running import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    GetRunningInfo,
    RunningInfo,
)
from gantrymq.wire import versions

RELAY_TIMEOUT: Final = 15.0
"""Brokers give a client ten seconds to answer what they pass on."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A client that is connected, and the brokers that it is connected to."""

    client_id: str
    address: str | None
    language: str | None
    version: str
    brokers: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """The producer groups it is in; where members of one group were asked for, that one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMembers:
    """Who is in a group now, and what it wants, as brokers know it."""

    group: str
    members: list[Member] = field(default_factory=list)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from: ConsumeFromWhere | None = None
    failures: Mapping[str, GantryError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A topic that members of one group want differently: what each wants, None for nothing."""

    topic: str
    wanted: dict[str, str | None]
    """By client id, as `tags a || b`, `SQL92 x > 1`."""

    def __str__(self) -> str:
        each = "; ".join(
            f"{client}: {'not subscribed' if wants is None else wants}"
            for client, wants in self.wanted.items()
        )
        return f"members of the group want {self.topic} differently: {each}"


# --- consumers ------------------------------------------------------------------------------------


async def group_members(reach: Reach, group: str) -> GroupMembers:
    """The members of a group that are connected now; none is an answer, too."""
    at = await clusters.every_master(reach)
    said = await _connections(reach, group, at)
    answers = {name: found for name, found in said.answers.items() if found is not None}
    said.some(f"ask for the members of {group}")
    members: dict[str, Member] = {}
    for broker, found in answers.items():
        _collect(members, found.connections, broker, group)
    first = next(iter(answers.values()), ConsumerConnections())
    return GroupMembers(
        group=group,
        members=[members[key] for key in sorted(members)],
        subscriptions={k: v for found in answers.values() for k, v in found.subscriptions.items()},
        consume_type=first.consume_type,
        message_model=first.message_model,
        consume_from=first.consume_from,
        failures=said.failures,
    )


async def _connections(
    reach: Reach, group: str, at: Mapping[str, str]
) -> Gathered[ConsumerConnections | None]:
    async def one(name: str) -> ConsumerConnections | None:
        try:
            return await reach.ask(at[name], GetConsumerConnections(group=group))
        except ConsumerOffline:
            return None

    return await gather(at, one)


def _collect(
    members: dict[str, Member], found: Iterable[ClientConnection], broker: str, group: str
) -> None:
    for one in found:
        key = one.client_id or one.address or "?"
        member = members.get(key)
        if member is None:
            language = None if one.language is None else one.language.name
            member = members[key] = Member(
                client_id=key,
                address=one.address,
                language=language,
                version=versions.describe(one.version),
                groups=[group],
            )
        if broker not in member.brokers:
            member.brokers.append(broker)
        if group not in member.groups:
            member.groups.append(group)


async def running_info(
    reach: Reach, group: str, client_id: str, *, stacks: bool = False
) -> RunningInfo:
    """What a member is doing, by its own word: its settings, queues, rates, and stacks if asked."""
    question = GetRunningInfo(group=group, client_id=client_id, stacks=stacks)
    address = await _broker_with(reach, group, client_id)
    try:
        return await reach.ask(address, question, timeout=RELAY_TIMEOUT)
    except BrokerFailure as refused:
        raise _deaf(client_id, refused) from refused


async def consume_directly(
    reach: Reach, group: str, client_id: str, message_id: str, *, topic: str | None = None
) -> ConsumeDirectlyReply:
    """Have one member consume one stored message now, whatever the group's offsets say.

    `message_id` is the offset id, by which the broker finds the message.
    """
    address = await _broker_with(reach, group, client_id)
    question = ConsumeDirectly(group=group, client_id=client_id, message_id=message_id, topic=topic)
    try:
        return await reach.ask(address, question, timeout=RELAY_TIMEOUT)
    except BrokerFailure as refused:
        raise _deaf(client_id, refused) from refused


def _deaf(client_id: str, refused: BrokerFailure) -> NotFound:
    error = NotFound.because(
        f"the broker could not ask {client_id}: {refused.remark}. Clients behind a proxy cannot be "
        f"asked, nor those that have just left"
    )
    error.peer = refused.peer
    return error


async def _broker_with(reach: Reach, group: str, client_id: str) -> str:
    at = await clusters.every_master(reach)
    said = await _connections(reach, group, at)
    known: set[str] = set()
    for broker, found in said.answers.items():
        ids = {one.client_id or "" for one in found.connections} if found else set()
        if client_id in ids:
            return at[broker]
        known |= ids
    said.some(f"look for {client_id}")
    there = ", ".join(sorted(known)) or "nobody"
    raise NotFound.because(f"no member of group {group} is called {client_id!r}; there is: {there}")


async def diverging(reach: Reach, group: str) -> tuple[list[Divergence], dict[str, GantryError]]:
    """The topics that members of a group want differently, and the members that did not say.

    Such a group loses messages: every member is given queues of topics and tags it does not want.
    """
    members = (await group_members(reach, group)).members
    said = await gather(
        [member.client_id for member in members],
        lambda client: running_info(reach, group, client),
    )
    wanted = {
        client: {one.topic: wants(one) for one in info.subscriptions}
        for client, info in said.answers.items()
    }
    return differing(wanted), said.failures


def wants(subscription: Subscription) -> str:
    """What a subscription wants, in one line that is the same for the same wish."""
    if subscription.expression_type not in (None, "", "TAG"):
        return f"{subscription.expression_type} {subscription.expression}"
    tags = sorted(tag.strip() for tag in subscription.expression.split("||") if tag.strip())
    return f"tags {' || '.join(tags) or '*'}"


def differing(wanted: Mapping[str, Mapping[str, str]]) -> list[Divergence]:
    """What differs between members; `wanted` is by client id and topic."""
    topics = sorted({topic for by_topic in wanted.values() for topic in by_topic})
    found = (
        Divergence(topic=topic, wanted={client: wanted[client].get(topic) for client in wanted})
        for topic in topics
    )
    return [one for one in found if len(set(one.wanted.values())) > 1]


# --- producers ------------------------------------------------------------------------------------


async def producers(reach: Reach, *, group: str | None = None) -> list[Member]:
    """The producers that are connected, of one group or of all."""
    at = await clusters.every_master(reach)
    members: dict[str, Member] = {}
    said = await gather(at, lambda name: _producers_at(reach, at[name], group))
    for broker, by_group in said.some("ask for producers").items():
        for name, found in by_group.items():
            _collect(members, found, broker, name)
    return [members[key] for key in sorted(members)]


async def _producers_at(
    reach: Reach, address: str, group: str | None
) -> dict[str, list[ClientConnection]]:
    if group is not None:
        try:
            said = await reach.ask(address, GetProducerConnections(group=group))
        except BrokerFailure:
            return {}  # that is what brokers say where nobody is connected
        return {group: said.connections}
    try:
        table = (await reach.ask(address, GetAllProducers())).producers
    except NotSupported as old:
        raise InvalidInput(
            f"broker {address} is too old to list all its producers: name their group"
        ) from old
    return {
        name: [
            ClientConnection(
                client_id=one.client_id,
                address=one.address,
                language=one.language,
                version=one.version,
            )
            for one in found
        ]
        for name, found in table.items()
    }
