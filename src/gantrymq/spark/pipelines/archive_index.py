"""What is in an archive: which hours have which offsets of which queues, and in which order.

Files come and go under a reader, since they are compacted. So nothing here hangs on a file: what
is to be read is named by queue, offsets and hour, and counted. Files are listed while the archive's
log stands still, and one that is gone when it is opened means that they are listed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gantrymq.errors import ConfigError, StoreError
from gantrymq.model import MessageQueue
from gantrymq.spark.offsets import Positions
from gantrymq.spark.pipelines.archive_log import LOG, ArchiveLog
from gantrymq.spark.pipelines.ordering import LOG as LOG_PLACE
from gantrymq.spark.pipelines.ordering import QUEUE, TIME, codes, in_original_order, ints

T = TypeVar("T")

PLACES: Final = ("broker", "queue_id", "queue_offset", TIME, LOG_PLACE)
_TRIES: Final = 5
_FAR: Final = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Which messages of an archive are wanted; all of them, if nothing else is said."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    start: datetime | None = None
    end: datetime | None = None

    def wants(self, hour: Hour) -> bool:
        """Whether something in that hour may be."""
        if self.topics and hour.topic not in self.topics:
            return False
        if self.pattern and not re.fullmatch(self.pattern, hour.topic):
            return False
        late = self.start is not None and hour.at + timedelta(hours=1) <= self.start
        return not late and (self.end is None or hour.at < self.end)

    def of(self, table: pa.Table) -> pa.Table:
        """Those of the rows that are."""
        for border, keeps in ((self.start, pa.compute.greater_equal), (self.end, pa.compute.less)):
            if border is not None:
                table = table.filter(keeps(table.column(TIME), pa.scalar(border, table[TIME].type)))
        return table


class Hour(NamedTuple):
    """A topic's hour."""

    at: datetime
    topic: str
    place: str
    """Its directory, below the archive."""


class Part(NamedTuple):
    """What an hour has of a queue."""

    hour: Hour
    queue: MessageQueue
    start: int
    end: int


class Run(NamedTuple):
    """Messages of a queue: how many there are between two offsets, in certain hours."""

    queue: MessageQueue
    start: int
    end: int
    rows: int


class Rows:
    """Messages, and to which queue each belongs."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        _, first, self._which = np.unique(
            codes(table, QUEUE), return_index=True, return_inverse=True
        )
        rows = table.select(list(QUEUE)).take(pa.array(first)).to_pylist()
        self._queues = [MessageQueue(*(row[name] for name in QUEUE)) for row in rows]

    def within(self, ranges: Mapping[MessageQueue, tuple[int, int]]) -> pa.Table:
        """Those that are in these ranges."""
        borders = [ranges.get(queue, (0, 0)) for queue in self._queues]
        starts, ends = np.array(borders, np.int64).reshape(-1, 2).T
        offsets = ints(self.table, "queue_offset")
        after, before = starts[self._which] <= offsets, offsets < ends[self._which]
        return self.table.filter(pa.array(after & before))


class Index:
    """An archive's hours."""

    def __init__(self, root: Path, chosen: Chosen) -> None:
        self._root = root
        self._chosen = chosen
        self._of_file: dict[str, list[Part]] = {}
        self._places: tuple[tuple[str, ...], Rows] | None = None
        if not (root / LOG).is_dir():
            raise ConfigError(f"{root} is no archive: there is no {LOG} in it")

    def parts(self) -> list[Part]:
        """What there is now, each queue in each hour."""
        return _again(self._parts)

    def _parts(self) -> list[Part]:
        with ArchiveLog(self._root).changing():  # all of an entry's files, or none of them
            hours = [hour for hour in hours_of(self._root) if self._chosen.wants(hour)]
            files = {hour: sorted((self._root / hour.place).glob("*.parquet")) for hour in hours}
        known, self._of_file = self._of_file, {}
        for hour, paths in files.items():
            for path in paths:
                name = str(path)
                self._of_file[name] = known.get(name) or self._scan(hour, path)
        return [part for parts in self._of_file.values() for part in parts]

    def _scan(self, hour: Hour, path: Path) -> list[Part]:
        table = self._chosen.of(_read(path, PLACES))
        found = table.group_by(["broker", "queue_id"]).aggregate([
            ("queue_offset", "min"), ("queue_offset", "max"),
        ])  # fmt: skip
        names = ("broker", "queue_id", "queue_offset_min", "queue_offset_max")
        rows = zip(*(found.column(name).to_pylist() for name in names), strict=True)
        return [
            Part(hour, MessageQueue(hour.topic, broker, queue_id), first, last + 1)
            for broker, queue_id, first, last in rows
        ]

    def places(self, hours: Sequence[Hour]) -> Rows:
        """Queue, offset and time of all that is wanted in those hours, in the original order."""
        key = tuple(hour.place for hour in hours)
        if self._places is None or self._places[0] != key:
            tables = _again(lambda: [self._placed(hour) for hour in hours])
            self._places = key, Rows(in_original_order(_joined(tables)))
        return self._places[1]

    def _placed(self, hour: Hour) -> pa.Table:
        return self._chosen.of(read_hour(self._root, hour, PLACES))

    def forget(self) -> None:
        """Have hours looked at anew: they may have grown."""
        self._places = None


