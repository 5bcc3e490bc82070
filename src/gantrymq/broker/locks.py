"""Queues that one member of a group has for itself, so that it can consume them in order.

A lock lasts for a minute after its owner last asked for it; owners ask every 20 seconds. It is not
given back when a client is gone: for that minute nobody else may have the queue, because the client
may only be slow, and its messages still under way. Nothing is kept over a restart, and RocketMQ's
brokers keep nothing either.

RocketMQ: RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done
from gantrymq.protocol.locks import LockQueues, LockQueuesReply, UnlockQueues

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

LIFETIME: Final = 60.0
"""Seconds. RocketMQ: rocketmq.broker.rebalance.lockMaxLiveTime."""
FORGET_INTERVAL: Final = 60.0


@dataclass(slots=True)
class _Lock:
    owner: str
    asked: float


class Locks:
    """The locks of all groups."""

    __slots__ = ("_groups", "_now")

    def __init__(self, *, now: Callable[[], float]) -> None:
        """`now` tells seconds that never go back."""
        self._now = now
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}

    def lock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock what is free, refresh what is the client's already; which it has now."""
        held, now = self._groups.setdefault(group, {}), self._now()
        locked = set()
        for queue in queues:
            lock = held.get(queue)
            if lock is None or lock.owner == client_id or now - lock.asked > LIFETIME:
                held[queue] = _Lock(client_id, now)
                locked.add(queue)
        if not held:
            del self._groups[group]
        return locked

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back those of them that are the client's."""
        held = self._groups.get(group, {})
        for queue in queues:
            lock = held.get(queue)
            if lock is not None and lock.owner == client_id:
                del held[queue]
        if not held:
            self._groups.pop(group, None)

    def any_held(self, group: str) -> bool:
        """Whether somebody in the group holds a queue now."""
        now = self._now()
        return any(now - lock.asked <= LIFETIME for lock in self._groups.get(group, {}).values())

    def forget(self) -> None:
        """Drop locks that have run out, so that what nobody asks for any more takes no room."""
        now = self._now()
        for group, held in tuple(self._groups.items()):
            left = {queue: lock for queue, lock in held.items() if now - lock.asked <= LIFETIME}
            if left:
                self._groups[group] = left
            else:
                del self._groups[group]


# --- answers --------------------------------------------------------------------------------------


def lock_queues(request: LockQueues, broker: Broker, _peer: Peer) -> LockQueuesReply:
    """Lock queues for a client; there is no other replica to ask."""
    return LockQueuesReply(
        locked=broker.locks.lock(request.group, request.client_id, request.queues)
    )


def unlock_queues(request: UnlockQueues, broker: Broker, _peer: Peer) -> Done:
    """Give locks back."""
    broker.locks.unlock(request.group, request.client_id, request.queues)
    return Done()
