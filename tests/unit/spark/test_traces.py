"""Trace messages as rows, and the page about them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
from pyspark.sql import Row

from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Sent,
    TracedType,
    write_records,
)
from gantrymq.spark.pipelines import trace_report
from gantrymq.spark.pipelines.tracing import UNREADABLE, trace_rows
from gantrymq.spark.reports import Report, step_of

AT = 1_795_000_000_000
SENT = Sent(
    time_ms=AT, region="r", group="shop", topic="orders", message_id="M1", tags="paid", keys="k",
    store_host="b:1", body_length=3, cost_ms=7, type=TracedType.NORMAL, offset_id="o",
)  # fmt: skip
BEGUN = ConsumeBegun(
    time_ms=AT + 9, region="r", group="desk", request_id="R", message_id="M1", retries=0
)
ENDED = ConsumeEnded(request_id="R", message_id="M1", cost_ms=4, success=False, context_code=2)


def told(*bodies: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([
        {"topic": "T", "broker": "a", "queue_id": 0, "queue_offset": n, "body": body,
         "store_timestamp": datetime(2026, 11, 20, tzinfo=UTC), "born_host": "10.0.0.7:4"}
        for n, body in enumerate(bodies)
    ])  # fmt: skip


def test_each_record_is_a_row_with_its_messages_place() -> None:
    (batch,) = trace_rows([told(write_records([SENT, BEGUN]).encode(), b"", write_records([ENDED]).encode())])  # fmt: skip # noqa: E501
    rows = batch.to_pylist()
    assert [(row["queue_offset"], row["kind"]) for row in rows] == [
        (0, "sent"), (0, "begun"), (2, "ended")
    ]  # fmt: skip
    sent, begun, ended = (SimpleNamespace(**row) for row in rows)
    assert (sent.traced_topic, sent.group, sent.client, sent.cost_ms, sent.success) == (
        "orders", "shop", "10.0.0.7:4", 7, True
    )  # fmt: skip
    assert sent.at == datetime.fromtimestamp(AT / 1000, UTC)
    assert (begun.request_id, begun.retries, begun.traced_topic) == ("R", 0, None)
    assert (ended.at, ended.success, ended.context_code) == (None, False, 2)


def test_what_cannot_be_read_is_a_row_behind_what_can() -> None:
    body = write_records([SENT]).encode()
    (batch,) = trace_rows([told(body + b"Pub\x01not a time\x02", b"\xff\x01\xfe", body)])
    kinds = [(row["queue_offset"], row["kind"]) for row in batch.to_pylist()]
    assert kinds == [(0, "sent"), (0, UNREADABLE), (2, "sent")]


def test_steps_of_time_fit_the_span() -> None:
    assert [step_of(span) for span in (0, 80, 100, 3600, 86_400, 10**8)] == [
        1, 1, 2, 60, 1800, 86_400
    ]  # fmt: skip


def test_the_page_has_every_table_and_escapes_what_clients_sent() -> None:
    numbers = {"count": 50, "failed": 5, "ms": [1, 2, 30, 40], "longest": 41}
    tables = {
        "latencies": [
            Row(stage="send", by=by, name=name, **numbers)
            for by, name in (("all", ""), ("topic", "<b>orders"), ("group", "shop"))
        ],
        "course": [
            Row(stage="send", seconds=1, second=AT // 1000 + n, **numbers) for n in range(3)
        ],
        "distribution": [Row(stage="send", bin=n, count=10) for n in range(5)],
        "slow": [
            Row(stage="send", message_id="M1", ms=41, at=datetime.now(UTC), topic=None,
                group="shop", client=None, keys="k")
        ],
        "failed": [
            Row(stage="send", topic="<b>orders", group="shop", client="c", why="the send failed",
                count=5, last=datetime.now(UTC), message_id="M9")
        ],
    }  # fmt: skip
    page = Report("Traces", trace_report._lead(tables))
    trace_report.write(page, tables)
    html = page.html()
    assert "50 sends, 5 of them failed." in html
    assert "5 (10.0 %)" in html
    assert "&lt;b&gt;orders" in html
    assert "<b>orders" not in html
    assert html.count("<svg") == 4
    assert all(word in html for word in ("By topic", "By group", "The slowest", "M9"))
