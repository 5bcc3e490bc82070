"""Spark reads and writes topics: this package beside Spark's own Kafka connector.

The same messages are written to, and read from, Gantry's broker, Apache RocketMQ 5.5.0 with its
default limits of a pull, and a Kafka 4 broker, in one Spark session on two cores, in turns; whoever
is not measured is stopped meanwhile. Kafka's connector reads its seven columns; this package reads
as many that say the same (body, keys, topic, queue, offset, time, tags), and as a row for itself
all nineteen. The number of a row is the best of its rounds, since anything else on the machine only
takes away.

    ./dev bench spark                           400,000 messages of 200 B and 1 KiB; 8 minutes
    ./dev bench spark --sizes 1024 --only batch,stream --rounds 5
    ./dev bench spark --short                   a quick look at everything

| row | what |
|---|---|
| write | a data frame is written: rows a second, all of it stored |
| batch | the topic is read into nothing |
| stream | the same as one micro-batch; time inside the trigger |
| stream10 | the same as ten micro-batches |
| micro | the median time of a micro-batch while a few messages come |
| all | the batch with all columns |
| memory | MB that a Python worker of Spark has at most while it reads a batch |

Rates are printed in rows a second and, of their bodies alone, MB a second. Kafka's connector reads
in Spark's JVM, which has no worker whose memory could be told apart.
"""

# needs: server spark

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import _kafka
import jars
from _broker_servers import JVM
from apache import Cluster
from gantry import Gantry

import gantrymq as gantry
import gantrymq.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = HERE.parent / "results" / "spark"
ROWS: Final = ("write", "batch", "all", "stream", "stream10", "micro", "memory")
LEAST: Final = ("micro", "memory")
"""Rows of which less is better."""
LIKE_KAFKAS: Final = "body,keys,topic,queue_id,queue_offset,store_timestamp,tags"
PARTITIONS: Final = 2
MUST: Final = {"gantry": 1.5, "rocketmq": 1.0}
"""How many times as fast as Kafka's connector batch and stream have to be."""
_SETTLE: Final = 0.5
_LOW_RATE: Final = 0.02
"""Seconds between messages while micro-batches are timed."""


class Side(Protocol):
    """A broker, and how Spark reads and writes it."""

    name: str
    pids: list[int]

    def make(self, topic: str) -> None: ...
    def ready(self) -> None: ...
    def write(self, frame: DataFrame, topic: str) -> None: ...
    def reader(self, kind: Any, topic: str, limit: int | None, *, every: bool) -> Any: ...
    def trickle(self, topic: str, stop: threading.Event) -> None: ...
    def close(self) -> None: ...


class RocketMQ:
    """Gantry's broker, or RocketMQ's own."""

    def __init__(self, name: str, server: Any, pids: list[int]) -> None:
        self.name = name
        self.pids = pids
        self._server = server
        self._options = {"nameServer": server.name_server}

    def make(self, topic: str) -> None:
        with gantry.Admin(name_servers=self._server.name_server, timeout=20) as admin:
            admin.create_topic(topic, queues=PARTITIONS)

    def ready(self) -> None:
        """Wait until brokers are registered: a name server that was stopped takes them for dead."""
        deadline = time.monotonic() + 60
        with gantry.Admin(name_servers=self._server.name_server, timeout=20) as admin:
            while not admin.list_brokers():
                if time.monotonic() > deadline:
                    raise SystemExit(f"no broker of {self.name} registers")
                time.sleep(0.2)

    def write(self, frame: DataFrame, topic: str) -> None:
        writer = frame.write.format("rocketmq").mode("append")
        writer.options(**self._options, topic=topic).save()

    def reader(self, kind: Any, topic: str, limit: int | None, *, every: bool) -> Any:
        reader = kind.format("rocketmq").options(**self._options, topic=topic)
        if not every:
            reader = reader.option("columns", LIKE_KAFKAS)
        reader = reader.option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", limit) if limit else reader

    def trickle(self, topic: str, stop: threading.Event) -> None:
        with gantry.Producer(name_servers=self._server.name_server, group="bench") as producer:
            while not stop.wait(_LOW_RATE):
                producer.send(topic, b"x" * 1000)

    def close(self) -> None:
        self._server.close()


