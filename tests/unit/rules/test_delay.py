from __future__ import annotations

from datetime import timedelta

import pytest

from gantrymq.errors import ConfigError, InvalidInput
from gantrymq.rules.delay import (
    DELAY_LEVELS,
    POP_PAUSES,
    REVIVE_PAUSES,
    DelayLevels,
    GrowingPauses,
    ListedPauses,
    orderly_pause,
    pop_pause,
    retry_level,
)

# Semantics 7.3.
SECONDS = [1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200]


def test_the_eighteen_levels() -> None:
    assert [DELAY_LEVELS.delay(level) for level in range(1, 19)] == SECONDS
    assert DELAY_LEVELS.highest == 18


@pytest.mark.parametrize(("level", "seconds"), [(-1, 0), (0, 0), (19, 7200), (1000, 7200)])
def test_levels_outside_the_list(level: int, seconds: int) -> None:
    assert DELAY_LEVELS.delay(level) == seconds


def test_a_list_of_ones_own() -> None:
    assert DelayLevels.parse("  2s 3m\t1h 1d ").seconds == (2, 180, 3600, 86400)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "messageDelayLevel is empty"),
        ("1s 5x", r"level 2 is '5x'; it has to be a number with one of the units s, m, h, d"),
        ("1s 5", "level 2 is '5'"),
        ("s", "level 1 is 's'"),
        ("-1s", "level 1 is '-1s'"),
        ("1.5s", r"level 1 is '1\.5s'"),
    ],
)
def test_a_list_that_cannot_be_read(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        DelayLevels.parse(text)


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (timedelta(0), 0),
        (timedelta(milliseconds=1), 1),
        (timedelta(seconds=1), 1),
        (timedelta(seconds=1.001), 2),
        (timedelta(minutes=5), 9),
        (timedelta(minutes=11), 15),
        (timedelta(hours=2), 18),
    ],
)
def test_the_level_for_a_delay_is_never_too_short(delay: timedelta, level: int) -> None:
    assert DELAY_LEVELS.level_for(delay) == level


def test_the_level_for_a_delay_in_a_list_that_does_not_rise() -> None:
    levels = DelayLevels.parse("1h 1s 30s")
    assert [levels.level_for(timedelta(seconds=s)) for s in (1, 2, 31)] == [2, 3, 1]


def test_a_delay_that_no_level_has() -> None:
    with pytest.raises(InvalidInput, match="longest of the 18 levels waits 2:00:00"):
        DELAY_LEVELS.level_for(timedelta(hours=2, seconds=1))
    with pytest.raises(InvalidInput, match="cannot be negative: -1 day"):
        DELAY_LEVELS.level_for(timedelta(seconds=-1))


def test_a_message_that_always_fails_is_delivered_seventeen_times() -> None:
    pauses, failed_before = [], 0
    while (level := retry_level(failed_before)) is not None:
        pauses.append(DELAY_LEVELS.delay(level))
        failed_before += 1
    assert pauses == SECONDS[2:]
    assert failed_before + 1 == 17


def test_a_consumer_may_ask_for_a_level_or_give_up() -> None:
    assert retry_level(5, asked=1) == 1
    assert retry_level(0, asked=-1) is None
    assert retry_level(16, asked=1) is None
    assert retry_level(3, max_retries=3) is None
    assert retry_level(2, max_retries=3) == 5


def test_an_orderly_consumer_tries_on_the_spot_for_ever_or_so_often() -> None:
    assert {orderly_pause(failed) for failed in range(1000)} == {1.0}
    assert [orderly_pause(failed, max_retries=3) for failed in range(4)] == [1.0, 1.0, 1.0, None]
    assert orderly_pause(0, pause=0) == 0.01
    assert orderly_pause(0, pause=3600) == 30.0


def test_pop_pauses() -> None:
    assert [pop_pause(failed) for failed in range(4)] == [10, 30, 60, 120]
    assert pop_pause(500) == 7200
    assert pop_pause(0, asked=2) == 60
    assert len(POP_PAUSES) == 16
    assert REVIVE_PAUSES[:4] == (10, 20, 30, 60)
    assert len(REVIVE_PAUSES) == 17


def test_a_group_with_listed_pauses_starts_at_the_third() -> None:
    assert [ListedPauses().pause(failed) for failed in range(17)] == [*SECONDS[2:], 7200]
    assert [ListedPauses((1, 2)).pause(failed) for failed in (-1, 0, 9)] == [2, 2, 2]
    with pytest.raises(ConfigError, match="at least one pause"):
        ListedPauses(())


def test_a_group_with_growing_pauses() -> None:
    assert [GrowingPauses().pause(failed) for failed in (-1, 0, 1, 2, 10, 11, 1000)] == [
        *(5, 5, 10, 20, 5120, 7200, 7200)
    ]
    assert GrowingPauses(first=1, longest=1e9, factor=2).pause(40) == 1e9
    assert GrowingPauses(first=1, longest=1e12, factor=2).pause(40) == 2**32
    assert GrowingPauses(first=1, factor=1e300).pause(40) == 7200
