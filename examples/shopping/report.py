"""What a run leaves behind: a summary in words, and a page with plots."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from statistics import quantiles
from typing import Final

from gantrymq.spark.reports import Report, over_seconds, rates
from shopping.books import Verdict
from shopping.page import skew
from shopping.pipelines import Pipelines
from shopping.samples import History, Sample
from shopping.trade import MEMBERS

_MIB: Final = 1 << 20


def summary(history: History, verdict: Verdict) -> str:
    """What was sent, and what became of it."""
    books = history.shop.books
    lines = [
        "topic      sent = consumed + dead-lettered + in flight",
        *(
            f"{one.topic:<10} {one.sent:,} = {one.consumed:,} + {one.dead:,} + {one.in_flight:,}"
            f"   {one.stored:,} stored"
            + ("" if one.archived is None else f", {one.archived:,} rows in Parquet")
            for one in verdict.accounts
        ),
    ]
    packed = ", ".join(f"{name} {books.by_member[name]:,}" for name in MEMBERS)
    lines.append(
        f"orders were packed by {packed}; {books.disordered:,} out of order, {books.repeats:,}"
        f" delivered again at a hand-over"
    )
    lines.append(
        f"{books.retries:,} mails were tried again, {len(books.rolled_back):,} payments rolled"
        f" back, reminders came {1000 * _at(books.late, 50):,.0f} ms late in the middle,"
        f" {1000 * _at(books.late, 99):,.0f} ms at p99"
    )
    if history.pipelines is not None:
        lines.append(_of_spark(history, history.pipelines))
    lines += [f"WRONG: {fault}" for fault in verdict.faults]
    return "\n".join([*lines, "the counts do NOT agree" if verdict.faults else "the counts agree"])


def _of_spark(history: History, pipelines: Pipelines) -> str:
    files = history.samples[-1].files if history.samples else 0
    took = [seconds for query in pipelines.queries.values() for _, _, seconds in query.batches]
    cents = sum(cents for _, _, cents in pipelines.minutes)
    rows = pipelines.queries["archive"].rows
    whole = "" if pipelines.archived is not None else f"; stopped when {rows:,} rows were archived"
    return (
        f"Spark: {len(took):,} micro-batches, {_at(took, 50):.1f} s in the middle;"
        f" {files:,} Parquet files;"
        f" revenue {cents / 100:,.2f} of {history.shop.books.cents / 100:,.2f}{whole}"
    )


def warm_up() -> None:
    """Load what draws plots, which takes seconds the first time ever: not after a Ctrl-C, then."""
    for name in ("matplotlib.figure", "matplotlib.font_manager", "matplotlib.backends.backend_svg"):
        import_module(name)


def write(history: History, verdict: Verdict, path: Path) -> None:
    """The page."""
    words = "The counts do not agree." if verdict.faults else "The counts agree."
    report = Report("A run of the shop", f"{history.seconds:.0f} seconds. {words}")
    for fault in verdict.faults:
        report.text(fault)
    report.table(
        ("topic", "sent", "consumed", "dead-lettered", "in flight", "stored", "rows in Parquet"),
        [
            (one.topic, one.sent, one.consumed, one.dead, one.in_flight, one.stored,
             "–" if one.archived is None else one.archived)
            for one in verdict.accounts
        ],
    )  # fmt: skip
    if history.samples:
        _stream(report, history.samples)
    if history.pipelines is not None:
        _spark(report, history, history.pipelines)
    report.write(path)


def _stream(report: Report, samples: Sequence[Sample]) -> None:
    times = [one.at for one in samples]
    report.heading("The stream")
    with report.plot("Orders a second") as axes:
        for what in ("sent", "consumed"):
            counts = [getattr(one, what)["orders"] for one in samples]
            axes.plot(times[1:], rates(times, counts), label=what)
        over_seconds(axes, "orders a second")
    with report.plot("Messages that wait for their group") as axes:
        for topic in samples[0].waiting:
            axes.plot(times, [one.waiting[topic] for one in samples], label=topic)
        over_seconds(axes, "messages")
    with report.plot("Queues of orders that each member has") as axes:
        for name in MEMBERS:
            counts = [len(one.owned[name] or ()) for one in samples]
            axes.step(times, counts, where="post", label=name)
        over_seconds(axes, "queues")
    with report.plot("Mails that were tried again, and dead letters") as axes:
        axes.plot(times, [one.retried for one in samples], label="tried again")
        axes.plot(times, [one.dead for one in samples], label="dead-lettered")
        over_seconds(axes, "messages")
    with report.plot("Memory") as axes:
        axes.plot(times, [one.memory / _MIB for one in samples], label="platform and shop")
        axes.plot(times, [one.spark_memory / _MIB for one in samples], label="Spark")
        over_seconds(axes, "MiB")


def _spark(report: Report, history: History, pipelines: Pipelines) -> None:
    report.heading("Spark")
    with report.plot("Seconds that micro-batches take") as axes:
        for name, query in pipelines.queries.items():
            times = [at - history.began for at, _, _ in query.batches]
            axes.plot(times, [took for _, _, took in query.batches], marker=".", label=name)
        over_seconds(axes, "seconds")
    with report.plot("Stored messages, and rows of the archive") as axes:
        axes.plot(
            [s.at for s in history.samples], [s.stored for s in history.samples], label="stored"
        )
        times, rows = [0.0], [0]
        for at, count, _ in pipelines.queries["archive"].batches:
            times.append(at - history.began)
            rows.append(rows[-1] + count)
        axes.step([*times, history.seconds], [*rows, rows[-1]], where="post", label="archived")
        over_seconds(axes, "messages")
    with report.plot("Revenue by the minute") as axes:
        axes.bar([minute for minute, _, _ in pipelines.minutes],
                 [cents / 100 for _, _, cents in pipelines.minutes])  # fmt: skip
        axes.set_ylabel("revenue")
    _latency(report, history, pipelines)
    _skew(report, pipelines)


def _latency(report: Report, history: History, pipelines: Pipelines) -> None:
    with report.plot(
        "Seconds from storing a message to its micro-batch: middle, and p99 dotted"
    ) as axes:
        for number, topic in enumerate(history.shop.books.sent):
            seen = [
                (at - history.began, ages[topic]) for at, ages in pipelines.ages if topic in ages
            ]
            times = [at for at, _ in seen]
            colour = f"C{number}"
            middle, high = ([age[i] / 1000 for _, age in seen] for i in (0, 1))
            axes.plot(times, middle, color=colour, marker=".", label=topic)
            axes.plot(times, high, color=colour, marker=".", linestyle=":")
        over_seconds(axes, "seconds")


def _skew(report: Report, pipelines: Pipelines) -> None:
    counts = sorted((q, n) for q, n in pipelines.by_queue.items() if q.startswith("orders["))
    report.text(
        f"The fullest queue of orders has {skew(pipelines):.2f} times what a queue has on the"
        f" average: a customer's orders are all in one queue."
    )
    report.bars("Messages by queue of orders", dict(counts), "messages")


def _at(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]
