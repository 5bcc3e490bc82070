"""RocketMQ's own Java client drives Apache RocketMQ and Gantry in turns: who is faster?

Both brokers run on this machine, over loopback, with their defaults (RocketMQ with a heap of 3 GB);
whoever is not measured is stopped meanwhile. One JVM drives both, so that it warms up once; each
broker is warmed up with every row before that is measured. The number of a row is the median of
its rounds, and the ratio says how many times as fast Gantry is: above 1.00 is faster.

    ./dev bench broker                               all rows at 100 B, 1 KiB, 16 KiB; 40 minutes
    ./dev bench broker --rows sync-1,sync-16 --sizes 1KiB
    ./dev bench broker --short                       every row once, very briefly, at 1 KiB
    ./dev bench broker --table                       what was measured last, from results/broker

What was measured is kept as JSON, a file for each run, in results/broker.
"""

# needs: server

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

import _broker_servers as servers
import jars
from _broker_servers import APACHE, GANTRY, NAMES, Side
from _driving import Driver, Failed, JavaDriver, Measured, keep, median, note

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE.parent / "results" / "broker"
SIZES: Final = {"100B": 100, "1KiB": 1024, "16KiB": 16 * 1024}
QUEUES: Final = 8
MOST_BYTES: Final = 512 * 2**20
"""Of messages that one round of `consume` reads."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that is measured."""

    name: str
    what: str
    verb: str
    unit: str
    numbers: tuple[str, ...]
    """What Java tells that goes into the table."""
    threads: int = 1
    batch: int = 1
    window: int = 0
    rate: int = 0
    flush: str = "async"

    @property
    def more_is_better(self) -> bool:
        return self.unit == "/s"


def _sending(name: str, what: str, verb: str = "sync", **how: Any) -> Row:
    return Row(name=name, what=what, verb=verb, unit="/s", numbers=("rate",), **how)


