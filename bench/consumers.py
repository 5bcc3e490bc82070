"""What consumers cost that have nothing to do, and one that reads a thousand topics.

Memory is what a fresh process has more of than one that has only imported the package. A broker of
ours runs in a process of its own.

    ./dev bench consumers [--topics N] [--idle N]
"""
# needs: test

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import gantrymq as gantry

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "interop"))
from gantry import Gantry

SETTLED = 2.0


def resident() -> float:
    """MiB in memory; Linux only."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def line(what: str, value: float, unit: str) -> None:
    print(f"{what:<52}{value:>12,.2f} {unit}", flush=True)


def topics(count: int) -> list[str]:
    return [f"bench-{number}" for number in range(count)]


async def idle(name_server: str, count: int, kind: str) -> None:
    """So many consumers, each a client of its own, that read a topic where nothing comes."""
    make = gantry.AsyncConsumer if kind == "push" else gantry.AsyncPullConsumer
    print(resident(), flush=True)
    consumers = []
    for number in range(count):
        consumer = make(
            name_servers=name_server,
            group=f"idle-{kind}-{count}-{number}",
            start="latest",
            instance_name=f"idle-{number}",
            topics="bench-0",
        )
        await consumer.start()
        consumers.append(consumer)
    await asyncio.sleep(SETTLED)
    print(resident(), flush=True)
    for consumer in consumers:
        await consumer.close()


async def many(name_server: str, count: int) -> None:
    """One consumer of so many topics: until all are read, and until what is sent has come."""
    print(resident(), flush=True)
    wanted, came = set(topics(count)), set[str]()
    everything = asyncio.Event()

    async def handle(message: gantry.ReceivedMessage) -> None:
        came.add(message.topic)
        if len(came) == count:
            everything.set()

    began = time.perf_counter()
    async with gantry.AsyncConsumer(
        name_servers=name_server,
        group="many",
        start="earliest",
        topics=topics(count),
        handler=handle,
    ) as consumer:
        while not wanted <= {queue.topic for queue in consumer.queues}:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        print(time.perf_counter() - began, flush=True)
        async with gantry.AsyncProducer(name_servers=name_server, group="senders") as producer:
            began = time.perf_counter()
            for topic in topics(count):
                await producer.send(topic, b"hello")
            await everything.wait()
            print(time.perf_counter() - began, flush=True)
        await asyncio.sleep(SETTLED)
        print(resident(), flush=True)
        began, used = time.perf_counter(), time.process_time()
        await asyncio.sleep(10)
        print(100 * (time.process_time() - used) / (time.perf_counter() - began), flush=True)
        began = time.perf_counter()
    print(time.perf_counter() - began, flush=True)


def elsewhere(*arguments: str) -> list[float]:
    """The numbers that this script prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, check=True
    )
    return [float(number) for number in done.stdout.split()]


def bare() -> float:
    """MiB of a Python that has imported what any asyncio program has."""
    code = "import asyncio; print(open('/proc/self/statm').read().split()[1])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return int(done.stdout) * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--idle", type=int, default=20)
    parser.add_argument("--part", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        kind, name_server, count = options.part
        work = (
            many(name_server, int(count)) if kind == "many" else idle(name_server, int(count), kind)
        )
        asyncio.run(work)
        return
    with Gantry() as platform:
        with gantry.Admin(name_servers=platform.name_server) as admin:
            began = time.perf_counter()
            for topic in topics(options.topics):
                admin.create_topic(topic, queues=1)
            line(f"{options.topics:,} topics are made in", time.perf_counter() - began, "s")
        where = platform.name_server
        for kind in ("push", "pull"):
            before, one = elsewhere("--part", kind, where, "1")
            line(f"the first idle {kind} consumer of a process", one - before, "MiB")
            line("the same with the package's code, beyond bare Python", one - bare(), "MiB")
            before, several = elsewhere("--part", kind, where, str(options.idle))
            each = (several - before) / options.idle
            line(f"each of {options.idle} idle {kind} consumers", each, "MiB")
        before, started, came, after, busy, closed = elsewhere(
            "--part", "many", where, str(options.topics)
        )
        line(f"one consumer of {options.topics:,} topics reads them all after", started, "s")
        line("a message to each is sent and handled in", came, "s")
        line("its memory", after - before, "MiB")
        line("its processor time when nothing comes", busy, "%")
        line("it is closed in", closed, "s")


if __name__ == "__main__":
    main()
