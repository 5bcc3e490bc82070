"""Message ids: months, clocks that step back, counters that wrap, and texts that are no ids."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gantrymq.errors import InvalidInput
from gantrymq.wire import message_id
from gantrymq.wire.message_id import UniqueIds

IPV4 = bytes((10, 1, 2, 3))
DAY_MS = 24 * 3600 * 1000


def month_start(ms: int) -> int:
    """The first of the month in UTC; what a caller would do in local time."""
    then = datetime.fromtimestamp(ms / 1000, UTC)
    return round(datetime(then.year, then.month, 1, tzinfo=UTC).timestamp() * 1000)


def at(*when: int) -> int:
    return round(datetime(*when, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc]


class Clock:
    def __init__(self, *when: int) -> None:
        self.ms = at(*when)

    def __call__(self) -> int:
        return self.ms


def ids_at(clock: Clock) -> UniqueIds:
    return UniqueIds(IPV4, 0x12345, -1, clock, month_start)


def test_an_id_says_who_and_when() -> None:
    clock = Clock(2024, 2, 29, 12)
    parts = message_id.parse_unique_id(ids_at(clock).next())
    assert (parts.ip, parts.process, parts.loader_hash) == (IPV4, 0x2345, 0xFFFF_FFFF)
    assert parts.month_ms == 28 * DAY_MS + DAY_MS // 2
    assert parts.born_ms(clock.ms + 5, month_start) == clock.ms


def test_ids_count_up_and_the_counter_wraps() -> None:
    ids = ids_at(Clock(2024, 1, 1))
    seen = [message_id.parse_unique_id(ids.next()).counter for _ in range(65_538)]
    assert seen[:2] == [0, 1]
    assert seen[-3:] == [65_535, 0, 1]


@pytest.mark.parametrize(
    ("last", "first"),
    [((2024, 1, 31, 23, 59), (2024, 2, 1)), ((2024, 12, 31, 23), (2025, 1, 1))],
)
def test_a_new_month_counts_from_its_own_beginning(
    last: tuple[int, ...], first: tuple[int, ...]
) -> None:
    clock = Clock(*last)
    ids = ids_at(clock)
    before = message_id.parse_unique_id(ids.next())
    clock.ms = at(*first)
    assert message_id.parse_unique_id(ids.next()).month_ms == 0
    assert before.month_ms == at(*last) - month_start(at(*last))
    assert before.born_ms(at(*first) + 1000, month_start) == at(*last)


def test_the_end_of_a_long_month_does_not_fit_a_signed_int() -> None:
    clock = Clock(2024, 1, 31, 23)
    parts = message_id.parse_unique_id(ids_at(clock).next())
    assert parts.month_ms > 2**31
    assert parts.born_ms(clock.ms + 1, month_start) == clock.ms


@pytest.mark.parametrize(
    ("back_ms", "written"),
    [(1, 0), (999_999, 0), (1_000_000, 2**32 - 1_000_000), (DAY_MS, 2**32 - DAY_MS)],
)
def test_a_clock_set_back_into_the_month_before(back_ms: int, written: int) -> None:
    clock = Clock(2024, 3, 1)
    ids = ids_at(clock)
    clock.ms -= back_ms
    assert message_id.parse_unique_id(ids.next()).month_ms == written


def test_a_time_ahead_of_the_reader_belongs_to_the_month_before() -> None:
    parts = message_id.parse_unique_id(ids_at(Clock(2024, 2, 20)).next())
    assert parts.born_ms(at(2024, 3, 5), month_start) == at(2024, 2, 20)
    assert parts.born_ms(at(2024, 2, 20), month_start) == at(2024, 1, 20)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has 0 characters"),
        ("0" * 31, "has 31 characters; ids have 32"),
        ("0" * 40, "has 40 characters"),
        ("G" * 32, "not hexadecimal"),
        ("00 " * 10 + "00", "not hexadecimal"),
        ("\N{FULLWIDTH DIGIT ONE}" * 32, "not hexadecimal"),
    ],
)
def test_texts_that_are_no_ids_are_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        message_id.parse_unique_id(text)
    with pytest.raises(InvalidInput, match=said):
        message_id.parse_offset_id(text)


def test_small_letters_are_read_too() -> None:
    text = "0a09080700002a9f0000000000001000"
    assert message_id.parse_offset_id(text).log_offset == 4096
    assert str(message_id.parse_offset_id(text)) == text.upper()


def test_an_address_of_no_known_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match="address of 5 bytes"):
        UniqueIds(bytes(5), 1, 1, Clock(2024, 1, 1), month_start)
