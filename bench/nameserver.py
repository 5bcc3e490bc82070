"""What a name server takes: to start, to answer routes on one connection, to register a broker.

Starts `gantry namesrv`, or with `--address` asks one that runs already, RocketMQ's own included.
Routes are asked over a plain blocking socket with frames made beforehand, so that the numbers are
the server's; `window` frames are sent at a time, and their answers awaited before the next ones.

    ./dev bench nameserver [--address HOST:PORT] [--seconds N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gantrymq.net.addresses import split_address
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import RegisterBroker, Registration
from gantrymq.protocol.routing import GetRoute
from gantrymq.protocol.topics import TopicSettings, TopicTable
from gantrymq.wire.connection import Connection

START = "from gantrymq.cli import main; main()"
BROKERS = 16


@contextmanager
def started() -> Iterator[tuple[str, float, int]]:
    """A name server of its own: its address, the seconds that its start took, and its pid."""
    with tempfile.TemporaryDirectory(prefix="gantry-bench-") as home:
        ready = Path(home, "ready.json")
        began = time.perf_counter()
        process = subprocess.Popen(
            [
                *(sys.executable, "-c", START, "namesrv", "--port", "0", "--bind", "127.0.0.1"),
                *("--data", home, "--ready-file", str(ready)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            took = time.perf_counter() - began
            yield json.loads(ready.read_text())["namesrv"], took, process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


def registration(broker: int, topics: int, counter: int = 1) -> RegisterBroker:
    """Broker number `broker` with so many topics, and one that all brokers have."""
    names = ["shared", *(f"topic-of-{broker}-{number}" for number in range(topics))]
    settings = {name: TopicSettings(topic=name, read_queues=8, write_queues=8) for name in names}
    table = TopicTable(version=DataVersion(counter=counter, timestamp_ms=1), topics=settings)
    request = RegisterBroker(
        broker=f"broker-{broker}",
        address=f"10.0.0.{broker}:10911",
        cluster="bench",
        ha_address=f"10.0.0.{broker}:10912",
        broker_id=0,
    )
    request.carry(Registration(filter_servers=[], table=table))
    return request


def routes_per_second(address: str, topic: str, window: int, seconds: float) -> float:
    """How many routes of `topic` one connection gets in a second."""
    command = GetRoute(topic=topic).command()
    command.opaque = 1  # all of them: every answer is then as long as the first
    frame = b"".join(Connection().encode(command))
    with socket.create_connection(split_address(address)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(frame)
        first = connection.recv(1 << 20)
        size = 4 + int.from_bytes(first[:4], "big")
        answer, room = size * window, bytearray(1 << 18)
        missing = size - len(first)
        done, frames = 0, frame * window
        while missing > 0:
            missing -= connection.recv_into(room)
        began = time.perf_counter()
        while (now := time.perf_counter() - began) < seconds:
            connection.sendall(frames)
            missing = answer
            while missing > 0:
                missing -= connection.recv_into(room, min(missing, len(room)))
            done += window
    return done / now


def timed(peer: BlockingPeer, request: RegisterBroker) -> float:
    began = time.perf_counter()
    peer.call(request, timeout=60)
    return time.perf_counter() - began


def resident(pid: int) -> float:
    """MiB in memory; Linux only."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def measure(address: str, seconds: float, rounds: int, pid: int | None) -> None:
    with BlockingPeer.connect(address) as peer:
        for broker in range(BROKERS):
            peer.call(registration(broker, 100), timeout=60)
        for topic, what in (("topic-of-0-7", "1 broker"), ("shared", f"{BROKERS} brokers")):
            for window in (1, 64):
                found = [routes_per_second(address, topic, window, seconds) for _ in range(rounds)]
                rate = statistics.median(found)
                print(f"routes, {what:>10}, {window:>2} at a time   {rate:>10,.0f} /s")
        if pid is not None:
            print(f"memory, {BROKERS * 100:,} topics              {resident(pid):>10.1f} MiB")
        for topics in (1_000, 10_000):
            first = timed(peer, registration(0, topics, counter=topics))
            again = [timed(peer, registration(0, topics, counter=topics)) for _ in range(rounds)]
            more = [timed(peer, registration(0, topics, topics + n + 1)) for n in range(rounds)]
            print(
                f"registration of {topics:>6,} topics: new {first * 1000:.1f} ms, "
                f"the same {statistics.median(again) * 1000:.1f} ms, "
                f"another version {statistics.median(more) * 1000:.1f} ms"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", help="a name server that runs already")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.address:
        measure(options.address, options.seconds, options.rounds, None)
        return
    starts = []
    for _ in range(options.rounds):
        with started() as (_, took, pid):
            starts.append(took)
            fresh = resident(pid)
    print(f"start to ready                     {statistics.median(starts):>10.3f} s")
    print(f"memory, empty                      {fresh:>10.1f} MiB")
    with started() as (address, _, pid):
        measure(address, options.seconds, options.rounds, pid)


if __name__ == "__main__":
    main()
