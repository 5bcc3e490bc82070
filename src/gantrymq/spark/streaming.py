"""Reads on and on: how much the next micro-batch has, and what each of its tasks reads.

All of this but `read` runs in one process at the driver for as long as the query does. Spark asks
`latestOffset` again and again, without a pause when it has nothing else to do; so where nothing is
new the answer takes its time, in a wait that ends with the first message.

Offsets are Spark's, in its checkpoint. A queue that appears gets its place in them first, in a
micro-batch that reads nothing of it, so that it is known for good where its reading began.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from gantrymq.flows.reading import Stretch
from gantrymq.model import MessageQueue
from gantrymq.spark import bounding
from gantrymq.spark.offsets import Positions, from_json, to_json
from gantrymq.spark.options import Options
from gantrymq.spark.reading import Ranges
from gantrymq.spark.tasks import task_reader
from gantrymq.spark.watching import Watch

_OFFSETS: Final = "the query's offsets"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what there is, and then what comes."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._source = options.source
        self._tasks = task_reader(options, schema)
        self._watched: Watch | None = None
        self._initial: Positions | None = None
        self._until: Positions | None = None
        """Where to end, when the query is to read what is there now and then stop."""
        self._ends_early = False
        self._triggered_at: float | None = None

    @property
    def _watch(self) -> Watch:
        if self._watched is None:
            self._watched = Watch(self._options)
        return self._watched

    # --- offsets ----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins; the same however often it is asked."""
        if self._initial is None:
            self._initial = self._watch.initial()
        return to_json(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What Spark hands back to `latestOffset` unless it wants everything at once."""
        source = self._source
        if source.max_offsets_per_trigger is not None:
            return ReadMaxRows(source.max_offsets_per_trigger)
        if source.max_bytes_per_trigger is not None:
            return ReadMaxBytes(source.max_bytes_per_trigger)
        if source.min_offsets_per_trigger is not None:
            return ReadMinRows(source.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on end with what is there when the first micro-batch is made."""
        self._ends_early = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends."""
        at = from_json(start, _OFFSETS)
        if self._ends_early:
            return to_json(self._up_to_the_end(at, limit))
        ends = self._watch.go_on(at)
        if ends == at:
            self._watch.wait(at, self._source.idle_wait)
            ends = self._watch.go_on(at)
        if not isinstance(limit, ReadAllAvailable) and self._too_few(at, ends):
            return start
        return to_json(self._limited(at, ends, limit))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues, as they were found last."""
        return to_json(self._watch.ends) if self._watch.ends else None

    def _up_to_the_end(self, at: Positions, limit: ReadLimit) -> Positions:
        if self._until is None:
            ends = self._watch.every_end(at)
            # what is new begins with its oldest message, and goes up to its newest
            new = {queue: self._watch.ends[queue] for queue in ends if queue not in at}
            self._until = self._bounded(at, ends | new)
            if ends.keys() != at.keys():
                return {queue: at.get(queue, ends[queue]) for queue in ends}
        ends = {queue: self._until.get(queue, offset) for queue, offset in at.items()}
        return self._limited(at, ends, limit)

    def _bounded(self, at: Positions, ends: Positions) -> Positions:  # noqa: ARG002
        """Where to end, of what is there now: at the end."""
        return ends

    # --- how much ---------------------------------------------------------------------------------

    def _too_few(self, at: Positions, ends: Positions) -> bool:
        """Whether to wait for more before the next micro-batch is made."""
        least, now = self._source.min_offsets_per_trigger, time.monotonic()
        if least is not None and self._triggered_at is not None:
            left = self._triggered_at + self._source.max_trigger_delay - now
            if left > 0 and sum(_sizes(at, ends).values()) < least and ends.keys() == at.keys():
                self._watch.sleep(min(left, self._source.idle_wait))
                return True
        if ends != at or self._triggered_at is None:
            self._triggered_at = now
        return False

    def _limited(self, at: Positions, ends: Positions, limit: ReadLimit) -> Positions:
        if isinstance(limit, ReadAllAvailable):
            return ends
        sizes = _sizes(at, ends)
        most = self._source.max_offsets_per_trigger
        if self._source.max_bytes_per_trigger is not None and sizes:
            size = self._watch.message_size({queue: at[queue] for queue in sizes})
            if size is not None:
                fit = max(1, int(self._source.max_bytes_per_trigger / size))
                most = fit if most is None else min(most, fit)
        if most is None or sum(sizes.values()) <= most:
            return ends
        shares = prorated(sizes, most)
        return {
            queue: at[queue] + shares[queue] if queue in shares else end
            for queue, end in ends.items()
        }

    # --- reading ----------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What each task of a micro-batch reads."""
        self._watch.know()  # after a restart this is the first thing that Spark asks
        first, last = from_json(start, _OFFSETS), from_json(end, _OFFSETS)
        stretches = [
            Stretch(queue, first[queue], upto)
            for queue, upto in last.items()
            if first.get(queue, upto) < upto
        ]
        found = bounding.cut(self._watch.cluster, stretches, self._source)
        return [Ranges(shares) for shares in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        if not isinstance(partition, Ranges):
            return iter(())
        return self._tasks.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept anywhere but in the checkpoint; groups are told by the listener."""

    def stop(self) -> None:
        """Leave."""
        if self._watched is not None:
            self._watched.close()
            self._watched = None


def _sizes(at: Positions, ends: Positions) -> dict[MessageQueue, int]:
    """How much each queue has, of those that have anything."""
    return {queue: end - at[queue] for queue, end in ends.items() if end > at.get(queue, end)}


def prorated(sizes: Mapping[MessageQueue, int], most: int) -> dict[MessageQueue, int]:
    """Shares of `most`, by size; what is left by rounding goes to where rounding took most."""
    total = sum(sizes.values())
    if total <= most:
        return dict(sizes)
    shares = {queue: size * most // total for queue, size in sizes.items()}
    by_rest = sorted(sizes, key=lambda queue: (-(sizes[queue] * most % total), queue))
    for queue in by_rest[: most - sum(shares.values())]:
        shares[queue] += 1
    return shares
