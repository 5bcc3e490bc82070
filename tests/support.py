"""How tests run coroutines, and a small request that they send around.

`World` is a kind of loop with a kind of network; what is said of connections has to hold in each.

`run_on(loop, main)` runs a coroutine on a fresh loop of that kind, within a time limit, and fails
if it leaves a task behind. Nothing waits for time to pass: tests that are about time run on the
`virtual` loop.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import uvloop

from gantrymq.errors import GoingAway, TopicNotFound
from gantrymq.net.aio import Peer, Server, Tcp, connect, serve
from gantrymq.net.memory import MemoryNetwork
from gantrymq.net.network import Network
from gantrymq.protocol.base import Buffer, Int, Reply, Request, declared, raw_body, table
from gantrymq.testing.clock import VirtualLoop
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from gantrymq.wire.connection import Connection
from gantrymq.wire.versions import CURRENT

T = TypeVar("T")
LoopName = Literal["asyncio", "uvloop", "virtual"]

REAL_LOOPS: Final[tuple[LoopName, ...]] = ("asyncio", "uvloop")
ALL_LOOPS: Final[tuple[LoopName, ...]] = (*REAL_LOOPS, "virtual")
LIMIT: Final = 20.0

_MAKERS: Final[dict[LoopName, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "virtual": VirtualLoop,
}


def run_on(loop: LoopName, main: Coroutine[Any, Any, T], *, limit: float = LIMIT) -> T:
    """What `main` returns; its limit is virtual, too, on the virtual loop, and then generous."""
    seconds = limit if loop != "virtual" else 1e6
    with asyncio.Runner(loop_factory=_MAKERS[loop]) as runner:
        complaints: list[str] = []
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        result = runner.run(_bounded(main, seconds))
        gc.collect(1)  # what was left open is most likely young, and complains now
    assert not complaints, f"asyncio complained: {complaints}"
    return result


async def _bounded(main: Coroutine[Any, Any, T], seconds: float) -> T:
    async with asyncio.timeout(seconds):
        result = await main
    for _ in range(20):  # what is ending may end
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
    return result


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds; gives up after `LIMIT` real seconds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < LIMIT, "it never happened"
        await asyncio.sleep(0.001)


@declared
class EchoReply(Reply):
    """What was sent."""

    times: Int = 1
    body: Buffer = raw_body(default=b"")


@declared
class Echo(Request[EchoReply]):
    """Something to send back; `how` tells the handler to misbehave."""

    CODE = RequestCode.VIEW_BROKER_STATS_DATA

    topic: str = "orders"
    how: str = ""
    body: Buffer = raw_body(default=b"")


@declared
class Other(Request[EchoReply]):
    """A request that no table of these tests answers."""

    CODE = RequestCode.CLEAN_UNUSED_TOPIC

    topic: str = "orders"


@dataclass(slots=True, kw_only=True)
class World:
    """A kind of loop and a kind of network, for tests that hold on every one of them."""

    loop: LoopName
    network: Network
    listen: str
    """Where a server can listen."""

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `main` returns."""
        return run_on(self.loop, main)

    async def serve(self, owner: Parrot, **how: Any) -> Server:
        """A server that answers from `PARROT`."""
        return await serve(self.listen, PARROT, owner, network=self.network, **how)

    async def connect(self, server: Server, **how: Any) -> Peer:
        """A connection to it."""
        return await connect(server.address, network=self.network, **how)


WORLDS: Final = ("tcp on asyncio", "tcp on uvloop", "memory")


def world(name: str) -> World:
    """The world of that name."""
    if name == "memory":
        return World(loop="virtual", network=MemoryNetwork(), listen="parrot:0")
    loop: LoopName = "uvloop" if "uvloop" in name else "asyncio"
    return World(loop=loop, network=Tcp(), listen="127.0.0.1:0")


