"""Mistakes that are put into the code on purpose, to see whether the simulation finds them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any, Final
from unittest.mock import patch

from gantrymq.broker.transaction_notes import Notes
from gantrymq.client.in_flight import InFlight
from gantrymq.client.rebalance import Locks
from gantrymq.rules import allocation


@contextmanager
def acknowledge_before_it_is_done(_: Random) -> Iterator[None]:
    """A consumer commits what it has read, and not what it has handled: a crash loses messages."""
    with patch.object(InFlight, "committable", property(lambda self: self.next_offset)):
        yield


@contextmanager
def forget_to_unlock(_: Random) -> Iterator[None]:
    """A member that hands queues over keeps their locks."""

    async def release(self: Locks, queues: object) -> None:
        return

    with patch.object(Locks, "release", release):
        yield


@contextmanager
def lose_an_end(random: Random) -> Iterator[None]:
    """Now and then the note that a transaction has ended is not written."""
    write = Notes.write

    def forgetful(self: Notes, ip: bytes, port: int) -> int:
        if random.random() < 0.3:
            self.waiting.clear()
        return write(self, ip, port)

    with patch.object(Notes, "write", forgetful):
        yield


@contextmanager
def let_two_own(random: Random) -> Iterator[None]:
    """A member takes a queue that is another's, once in a while."""
    even = allocation.even_share

    def greedy(index: int, clients: int, queues: int) -> range:
        share = even(index, clients, queues)
        grabs = clients > 1 and random.random() < 0.3
        return range(max(0, share.start - 1), share.stop) if grabs else share

    with patch.object(allocation, "even_share", greedy):
        yield


PLANTED: Final[dict[str, Callable[[Random], AbstractContextManager[Any]]]] = {
    "acknowledge-early": acknowledge_before_it_is_done,
    "forget-unlock": forget_to_unlock,
    "lose-an-end": lose_an_end,
    "two-owners": let_two_own,
}
