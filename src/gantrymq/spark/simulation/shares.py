"""Rebalances by the hundred thousand: who gets other queues when a member comes or goes.

Every group of a world reads one topic. For each group and each way to share, three things happen:
a member joins, one leaves, one dies. Counted are the queues that change hands between members who
were there before and after (*moved for nothing*: their messages in flight may come twice), those
that have to change hands because their owner is new or gone, and how uneven the shares are.

The rules themselves, from `rules.allocation`, give the answer for one client at a time; asking them
for each of a hundred thousand clients would sort the same lists again and again. Here the owners of
all queues are found at once; a test holds both equal.

**How long queues rest.** A member that leaves says goodbye, and one whose process dies loses its
connection: the broker tells the others at once. A machine that dies says nothing, and is missed
after two minutes. Notices may get lost; then each member finds out by its own look every 20 s.
Queues of a member that died while it consumed in order stay locked for a minute besides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

import numpy as np

from gantrymq.errors import ConfigError
from gantrymq.model import MessageQueue
from gantrymq.rules.allocation import even_share, ring_owners, share_in_turn
from gantrymq.spark.simulation.lanes import Real, Whole
from gantrymq.spark.simulation.world import SHAPES, Topics, World, brokers_of

Event = Literal["joins", "leaves", "dies"]
EVENTS: Final[tuple[Event, ...]] = ("joins", "leaves", "dies")

ROOMS: Final = 3
"""Brokers and clients live in so many machine rooms."""
NOBODY: Final = -1

LOOK_EVERY: Final = 20.0
SILENT_FOR: Final = 120.0
SCANNED_EVERY: Final = 10.0
LOCKED_FOR: Final = 60.0
NOTICES_LOST: Final = 0.01
MACHINES: Final = 0.2
"""Which part of deaths takes the whole machine."""
ORDERLY: Final = 0.1
"""Which part of groups consumes in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group, as its members see it: lists that are sorted."""

    queues: tuple[MessageQueue, ...]
    clients: tuple[str, ...]


def room_of_name(name: str) -> str:
    """The room that a broker or client of these worlds lives in."""
    return name.partition("@")[0]


# --- owners of all queues at once -----------------------------------------------------------------


def owners_evenly(queues: Sequence[MessageQueue], clients: Sequence[str]) -> Whole:
    """The owner of each queue, by number. The plain form: `allocate_evenly`."""
    return _by_number(even_share, len(queues), len(clients))


def owners_in_turn(queues: Sequence[MessageQueue], clients: Sequence[str]) -> Whole:
    """The plain form: `allocate_in_turn`."""
    return _by_number(share_in_turn, len(queues), len(clients))


def owners_on_the_ring(queues: Sequence[MessageQueue], clients: Sequence[str]) -> Whole:
    """The plain form: `by_consistent_hash`."""
    numbers = {client: number for number, client in enumerate(clients)}
    return np.array([numbers[one] for one in ring_owners(queues, clients)], np.int64)


def owners_by_rooms(queues: Sequence[MessageQueue], clients: Sequence[str]) -> Whole:
    """The plain form: `by_machine_room` with every room that there is."""
    size = len(queues) // len(clients)
    owners = np.arange(len(queues)) // max(size, 1)
    left_over = np.arange(size * len(clients), len(queues))
    owners[left_over] = left_over - size * len(clients)
    return owners


def owners_nearby(queues: Sequence[MessageQueue], clients: Sequence[str]) -> Whole:
    """The plain form: `by_nearby_machine_room` with even shares inside."""
    owners = np.full(len(queues), NOBODY)
    in_room = np.array([room_of_name(queue.broker) for queue in queues])
    lives_in = np.array([room_of_name(client) for client in clients])
    for room in np.unique(in_room):
        places = np.flatnonzero(in_room == room)
        near = np.flatnonzero(lives_in == room)
        takers = near if len(near) else np.arange(len(clients))
        owners[places] = takers[_by_number(even_share, len(places), len(takers))]
    return owners


def _by_number(share: Callable[[int, int, int], range], queues: int, clients: int) -> Whole:
    owners = np.empty(queues, np.int64)
    for client in range(min(clients, queues)):  # those behind them get nothing
        mine = share(client, clients, queues)
        owners[mine.start : mine.stop : mine.step] = client
    return owners


Owners = Callable[[Sequence[MessageQueue], Sequence[str]], Whole]

WAYS: Final[Mapping[str, Owners]] = MappingProxyType(
    {
        "AVG": owners_evenly,
        "AVG_BY_CIRCLE": owners_in_turn,
        "CONSISTENT_HASH": owners_on_the_ring,
        "MACHINE_ROOM": owners_by_rooms,
        "MACHINE_ROOM_NEARBY-AVG": owners_nearby,
    }
)


# --- groups and what happens to them --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Which groups there are in a world."""

    world: World
    consumers: int = 100_000
    largest: int = 200

    def __post_init__(self) -> None:
        if self.consumers < 1 or self.largest < 1:
            raise ConfigError(f"{self.consumers} consumers do not make a group")


