"""Gantry beside Apache RocketMQ 5.5.0 and Kafka 4, in one run: one table, as JSON and with plots.

The table is made of other benchmarks, which run one after the other: `broker` with Kafka as a third
side, `client` with what Python programs have elsewhere, `features`, `spark`. What does not run here
is said below the table. The rest of the machine should be quiet meanwhile.

    ./dev bench peers                      everything; an hour
    ./dev bench peers --quick              less of it, and shorter; under ten minutes
    ./dev bench peers --only broker,spark
    ./dev bench peers --readme             and the table goes into the README
    ./dev bench peers --last --readme      no measuring: what the last run found

`--prefix "taskset -c 0-3"` runs each of them by that command. What was found is kept in
results/peers, as JSON and as one HTML page.
"""

# needs: server spark

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import _kafka
import _peers
import jars
from _driving import HERE, note
from _peer_parts import BENCHES, LEGENDS, Bench
from _peer_table import Part, Table, as_json, from_json, into_readme, page, plain

import gantrymq

ROOT: Final = HERE.parent
RESULTS: Final = ROOT / "results"
KEPT: Final = RESULTS / "peers"
NOT_HERE: Final = re.compile(
    r"^(?:\d\d:\d\d:\d\d )?(.* do(?:es)? not run here: .*|not finished: .*)$"
)
"""Lines by which a benchmark says what it had to leave out."""
LIMIT: Final = {True: 600.0, False: 3600.0}
"""Seconds that one of the benchmarks may take from its first word on, quick or not."""
_LAST_WORDS: Final = 60.0


# --- running --------------------------------------------------------------------------------------


class Run:
    """One of the benchmarks at work: what it says is passed on, and what it keeps is read."""

    def __init__(self, bench: Bench, *, quick: bool, prefix: Sequence[str]) -> None:
        arguments = bench.quick if quick else bench.full
        self._bench = bench
        self._limit = LIMIT[quick]
        self._prefix = prefix
        self._arguments = arguments
        self.command = shlex.join(["./dev", "bench", bench.name, *arguments])
        self.absent: list[str] = []
        self.kept: dict[str, Any] | None = None
        self.part: Part | None = None

    def do(self) -> None:
        """Run it to its end."""
        script = str(HERE / f"{self._bench.name}.py")
        began = time.time()
        process = subprocess.Popen(
            [*self._prefix, sys.executable, script, *self._arguments],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        seconds = self._follow(process)
        self.part = Part(command=self.command, seconds=seconds, exit_code=process.returncode)
        self._read(began)
        if self.kept is None:
            self.absent.append(f"{self.command} ended with {process.returncode}")

    def _follow(self, process: subprocess.Popen[str]) -> float:
        """Pass on what it says; the seconds from its first word to its end."""
        assert process.stdout is not None
        watch = threading.Timer(self._limit, process.send_signal, [signal.SIGINT])
        watch.daemon = True
        began = time.monotonic()
        try:
            for line in process.stdout:
                if watch.ident is None:
                    began = time.monotonic()
                    watch.start()
                sys.stderr.write(f"  {line}")
                if said := NOT_HERE.match(line.rstrip()):
                    self.absent.append(said[1][:300])
            process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)  # which a terminal has done already
            process.wait(_LAST_WORDS)
            raise
        finally:
            watch.cancel()
        return time.monotonic() - began

    def _read(self, began: float) -> None:
        kept = sorted(
            (RESULTS / self._bench.name).glob("*.json"), key=lambda one: one.stat().st_mtime
        )
        if kept and kept[-1].stat().st_mtime >= began:
            self.kept = json.loads(kept[-1].read_text())


def measured(table: Table, benches: Sequence[Bench], *, quick: bool, prefix: Sequence[str]) -> None:
    """Run them all, and gather their rows."""
    began = time.monotonic()
    for number, bench in enumerate(benches, 1):
        run = Run(bench, quick=quick, prefix=prefix)
        gone = time.monotonic() - began
        note(f"part {number} of {len(benches)}, after {gone:.0f} s: {run.command}")
        run.do()
        assert run.part is not None
        table.parts.append(run.part)
        table.absent += run.absent
        if run.kept is not None:
            table.rows += bench.rows(run.kept)
    note(f"{time.monotonic() - began:.0f} s")


