"""Pulls that found nothing and wait for a message.

Each is parked at its queue. The store tells of every message that can be read (`arrived`), and the
pulls parked there that want it are woken, in the same turn of the loop in which the message came;
they read a moment later, when everything else that came with it is stored as well. So nobody asks
again and again, and a batch of messages is one answer.

Who is not woken gives up at its own time.

RocketMQ: PullRequestHoldService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from gantrymq.broker.config import PullConfig
from gantrymq.broker.filters import ANYTHING, Wanted


class _Parked:
    """One pull."""

    __slots__ = ("bell", "timer", "wanted")

    def __init__(
        self, bell: asyncio.Future[None], wanted: Wanted, timer: asyncio.TimerHandle
    ) -> None:
        self.bell = bell
        self.wanted = wanted
        self.timer = timer


class Waiting:
    """All that wait."""

    __slots__ = ("_closed", "_parked", "count", "settings")

    def __init__(self, settings: PullConfig) -> None:
        self.settings = settings
        self.count = 0
        """How many wait now."""
        self._parked: dict[tuple[str, int], list[_Parked]] = {}
        self._closed = False

    @property
    def full(self) -> bool:
        """Whether nobody else may wait."""
        return self._closed or self.count >= self.settings.waiting

    def seconds(self, asked_ms: int) -> float:
        """How long a pull waits that asked for that."""
        settings = self.settings
        if not settings.long_polling:
            return settings.short_wait
        return min(max(0, asked_ms) / 1000, settings.longest_wait)

    def park(
        self, topic: str, queue_id: int, seconds: float, wanted: Wanted = ANYTHING
    ) -> asyncio.Future[None]:
        """What is done when a wanted message is in the queue, or when the time is over.

        It counts from this call on, and not from when somebody comes to await it: what arrives in
        between is not missed.
        """
        return self.park_at(((topic, queue_id),), seconds, wanted)

    def park_at(
        self, places: Sequence[tuple[str, int]], seconds: float, wanted: Wanted = ANYTHING
    ) -> asyncio.Future[None]:
        """The same for several queues: what is done when there is something in any of them."""
        loop = asyncio.get_running_loop()
        bell: asyncio.Future[None] = loop.create_future()
        parked = _Parked(bell, wanted, loop.call_later(seconds, _ring, bell))
        for place in places:
            self._parked.setdefault(place, []).append(parked)
        self.count += 1
        bell.add_done_callback(partial(self._leave, places, parked))
        return bell

    def arrived(
        self,
        topic: str,
        queue_id: int,
        _queue_offset: int,
        tags_code: int,
        _store_ms: int,
        raw: bytes,
    ) -> None:
        """A message can be read."""
        parked = self._parked.get((topic, queue_id))
        if parked is not None:
            for one in parked:
                if one.wanted is ANYTHING or one.wanted.matches(tags_code, raw):
                    _ring(one.bell)

    def wake(self, topic: str) -> None:
        """Wake everybody who waits for messages of a topic."""
        for (name, _), parked in self._parked.items():
            if name == topic:
                for one in parked:
                    _ring(one.bell)

    def close(self) -> None:
        """Wake everybody, and let nobody wait any more."""
        self._closed = True
        for parked in self._parked.values():
            for one in parked:
                _ring(one.bell)

    def _leave(
        self, places: Sequence[tuple[str, int]], parked: _Parked, _bell: asyncio.Future[None]
    ) -> None:
        self.count -= 1
        parked.timer.cancel()
        for place in places:
            others = self._parked[place]
            others.remove(parked)
            if not others:
                del self._parked[place]


def _ring(bell: asyncio.Future[None]) -> None:
    if not bell.done():
        bell.set_result(None)
