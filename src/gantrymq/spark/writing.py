"""The sink: what Spark's writing tasks do, and what follows when all of them have ended.

A task ends when brokers have stored every row of it. A task that Spark runs again sends all of its
rows again, and so does a micro-batch that is repeated after a crash: at least once. Every message
carries the property `SPARK_ROW`, by which a reader can tell a repeat: the query, the batch, the
partition and the row's number in it, which are the same in each run.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from gantrymq.client.identity import own_ip
from gantrymq.errors import ConfigError, GantryError, SendFailed
from gantrymq.net.lending import BlockingRuntime
from gantrymq.runtime import Runtime, run_blocking
from gantrymq.spark.options import Options, SinkOptions
from gantrymq.spark.reading import freeze, pool_of
from gantrymq.spark.rows import LIMIT, Gathering, Row, Rows, check_schema, request_of
from gantrymq.spark.shipping import Frame, Shipper, wire_topic
from gantrymq.wire.javahash import java_hash, java_remainder

_LOCALHOST = "127.0.0.1"


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    partition: int
    rows: int


class TaskWriter:
    """Writes the rows of one task; what travels to the workers."""

    def __init__(self, options: Options, sink: SinkOptions) -> None:
        self._config = options.client
        self._sink = sink

    def write(self, records: Iterator[pa.RecordBatch], run: str, partition: int) -> Written:
        """Send every row; `run` is the query and the batch."""
        freeze()
        try:
            return run_blocking(self._write(records, f"{run}:{partition}", partition))
        except GantryError as error:
            failed = SendFailed(f"partition {partition} of {run}: {error}")
            failed.__dict__.update(getattr(error, "__dict__", {}))
            raise failed from error

    async def _write(self, records: Iterator[pa.RecordBatch], key: str, partition: int) -> Written:
        sink = self._sink
        address = own_ip(self._config, _LOCALHOST)
        rows = Rows(sink.topic, key if sink.row_keys else None, address, LIMIT)
        shipper = Shipper(
            BlockingRuntime(pool_of(self._config)),
            self._config,
            timeout=sink.send_timeout,
            first=zlib.crc32(key.encode()),  # the same queues in turn when it is run again
        )
        pace = Pace(shipper.runtime, sink.max_rows_per_second)
        count = 0
        try:
            gathered: dict[tuple[str, int | None], Gathering] = {}
            for record in pace.parts(records):
                await pace.keep(count)
                for row in rows.of(record):
                    count += 1
                    await self._take(shipper, gathered, row)
            for (topic, shard), gathering in gathered.items():
                await self._ship(shipper, topic, shard, gathering.empty())
            await pace.keep(count)
            await shipper.settle()
        finally:
            await shipper.close()
        return Written(partition, count)

    async def _take(
        self, shipper: Shipper, gathered: dict[tuple[str, int | None], Gathering], row: Row
    ) -> None:
        shard = None
        if row.shard:
            queues = await shipper.queues(row.topic)
            shard = abs(java_remainder(java_hash(row.shard), len(queues)))
        way = row.topic, shard
        gathering = gathered.get(way)
        if gathering is None:
            gathering = gathered[way] = Gathering()
        if row.single:
            await self._ship(shipper, row.topic, shard, gathering.empty())
            await self._ship(shipper, row.topic, shard, [row])
        elif full := gathering.take(row, self._sink.batch_bytes):
            await self._ship(shipper, row.topic, shard, full)

    async def _ship(
        self, shipper: Shipper, topic: str, shard: int | None, rows: Sequence[Row]
    ) -> None:
        if rows:
            request = request_of(rows, self._sink.group, wire_topic(self._config, topic))
            await shipper.ship(Frame(topic, request, rows[0].number, len(rows), shard))


class BatchWriter(DataSourceArrowWriter):
    """Writes a data frame."""

    def __init__(
        self, options: Options, sink: SinkOptions, schema: StructType, *, overwrite: bool
    ) -> None:
        if overwrite:
            raise ConfigError(
                'topics cannot be overwritten: write with .mode("append"), which adds to them'
            )
        check_schema(schema, sink.topic)
        self._tasks = TaskWriter(options, sink)
        self._run = f"{uuid4()}:0"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        return self._tasks.write(iterator, self._run, _context().partitionId())


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(
        self, options: Options, sink: SinkOptions, schema: StructType, *, overwrite: bool
    ) -> None:
        if overwrite:
            raise ConfigError(
                'topics cannot be overwritten: write with .outputMode("append"), or what'
                " complete mode gives in foreachBatch"
            )
        check_schema(schema, sink.topic)
        self._tasks = TaskWriter(options, sink)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task."""
        context = _context()
        query = context.getLocalProperty("sql.streaming.queryId")
        batch = context.getLocalProperty("streaming.sql.batchId")
        return self._tasks.write(iterator, f"{query}:{batch}", context.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was written is there."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was written stays, and readers tell it from its repetition."""


class Pace:
    """Holds a task back that is quicker than it may be."""

    def __init__(self, runtime: Runtime, rate: int | None) -> None:
        self._runtime = runtime
        self._rate = rate
        self._begun = runtime.now()

    def parts(self, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records in pieces of a tenth of a second."""
        if self._rate is None:
            yield from records
            return
        step = max(1, self._rate // 10)
        for record in records:
            for at in range(0, len(record), step):
                yield record.slice(at, step)

    async def keep(self, done: int) -> None:
        """Wait until so many rows may have been sent."""
        if self._rate is not None:
            early = self._begun + done / self._rate - self._runtime.now()
            if early > 0:
                await self._runtime.sleep(early)


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConfigError("rows are written in Spark's tasks only")
    return context