class KafkasOwn:
    """Kafka, by Spark's connector."""

    name = "kafka"

    def __init__(self) -> None:
        self._kafka = _kafka.Kafka()
        self.pids = self._kafka.pids
        self._options = {"kafka.bootstrap.servers": self._kafka.address}

    def make(self, topic: str) -> None:
        self._kafka.make(topic, PARTITIONS)

    def ready(self) -> None:
        """It always is."""

    def write(self, frame: DataFrame, topic: str) -> None:
        rows = frame.selectExpr("keys AS key", "body AS value")
        rows.write.format("kafka").options(**self._options, topic=topic).save()

    def reader(self, kind: Any, topic: str, limit: int | None, *, every: bool) -> Any:
        reader = kind.format("kafka").options(**self._options, subscribe=topic)
        reader = reader.option("startingOffsets", "earliest")
        return reader.option("maxOffsetsPerTrigger", limit) if limit else reader

    def trickle(self, topic: str, stop: threading.Event) -> None:
        """By Kafka's own tool, in a JVM of its own."""
        self._kafka.trickle(topic, 1000, round(1 / _LOW_RATE), stop)

    def close(self) -> None:
        self._kafka.close()


@dataclass(slots=True, kw_only=True)
class Plan:
    """What is measured."""

    messages: int
    sizes: list[int]
    rows: list[str]
    sides: list[str]
    rounds: int
    seconds: float
    found: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def note(self, row: str, size: int, side: str, value: float) -> None:
        self.found.setdefault(f"{row} {size}", {}).setdefault(side, []).append(value)


