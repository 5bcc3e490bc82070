"""Some seeds of the simulation, and mistakes that it has to find; `./dev bench sim` has more."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.world import Broken, run

FOUND_BY = {"acknowledge-early": 0, "forget-unlock": 0, "lose-an-end": 27, "two-owners": 0}
"""Seeds that find them."""


@pytest.mark.parametrize("seed", range(8))
def test_promises_hold_under_faults(seed: int) -> None:
    facts = run(seed)
    assert len(facts.acknowledged) > 50
    assert len(facts.events) > 5


@pytest.mark.parametrize("name", PLANTED)
def test_mistakes_are_found(name: str) -> None:
    seeds = range(FOUND_BY[name], FOUND_BY[name] + 5)
    with pytest.raises(Broken) as found:
        for seed in seeds:
            with PLANTED[name](Random(seed)):
                run(seed)
    assert found.value.__notes__[0].startswith("seed ")
