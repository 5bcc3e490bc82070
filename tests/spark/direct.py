"""Source and sink without Spark's JVM: their methods are called as Spark calls them.

Quick enough for what is not about Spark: options, offsets, limits, faults.
"""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType, _parse_datatype_json_string

import gantrymq as gantry
from gantrymq.errors import NoRoute
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.options import check_sink
from gantrymq.spark.writing import TaskWriter, Written


def source(options: dict[str, Any]) -> RocketMQDataSource:
    """What Spark makes of options."""
    texts = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }
    return RocketMQDataSource(CaseInsensitiveDict(texts))


def schema_in(found: RocketMQDataSource, given: StructType | None) -> StructType:
    """The schema of a query, after the way through JSON that it takes."""
    schema = found.schema() if given is None else given
    parsed = _parse_datatype_json_string(schema.json())
    assert isinstance(parsed, StructType)
    return parsed


def read(schema: StructType | None = None, **options: Any) -> pa.Table:
    """What a batch reads."""
    found = source(options)
    schema = schema_in(found, schema)
    reader = found.reader(schema)
    partitions = reader.partitions()
    return table(pickle.loads(pickle.dumps(reader)), partitions)


def table(reader: Any, partitions: Any) -> pa.Table:
    """What its tasks read."""
    batches = [
        batch
        for partition in partitions
        for batch in reader.read(pickle.loads(pickle.dumps(partition)))
    ]
    return pa.Table.from_batches(batches) if batches else pa.table({})


class Stream:
    """A streaming query, one micro-batch at a time; its checkpoint is `at`."""

    def __init__(self, at: Any = None, *, available_now: bool = False, **options: Any) -> None:
        made = source(options)
        schema = schema_in(made, None)
        self.driver: Any = made.streamReader(schema)
        self.tasks: Any = pickle.loads(pickle.dumps(made.streamReader(schema)))
        self.limit = self.driver.getDefaultReadLimit()
        if available_now:
            self.driver.prepareForTriggerAvailableNow()
        self.at = _told(self.driver.initialOffset()) if at is None else at

    def step(self, *, everything: bool = False) -> pa.Table:
        """The next micro-batch; an empty table when there is nothing new."""
        limit = ReadAllAvailable() if everything else self.limit
        end = _told(self.driver.latestOffset(self.at, limit))
        if end == self.at:
            return pa.table({})
        found = table(self.tasks, self.driver.partitions(self.at, end))
        self.at = end
        return found

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.stop()


def _told(offsets: Any) -> Any:
    """Offsets after the way that they take to Spark and back."""
    return json.loads(json.dumps(offsets))


def write(
    rows: pa.Table, run: str = "query:0", partition: int = 0, *, seen: bool = True, **options: Any
) -> Written:
    """Have one task write the rows; readers can see them when this returns, if that is wanted."""
    parsed = source(options)._parsed
    writer = pickle.loads(pickle.dumps(TaskWriter(parsed, check_sink(parsed))))
    counts = seen and "topic" in options and not options.get("exactlyOnce")  # they come later
    before = _end(options) if counts else 0
    written: Written = writer.write(iter(rows.to_batches()), run, partition)
    deadline = time.monotonic() + 60
    while counts and _end(options) < before + written.rows:  # RocketMQ's queues follow the log
        assert time.monotonic() < deadline, "the rows do not come up in their queues"
        time.sleep(0.02)
    return pickle.loads(pickle.dumps(written))  # type: ignore[no-any-return]


def _end(options: dict[str, Any]) -> int:
    """How many messages the queues of the topic ever had, if it is one topic and is there."""
    with gantry.Reader(name_servers=options["nameServer"]) as reader:
        try:
            return sum(reader.bounds(queue).end for queue in reader.queues(options["topic"]))
        except NoRoute:  # the task will say so
            return -(2**63)


def bodies(rows: pa.Table) -> list[bytes]:
    """The bodies, sorted."""
    return sorted(rows["body"].to_pylist()) if rows.num_columns else []


@contextmanager
def away(server) -> Iterator[None]:
    """The server dies, and comes back a moment later while somebody waits for it."""
    crash, restart = (
        (server.kill, server.start) if hasattr(server, "kill") else (server.crash, server.restart)
    )
    crash()
    back = threading.Timer(1.0, restart)
    back.start()
    try:
        yield
    finally:
        back.join()
