"""Rows A1 to A9: which queue a message goes to, and how a broken broker is kept away from."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest

from gantrymq.client.engine import Engine
from gantrymq.errors import SendFailed
from gantrymq.model import Message, MessageQueue
from gantrymq.rules.fault_avoidance import FaultItem
from gantrymq.rules.queue_choice import QueueChoice
from gantrymq.rules.selectors import select_at_random, select_by_hash, select_in_rooms
from gantrymq.rules.turns import RoundRobin
from gantrymq.wire.command import Command
from gantrymq.wire.javahash import INT_MAX, java_hash
from tests.rows.lab import Lab
from tests.rows.platforms import BROKERS, NORTH, SOUTH
from tests.rows.site import Noting, Site, follows, in_a_thread, run
from tests.rows.tap import SENDS, Answered, Swallowed, Tap, refusal

SYSTEM_ERROR = 1


def refuse_everything(tap: Tap, code: int = SYSTEM_ERROR) -> None:
    tap.asked = lambda command: refusal(code) if command.code in SENDS else None


@asynccontextmanager
async def lab(site: Site, **how: object) -> AsyncIterator[Lab]:
    """A producer's sends under conditions of the test's own."""
    async with site.async_producer() as producer:
        await producer.producing.engine.routes.queues_to_publish(site.topic)
        yield Lab(producer, **how)  # type: ignore[arg-type]


# --- round robin ----------------------------------------------------------------------------------


def test_a1_round_robin_takes_the_queues_in_turn_for_every_thread(site: Site) -> None:
    producer, ring = site.producer(), site.queues()

    def send(count: int) -> list[MessageQueue]:
        return [producer.send(site.topic, b"hello").queue for _ in range(count)]

    ours = send(11)
    assert follows(ring, ours)
    assert follows(ring, in_a_thread(lambda: send(9)))
    assert follows(ring, [*ours, *send(3)]), "another thread took turns of ours"
    firsts = {in_a_thread(lambda: send(1))[0] for _ in range(24)}
    assert len(firsts) > 1, "every thread begins at the same queue"


def test_a1_round_robin_takes_the_queues_in_turn_for_every_task(site: Site) -> None:
    async def main() -> None:
        async with site.async_producer() as producer:

            async def send(count: int) -> list[MessageQueue]:
                return [(await producer.send(site.topic, b"hello")).queue for _ in range(count)]

            found = await asyncio.gather(*(send(9) for _ in range(12)))
            assert all(follows(site.queues(), queues) for queues in found)
            assert len({queues[0] for queues in found}) > 1

    run(main())


def test_a1_round_robin_begins_anew_where_the_counter_wraps(site: Site) -> None:
    async def main() -> None:
        ring = site.queues()
        async with lab(site, switch=False) as plain:
            taken = [(await plain.send(site.topic)).queue for _ in range(9)]
            assert taken == [*ring, ring[0]]
        async with lab(site, switch=False, start=INT_MAX - 1) as late:
            taken = [(await late.send(site.topic)).queue for _ in range(4)]
            # 2147483646, 2147483647, -2147483648 (which has no absolute value), -2147483647
            assert taken == [ring[6], ring[7], ring[0], ring[7]]

    run(main())


def test_a2_retry_skips_the_broker_that_failed(site: Site) -> None:
    refuse_everything(site.tap(NORTH))
    noted = Noting()
    producer = site.producer(hooks=[noted])
    receipts = [producer.send(site.topic, b"hello") for _ in range(12)]
    assert {receipt.queue.broker for receipt in receipts} == {SOUTH}
    for before, after in itertools.pairwise(noted.brokers):
        assert NORTH not in (before, after) or before != after
    assert noted.brokers.count(NORTH) >= 2
    alone = site.another_topic(brokers=[NORTH])
    noted.attempts.clear()
    with pytest.raises(SendFailed) as failed:
        producer.send(alone, b"hello")
    assert failed.value.brokers == (NORTH,) * 3
    assert set(noted.queues) <= set(site.queues(alone, [NORTH]))
    assert len(set(noted.queues)) > 1, "there is no other broker, so it is plain round robin"


# --- keeping away from slow and failed brokers ----------------------------------------------------


def test_a3_latency_fault_switch_is_off_and_can_be_switched_at_run_time(site: Site) -> None:
    async def main() -> None:
        async with site.async_producer() as producer:
            assert producer.send_latency_fault_enable is False
            producer.send_latency_fault_enable = True
            assert producer.producing.choice.send_latency_fault_enable is True
        async with lab(site, switch=False, latency={NORTH: 2.0}) as sends:
            assert {broker for _ in range(8) for broker in await sends.tried(site.topic)} == {
                *BROKERS
            }
            assert not sends.choice.faults.items(), "nothing is recorded while it is off"
            sends.choice.send_latency_fault_enable = True
            brokers = [broker for _ in range(8) for broker in await sends.tried(site.topic)]
            assert brokers[0] == NORTH
            assert set(brokers[1:]) == {SOUTH}
            sends.choice.send_latency_fault_enable = False
            brokers = [broker for _ in range(8) for broker in await sends.tried(site.topic)]
            assert set(brokers) == {*BROKERS}

    run(main())


def test_a4_first_pass_takes_available_brokers_by_the_rules_of_each_release(site: Site) -> None:
    async def main() -> None:
        async with site.async_producer() as producer:
            expected = "4.x" if site.platform.old else "5.x"
            assert producer.producing.choice.version == expected
        refuse_everything(site.tap(NORTH))
        async with lab(site, version="4.x") as sends:
            # A retry wants the broker that failed, which is out by now: the second pass has it.
            assert await sends.tried(site.topic) == [NORTH] * 3
            assert [await sends.tried(site.topic) for _ in range(5)] == [[SOUTH]] * 5
        async with lab(site, version="5.x") as sends:
            assert await sends.tried(site.topic) == [NORTH, SOUTH]
            assert [await sends.tried(site.topic) for _ in range(5)] == [[SOUTH]] * 5
            sends.choice.faults.report(SOUTH, 20.0, failed=True, reachable=False)
            sends.choice.faults.found_reachable(NORTH)
            # None is available; the one that can be reached goes before the other.
            assert (await sends.tried(site.topic))[0] == NORTH

    run(main())


def test_a5_second_pass_takes_the_least_bad_broker_and_leaves_the_route_alone(site: Site) -> None:
    async def main() -> None:
        topic = site.another_topic(queues=4, brokers=[NORTH])
        site.admin.alter_topic(topic, queues=2, brokers=[NORTH])
        async with lab(site, latency={NORTH: 50.0, SOUTH: 30.0}) as sends:
            known = sends.channel.sender.places.ready_to_publish(site.topic)
            assert known is not None
            before = tuple(known.queues)
            while len(sends.choice.faults.items()) < 2:
                await sends.send(site.topic)
            taken = [(await sends.send(site.topic)).queue for _ in range(8)]
            assert {queue.broker for queue in taken} == {SOUTH}
            numbers = [queue.queue_id for queue in taken]
            assert set(numbers) == {0, 1, 2, 3}, "the id is a turn's number, too"
            assert tuple(known.queues) == before
            # The least bad broker does not have this topic: it is forgotten, and all take turns.
            await sends.channel.sender.places.queues_to_publish(topic, timeout=20)
            sends.choice.faults.report(NORTH, 50.0, failed=True)
            assert (await sends.send(topic)).queue.broker == NORTH
            assert [item.broker for item in sends.choice.faults.items()] == [NORTH]

    run(main())


def test_a6_fault_items_are_ordered_and_unknown_brokers_are_available(site: Site) -> None:
    async def main() -> None:
        async with lab(site, latency={NORTH: 1.0, SOUTH: 20.0}) as sends:
            assert sends.choice.faults.available("nobody@knows")
            assert await sends.tried(site.topic) == [NORTH]  # away for 60 s from now on
            assert await sends.tried(site.topic) == [SOUTH]  # away for 600 s
            assert await sends.tried(site.topic) == [NORTH], "the lower latency comes first"
            sends.choice.faults.report(NORTH, 30.0)
            assert await sends.tried(site.topic) == [SOUTH]
            sends.clock.time = sends.held(SOUTH).available_from
            assert sends.held(SOUTH).available(sends.clock())
            assert not sends.held(NORTH).available(sends.clock() - 30)
        items = [
            FaultItem("late", 1.0, available_from=20.0),
            FaultItem("early", 1.0, available_from=15.0),
            FaultItem("slow", 9.0, available_from=5.0),
            FaultItem("quick", 2.0, available_from=10.0),
        ]
        ranked = sorted(items, key=lambda item: item.rank(10.0))
        assert [item.broker for item in ranked] == ["quick", "slow", "early", "late"]

    run(main())


BACK_OFF_MS = {
    49: 0, 50: 0, 99: 0, 100: 0, 549: 0, 550: 30_000, 999: 30_000, 1000: 60_000, 2000: 120_000,
    3000: 180_000, 14_999: 180_000, 15_000: 600_000,
}  # fmt: skip


def test_a7_back_off_grows_with_latency(site: Site) -> None:
    async def main() -> None:
        async with site.async_producer() as producer:
            await producer.producing.engine.routes.queues_to_publish(site.topic)
            for latency, pause in BACK_OFF_MS.items():
                sends = Lab(producer, latency={NORTH: latency / 1000})
                assert await sends.tried(site.topic) == [NORTH]
                assert round(1000 * sends.back_in(NORTH)) == pause, f"after {latency} ms"
        refuse_everything(site.tap(NORTH))
        async with lab(site, retries=0) as sends:
            assert await sends.tried(site.topic) == [NORTH]
            assert sends.back_in(NORTH) == 600

    run(main())


def test_a8_feedback_of_every_attempt(site: Site) -> None:
    north = site.tap(NORTH)

    async def main() -> None:
        async with lab(site, retries=0, latency={NORTH: 0.02}) as sends:
            assert await sends.tried(site.topic) == [NORTH]
            assert sends.held(NORTH).latency == pytest.approx(0.02)
            assert sends.back_in(NORTH) <= 0, "a good answer isolates nobody"
        for code in (1, 2, 13, 16):
            refuse_everything(north, code)
            async with lab(site, retries=0) as sends:
                assert await sends.tried(site.topic) == [NORTH]
                assert sends.back_in(NORTH) == 600, f"after code {code}"
        north.asked = lambda _: None
        async with lab(site, retries=0) as sends:
            north.refuse()
            assert await sends.tried(site.topic) == [NORTH]
            assert sends.back_in(NORTH) == 600, "after a connection that could not be made"
            north.admit()
        held = asyncio.Event()
        async with lab(site, retries=0, latency={NORTH: 0.02}) as sends:
            north.answered = keeping(asyncio.get_running_loop(), held)
            task = asyncio.create_task(sends.send(site.topic))
            await held.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert sends.back_in(NORTH) <= 0, "who is interrupted has nothing against the broker"

    run(main())


def keeping(loop: asyncio.AbstractEventLoop, held: asyncio.Event) -> Answered:
    """What keeps the answers to sends, and says that there is one."""

    def answered(request: Command, _answer: Command) -> None:
        if request.code in SENDS:
            loop.call_soon_threadsafe(held.set)
            raise Swallowed

    return answered


@pytest.mark.parametrize("fails", [False, True], ids=["every attempt succeeds", "all fail"])
def test_a8_golden_table_of_brokers(site: Site, fails: bool) -> None:
    if fails:
        refuse_everything(site.tap(NORTH))
        refuse_everything(site.tap(SOUTH))

    async def main() -> None:
        async with lab(site, retries=1, latency={NORTH: 30.0, SOUTH: 50.0}) as sends:
            found = [await sends.tried(site.topic) for _ in range(10)]
        if fails:
            assert found == [[NORTH] * 2, [SOUTH, NORTH], *[[NORTH] * 2] * 8]
        else:
            assert found == [[NORTH], [SOUTH], *[[NORTH]] * 8]

    run(main())


# --- one face for all of it -----------------------------------------------------------------------


def test_a9_facade_and_selectors_of_users(site: Site) -> None:
    producer, ring = site.producer(), site.queues()
    for key in ("order-1", "order-2", "äöü", 7):
        number = java_hash(key) if isinstance(key, str) else key
        expected = ring[abs(number) % len(ring)] if number >= 0 else None
        receipts = [
            producer.send(site.topic, b"hello", selector=select_by_hash, argument=key)
            for _ in range(2)
        ]
        assert len({receipt.queue for receipt in receipts}) == 1
        assert expected in (None, receipts[0].queue)
        assert producer.send(site.topic, b"hello", order_key=key).queue == receipts[0].queue

    def last(queues: object, message: Message, argument: object) -> MessageQueue:
        assert (list(queues), message.body, argument) == (ring, b"mine", 3)  # type: ignore[call-overload]
        return ring[-1]

    assert producer.send(site.topic, b"mine", selector=last, argument=3).queue == ring[-1]
    anywhere = select_at_random(Random(1))
    some = {producer.send(site.topic, b"hello", selector=anywhere).queue for _ in range(20)}
    assert len(some) > 2
    for room, broker in (("north", NORTH), ("south", SOUTH)):
        near = select_in_rooms([room], RoundRobin(Random(1), start=0))
        taken = [producer.send(site.topic, b"hello", selector=near).queue for _ in range(4)]
        assert taken == site.queues(brokers=[broker])
    far = select_in_rooms(["west"], RoundRobin(Random(1), start=0))
    assert producer.send(site.topic, b"hello", selector=far).queue in ring

    async def main() -> None:
        async with site.async_producer(group=f"{site.group}-async") as other:
            assert isinstance(other.producing.choice, QueueChoice)
            assert isinstance(other.producing.engine, Engine)

    run(main())
