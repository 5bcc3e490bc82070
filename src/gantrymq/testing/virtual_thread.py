"""A loop in virtual time on a thread of its own, for clients that block.

Time passes there as it really does while nobody waits, and leaps while somebody does: a blocked
`consumer.poll(timeout=30)` with nothing to give returns at once, thirty seconds later. A handler
that runs in a thread holds the clock, until it makes a call itself and so waits, too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Final, TypeVar, TypeVarTuple

from gantrymq.client.loop_thread import LoopThread
from gantrymq.errors import ClosedError, StateError
from gantrymq.testing.clock import VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_AT_WORK: Final = threading.local()
"""Has `holds` set in threads that hold the clock of their loop."""


class _PacedLoop(VirtualLoop):
    def __init__(self) -> None:
        super().__init__()
        self.clock.paced = 1

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        return super().run_in_executor(executor, _marked, func, args)


def _marked(func: Callable[..., T], args: tuple[Any, ...]) -> T:
    _AT_WORK.holds = True
    try:
        return func(*args)
    finally:
        _AT_WORK.holds = False


class VirtualThread(LoopThread):
    """The thread."""

    loop: VirtualLoop

    def __init__(self) -> None:
        super().__init__(_PacedLoop)

    def call(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """What `work` returns, run there while this thread waits and time may leap."""
        holds = getattr(_AT_WORK, "holds", False)
        try:
            return super().call(self._leaping(work, holds=holds), timeout)
        except (ClosedError, StateError):
            work.close()  # it may never have begun
            raise

    async def _leaping(self, work: Coroutine[Any, Any, T], *, holds: bool) -> T:
        clock = self.loop.clock
        clock.paced -= 1
        if holds:
            clock.release()
        try:
            return await work
        finally:
            clock.paced += 1
            if holds:
                clock.hold()
