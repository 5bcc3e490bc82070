"""The source of a replay: a time range of topics, or an archive, in the original order.

The format `rocketmq` shares a large queue among tasks, and moves on in all queues at the same time;
so does not this one. With `order=queue` the messages of a queue are read by one task. With
`order=key` a micro-batch has what was stored up to some moment, whatever the queue, and one task
reads it in the order of storing: whatever belongs together keeps its order, also across queues.

Where a replay is, is kept as an offset for each queue, of topics and of archives alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType

from gantrymq.errors import ConfigError
from gantrymq.flows.reading import Stretch
from gantrymq.model import MessageQueue
from gantrymq.spark import planning
from gantrymq.spark.offsets import Positions, from_json, parse_time, to_json
from gantrymq.spark.options import Options, check_source, parse
from gantrymq.spark.pipelines.archive_reading import ArchiveReplay, Chosen
from gantrymq.spark.pipelines.ordering import in_original_order
from gantrymq.spark.reading import Ranges
from gantrymq.spark.schema import COLUMNS, schema_of
from gantrymq.spark.streaming import StreamReader

NAME: Final = "gantry_replay"
ORDERS: Final = ("queue", "key")
_OWN: Final = ("archive", "order", "tasks", "endingtimestamp")
_ARCHIVES_NOT: Final = ("tags", "sql", "queues", "startingoffsets", "startingoffsetsbytimestamp")
_ROWS: Final = 100_000
_CHUNK: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """What there is to a replay beside what the format `rocketmq` knows."""

    order: str = "queue"
    tasks: int = 1
    until: datetime | None = None


class ReplayDataSource(DataSource):
    """`format("gantry_replay")`, for streaming queries that read.

    Options are those of the format `rocketmq`, and `archive` (a directory, instead of topics),
    `order` (queue, key), `tasks` and `endingTimestamp`.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        told = {name.lower(): str(text) for name, text in options.items()}
        own: dict[str, str] = {name: told.pop(name) for name in _OWN if name in told}
        self._archive = own.get("archive")
        self._how = _how(own)
        self._options = parse(told)

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """All columns of messages."""
        return schema_of(list(COLUMNS))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Who reads."""
        if self._archive:
            return self._of_archive(Path(self._archive), schema)
        check_source(self._options, streaming=True)
        return TopicReplay(self._options, schema, self._how)

    def _of_archive(self, root: Path, schema: StructType) -> DataSourceStreamReader:
        source = self._options.source
        for name in _ARCHIVES_NOT:
            if name in self._options.given:
                raise ConfigError(f"option {name} is for topics, and this reads archive {root}")
        start = source.starting_timestamp
        topics = (source.topic,) if source.topic else source.topics
        chosen = Chosen(
            topics=frozenset(topics),
            pattern=source.topic_pattern,
            start=parse_time(start, "startingTimestamp") if start else None,
            end=self._how.until,
        )
        tasks = 1 if self._how.order == "key" else self._how.tasks
        most = source.max_offsets_per_trigger or _ROWS
        return ArchiveReplay(root, chosen, schema, most=most, tasks=tasks)


def _how(own: Mapping[str, str]) -> How:
    order, tasks = own.get("order", "queue"), own.get("tasks") or str(planning.cores())
    if order not in ORDERS:
        raise ConfigError(f"option order: {order!r} is not one of {', '.join(ORDERS)}")
    if not tasks.isdecimal() or int(tasks) < 1:
        raise ConfigError(f"option tasks: {tasks!r} is no number of tasks")
    until = own.get("endingtimestamp")
    at = parse_time(until, "endingTimestamp") if until else None
    return How(order=order, tasks=int(tasks), until=at)


class TopicReplay(StreamReader):
    """Reads topics in their original order, up to a time."""

    def __init__(self, options: Options, schema: StructType, how: How) -> None:
        super().__init__(options, schema)
        self._how = how
        self._before = 0
        """Milliseconds since 1970 up to which everything has been read, as far as is known."""

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the replay ends, once that is known."""
        return to_json(self._until) if self._until else super().reportLatestOffset()

    def _bounded(self, at: Positions, ends: Positions) -> Positions:
        if self._how.until is None:
            return ends
        cut = self._at(self._how.until, ends)
        return {queue: max(at.get(queue, 0), min(end, cut[queue])) for queue, end in ends.items()}

    def _limited(self, at: Positions, ends: Positions, limit: ReadLimit) -> Positions:
        most = self._source.max_offsets_per_trigger
        whole = most is None or isinstance(limit, ReadAllAvailable)
        if self._how.order == "queue" or whole or _count(at, ends) <= (most or 0):
            return super()._limited(at, ends, limit)
        found = self._up_to_a_moment(at, ends, most or 0)
        return found if _count(at, found) else super()._limited(at, ends, limit)

    def _up_to_a_moment(self, at: Positions, ends: Positions, most: int) -> Positions:
        """What was stored before the latest moment that has no more than so many messages.

        Or a millisecond later, where that has none: there are more of a single millisecond.
        """

        def before(moment: int) -> Positions:
            when = datetime.fromtimestamp(moment / 1000, UTC)
            cut = self._at(when, ends)
            return {q: max(at[q], min(end, cut[q])) for q, end in ends.items()}

        little, much = self._before, round(datetime.now(UTC).timestamp() * 1000) + 1
        while much - little > 1:
            middle = (little + much) // 2
            if _count(at, before(middle)) <= most:
                little = middle
            else:
                much = middle
        self._before = little
        found = before(little)
        return found if _count(at, found) else before(much)

    def _at(self, when: datetime, queues: Positions) -> Positions:
        cluster = self._watch.cluster
        answers = cluster.run(cluster.at_times(dict.fromkeys(queues, when)))
        if answers.failures:
            raise next(iter(answers.failures.values()))
        return answers.found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Whole queues for each task, or all of them for one."""
        self._watch.know()
        first, last = from_json(start, "offsets"), from_json(end, "offsets")
        stretches = [
            Stretch(queue, first[queue], upto)
            for queue, upto in last.items()
            if first.get(queue, upto) < upto
        ]
        tasks = 1 if self._how.order == "key" else self._how.tasks
        cluster = self._watch.cluster
        wire = {one.queue: cluster.wire(one.queue) for one in stretches}
        addresses = {one.queue.broker: cluster.addresses(one.queue.broker) for one in stretches}
        return [
            Ranges(planning.shares(group, wire, addresses))
            for group in planning.whole(stretches, tasks)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of one task."""
        if self._how.order == "queue":
            return super().read(partition)
        return sorted_batches(list(super().read(partition)))


def sorted_batches(records: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in their original order."""
    if records:
        table = in_original_order(pa.Table.from_batches(records))
        yield from table.to_batches(max_chunksize=_CHUNK)


def _count(at: Mapping[MessageQueue, int], ends: Mapping[MessageQueue, int]) -> int:
    return sum(max(0, end - at.get(queue, end)) for queue, end in ends.items())
