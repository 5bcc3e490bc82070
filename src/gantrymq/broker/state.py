"""A broker's parts, joined: what handlers are given, and the one place where parts meet.

Handlers take the `Broker` and use its parts. A part takes the parts it needs by name, in
`assemble`, and never the broker: what it can reach is what its constructor says.

To add a part: a field of `Broker`, a line in `assemble`; where it has something to do from time to
time, a line in `chores`; where it cares that a client is gone, a line in `left`; where it has
settings, a line in `apply`; where it keeps something about topics, a line in `drop_topic`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gantrymq.broker.config import BrokerConfig
from gantrymq.broker.keeping import Files, Keeper
from gantrymq.broker.topics import Topics

if TYPE_CHECKING:
    from gantrymq.net.peer import Peer
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
    store: Store
    keeper: Keeper
    topics: Topics

    def load(self) -> None:
        """Take in what was kept. Parts that others build on come first."""
        self.topics.load()

    def chores(self) -> Iterable[Chore]:
        """What has to be done from time to time."""
        return ()

    def left(self, peer: Peer) -> None:
        """A connection ended."""

    def apply(self, config: BrokerConfig) -> None:
        """Go on with other settings."""
        self.config = config
        self.topics.settings = config.topics

    def drop_topic(self, topic: str) -> None:
        """Forget a topic, its messages, and everything about it."""
        self.topics.drop(topic)
        self.store.drop_topics([topic])

    def drop_unused(self) -> None:
        """Remove the messages of topics that are no more."""
        known = self.topics.table
        self.store.drop_topics([topic for topic in self.store.topics() if topic not in known])

    async def close(self) -> None:
        """Return when everything that is kept is on disk; the store is closed by who opened it."""
        await self.keeper.close()


def assemble(
    config: BrokerConfig, *, store: Store, files: Files, clock_ms: Callable[[], int]
) -> Broker:
    """A broker of `config` over an open store."""
    keeper = Keeper(files)
    topics = Topics(config.topics, identity=config.identity, keeper=keeper, clock_ms=clock_ms)
    return Broker(config=config, clock_ms=clock_ms, store=store, keeper=keeper, topics=topics)
