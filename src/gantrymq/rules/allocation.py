"""Which of a topic's queues belong to which consumer of a group.

No one hands queues out: every member of a group works out its own share from the same two lists,
the queues and the members' ids, and the shares fit together because the rule is the same for all.
So a strategy has to be a pure function, its lists sorted, and a group must not mix strategies.

| name on the wire | what a client gets |
|---|---|
| `AVG` | a run of neighbouring queues; runs differ by one queue at most, longer ones first |
| `AVG_BY_CIRCLE` | every c-th queue |
| `CONFIG` | the list it was given, whatever the others have |
| `CONSISTENT_HASH` | the queues that follow one of its ten points on a ring |
| `MACHINE_ROOM` | an even share of the queues whose broker's room is in a set |
| `MACHINE_ROOM_NEARBY-…` | an even share of its own room's queues, and of those in deserted rooms |

`AVG` moves many queues when a member joins; the ring moves only those that the new member takes
over, but its shares are uneven. Its points and keys are the first four bytes of an MD5, read as an
unsigned number: the point `k` of a client is that of `<client id>-<k>`, the key of a queue that of
the text Java prints for it.

All lists are sorted here once more (which costs next to nothing when they are already), because
two members that see them in different orders would both take some queues and leave others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from types import MappingProxyType
from typing import Final, TypeVar

from gantrymq.errors import InvalidInput
from gantrymq.model import MessageQueue

T = TypeVar("T")

Allocate = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""A client's share: `(client id, queues of one topic, ids of the whole group) -> queues`."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to share queues, under the name that brokers and tools know it by.

    RocketMQ: AllocateMessageQueueStrategy.
    """

    name: str
    allocate: Allocate


def even_share(index: int, clients: int, queues: int) -> range:
    """The neighbouring queues, by number, of client `index` of `clients`."""
    size, longer = divmod(queues, clients)
    start = index * size + min(index, longer)
    return range(start, start + size + (index < longer))


def share_in_turn(index: int, clients: int, queues: int) -> range:
    """Every `clients`-th queue, by number, from number `index` on."""
    return range(index, queues, clients)


def allocate_evenly(
    client: str, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """A run of neighbouring queues.

    RocketMQ: AllocateMessageQueueAveragely.
    """
    return _by_number(even_share, client, queues, clients)


def allocate_in_turn(
    client: str, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """One queue for each client, round and round.

    RocketMQ: AllocateMessageQueueAveragelyByCircle.
    """
    return _by_number(share_in_turn, client, queues, clients)


def _by_number(
    share: Callable[[int, int, int], range],
    client: str,
    queues: Sequence[MessageQueue],
    clients: Sequence[str],
) -> list[MessageQueue]:
    if not _takes_part(client, queues, clients):
        return []
    ordered, members = sorted(queues), sorted(clients)
    return [ordered[i] for i in share(members.index(client), len(members), len(ordered))]


def _takes_part(client: str, queues: Collection[MessageQueue], clients: Collection[str]) -> bool:
    if not client:
        raise InvalidInput("currentCID is empty: a share needs the id of the client it is for")
    if not queues:
        raise InvalidInput(f"mqAll is empty: client {client} was given no queues to share")
    if not clients:
        raise InvalidInput(f"cidAll is empty: client {client} was given no group to share among")
    return client in clients


EVENLY: Final = Strategy("AVG", allocate_evenly)
IN_TURN: Final = Strategy("AVG_BY_CIRCLE", allocate_in_turn)


def by_config(queues: Iterable[MessageQueue]) -> Strategy:
    """Always `queues`, and no others.

    RocketMQ: AllocateMessageQueueByConfig.
    """
    fixed = tuple(queues)
    return Strategy("CONFIG", lambda _client, _queues, _clients: list(fixed))


def by_machine_room(rooms: Collection[str]) -> Strategy:
    """An even share of the queues in `rooms`; what is left over goes one by one to the first.

    RocketMQ: AllocateMessageQueueByMachineRoom.
    """
    wanted = frozenset(rooms)

    def allocate(
        client: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        if not _takes_part(client, queues, clients):
            return []
        near = sorted(queue for queue in queues if room_of(queue) in wanted)
        members = sorted(clients)
        index, size = members.index(client), len(near) // len(members)
        left_over = size * len(members) + index  # past the end for all but the first few
        return near[index * size : (index + 1) * size] + near[left_over : left_over + 1]

    return Strategy("MACHINE_ROOM", allocate)


def by_nearby_machine_room(
    inner: Strategy,
    *,
    queue_room: Callable[[MessageQueue], str | None],
    client_room: Callable[[str], str | None],
) -> Strategy:
    """Each room's queues for the clients in that room; rooms without clients for all.

    RocketMQ: AllocateMachineRoomNearby.
    """

    def allocate(
        client: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        if not _takes_part(client, queues, clients):
            return []
        queues_in, clients_in = _by_room(queues, queue_room), _by_room(clients, client_room)
        home = client_room(client)
        share: list[MessageQueue] = []
        for room in sorted(queues_in, key=lambda room: (room != home, room)):
            if room == home or room not in clients_in:
                share += inner.allocate(client, queues_in[room], clients_in.get(room, clients))
        return share

    return Strategy(f"MACHINE_ROOM_NEARBY-{inner.name}", allocate)


def _by_room(things: Iterable[T], room: Callable[[T], str | None]) -> Mapping[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for thing in things:
        name = room(thing)
        if not name:
            raise InvalidInput(f"machine room is null for {thing}; every one has to be in a room")
        rooms.setdefault(name, []).append(thing)
    return rooms


def room_of(queue: MessageQueue) -> str | None:
    """The room of a broker named `room@name`; None where the name is not of that form."""
    parts = queue.broker.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def ring_position(key: str) -> int:
    """The place of `key` on the ring, from 0 to 4294967295."""
    return int.from_bytes(md5(key.encode(), usedforsecurity=False).digest()[:4], "big")


def ring_owners(
    queues: Iterable[MessageQueue],
    clients: Iterable[str],
    *,
    points: int = 10,
    place: Callable[[str], int] = ring_position,
) -> list[str]:
    """The owner of each queue, in their order: whose point is the first at or after it."""
    ring = {place(f"{client}-{point}"): client for client in clients for point in range(points)}
    places = sorted(ring)
    keys = (place(_as_java_prints(queue)) for queue in queues)
    return [ring[places[bisect_left(places, key) % len(places)]] for key in keys]


def by_consistent_hash(
    *, points: int = 10, place: Callable[[str], int] = ring_position
) -> Strategy:
    """The queues that come before one of the client's points on the ring.

    RocketMQ: AllocateMessageQueueConsistentHash.
    """
    if points < 1:
        raise InvalidInput(f"illegal virtualNodeCnt: {points}; a client needs a point on the ring")

    def allocate(
        client: str, queues: Sequence[MessageQueue], clients: Sequence[str]
    ) -> list[MessageQueue]:
        if not _takes_part(client, queues, clients):
            return []
        ordered = sorted(queues)
        owners = ring_owners(ordered, sorted(clients), points=points, place=place)
        return [queue for queue, owner in zip(ordered, owners, strict=True) if owner == client]

    return Strategy("CONSISTENT_HASH", allocate)


def _as_java_prints(queue: MessageQueue) -> str:
    topic, broker, queue_id = queue
    return f"MessageQueue [topic={topic}, brokerName={broker}, queueId={queue_id}]"


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType(
    {strategy.name: strategy for strategy in (EVENLY, IN_TURN, by_consistent_hash())}
)
"""The strategies that need nothing but their name."""
