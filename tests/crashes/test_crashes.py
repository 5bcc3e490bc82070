"""The short form of `./dev bench crash`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from random import Random

import pytest

from tests.crashes.decided import Decided
from tests.crashes.load import Load
from tests.crashes.plain import Plain
from tests.crashes.rounds import kill_rounds, power_rounds
from tests.crashes.timed import Timed
from tests.support import run_on

LIMIT = 100.0


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "gantrymq")


def timed(random: Random) -> Timed:
    return Timed(random, longest=2.0)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.parametrize("make", [Plain, Decided, timed])
def test_a_broker_that_is_killed_keeps_what_it_promised(make: Callable[[Random], Load]) -> None:
    load = make(Random(1))
    done = run_on("uvloop", kill_rounds(load, 3, Random(1), longest=0.4), limit=LIMIT)
    assert done["kills"] >= 3
    assert load.journal


@pytest.mark.parametrize("make", [Plain, Decided, timed])
def test_without_power_a_broker_keeps_what_it_promised(make: Callable[[Random], Load]) -> None:
    done = run_on("uvloop", power_rounds(make, 6, Random(2), per_disk=6), limit=LIMIT)
    assert done["disk operations"] > 100
