"""The records of trace messages as rows: each message of the trace topic holds up to a hundred."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from gantrymq.errors import RemoteProtocolError
from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Recalled,
    Sent,
    TraceRecord,
    TransactionEnded,
    read_records,
)
from gantrymq.spark.options import check_source
from gantrymq.spark.schema import arrow_schema, plain_schema, schema_of
from gantrymq.spark.source import RocketMQDataSource
from gantrymq.spark.streaming import StreamReader

NAME: Final = "gantry_traces"
READ: Final = (
    "topic", "broker", "queue_id", "queue_offset", "store_timestamp", "born_host", "body",
)  # fmt: skip
"""The columns of trace messages that are wanted."""
_KINDS: Final = {
    Sent: "sent", ConsumeBegun: "begun", ConsumeEnded: "ended",
    TransactionEnded: "transaction", Recalled: "recalled",
}  # fmt: skip
UNREADABLE: Final = "unreadable"
_PLACE: Final = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp")
SCHEMA: Final = plain_schema(
    "topic string, broker string, queue_id int, queue_offset bigint, store_timestamp timestamp,"
    " client string, kind string, at timestamp, traced_topic string, group string,"
    " message_id string, request_id string, tags string, keys string, store_host string,"
    " cost_ms bigint, success boolean, retries int, context_code int"
)
_SAME: Final = (
    "group", "message_id", "request_id", "tags", "keys", "store_host", "cost_ms", "success",
    "retries", "context_code",
)  # fmt: skip


class TraceDataSource(RocketMQDataSource):
    """`format("gantry_traces")`, for streaming queries: a topic of traces, a row for each record.

    A source of its own, since a pipeline's flow may not look at a schema, and mapping over record
    batches in a flow would.
    """

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """A record, and the place of the message that it came in."""
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Who reads."""
        check_source(self._parsed, streaming=True)
        return TraceReader(self._parsed, schema_of(READ))


class TraceReader(StreamReader):
    """Reads messages, and gives their records."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return trace_rows(super().read(partition))


def trace_rows(messages: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A row for each record, beside the place of the message that it came in."""
    schema = arrow_schema(SCHEMA)
    for batch in messages:
        rows = [row for message in batch.to_pylist() for row in _rows(message)]
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _rows(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    place = {name: message[name] for name in _PLACE} | {"client": message["born_host"]}
    try:
        for record in read_records(bytes(message["body"]).decode("utf-8", "replace")):
            yield place | _row(record)
    except RemoteProtocolError:  # those before it hold; that there is one is a row, too
        yield place | {"kind": UNREADABLE}


def _row(record: TraceRecord) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(record, name, None) for name in _SAME}
    at = getattr(record, "time_ms", 0)
    return found | {
        "kind": _KINDS[type(record)],
        "at": at * 1000 or None,  # old clients do not say when handling ended
        "traced_topic": getattr(record, "topic", None),
    }
