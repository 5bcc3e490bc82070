"""The short form of `./dev bench fuzz`: a few thousand damaged frames and buffers."""

from __future__ import annotations

import os
from random import Random

from bench import fuzz

SEED = int(os.environ.get("GANTRY_SEED", "20260"))


def test_damaged_frames_give_values_or_our_error() -> None:
    outcome = list(
        fuzz.run(fuzz.read_frames, fuzz.frame_samples(Random(SEED)), 10_000, Random(SEED))
    )
    assert 0 < sum(understood > 0 for _, understood in outcome) < len(outcome)
    assert 0 < sum(refused for refused, _ in outcome) < len(outcome)


def test_damaged_buffers_give_values_or_our_error() -> None:
    samples = fuzz.stored_samples(Random(SEED))
    outcome = list(fuzz.run(fuzz.read_buffer, samples, 2_000, Random(SEED)))
    assert 0 < sum(understood > 0 for _, understood in outcome) < len(outcome)


def test_every_kind_of_damage_changes_something() -> None:
    sample = bytes(range(256))
    for damage in fuzz.DAMAGES:
        results = set()
        for seed in range(20):
            data = bytearray(sample)
            damage(Random(seed), data)
            results.add(bytes(data))
        assert len(results) > 1, damage.__name__