class Bench:
    """Measures, in turns."""

    def __init__(self, plan: Plan, spark: SparkSession, sides: list[Side], home: Path) -> None:
        self.plan = plan
        self.spark = spark
        self.sides = sides
        self.home = home
        self._checkpoints = 0

    def run(self) -> None:
        for size in self.plan.sizes:
            self._fill(size)
            for _ in range(self.plan.rounds):
                for row in ("batch", "all", "stream", "stream10", "memory"):
                    if row in self.plan.rows:
                        self._in_turns(row, size, getattr(self, f"_{row}"))
        if "micro" in self.plan.rows:
            self._in_turns("micro", 1000, self._micro)

    def _in_turns(self, row: str, size: int, measure: Callable[[Side, int], float | None]) -> None:
        for side in self.sides:
            with self._alone(side):
                value = measure(side, size)
            if value is not None:
                self.plan.note(row, size, side.name, value)
                say(f"  {row} {size} {side.name}: {value:,.1f}")

    @contextlib.contextmanager
    def _alone(self, side: Side) -> Iterator[None]:
        others = [pid for other in self.sides if other is not side for pid in other.pids]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(_SETTLE)
        side.ready()
        try:
            yield
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)

    # --- rows -------------------------------------------------------------------------------------

    def _frame(self, size: int, count: int) -> DataFrame:
        hashed = "sha2(cast(id AS string), 512)"
        body = f"substring(repeat({hashed}, {size // 128 + 1}), 1, {size})"
        frame = self.spark.range(0, count, 1, PARTITIONS)
        return frame.selectExpr(f"encode({body}, 'UTF-8') AS body", "concat('k', id) AS keys")

    def _fill(self, size: int) -> None:
        """Write the messages, and the first time a few to warm up."""
        topic = f"bench-{size}"
        for side in self.sides:
            with self._alone(side):
                side.make(topic)
                side.make(f"warm-{size}")
                side.write(self._frame(size, 5_000), f"warm-{size}")
                begun = time.perf_counter()
                side.write(self._frame(size, self.plan.messages), topic)
                rate = self.plan.messages / (time.perf_counter() - begun)
                if "write" in self.plan.rows:
                    self.plan.note("write", size, side.name, rate)
                    say(f"  write {size} {side.name}: {rate:,.0f}")
                self._count(side, topic)

    def _count(self, side: Side, topic: str) -> None:
        found = side.reader(self.spark.read, topic, None, every=False).load().count()
        if found != self.plan.messages:
            raise SystemExit(f"{side.name} has {found:,} of {self.plan.messages:,} messages")

    def _batch(self, side: Side, size: int, *, every: bool = False) -> float:
        begun = time.perf_counter()
        frame = side.reader(self.spark.read, f"bench-{size}", None, every=every).load()
        frame.write.format("noop").mode("overwrite").save()
        return self.plan.messages / (time.perf_counter() - begun)

    def _all(self, side: Side, size: int) -> float | None:
        return self._batch(side, size, every=True) if side.name != "kafka" else None

    def _memory(self, side: Side, size: int) -> float | None:
        if side.name == "kafka":
            return None
        forget_memory()
        self._batch(side, size)
        return worker_memory()

    def _stream(self, side: Side, size: int, limit: int | None = None) -> float:
        """Rows a second inside of the triggers."""
        query = self._started(side, f"bench-{size}", limit, {"availableNow": True})
        query.awaitTermination()
        progress = [one for one in query.recentProgress if one.numInputRows]
        rows = sum(one.numInputRows for one in progress)
        if rows != self.plan.messages:
            raise SystemExit(f"{side.name} streamed {rows:,} of {self.plan.messages:,} messages")
        seconds = sum(float(one.durationMs["triggerExecution"]) for one in progress) / 1000
        return float(rows / seconds)

    def _stream10(self, side: Side, size: int) -> float:
        return self._stream(side, size, self.plan.messages // 10)

    def _micro(self, side: Side, size: int) -> float:
        """Milliseconds of a micro-batch, the median."""
        topic = "trickle"
        side.make(topic)
        stop = threading.Event()
        thread = threading.Thread(target=side.trickle, args=(topic, stop))
        thread.start()
        query = self._started(side, topic, None, {"processingTime": "0 seconds"})
        try:
            time.sleep(self.plan.seconds)
        finally:
            stop.set()
            thread.join()
            query.stop()
        progress = [one for one in query.recentProgress if one.numInputRows]
        times = [
            float(one.durationMs["triggerExecution"]) for one in progress[len(progress) // 3 :]
        ]
        return statistics.median(times)

    def _started(self, side: Side, topic: str, limit: int | None, trigger: dict[str, Any]) -> Any:
        self._checkpoints += 1
        place = self.home / f"checkpoint-{self._checkpoints}"
        reader = side.reader(self.spark.readStream, topic, limit, every=False)
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(place))
        return writer.trigger(**trigger).start()


def say(text: str) -> None:
    print(text, flush=True)


def workers() -> Iterator[Path]:
    """Spark's Python workers, in /proc."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_bytes()
            if b"pyspark.daemon" in command or b"pyspark.worker" in command:
                yield process


def worker_memory() -> float:
    """MB that the largest of Spark's Python workers had at most, since that was forgotten."""
    largest = 0
    for worker in workers():
        with contextlib.suppress(OSError):
            lines = (worker / "status").read_text().splitlines()
            fields = dict(line.split(":", 1) for line in lines)
            largest = max(largest, int(fields.get("VmHWM", "0 kB").split()[0]))
    return largest / 1024


def forget_memory() -> None:
    """Have workers' peaks of memory begin anew."""
    for worker in workers():
        with contextlib.suppress(OSError):
            (worker / "clear_refs").write_text("5")


def report(plan: Plan) -> bool:
    """Print the best of each row, with the ratio to Kafka's; whether all that must hold does."""
    held = True
    say(f"{'':16}" + "".join(f"{side:>16}" for side in plan.sides) + "   times kafka")
    for row, by_side in plan.found.items():
        least = row.startswith(LEAST)
        best = {side: (min if least else max)(values) for side, values in by_side.items()}
        text = f"{row:16}" + "".join(told(row, best.get(side)) for side in plan.sides)
        kafka = best.get("kafka")
        for side, must in MUST.items():
            if kafka is None or side not in best:
                continue
            ratio = kafka / best[side] if least else best[side] / kafka
            wanted = 1.0 if least else must
            fails = row.split()[0] in ("batch", "stream", "micro") and ratio < wanted
            held = held and not fails
            text += f"   {side} {ratio:.2f}{' (must be ' + str(wanted) + ')' if fails else ''}"
        say(text)
    return held


def told(row: str, value: float | None) -> str:
    """A cell: the number, and for rates MB a second."""
    if value is None:
        return f"{'':>16}"
    if row.startswith(LEAST):
        return f"{value:>10,.0f} {'ms' if row.startswith('micro') else 'MB':5}"
    return f"{value:>10,.0f} {value * int(row.split()[1]) / 1e6:>5,.0f}"


@contextlib.contextmanager
def sides_of(names: list[str]) -> Iterator[list[Side]]:
    with contextlib.ExitStack() as stack:
        found: list[Side] = []
        for name in names:
            side: Side
            if name == "kafka":
                side = KafkasOwn()
            elif name == "gantry":
                up = Gantry("flow.enabled=false")
                side = RocketMQ(name, up, [up.facts["pid"]])
            else:
                apache = Cluster("5.5.0", settings=FILES, jvm=(*JVM[:1], "-Xms1g", "-Xmx1g"))
                side = RocketMQ(name, apache, apache.pids)
            stack.callback(side.close)
            found.append(side)
        yield found


FILES: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "registerNameServerPeriod": 10_000,
}


