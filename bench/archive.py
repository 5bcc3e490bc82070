"""The archive pipeline under kills of its driver: Parquet = store, row for row.

A producer sends without pause while `gantry pipeline run archive` runs again and again. Each run is
killed with all of its processes, in an instant that is drawn anew each time. At the end one run is
let through, and what the Parquet files hold is compared with what the store holds.

    ./dev bench archive                20 kills; 15 minutes
    ./dev bench archive --kills 2
    ./dev bench archive --rows 5000000 --kills 0     how fast it is
"""

# needs: server spark

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import _broker_servers  # noqa: F401 – it makes what tests/interop has importable
import pyarrow.dataset as ds
from gantry import Gantry

import gantrymq as gantry

TOPIC: Final = "archived"
COMMAND: Final = (
    sys.executable, "-c", "from gantrymq.cli import main; main()", "pipeline", "run", "archive",
)  # fmt: skip
NAMES: Final = ("broker", "queue_id", "queue_offset", "body")


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rows", type=int, default=20_000, help="sent before the first run")
    parser.add_argument("--batch", type=int, default=0, help="most messages of a batch")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gantry-archive-") as home:
        return measure(arguments, Path(home))


def measure(arguments: argparse.Namespace, home: Path) -> int:
    """The kills, and the comparison."""
    draw = random.Random(arguments.seed)
    batch = arguments.batch or (2000 if arguments.kills else 1_000_000)
    told = ["--set", f"topics={TOPIC}", "--set", f"maxOffsetsPerTrigger={batch}"]
    with Gantry("flow.enabled=false") as server:
        command = [*COMMAND, "--data", str(home), "--namesrv", server.name_server, *told]
        with gantry.Admin(name_servers=server.name_server) as admin:
            admin.create_topic(TOPIC, queues=8)
        send(server.name_server, arguments.rows)
        took = run(command)  # how long one takes, so that kills meet all of it
        print(f"{arguments.rows:,} messages: {took:.1f}s, starting Spark included", flush=True)
        with sending(server.name_server) if arguments.kills else nothing():
            for number in range(arguments.kills):
                after = draw.uniform(0.3, 1.1) * took
                ended = run(command, kill_after=after)
                seen = sum(1 for _ in home.glob("archive/_log/*.json"))
                print(f"kill {number + 1} after {ended:.1f}s, {seen} log entries", flush=True)
        run(command)
        return compare(home / "archive", server.name_server)


def compare(root: Path, name_server: str) -> int:
    """Whether the files hold what the store holds, and nothing else."""
    archived = rows_of(ds.dataset(root, format="parquet", partitioning="hive").to_table())
    direct = import_module("tests.spark.direct")  # as Spark's tasks read, without Spark
    stored = rows_of(direct.read(nameServer=name_server, topic=TOPIC))
    lost, more = len(set(stored) - set(archived)), len(archived) - len(set(archived))
    same = archived == stored
    print(f"{len(stored):,} stored, {len(archived):,} archived, {lost:,} lost, {more:,} doubled")
    print("Parquet = store" if same else "NOT THE SAME")
    return 0 if same else 1


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    """The identity and the body of each message, sorted."""
    return sorted(zip(*(table.column(name).to_pylist() for name in NAMES), strict=True))


def run(command: list[str], kill_after: float | None = None) -> float:
    """Run it to its end, or to a sudden one; how long that took."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
        try:
            code = process.wait(kill_after)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kill_session(process.pid)
            return time.monotonic() - start
        said.seek(0)
        if code:
            raise SystemExit(said.read().decode(errors="replace")[-5000:])
    return time.monotonic() - start


def kill_session(session: int) -> None:
    """Kill what is left of it: Spark gives its JVM a group of its own."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, IndexError):
            continue  # it has ended


def send(name_server: str, count: int) -> None:
    """That many messages."""
    with gantry.Producer(group="bench", name_servers=name_server, send_timeout=30) as producer:
        for at in range(0, count, 500):
            size = min(500, count - at)
            producer.send_batch([gantry.Message(TOPIC, b"%d" % (at + n)) for n in range(size)])


@contextmanager
def sending(name_server: str) -> Iterator[None]:
    """Messages all the time, some hundred a second."""
    end = threading.Event()

    def go() -> None:
        while not end.wait(0.5):
            send(name_server, 200)

    thread = threading.Thread(target=go)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def nothing() -> Iterator[None]:
    """No messages meanwhile."""
    yield


if __name__ == "__main__":
    sys.exit(main())
