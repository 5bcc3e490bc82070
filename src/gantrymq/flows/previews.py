"""What a deletion would take with it: who would notice, and what would be gone.

RocketMQ has no such thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gantrymq.errors import GantryError, TopicNotFound
from gantrymq.flows import group_settings, progress, topics
from gantrymq.flows.members import group_members
from gantrymq.flows.reaching import Reach, gather
from gantrymq.flows.topic_changes import owners
from gantrymq.protocol import names
from gantrymq.protocol.routing import GetAllTopics
from gantrymq.protocol.statistics import GetGroupsOfTopic


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAtStake:
    """A group that consumes what is to be deleted; None is "not known"."""

    group: str
    members: int | None
    messages: int | None
    """How many messages wait for it there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletion:
    """What goes with a topic."""

    topic: str
    brokers: list[str]
    messages: int | None
    """How many are stored; None where a broker did not say."""
    last_ms: int | None
    """When the newest was stored."""
    put_tps: float | None
    groups: list[GroupAtStake]
    failures: Mapping[str, GantryError] = field(default_factory=dict)

    @property
    def is_in_use(self) -> bool:
        """Whether somebody is connected that consumes it, or messages come in."""
        return bool(self.put_tps) or any(one.members for one in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDeletion:
    """What goes with a group."""

    group: str
    brokers: list[str]
    members: list[str]
    """The ids of the members that are connected."""
    lag: progress.GroupLag
    retries: int | None
    """Messages that wait to be given to the group again."""
    dead_letters: int | None
    """Messages that the group gave up on, which its dead-letter topic still has."""

    @property
    def is_in_use(self) -> bool:
        """Whether somebody is connected."""
        return bool(self.members)


async def preview_topic_deletion(
    reach: Reach, topic: str, *, cluster: str | None = None
) -> TopicDeletion:
    """What deleting a topic would take with it."""
    at = await owners(reach, topic, cluster=cluster)
    status = await topics.status_at(reach, topic, at)
    said = await gather(at, lambda name: reach.ask(at[name], GetGroupsOfTopic(topic=topic)))
    groups = sorted({group for reply in said.answers.values() for group in reply.groups})
    return TopicDeletion(
        topic=topic,
        brokers=list(at),
        messages=status.messages,
        last_ms=status.last_ms,
        put_tps=status.put_tps,
        groups=[await _at_stake(reach, group, topic) for group in groups],
        failures=status.failures,
    )


async def _at_stake(reach: Reach, group: str, topic: str) -> GroupAtStake:
    try:
        lag = await progress.group_lag(reach, group, topic=topic)
        there = await group_members(reach, group)
    except GantryError:
        return GroupAtStake(group=group, members=None, messages=None)
    return GroupAtStake(group=group, members=len(there.members), messages=lag.messages)


async def preview_group_deletion(reach: Reach, group: str) -> GroupDeletion:
    """What deleting a group would take with it."""
    held = await group_settings.group_settings(reach, group)
    there = await group_members(reach, group)
    return GroupDeletion(
        group=group,
        brokers=list(held),
        members=[member.client_id for member in there.members],
        lag=await progress.group_lag(reach, group),
        retries=await waiting_in(reach, names.retry_topic(group), group),
        dead_letters=await stored_in(reach, names.dead_letter_topic(group)),
    )


async def stored_in(reach: Reach, topic: str) -> int | None:
    """How many messages a topic has that need not exist; None where a broker did not say."""
    if topic not in (await reach.ask_name_server(GetAllTopics())).topics:
        return 0
    try:
        return (await topics.topic_status(reach, topic)).messages
    except TopicNotFound:
        return 0


async def waiting_in(reach: Reach, topic: str, group: str) -> int | None:
    """How many messages wait for a group in a topic that need not exist."""
    if topic not in (await reach.ask_name_server(GetAllTopics())).topics:
        return 0
    lag = await progress.group_lag(reach, group, topic=topic)
    return lag.messages if lag.queues else 0
