from __future__ import annotations

import asyncio
import gc
import random
import threading
from contextvars import Context, copy_context

import pytest

from gantrymq.rules import turns
from gantrymq.rules.turns import PerContext, RoundRobin, position
from gantrymq.wire.javahash import INT_MAX, INT_MIN


def test_counts_from_its_start(chance: random.Random) -> None:
    counter = RoundRobin(chance, start=5)
    assert [counter.next() for _ in range(3)] == [5, 6, 7]


def test_starts_anywhere_in_the_upper_half_of_an_int(chance: random.Random) -> None:
    starts = [RoundRobin(chance).next() for _ in range(1000)]
    assert len(set(starts)) > 990
    assert 0 <= min(starts) < INT_MAX // 10
    assert INT_MAX > max(starts) > INT_MAX // 10 * 9


def test_wraps_as_a_java_int(chance: random.Random) -> None:
    counter = RoundRobin(chance, start=INT_MAX - 1)
    assert [counter.next() for _ in range(4)] == [INT_MAX - 1, INT_MAX, INT_MIN, INT_MIN + 1]


def test_restart_goes_elsewhere() -> None:
    counter = RoundRobin(random.Random(1), start=0)
    counter.restart()
    assert counter.next() == random.Random(1).randrange(INT_MAX)


@pytest.mark.parametrize(
    ("turn", "size", "place"),
    [(0, 8, 0), (9, 8, 1), (-1, 8, 1), (INT_MAX, 8, 7), (INT_MIN, 8, 0), (INT_MIN, 7, 0)],
)
def test_position_is_the_absolute_value_and_0_where_java_has_none(
    turn: int, size: int, place: int
) -> None:
    assert position(turn, size) == place


def test_each_thread_counts_for_itself(chance: random.Random) -> None:
    counter = PerContext(chance)
    here = counter.next()
    there: list[int] = []

    def take_two() -> None:
        there.extend((counter.next(), counter.next()))

    thread = threading.Thread(target=take_two)
    thread.start()
    thread.join()
    assert there[1] == there[0] + 1 != here + 2
    assert counter.next() == here + 1


def test_contexts_that_never_met_count_for_themselves(chance: random.Random) -> None:
    counter = PerContext(chance)
    one, other = copy_context(), copy_context()
    first = one.run(counter.next)
    assert other.run(counter.next) != first + 1
    assert one.run(counter.next) == first + 1


def test_a_context_copied_from_one_that_counts_goes_on_with_its_counter(
    chance: random.Random,
) -> None:
    """Else a hundred tasks started in a row by one sender would all take the same queue."""
    counter = PerContext(chance)

    def a_sender_starts_tasks() -> list[int]:
        return [counter.next(), *(copy_context().run(counter.next) for _ in range(4))]

    taken = copy_context().run(a_sender_starts_tasks)
    assert taken == list(range(taken[0], taken[0] + 5))


def test_each_task_counts_for_itself(chance: random.Random) -> None:
    counter = PerContext(chance)

    async def take_two() -> tuple[int, int]:
        first = counter.next()
        await asyncio.sleep(0)
        return first, counter.next()

    async def three_tasks() -> list[tuple[int, int]]:
        return await asyncio.gather(take_two(), take_two(), take_two())

    taken = asyncio.run(three_tasks())
    assert [second - first for first, second in taken] == [1, 1, 1]
    assert len({first for first, _ in taken}) == 3


def test_restart_moves_only_the_counter_of_this_context(chance: random.Random) -> None:
    counter = PerContext(chance)
    one, other = copy_context(), copy_context()
    before, there = one.run(counter.next), other.run(counter.next)
    one.run(counter.restart)
    assert one.run(counter.next) != before + 1
    assert other.run(counter.next) == there + 1


def test_counters_do_not_outlive_what_they_count_for(chance: random.Random) -> None:
    def come_and_go() -> int:
        for _ in range(50):
            PerContext(chance).next()
        gc.collect()
        kept = turns._COUNTERS.get()
        assert kept is not None
        return len(kept)

    # An empty context: this thread's own may hold counters of servers that other tests keep.
    assert Context().run(come_and_go) == 0
