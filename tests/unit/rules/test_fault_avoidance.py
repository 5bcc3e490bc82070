from __future__ import annotations

import random
from asyncio import CancelledError
from itertools import product
from typing import TYPE_CHECKING

import pytest

from gantrymq.errors import (
    BrokerFailure,
    CallTimeout,
    ClosedError,
    ConfigError,
    ConnectFailed,
    MessageIllegal,
)
from gantrymq.rules.fault_avoidance import (
    BACK_OFF,
    BackOff,
    FaultAvoidance,
    FaultItem,
    FaultVersion,
    Outcome,
    Verdict,
    outcome_of,
    verdict_on,
)
from gantrymq.rules.turns import RoundRobin

if TYPE_CHECKING:
    from conftest import HandClock

# Golden table 3 of the mission (row A7), and semantics 7.4 for both versions; milliseconds.
PAUSES_4X = {
    0: 0,
    49: 0,
    50: 0,
    99: 0,
    100: 0,
    549: 0,
    550: 30_000,
    999: 30_000,
    1000: 60_000,
    1999: 60_000,
    2000: 120_000,
    2999: 120_000,
    3000: 180_000,
    14_999: 180_000,
    15_000: 600_000,
    10**9: 600_000,
}
PAUSES_5X = {
    0: 0,
    99: 0,
    549: 0,
    550: 2_000,
    1799: 2_000,
    1800: 5_000,
    2999: 5_000,
    3000: 6_000,
    4999: 6_000,
    5000: 10_000,
    14_999: 10_000,
    15_000: 30_000,
}


@pytest.mark.parametrize(("latency_ms", "pause_ms"), PAUSES_4X.items())
def test_golden_table_3(latency_ms: int, pause_ms: int) -> None:
    assert BACK_OFF["4.x"].pause(latency_ms / 1000) * 1000 == pause_ms


@pytest.mark.parametrize(("latency_ms", "pause_ms"), PAUSES_5X.items())
def test_pauses_of_5x(latency_ms: int, pause_ms: int) -> None:
    assert BACK_OFF["5.x"].pause(latency_ms / 1000) * 1000 == pause_ms


@pytest.mark.parametrize(("version", "pause"), [("4.x", 600.0), ("5.x", 10.0)])
def test_a_failure_counts_as_a_long_latency(version: FaultVersion, pause: float) -> None:
    assert BACK_OFF[version].pause_after(0.001, failed=True) == pause
    assert BACK_OFF[version].pause_after(0.001, failed=False) == 0


def test_a_back_off_of_ones_own_has_to_be_a_rising_table() -> None:
    with pytest.raises(ConfigError, match="2 latencies, 1 pauses"):
        BackOff(latencies=(1, 2), pauses=(3,), failure_latency=2, only_longer=True)
    with pytest.raises(ConfigError, match=r"have to rise: \(2, 1\)"):
        BackOff(latencies=(2, 1), pauses=(3, 4), failure_latency=2, only_longer=True)


@pytest.fixture
def faults(clock: HandClock, chance: random.Random) -> FaultAvoidance:
    return FaultAvoidance(
        clock, chance, back_off=BACK_OFF["4.x"], turns=RoundRobin(chance, start=0)
    )


def test_an_unknown_broker_is_available_and_reachable(faults: FaultAvoidance) -> None:
    assert faults.available("nobody")
    assert faults.reachable("nobody")
    assert faults.pick_one_at_least() is None


def test_a_broker_is_available_from_the_very_moment_its_pause_is_over(
    faults: FaultAvoidance, clock: HandClock
) -> None:
    faults.report("a", 0.6)
    clock.advance(29.999)
    assert not faults.available("a")
    clock.advance(0.001)
    assert faults.available("a")


def test_4x_believes_the_newest_report(faults: FaultAvoidance) -> None:
    faults.report("a", 3.0, failed=True)
    assert not faults.available("a")
    faults.report("a", 0.01)
    assert faults.available("a")


def test_5x_only_makes_a_pause_longer(clock: HandClock, chance: random.Random) -> None:
    faults = FaultAvoidance(clock, chance)
    faults.report("a", 20.0)
    faults.report("a", 0.01)
    faults.report("a", 0.6)
    clock.advance(29.9)
    assert not faults.available("a")
    faults.report("a", 0.01, failed=True)
    clock.advance(9.9)
    assert not faults.available("a")
    clock.advance(0.2)
    assert faults.available("a")


