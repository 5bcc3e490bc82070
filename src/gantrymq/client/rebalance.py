"""Which queues are this client's, and how they are locked where order matters.

Every member of a group works that out for itself, from the same two lists. So nobody hands queues
out, and for a moment two members can believe that one queue is theirs: until both have heard who is
there. Ordered consumers therefore lock a queue at its broker before they read it.

A lock lasts a minute at the broker, and half a minute here: nobody handles messages of a queue that
another member may have by now. It is renewed every 20 seconds. When a broker says that somebody
else has it, or the half minute is over, the queue is let go.

A broker that was just restarted knows only those who have come back already. If its word were
taken, the first to come back would take everything, and give it back a moment later. So a broker
that we are connected to for a few seconds only is believed when it names members, but not when it
leaves out those who were there before.

RocketMQ: RebalanceImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gantrymq.errors import GantryError
from gantrymq.flows import groups
from gantrymq.flows.routing import MASTER
from gantrymq.model import MessageQueue
from gantrymq.rules.allocation import Strategy

if TYPE_CHECKING:
    from gantrymq.client.engine import Engine

log = logging.getLogger("gantrymq.client")

LOCK_LASTS: Final = 30.0
_YOUNG: Final = 7.0
"""Clients try at least every five seconds to connect again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What is ours of one topic, and who the others are."""

    topic: str
    queues: frozenset[MessageQueue]
    members: tuple[str, ...] = ()
    of: int = 0
    """How many queues the topic has."""
    settled: bool = True
    """False if some of the members may be gone: better look again soon."""


class Unknown(GantryError):
    """It cannot be told now whose queues are whose; whoever has some keeps them."""


def differences(
    owned: Collection[MessageQueue], wanted: Collection[MessageQueue]
) -> tuple[list[MessageQueue], list[MessageQueue]]:
    """What goes and what comes, each in order."""
    held, asked = set(owned), set(wanted)
    return sorted(held - asked), sorted(asked - held)


class Sharing:
    """Works out the shares of one consumer."""

    def __init__(self, engine: Engine, group: str, strategy: Strategy, *, everything: bool) -> None:
        self._engine = engine
        self._group = group
        self.strategy: Final = strategy
        self._everything = everything
        """Broadcasting: each member has all queues."""
        self._last: set[str] = set()
        """Who was in the group when that was last known for sure."""

    def round(self) -> Callable[[str], Awaitable[Share]]:
        """What works out the shares of one rebalance: each broker is asked for the members once."""
        said: dict[str, list[str] | None] = {}

        async def members_at(place: str) -> list[str] | None:
            if place not in said:
                said[place] = await groups.members(self._engine.runtime, [place], self._group)
            return said[place]

        return lambda topic: self._share(topic, members_at)

    async def _share(
        self, topic: str, members_at: Callable[[str], Awaitable[list[str] | None]]
    ) -> Share:
        """Our share of `topic` now; `Unknown` if it cannot be told."""
        try:
            queues = await self._engine.routes.queues_to_subscribe(topic)
        except GantryError as error:
            raise Unknown(str(error)) from error
        if self._everything or not queues:
            return Share(topic=topic, queues=frozenset(queues), of=len(queues))
        members, settled = await self._believed(self._places(queues), members_at)
        mine = self._engine.client_id
        if members is None or mine not in members:
            await self._engine.beat()
            who = f"who is in group {self._group}" if members is None else f"client {mine} yet"
            raise Unknown(f"the brokers of topic {topic} do not know {who}")
        try:
            ours = self.strategy.allocate(mine, queues, members)
        except GantryError as error:
            raise Unknown(f"strategy {self.strategy.name}: {error}") from error
        return Share(
            topic=topic,
            # A list of queues that was given outright is the same for every topic.
            queues=frozenset(queue for queue in ours if queue.topic == topic),
            members=tuple(members),
            of=len(queues),
            settled=settled,
        )

    async def _believed(
        self,
        places: list[str],
        members_at: Callable[[str], Awaitable[list[str] | None]],
    ) -> tuple[list[str] | None, bool]:
        """Who is in the group, and whether that may be more than there are by now."""
        now = self._engine.runtime.now()
        young = {place for place in places if now - self._engine.connected_since(place) < _YOUNG}
        for place in sorted(places, key=young.__contains__):
            said = await members_at(place)
            if said is None:
                continue
            if place not in young:
                self._last = set(said)
                return said, True
            everybody = self._last.union(said)
            return sorted(everybody), everybody == set(said)
        return None, False

    def _places(self, queues: Iterable[MessageQueue]) -> list[str]:
        """The brokers to ask, in any order; the master of each, or a replica."""
        brokers = sorted({queue.broker for queue in queues})
        self._engine.chance.shuffle(brokers)
        found = (self._engine.routes.address(broker) for broker in brokers)
        return [address for address in found if address is not None]


class Locks:
    """Locks of queues at their brokers, for one client of a group."""

    def __init__(self, engine: Engine, group: str) -> None:
        self._engine = engine
        self._group = group

    async def take(
        self, queues: Iterable[MessageQueue]
    ) -> tuple[set[MessageQueue], set[MessageQueue]]:
        """Lock `queues`, or make their locks last longer: those we have, those others have.

        What is in neither is at a broker that did not answer.
        """
        ours: set[MessageQueue] = set()
        others: set[MessageQueue] = set()

        async def ask(address: str, some: list[MessageQueue]) -> None:
            try:
                locked = await groups.lock(
                    self._engine.runtime, address, self._group, self._engine.client_id, some
                )
            except GantryError as error:
                log.info("queues of %s are not locked at %s: %s", self._group, address, error)
            else:
                ours.update(locked.intersection(some))
                others.update(set(some) - locked)

        await self._at_each(queues, ask)
        return ours, others

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Let others have them; what is not told ends by itself."""

        async def tell(address: str, some: list[MessageQueue]) -> None:
            try:
                await groups.unlock(
                    self._engine.runtime, address, self._group, self._engine.client_id, some
                )
            except GantryError as error:
                log.info("queues of %s are not unlocked at %s: %s", self._group, address, error)

        await self._at_each(queues, tell)

    async def _at_each(
        self,
        queues: Iterable[MessageQueue],
        do: Callable[[str, list[MessageQueue]], Awaitable[None]],
    ) -> None:
        await asyncio.gather(
            *(do(address, some) for address, some in self._by_address(queues).items())
        )

    def _by_address(self, queues: Iterable[MessageQueue]) -> Mapping[str, list[MessageQueue]]:
        found: dict[str, list[MessageQueue]] = {}
        for queue in sorted(queues):
            address = self._engine.routes.address(queue.broker, MASTER)
            if address is not None:
                found.setdefault(address, []).append(queue)
        return found
