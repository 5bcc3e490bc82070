"""The source of trace records: its methods are called as Spark calls them."""

from __future__ import annotations

import pickle
from typing import Any

from pyspark.sql.datasource import CaseInsensitiveDict

from gantrymq.protocol.tracing import ConsumeBegun, write_records
from gantrymq.spark.pipelines.tracing import TraceDataSource


def test_messages_of_traces_are_read_as_records(ours: Any) -> None:
    ours.make(queues=1)
    begun = [
        ConsumeBegun(
            time_ms=n, region=None, group="g", request_id="R", message_id=f"M{n}", retries=0
        )
        for n in range(1, 6)
    ]
    ours.send([write_records(begun[:3]).encode(), write_records(begun[3:]).encode()])
    found = TraceDataSource(CaseInsensitiveDict(ours.options | {"startingOffsets": "earliest"}))
    reader: Any = found.streamReader(found.schema())
    tasks = pickle.loads(pickle.dumps(reader))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    rows = [
        row
        for part in reader.partitions(start, end)
        for batch in tasks.read(part)
        for row in batch.to_pylist()
    ]
    reader.stop()
    assert [(row["queue_offset"], row["message_id"]) for row in rows] == [
        (0, "M1"), (0, "M2"), (0, "M3"), (1, "M4"), (1, "M5")
    ]  # fmt: skip
    assert {row["client"].partition(":")[0] for row in rows} == {"127.0.0.1"}