ROWS: Final = (
    _sending("sync-1", "send and wait, 1 thread"),
    _sending("sync-16", "send and wait, 16 threads", threads=16),
    _sending("async-512", "send, 512 under way", "async", window=512),
    _sending("batch-32", "send 32 in a batch and wait", batch=32),
    _sending("consume", "read with a push consumer", "consume"),
    _sending("flush-16", "send with sync flush, 16 threads", threads=16, flush="sync"),
    Row(
        name="latency",
        what="send to listener, at 5,000/s",
        verb="latency",
        unit="µs",
        numbers=("p50", "p99", "p999"),
        rate=5000,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do."""

    rows: Sequence[Row]
    sizes: Sequence[str]
    sides: Sequence[str]
    rounds: int
    seconds: float
    warm: float
    count: int

    def messages(self, size: int) -> int:
        """How many of that size are read in a round of `consume`."""
        return min(self.count, MOST_BYTES // size)


class Bench:
    """A run: the driver, and the sides as they are needed."""

    def __init__(self, plan: Plan, driver: Driver) -> None:
        self._plan = plan
        self._driver = driver
        self._there: set[tuple[str, str]] = set()
        self.found: list[dict[str, Any]] = []

    def run(self) -> None:
        """Measure everything."""
        for flush in ("async", "sync"):
            rows = [row for row in self._plan.rows if row.flush == flush]
            if rows:
                with self._sides(flush) as sides:
                    self._there.clear()
                    for size in self._plan.sizes:
                        for row in rows:
                            self._measure(row, size, sides)

    @contextlib.contextmanager
    def _sides(self, flush: str) -> Iterator[list[Side]]:
        with contextlib.ExitStack() as stack:
            sides = []
            for name in self._plan.sides:
                note(f"starting {name}, {flush} flush")
                side = servers.start(name, flush)
                stack.callback(side.close)
                side.stop()
                sides.append(side)
            yield sides

    def _measure(self, row: Row, size: str, sides: Sequence[Side]) -> None:
        rounds: dict[str, list[Measured]] = {side.name: [] for side in sides}
        for side in sides:
            note(f"{row.name} {size}: warming up {side.name}")
            with side.running():
                self._prepare(row, size, side)
        for number in range(self._plan.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                with side.running():
                    one = self._once(row, size, side, self._plan.seconds)
                rounds[side.name].append(one)
                told = "  ".join(f"{name} {one[name]:,.0f}" for name in row.numbers)
                note(f"{row.name} {size}: round {number + 1}, {side.name:8} {told} {row.unit}")
        self.found.append(
            {"row": row.name, "size": size, "time": time.strftime("%F %T"), "rounds": rounds}
        )
        print(*lines(row, size, rounds), sep="\n", flush=True)

    def _prepare(self, row: Row, size: str, side: Side) -> None:
        order = {"at": side.at, "size": SIZES[size]}
        for topic in (_topic(row, size),):
            if (side.name, topic) not in self._there:
                self._there.add((side.name, topic))
                self._driver.do("topic", topic=topic, queues=QUEUES, **order)
                if row.verb == "consume":
                    count = self._plan.messages(SIZES[size])
                    self._driver.do("fill", topic=topic, count=count, threads=4, batch=32, **order)
        self._once(row, size, side, self._plan.warm)

    def _once(self, row: Row, size: str, side: Side, seconds: float) -> Measured:
        used = side.cpu_seconds()
        measured = self._driver.do(
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
    return f"bench-{'read-' if row.verb == 'consume' else ''}{size}"


# --- results --------------------------------------------------------------------------------------


def lines(row: Row, size: str, rounds: dict[str, list[Measured]]) -> Iterator[str]:
    """What the table says of a row."""
    for number in row.numbers:
        values = {side: median(rounds[side], number) for side in NAMES if rounds.get(side)}
        name = row.name if number == "rate" else f"{row.name} {number.replace('p999', 'p99.9')}"
        text = f"{name:<14}{size:>6}"
        for side in NAMES:
            value = values.get(side)
            text += f"{'-' if value is None else f'{value:,.0f}':>12}"
        text += f" {row.unit:<3}"
        if len(values) == len(NAMES):
            ours, theirs = values[GANTRY], values[APACHE]
            text += f"{ours / theirs if row.more_is_better else theirs / ours:>7.2f}"
        for side in NAMES:
            if side in values:
                text += f"   {median(rounds[side], 'cpu_us'):>7.1f}"
        yield text


HEAD: Final = (
    f"{'row':<14}{'body':>6}{APACHE:>12}{GANTRY:>12}{'ratio':>11}   processor µs a message"
)


def table() -> None:
    """Print the newest result of each row and size that both sides have."""
    newest: dict[tuple[str, str], dict[str, list[Measured]]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        for one in json.loads(path.read_text())["found"]:
            if set(NAMES) <= one["rounds"].keys():
                newest[one["row"], one["size"]] = one["rounds"]
    print(HEAD)
    for size in SIZES:
        for row in ROWS:
            if (row.name, size) in newest:
                print(*lines(row, size, newest[row.name, size]), sep="\n")


# --- the command ----------------------------------------------------------------------------------


def plan() -> tuple[Plan, bool]:
    """What the command line asks for, and whether that is only the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ",".join(row.name for row in ROWS)
    parser.add_argument("--rows", default=names, help=f"of {names}")
    parser.add_argument("--sizes", default=",".join(SIZES), help=f"of {','.join(SIZES)}")
    parser.add_argument("--sides", default=",".join(NAMES), help=f"of {','.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a round")
    parser.add_argument("--warm", type=float, default=8.0, help="seconds of warming up a row")
    parser.add_argument("--count", type=int, default=500_000, help="messages of a consume round")
    parser.add_argument("--short", action="store_true", help="one brief round at 1 KiB")
    parser.add_argument("--table", action="store_true", help="print what results/broker has")
    chosen = parser.parse_args()
    found = Plan(
        rows=_chosen(parser, chosen.rows, {row.name: row for row in ROWS}),
        sizes=_chosen(parser, chosen.sizes, {size: size for size in SIZES}),
        sides=_chosen(parser, chosen.sides, {name: name for name in NAMES}),
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        warm=chosen.warm,
        count=chosen.count,
    )
    if chosen.short:
        found = replace(found, sizes=["1KiB"], rounds=1, seconds=1.0, warm=1.0, count=20_000)
    return found, chosen.table


def _chosen(parser: argparse.ArgumentParser, text: str, known: dict[str, T]) -> list[T]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    return [known[name] for name in names]


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
                    keep(
                        RESULTS,
                        bench.found,
                        rounds=asked.rounds,
                        seconds=asked.seconds,
                        count=asked.count,
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
