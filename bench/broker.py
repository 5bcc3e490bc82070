"""RocketMQ's own Java client drives Apache RocketMQ and Gantry in turns: who is faster?

Both brokers run on this machine, over loopback, with their defaults (RocketMQ with a heap of 3 GB);
whoever is not measured is stopped meanwhile. One JVM drives both, so that it warms up once; each
broker is warmed up with every row before that is measured. The number of a row is the median of
its rounds, and the ratio says how many times as fast Gantry is: above 1.00 is faster. With
`--sides rocketmq,gantry,kafka` Kafka is a third, driven by its own client in a JVM of its own.

    ./dev bench broker                               all rows at 100 B, 1 KiB, 16 KiB; 15 minutes
    ./dev bench broker --rows sync-1,sync-16 --sizes 1KiB
    ./dev bench broker --short                       every row once, very briefly, at 1 KiB
    ./dev bench broker --table                       what was measured last, from results/broker

What was measured is kept as JSON, a file for each run, in results/broker.
"""

# needs: server

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import _broker_footprint as footprint
import jars
from _broker_results import RESULTS, footprint_lines, head, lines, table
from _broker_rows import ROWS, SIZES, Plan, Row
from _broker_servers import KAFKA, NAMES, Side
from _driving import Driver, Failed, JavaDriver, KafkaDriver, Measured, keep, note
from _turns import in_turns, started

QUEUES: Final = 8
_READING: Final = ("consume", "latency")

T = TypeVar("T")


class Bench:
    """A run: who drives each side, and the sides as they are needed."""

    def __init__(self, plan: Plan, drivers: Mapping[str, Driver]) -> None:
        self._plan = plan
        self._drivers = drivers
        self._there: set[tuple[str, str]] = set()
        self.found: list[dict[str, Any]] = []

    def run(self) -> None:
        """Measure everything."""
        self._footprint()
        for flush in ("async", "sync"):
            rows = [row for row in self._plan.rows if row.flush == flush]
            if rows:
                with started(self._plan.sides, flush) as sides:
                    self._there.clear()
                    for size in self._plan.sizes:
                        for row in rows:
                            self._measure(row, size, sides)

    def _footprint(self) -> None:
        """How soon each is there, and how much memory it takes."""
        plan = self._plan
        if plan.starts:
            self._each("start", plan.starts, footprint.start_time)
        if plan.fill:
            self._each("memory", 1, self._memory)

    def _memory(self, side: str) -> Measured:
        return footprint.memory(side, self._drivers[side], self._plan.fill)

    def _each(self, what: str, rounds: int, work: Callable[[str], Measured]) -> None:
        found: dict[str, list[Measured]] = {side: [] for side in self._plan.sides}
        for _ in range(rounds):
            for side in self._plan.sides:
                note(f"{what}: {side}")
                found[side].append(work(side))
        self.found.append({"row": what, "time": time.strftime("%F %T"), "rounds": found})
        print(*footprint_lines(what, found), sep="\n", flush=True)

    def _measure(self, row: Row, size: str, sides: Sequence[Side]) -> None:
        rounds = in_turns(
            f"{row.name} {size}",
            sides,
            self._plan.rounds,
            prepare=lambda side: self._prepare(row, size, side),
            once=lambda side: self._once(row, size, side, self._plan.seconds),
            told=row.told,
        )
        self.found.append(
            {"row": row.name, "size": size, "time": time.strftime("%F %T"), "rounds": rounds}
        )
        print(*lines(row, size, rounds), sep="\n", flush=True)

    def _prepare(self, row: Row, size: str, side: Side) -> None:
        topic, driver = _topic(row, size), self._drivers[side.name]
        order = {"at": side.at, "size": SIZES[size], "topic": topic}
        if (side.name, topic) not in self._there:
            self._there.add((side.name, topic))
            driver.do("topic", queues=QUEUES, **order)
            if row.verb == "consume":
                count = self._plan.messages(SIZES[size])
                driver.do("fill", count=count, threads=4, batch=32, **order)
        self._once(row, size, side, self._plan.warm)

    def _once(self, row: Row, size: str, side: Side, seconds: float) -> Measured:
        used = side.cpu_seconds()
        measured = self._drivers[side.name].do(
            row.verb,
            at=side.at,
            topic=_topic(row, size),
            size=SIZES[size],
            seconds=seconds,
            threads=row.threads,
            batch=row.batch,
            window=row.window,
            rate=row.rate,
            count=self._plan.messages(SIZES[size]),
        )
        messages = measured.get("messages", row.rate * seconds)
        measured["cpu_us"] = (side.cpu_seconds() - used) * 1e6 / messages
        return measured