class Parrot:
    """The owner of the handlers below: what they saw, and the gate that some of them wait at."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.waiting = 0
        self.most_waiting = 0
        self.cancelled = 0
        self.gate: asyncio.Event = asyncio.Event()


def parrot(request: Echo, owner: Parrot, peer: Peer) -> EchoReply | Awaitable[EchoReply]:
    """Send it back, or do as told."""
    owner.heard.append(request.how)
    match request.how:
        case "wait":
            return _parked(request, owner)
        case "ask back":
            return peer.call(Echo(how="asked back", body=request.body), timeout=5.0)
        case "refuse":
            raise TopicNotFound.because("no such topic")
        case "refuse later":
            return _fails(TopicNotFound.because("no such topic"))
        case "crash":
            raise ZeroDivisionError("by nought")
        case "crash later":
            return _fails(ZeroDivisionError("by nought"))
        case "go away":
            raise GoingAway.because("please go away")
        case "cancelled":
            work: asyncio.Future[EchoReply] = asyncio.get_running_loop().create_future()
            work.cancel()
            return work
        case "huge":
            return EchoReply(body=bytes(peer.options.frame_limit))
        case "repeat":
            return EchoReply(body=bytes(request.body) * 1024)
        case _:
            return EchoReply(body=request.body)


async def _parked(request: Echo, owner: Parrot) -> EchoReply:
    owner.waiting += 1
    owner.most_waiting = max(owner.most_waiting, owner.waiting)
    try:
        await owner.gate.wait()
    except asyncio.CancelledError:
        owner.cancelled += 1
        raise
    finally:
        owner.waiting -= 1
    return EchoReply(body=request.body)


async def _fails(error: Exception) -> EchoReply:
    await asyncio.sleep(0)
    raise error


PARROT: Final = table(Echo.answered_by(parrot))


class Wire(asyncio.BufferedProtocol):
    """A connection of raw bytes, for the other ends that tests are about."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self._room = bytearray(65_536)

    @classmethod
    async def to(cls, server: Server, network: Network) -> Wire:
        """Such a connection to `server`."""
        wire = cls()
        await network.connect(server.address, lambda: wire, timeout=5.0)
        return wire

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self._room[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def replies(self) -> list[Command]:
        """The commands among the bytes that came."""
        return list(Connection().feed(bytes(self.got)))

    async def close(self) -> None:
        """Close it, and see it gone."""
        self.transport.close()
        await self.lost


def frame(request: Request[Any], opaque: int = 1, *, version: int = CURRENT) -> bytes:
    """The bytes of `request`."""
    command = request.command()
    command.version = version
    command.opaque = opaque
    return b"".join(Connection().encode(command))


@contextmanager
def server_in_a_thread(owner: Parrot | None = None, **how: Any) -> Iterator[ThreadedServer]:
    """A server with the parrot on a loop of its own, for callers that block."""
    threaded = ThreadedServer(owner or Parrot(), how)
    thread = threading.Thread(target=threaded.run, name="server under test")
    thread.start()
    try:
        assert threaded.ready.wait(LIMIT)
        yield threaded
    finally:
        threaded.stop()
        thread.join(LIMIT)


class ThreadedServer:
    """What such a test needs of its server."""

    def __init__(self, owner: Parrot, how: dict[str, Any]) -> None:
        self.owner = owner
        self.ready = threading.Event()
        self.server: Server
        self._how = how
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    @property
    def address(self) -> str:
        return self.server.address

    def run(self) -> None:
        run_on("asyncio", self._main())

    def do(self, work: Callable[[], T]) -> T:
        """What `work` returns, on the server's loop."""

        async def there() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(LIMIT)

    def see(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` holds on the server's loop."""
        asyncio.run_coroutine_threadsafe(until(condition), self._loop).result(LIMIT)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with await serve("127.0.0.1:0", PARROT, self.owner, **self._how) as self.server:
            self.ready.set()
            await self._stop.wait()
            await self.server.close(grace=0)
