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

from gantrymq.broker.assignments import RequestModes, Routes
from gantrymq.broker.clients import LEARNT_FOR, SCAN_INTERVAL, Consumers, Producers, expire
from gantrymq.broker.compacting import COMPACTION_TICK, Compacting
from gantrymq.broker.config import BrokerConfig
from gantrymq.broker.configs import Changes
from gantrymq.broker.counting import COUNT_INTERVAL, Counts
from gantrymq.broker.delays import Delays
from gantrymq.broker.flow_control import FlowControl
from gantrymq.broker.groups import Groups
from gantrymq.broker.keeping import Keeper
from gantrymq.broker.limits import TopicLimits
from gantrymq.broker.locks import FORGET_INTERVAL, Locks
from gantrymq.broker.offsets import Offsets
from gantrymq.broker.popping_records import KEEP_INTERVAL as POPS_INTERVAL
from gantrymq.broker.popping_records import TICK as POPS_TICK
from gantrymq.broker.popping_records import Pops
from gantrymq.broker.registration import Registrar
from gantrymq.broker.sending import Marks
from gantrymq.broker.storing import Storing
from gantrymq.broker.timers import SAVE_INTERVAL, Timers
from gantrymq.broker.topics import Topics
from gantrymq.broker.transaction_checks import Checks
from gantrymq.broker.transaction_notes import Notes
from gantrymq.broker.transactions import KEEP_INTERVAL, TICK, Transactions
from gantrymq.broker.waiting import Waiting
from gantrymq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, is_light_queue
from gantrymq.rules.delay import DelayLevels

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
    limits: TopicLimits
    producers: Producers
    consumers: Consumers
    groups: Groups
    offsets: Offsets
    locks: Locks
    delays: Delays
    timers: Timers
    modes: RequestModes
    routes: Routes
    counts: Counts
    changes: Changes
    boot: float
    """When it started, by `now`."""
    boot_ms: int
    """The same by the wall clock."""
    marks: Marks
    storing: Storing
    transactions: Transactions
    pops: Pops
    compacting: Compacting
    waiting: Waiting
    flow: FlowControl
    registrar: Registrar

    def load(self) -> None:
        """Take in what was kept. Parts that others build on come first."""
        self.topics.load()
        self.limits.load()
        self.compacting.load()
        self.groups.load()
        self.offsets.load()
        self.delays.load()
        self.timers.load()
        self.transactions.load()
        self.pops.load()
        self.modes.load()
        self.changes.load()

    def start(self) -> None:
        """Begin what goes on by itself, on the running loop."""
        self.delays.start()
        self.timers.start()
        self.transactions.start()

    def chores(self) -> Iterable[Chore]:
        """What has to be done from time to time."""
        config = self.config
        yield Chore(name="clients", interval=SCAN_INTERVAL, do=self.expire_clients)
        yield Chore(name="offsets", interval=config.groups.keep_interval, do=self.offsets.keep)
        yield Chore(name="delays", interval=config.delays.keep_interval, do=self.delays.keep)
        yield Chore(name="timers", interval=SAVE_INTERVAL, do=self.timers.keep)
        yield Chore(name="transactions", interval=TICK, do=self.transactions.tick)
        yield Chore(name="ends", interval=KEEP_INTERVAL, do=self.transactions.keep)
        yield Chore(name="pops", interval=POPS_TICK, do=self.pops.tick)
        yield Chore(name="kept pops", interval=POPS_INTERVAL, do=self.pops.keep)
        yield Chore(name="compaction", interval=COMPACTION_TICK, do=self.compacting.tick)
        yield Chore(name="locks", interval=FORGET_INTERVAL, do=self.locks.forget)
        yield Chore(name="counts", interval=COUNT_INTERVAL, do=self.counts.tick)

    def expire_clients(self) -> None:
        """Take out the clients that fell silent, and end connections that nobody uses."""
        now = self.now()
        since = now - self.config.groups.silence
        for peer in expire(self.producers, self.consumers, since=since):
            peer.close()
        self.consumers.forget_learnt(now - LEARNT_FOR)

    def left(self, peer: Peer) -> None:
        """A connection ended."""
        self.producers.left(peer)
        self.consumers.left(peer)

    def apply(self, config: BrokerConfig) -> None:
        """Go on with other settings; those of `listen`, `identity` and `store` wait for a start."""
        self.config = config
        self.topics.settings = config.topics
        self.groups.config = config.groups
        self.consumers.notify = config.groups.notify
        self.waiting.settings = config.pulls
        self.flow.settings = config.flow
        self.timers.settings = config.timers
        self.transactions.settings = config.transactions
        self.compacting.settings = config.compaction
        self.registrar.settings = config.registering
        self.registrar.permit(config.permission)

    def drop_topic(self, topic: str) -> None:
        """Forget a topic, its messages, and everything about it."""
        self.topics.drop(topic)
        self.offsets.drop_topic(topic)
        self.pops.drop_topic(topic)
        self.counts.drop_topic(topic)
        self.store.delete_topic(topic)
        self.waiting.wake(topic)

    def drop_group(self, group: str, *, offsets: bool) -> None:
        """Forget a group, and if asked how far it had come."""
        self.groups.drop(group)
        self.counts.drop_group(group)
        if offsets:
            self.offsets.drop_group(group)
            self.pops.drop_group(group)

    def drop_unused(self) -> None:
        """Remove the messages of topics that are no more."""
        for topic in {topic for topic, _, _ in self.store.queues()} - self.topics.table.keys():
            if is_light_queue(topic):
                continue
            self.store.delete_topic(topic)

    async def close(self) -> None:
        """Return when everything that is kept is on disk; the store is closed by who opened it."""
        await self.compacting.close()
        self.delays.stop()
        self.transactions.stop()
        await self.timers.close()
        await self.pops.close()
        self.offsets.keep()
        await self.keeper.close()