def planned() -> Plan:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=400_000)
    parser.add_argument("--sizes", default="200,1024")
    parser.add_argument("--only", default=",".join(ROWS), help=f"of {','.join(ROWS)}")
    parser.add_argument("--sides", default="kafka,gantry,rocketmq")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=12.0, help="of the row micro")
    parser.add_argument("--short", action="store_true")
    asked = parser.parse_args()
    plan = Plan(
        messages=asked.messages,
        sizes=[int(size) for size in asked.sizes.split(",")],
        rows=asked.only.split(","),
        sides=asked.sides.split(","),
        rounds=asked.rounds,
        seconds=asked.seconds,
    )
    if unknown := set(plan.rows) - set(ROWS):
        parser.error(f"there is no row {min(unknown)}; there are {', '.join(ROWS)}")
    if asked.short:
        plan.messages, plan.rounds, plan.seconds = 100_000, 2, 6.0
    return plan


def main() -> int:
    plan = planned()
    home = Path(tempfile.mkdtemp(prefix="gantry-bench-spark-"))
    conf: dict[str, object] = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
    }
    if "kafka" in plan.sides:
        conf["spark.jars"] = ",".join(map(str, _kafka.connector_jars()))
    try:
        spark = gantrymq.spark.session("bench", master="local[2]", conf=conf)
        with sides_of(plan.sides) as sides:
            try:
                Bench(plan, spark, sides, home).run()
            except (KeyboardInterrupt, SystemExit) as ended:
                say(f"not finished: {ended!r}")
        held = report(plan)
        keep(plan)
        spark.stop()
    except jars.JavaUnavailable as absent:
        say(str(absent))
        return 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return 0 if held else 1


def keep(plan: Plan) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    name = time.strftime("%Y%m%d-%H%M%S.json")
    (RESULTS / name).write_text(json.dumps({"messages": plan.messages, "found": plan.found}))


if __name__ == "__main__":
    sys.exit(main())