def _topic(row: Row, size: str) -> str:
    """Those who read have topics of their own: new groups begin with what is in memory."""
    return f"bench-{row.name}-{size}" if row.verb in _READING else f"bench-{size}"


# --- the command ----------------------------------------------------------------------------------


def plan() -> tuple[Plan, bool]:
    """What the command line asks for, and whether that is only the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ",".join(row.name for row in ROWS)
    parser.add_argument("--rows", default=names, help=f"of {names}")
    parser.add_argument("--sizes", default=",".join(SIZES), help=f"of {','.join(SIZES)}")
    parser.add_argument("--sides", default=",".join(NAMES), help=f"of {','.join((*NAMES, KAFKA))}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round")
    parser.add_argument("--warm", type=float, default=3.0, help="seconds of warming up a row")
    parser.add_argument("--count", type=int, default=500_000, help="messages of a consume round")
    parser.add_argument("--starts", type=int, default=3, help="how often each is started")
    parser.add_argument(
        "--fill", type=int, default=1_000_000, help="messages before memory is read"
    )
    parser.add_argument("--short", action="store_true", help="one brief round at 1 KiB")
    parser.add_argument("--table", action="store_true", help="print what results/broker has")
    chosen = parser.parse_args()
    found = Plan(
        rows=_chosen(parser, chosen.rows, {row.name: row for row in ROWS}),
        sizes=_chosen(parser, chosen.sizes, {size: size for size in SIZES}),
        sides=_chosen(parser, chosen.sides, {name: name for name in (*NAMES, KAFKA)}),
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        warm=chosen.warm,
        count=chosen.count,
        starts=chosen.starts,
        fill=chosen.fill,
    )
    if chosen.short:
        found = replace(
            found, sizes=["1KiB"], rounds=1, seconds=1.0, warm=1.0, count=20_000, starts=1,
            fill=20_000,
        )  # fmt: skip
    return found, chosen.table


def _chosen(parser: argparse.ArgumentParser, text: str, known: dict[str, T]) -> list[T]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    return [known[name] for name in names]


@contextlib.contextmanager
def drivers(sides: Sequence[str]) -> Iterator[dict[str, Driver]]:
    """Who drives each side; one that does not run here is left out, and it is said why."""
    with contextlib.ExitStack() as stack:
        java = stack.enter_context(JavaDriver())
        found: dict[str, Driver] = {side: java for side in sides if side != KAFKA}
        if KAFKA in sides:
            try:
                found[KAFKA] = stack.enter_context(KafkaDriver())
            except (jars.JavaUnavailable, RuntimeError) as why:
                note(f"{KAFKA} does not run here: {why}")
        yield found


def main() -> int:
    asked, only_table = plan()
    if only_table:
        table()
        return 0
    try:
        with drivers(asked.sides) as there:
            asked = replace(asked, sides=[side for side in asked.sides if side in there])
            bench = Bench(asked, there)
            print(head(asked.sides), flush=True)
            try:
                bench.run()
            finally:
                if bench.found:
                    keep(
                        RESULTS,
                        bench.found,
                        rounds=asked.rounds,
                        seconds=asked.seconds,
                        count=asked.count,
                        fill=asked.fill,
                    )
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except (Failed, jars.JavaUnavailable) as failure:
        note(str(failure))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
