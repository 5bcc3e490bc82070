"""What looks at queues and groups have seen: tables of Parquet, and a page with plots.

Each run looks at all that earlier runs have seen as well. A rate is what offsets grew by from one
point in time to the next, so a pause between two runs is a line at the average of that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gantrymq.spark.reports import Report, fullest, over_clock, rates, step_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE: Final = "report.html"
_LINES: Final = 7
"""Lines of a plot, and pictures of single topics."""
_MOST: Final = 30
"""Rows of a table, and bars: the Parquet tables have all of them."""
_SKEWED: Final = 1.2
"""How many times the mean a queue has from which on a topic is shown as uneven."""

_QUEUES: Final = """
    SELECT topic, broker, queue_id, max_by(max_offset - min_offset, at) AS held,
           max_by(max_offset, at) AS end, max_by(max_offset, at) - min_by(max_offset, at) AS grown,
           unix_millis(max(at)) - unix_millis(min(at)) AS ms
    FROM {seen} WHERE `group` IS NULL AND why IS NULL GROUP BY ALL ORDER BY ALL
"""
_GROUPS: Final = """
    SELECT `group`, topic, broker, queue_id, max_by(lag, at) AS lag, max(lag) AS most,
           max_by(seconds, at) AS seconds, max(seconds) AS longest,
           max_by(group_offset, at) - min_by(group_offset, at) AS consumed,
           unix_millis(max(at)) - unix_millis(min(at)) AS ms,
           count_if(lag IS NULL) AS unknown
    FROM {seen} WHERE `group` IS NOT NULL AND why IS NULL GROUP BY ALL ORDER BY ALL
"""
_SIZES: Final = """
    SELECT topic, floor(unix_millis(at) / {step}) * {step} / 1000 AS second,
           max_by(held, at) AS held, max_by(end, at) AS end
    FROM (SELECT topic, at, sum(max_offset - min_offset) AS held, sum(max_offset) AS end
          FROM {{seen}} WHERE `group` IS NULL AND why IS NULL GROUP BY topic, at)
    GROUP BY topic, second ORDER BY topic, second
"""
_LAGS: Final = """
    SELECT `group`, floor(unix_millis(at) / {step}) * {step} / 1000 AS second,
           max(lag) AS lag, max(seconds) AS seconds, max_by(offset, at) AS offset
    FROM (SELECT `group`, at, sum(lag) AS lag, max(seconds) AS seconds, sum(group_offset) AS offset
          FROM {{seen}} WHERE `group` IS NOT NULL AND why IS NULL GROUP BY `group`, at)
    GROUP BY `group`, second ORDER BY `group`, second
"""
_SILENT: Final = """
    SELECT coalesce(`group`, topic, '') AS what, coalesce(broker, '') AS broker, why,
           count(*) AS times, max(at) AS last
    FROM {seen} WHERE why IS NOT NULL GROUP BY ALL ORDER BY times DESC, what
"""


def report(spark: SparkSession, home: Path) -> Path | None:
    """Write the tables, and the page; None where nothing has been seen yet."""
    root = Path(spark.conf.get("spark.gantry.path", "") or home / "samples")
    if not any(root.glob("*.parquet")):
        return None
    tables = _tables(spark, spark.read.parquet(str(root)), home / "tables")
    page = Report("Queues and groups", _lead(tables))
    write(page, tables)
    page.write(home / PAGE)
    return home / PAGE


def _tables(spark: SparkSession, seen: DataFrame, place: Path) -> dict[str, list[Any]]:
    span = spark.sql(
        "SELECT unix_seconds(max(at)) - unix_seconds(min(at)) AS s FROM {seen}", seen=seen
    ).collect()[0]["s"]
    step = 1000 * step_of(span or 0)
    questions = {
        "queues": _QUEUES,
        "groups": _GROUPS,
        "sizes": _SIZES.format(step=step),
        "lags": _LAGS.format(step=step),
        "silent": _SILENT,
    }
    found = {}
    for name, question in questions.items():
        frame = spark.sql(question, seen=seen).coalesce(1)
        frame.write.mode("overwrite").parquet(str(place / name))
        found[name] = spark.read.parquet(str(place / name)).collect()
    return found


def _lead(tables: Mapping[str, Sequence[Any]]) -> str:
    times = [row["second"] for name in ("sizes", "lags") for row in tables[name]]
    span = f"{_moment(min(times))} to {_moment(max(times))} UTC. " if times else ""
    lag = sum(row["lag"] or 0 for row in tables["groups"])
    return (
        f"{span}{len(tables['queues']):,} queues of {len(_by(tables['queues'], 'topic')):,} topics,"
        f" {len(_by(tables['groups'], 'group')):,} groups; {lag:,} messages wait."
    )


def write(page: Report, tables: Mapping[str, Sequence[Any]]) -> None:
    """The page's parts."""
    _sizes(page, tables)
    _lags(page, tables)
    _skew(page, tables)
    if tables["silent"]:
        page.heading("What could not be asked")
        page.table(("what", "broker", "why", "times", "last"), [
            (row["what"] or "the cluster", row["broker"] or "–", row["why"], row["times"],
             f"{row['last'].astimezone(UTC):%Y-%m-%d %H:%M:%S}")
            for row in tables["silent"][:_MOST]
        ])  # fmt: skip


