"""What simulations found: which way to choose queues loses least, and what a rebalance costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from gantrymq.spark.reports import Report, number, percent
from gantrymq.spark.simulation.lanes import STRATEGIES, Real
from gantrymq.spark.simulation.sends import BINS, SLOW_SEND, Plan
from gantrymq.spark.simulation.shares import EVENTS, WAYS, Sharing

_CALM: Final = 0.1
"""A strategy has coped when what goes wrong stays below this part of its peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendsOf:
    """What producers went through under one strategy."""

    strategy: str
    sends: float
    """Simulated sends."""
    failed: float
    """Which part of them was lost; so are the next ones."""
    slow: float
    in_trouble: float
    """Which part of those that began while brokers were ill was lost or slow."""
    attempts: float
    """How many a send took."""
    spread: float
    fullest: float
    quantiles: tuple[float, float, float]
    """Seconds that 50, 99 and 99.9 % of the successful sends took at the most."""
    coped_after: float | None
    """Seconds of illness after which little went wrong any more; None if that never came."""
    bad: Real
    """Which part went wrong, by the second."""
    times: Real
    """Which part had succeeded, by `BINS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharesOf:
    """What a rebalance costs, one way to share, one event."""

    way: str
    event: str
    needed: float
    """Which part of the queues of a group had to change hands."""
    moved: float
    """Which part did for nothing."""
    fullest: float
    idle: float
    rests: tuple[float, float]
    """Median and 99th percentile of the seconds for which nobody reads a queue."""


def read_sends(found: DataFrame, plan: Plan) -> list[SendsOf]:
    """The sends of every strategy."""
    topics = found.where("kind = 'topic'").groupBy("strategy")
    sums = topics.agg(
        sql.sum("sends").alias("sends"),
        sql.sum("failed").alias("failed"),
        sql.sum("slow").alias("slow"),
        sql.sum("attempts").alias("attempts"),
        (sql.sum(sql.col("spread") * sql.col("sends")) / sql.sum("sends")).alias("spread"),
        (sql.sum(sql.col("fullest") * sql.col("sends")) / sql.sum("sends")).alias("fullest"),
    ).collect()
    seconds = _by_strategy(found.where("kind = 'second'"), ("sends", "failed", "slow"))
    times = _by_strategy(found.where("kind = 'time'"), ("sends",))
    by_name = {row["strategy"]: row for row in sums}
    return [
        _sends_of(plan, by_name[one.name], seconds[one.name], times[one.name][0])
        for one in STRATEGIES
        if one.name in by_name
    ]


def _by_strategy(rows: DataFrame, columns: Sequence[str]) -> Mapping[str, Real]:
    """Sums of those columns, by strategy: an array with a row for each column."""
    sums = rows.groupBy("strategy", "number").agg(*(sql.sum(name).alias(name) for name in columns))
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in sums.orderBy("strategy", "number").collect():
        found.setdefault(row["strategy"], []).append(tuple(row[name] for name in columns))
    return {strategy: np.array(values, float).T for strategy, values in found.items()}


def _sends_of(plan: Plan, row: Any, by_second: Real, by_time: Real) -> SendsOf:
    world = plan.world
    sends, failed, slow = by_second
    bad = (failed + slow) / np.maximum(sends, 1e-9)
    ill = slice(int(world.trouble_from), int(np.ceil(world.trouble_until)))
    succeeded = by_time.cumsum() / max(by_time.sum(), 1e-9)
    return SendsOf(
        strategy=row["strategy"],
        sends=row["sends"],
        failed=row["failed"] / row["sends"],
        slow=row["slow"] / row["sends"],
        in_trouble=float((failed + slow)[ill].sum() / max(sends[ill].sum(), 1e-9)),
        attempts=row["attempts"] / row["sends"],
        spread=row["spread"],
        fullest=row["fullest"],
        quantiles=tuple(_quantile(succeeded, part) for part in (0.5, 0.99, 0.999)),  # type: ignore[arg-type]
        coped_after=_coped_after(bad[ill]),
        bad=bad,
        times=succeeded,
    )


def _quantile(succeeded: Real, part: float) -> float:
    at = int(np.searchsorted(succeeded, part))
    return float(BINS[min(at, len(BINS) - 1)])


def _coped_after(bad: Real) -> float | None:
    """The first second from which on little went wrong, until the end of the illness."""
    if not len(bad) or not bad.max():
        return 0.0
    restless = np.flatnonzero(bad > _CALM * bad.max())
    last = int(restless[-1]) + 1
    return float(last) if last < len(bad) else None


def read_shares(found: DataFrame) -> list[SharesOf]:
    """What events did, for every way to share."""
    rows = (
        found.groupBy("way", "event")
        .agg(
            (sql.sum("needed") / sql.sum("queues")).alias("needed"),
            (sql.sum("moved") / sql.sum("queues")).alias("moved"),
            sql.avg("fullest").alias("fullest"),
            (sql.sum("idle") / sql.sum("clients")).alias("idle"),
            sql.expr("percentile(rest, array(0.5, 0.99))").alias("rests"),
        )
        .collect()
    )
    by_key = {(row["way"], row["event"]): row for row in rows}
    return [
        SharesOf(
            way=way,
            event=event,
            needed=row["needed"],
            moved=row["moved"],
            fullest=row["fullest"],
            idle=row["idle"],
            rests=(row["rests"][0], row["rests"][1]),
        )
        for way in WAYS
        for event in EVENTS
        if (row := by_key.get((way, event))) is not None
    ]


# --- the page -------------------------------------------------------------------------------------


def write_sends(report: Report, plan: Plan, found: Sequence[SendsOf]) -> None:
    """The part about choosing queues."""
    world = plan.world
    report.heading("Which way of choosing a queue loses the fewest sends?")
    report.text(verdict_on_sends(plan, found))
    report.table(
        (
            *(
                "strategy",
                "lost",
                f"slow (≥ {SLOW_SEND:g} s)",
                "lost or slow while brokers are ill",
            ),
            *("attempts", "p50, ms", "p99, ms", "p99.9, ms", "coped after, s"),
        ),
        [
            (
                one.strategy,
                percent(one.failed),
                percent(one.slow),
                percent(one.in_trouble),
                f"{one.attempts:.5f}",
                *(value * 1000 for value in one.quantiles),
                "never" if one.coped_after is None else one.coped_after,
            )
            for one in found
        ],
    )
    with report.plot("Sends that were lost or slow, by the second in which they began") as axes:
        for one in found:
            axes.plot(np.arange(len(one.bad)), one.bad * 100, label=one.strategy, linewidth=1.2)
        axes.axvspan(world.trouble_from, world.trouble_until, color="#f1f3f5", zorder=0)
        axes.set(xlabel="seconds; brokers are ill where it is grey", ylabel="% of sends", xlim=0)
        axes.set_yscale("symlog", linthresh=0.01)
        axes.set_ylim(0)
        axes.legend()
    with report.plot("How long sends took that were not lost") as axes:
        for one in found:
            axes.plot(BINS * 1000, (1 - one.times[: len(BINS)]) * 100, label=one.strategy)
        axes.set(xscale="log", yscale="log", xlabel="milliseconds", ylabel="% that took longer")
        axes.set_ylim(1e-3, 100)
        axes.legend()
    report.heading("How evenly are queues filled?")
    report.table(
        ("strategy", "deviation / mean", "fullest / mean"),
        [(one.strategy, one.spread, one.fullest) for one in found],
    )


def verdict_on_sends(plan: Plan, found: Sequence[SendsOf]) -> str:
    """The answer in a sentence or two."""
    best = min(found, key=lambda one: (one.failed, one.slow))
    worst = max(found, key=lambda one: (one.failed, one.slow))
    world = plan.world
    return (
        f"With {percent(world.slow_share)} of {number(world.brokers)} brokers slow and"
        f" {percent(world.gone_share)} gone for {world.trouble_until - world.trouble_from:g} s of"
        f" {world.seconds:g} s, “{best.strategy}” loses the fewest sends: {percent(best.failed)}"
        f" are lost and {percent(best.slow)} slow. “{worst.strategy}” loses the most:"
        f" {percent(worst.failed)}, and {percent(worst.slow)} slow."
        f" {number(round(sum(one.sends for one in found)))} sends were simulated."
    )


def write_shares(report: Report, sharing: Sharing, found: Sequence[SharesOf]) -> None:
    """The part about sharing queues."""
    report.heading("What does a rebalance cost?")
    report.text(verdict_on_shares(sharing, found))
    report.table(
        (
            *("way to share", "event", "had to move", "moved for nothing", "fullest / mean"),
            *("members without a queue", "rest p50, s", "rest p99, s"),
        ),
        [
            (
                one.way,
                one.event,
                percent(one.needed),
                percent(one.moved),
                one.fullest,
                percent(one.idle),
                *one.rests,
            )
            for one in found
        ],
    )
    with report.plot("Queues that change hands when a member joins") as axes:
        joins = [one for one in found if one.event == "joins"]
        names = [one.way for one in joins]
        needed = np.array([one.needed * 100 for one in joins])
        axes.barh(names, needed, label="to the new member")
        axes.barh(names, [one.moved * 100 for one in joins], left=needed, label="for nothing")
        axes.set(xlabel="% of a group's queues")
        axes.invert_yaxis()
        axes.legend()


def verdict_on_shares(sharing: Sharing, found: Sequence[SharesOf]) -> str:
    """The answer in a sentence or two."""
    joins = [one for one in found if one.event == "joins"]
    dies = next(one for one in found if one.event == "dies")
    least, most = min(joins, key=lambda one: one.moved), max(joins, key=lambda one: one.moved)
    return (
        f"{number(sharing.consumers)} consumers share {number(sharing.world.queues)} queues. When"
        f" one joins, {least.way} moves {percent(least.moved)} of its group's queues for nothing,"
        f" {most.way} {percent(most.moved)}; in exchange the fullest share is"
        f" {least.fullest:.2f} times the mean, against {most.fullest:.2f}. A queue whose reader"
        f" dies rests for {dies.rests[0]:.2g} s in the median, and {dies.rests[1]:.3g} s in one"
        f" case of a hundred."
    )
