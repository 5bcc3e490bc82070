"""The settings of consumer groups: the table, how groups come to be, and who may change them.

A group that nobody made is made when it is first heard of, if that is allowed. RocketMQ's own
groups are there from the start.

**Forbidden topics.** An administrator can forbid a group to read a topic. The table has a number
for each, whose third bit stands for reading; other bits are kept as they are found.

Settings of a group are never changed in place: whoever holds some can go on reading them.

RocketMQ: SubscriptionGroupManager, AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gantrymq.broker.attributes import Attribute, changed_attributes
from gantrymq.broker.clients import ConsumerGroup, Consumers
from gantrymq.broker.config import GroupsConfig
from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.errors import GroupNotFound, InvalidInput, InvalidParameter
from gantrymq.protocol import names
from gantrymq.protocol.base import Done, Int, declared, named
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.group_settings import (
    DeleteGroup,
    ForbidGroup,
    GetGroup,
    GetGroups,
    GroupForbidden,
    GroupReply,
    GroupSettings,
    GroupTable,
    PutGroup,
    PutGroups,
)
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.validation import check_group

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

FILE: Final = "subscriptionGroup.json"
SYSTEM_GROUPS: Final = (
    names.TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    names.TRANSACTION_GROUP,
)
"""Groups that every broker has. RocketMQ: SubscriptionGroupManager.init."""

_NO_READING: Final = 4
"""The bit of a forbidden topic. RocketMQ: PermName.INDEX_PERM_READ."""
_MOST_QUEUES: Final = 1024
"""Queues of a retry topic; each is a directory."""


def _anything(_value: str) -> str | None:
    return None


def _truth(value: str) -> str | None:
    return None if value in ("true", "false") else "it takes true or false"


def _number(most: int) -> Callable[[str], str | None]:
    def complaint(value: str) -> str | None:
        fits = value.isascii() and value.isdecimal() and int(value) <= most
        return None if fits else f"it takes 0 to {most}"

    return complaint


_INT_MAX: Final = 2**31 - 1
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {
    name: Attribute(complaint, changeable=True)
    for name, complaint in {
        "priority.factor": _number(100),
        "lite.bind.topic": _anything,
        "lite.sub.model": lambda value: (
            None if value in ("Shared", "Exclusive") else "it takes Shared or Exclusive"
        ),
        "lite.sub.reset.offset.exclusive": _truth,
        "lite.sub.reset.offset.unsubscribe": _truth,
        "lite.sub.client.quota": _number(_INT_MAX),
        "lite.sub.client.max.event.cnt": _number(_INT_MAX),
        "lite.sub.wildcard": _anything,
    }.items()
}
"""The attributes of a group. RocketMQ: SubscriptionGroupAttributes."""


@declared
class KeptGroups:
    """What is in the file. RocketMQ: SubscriptionGroupManager, as it is written."""

    version: DataVersion = named("dataVersion", default_factory=DataVersion)
    forbidden: dict[str, dict[str, Int]] = named("forbiddenTable", default_factory=dict)
    groups: dict[str, GroupSettings] = named("subscriptionGroupTable", default_factory=dict)


class Groups:
    """Every consumer group of the broker."""

    __slots__ = ("_clock_ms", "_consumers", "_keeper", "config", "forbidden", "table", "version")

    def __init__(
        self,
        config: GroupsConfig,
        *,
        consumers: Consumers,
        keeper: Keeper,
        clock_ms: Callable[[], int],
    ) -> None:
        self.config = config
        self.table: dict[str, GroupSettings] = {}
        """By name; to look at. Changes go through the methods."""
        self.forbidden: dict[str, dict[str, int]] = {}
        """Group, topic, bits."""
        self.version = DataVersion(timestamp_ms=clock_ms())
        self._consumers = consumers
        self._keeper = keeper
        self._clock_ms = clock_ms

    def load(self) -> None:
        """Take in what was kept, and see to it that RocketMQ's own groups are there."""
        tree = self._keeper.load(FILE)
        if tree is not None:
            kept: KeptGroups = shape(KeptGroups).read(tree)
            self.version = kept.version
            self.table.update(kept.groups)
            self.forbidden.update(kept.forbidden)
        for group in SYSTEM_GROUPS:
            self.table.setdefault(group, GroupSettings(group=group))

    # --- what sending and pulling ask -----------------------------------------------------------

    def settings(self, group: str) -> GroupSettings | None:
        """The settings of a group, made now if it has none and may be made; else None."""
        found = self.table.get(group)
        if found is not None:
            return found
        if not self.config.auto_create and not names.is_system_group(group):
            return None
        try:
            check_group(group)
        except InvalidInput:
            return None
        made = self.table[group] = GroupSettings(group=group)
        self._changed()
        return made

    def consumers(self, group: str) -> ConsumerGroup | None:
        """A group's subscriptions and how it consumes; None if nobody is there."""
        return self._consumers.groups.get(group)

    def may_read(self, group: str, topic: str) -> bool:
        """Whether nobody forbade that group to read that topic."""
        if not self.forbidden:
            return True
        return not self.forbidden.get(group, {}).get(topic, 0) & _NO_READING

    # --- changes --------------------------------------------------------------------------------

    def put(self, changes: Iterable[GroupSettings]) -> None:
        """Make or change groups; the keys of their attributes carry a sign. All or none."""
        after = {str(asked.group): self._after(asked) for asked in changes}
        self.table.update(after)
        self._changed()

    def drop(self, group: str) -> bool:
        """Forget a group; whether there was one."""
        was_forbidden = self.forbidden.pop(group, None) is not None
        was_there = self.table.pop(group, None) is not None
        if was_there or was_forbidden:
            self._changed()
        return was_there

    def forbid(self, group: str, topic: str, *, readable: bool) -> None:
        """Forbid a group to read a topic, or allow it again."""
        topics = dict(self.forbidden.get(group, {}))
        before = topics.get(topic, 0)
        after = before & ~_NO_READING if readable else before | _NO_READING
        if after == before:
            return
        topics[topic] = after
        if not after:
            del topics[topic]
        self.forbidden[group] = topics
        if not topics:
            del self.forbidden[group]
        self._changed()

    async def kept(self) -> None:
        """Return when every change so far is on disk."""
        await self._keeper.kept(FILE)

    # --- inside ---------------------------------------------------------------------------------

    def _after(self, asked: GroupSettings) -> GroupSettings:
        found = self.table.get(str(asked.group))
        current = None if found is None else found.attributes
        attributes = changed_attributes(GROUP_ATTRIBUTES, current, asked.attributes)
        return replace(asked, attributes=attributes)

    def _changed(self) -> None:
        version = self.version
        self.version = DataVersion(
            state=version.state, timestamp_ms=self._clock_ms(), counter=version.counter + 1
        )
        self._keeper.keep(FILE, self._tree)

    def _tree(self) -> Tree:
        kept = KeptGroups(version=self.version, forbidden=self.forbidden, groups=self.table)
        return shape(KeptGroups).write(kept)


