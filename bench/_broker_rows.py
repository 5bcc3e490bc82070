"""What bench/broker.py measures, and what a run of it is to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SIZES: Final = {"100B": 100, "1KiB": 1024, "16KiB": 16 * 1024}
MOST_BYTES: Final = 512 * 2**20
"""Of messages that one round of `consume` reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that is measured."""

    name: str
    what: str
    verb: str
    unit: str
    numbers: tuple[str, ...]
    """What Java tells that goes into the table."""
    threads: int = 1
    batch: int = 1
    window: int = 0
    rate: int = 0
    flush: str = "async"

    @property
    def more_is_better(self) -> bool:
        return self.unit == "/s"

    def told(self, one: Mapping[str, float]) -> str:
        """What is said of a round."""
        return "  ".join(f"{name} {one[name]:,.0f}" for name in self.numbers) + f" {self.unit}"


def _sending(name: str, what: str, verb: str = "sync", **how: Any) -> Row:
    return Row(name=name, what=what, verb=verb, unit="/s", numbers=("rate",), **how)


ROWS: Final = (
    _sending("sync-1", "send and wait, 1 thread"),
    _sending("sync-16", "send and wait, 16 threads", threads=16),
    _sending("async-512", "send, 512 under way", "async", window=512),
    _sending("batch-32", "send 32 in a batch and wait", batch=32),
    _sending("consume", "read with a push consumer", "consume"),
    _sending("flush-16", "send with sync flush, 16 threads", threads=16, flush="sync"),
    Row(
        name="latency",
        what="send to listener, at 5,000/s",
        verb="latency",
        unit="µs",
        numbers=("p50", "p99", "p999"),
        rate=5000,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do."""

    rows: Sequence[Row]
    sizes: Sequence[str]
    sides: Sequence[str]
    rounds: int
    seconds: float
    warm: float
    count: int
    starts: int
    fill: int

    def messages(self, size: int) -> int:
        """How many of that size are read in a round of `consume`."""
        return min(self.count, MOST_BYTES // size)
