"""The main job's books notice what does not agree."""

import pytest

from examples.shopping.books import DEAD, RETRIED, Books, Stored, accounts, judge


def books() -> Books:
    """Ten orders, one of which is on its way; three mails, of which one is dead."""
    kept = Books(orders=10, mails=3, reminders=2)
    kept.handled = {b"%d" % number for number in range(9)}
    kept.mailed, kept.dead = {b"1", b"2"}, {b"3"}
    kept.retries = 1
    kept.paid = kept.booked = {b"1"}
    kept.rolled_back = {b"2"}
    kept.reminded = {b"1"}
    return kept


STORED = Stored(
    messages={"orders": 10, "mails": 3, "payments": 1, "reminders": 1, DEAD: 1, RETRIED: 1},
    waiting={"orders": 1, "mails": 0, "payments": 0, "reminders": 0},
)
ROWS = {"orders": 10, "mails": 3, "payments": 1, "reminders": 1}


def faults(kept: Books, stored: Stored = STORED, rows=ROWS, ended=False, repeated=0) -> list[str]:
    return judge(kept, accounts(kept, stored, rows), ended=ended, repeated_rows=repeated).faults


def test_what_is_under_way_is_in_flight():
    lines = {one.topic: one for one in accounts(books(), STORED, ROWS)}
    assert [one.in_flight for one in lines.values()] == [1, 0, 0, 1]
    assert lines["mails"].dead == 1
    assert faults(books()) == []
    assert STORED.archivable == 16


def test_a_run_that_ended_by_itself_leaves_nothing_in_flight():
    assert faults(books(), ended=True) == ["not everything came to its end in time"]
    kept = books()
    kept.handled.add(b"9")
    kept.reminded.add(b"2")
    messages = {**STORED.messages, "reminders": 2}
    stored = Stored(messages=messages, waiting=dict.fromkeys(STORED.waiting, 0))
    assert faults(kept, stored, {**ROWS, "reminders": 2}, ended=True) == []


def test_a_lost_message_is_noticed():
    kept = books()
    kept.handled.discard(b"3")
    assert faults(kept) == ["orders: 10 sent, but 8 consumed + 0 dead-lettered + 1 in flight"]


@pytest.mark.parametrize(("rows", "ended", "wrong"), [(9, True, 2), (9, False, 0), (11, False, 1)])
def test_rows_are_compared_with_what_is_stored(rows, ended, wrong):
    found = faults(books(), rows={**ROWS, "orders": rows}, ended=ended)
    assert len(found) == wrong
    assert not wrong or f"orders: {rows} rows in Parquet of 10 stored messages" in found


def test_what_came_out_of_order_or_twice_or_against_a_rollback_is_told():
    kept = books()
    kept.disordered = 2
    kept.booked = {b"1", b"2"}
    kept.paid = {b"1", b"2"}
    stored = Stored(messages={**STORED.messages, "payments": 2}, waiting=STORED.waiting)
    assert faults(kept, stored, {**ROWS, "payments": 2}, repeated=4) == [
        "2 orders came out of their customer's order",
        "1 payments were booked although they were rolled back",
        "4 rows are in Parquet more than once",
    ]