def next_end(index: Index, parts: Sequence[Part], at: Positions, most: int) -> Positions:
    """Where a batch ends that begins at those positions, and has so many messages at most."""
    left = [part for part in parts if part.end > at.get(part.queue, 0)]
    for moment in sorted({part.hour.at for part in left}):
        ranges = _reachable(left, at, moment)
        hours = sorted({p.hour for p in left if p.hour.at <= moment and p.queue in ranges})
        rows = index.places(hours).within(ranges) if ranges else None
        if rows is not None and rows.num_rows:
            return at | _ends_of(rows.slice(0, most))
    return at


def _reachable(
    left: Iterable[Part], at: Positions, moment: datetime
) -> dict[MessageQueue, tuple[int, int]]:
    """What queues have up to an hour: all before the first offset that a later hour has.

    A broker's clock that was set back puts offsets into an earlier hour than those before them.
    """
    ends: dict[MessageQueue, int] = {}
    stops: dict[MessageQueue, int] = {}
    for part in left:
        queue = part.queue
        if part.hour.at <= moment:
            ends[queue] = max(part.end, ends.get(queue, 0))
        else:
            stops[queue] = min(part.start, stops.get(queue, _FAR))
    found = {
        queue: (at.get(queue, 0), min(end, stops.get(queue, _FAR))) for queue, end in ends.items()
    }
    return {queue: (start, end) for queue, (start, end) in found.items() if start < end}


def runs(
    index: Index, parts: Sequence[Part], start: Positions, end: Positions
) -> tuple[list[Hour], list[Run]]:
    """What lies between two positions: in which hours, and how much of each queue."""
    ranges = {q: (start.get(q, 0), upto) for q, upto in end.items() if start.get(q, 0) < upto}
    hours = sorted({
        part.hour
        for part in parts
        if part.queue in ranges
        and part.start < ranges[part.queue][1] and ranges[part.queue][0] < part.end
    })  # fmt: skip
    if not hours:
        return [], []
    counts = _count(index.places(hours).within(ranges))
    return hours, [Run(queue, *ranges[queue], rows) for queue, rows in sorted(counts.items())]


def read_hour(
    root: Path, hour: Hour, names: Sequence[str], low: int = 0, high: int = _FAR
) -> pa.Table:
    """Those columns of an hour, as far as it has them, and the topic; offsets about those."""
    tables = [
        _read(path, names, [("queue_offset", ">=", low), ("queue_offset", "<", high)])
        for path in sorted((root / hour.place).glob("*.parquet"))
    ]
    if not tables:
        return pa.table({"topic": pa.array([], pa.string())} | {
            "broker": pa.array([], pa.string()), "queue_id": pa.array([], pa.int32()),
            "queue_offset": pa.array([], pa.int64()), TIME: pa.array([], pa.timestamp("us", "UTC")),
        })  # fmt: skip
    table = _joined(tables)
    topics = pa.array([hour.topic] * table.num_rows, pa.string())
    return table.append_column("topic", topics)


def read_runs(
    root: Path, hours: Sequence[Hour], wanted: Sequence[Run], chosen: Chosen, names: Sequence[str]
) -> pa.Table:
    """Those messages in their original order; all of them, or an error."""
    ranges = {run.queue: (run.start, run.end) for run in wanted}
    low, high = min(run.start for run in wanted), max(run.end for run in wanted)
    topics = {queue.topic for queue in ranges}
    asked = tuple(dict.fromkeys((*PLACES, *names)))

    def look() -> pa.Table:
        tables = [read_hour(root, hour, asked, low, high) for hour in hours if hour.topic in topics]
        table = in_original_order(Rows(chosen.of(_joined(tables))).within(ranges))
        counts = _count(table)
        for run in wanted:
            if counts.get(run.queue, 0) != run.rows:
                raise FileNotFoundError(
                    f"archive {root} has {counts.get(run.queue, 0):,} of {run.rows:,} messages of"
                    f" {run.queue} from {run.start:,} up to {run.end:,}"
                )
        return table

    return _again(look)


def hours_of(root: Path) -> list[Hour]:
    """The hours of an archive."""
    found = []
    for place in root.glob("topic=*/date=*/hour=*"):
        topic, date, hour = (part.partition("=")[2] for part in place.parts[-3:])
        at = datetime.fromisoformat(f"{date}T{hour}:00:00").replace(tzinfo=UTC)
        found.append(Hour(at, unquote(topic), str(place.relative_to(root))))
    return sorted(found)


def _read(
    path: Path, names: Sequence[str], only: list[tuple[str, str, int]] | None = None
) -> pa.Table:
    have = pq.read_schema(path).names
    columns = [name for name in names if name in have]
    return pq.read_table(path, columns=columns, filters=only, partitioning=None)


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default")


def _ends_of(rows: pa.Table) -> Positions:
    found = rows.group_by(["topic", "broker", "queue_id"]).aggregate([("queue_offset", "max")])
    names = ("topic", "broker", "queue_id", "queue_offset_max")
    columns = (found.column(name).to_pylist() for name in names)
    return {MessageQueue(*row[:3]): row[3] + 1 for row in zip(*columns, strict=True)}


def _count(rows: pa.Table) -> dict[MessageQueue, int]:
    found = rows.group_by(["topic", "broker", "queue_id"]).aggregate([([], "count_all")])
    names = ("topic", "broker", "queue_id", "count_all")
    columns = (found.column(name).to_pylist() for name in names)
    return {MessageQueue(*row[:3]): row[3] for row in zip(*columns, strict=True)}


def _again(look: Callable[[], T]) -> T:
    """What is found; looked for again where files went away meanwhile."""
    for left in reversed(range(_TRIES)):
        try:
            return look()
        except FileNotFoundError as error:
            if not left:
                raise StoreError(f"files of the archive go away: {error}") from error
    raise AssertionError("unreachable")