def test_a_forgotten_broker_is_unknown_again(faults: FaultAvoidance) -> None:
    faults.report("a", 1, failed=True, reachable=False)
    faults.forget("a")
    faults.forget("a")
    assert faults.available("a")
    assert faults.reachable("a")


def test_rank_puts_the_available_first_then_the_quicker_then_the_earlier() -> None:
    slow_available = FaultItem("slow but available", 9.0, available_from=5.0)
    quick = FaultItem("quick", 1.0, available_from=20.0)
    earlier = FaultItem("earlier", 2.0, available_from=20.0)
    later = FaultItem("later", 2.0, available_from=30.0)
    ranked = sorted([later, earlier, quick, slow_available], key=lambda item: item.rank(10.0))
    assert ranked == [slow_available, quick, earlier, later]


def test_pick_takes_the_better_half_in_turns(faults: FaultAvoidance) -> None:
    for latency, broker in enumerate("edcba", 1):
        faults.report(broker, latency, failed=True)
    assert [faults.pick_one_at_least() for _ in range(4)] == ["e", "d", "e", "d"]


@pytest.mark.parametrize("brokers", ["a", "ab", "abc"])
def test_pick_takes_the_best_while_the_half_is_0_or_1(faults: FaultAvoidance, brokers: str) -> None:
    for latency, broker in enumerate(brokers, 1):
        faults.report(broker, latency, failed=True)
    assert {faults.pick_one_at_least() for _ in range(5)} == {"a"}


def test_pick_lets_equals_share(faults: FaultAvoidance) -> None:
    for broker in "abcd":
        faults.report(broker, 1.0)
    assert {faults.pick_one_at_least() for _ in range(100)} == set("abcd")


def test_detector_asks_for_each_broker_once_in_an_interval(
    clock: HandClock, chance: random.Random
) -> None:
    faults = FaultAvoidance(clock, chance, probe_interval=2.0)
    faults.report("a", 0.01)
    assert faults.due_for_probe() == ["a"]
    faults.report("b", 0.01)
    clock.advance(1.9)
    assert faults.due_for_probe() == ["b"]
    clock.advance(0.1)
    assert faults.due_for_probe() == ["a"]
    faults.report("a", 0.01)
    assert faults.due_for_probe() == []


def test_an_answered_probe_makes_a_broker_reachable_but_not_available(
    clock: HandClock, chance: random.Random
) -> None:
    faults = FaultAvoidance(clock, chance)
    faults.report("a", 1.0, failed=True, reachable=False)
    assert not faults.reachable("a")
    faults.found_reachable("a")
    faults.found_reachable("never heard of")
    assert faults.reachable("a")
    assert not faults.available("a")
    assert faults.available("never heard of")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, Outcome.ANSWERED),
        (CancelledError(), Outcome.INTERRUPTED),
        (KeyboardInterrupt(), Outcome.INTERRUPTED),
        (ConnectFailed("no"), Outcome.NO_ANSWER),
        (CallTimeout("late"), Outcome.NO_ANSWER),
        (BrokerFailure(1), Outcome.REFUSED),
        (MessageIllegal(13), Outcome.REFUSED),
        (ClosedError("closed"), Outcome.FAILED_HERE),
        (KeyError("bug"), Outcome.FAILED_HERE),
    ],
)
def test_outcome_of_an_error(error: BaseException | None, outcome: Outcome) -> None:
    assert outcome_of(error) is outcome


def test_every_attempt_is_judged_as_row_a8_has_it() -> None:
    isolated = {
        outcome: verdict_on(outcome, version="4.x", probing=probing)
        for outcome, probing in product(Outcome, (False, True))
    }
    assert {outcome for outcome, verdict in isolated.items() if not verdict.failed} == {
        Outcome.ANSWERED,
        Outcome.INTERRUPTED,
    }


@pytest.mark.parametrize(
    ("outcome", "probing", "verdict"),
    [
        (Outcome.ANSWERED, True, Verdict(failed=False, reachable=True)),
        (Outcome.INTERRUPTED, True, Verdict(failed=False, reachable=True)),
        (Outcome.FAILED_HERE, True, Verdict(failed=False, reachable=True)),
        (Outcome.NO_ANSWER, True, Verdict(failed=True, reachable=False)),
        (Outcome.NO_ANSWER, False, Verdict(failed=True, reachable=True)),
        (Outcome.REFUSED, False, Verdict(failed=True, reachable=False)),
    ],
)
def test_verdicts_of_5x(outcome: Outcome, probing: bool, verdict: Verdict) -> None:
    assert verdict_on(outcome, version="5.x", probing=probing) == verdict
