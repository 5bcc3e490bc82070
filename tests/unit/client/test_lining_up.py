"""Who is handled first."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from gantrymq.client.lining_up import line_up
from gantrymq.model import ReceivedMessage
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage


def piece(number: int, priority: int | None):
    found = {} if priority is None else {properties.PRIORITY: str(priority)}
    stored = StoredMessage("urgent", b"%d" % number, properties.encode(found))
    return "queue", [ReceivedMessage(stored, "broker-a")]


def rank(one) -> int:
    return one[1][0].priority or 0


def test_those_without_a_priority_wait_as_they_come():
    row, turn = deque(), ("ordered", None)
    given_ = [[piece(1, None), piece(2, None)], [turn], [piece(3, 0)], []]
    for work in given_:
        line_up(row, work)
    assert list(row) == [one for work in given_ for one in work]


def test_a_turn_of_an_ordered_queue_keeps_its_place():
    row, turn = deque(), ("ordered", None)
    for work in ([piece(1, 3)], [turn], [piece(2, 1)]):
        line_up(row, work)
    assert [one[0] for one in row] == ["queue", "queue", "ordered"]


@given(st.lists(st.tuples(st.none() | st.integers(0, 4), st.integers(1, 3)), max_size=30))
def test_the_higher_go_first_and_equals_in_turn(arrivals):
    row, numbers = deque(), iter(range(10_000))
    for priority, size in arrivals:
        line_up(row, [piece(next(numbers), priority) for _ in range(size)])
    found = [(-rank(one), int(one[1][0].body)) for one in row]
    assert found == sorted(found)
