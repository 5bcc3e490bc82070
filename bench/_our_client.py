"""Our own client at work on whatever broker it is pointed to, as java/BrokerBench.java is Java's.

The verbs, where those of Java mean the same:

    sync     Producer.send, one message after the other
    await    AsyncProducer.send, one after the other
    async    AsyncProducer.send_soon, with so many messages under way
    soon     Producer.send_soon, the same
    auto     AsyncProducer.send_soon with auto_batch
    consume  AsyncConsumer and a handler that is an `async def`
    threads  Consumer and a handler that is a `def`
    lists    AsyncConsumer and a handler of up to 32 messages
    lite     AsyncPullConsumer.poll
    polls    PullConsumer.poll
    arrow    Reader.batches, whole topic

An order with `loop=asyncio` runs what is awaited on the standard library's loop.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import gantrymq as gantry
from gantrymq.net.aio import run

Order = dict[str, str]
T = TypeVar("T")
PATIENCE: Final = 240.0
TIMEOUT: Final = 10.0
NEVER: Final = 1 << 40
"""Bodies of this size are compressed: it is not zip that is measured."""


# --- sending --------------------------------------------------------------------------------------


def body_of(order: Order) -> bytes:
    return random.Random(1).randbytes(int(order["size"]))


def settings(order: Order) -> dict[str, Any]:
    return {
        "name_servers": order["at"],
        "group": "bench_producer",
        "send_timeout": TIMEOUT,
        "retries": 0,
        "async_retries": 0,
        "compress_over": NEVER,
        "instance_name": f"p{time.monotonic_ns()}",
    }


def sync(order: Order) -> dict[str, float]:
    body, topic = body_of(order), order["topic"]
    took: list[float] = []
    with gantry.Producer(**settings(order)) as producer:
        producer.send(topic, body)
        clock = time.perf_counter
        now = start = clock()
        until = start + float(order["seconds"])
        while now < until:
            producer.send(topic, body)
            later = clock()
            took.append(later - now)
            now = later
    return rate(len(took), now - start) | percentiles(took)


async def awaited(order: Order) -> dict[str, float]:
    body, topic = body_of(order), order["topic"]
    took: list[float] = []
    async with gantry.AsyncProducer(**settings(order)) as producer:
        await producer.send(topic, body)
        clock = time.perf_counter
        now = start = clock()
        until = start + float(order["seconds"])
        while now < until:
            await producer.send(topic, body)
            later = clock()
            took.append(later - now)
            now = later
    return rate(len(took), now - start) | percentiles(took)


async def soon(order: Order, **more: Any) -> dict[str, float]:
    body, topic, sent = body_of(order), order["topic"], 0
    made = settings(order) | {"buffer_messages": int(order["window"])} | more
    async with gantry.AsyncProducer(**made) as producer:
        await producer.send(topic, body)
        start = time.perf_counter()
        until = start + float(order["seconds"])
        while time.perf_counter() < until:
            await producer.send_soon(topic, body)
            sent += 1
        stored(await producer.flush())
        return rate(sent, time.perf_counter() - start)


async def batched(order: Order) -> dict[str, float]:
    return await soon(order, auto_batch=True)


def soon_blocking(order: Order) -> dict[str, float]:
    body, topic, sent = body_of(order), order["topic"], 0
    with gantry.Producer(buffer_messages=int(order["window"]), **settings(order)) as producer:
        producer.send(topic, body)
        start = time.perf_counter()
        until = start + float(order["seconds"])
        while time.perf_counter() < until:
            producer.send_soon(topic, body)
            sent += 1
        stored(producer.flush())
        return rate(sent, time.perf_counter() - start)


def stored(failures: list[Any]) -> None:
    if failures:
        raise RuntimeError(f"{len(failures)} were not stored: {failures[0]}")


# --- reading --------------------------------------------------------------------------------------


class Count:
    """Counts messages, from the first to the last of so many."""

    def __init__(self, order: Order) -> None:
        self._left = self._all = int(order["count"])
        self._start = self._end = 0.0

    def take(self, messages: int) -> bool:
        """Whether they are all there."""
        if self._left == self._all:
            self._start = time.perf_counter()
        self._left -= messages
        if self._left > 0:
            return False
        self._end = time.perf_counter()
        return True

    def rate(self) -> dict[str, float]:
        return rate(self._all - self._left, self._end - self._start)


def reading(order: Order) -> dict[str, Any]:
    one = f"bench_{time.monotonic_ns()}"
    return {
        "name_servers": order["at"], "group": one, "instance_name": one, "start": "earliest",
    }  # fmt: skip


async def consume(order: Order) -> dict[str, float]:
    count, done = Count(order), asyncio.Event()

    async def handle(message: gantry.ReceivedMessage) -> None:
        if count.take(1):
            done.set()

    return await consumed(order, count, done, handle, None)


async def consume_lists(order: Order) -> dict[str, float]:
    count, done = Count(order), asyncio.Event()

    async def handle(messages: list[gantry.ReceivedMessage]) -> None:
        if count.take(len(messages)):
            done.set()

    return await consumed(order, count, done, handle, 32)


async def consumed(
    order: Order,
    count: Count,
    done: asyncio.Event,
    handle: Callable[[Any], Coroutine[Any, Any, None]],
    batch: int | None,
) -> dict[str, float]:
    consumer = gantry.AsyncConsumer(
        topics=order["topic"], handler=handle, batch=batch, **reading(order)
    )
    async with consumer, asyncio.timeout(PATIENCE):
        await done.wait()
    return count.rate()


def consume_in_threads(order: Order) -> dict[str, float]:
    import threading

    count, done, lock = Count(order), threading.Event(), threading.Lock()

    def handle(message: gantry.ReceivedMessage) -> None:
        with lock:
            if count.take(1):
                done.set()

    with gantry.Consumer(topics=order["topic"], handler=handle, **reading(order)):
        if not done.wait(PATIENCE):
            raise TimeoutError("not all messages came")
    return count.rate()


async def poll(order: Order) -> dict[str, float]:
    count = Count(order)
    consumer = gantry.AsyncPullConsumer(topics=order["topic"], **reading(order))
    async with consumer, asyncio.timeout(PATIENCE):
        while not count.take(len(await consumer.poll())):
            pass
    return count.rate()


def poll_blocking(order: Order) -> dict[str, float]:
    count = Count(order)
    with gantry.PullConsumer(topics=order["topic"], **reading(order)) as consumer:
        while not count.take(len(consumer.poll())):
            pass
    return count.rate()


def arrow(order: Order) -> dict[str, float]:
    rows = 0
    with gantry.Reader(name_servers=order["at"]) as reader:
        start = time.perf_counter()
        for batch in reader.batches(order["topic"]):
            rows += len(batch)
        return rate(rows, time.perf_counter() - start)


# --- numbers --------------------------------------------------------------------------------------


def rate(messages: int, seconds: float) -> dict[str, float]:
    return {"messages": messages, "rate": messages / seconds}


def percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=1000)
    return {"p50": cuts[499] * 1e6, "p99": cuts[989] * 1e6, "p999": cuts[998] * 1e6}


BLOCKING: Final = {
    "sync": sync,
    "soon": soon_blocking,
    "threads": consume_in_threads,
    "polls": poll_blocking,
    "arrow": arrow,
}
AWAITED: Final = {
    "await": awaited,
    "async": soon,
    "auto": batched,
    "consume": consume,
    "lists": consume_lists,
    "lite": poll,
}


def done(verb: str, order: Order) -> dict[str, Any]:
    try:
        if verb in BLOCKING:
            return BLOCKING[verb](order)
        plain = order.get("loop") == "asyncio"
        return run(AWAITED[verb](order), loop="asyncio" if plain else "fastest")
    except Exception as error:  # whatever it is, the bench tells of it
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    for line in sys.stdin:
        verb, *words = line.split()
        order = dict(word.split("=", 1) for word in words)
        sys.stdout.write(json.dumps(done(verb, order)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
