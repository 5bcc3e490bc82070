"""Consumer groups: made, changed, dropped and listed, at all their brokers.

Brokers keep each group's settings for themselves; a group of a cluster is there when each of them
has it. Most groups are made by brokers at the first heartbeat of a consumer.

RocketMQ: UpdateSubGroupSubCommand, DeleteSubscriptionGroupCommand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, TypedDict, Unpack

from gantrymq.errors import AlreadyExists, GroupNotFound, InvalidInput
from gantrymq.flows import clusters, topic_changes
from gantrymq.flows.configs import Change
from gantrymq.flows.reaching import Gathered, Reach, gather
from gantrymq.protocol import names
from gantrymq.protocol.group_settings import (
    DeleteGroup,
    GetGroups,
    GroupSettings,
    PutGroup,
    RetryPolicy,
    SimpleSubscription,
)
from gantrymq.protocol.routing import GetAllTopics
from gantrymq.protocol.validation import check_group


class GroupFields(TypedDict, total=False):
    """What can be set about a group: the fields of `GroupSettings` that are no attributes."""

    enabled: bool
    from_min_enabled: bool
    broadcast_enabled: bool
    orderly: bool
    retry_queues: int
    max_retries: int
    retry_policy: RetryPolicy
    broker_id: int
    broker_id_when_slow: int
    notify_changes: bool
    flags: int
    consume_timeout_minutes: int
    subscriptions: list[SimpleSubscription] | None


CHANGEABLE: Final = tuple(GroupFields.__annotations__)


async def list_groups(
    reach: Reach, *, cluster: str | None = None, hidden: bool = False
) -> Gathered[dict[str, GroupSettings]]:
    """The groups of each broker with their settings; with `hidden` also RocketMQ's own."""
    at = {
        place.name: place.address
        for place in await clusters.list_brokers(reach, cluster=cluster)
        if place.is_master
    }

    async def one(name: str) -> dict[str, GroupSettings]:
        groups = (await reach.ask(at[name], GetGroups())).groups
        return {
            group: settings
            for group, settings in sorted(groups.items())
            if hidden or not is_predefined(group)
        }

    return await gather(at, one)


def is_predefined(group: str) -> bool:
    """Whether RocketMQ itself has a use for this group."""
    return group in names.PREDEFINED_GROUPS or names.is_system_group(group)


async def group_settings(reach: Reach, group: str) -> dict[str, GroupSettings]:
    """What each broker keeps about a group, by broker; `GroupNotFound` if none knows it."""
    at = await clusters.every_master(reach)
    held = await _held(reach, group, at)
    if not held.answers:
        held.whole(f"look at group {group}")
        raise unknown(group, at)
    return held.answers


def unknown(group: str, brokers: Collection[str]) -> GroupNotFound:
    """The error for a group that no broker knows."""
    return GroupNotFound.because(
        f"no broker of {', '.join(brokers) or 'this cluster'} knows group {group}: a group comes "
        f"to be when its first consumer starts, or by gantry group create {group}"
    )


async def _held(reach: Reach, group: str, at: Mapping[str, str]) -> Gathered[GroupSettings]:
    found = await gather(at, lambda name: settings_at(reach, at[name], group))
    have = {name: settings for name, settings in found.answers.items() if settings is not None}
    return Gathered(have, found.failures)


async def settings_at(reach: Reach, address: str, group: str) -> GroupSettings | None:
    """What a broker keeps about a group, None if it does not know it.

    The answer is looked up in the list of all: to be asked for one, some releases make it.
    """
    return (await reach.ask(address, GetGroups())).groups.get(group)


async def create_group(
    reach: Reach,
    group: str,
    *,
    cluster: str | None = None,
    brokers: Collection[str] | None = None,
    attributes: Mapping[str, str] | None = None,
    **settings: Unpack[GroupFields],
) -> dict[str, GroupSettings]:
    """Make a group at every broker of the cluster, or at those named; its settings by broker.

    `settings` are fields of `GroupSettings`: `max_retries=3`, `orderly=True`.
    """
    check_group(group)
    _check_fields(settings)
    at = await clusters.masters(reach, cluster=cluster, brokers=brokers)
    held = (await _held(reach, group, at)).whole(f"look whether {group} exists")
    if held:
        raise AlreadyExists(
            f"group {group} exists at {', '.join(held)}. To change it: gantry group alter {group}"
        )
    signed = {f"+{key}": value for key, value in (attributes or {}).items()}
    asked = GroupSettings(group=group, attributes=signed, **settings)
    done = await gather(at, lambda name: reach.ask(at[name], PutGroup(settings=asked)))
    done.whole(f"create group {group}")
    return (await _held(reach, group, at)).whole(f"look at {group}")


async def alter_group(
    reach: Reach,
    group: str,
    *,
    brokers: Collection[str] | None = None,
    attributes: Mapping[str, str | None] | None = None,
    dry_run: bool = False,
    **settings: Unpack[GroupFields],
) -> list[Change]:
    """Change what is given, at every broker that knows the group or at those named; what changed.

    An attribute of None is dropped.
    """
    _check_fields(settings)
    at = await clusters.every_master(reach)
    held = await group_settings(reach, group)
    if brokers is not None:
        missing = [name for name in brokers if name not in held]
        if missing:
            raise InvalidInput(f"{', '.join(missing)} does not know group {group}; {_list(held)}")
        held = {name: held[name] for name in brokers}
    changes = [
        Change(name, what, str(getattr(found, what)), str(value))
        for name, found in held.items()
        for what, value in settings.items()
        if getattr(found, what) != value
    ]
    signed = {}
    for key, value in (attributes or {}).items():
        signed[f"-{key}" if value is None else f"+{key}"] = value or ""
        changes += [
            Change(name, key, found.attributes.get(key), value)
            for name, found in held.items()
            if found.attributes.get(key) != value
        ]
    changed = {change.place for change in changes}
    if changed and not dry_run:

        def request(name: str) -> PutGroup:
            after = replace(held[name], group=group, attributes=signed, **settings)
            return PutGroup(settings=after)

        done = await gather(changed, lambda name: reach.ask(at[name], request(name)))
        done.whole(f"change group {group}")
    return changes


def _check_fields(settings: Mapping[str, Any]) -> None:
    for name in settings:
        if name not in CHANGEABLE:
            raise InvalidInput(f"a group has no setting {name!r}; it has: {', '.join(CHANGEABLE)}")


def _list(held: Mapping[str, GroupSettings]) -> str:
    return f"{', '.join(held)} {'does' if len(held) == 1 else 'do'}"


async def delete_group(
    reach: Reach, group: str, *, keep_offsets: bool = False, keep_dead_letters: bool = False
) -> list[str]:
    """Drop a group, its offsets, its retry topic and its dead letters; the brokers that knew it.

    See `preview_group_deletion` for who would notice.
    """
    at = await clusters.every_master(reach)
    held = await group_settings(reach, group)
    done = await gather(
        held,
        lambda name: reach.ask(at[name], DeleteGroup(group=group, clean_offsets=not keep_offsets)),
    )
    done.whole(f"delete group {group}")
    await _drop_topic(reach, names.retry_topic(group))
    if not keep_dead_letters:
        await _drop_topic(reach, names.dead_letter_topic(group))
    return list(held)


async def _drop_topic(reach: Reach, topic: str) -> None:
    if topic in (await reach.ask_name_server(GetAllTopics())).topics:
        await topic_changes.delete_topic(reach, topic)
