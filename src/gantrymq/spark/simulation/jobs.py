"""Simulations as Spark jobs: the work is cut into pieces, each piece a task, the results Parquet.

A task gets the number of its piece and nothing else; it makes the world from its seed by itself.
What it found leaves it as Arrow batches. Results are below one directory:

| directory | a row for each |
|---|---|
| `sends/kind=topic` | strategy and topic: sums over its sends, how evenly its queues were filled |
| `sends/kind=second` | strategy, piece and second of the simulated time |
| `sends/kind=time` | strategy, piece and span of time that sends took (`sends.BINS`) |
| `shares` | way to share, event and group |
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from gantrymq.spark.simulation import sends, shares
from gantrymq.spark.simulation.lanes import STRATEGIES
from gantrymq.spark.simulation.sends import Plan, Seen
from gantrymq.spark.simulation.shares import EVENTS, WAYS, Sharing
from gantrymq.spark.simulation.world import topics_of

Progress = Callable[[int, int], None]
"""Is told how many pieces are done, and of how many."""

SENDS: Final = "sends"
SHARES: Final = "shares"
GROUPS: Final = 500
"""Groups of a piece."""
_LOOK_EVERY: Final = 0.2

_SENDS_SCHEMA: Final = (
    "kind string, strategy string, number long, sends double, failed double, slow double,"
    " attempts double, spread double, fullest double"
)
_SHARES_SCHEMA: Final = (
    "way string, event string, number long, queues long, clients long, needed long, moved long,"
    " fullest double, idle long, rest double"
)


def run_sends(spark: SparkSession, plan: Plan, out: Path, progress: Progress) -> DataFrame:
    """Simulate the sends of a plan under every strategy."""
    topics = topics_of(plan.world)
    chunks = len(sends.chunks_of(topics, sends.sample_of(plan, topics)))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in _numbers(batches):
            chunk, strategy = divmod(piece, len(STRATEGIES))
            yield _seen(
                STRATEGIES[strategy].name, sends.simulate(plan, STRATEGIES[strategy], chunk)
            )

    found = _pieces(spark, chunks * len(STRATEGIES)).mapInArrow(work, _SENDS_SCHEMA)
    place = str(out / SENDS)
    _watch(
        spark, lambda: found.write.mode("overwrite").partitionBy("kind").parquet(place), progress
    )
    return spark.read.parquet(place)


def run_shares(spark: SparkSession, sharing: Sharing, out: Path, progress: Progress) -> DataFrame:
    """Let members of every group come and go, for every way to share."""
    groups = len(shares.sizes_of(sharing))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for piece in _numbers(batches):
            first = piece * GROUPS
            yield _shared(sharing, range(first, min(first + GROUPS, groups)))

    found = _pieces(spark, -(-groups // GROUPS)).mapInArrow(work, _SHARES_SCHEMA)
    place = str(out / SHARES)
    _watch(spark, lambda: found.write.mode("overwrite").parquet(place), progress)
    return spark.read.parquet(place)


def _pieces(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(0, count, 1, numPartitions=count)


def _numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def _seen(strategy: str, seen: Seen) -> pa.RecordBatch:
    """What came of a chunk, as rows."""
    topics, seconds, times = len(seen.topics), seen.by_second.shape[1], len(seen.by_time)

    def column(topic: Any, second: Any = None, span: Any = None) -> pa.Array:
        absent = (np.full(seconds, np.nan), np.full(times, np.nan))
        parts = (
            topic,
            *(a if p is None else p for p, a in zip((second, span), absent, strict=True)),
        )
        return pa.array(np.concatenate(parts), pa.float64(), from_pandas=True)

    numbers = np.concatenate((seen.topics, np.arange(seconds), np.arange(times)))
    count = topics + seconds + times
    return pa.RecordBatch.from_arrays(
        [
            pa.array(["topic"] * topics + ["second"] * seconds + ["time"] * times),
            pa.array([strategy] * count),
            pa.array(numbers, pa.int64()),
            column(seen.sends, seen.by_second[0], seen.by_time),
            column(seen.failed, seen.by_second[1]),
            column(seen.slow, seen.by_second[2]),
            column(seen.attempts),
            column(seen.spread),
            column(seen.fullest),
        ],
        names=[part.split()[0] for part in _SENDS_SCHEMA.split(",")],
    )


def _shared(sharing: Sharing, numbers: range) -> pa.RecordBatch:
    """What became of those groups, as rows."""
    topics, sizes = topics_of(sharing.world), shares.sizes_of(sharing)
    rows: list[dict[str, Any]] = []
    for number in numbers:
        group = shares.group_of(sharing, topics, number, int(sizes[number]))
        for way, owners in WAYS.items():
            for at, event in enumerate(EVENTS):
                # the same members come and go whichever way is looked at
                chance = np.random.default_rng((sharing.world.seed, 8, number, at))
                change = shares.change_of(group, event, owners, chance)
                rows.append(
                    {
                        "way": way,
                        "event": event,
                        "number": number,
                        "queues": change.queues,
                        "clients": change.clients,
                        "needed": change.needed,
                        "moved": change.moved,
                        "fullest": change.fullest,
                        "idle": change.idle,
                        "rest": float(shares.rests(event, 1, chance)[0]),
                    }
                )
    return pa.RecordBatch.from_pylist(rows)


def _watch(spark: SparkSession, act: Callable[[], None], progress: Progress) -> None:
    """Do it, and tell meanwhile how far it is; Ctrl-C stops Spark's work as well."""
    context = spark.sparkContext
    group = f"gantry simulation {time.monotonic_ns()}"
    failures: list[BaseException] = []

    def run() -> None:
        context.setJobGroup(group, group, interruptOnCancel=True)
        try:
            act()
        except BaseException as error:  # raised below, where somebody waits for it
            failures.append(error)

    thread = threading.Thread(target=run, name="simulation")
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_LOOK_EVERY)
            _tell(context, group, progress)
    except BaseException:
        context.cancelJobGroup(group)
        thread.join()
        raise
    if failures:
        raise failures[0]


def _tell(context: Any, group: str, progress: Progress) -> None:
    tracker = context.statusTracker()
    done = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = tracker.getStageInfo(stage)
            if found is not None:
                done, total = done + found.numCompletedTasks, total + found.numTasks
    if total:
        progress(done, total)
