"""Looks at queues and groups, and the page about them, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import Row
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable

from gantrymq.errors import ConfigError
from gantrymq.spark.pipelines import lag_report
from gantrymq.spark.pipelines.sampling import SamplesDataSource
from gantrymq.spark.reports import Report, fullest, rates, step_of

AT = 1_795_000_000


def source(**options: str) -> SamplesDataSource:
    return SamplesDataSource(CaseInsensitiveDict({"nameServer": "127.0.0.1:1"} | options))


def test_a_run_takes_so_many_looks_and_the_next_goes_on() -> None:
    for start in (0, 3):
        reader = source(samples="3", every="1ms").streamReader(source().schema())
        reader.prepareForTriggerAvailableNow()
        at, seen = {"sample": start}, []
        while (end := reader.latestOffset(at, ReadAllAvailable())) != at:
            at = end
            seen += [part.number for part in reader.partitions(at, end)]
        assert seen == [start + 1, start + 2, start + 3]


def test_what_cannot_be_asked_is_a_row(free_port: int) -> None:
    server = f"127.0.0.1:{free_port}"
    found = SamplesDataSource(
        CaseInsensitiveDict({"nameServer": server, "topics": "orders, mails", "callTimeout": "1s"})
    )
    reader = found.streamReader(found.schema())
    (part,) = reader.partitions({"sample": 6}, {"sample": 7})
    rows = [row for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["sample"], row["topic"]) for row in rows] == [
        (7, "orders"), (7, "mails"), (7, None)
    ]  # fmt: skip
    assert all(server in row["why"] for row in rows)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"samples": "0"}, "samples: '0' is no number"),
        ({"every": "soon"}, "option every: "),
        ({"topcs": "a"}, "no option 'topcs'"),
    ],
)
def test_options_are_checked(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        source(**options)


def test_steps_of_time_fit_the_span() -> None:
    assert [step_of(span) for span in (0, 80, 100, 3600, 86_400, 10**8)] == [
        1, 1, 2, 60, 1800, 86_400
    ]  # fmt: skip


def test_rates_and_evenness() -> None:
    assert rates([0, 2, 3], [10, 20, 50]) == [5, 30]
    assert rates([1], [1]) == []
    assert fullest([1, 1, 4]) == 2
    assert fullest([]) == fullest([0, 0]) == 0


def test_the_page_says_where_it_is_uneven_and_what_was_silent() -> None:
    def row(queue: int, **more: object) -> Row:
        return Row(topic="orders", broker="a", queue_id=queue, ms=10_000, **more)

    tables = {
        "queues": [row(n, held=held, end=held, grown=held) for n, held in enumerate((10, 0, 50))],
        "groups": [
            row(n, group="desk", lag=lag, most=9, seconds=1.5, longest=2.0, consumed=30, unknown=0)
            for n, lag in enumerate((0, 4, None))
        ],
        "sizes": [Row(topic="orders", second=AT + n, held=n, end=10 * n) for n in range(4)],
        "lags": [Row(group="desk", second=AT + n, lag=4, seconds=None, offset=n) for n in range(4)],
        "silent": [Row(what="mails", broker="b", why="<gone>", times=3, last=datetime.now(UTC))],
    }
    page = Report("Queues", lag_report._lead(tables))
    lag_report.write(page, tables)
    html = page.html()
    assert "3 queues of 1 topics, 1 groups; 4 messages wait." in html
    assert "<td>orders</td><td>3</td><td>60</td><td>6</td><td>2.5</td>" in html
    assert "orders[a:2]" in html
    assert "Of 1 queues nobody knows" in html
    assert "&lt;gone&gt;" in html
    assert html.count("<svg") == 7  # two of topics, three of groups, two that are uneven
