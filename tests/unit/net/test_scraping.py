"""The page of metrics, with Prometheus, with curl, and with those who mean no good."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gantrymq.net.aio import Tcp
from gantrymq.net.measuring import measure_process, measure_servers, resident_memory
from gantrymq.net.scraping import MetricsConfig, MetricsPage, Source, open_page
from gantrymq.observe import metrics
from gantrymq.observe.metrics import Sample
from gantrymq.settings import load
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from tests.support import Echo, Parrot, World, until


def counted() -> Iterator[Sample]:
    yield metrics.REQUESTS.of(42)


def failing() -> Iterator[Sample]:
    yield metrics.REQUESTS.of(1)
    raise ZeroDivisionError("by nought")


@asynccontextmanager
async def page(where: World, *sources: Source) -> AsyncIterator[MetricsPage]:
    opened = await open_page(
        MetricsConfig(bind=where.listen.rpartition(":")[0], port=0),
        sources or (Source({"node_id": "a"}, counted),),
        network=where.network,
        usual=5557,
    )
    assert opened is not None
    try:
        yield opened
    finally:
        await opened.close()


class Visitor(asyncio.BufferedProtocol):
    """Whoever comes; `said` is what he was told."""

    def __init__(self) -> None:
        self.said = b""
        self.gone = asyncio.Event()
        self._buffer = bytearray(65536)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.said += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


async def visit(where: World, opened: MetricsPage, *parts: bytes) -> str:
    """What is answered to that."""
    visitor = await visiting(where, opened)
    for part in parts:
        visitor.transport.write(part)
        await asyncio.sleep(0)
    await visitor.gone.wait()
    return visitor.said.decode()


async def visiting(where: World, opened: MetricsPage) -> Visitor:
    visitor = Visitor()
    address = opened.url.split("/")[2]
    await where.network.connect(address, lambda: visitor, timeout=5)
    return visitor


def test_the_page(anywhere: World) -> None:
    async def main() -> None:
        async with page(anywhere) as opened:
            said = await visit(anywhere, opened, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            head, _, body = said.partition("\r\n\r\n")
            assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4;")
            assert f"Content-Length: {len(body)}" in head
            assert body.splitlines()[-1] == 'gantry_requests_total{node_id="a"} 42'
            asked = b"GET /metrics?x=1 HTTP/1.0\n\n"
            assert (await visit(anywhere, opened, asked)).endswith(body)
            in_pieces = (b"GE", b"T /metrics HT", b"TP/1.1\r\n", b"\r", b"\n")
            assert (await visit(anywhere, opened, *in_pieces)).endswith(body)
            empty = await visit(anywhere, opened, b"HEAD /metrics HTTP/1.1\r\n\r\n")
            assert empty == f"{head}\r\n\r\n"

    anywhere.run(main())


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
        (b"\x00\x00\x00\x80garbage\n\n", "400 Bad Request"),
        (b"GET /metrics\r\n\r\n", "400 Bad Request"),
        (b"\r\n\r\n", "400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, "431 Request Header Fields Too Large"),
    ],
)
def test_other_requests_are_refused(memory: World, asked: bytes, answered: str) -> None:
    async def main() -> None:
        async with page(memory) as opened:
            said = await visit(memory, opened, asked)
            assert said.startswith(f"HTTP/1.1 {answered}\r\n")
            assert "Connection: close" in said

    memory.run(main())


def test_a_page_that_cannot_be_made_says_so(
    memory: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with page(memory, Source({}, failing)) as opened:
            said = await visit(memory, opened, b"GET /metrics HTTP/1.1\r\n\r\n")
            assert said.startswith("HTTP/1.1 500 ")

    memory.run(main())
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.getMessage() == "the page of metrics could not be made"


def test_who_is_slow_is_cut_off(memory: World) -> None:
    async def main() -> None:
        async with page(memory) as opened:
            began = asyncio.get_running_loop().time()
            assert await visit(memory, opened, b"GET /metr") == ""
            assert asyncio.get_running_loop().time() - began == pytest.approx(10)

    memory.run(main())


def test_only_so_many_come_in(memory: World) -> None:
    async def main() -> None:
        async with page(memory) as opened:
            inside = [await visiting(memory, opened) for _ in range(16)]
            with pytest.raises(Exception, match="connection reset"):
                await visiting(memory, opened)
            inside[0].transport.abort()
            await inside[0].gone.wait()
            said = await visit(memory, opened, b"GET /metrics HTTP/1.1\r\n\r\n")
            assert said.startswith("HTTP/1.1 200")

    memory.run(main())


def test_making_a_long_page_lets_others_have_their_turn(memory: World) -> None:
    def many() -> Iterator[Sample]:
        for _ in range(50_000):
            yield metrics.REQUESTS.of(1)

    async def main() -> None:
        async with page(memory, Source({}, many)) as opened:
            turns = 0

            async def others() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            busy = asyncio.create_task(others())
            await opened.text()
            busy.cancel()
            assert turns > 5

    memory.run(main())


# --- ports ----------------------------------------------------------------------------------------


def config(**how: object) -> MetricsConfig:
    return load(MetricsConfig, flags=how).value


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(tcp: World) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            wanted = config(port=taken.getsockname()[1])
            with pytest.raises(OSError, match=r"cannot listen on 127.*set metrics\.port, or"):
                await open_page(wanted, (), network=Tcp(), usual=0)

    tcp.run(main())


def test_instead_of_the_usual_port_another_one_will_do(tcp: World) -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            usual = taken.getsockname()[1]
            opened = await open_page(config(), (), network=Tcp(), usual=usual)
            assert opened is not None
            assert opened.url.startswith("http://127.0.0.1:")
            assert f":{usual}/" not in opened.url
            await opened.close()

    tcp.run(main())


def test_no_page_where_none_is_wanted(memory: World) -> None:
    async def main() -> None:
        off = config(enabled=False)
        assert await open_page(off, (), network=memory.network, usual=1) is None

    memory.run(main())


# --- what is measured of servers ------------------------------------------------------------------


def numbers(samples: Iterator[Sample]) -> dict[tuple[object, ...], float]:
    return {(one.metric.name, *one.values): one.number for one in samples}


def test_connections_and_requests_are_counted(anywhere: World) -> None:
    async def main() -> None:
        async with await anywhere.serve(Parrot()) as server:
            peer = await anywhere.connect(server)
            await peer.call(Echo(body=b"hello"), timeout=5)
            await peer.invoke(Echo(how="refuse").command(), timeout=5)
            await peer.invoke(Command(RequestCode.POP_ROLLBACK), timeout=5)
            for code in range(100_000, 100_040):
                await peer.invoke(Command(code), timeout=5)
            found = numbers(measure_servers([server]))
            assert found["gantry_connections",] == 1
            assert found["gantry_requests_total",] == 43
            assert found["gantry_received_bytes_total",] == peer.traffic.bytes_out > 0
            assert found["gantry_sent_bytes_total",] == peer.traffic.bytes_in > 0
            refused = {key[1:]: number for key, number in found.items() if "requests_ref" in key[0]}
            assert refused == {
                ("view_broker_stats_data", "topic_not_exist"): 1,
                ("pop_rollback", "request_code_not_supported"): 1,
                ("unknown", "request_code_not_supported"): 40,
            }
            garbage = await anywhere.connect(server)
            garbage._transport.write(b"\xff" * 64)
            await until(lambda: not garbage.is_open)
            await until(lambda: len(server.peers) == 1)
            found = numbers(measure_servers([server, server]))
            assert found["gantry_connections_ended_total", "bad_frame"] == 2
            assert found["gantry_connections_ended_total", "idle"] == 0
            peer.close()

    anywhere.run(main())


def test_the_process_is_measured() -> None:
    found = numbers(measure_process())
    assert found["process_cpu_seconds_total",] > 0
    assert found["process_start_time_seconds",] > 1.7e9
    memory = resident_memory()
    assert memory is None or memory > 1 << 20
