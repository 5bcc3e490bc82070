"""Pulls that wait: woken by what they want, by the time, and at the end."""

import asyncio

import pytest

from gantrymq.broker.config import PullConfig
from gantrymq.broker.filters import Wanted
from gantrymq.broker.waiting import Waiting
from tests.support import run_on


def put(waiting: Waiting, topic: str = "orders", queue_id: int = 0, code: int = 0) -> None:
    waiting.arrived(topic, queue_id, 5, code, 1, b"")


def woken(waiting: Waiting, *bells: asyncio.Future[None]) -> list[bool]:
    return [bell.done() for bell in bells]


def test_a_message_wakes_who_waits_at_its_queue():
    async def main():
        waiting = Waiting(PullConfig())
        here = [waiting.park("orders", 0, 60) for _ in range(2)]
        there = [waiting.park("orders", 1, 60), waiting.park("bills", 0, 60)]
        put(waiting)
        assert woken(waiting, *here, *there) == [True, True, False, False]
        await asyncio.sleep(0)
        assert waiting.count == 2
        waiting.close()

    run_on("virtual", main())


def test_only_what_is_wanted_wakes():
    async def main():
        waiting = Waiting(PullConfig())
        bell = waiting.park("orders", 0, 60, Wanted(code={3, 4}.__contains__))
        put(waiting, code=5)
        assert not bell.done()
        put(waiting, code=4)
        put(waiting, code=3)
        assert bell.done()
        await bell

    run_on("virtual", main())


def test_what_comes_before_anybody_awaits_is_not_missed():
    async def main():
        waiting = Waiting(PullConfig())
        bell = waiting.park("orders", 0, 60)
        put(waiting)
        before = asyncio.get_running_loop().time()
        await bell
        assert asyncio.get_running_loop().time() == before

    run_on("virtual", main())


def test_the_time_wakes_who_nothing_came_for():
    async def main():
        waiting = Waiting(PullConfig())
        loop = asyncio.get_running_loop()
        began = loop.time()
        await waiting.park("orders", 0, 15.0)
        assert loop.time() - began == pytest.approx(15.0)
        await asyncio.sleep(0)
        assert waiting.count == 0

    run_on("virtual", main())


def test_who_goes_away_leaves_nothing_behind():
    async def main():
        waiting = Waiting(PullConfig())
        bell = waiting.park("orders", 0, 60)
        stays = waiting.park("orders", 0, 60)
        bell.cancel()
        put(waiting, topic="bills")
        await asyncio.sleep(0)
        assert waiting.count == 1
        put(waiting)
        await stays
        await asyncio.sleep(0)
        assert (waiting.count, waiting._parked) == (0, {})

    run_on("virtual", main())


def test_a_topic_that_goes_wakes_its_waiters():
    async def main():
        waiting = Waiting(PullConfig())
        bells = [waiting.park("orders", 0, 60), waiting.park("orders", 3, 60)]
        other = waiting.park("bills", 0, 60)
        waiting.wake("orders")
        assert woken(waiting, *bells, other) == [True, True, False]
        waiting.close()

    run_on("virtual", main())


def test_closing_wakes_everybody_and_lets_nobody_wait():
    async def main():
        waiting = Waiting(PullConfig())
        bells = [waiting.park(topic, 0, 60) for topic in ("orders", "bills")]
        assert not waiting.full
        waiting.close()
        await asyncio.gather(*bells)
        assert waiting.full

    run_on("virtual", main())


def test_there_is_a_most_that_may_wait():
    async def main():
        waiting = Waiting(PullConfig(waiting=2))
        for n in range(2):
            assert not waiting.full
            waiting.park("orders", n, 60)
        assert waiting.full
        put(waiting)
        await asyncio.sleep(0)
        assert not waiting.full
        waiting.close()

    run_on("virtual", main())


@pytest.mark.parametrize(
    ("settings", "asked_ms", "seconds"),
    [
        (PullConfig(), 15_000, 15.0),
        (PullConfig(), -5, 0.0),
        (PullConfig(), 10**15, 120.0),
        (PullConfig(longest_wait=3.0), 15_000, 3.0),
        (PullConfig(long_polling=False), 15_000, 1.0),
        (PullConfig(long_polling=False, short_wait=0.5), 100, 0.5),
    ],
)
def test_how_long_a_pull_waits(settings, asked_ms, seconds):
    assert Waiting(settings).seconds(asked_ms) == seconds
