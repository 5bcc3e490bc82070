"""What consume queues and the key index cost: for each message, for each queue, at start and stop.

Times are of the processor, so that they hold on a busy machine, except where the disk is waited
for. The append to one of many queues is compared with the append to a single one; both with the
queues synced now and then, as a store does in a thread of its own (not counted).

    ./dev bench queues [--queues N] [--messages N]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from gantrymq.store.consume_queue import ConsumeQueue
from gantrymq.store.disk import RealDisk
from gantrymq.store.key_index import KeyHashes, KeyIndex
from gantrymq.store.queues import QueueOpener

ROUNDS = 5
SIZE = 1200
SECONDS = "s"


def used(work: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    work()
    return clock() - began


def line(what: str, value: float, unit: str) -> None:
    print(f"{what:<52}{value:>12,.2f} {unit}")


def resident() -> float:
    """MiB in memory; Linux only."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def append_to(queues: list[ConsumeQueue], messages: int) -> float:
    """Nanoseconds for each of so many messages, to one queue after the other."""
    at = max(queue.max_log_offset for queue in queues) + 1
    first = at

    def work() -> None:
        nonlocal at
        for _ in range(messages // len(queues)):
            for queue in queues:
                queue.append(at, SIZE, 12345, queue.max_offset)
                at += SIZE

    took = used(work)
    return took / ((at - first) / SIZE) * 1e9


def appending(queues: list[ConsumeQueue], messages: int) -> float:
    found = []
    for _ in range(ROUNDS):
        found.append(append_to(queues, messages))
        for queue in queues[:200]:  # of the rest, what it holds in memory is part of the question
            queue.sync()
    return median(found)


def reading(queue: ConsumeQueue) -> None:
    last = queue.max_offset
    for what, first, count in (
        ("32 entries at the end", last - 32, 32),
        ("32 older entries", last // 2 // 300_000 * 300_000 + 1000, 32),
        ("4096 older entries", last // 2 // 300_000 * 300_000 + 1000, 4096),
    ):
        times = 200_000 // count

        def work(first: int = first, count: int = count, times: int = times) -> None:
            for _ in range(times):
                for _ in queue.entries(first, count):
                    pass

        line(f"read {what}", median(used(work) / times * 1e6 for _ in range(ROUNDS)), "µs")


def opening(root: Path, count: int) -> list[ConsumeQueue]:
    opener = QueueOpener(RealDisk(), lambda _: 0)
    return [opener(root / f"T{number // 8}" / str(number % 8)) for number in range(count)]


def queues(root: Path, many: int, messages: int) -> None:
    one = opening(root / "one", 1)
    alone = appending(one, messages)
    line("append, 1 queue", alone, "ns")
    reading(one[0])
    before = resident()
    several = opening(root / "many", many)
    line(f"memory of {many:,} empty queues", resident() - before, "MiB")
    spread = appending(several, messages)
    line(f"append, {many:,} queues", spread, "ns")
    line("  that many times as much", spread / alone, "")
    line(f"memory of {many:,} queues with messages", resident() - before, "MiB")

    def sync() -> None:
        for queue in several:
            queue.sync()

    line("first sync of all (the disk's time)", used(sync, time.perf_counter), SECONDS)
    line("memory after it", resident() - before, "MiB")
    append_to(several, many)
    line("sync of all after 1 message each (the disk's time)", used(sync, time.perf_counter), "s")
    line("open all again", used(lambda: opening(root / "many", many)), SECONDS)
    again = opening(root / "many", many)

    def recover() -> None:
        for queue in again:
            queue.recover()

    line("recover all", used(recover), SECONDS)


def index(root: Path, messages: int) -> None:
    keys = [f"7F00000100002A139A5518B4{at >> 4:04X}{at % 65536:04X}" for at in range(messages)]
    hashes = KeyHashes()
    line("hash of a unique key", median(
        used(lambda: [hashes.of("topic", key) for key in keys]) / messages * 1e9
        for _ in range(ROUNDS)
    ), "ns")  # fmt: skip
    found = KeyIndex(RealDisk(), root / "index", clock_ms=lambda: 10**12)
    times = []
    for number in range(ROUNDS):
        base = number * messages * SIZE

        def work(base: int = base) -> None:
            for at, key in enumerate(keys):
                found.put((), key, "topic", base + at * SIZE, 10**12 + at)

        times.append(used(work) / messages * 1e9)
        found.sync()
    line("put of a unique key", median(times), "ns")
    line("query", used(lambda: found.query("topic", keys[5], 64, 0, 2**62)) * 1e6, "µs")
    found.close()
    found = KeyIndex(RealDisk(), root / "index", clock_ms=lambda: 10**12)
    line(f"recover {found.files[0].count:,} entries", used(lambda: found.recover(2**62)), SECONDS)
    found.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=200_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=".") as root:
        index(Path(root), options.messages)
        queues(Path(root), options.queues, options.messages)


if __name__ == "__main__":
    main()
