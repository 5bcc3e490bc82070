"""A limit on how many may be inside, with a queue in front of it.

Entering costs a comparison while there is room. Those who wait are let in first come, first
served: a place that becomes free is promised to the first in the queue at once, so there is never
both room and a queue, and newcomers cannot slip in.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sized


class Room:
    """How many callers fit in at once; the size of `inside` says how many there are."""

    __slots__ = ("_inside", "_loop", "_places", "_queue")

    def __init__(self, loop: asyncio.AbstractEventLoop, places: int, inside: Sized) -> None:
        self._loop = loop
        self._inside = inside
        self._places = places  # less those that are promised and not counted by `inside` yet
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def full(self) -> bool:
        """Whether a newcomer has to `wait`."""
        return len(self._inside) >= self._places

    @property
    def waiting(self) -> bool:
        """Whether anyone queues."""
        return bool(self._queue)

    async def wait(self) -> None:
        """Queue for a place; the caller has to take it before he next waits for anything."""
        ticket = self._loop.create_future()
        self._queue.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            self._withdraw(ticket)
            raise
        self._places += 1

    def admit(self) -> None:
        """Let in as many as there are places."""
        while self._queue and not self.full:
            ticket = self._queue.popleft()
            if not ticket.done():
                self._places -= 1
                ticket.set_result(None)

    def close(self, error: Callable[[], Exception]) -> None:
        """Send everybody away."""
        while self._queue:
            ticket = self._queue.popleft()
            if not ticket.done():
                ticket.set_exception(error())

    def _withdraw(self, ticket: asyncio.Future[None]) -> None:
        """Pass on the place that a cancelled caller had been promised, or leave the queue."""
        if ticket in self._queue:
            self._queue.remove(ticket)
        elif not ticket.cancelled() and ticket.exception() is None:
            self._places += 1
            self.admit()
