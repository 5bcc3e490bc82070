"""Reads an archive as a stream: hour by hour, in the original order, so many messages at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from gantrymq.flows.reading import Stretch
from gantrymq.spark import planning
from gantrymq.spark.offsets import Positions, from_json, to_json
from gantrymq.spark.pipelines.archive_index import (
    Chosen,
    Hour,
    Index,
    Part,
    Run,
    next_end,
    read_runs,
    runs,
)
from gantrymq.spark.reading import freeze
from gantrymq.spark.schema import arrow_schema

__all__ = ["ArchiveReplay", "Chosen"]

_CHUNK: Final = 10_000
_IDLE: Final = 1.0


class Runs(InputPartition):
    """What one task reads."""

    def __init__(self, hours: Sequence[Hour], wanted: Sequence[Run]) -> None:
        super().__init__(None)
        self.hours = tuple(hours)
        self.wanted = tuple(wanted)


class ArchiveReplay(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what an archive has, and then what it gets."""

    def __init__(
        self, root: Path, chosen: Chosen, schema: StructType, *, most: int, tasks: int
    ) -> None:
        self._root = root
        self._chosen = chosen
        self._schema = arrow_schema(schema)
        self._most = most
        self._tasks = tasks
        self._made: Index | None = None
        self._seen: list[Part] | None = None
        self._ends_early = False

    @property
    def _index(self) -> Index:
        if self._made is None:
            self._made = Index(self._root, self._chosen)
        return self._made

    def _parts(self) -> list[Part]:
        """What there is, settled at the first look where the query is to end with it."""
        if self._seen is None or not self._ends_early:
            self._seen = self._index.parts()
            self._index.forget()
        return self._seen

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where each queue begins."""
        return to_json(_starts(self._parts()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """So many messages."""
        return ReadMaxRows(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """From now on end with what is there when the first micro-batch is made."""
        self._ends_early = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends."""
        at, parts = from_json(start, "the query's offsets"), self._parts()
        if isinstance(limit, ReadAllAvailable):
            return to_json(at | _ends(parts))
        end = next_end(self._index, parts, at, self._most)
        if end == at and not self._ends_early:
            time.sleep(_IDLE)
        return to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues, as they were found last."""
        return to_json(_ends(self._seen)) if self._seen else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What each task of a micro-batch reads: whole queues."""
        if self._seen is None:  # after a restart this is the first thing that Spark asks
            self._parts()
        first, last = from_json(start, "offsets"), from_json(end, "offsets")
        hours, found = runs(self._index, self._seen or (), first, last)
        by_queue = {run.queue: run for run in found}
        stretches = [Stretch(run.queue, 0, run.rows) for run in found]
        groups = planning.whole(stretches, self._tasks)
        return [Runs(hours, [by_queue[one.queue] for one in group]) for group in groups]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        freeze()
        if not isinstance(partition, Runs):
            return
        names = self._schema.names
        table = read_runs(self._root, partition.hours, partition.wanted, self._chosen, names)
        columns = [
            table.column(field.name).cast(field.type)
            if field.name in table.schema.names
            else pa.nulls(table.num_rows, field.type)
            for field in self._schema
        ]
        whole = pa.Table.from_arrays(columns, schema=self._schema)
        yield from whole.to_batches(max_chunksize=_CHUNK)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept anywhere but in the checkpoint."""

    def stop(self) -> None:
        """Nothing is held open."""


def _starts(parts: Sequence[Part]) -> Positions:
    found: Positions = {}
    for part in parts:
        found[part.queue] = min(part.start, found.get(part.queue, part.start))
    return found


def _ends(parts: Sequence[Part]) -> Positions:
    found: Positions = {}
    for part in parts:
        found[part.queue] = max(part.end, found.get(part.queue, part.end))
    return found
