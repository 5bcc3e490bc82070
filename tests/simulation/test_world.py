"""Some seeds of the simulation, and mistakes that it has to find; `./dev bench sim` has more."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.world import Broken, run

ROOT = Path(__file__).parents[2]
ELSEWHERE = "from tests.simulation.world import run; print(run({seed}))"
FOUND_BY = {"acknowledge-early": 2, "forget-unlock": 2, "lose-an-end": 1, "two-owners": 2}
"""Seeds that find them."""


@pytest.mark.parametrize("seed", range(8))
def test_promises_hold_under_faults(seed: int) -> None:
    facts = run(seed)
    assert len(facts.acknowledged) > 50
    assert len(facts.events) > 5


def test_a_seed_is_the_same_run_each_time_and_in_each_process() -> None:
    first = run(3)
    assert run(3) == first
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE.format(seed=3)], cwd=ROOT, text=True, check=True,
        env=os.environ | {"PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    assert done.stdout == f"{first}\n"


@pytest.mark.parametrize("name", PLANTED)
def test_mistakes_are_found(name: str) -> None:
    seeds = range(FOUND_BY[name], FOUND_BY[name] + 5)
    with pytest.raises(Broken) as found:
        for seed in seeds:
            with PLANTED[name](Random(seed)):
                run(seed)
    assert found.value.__notes__[0].startswith("seed ")
