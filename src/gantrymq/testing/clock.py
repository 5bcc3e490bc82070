"""An asyncio event loop whose time passes only when nothing else can happen.

Programs that wait are tested in no time: `asyncio.sleep(3600)` returns at once if there is nothing
to do before, and two timers always fire in the order of their times. The loop runs everything that
is ready; when nothing is, it looks for real input (sockets work, too), and when there is none of
that either, it moves its clock to the next timer instead of sleeping.

A clock may also be *paced*: then time passes as it really does, until somebody says that he waits,
which is when it leaps again. So it is where programs call from threads of their own: between two
calls a test thinks, and that takes no virtual hours.

Two cases are not a matter of time. If work runs in another thread (`run_in_executor`, or anything
between `hold()` and `release()`), the loop really waits for it, and the clock stands still. And if
no timer is left and nothing runs elsewhere, no event can ever come: the loop waits `patience` real
seconds for a stray thread and then raises `Deadlock`, which is worth more than a test that hangs.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Final, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_PATIENCE: Final = 2.0
_TICK: Final = 0.01
"""Real seconds between looks at timers while work runs in other threads."""


class Deadlock(RuntimeError):
    """Every task waits, no timer is set and no other thread is at work."""


class VirtualClock:
    """The time of a `VirtualLoop`; starts at 0 and moves when the loop has nothing else to do."""

    __slots__ = ("_held", "_now", "paced")

    def __init__(self) -> None:
        self._now = 0.0
        self._held = 0
        self.paced = 0
        """Above 0, time passes as it really does."""

    def now(self) -> float:
        """Seconds since the loop was made."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass at once, as a long computation would."""
        self._now += seconds

    @property
    def held(self) -> bool:
        """Whether the clock stands still because something works in another thread."""
        return self._held > 0

    def hold(self) -> None:
        """Stand still until `release()`; holds add up."""
        self._held += 1

    def release(self) -> None:
        """Undo one `hold()`."""
        self._held -= 1


class _LeapingSelector(selectors.DefaultSelector):
    """Looks for input without waiting, and lets the clock leap where the wait would have been."""

    def __init__(self, clock: VirtualClock, patience: float) -> None:
        super().__init__()
        self._clock = clock
        self._patience = patience

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0 and len(self.get_map()) == 1:
            return []  # there is work, and nothing but the loop's own pipe to look at
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._clock.held:
            return super().select(timeout if timeout is None else _TICK)
        if self._clock.paced > 0:
            return self._wait_really(timeout)
        if timeout is not None:
            self._clock.advance(timeout)
            return events
        events = super().select(self._patience)
        if not events:
            raise Deadlock("every task waits, no timer is set and nothing runs elsewhere")
        return events

    def _wait_really(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        begun = time.monotonic()
        events = super().select(timeout if timeout is None else min(timeout, _TICK))
        took = time.monotonic() - begun
        self._clock.advance(took if timeout is None else min(took, timeout))
        return events


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop on such a clock."""

    def __init__(self, *, patience: float = _PATIENCE) -> None:
        self.clock: Final = VirtualClock()
        super().__init__(_LeapingSelector(self.clock, patience))

    def time(self) -> float:
        """The virtual time."""
        return self.clock.now()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """As any loop's; the clock stands still until the work is done."""
        self.clock.hold()
        try:
            work = super().run_in_executor(executor, func, *args)
        except BaseException:
            self.clock.release()
            raise
        work.add_done_callback(lambda _: self.clock.release())
        return work


def run_virtual(main: Coroutine[object, None, T]) -> T:
    """`asyncio.run`, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
