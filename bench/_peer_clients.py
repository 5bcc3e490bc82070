"""What Python users have elsewhere, at work on servers of its own; for bench/_peers.py.

It runs where that is installed and not this project. Verbs, as in _our_client.py:

    kafka-await   aiokafka: send_and_wait, one message after the other
    kafka-async   aiokafka: send, with so many messages under way; it gathers them into batches
    kafka-read    aiokafka: getmany, so many messages from the first on
    grpc-sync     rocketmq-python-client: send, one after the other
    grpc-async    rocketmq-python-client: send_async, with so many under way
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import sys
import threading
import time
from importlib import import_module
from typing import Any

Order = dict[str, str]


def body_of(order: Order) -> bytes:
    return random.Random(1).randbytes(int(order["size"]))


def rate(messages: int, seconds: float) -> dict[str, float]:
    return {"messages": messages, "rate": messages / seconds}


def percentiles(seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=1000)
    return {"p50": cuts[499] * 1e6, "p99": cuts[989] * 1e6, "p999": cuts[998] * 1e6}


async def kafka_await(order: Order) -> dict[str, float]:
    made_by: Any = import_module("aiokafka").AIOKafkaProducer

    body, topic = body_of(order), order["topic"]
    took: list[float] = []
    async with made_by(bootstrap_servers=order["at"], acks=1) as producer:
        await producer.send_and_wait(topic, body)
        now = start = time.perf_counter()
        while now < start + float(order["seconds"]):
            await producer.send_and_wait(topic, body)
            later = time.perf_counter()
            took.append(later - now)
            now = later
    return rate(len(took), now - start) | percentiles(took)


async def kafka_async(order: Order) -> dict[str, float]:
    made_by: Any = import_module("aiokafka").AIOKafkaProducer

    body, topic, sent = body_of(order), order["topic"], 0
    room = asyncio.Semaphore(int(order["window"]))

    def told(done: asyncio.Future[Any]) -> None:
        done.result()
        room.release()

    made = made_by(bootstrap_servers=order["at"], acks=1, max_batch_size=32 * 1024)
    async with made as producer:
        await producer.send_and_wait(topic, body)
        start = time.perf_counter()
        while time.perf_counter() < start + float(order["seconds"]):
            await room.acquire()
            future = await producer.send(topic, body)
            future.add_done_callback(told)
            sent += 1
        await producer.flush()
        return rate(sent, time.perf_counter() - start)


async def kafka_read(order: Order) -> dict[str, float]:
    made_by: Any = import_module("aiokafka").AIOKafkaConsumer

    made = made_by(
        order["topic"],
        bootstrap_servers=order["at"],
        auto_offset_reset="earliest",
        group_id=f"bench_{time.monotonic_ns()}",
    )
    got, start = 0, 0.0
    async with made as consumer:
        while got < int(order["count"]):
            found = await consumer.getmany(timeout_ms=1000)
            start = start or time.perf_counter()
            got += sum(map(len, found.values()))
        return rate(got, time.perf_counter() - start)


def grpc_producer(order: Order) -> Any:
    client: Any = import_module("rocketmq")
    where = client.ClientConfiguration(order["at"], client.Credentials())
    producer = client.Producer(where, (order["topic"],))
    producer.startup()
    return producer


def grpc_message(order: Order, body: bytes) -> Any:
    message: Any = import_module("rocketmq").Message()
    message.topic = order["topic"]
    message.body = body
    return message


def grpc_sync(order: Order) -> dict[str, float]:
    body, producer = body_of(order), grpc_producer(order)
    took: list[float] = []
    try:
        producer.send(grpc_message(order, body))
        now = start = time.perf_counter()
        while now < start + float(order["seconds"]):
            producer.send(grpc_message(order, body))
            later = time.perf_counter()
            took.append(later - now)
            now = later
    finally:
        producer.shutdown()
    return rate(len(took), now - start) | percentiles(took)


def grpc_async(order: Order) -> dict[str, float]:
    body, producer, sent = body_of(order), grpc_producer(order), 0
    room = threading.Semaphore(int(order["window"]))
    failures: list[BaseException] = []

    def told(done: Any) -> None:
        if done.exception() is not None:
            failures.append(done.exception())
        room.release()

    try:
        producer.send(grpc_message(order, body))
        start = time.perf_counter()
        while time.perf_counter() < start + float(order["seconds"]):
            room.acquire()
            producer.send_async(grpc_message(order, body)).add_done_callback(told)
            sent += 1
        for _ in range(int(order["window"])):
            room.acquire()
        took = time.perf_counter() - start
    finally:
        producer.shutdown()
    if failures:
        raise RuntimeError(f"{len(failures)} of {sent} were not stored: {failures[0]!r}")
    return rate(sent, took)


def done(verb: str, order: Order) -> dict[str, Any]:
    name = verb.replace("-", "_")
    try:
        work = globals()[name](order)
        return asyncio.run(work) if asyncio.iscoroutine(work) else work
    except Exception as error:  # whatever it is, the bench tells of it
        return {"error": f"{type(error).__name__}: {error}"}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what these clients print is no answer
    for line in sys.stdin:
        verb, *words = line.split()
        answers.write(json.dumps(done(verb, dict(word.split("=", 1) for word in words))) + "\n")
        answers.flush()
    os._exit(0)  # threads of theirs may be left


if __name__ == "__main__":
    main()
