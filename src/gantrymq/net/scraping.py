"""The page of metrics: HTTP of the smallest kind, for Prometheus and for curl.

A visitor sends one request and gets one answer; then the connection ends. There is one page,
`/metrics`. Whoever is slow, sends too much, or comes when enough others are there, is cut off: the
page can cost a server no more than `_VISITORS` connections and one page being made at a time.

What is measured comes from *sources*: generators of samples. Making a page takes longer the more
topics there are, so every `_TURN` seconds the loop turns once. A source therefore goes through
copies of whatever others may change meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from errno import EADDRINUSE
from time import perf_counter
from typing import Final, NamedTuple

from gantrymq.net.addresses import join_address
from gantrymq.net.network import Listener, Network
from gantrymq.net.proxy_header import ProxyHeader
from gantrymq.observe.metrics import CONTENT_TYPE, Exposition, Sample, labels
from gantrymq.settings import setting

log = logging.getLogger("gantrymq.net")

PATH: Final = "/metrics"
_VISITORS: Final = 16
_LONGEST_HEAD: Final = 8192
_PATIENCE: Final = 10.0
"""Seconds for a visit: to ask, and to read the answer."""
_TURN: Final = 0.001
_NEIGHBOURS: Final = 32
"""Ports above the usual one that are tried where it is taken."""


def _port(number: int | None) -> str | None:
    return None if number is None or 0 <= number <= 65_535 else "ports go from 0 to 65535"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    """Where metrics can be read."""

    enabled: bool = setting(True, "whether metrics can be read")
    bind: str = setting("127.0.0.1", "address to serve them on")
    port: int | None = setting(
        None,
        "port to serve them on, 0 for any free one; none: the usual one, or one near it",
        check=_port,
    )


class Source(NamedTuple):
    """Something that can be measured."""

    common: dict[str, object]
    """Labels that all its samples have."""
    samples: Callable[[], Iterable[Sample]]


class MetricsPage:
    """The page, and who is looking at it."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._made_by_turns = asyncio.Lock()
        self._listener: Listener | None = None
        self._visits: set[_Visit] = set()
        self._expected = 0
        """Visitors that are let in, and not there yet."""

    async def listen(self, address: str, network: Network) -> None:
        """Be at `address`."""
        self._listener = await network.listen(address, self)

    @property
    def url(self) -> str:
        """Where to find it."""
        assert self._listener is not None
        return f"http://{self._listener.addresses[0]}{PATH}"

    async def close(self) -> None:
        """Be there no more."""
        if self._listener is not None:
            self._listener.close()
            for visit in tuple(self._visits):
                visit.end()
            await self._listener.wait_closed()

    async def text(self) -> str:
        """All metrics as they are now."""
        async with self._made_by_turns:
            exposition = Exposition()
            turn = perf_counter() + _TURN
            for source in self._sources:
                common = labels(source.common)
                for sample in source.samples():
                    exposition.add(sample, common)
                    if perf_counter() >= turn:
                        await asyncio.sleep(0)
                        turn = perf_counter() + _TURN
            return exposition.text()

    # --- the gate -------------------------------------------------------------------------------

    def admit(self) -> bool:
        """Whether there is room for a visitor."""
        if self._expected + len(self._visits) >= _VISITORS:
            return False
        self._expected += 1
        return True

    def protocol(self, proxied: ProxyHeader | None = None) -> _Visit:  # noqa: ARG002
        """What talks to a visitor."""
        self._expected -= 1
        visit = _Visit(self.text, self._visits.discard)
        self._visits.add(visit)
        return visit

    def dismiss(self, protocol: asyncio.BufferedProtocol | None = None) -> None:
        """A visitor did not come after all."""
        if isinstance(protocol, _Visit):
            self._visits.discard(protocol)
        else:
            self._expected -= 1


class _Visit(asyncio.BufferedProtocol):
    """One request and its answer."""

    def __init__(
        self, make: Callable[[], Coroutine[object, None, str]], gone: Callable[[_Visit], None]
    ) -> None:
        self._make = make
        self._gone = gone
        self._buffer = bytearray(_LONGEST_HEAD)
        self._filled = 0
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It begins, and has so much time."""
        self._transport = transport
        self._limit = asyncio.get_running_loop().call_later(_PATIENCE, transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Room for what is left of the head."""
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """That many bytes came."""
        self._filled += nbytes
        head = bytes(self._buffer[: self._filled])
        if b"\r\n\r\n" in head or b"\n\n" in head:
            self._transport.pause_reading()
            self._task = asyncio.create_task(self._answer(head))
        elif self._filled == _LONGEST_HEAD:
            self._transport.pause_reading()
            self._send(431, "that is too long a request")

    def eof_received(self) -> bool:
        """The visitor said all he wanted; what he asked for goes out all the same."""
        return self._task is not None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """It is over."""
        self._limit.cancel()
        if self._task is not None:
            self._task.cancel()
        self._gone(self)

    def end(self) -> None:
        """Have it over."""
        self._transport.abort()

    async def _answer(self, head: bytes) -> None:
        words = head.split(b"\n", 1)[0].split()
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return self._send(400, "that is no HTTP/1 request")
        method, target, _ = words
        if method not in (b"GET", b"HEAD"):
            return self._send(405, "here one can only GET", allow=True)
        if target.split(b"?")[0] != PATH.encode():
            return self._send(404, f"metrics are at {PATH}")
        try:
            text = await self._make()
        except Exception:
            log.exception("the page of metrics could not be made")
            return self._send(500, "it could not be made, see the log")
        return self._send(200, text, empty=method == b"HEAD")

    def _send(self, code: int, text: str, *, empty: bool = False, allow: bool = False) -> None:
        body = text.encode() if code == 200 else f"{text}\n".encode()
        lines = [
            f"HTTP/1.1 {code} {_REASONS[code]}",
            f"Content-Type: {CONTENT_TYPE if code == 200 else 'text/plain; charset=utf-8'}",
            f"Content-Length: {len(body)}",
            *(["Allow: GET, HEAD"] if allow else []),
            "Connection: close",
        ]
        head = "".join(f"{line}\r\n" for line in lines) + "\r\n"
        self._transport.write(head.encode() if empty else head.encode() + body)
        self._transport.close()


_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
}


async def open_page(
    config: MetricsConfig, sources: Sequence[Source], *, network: Network, usual: int
) -> MetricsPage | None:
    """The page, where `config` wants it; where it leaves that open, at the `usual` port if it can.

    A port that was asked for and is taken is an error. The usual one may well be taken, by another
    server of ours: then it is one of the next, or any.
    """
    if not config.enabled:
        return None
    page = MetricsPage(sources)
    for port in _choices(config.port, usual):
        try:
            await page.listen(join_address(config.bind, port), network)
        except OSError as error:
            if config.port is None and port and error.errno == EADDRINUSE:
                continue
            raise OSError(
                error.errno, f"{error.strerror}; set metrics.port, or metrics.enabled = false"
            ) from error
        break
    log.info("metrics are at %s", page.url)
    return page


def _choices(wanted: int | None, usual: int) -> Sequence[int]:
    if wanted is not None or not usual:
        return (wanted or 0,)
    return (*range(usual, usual + _NEIGHBOURS), 0)
