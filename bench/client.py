"""Our client and RocketMQ's Java client in turns on the same broker: who is faster?

First on Apache RocketMQ, then on Gantry, over loopback. Each client is a process that does a whole
run, so that the JVM warms up once; everything is done once to warm up before it is measured. The
number of a row is the median of its rounds, and the ratio says how many times as fast ours is:
above 1.00 is faster. Where Java has nothing of the kind, its nearest is what ours is held against.

Beside them, on servers of their own: aiokafka on Kafka, and RocketMQ's gRPC client for Python on
RocketMQ's proxy. They are fetched when they are first needed; where they do not run, it says so.

    ./dev bench client                          everything at 1 KiB; 12 minutes
    ./dev bench client --rows sync,async        some rows
    ./dev bench client --sides rocketmq         one broker
    ./dev bench client --rows "" --peers        what Python users have elsewhere, alone
    ./dev bench client --short                  every row once, very briefly
    ./dev bench client --table                  what was measured last, from results/client

What was measured is kept as JSON, a file for each run, in results/client.
"""

# needs: server spark

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import _broker_servers as servers
import _peers
import jars
from _broker_servers import NAMES, Side, cpu_seconds
from _driving import Driver, Failed, JavaDriver, Measured, keep, median, note

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE.parent / "results" / "client"
OURS: Final = "gantry"
JAVA: Final = "java"
QUEUES: Final = 8
_ATTEMPTS: Final = 3
WINDOW: Final = 512
READ: Final = frozenset(("consume", "lists", "threads", "lite", "polls", "arrow"))
"""Verbs that read a topic which has been filled."""
T = TypeVar("T")


class Job(NamedTuple):
    """What one client is told to do."""

    client: str
    verb: str
    loop: str = "fastest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing of ours, and what it is held against."""

    name: str
    what: str
    ours: Job
    java: Job
    numbers: tuple[str, ...] = ("rate",)
    least: float = 0.0
    """The ratio that has to be reached, in the first of the numbers."""


def _row(name: str, what: str, java: str, *, loop: str = "fastest", **how: Any) -> Row:
    verb = name.partition("-")[0]
    return Row(name=name, what=what, ours=Job(OURS, verb, loop), java=Job(JAVA, java), **how)


