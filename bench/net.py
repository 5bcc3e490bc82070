"""What a call costs: one in flight, and many; asyncio and blocking; the server in another process.

The server answers every send with a `SendReply` and every echo with the body it got. The numbers
are those of whole round trips over loopback: both codecs, both processes, the kernel between them.

`--pin` keeps both processes on one core, where handing over costs what it costs on real hardware;
without it a virtual machine may have to wake a sleeping core for each message. Run it from the top
directory: `PYTHONPATH=src python bench/net.py --pin`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from gantrymq.net.aio import LoopKind, Peer, connect, run, serve
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.base import Buffer, Reply, Request, declared, raw_body, table
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command

R = TypeVar("R", bound=Reply)

BODY = b"x" * 1024
PROPERTIES = "UNIQ_KEY\x017F00000100002A9F0000000000000000\x02WAIT\x01true\x02TAGS\x01T"


@declared
class EchoReply(Reply):
    """The same bytes."""

    body: Buffer = raw_body()


@declared
class Echo(Request[EchoReply]):
    """Some bytes."""

    CODE = RequestCode.VIEW_BROKER_STATS_DATA

    body: Buffer = raw_body()


def store(request: SendMessage, _owner: object, _peer: Peer) -> SendReply:
    return SendReply(
        message_id="7F00000100002A9F0000000000000000", queue_id=request.queue_id, offset=12345
    )


def echo(request: Echo, _owner: object, _peer: Peer) -> EchoReply:
    return EchoReply(body=request.body)


HANDLERS = table(SendMessage.answered_by(store), Echo.answered_by(echo))


def send_request() -> SendMessage:
    return SendMessage(
        group="PG",
        topic="TopicTest",
        queue_id=1,
        born_ms=1_700_000_000_000,
        properties=PROPERTIES,
        broker="broker-a",
        body=BODY,
    )


@dataclass(slots=True, kw_only=True)
class Row:
    """One line of the table."""

    what: str
    p50_us: float | None = None
    p99_us: float | None = None
    per_second: float | None = None


@contextmanager
def server_process(cpu: int | None) -> Iterator[str]:
    """A server in a process of its own; its address."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
        run(_serve(theirs))
        os._exit(0)
    theirs.close()
    try:
        yield ours.recv(100).decode()
    finally:
        ours.close()
        os.waitpid(pid, 0)


async def _serve(control: socket.socket) -> None:
    async with await serve("127.0.0.1:0", HANDLERS) as server:
        control.send(server.address.encode())
        control.setblocking(False)
        await asyncio.get_running_loop().sock_recv(control, 1)  # until the other side closes


def latencies(what: str, seconds: list[float]) -> Row:
    ordered = sorted(seconds[len(seconds) // 10 :])  # without the first, which warm up
    return Row(
        what=what,
        p50_us=statistics.median(ordered) * 1e6,
        p99_us=ordered[len(ordered) * 99 // 100] * 1e6,
    )


async def one_at_a_time(address: str, what: str, make: Callable[[], Request[R]], n: int) -> Row:
    peer = await connect(address)
    seconds = []
    for _ in range(n):
        started = time.perf_counter()
        await peer.call(make(), timeout=3.0)
        seconds.append(time.perf_counter() - started)
    peer.close()
    await peer.wait_closed()
    return latencies(what, seconds)


async def pipelined(address: str, *, typed: bool, n: int, width: int) -> float:
    """Calls per second with `width` callers."""
    peer = await connect(address)

    async def typed_caller(count: int) -> None:
        for _ in range(count):
            await peer.call(send_request(), timeout=3.0)

    async def plain_caller(count: int) -> None:
        fields = send_request().command().fields
        code = int(RequestCode.SEND_MESSAGE_V2)
        for _ in range(count):
            await peer.invoke(Command(code, fields=fields, body=BODY), timeout=3.0)

    caller = typed_caller if typed else plain_caller
    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(caller(n // width))
    elapsed = time.perf_counter() - started
    peer.close()
    await peer.wait_closed()
    return n / elapsed


def blocking_one_at_a_time(address: str, what: str, make: Callable[[], Request[R]], n: int) -> Row:
    seconds = []
    with BlockingPeer.connect(address) as peer:
        for _ in range(n):
            started = time.perf_counter()
            peer.call(make(), timeout=3.0)
            seconds.append(time.perf_counter() - started)
    return latencies(what, seconds)


def blocking_pipelined(address: str, n: int, width: int) -> float:
    """Calls per second with `width` in flight, on one thread."""
    with BlockingPeer.connect(address) as peer:
        started = time.perf_counter()
        begun = deque(peer.begin(send_request(), timeout=3.0) for _ in range(width))
        for _ in range(n - width):
            peer.finish(begun.popleft())
            begun.append(peer.begin(send_request(), timeout=3.0))
        while begun:
            peer.finish(begun.popleft())
        return n / (time.perf_counter() - started)


def echo_request() -> Echo:
    return Echo(body=BODY)


def measure_asyncio(address: str, n: int, loop: LoopKind) -> Iterator[Row]:
    name = "uvloop" if loop == "fastest" else loop
    yield run(one_at_a_time(address, f"{name}: echo 1 KiB", echo_request, n), loop=loop)
    yield run(one_at_a_time(address, f"{name}: send 1 KiB", send_request, n), loop=loop)
    for typed in (True, False):
        kind = "typed" if typed else "commands"
        rates = [
            run(pipelined(address, typed=typed, n=n * 2, width=256), loop=loop) for _ in range(3)
        ]
        yield Row(what=f"{name}: 256 sends in flight, {kind}", per_second=max(rates))


def measure(address: str, n: int) -> Iterator[Row]:
    yield from measure_asyncio(address, n, "fastest")
    yield from measure_asyncio(address, n, "asyncio")
    yield blocking_one_at_a_time(address, "blocking: echo 1 KiB", echo_request, n)
    yield blocking_one_at_a_time(address, "blocking: send 1 KiB", send_request, n)
    for width in (2, 8):
        rates = [blocking_pipelined(address, n, width) for _ in range(3)]
        yield Row(what=f"blocking: {width} sends in flight", per_second=max(rates))


def show(rows: list[Row]) -> None:
    print(f"{'':44} {'p50 µs':>8} {'p99 µs':>8} {'calls/s':>10}")
    for row in rows:
        cells = (row.p50_us, row.p99_us, row.per_second)
        p50, p99, rate = ("" if cell is None else f"{cell:,.1f}" for cell in cells)
        print(f"{row.what:44} {p50:>8} {p99:>8} {rate.removesuffix('.0'):>10}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--pin", action="store_true", help="keep both processes on one core")
    parser.add_argument("-n", type=int, default=20_000, help="calls for each row")
    given = parser.parse_args()
    cpu = max(os.sched_getaffinity(0)) if given.pin else None
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    with server_process(cpu) as address:
        rows = list(measure(address, given.n))
    show(rows)
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