# --- about ----------------------------------------------------------------------------------------


def fresh(command: str) -> Table:
    """A table without rows yet."""
    return Table(
        date=time.strftime("%F"), command=command, machine=machine(), versions=dict(versions()),
        legends=dict(LEGENDS),
    )  # fmt: skip


def machine() -> str:
    """What it runs on."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = ""
    if (about := Path("/proc/cpuinfo")).exists():
        found = re.search(r"^model name\s*: (.+)$", about.read_text(), re.MULTILINE)
        model = f" ({found[1]})" if found else ""
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} processors{model}, {memory:.0f} GiB, {system}"


def versions() -> Iterator[tuple[str, str]]:
    """Of everything that is held against each other, and of what it runs on."""
    yield "Gantry", f"{gantrymq.__version__}{commit()}"
    yield "RocketMQ", jars.CURRENT
    yield "Kafka", _kafka.SERVER
    for pinned in _peers.CLIENTS:
        name, _, version = pinned.partition("==")
        yield name, version
    yield "Spark", importlib.metadata.version("pyspark")
    yield "Spark's Kafka connector", _kafka.CONNECTOR
    yield "Python", platform.python_version()
    yield "Java", java()


def commit() -> str:
    """What was checked out."""
    try:
        asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f" ({done.stdout.strip()})"


def java() -> str:
    """The one that runs the servers and their clients."""
    try:
        said = subprocess.run(
            [jars.tool("java"), "-version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError, jars.JavaUnavailable):
        return "none"
    found = re.search(r'"(.+?)"', said.stderr)
    return found[1] if found else "unknown"


# --- the command ----------------------------------------------------------------------------------


def keep(table: Table) -> Path:
    """As JSON, and the page beside it."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.write_text(as_json(table), "utf-8")
    page(table).write(path.with_suffix(".html"))
    return path


def last() -> Path | None:
    """What the last run kept."""
    return max(KEPT.glob("*.json"), default=None)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [bench.name for bench in BENCHES]
    parser.add_argument("--quick", action="store_true", help="under ten minutes")
    parser.add_argument("--only", default=",".join(names), help=f"of {','.join(names)}")
    parser.add_argument("--readme", action="store_true", help="put the table into the README")
    parser.add_argument("--last", action="store_true", help="what the last run found; no measuring")
    parser.add_argument("--prefix", type=shlex.split, default=[], metavar="COMMAND")
    asked = parser.parse_args()
    if unknown := set(asked.only.split(",")) - set(names):
        parser.error(f"there is no {min(unknown)}; there are {', '.join(names)}")
    return asked


def measure(asked: argparse.Namespace) -> Path:
    """A run; also what was found until somebody interrupts it."""
    chosen = [bench for bench in BENCHES if bench.name in asked.only.split(",")]
    command = "./dev bench peers" + (" --quick" if asked.quick else "")
    if len(chosen) < len(BENCHES):
        command += f" --only {asked.only}"
    table = fresh(command)
    try:
        measured(table, chosen, quick=asked.quick, prefix=asked.prefix)
    except KeyboardInterrupt:
        left = [bench.name for bench in chosen[len(table.parts) :]]
        table.absent.append(f"{', '.join(left)}: the run was interrupted before")
    return keep(table)


def main() -> int:
    asked = options()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    path = last() if asked.last else measure(asked)
    if path is None:
        sys.exit(f"peers: nothing is kept in {KEPT} yet")
    table = from_json(path.read_text("utf-8"))
    if asked.last:
        page(table).write(path.with_suffix(".html"))
    print(*plain(table), sep="\n")
    note(f"kept as {path} and {path.with_suffix('.html')}")
    if asked.readme:
        into_readme(ROOT / "README.md", table)
        note("the README has the table")
    return 1 if table.absent else 0


if __name__ == "__main__":
    sys.exit(main())
