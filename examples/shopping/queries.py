"""The Spark side of the shop: three streaming queries on its topics, in a process of their own.

    python queries.py NAME_SERVER DIRECTORY

`archive` writes every message to Parquet, exactly once. `revenue` adds orders up by the minute.
`health` looks at each micro-batch: how long messages had waited, and how evenly they are spread
over the queues. Whoever starts this writes lines to its input and reads lines of JSON from its
output: `finish N` brings all queries up to what is stored now, until the archive has N rows, and
counts them; `stop`, or the end of the input, stops at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import gantrymq.spark
from gantrymq.spark.pipelines.archiving import NAME as ARCHIVE
from gantrymq.spark.pipelines.archiving import ArchiveDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader

TOPICS: Final = "orders|mails|payments|reminders|%DLQ%mails-desk"
CONF: Final = {
    "spark.ui.enabled": False,
    "spark.ui.showConsoleProgress": False,
    "spark.sql.shuffle.partitions": 2,
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.memory": "1g",
    "spark.log.level": "WARN",
}
COLUMNS: Final = (
    "topic,broker,queue_id,queue_offset,unique_id,keys,tags,body,born_timestamp,store_timestamp"
)
EVERY: Final = {"archive": "2 seconds", "revenue": "3 seconds", "health": "4 seconds"}
_HEALTH: Final = """
    SELECT topic, broker, queue_id, count(*) AS messages,
           percentile_approx(age, array(0.5, 0.99)) AS ages
    FROM (SELECT *, unix_millis(current_timestamp()) - unix_millis(store_timestamp) AS age
          FROM {batch})
    GROUP BY GROUPING SETS ((topic), (topic, broker, queue_id))
"""

_saying = threading.Lock()


def say(event: str, **facts: Any) -> None:
    """A line to whoever started this; nobody is there any more when that fails."""
    line = json.dumps({"event": event, **facts}) + "\n"
    with _saying, contextlib.suppress(BrokenPipeError):
        sys.stdout.write(line)
        sys.stdout.flush()


class Telling(StreamingQueryListener):
    """Tells of every micro-batch that had something, and of queries that fail."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing new."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A micro-batch is finished."""
        progress = event.progress
        if progress.numInputRows:
            seconds = progress.durationMs.get("triggerExecution", 0) / 1000
            say("batch", query=progress.name, rows=progress.numInputRows, seconds=seconds)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Whether in good order or not."""
        if event.exception:
            say("failed", why=event.exception[:2000])


class Queries:
    """The three, running."""

    def __init__(self, spark: SparkSession, name_server: str, directory: Path) -> None:
        self.spark = spark
        self.name_server = name_server
        self.directory = directory
        self.minutes: dict[datetime, tuple[int, int]] = {}
        self.queues: dict[str, int] = {}
        self.running = [self.archive(), self.revenue(), self.health()]

    def read(self, **options: str) -> DataStreamReader:
        """From the first message on, new topics included."""
        return self.spark.readStream.format("rocketmq").options(
            nameServer=self.name_server, startingOffsets="earliest", topicRefresh="1s", **options
        )

    def start(self, name: str, writer: Any) -> StreamingQuery:
        """One query, its place in the stream kept beside the data."""
        where = str(self.directory / "checkpoints" / name)
        query: StreamingQuery = (
            writer.queryName(name)
            .option("checkpointLocation", where)
            .trigger(processingTime=EVERY[name])
            .start()
        )
        return query

    def archive(self) -> StreamingQuery:
        """Every message, as it is, as `gantry pipeline run archive` keeps them."""
        self.spark.dataSource.register(ArchiveDataSource)
        frame = self.read(topicPattern=TOPICS, columns=COLUMNS).load()
        path = str(self.directory / "archive")
        return self.start("archive", frame.writeStream.format(ARCHIVE).option("path", path))

    def revenue(self) -> StreamingQuery:
        """What was ordered in each minute, late orders included."""
        fields = "cents bigint, born_timestamp timestamp"
        orders = self.read(topic="orders", bodyFormat="json").schema(fields).load()
        minutes = (
            orders.withWatermark("born_timestamp", "10 minutes")
            .groupBy(F.window("born_timestamp", "1 minute").start.alias("minute"))
            .agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))
        )
        return self.start(
            "revenue", minutes.writeStream.outputMode("update").foreachBatch(self._add_up)
        )

    def _add_up(self, batch: DataFrame, _number: int) -> None:
        for row in batch.collect():
            self.minutes[row.minute.astimezone(UTC)] = (row.orders, row.cents)
        rows = [
            {"minute": minute, "orders": orders, "cents": cents}
            for minute, (orders, cents) in sorted(self.minutes.items())
        ]
        if rows:
            beside = self.directory / "revenue.parquet.new"
            parquet.write_table(pa.Table.from_pylist(rows), beside)
            beside.replace(self.directory / "revenue.parquet")
        say("revenue", minutes=[[f"{r['minute']:%H:%M}", r["orders"], r["cents"]] for r in rows])

    def health(self) -> StreamingQuery:
        """How old messages are when Spark has them, and how many each queue got."""
        columns = "topic,broker,queue_id,store_timestamp"
        frame = self.read(topicPattern=TOPICS, columns=columns).load()
        return self.start("health", frame.writeStream.foreachBatch(self._look))

    def _look(self, batch: DataFrame, _number: int) -> None:
        ages: dict[str, list[int]] = {}
        for row in batch.sparkSession.sql(_HEALTH, batch=batch).collect():
            if row.broker is None:
                ages[row.topic] = row.ages
            else:
                name = f"{row.topic}[{row.broker}:{row.queue_id}]"
                self.queues[name] = self.queues.get(name, 0) + row.messages
        say("health", ages=ages, queues=self.queues)

    def finish(self, expected: int) -> None:
        """Bring all up to what is stored, stop, and count what is in Parquet."""
        deadline = time.monotonic() + 30
        for query in self.running:
            query.processAllAvailable()
        while expected and sum(self.count().values()) < expected and time.monotonic() < deadline:
            self.running[0].processAllAvailable()
        for query in self.running:
            query.stop()
        rows = self.count()
        say("done", rows=rows, repeated=sum(rows.values()) - self.distinct())

    def archived(self) -> DataFrame | None:
        """What is in Parquet; nothing before the first micro-batch."""
        path = self.directory / "archive"
        return self.spark.read.parquet(str(path)) if any(path.glob("topic=*")) else None

    def count(self) -> dict[str, int]:
        """Rows by topic."""
        frame = self.archived()
        if frame is None:
            return {}
        return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}

    def distinct(self) -> int:
        """Rows without repeats."""
        frame = self.archived()
        place = ("topic", "broker", "queue_id", "queue_offset")
        return 0 if frame is None else frame.select(*place).distinct().count()


def main(name_server: str, directory: Path) -> None:
    """Run until told to end."""
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = gantrymq.spark.session("shop", master="local[2]", conf=CONF)
    spark.streams.addListener(Telling())
    queries = Queries(spark, name_server, directory)
    say("ready")
    for line in sys.stdin:
        word, _, number = line.strip().partition(" ")
        if word == "finish":
            queries.finish(int(number))
        elif word == "stop":
            break
    for query in queries.running:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