def assemble(
    config: BrokerConfig,
    *,
    store: Store,
    keeper: Keeper,
    runtime: Runtime,
    next_id: Callable[[], str],
    clock_ms: Callable[[], int],
    now: Callable[[], float],
    random: random.Random,
    advertised: tuple[bytes, int] | None = None,
) -> Broker:
    """A broker of `config` over an open store; `next_id` makes unique ids."""
    identity = config.identity
    topics = Topics(config.topics, identity=identity, keeper=keeper, clock_ms=clock_ms)
    consumers = Consumers(notify=config.groups.notify)
    counts = Counts(cluster=identity.cluster, now=now, clock_ms=clock_ms)
    delays = Delays(
        DelayLevels.parse(config.delays.levels),
        store=store,
        keeper=keeper,
        clock_ms=clock_ms,
        delivered=counts.delivered,
    )
    timers = Timers(
        config.timers,
        store=store,
        broker=identity.name,
        clock_ms=clock_ms,
        delivered=counts.released,
    )
    registrar = Registrar(
        config.registering,
        identity=identity,
        permission=config.permission,
        topics=topics,
        runtime=runtime,
    )
    waiting = Waiting(config.pulls)
    producers = Producers()
    offsets = Offsets(keeper=keeper, clock_ms=clock_ms)
    storing = Storing(store=store, delays=delays, timers=timers, counts=counts)

    def arrived(
        topic: str, queue_id: int, offset: int, code: int, store_ms: int, raw: bytes
    ) -> None:
        if topic == SCHEDULE_TOPIC:
            delays.arrived(queue_id, code)
        elif topic == TIMER_TOPIC:
            timers.arrived(offset, raw)
        waiting.arrived(topic, queue_id, offset, code, store_ms, raw)

    store.arrived = arrived
    return Broker(
        config=config,
        clock_ms=clock_ms,
        now=now,
        random=random,
        advertised=advertised,
        store=store,
        keeper=keeper,
        topics=topics,
        limits=TopicLimits(topics, store.limits),
        producers=producers,
        consumers=consumers,
        groups=Groups(config.groups, consumers=consumers, keeper=keeper, clock_ms=clock_ms),
        offsets=offsets,
        locks=Locks(now=now),
        delays=delays,
        timers=timers,
        modes=RequestModes(keeper=keeper),
        routes=Routes(
            broker=identity.name,
            topics=topics,
            runtime=runtime,
            name_servers=lambda: registrar.known_to,
            now=now,
        ),
        counts=counts,
        changes=Changes(keeper=keeper, clock_ms=clock_ms),
        boot=now(),
        boot_ms=clock_ms(),
        marks=Marks(identity, next_id),
        storing=storing,
        transactions=Transactions(
            config.transactions,
            store=store,
            storing=storing,
            topics=topics,
            checks=Checks(producers=producers.members, broker=identity.name, now=now),
            notes=Notes(
                store=store, storing=storing, offsets=offsets, keeper=keeper, clock_ms=clock_ms
            ),
            clock_ms=clock_ms,
        ),
        pops=Pops(
            store=store,
            storing=storing,
            topics=topics,
            offsets=offsets,
            keeper=keeper,
            clock_ms=clock_ms,
        ),
        compacting=Compacting(
            config.compaction, store=store, topics=topics, clock_ms=clock_ms, now=now
        ),
        waiting=waiting,
        flow=FlowControl(config.flow, store=store),
        registrar=registrar,
    )
