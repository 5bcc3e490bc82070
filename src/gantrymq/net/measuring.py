"""What can be measured of a process and of its servers, whatever they serve."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from gantrymq.net.endings import Ending
from gantrymq.net.link import Traffic
from gantrymq.net.server import Server
from gantrymq.observe import metrics
from gantrymq.observe.metrics import Sample

_PAGES: Final = Path("/proc/self/statm")
_STARTED: Final = time.time()


def measure_servers(servers: Sequence[Server]) -> Iterator[Sample]:
    """Connections and requests of servers that belong together."""
    yield metrics.CONNECTIONS.of(sum(len(server.peers) for server in servers))
    endings: Counter[Ending] = Counter()
    refusals: Counter[tuple[str, str]] = Counter()
    traffic = Traffic()
    for server in servers:
        endings.update(server.endings)
        refusals.update(server.refusals)
        traffic.add(server.traffic)
    for ending in Ending:
        yield metrics.ENDED.of(endings[ending], ending.name.lower())
    yield metrics.TURNED_AWAY.of(sum(server.refused for server in servers), "too_many")
    yield metrics.TURNED_AWAY.of(sum(server.dismissed for server in servers), "beginning")
    yield metrics.REQUESTS.of(traffic.requests)
    for codes, count in sorted(refusals.items()):
        yield metrics.REFUSALS.of(count, *codes)
    yield metrics.BYTES_IN.of(traffic.bytes_in)
    yield metrics.BYTES_OUT.of(traffic.bytes_out)


def measure_process() -> Iterator[Sample]:
    """What the process uses."""
    yield metrics.CPU.of(time.process_time())
    memory = resident_memory()
    if memory is not None:
        yield metrics.MEMORY.of(memory)
    yield metrics.STARTED.of(_STARTED)


def resident_memory() -> int | None:
    """Bytes of memory that the process has, where the system tells."""
    try:
        pages = int(_PAGES.read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
