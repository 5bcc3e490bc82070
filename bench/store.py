"""What the store costs: appending, reading, waiting for the disk, starting again.

Times of appends and reads are processor time of the one thread that does them, the best of several
rounds, so that other work on the machine shows as little as can be. Waiting for the disk is timed
by the clock. Run it from the top directory, on the disk that matters:
`PYTHONPATH=src python bench/store.py --directory /var/tmp`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from gantrymq.store.config import FlushConfig, IndexConfig, LogConfig, StoreConfig
from gantrymq.store.flush import Outcome
from gantrymq.store.store import Store
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage

T = TypeVar("T")

COUNT = 20_000
ROUNDS = 7
QUEUES = 8
Results = dict[str, float]


def config(mode: str = "async", *, index: bool = False) -> StoreConfig:
    return StoreConfig(
        log=LogConfig(segment_size=64 * 2**20),
        index=IndexConfig(enabled=index),
        flush=FlushConfig(mode="sync" if mode == "sync" else "async"),
    )


def messages(size: int, count: int) -> list[StoredMessage]:
    body, made = os.urandom(size), []
    for number in range(count):
        unique = f"7F0000010A1B18B4AAC2{number:012X}"
        raw = properties.encode({"UNIQ_KEY": unique, "WAIT": "true", "TAGS": "TagA"})
        made.append(
            StoredMessage("orders", body, raw, number % QUEUES, born_ms=1, store_port=10911)
        )
    return made


def each(work: Callable[[T], object], items: list[T], count: int) -> float:
    """Microseconds of processor time for one of `count`, which are in `items`."""
    gc.collect()
    gc.disable()
    start = time.thread_time()
    for item in items:
        work(item)
    taken = time.thread_time() - start
    gc.enable()
    return taken / count * 1e6


def best(results: Results, name: str, value: float) -> None:
    results[name] = round(min(results.get(name, value), value), 3)


def appending(directory: Path, size: int, results: Results) -> None:
    """Each message by itself, without and with the key index, and in batches of one queue."""
    for number in range(ROUNDS):
        made = messages(size, COUNT)
        best(results, f"encode {size}", each(StoredMessage.encode, made, COUNT))
        for index in (False, True):
            store = Store.open(directory / f"{size}-{index}-{number}", config(index=index))
            name = f"append {size}" + " with index" * index
            best(results, name, each(store.append, made, COUNT))
            store.close()
        store = Store.open(directory / f"{size}-batch-{number}", config())
        for one in made:
            one.queue_id = 0
        parts = [made[at : at + 32] for at in range(0, COUNT, 32)]
        best(results, f"append {size} by 32", each(store.append_batch, parts, COUNT))
        store.close()


def reading(directory: Path, results: Results) -> None:
    """All of one queue of eight, and of the only one, as a consumer and as Spark would."""
    for queues, name in ((QUEUES, "one queue of 8"), (1, "the only queue")):
        store = Store.open(directory / f"read-{queues}", config())
        for one in messages(1024, COUNT):
            one.queue_id %= queues
            store.append(one)
        for most in (32, 4096):
            for _ in range(ROUNDS):
                taken = each(partial(read_all, store), [most], COUNT // queues)
                best(results, f"read {name} by {most}", taken)
        store.close()


def read_all(store: Store, most: int) -> None:
    offset = 0
    while (found := store.read("orders", 0, offset, max_messages=most)).count:
        offset = found.next_offset
        _ = found.pieces


async def waiting(directory: Path, clients: int, results: Results) -> None:
    """So many at once, each of whom waits for the disk before the next message."""
    loop = asyncio.get_running_loop()
    store = Store.open(directory / f"sync-{clients}", config("sync"))
    store.start(lambda: loop.call_soon_threadsafe(store.settle))
    each_one, times = 4096 // clients, list[float]()

    async def client() -> None:
        for one in messages(1024, each_one):
            start, done = time.perf_counter(), loop.create_future()
            store.durable(store.append(one).end, done.set_result)
            assert await done is Outcome.STORED
            times.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    taken = time.perf_counter() - start
    times.sort()
    results[f"sync, {clients} at once: messages a second"] = round(len(times) / taken)
    results[f"sync, {clients} at once: p50, µs"] = round(times[len(times) // 2] * 1e6)
    results[f"sync, {clients} at once: p99, µs"] = round(times[len(times) * 99 // 100] * 1e6)
    store.close()


def starting(directory: Path, results: Results) -> None:
    """After a clean stop, and with all queues and the index to be made anew."""
    count, there = 100_000, directory / "start"
    store = Store.open(there, config(index=True))
    for one in messages(1024, count):
        store.append(one)
    store.close()
    start = time.perf_counter()
    Store.open(there, config(index=True)).close()
    results["open and close after a clean stop, ms"] = round((time.perf_counter() - start) * 1e3, 1)
    for entry in sorted((there / "consumequeue").rglob("*"), reverse=True):
        entry.rmdir() if entry.is_dir() else entry.unlink()
    for entry in (there / "index").iterdir():
        entry.unlink()
    start = time.perf_counter()
    store = Store.open(there, config(index=True), report=lambda line: None)
    results["rebuild, messages a second"] = round(count / (time.perf_counter() - start))
    assert store.recovered.messages == count
    store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", default=tempfile.gettempdir(), help="on which disk")
    parser.add_argument("--json", action="store_true", help="print results as JSON")
    chosen = parser.parse_args()
    results: Results = {}
    with tempfile.TemporaryDirectory(dir=chosen.directory) as made:
        directory = Path(made)
        for size in (100, 1024, 16 * 1024):
            appending(directory, size, results)
        reading(directory, results)
        for clients in (1, 16, 64):
            asyncio.run(waiting(directory, clients, results))
        starting(directory, results)
    if chosen.json:
        print(json.dumps(results, indent=1))
    else:
        for name, value in results.items():
            print(f"{name:42} {value:>12,}")


if __name__ == "__main__":
    main()
