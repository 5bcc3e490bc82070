"""The sides of bench/broker.py: RocketMQ 5.5.0 and Gantry, each a name server and a broker; Kafka.

They run for the whole time, so that a JVM keeps what it has learnt about its code; whoever is not
being measured is stopped (SIGSTOP), so that its threads take nothing from the other.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "interop"))

import jars
from apache import Cluster
from gantry import Gantry

APACHE: Final = "rocketmq"
GANTRY: Final = "gantry"
NAMES: Final = (APACHE, GANTRY)
KAFKA: Final = "kafka"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SETTLE: Final = 0.5
"""Seconds that a side gets to itself after it was continued: its timers are all due."""

# What runbroker.sh asks for, but for the size of the heap and its touching every page of it.
JVM: Final = (
    "-server",
    "-Xms3g",
    "-Xmx3g",
    "-XX:MaxDirectMemorySize=3g",
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-OmitStackTraceInFastThrow",
)
# RocketMQ's own defaults, where the interop tests have smaller files.
_FILES: Final = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 300_000 * 20,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


class _Process(Protocol):
    def close(self) -> None: ...


class Side:
    """One of them, running; clients find it `at` its name server, or at Kafka itself."""

    def __init__(
        self, name: str, servers: _Process, *, at: str, pids: Sequence[int], store: Path
    ) -> None:
        self.name = name
        self.at = at
        self.began = 0.0
        """The moment at which it was begun to start, once everything that it needs was there."""
        self.store = store
        self.servers = servers
        self.pids = pids

    @contextmanager
    def running(self) -> Iterator[None]:
        """Awake for the length of the block."""
        self._signal(signal.SIGCONT)
        time.sleep(_SETTLE)
        try:
            yield
        finally:
            self._signal(signal.SIGSTOP)

    def stop(self) -> None:
        """Take no processor time until `running`."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Be awake again."""
        self._signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """What its processes have used so far."""
        return sum(map(cpu_seconds, self.pids))

    def close(self) -> None:
        """End it, and remove its files."""
        self.go_on()
        self.servers.close()

    def _signal(self, number: int) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def start(name: str, flush: str, **theirs: object) -> Side:
    """Start one of them, its log flushed `sync` or `async`; `theirs` are RocketMQ's settings."""
    began = time.monotonic()
    if name == KAFKA:
        return _kafka(flush)
    if name == GANTRY:
        ours = Gantry(f"store.flush.mode={flush}")
        pids = [int(ours.facts["pid"])]
        side = Side(name, ours, at=ours.name_server, pids=pids, store=ours.home)
    else:
        settings = {**_FILES, "flushDiskType": f"{flush.upper()}_FLUSH", **theirs}
        cluster = Cluster(jars.CURRENT, settings=settings, jvm=JVM)
        side = Side(name, cluster, at=cluster.name_server, pids=cluster.pids, store=cluster.home)
    side.began = began
    return side


def _kafka(flush: str) -> Side:
    from _kafka import JVM as ITS_JVM
    from _kafka import Kafka

    kafka = Kafka(ITS_JVM, {"log.flush.interval.messages": 1} if flush == "sync" else None)
    side = Side(KAFKA, kafka, at=kafka.address, pids=kafka.pids, store=kafka.home)
    side.began = kafka.began
    return side


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
