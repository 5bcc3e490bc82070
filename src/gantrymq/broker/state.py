"""A broker's parts, joined: what handlers are given, and the one place where parts meet.

Handlers take the `Broker` and use its parts. A part takes the parts it needs by name, in
`assemble`, and never the broker: what it can reach is what its constructor says.

To add a part: a field of `Broker`, a line in `assemble`; where it has something to do from time to
time, a line in `chores`; where it cares that a client is gone, a line in `left`; where it has
settings, a line in `apply`; where it keeps something about topics, a line in `drop_topic`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantrymq.broker.config import BrokerConfig
from gantrymq.broker.flow_control import FlowControl
from gantrymq.broker.interim import MemoryOffsets, NoDelays, NoLocks, OpenGroups
from gantrymq.broker.keeping import Files, Keeper
from gantrymq.broker.registration import Registrar
from gantrymq.broker.seams import Groups, Locks, Offsets
from gantrymq.broker.sending import Marks
from gantrymq.broker.storing import Storing
from gantrymq.broker.topics import Topics
from gantrymq.broker.waiting import Waiting

if TYPE_CHECKING:
    from gantrymq.net.peer import Peer
    from gantrymq.runtime import Runtime
    from gantrymq.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Chore:
    """Something to do again and again; what it raises is logged, and it goes on."""

    name: str
    interval: float
    do: Callable[[], None]


@dataclass(slots=True, kw_only=True)
class Broker:
    """Everything that a handler may need."""

    config: BrokerConfig
    clock_ms: Callable[[], int]
    """The wall clock, in ms since 1970."""
    now: Callable[[], float]
    """Seconds that never go back; only differences mean anything."""
    random: random.Random
    advertised: tuple[bytes, int] | None
    """The address and port that stored messages name; None for where the producer reached us."""
    store: Store
    keeper: Keeper
    topics: Topics
    groups: Groups
    offsets: Offsets
    locks: Locks
    marks: Marks
    storing: Storing
    waiting: Waiting
    flow: FlowControl
    registrar: Registrar

    def load(self) -> None:
        """Take in what was kept. Parts that others build on come first."""
        self.topics.load()

    def chores(self) -> Iterable[Chore]:
        """What has to be done from time to time."""
        return ()

    def left(self, peer: Peer) -> None:
        """A connection ended."""

    def apply(self, config: BrokerConfig) -> None:
        """Go on with other settings; those of `listen`, `identity` and `store` wait for a start."""
        self.config = config
        self.topics.settings = config.topics
        self.waiting.settings = config.pulls
        self.flow.settings = config.flow
        self.registrar.settings = config.registering
        self.registrar.permit(config.permission)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic, its messages, and everything about it."""
        self.topics.drop(topic)
        self.store.delete_topic(topic)
        self.waiting.wake(topic)

    def drop_unused(self) -> None:
        """Remove the messages of topics that are no more."""
        for topic in {topic for topic, _, _ in self.store.queues()} - self.topics.table.keys():
            self.store.delete_topic(topic)

    async def close(self) -> None:
        """Return when everything that is kept is on disk; the store is closed by who opened it."""
        await self.keeper.close()


def assemble(
    config: BrokerConfig,
    *,
    store: Store,
    files: Files,
    runtime: Runtime,
    next_id: Callable[[], str],
    clock_ms: Callable[[], int],
    now: Callable[[], float],
    random: random.Random,
    advertised: tuple[bytes, int] | None = None,
) -> Broker:
    """A broker of `config` over an open store; `next_id` makes unique ids."""
    identity = config.identity
    keeper = Keeper(files)
    topics = Topics(config.topics, identity=identity, keeper=keeper, clock_ms=clock_ms)
    waiting = Waiting(config.pulls)
    store.arrived = waiting.arrived
    return Broker(
        config=config,
        clock_ms=clock_ms,
        now=now,
        random=random,
        advertised=advertised,
        store=store,
        keeper=keeper,
        topics=topics,
        groups=OpenGroups(),
        offsets=MemoryOffsets(),
        locks=NoLocks(),
        marks=Marks(identity, next_id),
        storing=Storing(store=store, delays=NoDelays()),
        waiting=waiting,
        flow=FlowControl(config.flow, store=store),
        registrar=Registrar(
            config.registering,
            identity=identity,
            permission=config.permission,
            topics=topics,
            runtime=runtime,
        ),
    )
