from __future__ import annotations

import random
from asyncio import CancelledError

import pytest

from gantrymq.errors import (
    CallTimeout,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    InvalidInput,
    ReplyError,
)
from gantrymq.rules.retry import RETRIED_CODES, Mode, ReconnectPauses, SendRetries


@pytest.mark.parametrize(
    ("mode", "queue_given", "attempts"),
    [("sync", False, 3), ("async", False, 3), ("oneway", False, 1), ("sync", True, 1)],
)
def test_attempts(mode: Mode, queue_given: bool, attempts: int) -> None:
    assert SendRetries().attempts(mode, queue_given=queue_given) == attempts


def test_each_mode_has_its_own_number_of_retries() -> None:
    retries = SendRetries(retries=0, async_retries=5)
    assert [retries.attempts(mode) for mode in ("sync", "async", "oneway")] == [1, 6, 1]


@pytest.mark.parametrize("error", [ConnectFailed("x"), ConnectionLost("x"), CallTimeout("x")])
def test_transport_errors_are_tried_again(error: Exception) -> None:
    assert SendRetries().covers(error)


def test_answers_are_tried_again_by_their_code() -> None:
    tried_again = {code for code in range(2000) if SendRetries().covers(ReplyError.for_code(code))}
    assert tried_again == {17, 14, 1, 2, 16, 204, 205, 1500} == RETRIED_CODES


def test_the_codes_agree_with_what_the_errors_say_of_themselves() -> None:
    said = {code for code in range(2000) if ReplyError.for_code(code).retriable}
    assert said == RETRIED_CODES | {215}, "who reads too fast asks the same broker again"


def test_the_codes_can_be_set() -> None:
    retries = SendRetries(codes={13})
    assert retries.covers(ReplyError.for_code(13))
    assert not retries.covers(ReplyError.for_code(1))


@pytest.mark.parametrize(
    "error",
    [CancelledError(), KeyboardInterrupt(), InvalidInput("x"), ClosedError("x"), KeyError()],
)
def test_the_rest_is_raised_at_once(error: BaseException) -> None:
    assert not SendRetries().covers(error)


def test_an_attempt_gets_what_is_left_of_the_time() -> None:
    budget = SendRetries().start(100.0, 3.0, "sync")
    assert budget.next_attempt(100.0) == 3.0
    assert budget.next_attempt(102.5) == 0.5
    assert not budget.exhausted
    assert budget.next_attempt(103.0) == 0.0
    assert budget.exhausted


def test_there_is_no_attempt_after_the_time() -> None:
    budget = SendRetries().start(100.0, 3.0, "sync")
    budget.next_attempt(100.0)
    with pytest.raises(CallTimeout, match=r"3\.250s are gone of 3\.000s after 1 of 3 attempts"):
        budget.next_attempt(103.25)
    assert budget.made == 1


def test_a_cap_holds_for_all_attempts_but_the_last() -> None:
    budget = SendRetries(longest_attempt=1.0).start(100.0, 3.0, "sync")
    assert budget.next_attempt(100.0) == 1.0
    assert budget.next_attempt(101.0) == 1.0
    assert budget.next_attempt(101.5) == 1.5
    assert SendRetries(longest_attempt=1.0).start(100.0, 3.0, "oneway").next_attempt(100.0) == 3.0
    assert SendRetries(longest_attempt=5.0).start(100.0, 3.0, "sync").next_attempt(101.0) == 2.0


def test_reconnect_pauses_double_up_to_a_limit(chance: random.Random) -> None:
    steady = ReconnectPauses(jitter=0.0)
    assert [steady.pause(failures, chance) for failures in range(5)] == [0, 0.1, 0.2, 0.4, 0.8]
    assert steady.pause(10, chance) == 51.2
    assert steady.pause(11, chance) == steady.pause(10**9, chance) == 60.0


def test_a_random_part_of_a_pause_is_left_out(chance: random.Random) -> None:
    pauses = [ReconnectPauses().pause(1000, chance) for _ in range(1000)]
    assert 30.0 < min(pauses) < 31.0
    assert 59.0 < max(pauses) <= 60.0
