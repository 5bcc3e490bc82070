"""The relay: what it carries, and each way in which it misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gantrymq.net.addresses import split_address
from gantrymq.testing.chaos import Relay, Weather
from tests.support import REAL_LOOPS, LoopName, run_on, until

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LONG = bytes(range(256)) * 1000
DIALLED: list[asyncio.StreamWriter] = []
"""What the test has to close in the end."""


@asynccontextmanager
async def echo() -> AsyncIterator[str]:
    """A server that sends back what it gets."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield "{}:{}".format(*server.sockets[0].getsockname())
    finally:
        server.close()


async def dial(relay: Relay) -> Ends:
    ends = await asyncio.open_connection(*split_address(relay.address))
    DIALLED.append(ends[1])
    return ends


async def say(ends: Ends, data: bytes) -> bytes:
    reader, writer = ends
    writer.write(data)
    await writer.drain()
    return await reader.readexactly(len(data))


async def hang_up() -> None:
    while DIALLED:
        writer = DIALLED.pop()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@pytest.fixture(params=REAL_LOOPS)
def with_relay(request: pytest.FixtureRequest) -> Callable[..., None]:
    loop: LoopName = request.param

    def run(case: Callable[[Relay], Awaitable[None]], weather: Weather | None = None) -> None:
        async def main() -> None:
            async with echo() as address, Relay(address, weather=weather) as relay:
                try:
                    await case(relay)
                finally:
                    await hang_up()

        run_on(loop, main())

    return run


@pytest.mark.parametrize(
    "weather",
    [
        Weather(),
        Weather(piece=777),
        Weather(rate=20_000_000),
        Weather(delay=0.001),
        Weather(jitter=0.002),
    ],
    ids=str,
)
def test_bytes_arrive_as_they_were_sent(with_relay, weather):
    async def case(relay: Relay) -> None:
        several = [await dial(relay) for _ in range(3)]
        assert await asyncio.gather(*(say(one, LONG) for one in several)) == [LONG] * 3
        assert relay.accepted == relay.connections == 3
        assert relay.carried == {"in": 3 * len(LONG), "out": 3 * len(LONG)}
        for _, writer in several:
            writer.close()
        await until(lambda: relay.connections == 0)

    with_relay(case, weather)


def test_nothing_comes_while_it_stalls_and_all_of_it_afterwards(with_relay):
    async def case(relay: Relay) -> None:
        ends = await dial(relay)
        await say(ends, b"before")
        relay.stall()
        answer = asyncio.create_task(say(ends, b"later"))
        other = asyncio.create_task(say(await dial(relay), b"new"))
        await until(lambda: relay.connections == 2)
        assert relay.carried["in"] == len(b"before")
        relay.resume()
        assert (await answer, await other) == (b"later", b"new")

    with_relay(case)


def test_a_cut_is_an_end_and_a_reset_an_error(with_relay):
    async def case(relay: Relay) -> None:
        reader, _ = ends = await dial(relay)
        await say(ends, b"hello")
        relay.cut()
        assert await reader.read() == b""
        reader, _ = ends = await dial(relay)
        await say(ends, b"hello")
        relay.reset()
        with pytest.raises(ConnectionResetError):
            await reader.read()
        await until(lambda: relay.connections == 0)
        assert await say(await dial(relay), b"again") == b"again"

    with_relay(case)


def test_whoever_is_refused_may_come_back_to_the_same_address(with_relay):
    async def case(relay: Relay) -> None:
        inside = await dial(relay)
        await say(inside, b"hello")
        address = relay.address
        relay.refuse()
        with pytest.raises(ConnectionRefusedError):
            await dial(relay)
        assert await say(inside, b"still here") == b"still here"
        await relay.admit()
        assert relay.address == address
        assert await say(await dial(relay), b"hello") == b"hello"

    with_relay(case)


@pytest.mark.parametrize(("way", "arrived"), [("in", 10), ("out", 15)])
def test_a_reset_in_the_middle(with_relay, way, arrived):
    async def case(relay: Relay) -> None:
        reader, writer = await dial(relay)
        relay.reset_after(way, arrived)
        writer.write(bytes(20))
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(20)
        assert relay.carried[way] == arrived
        assert await say(await dial(relay), bytes(100)) == bytes(100)  # once is once

    with_relay(case)


def test_a_server_that_is_away_ends_the_connection(with_relay):
    async def case(relay: Relay) -> None:
        relay.upstream = "127.0.0.1:1"
        reader, _ = await dial(relay)
        assert await reader.read() == b""

    with_relay(case)