def sizes_of(sharing: Sharing) -> Whole:
    """How many members each group has: most have few, some very many."""
    chance = np.random.default_rng((sharing.world.seed, 6))
    mean = 8
    count = 2 * sharing.consumers // mean + 10
    drawn = np.minimum(1 + chance.pareto(1.2, count) * 2, sharing.largest).astype(np.int64)
    enough = int(np.searchsorted(drawn.cumsum(), sharing.consumers)) + 1
    sizes = drawn[:enough]
    sizes[-1] -= max(0, int(sizes.sum()) - sharing.consumers)
    return sizes


def group_of(sharing: Sharing, topics: Topics, number: int, size: int) -> Group:
    """A group with so many members."""
    world = sharing.world
    chance = np.random.default_rng((world.seed, 7, number))
    topic = int(chance.integers(len(topics)))
    queues = SHAPES[topics.shape[topic]][1]
    names = [f"r{one % ROOMS}@b{one:05}" for one in brokers_of(world, topics, topic)]
    return Group(
        queues=tuple(
            sorted(MessageQueue(f"t{topic}", name, q) for name in names for q in range(queues))
        ),
        clients=tuple(sorted(new_client(chance) for _ in range(size))),
    )


def new_client(chance: np.random.Generator) -> str:
    """The id of a client somewhere."""
    room, host, process = chance.integers(ROOMS), chance.integers(1 << 16), chance.integers(1 << 22)
    return f"r{room}@10.{room}.{host >> 8}.{host & 255}@{process}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one event did to one group."""

    queues: int
    clients: int
    needed: int
    """Queues whose owner came or went."""
    moved: int
    """Queues that went from one who was there before to another who was."""
    fullest: float
    """The largest share over the mean, before."""
    idle: int
    """Members without a queue, before."""


def change_of(group: Group, event: Event, owners: Owners, chance: np.random.Generator) -> Change:
    """What an event does to a group; without it a group of one cannot lose a member."""
    before, after = group.clients, group.clients
    if event == "joins":
        after = tuple(sorted({*before, new_client(chance)}))
    elif len(before) > 1:
        gone = int(chance.integers(len(before)))
        after = before[:gone] + before[gone + 1 :]
    first, then = owners(group.queues, before), owners(group.queues, after)
    stays = np.array([client in after for client in before])
    was_there = np.array([client in before for client in after])
    same = np.array(before)[first] == np.array(after)[then]
    both = stays[first] & was_there[then]
    counts = np.bincount(first, minlength=len(before))
    return Change(
        queues=len(group.queues),
        clients=len(before),
        needed=int((~both).sum()),
        moved=int((both & ~same).sum()),
        fullest=float(counts.max() * len(before) / len(group.queues)),
        idle=int((counts == 0).sum()),
    )


def rests(event: Event, count: int, chance: np.random.Generator) -> Real:
    """How long the queues of a member that came or went are read by nobody, in seconds."""
    told = np.where(chance.random(count) < NOTICES_LOST, chance.random(count) * LOOK_EVERY, 0.01)
    if event != "dies":
        return told
    machine = chance.random(count) < MACHINES
    missed = np.where(machine, SILENT_FOR + chance.random(count) * SCANNED_EVERY, 0.0) + told
    locked = chance.random(count) < ORDERLY
    found: Real = np.where(locked, np.maximum(missed, chance.random(count) * LOCKED_FOR), missed)
    return found