def _sizes(page: Report, tables: Mapping[str, Sequence[Any]]) -> None:
    page.heading("Topics")
    rows = []
    for topic, its in _by(tables["queues"], "topic").items():
        held, rate = sum(row["held"] for row in its), _rate(its, "grown")
        rows.append((topic, len(its), held, rate, fullest([row["held"] for row in its])))
    rows.sort(key=lambda row: (-row[2], row[0]))
    heads = ("topic", "queues", "messages held", "sent a second", "fullest queue / mean")
    page.table(heads, rows[:_MOST])
    by_topic = _by(tables["sizes"], "topic")
    with page.plot("Messages that topics hold") as axes:
        lines = _lines(by_topic, lambda row: row["held"])
        over_clock(axes, lines, "messages")
    with page.plot("Messages that are sent, a second") as axes:
        over_clock(axes, _rates(by_topic, "end"), "messages a second")


def _lags(page: Report, tables: Mapping[str, Sequence[Any]]) -> None:
    page.heading("Groups")
    groups = _by(tables["groups"], "group")
    if not groups:
        page.text("No group has been seen.")
        return
    page.table(
        ("group", "topic", "waiting now", "the most", "oldest now, s", "consumed a second",
         "fullest queue / mean"),
        [
            (group, topic, sum(row["lag"] or 0 for row in its),
             sum(row["most"] or 0 for row in its), max(row["seconds"] or 0.0 for row in its),
             _rate(its, "consumed"), fullest([row["lag"] or 0 for row in its]))
            for group, rows in groups.items()
            for topic, its in _by(rows, "topic").items()
        ][:_MOST],
    )  # fmt: skip
    if unknown := sum(1 for row in tables["groups"] if row["lag"] is None):
        page.text(f"Of {unknown:,} queues nobody knows how far their group is: it never said so.")
    by_group = _by(tables["lags"], "group")
    with page.plot("Messages that wait for their group") as axes:
        over_clock(axes, _lines(by_group, lambda row: row["lag"]), "messages")
    with page.plot("How long the oldest of them has been waiting") as axes:
        over_clock(axes, _lines(by_group, lambda row: row["seconds"]), "seconds")
    with page.plot("Messages that groups consume, a second") as axes:
        over_clock(axes, _rates(by_group, "offset"), "messages a second")


def _skew(page: Report, tables: Mapping[str, Sequence[Any]]) -> None:
    page.heading("Skew")
    held = _counts(tables["queues"], "topic", "held")
    waiting = {
        f"{group} in {topic}": counts
        for group, rows in _by(tables["groups"], "group").items()
        for topic, counts in _counts(rows, "topic", "lag").items()
    }
    page.table(
        ("what", "queues", "fullest / mean", "deviation / mean", "empty queues", "fullest queue"),
        [
            (name, len(counts), fullest(counts.values()), _deviation(list(counts.values())),
             sum(not count for count in counts.values()), max(counts, key=lambda q: counts[q]))
            for name, counts in (
                *((f"held in {topic}", counts) for topic, counts in held.items()),
                *((f"waiting for {group}", counts) for group, counts in waiting.items()),
            )
            if sum(counts.values())
        ][:_MOST],
    )  # fmt: skip
    _uneven(page, "Messages held in the queues of {}", held)
    _uneven(page, "Messages that wait for {}, by queue", waiting)


def _uneven(page: Report, caption: str, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Pictures of those that are far from even, the worst first."""
    ranked = sorted(counts, key=lambda name: -fullest(counts[name].values()))
    for name in ranked[:_LINES]:
        its = counts[name]
        if len(its) > 1 and fullest(its.values()) >= _SKEWED:
            largest = sorted(its, key=lambda queue: -its[queue])[:_MOST]
            page.bars(caption.format(name), {queue: its[queue] for queue in largest}, "messages")


def _counts(rows: Iterable[Any], by: str, what: str) -> dict[str, dict[str, int]]:
    return {
        name: {f"{row['topic']}[{row['broker']}:{row['queue_id']}]": row[what] or 0 for row in its}
        for name, its in _by(rows, by).items()
    }


def _lines(
    rows: Mapping[str, Sequence[Any]], value: Callable[[Any], float | None]
) -> dict[str, tuple[list[float], list[float]]]:
    """The largest few, as lines."""
    lines = {}
    for name, its in rows.items():
        known = [(float(row["second"]), float(v)) for row in its if (v := value(row)) is not None]
        lines[name] = [at for at, _ in known], [v for _, v in known]
    return _largest(lines)


def _rates(
    rows: Mapping[str, Sequence[Any]], what: str
) -> dict[str, tuple[list[float], list[float]]]:
    lines = {}
    for name, its in rows.items():
        known = [row for row in its if row[what] is not None]
        times = [float(row["second"]) for row in known]
        grown = [max(0.0, rate) for rate in rates(times, [row[what] for row in known])]
        lines[name] = times[1:], grown
    return _largest(lines)


def _largest(
    lines: dict[str, tuple[list[float], list[float]]],
) -> dict[str, tuple[list[float], list[float]]]:
    ranked = sorted(lines, key=lambda name: -max(lines[name][1], default=0.0))
    return {name: lines[name] for name in ranked[:_LINES]}


def _rate(rows: Sequence[Any], what: str) -> float:
    """A second, over all the time in which the queues were looked at."""
    longest = max((row["ms"] for row in rows), default=0) / 1000
    return sum(max(0, row[what] or 0) for row in rows) / longest if longest else 0.0


def _deviation(counts: Sequence[float]) -> float:
    mean = sum(counts) / len(counts)
    return float((sum((count - mean) ** 2 for count in counts) / len(counts)) ** 0.5 / mean)


def _by(rows: Iterable[Any], column: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(row[column], []).append(row)
    return found


def _moment(second: float) -> str:
    return f"{datetime.fromtimestamp(float(second), UTC):%Y-%m-%d %H:%M:%S}"
