"""What bench/broker.py asks besides speed: how soon a broker is there, what memory it takes.

Memory is what the process has for itself (RssAnon), after so many messages of 1 KiB came in: the
files that it maps are the system's page cache, and would be there without it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import _broker_servers as servers
from _driving import Driver, Measured

SIZE: Final = 1024
QUEUES: Final = 8
MIB: Final = 2**20


def start_time(name: str) -> Measured:
    """Seconds from nothing to a broker on an empty store, registered at its name server."""
    side = servers.start(name, "async")
    took = time.monotonic() - side.began
    try:
        return {"seconds": took, "mib": _own_memory(side) / MIB}
    finally:
        side.close()


def memory(name: str, driver: Driver, count: int) -> Measured:
    """MiB of memory of its own after `count` messages."""
    side = servers.start(name, "async")
    try:
        order = {"at": side.at, "size": SIZE, "topic": "bench-memory"}
        driver.do("topic", queues=QUEUES, **order)
        driver.do("fill", count=count, threads=4, batch=32, **order)
        time.sleep(1)  # what was under way is done
        return {"mib": _own_memory(side) / MIB, "most": _most_memory(side) / MIB}
    finally:
        side.close()


def _own_memory(side: servers.Side) -> int:
    return sum(_status(pid, "RssAnon") for pid in side.pids)


def _most_memory(side: servers.Side) -> int:
    """With the mapped files that it has looked at, at the highest."""
    return sum(_status(pid, "VmHWM") for pid in side.pids)


def _status(pid: int, name: str) -> int:
    for text in Path(f"/proc/{pid}/status").read_text().splitlines():
        if text.startswith(f"{name}:"):
            return int(text.split()[1]) * 1024
    raise ValueError(f"process {pid} does not tell its {name}")
