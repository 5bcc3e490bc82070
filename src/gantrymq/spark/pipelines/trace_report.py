"""What traces told: latencies as tables of Parquet, and as a page with plots.

Each run looks at all records that there are, in Spark: `tables/events` has one row for each
latency, and the other tables are made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gantrymq.spark.pipelines import latencies
from gantrymq.spark.pipelines.latencies import BINS_PER_DECADE, STAGES
from gantrymq.spark.reports import Report, over_clock, percent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE: Final = "report.html"
_NAMES: Final = {
    "send": "send, until the broker's answer", "store": "store, from the message's making",
    "wait": "wait, until a handler has it", "consume": "consume, in the handler",
}  # fmt: skip
_MOST: Final = 15
"""Rows of a table on the page; the tables of Parquet have all of them."""
_SHOWN_SLOW: Final = 5


def report(spark: SparkSession, home: Path, root: Path | None = None) -> Path | None:
    """Write the tables, and the page; None where no record has been found yet."""
    root = root or Path(spark.conf.get("spark.gantry.path", "") or home / "told")
    if not any((root / "records").glob("topic=*")):
        return None
    tables = _tables(spark, root, home / "tables")
    page = Report("Traces", _lead(tables))
    write(page, tables)
    page.write(home / PAGE)
    return home / PAGE


def _tables(spark: SparkSession, root: Path, place: Path) -> dict[str, list[Any]]:
    def keep(name: str, frame: DataFrame) -> DataFrame:
        where = str(place / name)
        frame.write.mode("overwrite").parquet(where)
        return spark.read.parquet(where)

    events = keep("events", latencies.events(spark, root))
    made = {
        "latencies": latencies.percentiles(spark, events),
        "course": latencies.course(spark, events),
        "distribution": latencies.distribution(spark, events),
        "slow": latencies.slow(spark, events),
        "failed": latencies.failed(spark, events),
    }
    return {name: keep(name, frame.coalesce(1)).collect() for name, frame in made.items()}


def _lead(tables: Mapping[str, Sequence[Any]]) -> str:
    total = {row["stage"]: row for row in tables["latencies"] if row["by"] == "all"}
    times = [row["second"] for row in tables["course"]]
    span = f"{_moment(min(times))} to {_moment(max(times))} UTC. " if times else ""
    parts = [
        f"{total[stage]['count']:,} {word}" + _failures(total[stage]["failed"])
        for stage, word in (("send", "sends"), ("consume", "deliveries"))
        if stage in total
    ]
    return f"{span}{', '.join(parts)}."


def _failures(count: int) -> str:
    return f", {count:,} of them failed" if count else ""


def write(page: Report, tables: Mapping[str, Sequence[Any]]) -> None:
    """The page's parts."""
    _stages(page, tables)
    for by in ("topic", "group", "client"):
        _by(page, by, tables["latencies"])
    _slow(page, tables["slow"])
    _failed(page, tables["failed"])


def _stages(page: Report, tables: Mapping[str, Sequence[Any]]) -> None:
    page.heading("How long messages take")
    rows = {row["stage"]: row for row in tables["latencies"] if row["by"] == "all"}
    page.table(
        ("stage", *_HEADS), [(_NAMES[one], *_numbers(rows[one])) for one in STAGES if one in rows]
    )
    with page.plot("How long it took: which part took longer") as axes:
        for stage, bins in _by_stage(tables["distribution"]):
            total = sum(row["count"] for row in bins)
            reached, times, left = 0, [], []
            for row in bins:
                reached += row["count"]
                times.append(10 ** (row["bin"] / BINS_PER_DECADE))
                left.append(100 * (total - reached) / total)
            axes.step([1, *times], [100, *left], where="post", label=stage)
        axes.set(xscale="log", xlabel="milliseconds", ylabel="% that took longer", ylim=(0, 100))
        axes.legend()
    course = dict(_by_stage(tables["course"]))
    for number, what in ((0, "middle"), (2, "99 % took no longer")):
        with page.plot(f"Latencies over time: {what}") as axes:
            lines = {
                stage: ([row["second"] for row in points], [row["ms"][number] for row in points])
                for stage, points in course.items()
            }
            over_clock(axes, lines, "milliseconds")
    with page.plot("Messages a second") as axes:
        over_clock(axes, dict(_rates(course)), "messages a second")


def _rates(course: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, Any]]:
    for stage in ("send", "consume"):
        points = course.get(stage, ())
        times = [row["second"] for row in points]
        yield stage, (times, [row["count"] / row["seconds"] for row in points])
        if any(row["failed"] for row in points):
            yield f"{stage}, failed", (times, [row["failed"] / row["seconds"] for row in points])


_HEADS: Final = ("messages", "failed", "p50, ms", "p90, ms", "p99, ms", "p99.9, ms", "longest, ms")


def _numbers(row: Any) -> tuple[object, ...]:
    failed = (
        f"{row['failed']:,} ({percent(row['failed'] / row['count'])})" if row["failed"] else "–"
    )
    return (row["count"], failed, *row["ms"], row["longest"])


def _by(page: Report, by: str, rows: Iterable[Any]) -> None:
    found = [row for row in rows if row["by"] == by and row["name"]]
    if not found:
        return
    page.heading(f"By {by}")
    for stage in STAGES:
        its = [row for row in found if row["stage"] == stage]
        its.sort(key=lambda row: (-row["ms"][2], row["name"]))
        if its:
            page.text(_NAMES[stage] + _shown(len(its)))
            page.table((by, *_HEADS), [(row["name"], *_numbers(row)) for row in its[:_MOST]])


def _shown(count: int) -> str:
    return f": the {_MOST} slowest of {count:,}" if count > _MOST else ""


def _slow(page: Report, rows: Sequence[Any]) -> None:
    page.heading("The slowest")
    heads = ("message", "ms", "at", "topic", "group", "client", "keys")
    for stage, its in _by_stage(rows):
        page.text(_NAMES[stage])
        page.table(heads, [
            (row["message_id"], row["ms"], _at(row["at"]), row["topic"] or "–", row["group"] or "–",
             row["client"] or "–", row["keys"] or "")
            for row in its[:_SHOWN_SLOW]
        ])  # fmt: skip


def _failed(page: Report, rows: Sequence[Any]) -> None:
    page.heading("What failed")
    if not rows:
        page.text("Nothing.")
        return
    page.table(("why", "times", "topic", "group", "client", "last", "message"), [
        (row["why"], row["count"], row["topic"] or "–", row["group"], row["client"],
         _at(row["last"]), row["message_id"])
        for row in rows[:_MOST]
    ])  # fmt: skip


def _by_stage(rows: Iterable[Any]) -> list[tuple[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row["stage"], []).append(row)
    return [(stage, found[stage]) for stage in STAGES if stage in found]


def _moment(second: float) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%d %H:%M:%S}"


def _at(when: datetime | None) -> str:
    return "–" if when is None else f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
