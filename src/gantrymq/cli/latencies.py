"""Latencies counted in buckets, for percentiles and a picture of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from gantrymq.cli.times import span_text
from gantrymq.cli.views import Column, Table

_PER_OCTAVE: Final = 16
"""Buckets between a latency and its double: a percentile is off by at most 2 %."""
_LEAST: Final = 1e-6
_BAR: Final = 40
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)


class Latencies:
    """How often which latency was seen; takes the same room whatever their number."""

    def __init__(self) -> None:
        self.count = 0
        self.most = 0.0
        self.sum = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """One more."""
        bucket = int(math.log2(max(seconds, _LEAST) / _LEAST) * _PER_OCTAVE)
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        self.count += 1
        self.sum += seconds
        self.most = max(self.most, seconds)

    def percentile(self, percent: float) -> float | None:
        """The latency that so many percent did not exceed."""
        if not self.count:
            return None
        rank, seen = math.ceil(self.count * percent / 100), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= rank:
                return min(self.most, _LEAST * 2 ** ((bucket + 0.5) / _PER_OCTAVE))
        return self.most

    def facts(self) -> list[tuple[Column, Any]]:
        """Mean, percentiles and the largest."""
        mean = self.sum / self.count if self.count else None
        found: list[tuple[Column, Any]] = [(Column("mean", "span"), mean)]
        for percent in PERCENTILES:
            name = f"p{percent:g}"
            found.append((Column(name, "span"), self.percentile(percent)))
        return [*found, (Column("max", "span"), self.most if self.count else None)]

    def histogram(self) -> Table:
        """A picture, by doubling."""
        octaves: dict[int, int] = {}
        for bucket, count in self._buckets.items():
            octaves[bucket // _PER_OCTAVE] = octaves.get(bucket // _PER_OCTAVE, 0) + count
        most = max(octaves.values(), default=1)
        rows = [
            {
                "up_to": span_text(_LEAST * 2 ** (octave + 1)),
                "count": octaves.get(octave, 0),
                "share": octaves.get(octave, 0) / self.count,
                "bar": "█" * math.ceil(octaves.get(octave, 0) / most * _BAR),
            }
            for octave in _span(sorted(octaves))
        ]
        columns = [Column("up_to"), Column("count", "count"), Column("share", "ratio")]
        return Table([*columns, Column("bar", title=" ")], rows, empty="nothing was measured")


def _span(octaves: Sequence[int]) -> range:
    return range(octaves[0], octaves[-1] + 1) if octaves else range(0)