_TIMES: Final = ("p50", "p99")
ROWS: Final = (
    _row("sync", "send and wait, Producer", "sync", numbers=_TIMES, least=1.0),
    _row("await", "send and wait, AsyncProducer", "sync", numbers=_TIMES, least=1.0),
    _row("await-asyncio", "the same without uvloop", "sync", numbers=_TIMES, loop="asyncio"),
    _row("async", f"{WINDOW} under way, AsyncProducer", "async", least=1.0),
    _row("async-asyncio", "the same without uvloop", "async", loop="asyncio"),
    _row("soon", f"{WINDOW} under way, Producer", "async"),
    _row("auto", "auto_batch against Java's async", "async", least=1.5),
    _row("auto-java", "the same against Java's autoBatch", "auto"),
    _row("consume", "push, an async handler", "consume"),
    _row("lists", "push, an async handler of lists", "consume"),
    _row("threads", "push, a handler in threads", "consume"),
    _row("lite", "lite pull, AsyncPullConsumer", "lite"),
    _row("polls", "lite pull, PullConsumer", "lite"),
    _row("arrow", "Reader to Arrow, against lite pull", "lite"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run is to do."""

    rows: Sequence[Row]
    sides: Sequence[str]
    size: int
    rounds: int
    seconds: float
    warm: float
    count: int
    peers: bool

    @property
    def jobs(self) -> list[Job]:
        """Everything that is measured, ours and Java's in turns, nothing twice."""
        return list(dict.fromkeys(job for row in self.rows for job in (row.ours, row.java)))


class Bench:
    """A run on one side."""

    def __init__(self, plan: Plan, drivers: Mapping[str, Driver], side: Side) -> None:
        self._plan = plan
        self._drivers = drivers
        self._side = side
        self.rounds: dict[Job, list[Measured]] = {job: [] for job in plan.jobs}

    def run(self) -> None:
        """Measure everything."""
        plan, java = self._plan, self._drivers[JAVA]
        at = {"at": self._side.at, "size": plan.size}
        java.do("topic", topic="bench", queues=QUEUES, **at)
        if any(job.verb in READ for job in plan.jobs):
            note(f"{self._side.name}: {plan.count:,} messages to be read")
            java.do("topic", topic="bench-read", queues=QUEUES, **at)
            java.do("fill", topic="bench-read", count=plan.count, threads=4, batch=32, **at)
        for job in plan.jobs:
            note(f"{self._side.name}: warming up {job.client} {job.verb}")
            self._patiently(job, plan.warm)
        for number in range(plan.rounds):
            for job in plan.jobs if number % 2 == 0 else reversed(plan.jobs):
                one = self._patiently(job, plan.seconds)
                self.rounds[job].append(one)
                note(f"{self._side.name}: round {number + 1}, {told(job, one)}")

    def _patiently(self, job: Job, seconds: float) -> Measured:
        """Once; again if it failed: a broker that was held up refuses messages for a while."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._once(job, seconds)
            except Failed as failure:
                note(f"{self._side.name}: again, since {failure}")
        return self._once(job, seconds)

    def _once(self, job: Job, seconds: float) -> Measured:
        driver = self._drivers[job.client]
        before = self._side.cpu_seconds(), cpu_seconds(driver.pid)
        measured = driver.do(
            job.verb,
            at=self._side.at,
            topic="bench-read" if job.verb in READ else "bench",
            size=self._plan.size,
            seconds=seconds,
            threads=1,
            batch=32 if job.verb == "lite" else 1,
            window=WINDOW,
            count=self._plan.count,
            loop=job.loop,
        )
        used = self._side.cpu_seconds() - before[0], cpu_seconds(driver.pid) - before[1]
        measured["broker_us"], measured["client_us"] = (
            one * 1e6 / measured["messages"] for one in used
        )
        return measured


def told(job: Job, one: Measured) -> str:
    """A round in a line."""
    name = f"{job.client:6} {job.verb}{'' if job.loop == 'fastest' else f' ({job.loop})'}"
    times = f"  p50 {one['p50']:.0f} p99 {one['p99']:.0f} µs" if "p50" in one else ""
    return (
        f"{name:24} {one['rate']:>9,.0f}/s{times}"
        f"  processor µs: broker {one['broker_us']:.1f}, client {one['client_us']:.1f}"
    )


# --- results --------------------------------------------------------------------------------------

HEAD: Final = f"{'row':<15}{'broker':<10}{'ours':>11}{'Java':>11}{'ratio':>13}   what"


def lines(row: Row, side: str, ours: list[Measured], java: list[Measured]) -> Iterator[str]:
    """What the table says of a row."""
    for number in row.numbers:
        mine, theirs = median(ours, number), median(java, number)
        ratio = mine / theirs if number == "rate" else theirs / mine
        unit = "/s" if number == "rate" else "µs"
        name = row.name if number == "rate" else f"{row.name} {number}"
        least = row.least if number == row.numbers[0] else 0.0
        verdict = "" if not least else f"  ({'holds' if ratio >= least else 'FAILS'}: {least:.2f})"
        yield (
            f"{name:<19}{side:<10}{mine:>9,.0f}{theirs:>11,.0f} {unit:<3}{ratio:>7.2f}"
            f"   {row.what}{verdict}"
        )


def show(rows: Sequence[Row], side: str, rounds: Mapping[Job, list[Measured]]) -> None:
    for row in rows:
        if rounds.get(row.ours) and rounds.get(row.java):
            print(*lines(row, side, rounds[row.ours], rounds[row.java]), sep="\n", flush=True)


def show_peer(verb: str, rounds: list[Measured]) -> None:
    times = "".join(
        f"   {name} {median(rounds, name):,.0f} µs" for name in ("p50", "p99") if name in rounds[0]
    )
    print(f"{verb:<19}{'its own':<10}{median(rounds, 'rate'):>9,.0f}/s{times}", flush=True)


def as_json(side: str, rounds: Mapping[Job, list[Measured]]) -> list[dict[str, Any]]:
    return [
        {"side": side, "job": list(job), "rounds": all_} for job, all_ in rounds.items() if all_
    ]


def table() -> None:
    """Print the newest result of each job."""
    newest: dict[str, dict[Job, list[Measured]]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        for one in json.loads(path.read_text())["found"]:
            newest.setdefault(one["side"], {})[Job(*one["job"])] = one["rounds"]
    print(HEAD)
    for side, rounds in newest.items():
        show(ROWS, side, rounds)
        for job, measured in rounds.items():
            if side == "peers":
                show_peer(job.verb, measured)


# --- the command ----------------------------------------------------------------------------------


def plan() -> tuple[Plan, bool]:
    """What the command line asks for, and whether that is only the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ",".join(row.name for row in ROWS)
    parser.add_argument("--rows", default=names, help=f"of {names}")
    parser.add_argument("--sides", default=",".join(NAMES), help=f"of {','.join(NAMES)}")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.5, help="length of a round")
    parser.add_argument("--warm", type=float, default=5.0, help="seconds of warming up a row")
    parser.add_argument("--count", type=int, default=100_000, help="messages that are read")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--short", action="store_true", help="one brief round")
    parser.add_argument("--table", action="store_true", help="print what results/client has")
    chosen = parser.parse_args()
    found = Plan(
        rows=_chosen(parser, chosen.rows, {row.name: row for row in ROWS}),
        sides=_chosen(parser, chosen.sides, {side: side for side in NAMES}),
        size=chosen.size,
        rounds=chosen.rounds,
        seconds=chosen.seconds,
        warm=chosen.warm,
        count=chosen.count,
        peers=chosen.peers,
    )
    if chosen.short:
        found = replace(found, rounds=1, seconds=1.0, warm=1.0, count=20_000)
    return found, chosen.table


def _chosen(parser: argparse.ArgumentParser, text: str, known: dict[str, T]) -> list[T]:
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(known)}")
    return [known[name] for name in names]


