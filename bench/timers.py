"""Timed messages: how exactly they come, and what those that wait cost in memory and on disk.

A store is filled with messages that wait for hours, and with some that fall due one after the other
from a moment on. Then `gantry up` runs on it. Its log says when each was delivered.

    late        from its time to the moment at which it was stored in its own topic
    memory      of the process: its own, and with the pages of mapped files that it touched
    on disk     what the timer log takes for each message that waits, beside its record

    ./dev bench timers [--pending N] [--rate N] [--seconds N] [--sending N] [--directory DIR]

`--sending` messages a second come in meanwhile, timed as well. For memory alone:
`./dev bench timers --pending 10000000 --seconds 10 --body 20 --no-index`.
"""

# needs: server

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Final

from gantrymq.errors import GantryError
from gantrymq.net import aio
from gantrymq.protocol.names import TIMER_TOPIC
from gantrymq.protocol.sending import SendMessage
from gantrymq.rules.timing import out_time
from gantrymq.store.config import IndexConfig, LogConfig, StoreConfig
from gantrymq.store.store import Store
from gantrymq.store.timer_log import PLAIN
from gantrymq.store.timers import Entry, TimerCheck
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage
from tests.crashes.load import LogReader
from tests.crashes.victims import Process

SEGMENT: Final = 64 * 2**20
FILE_SIZE: Final = 100 * 2**20
TOPIC: Final = "timed"
AHEAD: Final = 12.0
"""Seconds until the first one is due, beside those that filling takes: the server starts."""
_AT_ONCE: Final = 1000
_HOUR: Final = 3_600_000
_PROPERTIES: Final = properties.encode(
    {
        "UNIQ_KEY": "%032X", "TIMER_DELIVER_MS": "%d", "WAIT": "true", "TIMER_OUT_MS": "%d",
        "REAL_TOPIC": TOPIC, "REAL_QID": "0",
    }
)  # fmt: skip
"""Of a message of that number that is due then."""


