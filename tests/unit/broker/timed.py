"""A broker in virtual time, whose clocks go with the loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gantrymq.wire import properties
from tests.support import run_on
from tests.unit.broker.rig import START_MS, Rig


class TimedRig(Rig):
    """A broker whose clocks go with the loop's; setting `now_ms` sets the wall clock."""

    set_by = 0

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.set_by = 0

    @property
    def now_ms(self) -> int:  # type: ignore[override]
        return START_MS + round(asyncio.get_running_loop().time() * 1000) + self.set_by

    @now_ms.setter
    def now_ms(self, value: int) -> None:
        self.set_by += value - self.now_ms

    @property
    def seconds(self) -> float:  # type: ignore[override]
        return asyncio.get_running_loop().time()

    @seconds.setter
    def seconds(self, value: float) -> None:
        pass  # it goes by itself

    def delay(self, level: object, body: bytes = b"later", *, topic: str = "orders") -> None:
        """Send a message that waits."""
        self.send(topic, body, properties=properties.join({"DELAY": str(level), "TAGS": "red"}))


def timed(**settings: Any) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Runs a test with such a rig, which delivers."""

    def decorate(test: Callable[..., Any]) -> Callable[[], None]:
        def run() -> None:
            async def main() -> None:
                rig = TimedRig(**settings).load()
                rig.broker.start()
                await test(rig)
                await rig.broker.close()

            run_on("virtual", main())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def chores(rig: Rig) -> asyncio.Task[None]:
    """What a server does besides: the chores of a broker, and the store's ticks."""

    async def do(interval: float, work: Callable[[], object]) -> None:
        while True:
            await asyncio.sleep(interval)
            work()

    async def everything() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(do(0.5, rig.store.flush))
            for chore in rig.broker.chores():
                group.create_task(do(chore.interval, chore.do))

    return asyncio.create_task(everything())
