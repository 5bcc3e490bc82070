"""Finds what this package's sink has written more than once into a queue.

A row that is sent again carries the same `SPARK_ROW`: the run that it belongs to, and its number
there. A task that is run again sends the same rows to the same queues, so in each queue a row that
was seen before is a repeat. Rows come in long runs of numbers that follow each other, so what was
seen is kept as intervals, a few for each run however many rows it has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from gantrymq.client.arrow import Rows
from gantrymq.flows.reading import Piece
from gantrymq.model import MessageQueue
from gantrymq.spark.rows import SPARK_ROW


class Numbers:
    """A set of numbers, of which most follow each other."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, number: int) -> bool:
        """Put a number in; whether it was not there before."""
        at = bisect_right(self._starts, number) - 1
        if at >= 0 and number < self._ends[at]:
            return False
        joins = at >= 0 and self._ends[at] == number
        meets = at + 1 < len(self._starts) and self._starts[at + 1] == number + 1
        if joins and meets:
            self._ends[at] = self._ends.pop(at + 1)
            del self._starts[at + 1]
        elif joins:
            self._ends[at] = number + 1
        elif meets:
            self._starts[at + 1] = number
        else:
            self._starts.insert(at + 1, number)
            self._ends.insert(at + 1, number + 1)
        return True

    def __len__(self) -> int:
        return sum(self._ends) - sum(self._starts)


class Repeats:
    """What was seen in each queue."""

    def __init__(self) -> None:
        self._seen: dict[tuple[MessageQueue, str], Numbers] = {}

    def fresh(
        self, rows: Rows, pieces: Sequence[Piece], queues: Sequence[MessageQueue]
    ) -> pa.Array | None:
        """Which messages are no repeats, None if none is; they count as seen from now on."""
        keys = rows.property(SPARK_ROW)
        if keys.null_count == len(keys):
            return None
        found = np.ones(len(keys), bool)
        texts = keys.to_pylist()
        at = 0
        for piece, count in zip(pieces, rows.counts.tolist(), strict=True):
            queue = queues[piece.number]
            for row in range(at, at + count):
                text = texts[row]
                if text is not None:
                    found[row] = self._is_new(queue, text)
            at += count
        return None if found.all() else pa.array(found)

    def _is_new(self, queue: MessageQueue, text: str) -> bool:
        run, _, number = text.rpartition(":")
        if not number.isdecimal():
            return True  # somebody else's property of that name
        seen = self._seen.get((queue, run))
        if seen is None:
            seen = self._seen[queue, run] = Numbers()
        return seen.add(int(number))
