"""What a call costs: one in flight, and many; asyncio and blocking; the server in another process.

The server answers every send with a `SendReply` and every echo with the body it got. The numbers
are those of whole round trips over loopback: both codecs, both processes, the kernel between them.
The processor time of each side, for one call, is there too; it says what a quiet machine could do
when this one is busy.

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from gantrymq.net.aio import LoopKind, Peer, connect, run, serve
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.base import Buffer, Entry, Reply, Request, declared, raw_body, table
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


@declared
class ProcessorTime(Request[EchoReply]):
    """Seconds that the server has used, as text."""

    CODE = RequestCode.GET_BROKER_RUNTIME_INFO


def used(_request: ProcessorTime, _owner: object, _peer: Peer) -> EchoReply:
    return EchoReply(body=repr(time.process_time()).encode())


def store(request: SendMessage, _owner: object, _peer: Peer) -> SendReply:
    return SendReply(
        message_id="7F00000100002A9F0000000000000000", queue_id=request.queue_id, offset=12345
    )


def echo(request: Echo, _owner: object, _peer: Peer) -> EchoReply:
    return EchoReply(body=request.body)


class Unparsed:
    """A request that stays a command, as in a proxy that only passes it on."""

    @staticmethod
    def from_command(command: Command) -> Command:
        return command


def pass_on(command: Command, _owner: object, _peer: Peer) -> Command:
    return Command(0, fields={"queueId": "1", "queueOffset": "12345"}, body=command.body)


COMMAND_CODE = 4711
HANDLERS = {
    COMMAND_CODE: Entry(Unparsed, pass_on),  # type: ignore[arg-type]
    **table(
        SendMessage.answered_by(store), Echo.answered_by(echo), ProcessorTime.answered_by(used)
    ),
}


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
    client_us: float | None = None
    server_us: float | None = None


class Meter:
    """Measures what `n` calls take: of the clock, and of both processes."""

    def __init__(self, address: str, n: int) -> None:
        self._address = address
        self._n = n
        self.per_second = self.client_us = self.server_us = 0.0

    def __enter__(self) -> Meter:
        self._server = server_seconds(self._address)
        self._client = time.process_time()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *error: object) -> None:
        self.per_second = self._n / (time.perf_counter() - self._started)
        self.client_us = (time.process_time() - self._client) / self._n * 1e6
        self.server_us = (server_seconds(self._address) - self._server) / self._n * 1e6

    def row(self, what: str) -> Row:
        return Row(
            what=what,
            per_second=self.per_second,
            client_us=self.client_us,
            server_us=self.server_us,
        )


def server_seconds(address: str) -> float:
    with BlockingPeer.connect(address) as peer:
        return float(bytes(peer.call(ProcessorTime(), timeout=60.0).body))


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


async def pipelined(address: str, *, typed: bool, n: int, width: int) -> Meter:
    """What `n` calls take with `width` callers."""
    peer = await connect(address)

    async def typed_caller(count: int) -> None:
        for _ in range(count):
            await peer.call(send_request(), timeout=3.0)

    async def plain_caller(count: int) -> None:
        fields = send_request().command().fields
        for _ in range(count):
            await peer.invoke(Command(COMMAND_CODE, fields=fields, body=BODY), timeout=3.0)

    caller = typed_caller if typed else plain_caller
    with Meter(address, n) as meter:
        async with asyncio.TaskGroup() as group:
            for _ in range(width):
                group.create_task(caller(n // width))
    peer.close()
    await peer.wait_closed()
    return meter


def blocking_one_at_a_time(address: str, what: str, make: Callable[[], Request[R]], n: int) -> Row:
    seconds = []
    with BlockingPeer.connect(address) as peer:
        for _ in range(n):
            started = time.perf_counter()
            peer.call(make(), timeout=3.0)
            seconds.append(time.perf_counter() - started)
    return latencies(what, seconds)


def blocking_pipelined(address: str, n: int, width: int) -> Meter:
    """What `n` calls take with `width` in flight, on one thread."""
    with BlockingPeer.connect(address) as peer, Meter(address, n) as meter:
        begun = deque(peer.begin(send_request(), timeout=3.0) for _ in range(width))
        for _ in range(n - width):
            peer.finish(begun.popleft())
            begun.append(peer.begin(send_request(), timeout=3.0))
        while begun:
            peer.finish(begun.popleft())
    return meter


def best(meters: Iterable[Meter]) -> Meter:
    """Of several, the one that was disturbed least."""
    return min(meters, key=lambda meter: meter.client_us + meter.server_us)


def echo_request() -> Echo:
    return Echo(body=BODY)


def measure_asyncio(address: str, n: int, loop: LoopKind) -> Iterator[Row]:
    name = "uvloop" if loop == "fastest" else loop
    yield run(one_at_a_time(address, f"{name}: echo 1 KiB", echo_request, n), loop=loop)
    yield run(one_at_a_time(address, f"{name}: send 1 KiB", send_request, n), loop=loop)
    for typed in (True, False):
        kind = "typed" if typed else "commands"
        meter = best(
            run(pipelined(address, typed=typed, n=n * 2, width=256), loop=loop) for _ in range(3)
        )
        yield meter.row(f"{name}: 256 sends in flight, {kind}")


def measure(address: str, n: int) -> Iterator[Row]:
    yield from measure_asyncio(address, n, "fastest")
    yield from measure_asyncio(address, n, "asyncio")
    yield blocking_one_at_a_time(address, "blocking: echo 1 KiB", echo_request, n)
    yield blocking_one_at_a_time(address, "blocking: send 1 KiB", send_request, n)
    for width in (2, 8):
        meter = best(blocking_pipelined(address, n, width) for _ in range(3))
        yield meter.row(f"blocking: {width} sends in flight")


HEADINGS = ("p50 µs", "p99 µs", "calls/s", "client µs", "server µs")


def show(rows: list[Row]) -> None:
    print(" " * 44 + "".join(f"{heading:>11}" for heading in HEADINGS))
    for row in rows:
        cells = (row.p50_us, row.p99_us, row.per_second, row.client_us, row.server_us)
        texts = ["" if cell is None else f"{cell:,.1f}" for cell in cells]
        print(f"{row.what:44}" + "".join(f"{text:>11}" for text in texts))


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
