"""Clients that do as they are told: one order a line on their stdin, one JSON object back for each.

What the benchmarks of brokers and of clients have in common: the process that drives a broker, the
numbers that it gives, and where these are kept. One process does a whole run, so that what a JVM
learns about its own hot code serves all brokers alike.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import _broker_servers  # noqa: F401 – it makes what tests/interop has importable
import jars

HERE: Final = Path(__file__).resolve().parent
SOURCES: Final = sorted((HERE / "java").glob("*.java"))
HEAP: Final = ("-Xms1g", "-Xmx1g", "-XX:-UsePerfData")

Measured = dict[str, float]


class Failed(Exception):
    """A measurement that did not come to its end."""


class Driver:
    """A client in a process of its own; a context manager."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path | None = None) -> None:
        """What it writes to stderr goes into `log`."""
        self.name = name
        with (log or Path(os.devnull)).open("wb") as said:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True
            )
        self._log = log

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        return self._process.pid

    def do(self, verb: str, **order: object) -> Measured:
        """What it says to an order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        words = (f"{name}={value}" for name, value in order.items())
        try:
            self._process.stdin.write(f"{verb} {' '.join(words)}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and the next line says so
        said = self._process.stdout.readline()
        if not said:
            raise Failed(f"the client {self.name} ended{self._tail()}")
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise Failed(f"{self.name}, {verb}: {answer['error']}")
        return answer

    def _tail(self) -> str:
        return "" if self._log is None else f": {self._log.read_text(errors='replace')[-1500:]}"


class JavaDriver(Driver):
    """The JVM with RocketMQ's client."""

    def __init__(self) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="gantry-bench-")
        options = (*HEAP, f"-Duser.home={self._home.name}")
        command = jars.java(jars.CURRENT, "client", "BrokerBench", *options, sources=SOURCES)
        super().__init__("Java", command)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._home.cleanup()


class KafkaDriver(Driver):
    """The JVM with Kafka's client."""

    def __init__(self) -> None:
        import _kafka

        super().__init__("Kafka's", _kafka.client(*HEAP))


def note(text: str) -> None:
    """Progress; not a part of the result."""
    sys.stderr.write(f"{time.strftime('%T')} {text}\n")


def median(rounds: Iterable[Mapping[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in rounds)


def keep(directory: Path, found: object, **about: object) -> Path:
    """Write what was found into a file of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.json"
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.release(),
        "rocketmq": jars.CURRENT,
    }
    path.write_text(json.dumps({"about": machine | about, "found": found}, indent=1) + "\n")
    note(f"kept in {path}")
    return path
