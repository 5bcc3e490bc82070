from __future__ import annotations

from gantrymq.store.ages import TRUSTED_AFTER, AgeClock

START_MS = 1_700_000_000_000


class Clocks:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.set_by = 0.0
        self.said: list[str] = []
        self.ages = AgeClock(self.wall_ms, lambda: self.seconds, self.said.append)

    def wall_ms(self) -> int:
        return START_MS + int((self.seconds + self.set_by) * 1000)

    def age_after(self, seconds: float, *, set_by: float = 0) -> float:
        """Seconds that messages of the start count as old."""
        self.seconds += seconds
        self.set_by += set_by
        return (self.ages.now_ms() - START_MS) / 1000


def test_messages_age_as_time_goes_by() -> None:
    clocks = Clocks()
    assert [clocks.age_after(10), clocks.age_after(100_000)] == [10, 100_010]
    assert clocks.said == []


def test_small_corrections_count_at_once() -> None:
    clocks = Clocks()
    assert clocks.age_after(10, set_by=500) == 510
    assert clocks.age_after(10, set_by=-400) == 120


def test_a_jump_ahead_counts_when_it_has_lasted_for_a_day() -> None:
    clocks = Clocks()
    assert clocks.age_after(10, set_by=1_000_000) == 10
    assert "went ahead by 1000000 s at once" in clocks.said[0]
    assert clocks.age_after(TRUSTED_AFTER - 1) == TRUSTED_AFTER + 9
    assert clocks.age_after(1) == TRUSTED_AFTER + 10 + 1_000_000
    assert len(clocks.said) == 1


def test_a_jump_that_is_taken_back_never_counts() -> None:
    clocks = Clocks()
    clocks.age_after(10, set_by=1_000_000)
    assert clocks.age_after(10, set_by=-1_000_000) == 20
    assert clocks.age_after(2 * TRUSTED_AFTER) == 2 * TRUSTED_AFTER + 20


def test_a_jump_back_makes_messages_younger() -> None:
    clocks = Clocks()
    clocks.age_after(100_000)
    assert clocks.age_after(0, set_by=-50_000) == 50_000