# --- answers --------------------------------------------------------------------------------------


async def put_group(request: PutGroup, broker: Broker, _peer: Peer) -> Done:
    """Make a group or change it; it lasts when this is answered."""
    return await _put_all(broker, [request.settings])


async def put_groups(request: PutGroups, broker: Broker, _peer: Peer) -> Done:
    """The same for several, all or none."""
    return await _put_all(broker, request.groups)


async def _put_all(broker: Broker, asked: list[GroupSettings]) -> Done:
    for one in asked:
        try:
            check_group(one.group or "")
        except InvalidInput as error:
            raise InvalidParameter.because(str(error)) from error
        if not 0 <= one.retry_queues <= _MOST_QUEUES:
            raise InvalidParameter.because(
                f"retryQueueNums {one.retry_queues} of {one.group} is not within 0 to"
                f" {_MOST_QUEUES}"
            )
    broker.groups.put(asked)
    await broker.groups.kept()
    return Done()


def get_groups(request: GetGroups, broker: Broker, _peer: Peer) -> GroupTable:
    """All groups; from the asked one on for who has read those before it from the same table.

    RocketMQ's client asks until it has all but one, and so would miss a single one that is left.
    """
    groups = broker.groups
    start = request.start or 0
    if request.version is not None and request.version != groups.version:
        start = 0
    order = sorted(groups.table)[max(0, start) :]
    if request.most is not None and len(order) > max(1, request.most) + 1:
        order = order[: max(1, request.most)]
    return GroupTable(
        total=len(groups.table),
        version=groups.version,
        groups={name: groups.table[name] for name in order},
        forbidden=groups.forbidden,
    )


def get_group(request: GetGroup, broker: Broker, _peer: Peer) -> GroupReply:
    """The settings of one group, which RocketMQ makes when it is asked for them, too."""
    found = broker.groups.settings(request.group)
    if found is None:
        raise GroupNotFound.because(f"No group in this broker. group: {request.group}")
    return GroupReply(settings=found)


async def delete_group(request: DeleteGroup, broker: Broker, _peer: Peer) -> Done:
    """Forget a group, and its offsets if asked."""
    broker.drop_group(request.group, offsets=request.clean_offsets)
    await broker.groups.kept()
    return Done()


async def forbid_group(request: ForbidGroup, broker: Broker, _peer: Peer) -> GroupForbidden:
    """Forbid a group to read a topic, allow it, or say which it is."""
    if request.readable is not None:
        broker.groups.forbid(request.group, request.topic, readable=request.readable)
        await broker.groups.kept()
    return GroupForbidden(
        group=request.group,
        topic=request.topic,
        readable=broker.groups.may_read(request.group, request.topic),
    )