class Filler:
    """Writes what a broker would have written, without one."""

    def __init__(self, directory: Path, body: int, seed: int, *, index: bool) -> None:
        config = StoreConfig(
            log=LogConfig(segment_size=SEGMENT), index=IndexConfig(enabled=index)
        )  # fmt: skip
        self._store = Store.open(directory, config)
        files = self._store.timers(FILE_SIZE, make=True)
        assert files is not None
        self._files = files
        self._body = b"x" * body
        self._random = Random(seed)
        self._count = 0

    def far(self, count: int) -> None:
        """Messages that are due within the next day, but not within the next hour."""
        start = now_ms() + _HOUR
        self._fill(start + self._random.randrange(24 * _HOUR) for _ in range(count))

    def near(self, count: int, rate: int) -> int:
        """So many a second, from a moment on that is the result."""
        start = now_ms() + int((AHEAD + count * 60e-6) * 1000)
        self._fill(start + number * 1000 // rate for number in range(count))
        return start

    def close(self) -> int:
        """Where the log ends."""
        self._store.flush()
        queue = self._store.queue(TIMER_TOPIC, 0)
        assert queue is not None
        self._files.save(
            TimerCheck(
                read_ms=now_ms() // 1000 * 1000, place=self._files.log.end,
                queue_offset=queue.max_offset, log_offset=self._store.log_end,
            )
        )  # fmt: skip
        self._files.close()
        return self._store.close().log_end

    def _fill(self, dues: Iterator[int]) -> None:
        now = now_ms()
        while some := list(islice(dues, _AT_ONCE)):
            made = [self._message(due_ms, now) for due_ms in some]
            self._store.append_batch(made)
            self._files.add(
                [
                    Entry(due_ms - 1, PLAIN, due_ms, one.log_offset, one.size, 0)
                    for due_ms, one in zip(some, made, strict=True)
                ],
                now,
            )
            if self._count % 1_000_000 == 0:
                self._store.flush()
                say(f"{self._count:,} filled")

    def _message(self, due_ms: int, now: int) -> StoredMessage:
        self._count += 1
        found = _PROPERTIES % (self._count, due_ms, out_time(due_ms))
        return StoredMessage(TIMER_TOPIC, self._body, found, born_ms=now)


async def keep_sending(server: Process, rate: int, seconds: float) -> int:
    """Timed messages that are due in an hour or a second, evenly; how many were answered."""
    peer = await server.connect()
    random, sent = Random(1), 0
    end = time.monotonic() + seconds
    while rate and time.monotonic() < end:
        began = time.monotonic()
        calls = []
        for _ in range(max(1, rate // 20)):
            due_ms = now_ms() + random.choice((1000, _HOUR))
            found = {"UNIQ_KEY": f"F{sent:031X}", "TIMER_DELIVER_MS": str(due_ms)}
            request = SendMessage(
                group="bench", topic=TOPIC, queue_id=1, born_ms=now_ms(),
                properties=properties.join(found), body=b"x" * 100,
            )  # fmt: skip
            calls.append(peer.call(request, timeout=30))
        done = await asyncio.gather(*calls, return_exceptions=True)
        sent += sum(not isinstance(one, GantryError) for one in done)
        await asyncio.sleep(max(0.0, began + 0.05 - time.monotonic()))
    peer.close()
    return sent


def memory(pid: int) -> tuple[float, float]:
    """MiB: of its own, and with mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    return int(found["RssAnon"].split()[0]) / 1024, int(found["VmRSS"].split()[0]) / 1024


def processor(pid: int) -> float:
    """Seconds of it that were used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def lateness(server: Process, log_offset: int, start: int, end: int) -> list[int]:
    """Ms, of all that were due then, in order, from that place of the log on."""
    found, reader = [], LogReader()
    reader.at = log_offset
    for path in sorted((server.store / "commitlog").glob("0*")):
        if int(path.name) + SEGMENT <= log_offset:
            continue
        for message in reader.news({int(path.name): path.read_bytes()}):
            if message.topic == TOPIC:
                due = int(message.find("TIMER_DELIVER_MS") or 0)
                if start <= due < end:
                    found.append(message.store_ms - due)
    return sorted(found)


async def run(given: argparse.Namespace) -> None:
    server = Process(
        {"store.log.segment_size": SEGMENT, "store.index.enabled": given.index},
        directory=given.directory,
    )
    await server.begin()
    await server.ready()
    await asyncio.sleep(1)
    empty = memory(server.pid)
    await server.stop()
    due_count = given.rate * given.seconds
    began = time.monotonic()
    filler = Filler(server.store, given.body, 1, index=given.index)
    filler.far(given.pending)
    start = filler.near(due_count, given.rate)
    filled_to = filler.close()
    line("filled", given.pending + due_count, "messages")
    line("  each", (time.monotonic() - began) / (given.pending + due_count) * 1e6, "µs")
    await server.begin()
    await server.ready()
    line("start with all of them", server.starts[-1], "s")
    left = start / 1000 - time.time()
    assert left > 0, f"it was ready {-left:.1f} s after the first was due"
    await asyncio.sleep(left - min(1.0, left))
    waiting = memory(server.pid)
    sending = asyncio.create_task(keep_sending(server, given.sending, given.seconds + 1))
    peak, used = waiting, processor(server.pid)
    while time.time() < start / 1000 + given.seconds + 2:
        await asyncio.sleep(0.5)
        peak = max(peak[0], memory(server.pid)[0]), max(peak[1], memory(server.pid)[1])
    used = (processor(server.pid) - used) / (given.seconds + 2)
    sent = await sending
    await asyncio.sleep(2)
    after = memory(server.pid)
    await server.stop()
    late = lateness(server, filled_to, start, start + given.seconds * 1000)
    line("delivered of those that fell due", len(late), f"of {due_count:,}, and {sent:,} sent")
    if late:
        line("  earliest", late[0], "ms late")
        for part in (0.5, 0.9, 0.99, 0.999):
            line(f"  p{part * 100:g}", late[int(len(late) * part)], "ms late")
        line("  latest", late[-1], "ms late")
        within = sum(one <= 100 for one in late) / len(late) * 100
        line("  within 100 ms", within, "%")
    line("processor while delivering", used * 100, "% of a core")
    for what, (own, all_of_it) in (
        ("empty", empty), ("all waiting", waiting), ("most while delivering", peak),
        ("afterwards", after),
    ):  # fmt: skip
        line(f"memory, {what}", own, f"MiB, {all_of_it:.1f} with mapped files")
    units = sum(path.stat().st_blocks * 512 for path in (server.store / "timerlog").iterdir())
    wheel = (server.store / "timerwheel").stat().st_blocks * 512
    line("on disk, timer log", units / (given.pending + due_count + sent), "bytes a message")
    line("on disk, timer wheel", wheel / 2**20, "MiB, however many wait")
    await server.close()


def line(what: str, value: float, unit: str) -> None:
    print(f"{what:<36}{value:>14,.1f} {unit}", flush=True)


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=5000, help="messages that fall due each second")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--sending", type=int, default=0, help="messages that come each second")
    parser.add_argument("--body", type=int, default=100, help="bytes")
    parser.add_argument(
        "--index", action=argparse.BooleanOptionalAction, default=True, help="whether keys are kept"
    )
    parser.add_argument("--directory", type=Path, help="where the store is made")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    aio.run(run(given))


if __name__ == "__main__":
    main()
