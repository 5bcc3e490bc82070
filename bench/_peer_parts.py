"""What bench/peers.py runs, and which rows of its table come of what each of them kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import client
import features
from _broker_rows import ROWS as BROKER_ROWS
from _broker_rows import Row as ServerRow
from _driving import Measured, median
from _peer_table import Row

Kept = dict[str, Any]
"""A file that a benchmark keeps: `about` the run, and what it `found`."""

SERVERS: Final = "Servers"
CLIENTS: Final = "Clients on one broker"
PROGRAMS: Final = "What a Python program has"
FEATURES: Final = "Features"
SPARK: Final = "Spark"
LEGENDS: Final = {
    SERVERS: "Gantry and RocketMQ driven by RocketMQ's Java client, Kafka by its own, which gathers"
    " batches where many are under way; processor time is for each message",
    CLIENTS: "on RocketMQ's broker, Gantry's client in Python beside RocketMQ's in Java",
    PROGRAMS: "Gantry's client on Gantry, RocketMQ's gRPC client for Python on RocketMQ's proxy,"
    " aiokafka on Kafka",
    FEATURES: "Gantry and RocketMQ driven by RocketMQ's Java client",
    SPARK: "Gantry's source on Gantry's and on RocketMQ's broker, Spark's own connector on Kafka",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """One of the benchmarks that the table is made of."""

    name: str
    full: tuple[str, ...]
    quick: tuple[str, ...]
    rows: Callable[[Kept], Iterator[Row]]


# --- servers --------------------------------------------------------------------------------------


def of_broker(kept: Kept) -> Iterator[Row]:
    """Rows of bench/broker.py."""
    rows = {row.name: row for row in BROKER_ROWS}
    for one in kept["found"]:
        if one["row"] in _FOOTPRINT:
            for number, name, unit in _FOOTPRINT[one["row"]]:
                values = _medians(one["rounds"], number)
                name = name.format(fill=kept["about"].get("fill", 0))
                yield _row(SERVERS, name, unit, values, more=False)
        else:
            row = rows[one["row"]]
            yield from _driven(SERVERS, row, f"{row.what}, {one['size']}", one["rounds"])


def _driven(
    section: str, row: ServerRow, what: str, rounds: Mapping[str, list[Measured]]
) -> Iterator[Row]:
    """What a client measured that drove a server."""
    for number in row.numbers:
        name = what if number == "rate" else f"{what}, {number.replace('p999', 'p99.9')}"
        yield _row(section, name, row.unit, _medians(rounds, number), more=row.more_is_better)
    if row.name in _PROCESSOR:
        name = f"{what}: the server's processor"
        yield _row(section, name, "µs", _medians(rounds, "cpu_us"), more=False)


def of_features(kept: Kept) -> Iterator[Row]:
    """Rows of bench/features.py."""
    for one in kept["found"]:
        row = features.ROWS[one["row"]]
        yield from _driven(FEATURES, row, row.what, one["rounds"])


_PROCESSOR: Final = ("sync-16", "consume")
"""Rows that tell the processor time, too: it holds better than rates where others are at work."""
_FOOTPRINT: Final = {
    "start": (
        ("seconds", "start on an empty store", "s"),
        ("mib", "memory of its own then", "MiB"),
    ),
    "memory": (("mib", "memory of its own after {fill:,} messages", "MiB"),),
}


def _medians(rounds: Mapping[str, list[Measured]], number: str) -> dict[str, float]:
    return {side: median(all_, number) for side, all_ in rounds.items() if all_}


def _row(section: str, name: str, unit: str, values: dict[str, float], *, more: bool) -> Row:
    return Row(section=section, name=name, unit=unit, values=values, more_is_better=more)


# --- clients --------------------------------------------------------------------------------------


def of_client(kept: Kept) -> Iterator[Row]:
    """Rows of bench/client.py: the same broker for both, and then each on its own."""
    found = kept["found"]
    rounds = {(one["side"], client.Job(*one["job"])): one["rounds"] for one in found}
    for row in client.ROWS:
        ours, java = rounds.get(("rocketmq", row.ours)), rounds.get(("rocketmq", row.java))
        if ours and java:
            yield from _numbers(CLIENTS, row.what, row.numbers, {"gantry": ours, "rocketmq": java})
    for what, numbers, jobs in _PROGRAMS:
        there = {side: rounds[key] for side, key in jobs.items() if rounds.get(key)}
        if "gantry" in there:
            yield from _numbers(PROGRAMS, what, numbers, there)


def _numbers(
    section: str, what: str, numbers: tuple[str, ...], rounds: Mapping[str, list[Measured]]
) -> Iterator[Row]:
    for number in numbers:
        more = number == "rate"
        name = what if more else f"{what}, {number}"
        yield _row(section, name, "/s" if more else "µs", _medians(rounds, number), more=more)


def _ours(verb: str) -> tuple[str, client.Job]:
    return "gantry", client.Job(client.OURS, verb)


def _theirs(verb: str) -> tuple[str, client.Job]:
    return "peers", client.Job("peers", verb)


_PROGRAMS: Final[tuple[tuple[str, tuple[str, ...], dict[str, tuple[str, client.Job]]], ...]] = (
    ("send and wait, in threads", ("p50", "p99"),
     {"gantry": _ours("sync"), "rocketmq": _theirs("grpc-sync")}),
    ("send and wait, asyncio", ("p50", "p99"),
     {"gantry": _ours("await"), "kafka": _theirs("kafka-await")}),
    ("512 under way", ("rate",), {"gantry": _ours("async"), "rocketmq": _theirs("grpc-async")}),
    ("512 under way, in batches", ("rate",),
     {"gantry": _ours("auto"), "kafka": _theirs("kafka-async")}),
    ("read, asyncio", ("rate",), {"gantry": _ours("lite"), "kafka": _theirs("kafka-read")}),
)  # fmt: skip


# --- Spark ----------------------------------------------------------------------------------------

_SPARK: Final = {
    "write": "write",
    "batch": "read as a batch",
    "all": "read as a batch, all columns",
    "stream": "read as one micro-batch",
    "stream10": "read as ten micro-batches",
    "micro": "a micro-batch at 50/s",
}


def of_spark(kept: Kept) -> Iterator[Row]:
    """Rows of bench/spark.py, which takes the best of its rounds."""
    for name, by_side in kept["found"].items():
        row, size = name.split()
        more = row != "micro"
        best = {side: (max if more else min)(values) for side, values in by_side.items()}
        what = f"{_SPARK[row]}, {size} B"
        yield _row(SPARK, what, "rows/s" if more else "ms", best, more=more)


BENCHES: Final = (
    Bench(
        name="broker",
        full=("--sides", "rocketmq,gantry,kafka"),
        quick=(
            "--sides", "rocketmq,gantry,kafka", "--sizes", "1KiB", "--rounds", "2",
            "--seconds", "1", "--warm", "2", "--count", "100000", "--starts", "1",
            "--fill", "100000",
        ),
        rows=of_broker,
    ),
    Bench(
        name="client",
        full=(),
        quick=(
            "--rows", "sync,await,async,auto,consume,lite,arrow", "--rounds", "3", "--seconds", "1",
            "--warm", "1", "--count", "30000",
        ),
        rows=of_client,
    ),
    Bench(
        name="features",
        full=(),
        quick=(
            "--rounds", "3", "--seconds", "1", "--warm", "1", "--due", "5000", "--lead", "3",
            "--fill", "50000",
        ),
        rows=of_features,
    ),
    Bench(
        name="spark",
        full=(),
        quick=("--sizes", "1024", "--messages", "100000", "--rounds", "2", "--seconds", "6"),
        rows=of_spark,
    ),
)  # fmt: skip
