"""Whether all members of a group want the same.

A group has one set of subscriptions. A broker takes them from whoever sent the last heartbeat, and
gives queues to members without asking which of them wants what: if they differ, messages go to
members that drop them, and nobody is told. So whenever the members of a group change, each of them
is asked, through a broker, what it wants, and a difference is told in the log, line by line.

RocketMQ: "the subscriptions of a group have to be consistent".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from gantrymq.errors import GantryError
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.names import is_retry_topic
from gantrymq.protocol.running import GetRunningInfo

if TYPE_CHECKING:
    from gantrymq.client.engine import Engine

log = logging.getLogger("gantrymq.client")

_ASKED: Final = 16
"""So many other members are asked; who differs is most likely one of a few kinds of programs."""
_TIMEOUT: Final = 10.0


def difference(
    ours: Iterable[Subscription], theirs: Iterable[Subscription], names: tuple[str, str]
) -> list[str]:
    """What two members want differently, a line for each topic; retry topics do not count."""
    mine, other = _wants(ours), _wants(theirs)
    return [
        f"{topic}: {names[0]} wants {mine.get(topic, 'nothing')},"
        f" {names[1]} wants {other.get(topic, 'nothing')}"
        for topic in sorted({*mine, *other})
        if mine.get(topic) != other.get(topic)
    ]


def _wants(subscriptions: Iterable[Subscription]) -> Mapping[str, str]:
    return {
        each.topic: _expression(each) for each in subscriptions if not is_retry_topic(each.topic)
    }


def _expression(subscription: Subscription) -> str:
    if subscription.expression_type != "TAG":
        return f"{subscription.expression_type} {subscription.expression!r}"
    if not subscription.tags:
        return "everything"
    return f"tags {' || '.join(sorted(subscription.tags))}"


class Agreement:
    """Compares what the members of a group want."""

    def __init__(self, engine: Engine, group: str) -> None:
        self._engine = engine
        self._group = group
        self._told: set[tuple[str, ...]] = set()

    async def check(
        self, ours: Iterable[Subscription], members: Iterable[str], address: str
    ) -> list[str]:
        """Ask the others through the broker at `address`; what differs, told if it is new."""
        mine = self._engine.client_id
        lines: list[str] = []
        wanted = list(ours)
        for other in sorted(set(members) - {mine})[:_ASKED]:
            request = GetRunningInfo(group=self._group, client_id=other, stacks=False)
            try:
                info = await self._engine.runtime.call(address, request, timeout=_TIMEOUT)
            except GantryError as error:
                log.debug(
                    "member %s of %s does not say what it wants: %s", other, self._group, error
                )
                continue
            lines += difference(wanted, info.subscriptions, (mine, other))
        if lines and tuple(lines) not in self._told:
            self._told.add(tuple(lines))
            log.warning(
                "members of group %s want different things, so some messages reach nobody; give"
                " them the same subscriptions, or groups of their own:\n  %s",
                self._group,
                "\n  ".join(lines),
            )
        return lines
