"""The short form of `./dev bench torn`, and the kinds of damage one by one."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.crashes.torn import torn_rounds


def test_what_is_before_the_damage_is_served_and_what_it_hit_is_not(tmp_path: Path) -> None:
    counts = torn_rounds(tmp_path, 60, Random(3), per_sample=30, messages=250)
    assert sum(count for name, count in counts.items() if "cut" in name) > 10
