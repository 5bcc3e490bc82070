"""Work that may take long, done a stretch at a time.

Whoever steps it can do other things in between, and need not: `finish` does all of it at once.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """What the work comes to."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value