def measure_peers(asked: Plan, found: list[dict[str, Any]]) -> None:
    """What Python users have elsewhere."""
    note("peers on servers of their own")
    for verb, rounds in _peers.measure(
        size=asked.size,
        window=WINDOW,
        rounds=asked.rounds,
        seconds=asked.seconds,
        warm=asked.warm,
        count=asked.count,
    ):
        found += as_json("peers", {Job("peers", verb): rounds})
        show_peer(verb, rounds)


def measure(asked: Plan, found: list[dict[str, Any]]) -> None:
    """Both clients on each side."""
    with contextlib.ExitStack() as stack:
        ours = Driver("Gantry", [sys.executable, str(HERE / "_our_client.py")])
        drivers = {OURS: stack.enter_context(ours), JAVA: stack.enter_context(JavaDriver())}
        for name in asked.sides:
            note(f"starting {name}")
            with contextlib.closing(servers.start(name, "async")) as side:
                bench = Bench(asked, drivers, side)
                try:
                    bench.run()
                finally:
                    found += as_json(name, bench.rounds)
                show(asked.rows, name, bench.rounds)


def main() -> int:
    asked, only_table = plan()
    if only_table:
        table()
        return 0
    found: list[dict[str, Any]] = []
    began = time.perf_counter()
    print(HEAD, flush=True)
    try:
        if asked.rows:
            measure(asked, found)
        if asked.peers:
            measure_peers(asked, found)
    except KeyboardInterrupt:
        note("interrupted")
        return 130
    except (Failed, jars.JavaUnavailable) as failure:
        note(str(failure))
        return 1
    finally:
        if found:
            keep(RESULTS, found, size=asked.size, rounds=asked.rounds, seconds=asked.seconds)
        note(f"{time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
