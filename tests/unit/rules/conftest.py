from __future__ import annotations

import random

import pytest


class HandClock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def chance() -> random.Random:
    return random.Random(20240229)
