import asyncio
from math import inf

from gantrymq.net.alarms import RESOLUTION, SLACK, Alarm
from gantrymq.testing.clock import VirtualLoop
from tests.support import run_on


def test_it_rings_at_the_earliest_time_asked_for_and_then_when_it_is_told() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        rung: list[float] = []
        answers = iter([7.0, inf])

        def ring(now: float) -> float:
            rung.append(round(now - SLACK, 6))
            return next(answers)

        alarm = Alarm(loop, ring)
        alarm.by(9.0)
        alarm.by(5.0)
        alarm.by(6.0)
        await asyncio.sleep(100)
        return rung

    assert run_on("virtual", main()) == [5.0, 7.0]


def test_many_deadlines_make_few_rings_and_none_is_more_than_the_resolution_late() -> None:
    async def main() -> tuple[int, float]:
        loop = asyncio.get_running_loop()
        deadlines = [1 + number / 1000 for number in range(100)]
        late: list[float] = []
        rings = 0

        def ring(now: float) -> float:
            nonlocal rings
            rings += 1
            while deadlines and deadlines[0] <= now:
                late.append(loop.time() - deadlines.pop(0))
            return deadlines[0] if deadlines else inf

        Alarm(loop, ring).by(deadlines[0])
        await asyncio.sleep(10)
        assert len(late) == 100
        return rings, max(late)

    rings, latest = run_on("virtual", main())
    assert rings <= 12
    assert latest <= RESOLUTION + 1e-6


def test_a_stopped_alarm_keeps_quiet() -> None:
    async def main() -> None:
        def ring(_now: float) -> float:
            raise AssertionError("it was stopped")

        alarm = Alarm(asyncio.get_running_loop(), ring)
        alarm.by(1.0)
        alarm.stop()
        alarm.by(0.5)
        await asyncio.sleep(10)

    run_on("virtual", main())


def test_an_alarm_that_was_kept_waiting_lets_the_loop_catch_up_first() -> None:
    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        rung: list[float] = []

        def ring(now: float) -> float:
            rung.append(round(now - SLACK, 6))
            return inf

        Alarm(loop, ring).by(5.0)
        loop.clock.advance(7.0)
        await asyncio.sleep(1)
        return rung

    assert run_on("virtual", main()) == [7.0 + RESOLUTION]
