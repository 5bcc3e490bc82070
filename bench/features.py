"""Transactions, timed messages and filters at Gantry and at Apache RocketMQ, in turns.

RocketMQ's own Java client drives both, over loopback. Each is a name server and a broker with its
defaults (RocketMQ with a heap of 3 GB, and with filters by properties, which it has switched off);
whoever is not measured is stopped meanwhile. One JVM drives both, and each row is done once before
it is measured. The number of a row is the median of its rounds; a ratio above 1.00 says that Gantry
is faster.

    commit    half messages that are committed, by 16 threads, until all are in their topic
    rollback  half messages that are rolled back, until that is done
    enqueue   timed messages that are due in hours, 512 under way, until all are in the wheel
    release   timed messages that are due at one moment, from the first in its topic to the last
    tag       messages that a group reads of a topic from which it wants one in ten, by tag
    sql       the same by an SQL92 expression over two properties

    ./dev bench features                        all rows at 1 KiB; 6 minutes
    ./dev bench features --rows tag,sql
    ./dev bench features --short                every row once, very briefly
    ./dev bench features --table                what was measured last, from results/features

What was measured is kept as JSON, a file for each run, in results/features.
"""

# needs: server

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import _turns as turns
import jars
from _broker_results import HEAD, lines, newest
from _broker_rows import Row
from _broker_servers import NAMES, Side
from _driving import Driver, Failed, JavaDriver, Measured, keep, median, note

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "features"
SIZE: Final = ("1KiB", 1024)
QUEUES: Final = 8
SHARE: Final = 10
"""One in so many messages is wanted of those that are filtered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureRow(Row):
    """One thing that is measured."""

    topic: str
    more: Mapping[str, object] = field(default_factory=dict)


def _row(
    name: str, what: str, verb: str, topic: str, *, threads: int = 1, **more: Any
) -> FeatureRow:
    return FeatureRow(
        name=name, what=what, verb=verb, topic=topic, unit="/s", numbers=("rate",),
        threads=threads, window=512, more=more,
    )  # fmt: skip


ROWS: Final = {
    row.name: row
    for row in (
        _row("commit", "half message and commit", "transact", "decided", threads=16, commits=1),
        _row("rollback", "half message and rollback", "transact", "decided", threads=16, commits=0),
        _row("enqueue", "timed messages taken in", "enqueue", "waiting"),
        _row("release", "timed messages delivered", "release", "due"),
        _row("tag", "read by tag", "consume", "mixed", filter="tag"),
        _row("sql", "read by SQL92", "consume", "mixed", filter="sql"),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do."""

    rows: Sequence[FeatureRow]
    sides: Sequence[str]
    rounds: int
    seconds: float
    warm: float
    due: int
    lead: float
    fill: int


class Bench:
    """A run."""

    def __init__(self, plan: Plan, driver: Driver) -> None:
        self._plan = plan
        self._driver = driver
        self._there: set[tuple[str, str]] = set()
        self.found: list[dict[str, Any]] = []

    def run(self) -> None:
        """Measure everything."""
        # RocketMQ's filters by properties are off unless somebody asks for them
        with turns.started(self._plan.sides, "async", enablePropertyFilter="true") as sides:
            for row in self._plan.rows:
                self._measure(row, sides)
        self._compare_filters()

    def _measure(self, row: FeatureRow, sides: Sequence[Side]) -> None:
        rounds = turns.in_turns(
            row.name,
            sides,
            self._plan.rounds,
            prepare=lambda side: self._prepare(row, side),
            once=lambda side: self._once(row, side, self._plan.seconds),
            told=row.told,
        )
        self.found.append(
            {"row": row.name, "size": SIZE[0], "time": time.strftime("%F %T"), "rounds": rounds}
        )
        print(*lines(row, SIZE[0], rounds), sep="\n", flush=True)

    def _prepare(self, row: FeatureRow, side: Side) -> None:
        if (side.name, row.topic) not in self._there:
            self._there.add((side.name, row.topic))
            order = {"at": side.at, "size": SIZE[1], "topic": row.topic}
            self._driver.do("topic", queues=QUEUES, **order)
            if row.verb == "consume":
                self._driver.do("mixed", count=self._plan.fill, share=SHARE, **order)
        self._once(row, side, self._plan.warm)

    def _once(self, row: FeatureRow, side: Side, seconds: float) -> Measured:
        used = side.cpu_seconds()
        reads = row.verb == "consume"
        measured = self._driver.do(
            row.verb, at=side.at, topic=row.topic, size=SIZE[1], seconds=seconds,
            threads=row.threads, window=row.window, lead=self._plan.lead,
            count=self._plan.fill // SHARE if reads else self._plan.due, **row.more,
        )  # fmt: skip
        measured["cpu_us"] = (side.cpu_seconds() - used) * 1e6 / measured["messages"]
        return measured

    def _compare_filters(self) -> None:
        found = {one["row"]: one["rounds"] for one in self.found}
        for side in self._plan.sides if {"tag", "sql"} <= found.keys() else ():
            ratio = median(found["tag"][side], "rate") / median(found["sql"][side], "rate")
            print(f"by SQL92 {side} takes {ratio:.2f} times as long as by tag", flush=True)


# --- the command ----------------------------------------------------------------------------------


def plan() -> tuple[Plan, bool]:
    """What the command line asks for, and whether that is only the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {','.join(ROWS)}")
    parser.add_argument("--sides", default=",".join(NAMES), help=f"of {','.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of warming up a row")
    parser.add_argument("--due", type=int, default=50_000, help="messages due at one moment")
    parser.add_argument("--lead", type=float, default=7.0, help="seconds to have them stored in")
    parser.add_argument("--fill", type=int, default=300_000, help="messages to be filtered")
    parser.add_argument("--short", action="store_true", help="one brief round")
    parser.add_argument("--table", action="store_true", help="print what results/features has")
    chosen = parser.parse_args()
    names = [name for name in chosen.rows.split(",") if name]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(ROWS)}")
    found = Plan(
        rows=[ROWS[name] for name in names], sides=chosen.sides.split(","),
        rounds=chosen.rounds, seconds=chosen.seconds, warm=chosen.warm,
        due=chosen.due, lead=chosen.lead, fill=chosen.fill,
    )  # fmt: skip
    if chosen.short:
        found = replace(found, rounds=1, seconds=1.0, warm=1.0, due=5000, lead=3.0, fill=50_000)
    return found, chosen.table


def table() -> None:
    """Print what was measured last."""
    print(HEAD)
    found = newest(RESULTS)
    for row in ROWS.values():
        if (row.name, SIZE[0]) in found:
            print(*lines(row, SIZE[0], found[row.name, SIZE[0]]), sep="\n")


def main() -> int:
    asked, only_table = plan()
    if only_table:
        table()
        return 0
    try:
        with JavaDriver() as driver:
            bench = Bench(asked, driver)
            print(HEAD, flush=True)
            try:
                bench.run()
            finally:
                if bench.found:
                    keep(RESULTS, bench.found, rounds=asked.rounds, seconds=asked.seconds)
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except (Failed, jars.JavaUnavailable) as failure:
        note(str(failure))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
