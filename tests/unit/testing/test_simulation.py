"""Scenarios of users under simulation: good handlers pass, bad ones are found and repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from gantrymq.testing import Faults, Simulation, simulate
from gantrymq.testing.simulation import NONE, SEED


def publish(sim: Simulation, count: int = 6, **how: str) -> None:
    for number in range(count):
        sim.publish("orders", b"%d" % number, keys=f"order-{number}", **how)


def test_a_handler_that_remembers_what_it_did_passes() -> None:
    def scenario(sim: Simulation) -> None:
        booked: dict[str, int] = {}
        publish(sim)
        sim.consume(lambda message: booked.update({message.keys[0]: 1}))
        assert sum(booked.values()) == 6

    simulate(scenario, runs=50)


def counting(sim: Simulation) -> None:
    booked: Counter[str] = Counter()
    publish(sim)
    sim.consume(lambda message: booked.update(message.keys))
    total = sum(booked.values())
    assert total == 6, sorted(booked.items())


def test_one_that_counts_twice_is_found_and_its_seed_repeats_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(AssertionError) as found:
        simulate(counting, runs=50)
    (note,) = found.value.__notes__
    seed = int(note.split()[2].rstrip(":"))
    assert note.startswith(f"with seed {seed}: simulate(counting, seed={seed}) repeats it")
    with pytest.raises(AssertionError) as again:
        simulate(counting, seed=seed)
    monkeypatch.setenv(SEED, str(seed))
    with pytest.raises(AssertionError) as once_more:
        simulate(counting)
    assert str(found.value) == str(again.value) == str(once_more.value)


def test_without_faults_everything_comes_once() -> None:
    simulate(counting, runs=20, faults=NONE)


def test_an_await_in_the_middle_may_be_the_last() -> None:
    def scenario(sim: Simulation) -> None:
        debits = credits = 0

        async def transfer(message: object) -> None:
            nonlocal debits, credits
            debits += 1
            await asyncio.sleep(1)
            credits += 1

        publish(sim)
        sim.consume(transfer)
        assert debits == credits

    with pytest.raises(AssertionError, match=r"assert \d+ == \d+"):
        simulate(scenario, runs=50)
    simulate(scenario, runs=50, faults=Faults(cut_off=0))


def test_order_is_kept_within_a_queue() -> None:
    def scenario(sim: Simulation) -> None:
        seen: list[int] = []
        publish(sim, 10, order_key="one customer")
        sim.consume(lambda message: seen.append(int(message.body)), ordered=True)
        firsts = list(dict.fromkeys(seen))
        assert firsts == sorted(firsts) == list(range(10))

    simulate(scenario, runs=50)


def test_failures_are_retried_and_then_given_up() -> None:
    def scenario(sim: Simulation) -> None:
        tries: Counter[int] = Counter()

        def handle(message: object) -> None:
            number = int(message.body)  # type: ignore[attr-defined]
            tries[number] += 1
            if number == 3 or (number == 4 and message.retries < 2):  # type: ignore[attr-defined]
                raise ValueError("no")

        publish(sim)
        sim.consume(handle, max_retries=4)
        assert [letter.body for letter in sim.dead_letters] == [b"3"]
        assert tries[3] == 5
        assert tries[4] >= 3

    simulate(scenario, runs=30)


def test_a_new_process_begins_with_nothing() -> None:
    def scenario(sim: Simulation) -> None:
        table: dict[str, bytes] = {}  # lasts
        caches: list[dict[str, bytes]] = []

        def start() -> object:
            cache: dict[str, bytes] = {}
            caches.append(cache)

            def handle(message: object) -> None:
                assert set(cache) <= set(table)
                table[message.keys[0]] = cache[message.keys[0]] = message.body  # type: ignore[attr-defined]

            return handle

        publish(sim)
        sim.consume(start(), restart=start)  # type: ignore[arg-type]
        assert len(table) == 6
        assert len(caches) == sim.crashes + 1

    simulate(scenario, runs=50)


def test_clocks_jump_both_ways() -> None:
    moves: list[float] = []

    def scenario(sim: Simulation) -> None:
        publish(sim)
        times = [sim.now()]
        sim.consume(lambda message: times.append(sim.now()))
        moves.extend((b - a).total_seconds() for a, b in pairwise(times))

    simulate(scenario, runs=50)
    assert min(moves) < -60
    assert max(moves) > 60
