"""The sink: what Spark's writing tasks do, and what follows when all of them have ended.

A task ends when brokers have stored every row of it. A task that Spark runs again sends all of its
rows again, and so does a micro-batch that is repeated after a crash: at least once. Every message
carries the property `SPARK_ROW`, by which a reader can tell a repeat: the query, the batch, the
partition and the row's number in it, which are the same in each run. With `exactlyOnce` nobody sees
a row before its whole batch is decided on (`halves`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from gantrymq.client.config import ClientConfig
from gantrymq.client.identity import own_ip
from gantrymq.errors import ConfigError, GantryError, InvalidInput, SendFailed
from gantrymq.net.lending import BlockingRuntime
from gantrymq.runtime import Runtime, run_blocking
from gantrymq.spark.halves import Commits, Half, half_of, half_request
from gantrymq.spark.options import Options, SinkOptions
from gantrymq.spark.reading import freeze, pool_of
from gantrymq.spark.rows import LIMIT, Gathering, Row, Rows, check_schema, request_of
from gantrymq.spark.shipping import Frame, Shipper, wire_topic
from gantrymq.wire.javahash import java_hash, java_remainder

_LOCALHOST: Final = "127.0.0.1"
_HALVES_AHEAD: Final = 16


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What one task wrote."""

    partition: int
    rows: int
    run: str = ""
    halves: tuple[Half, ...] = ()
    """What is still to be committed, where nobody is to see half of a batch."""


class TaskWriter:
    """Writes the rows of tasks, and ends what they began; what travels to the workers."""

    def __init__(self, options: Options, sink: SinkOptions) -> None:
        self._config = options.client
        self._sink = sink

    def write(self, records: Iterator[pa.RecordBatch], run: str, partition: int) -> Written:
        """Send every row; `run` is the query and the batch."""
        freeze()
        try:
            if self._sink.exactly_once:
                return run_blocking(self._write_halves(records, run, partition))
            return run_blocking(Task(self._config, self._sink, run, partition).write(records))
        except GantryError as error:
            failed = SendFailed(f"partition {partition} of {run}: {error}")
            failed.__dict__.update(getattr(error, "__dict__", {}))
            raise failed from error

    def commit(self, run: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have ended well."""
        if self._sink.exactly_once:
            run_blocking(self._end(run, _halves(messages), commits=True))

    def abort(self, run: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some task has not, or the commit failed."""
        if self._sink.exactly_once:
            run_blocking(self._end(run, _halves(messages), commits=False))

    async def _write_halves(
        self, records: Iterator[pa.RecordBatch], run: str, partition: int
    ) -> Written:
        commits = self._commits()
        task = Task(self._config, self._sink, run, partition)
        try:
            if await commits.find(run) is not None:
                return Written(partition, 0)  # all was sent before a crash, and decided on
            return await task.write(records)
        except BaseException:
            await commits.forget(task.halves())
            raise
        finally:
            await commits.close()

    async def _end(self, run: str, halves: Sequence[Half], *, commits: bool) -> None:
        found = self._commits()
        try:
            await (found.commit(run, halves) if commits else found.roll_back(run, halves))
        finally:
            await found.close()

    def _commits(self) -> Commits:
        sink = self._sink
        runtime = BlockingRuntime(pool_of(self._config))
        return Commits(runtime, self._config, sink.commit_topic, sink.group, sink.send_timeout)


def _halves(messages: Sequence[WriterCommitMessage | None]) -> list[Half]:
    return [half for one in messages if isinstance(one, Written) for half in one.halves]


class Task:
    """One run of one task."""

    def __init__(self, config: ClientConfig, sink: SinkOptions, run: str, partition: int) -> None:
        self._config = config
        self._sink = sink
        self._partition = partition
        key = f"{run}:{partition}"
        self._rows = Rows(
            sink.topic, key if sink.row_keys else None, own_ip(config, _LOCALHOST), LIMIT
        )
        self._runtime = BlockingRuntime(pool_of(config))
        self._shipper = Shipper(
            self._runtime,
            config,
            timeout=sink.send_timeout,
            first=zlib.crc32(key.encode()),  # the same queues in turn when it is run again
            depth=_HALVES_AHEAD if sink.exactly_once else 1,
        )
        self._gathered: dict[tuple[str, int | None], Gathering] = {}
        self._sent: list[Frame] = []

    async def write(self, records: Iterator[pa.RecordBatch]) -> Written:
        """Send every row, and return when all are stored."""
        pace = Pace(self._runtime, self._sink.max_rows_per_second)
        count = 0
        try:
            for record in pace.parts(records):
                await pace.keep(count)
                for row in self._rows.of(record):
                    count += 1
                    await self._take(row)
            for (topic, shard), gathering in self._gathered.items():
                await self._ship(topic, shard, gathering.empty())
            await pace.keep(count)
            await self._shipper.settle()
        finally:
            await self._shipper.close()
        return Written(self._partition, count, halves=tuple(self.halves()))

    def halves(self) -> list[Half]:
        """The half messages that are stored, so far."""
        return [half_of(one.stored, one.request) for one in self._sent if one.stored is not None]

    async def _take(self, row: Row) -> None:
        shard = None
        if row.shard or row.shard == 0:
            count = len(await self._shipper.queues(row.topic))
            shard = (
                row.shard % count
                if isinstance(row.shard, int)
                else abs(java_remainder(java_hash(row.shard), count))
            )
        if self._sink.exactly_once:
            await self._ship_half(row, shard)
            return
        gathering = self._gathered.get((row.topic, shard))
        if gathering is None:
            gathering = self._gathered[row.topic, shard] = Gathering()
        if row.single:
            await self._ship(row.topic, shard, gathering.empty())
            await self._ship(row.topic, shard, [row])
        elif full := gathering.take(row, self._sink.batch_bytes):
            await self._ship(row.topic, shard, full)

    async def _ship(self, topic: str, shard: int | None, rows: Sequence[Row]) -> None:
        if rows:
            request = request_of(rows, self._sink.group, wire_topic(self._config, topic))
            await self._shipper.ship(Frame(topic, request, rows[0].number, len(rows), shard))

    async def _ship_half(self, row: Row, shard: int | None) -> None:
        if row.single:
            raise InvalidInput(
                f"row {row.number:,}: a message cannot be delivered later and exactly once"
            )
        group = self._sink.group
        request = request_of([row], group, wire_topic(self._config, row.topic))
        frame = Frame(row.topic, half_request(request, group), row.number, 1, shard)
        self._sent.append(frame)
        await self._shipper.ship(frame)


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

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have ended well."""
        self._tasks.commit(self._run, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Some task has not."""
        self._tasks.abort(self._run, messages)


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
        batch = context.getLocalProperty("streaming.sql.batchId")
        run = f"{context.getLocalProperty('sql.streaming.queryId')}:{batch}"
        written = self._tasks.write(iterator, run, context.partitionId())
        return replace(written, run=run)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """All tasks have ended well; may be called again for a batch that is committed."""
        if run := _run_of(messages):
            self._tasks.commit(run, messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        """Some task has not, or the commit failed, maybe after it had done its work."""
        if run := _run_of(messages):
            self._tasks.abort(run, messages)


def _run_of(messages: Sequence[WriterCommitMessage | None]) -> str:
    """The query and batch that tasks wrote for; the driver is not told the query."""
    return next((one.run for one in messages if isinstance(one, Written)), "")


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
