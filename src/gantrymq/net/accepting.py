"""Accepting connections: PROXY headers, and TLS or plain, before anything reads from a socket.

```
accepted ──▶ PROXY header? ──▶ first byte? ──▶ protocol, plain or with TLS
             (taken off)       (only seen)
```

Without PROXY headers and without TLS nothing is looked at. Otherwise the kernel lets us look at
bytes without taking them. A PROXY header is taken once it is complete; of what follows, one byte is
looked at: 0x16 begins a TLS handshake and no frame. What then happens is this table. From the first
byte on there is a time limit for the header, and then the same one for the handshake:

| mode | 0x16 | anything else |
|---|---|---|
| disabled | refused | plain |
| permissive | TLS | plain |
| enforcing | TLS | refused |

asyncio's own servers are not used: they can neither look first nor change certificates, and they
lose connections that arrive while they close.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM
from functools import partial
from typing import Final, Literal, TypeAlias

from gantrymq.errors import RemoteProtocolError
from gantrymq.net.addresses import join_address
from gantrymq.net.network import Gate
from gantrymq.net.proxy_header import LONGEST, MORE, NONE, ProxyHeader, read_header
from gantrymq.net.tls import ServerTls, TlsMode

log = logging.getLogger("gantrymq.net")

ProxyMode: TypeAlias = Literal["off", "optional", "required"]

_HANDSHAKE: Final = 0x16
_EXHAUSTED: Final = (EMFILE, ENFILE, ENOBUFS, ENOMEM)
_BREATHER: Final = 1.0
"""Seconds to wait when the process or the machine is out of descriptors or memory."""
_GLANCE: Final = 0.01
"""Seconds between looks at a header that comes in pieces: what was looked at stays readable."""

_REFUSED: Final[frozenset[tuple[TlsMode, bool]]] = frozenset(
    {("disabled", True), ("enforcing", False)}
)


class _Arrival:
    """A connection on its way in; the socket is ours until a protocol has it."""

    __slots__ = ("protocol", "sock")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.protocol: asyncio.BufferedProtocol | None = None


class Accepting:
    """Takes connections at some sockets and greets each of them."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        gate: Gate,
        *,
        tls: ServerTls | None,
        proxy: ProxyMode,
        first_byte_timeout: float,
        timeout: float,
    ) -> None:
        self.addresses = tuple(join_address(*sock.getsockname()[:2]) for sock in sockets)
        self._sockets = list(sockets)
        self._gate = gate
        self._tls = tls
        self._proxy = proxy
        self._first_byte_timeout = first_byte_timeout
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        for listening in sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Take no further connections, and leave those that are being greeted."""
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when everything is released."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _accept(self, listening: socket.socket) -> None:
        """Take every connection that has arrived."""
        with suppress(BlockingIOError):
            while True:
                try:
                    sock, _ = listening.accept()
                except ConnectionError:  # it went before we came
                    continue
                except OSError as error:
                    if error.errno not in _EXHAUSTED:
                        raise
                    log.warning("no connections for %gs: %s", _BREATHER, error)
                    self._loop.remove_reader(listening)
                    self._loop.call_later(_BREATHER, self._accept_again, listening)
                    return
                sock.setblocking(False)
                self._receive(sock)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _receive(self, sock: socket.socket) -> None:
        if not self._gate.admit():
            sock.close()
            return
        arrival = _Arrival(sock)
        task = self._loop.create_task(self._greet(arrival))
        self._tasks.add(task)
        task.add_done_callback(partial(self._greeted, arrival))

    async def _greet(self, arrival: _Arrival) -> None:
        """Find out what the connection is, and give it its protocol."""
        if self._proxy != "off" or self._tls is not None:
            async with asyncio.timeout(self._first_byte_timeout):
                await _peek(arrival.sock, 1)
        async with asyncio.timeout(self._timeout):
            proxied = await self._proxy_header(arrival.sock)
            context = await self._context(arrival.sock)
        # outside of that limit: a loop that was kept busy would blame those who just came
        arrival.protocol = protocol = self._gate.protocol(proxied)
        await self._loop.connect_accepted_socket(
            lambda: protocol,
            arrival.sock,
            ssl=context,
            ssl_handshake_timeout=None if context is None else self._timeout,
        )

    def _greeted(self, arrival: _Arrival, task: asyncio.Task[None]) -> None:
        """It has its protocol now, or it came to nothing, if only because it never began."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        name = _peer_name(arrival.sock)
        if arrival.protocol is None:
            arrival.sock.close()
        self._gate.dismiss(arrival.protocol)
        if isinstance(error, OSError | RemoteProtocolError):  # TimeoutError and SSLError, too
            why = str(error) or "nothing sensible came in time"
            log.info("connection from %s refused: %s", name, why)
        elif error is not None:
            log.error("connection from %s could not be taken", name, exc_info=error)

    async def _context(self, accepted: socket.socket) -> ssl.SSLContext | None:
        tls = self._tls
        if tls is None:
            return None
        secure = (await _peek(accepted, 1))[0] == _HANDSHAKE
        if (tls.mode, secure) in _REFUSED:
            kind = "TLS" if secure else "plain"
            raise RemoteProtocolError(f"it is {kind}, and TLS is {tls.mode} here")
        return tls.context() if secure else None

    async def _proxy_header(self, accepted: socket.socket) -> ProxyHeader | None:
        if self._proxy == "off":
            return None
        seen = b""
        while (found := read_header(seen)) is MORE:
            seen = await _peek_more(accepted, len(seen))
        if found is NONE:
            if self._proxy == "required":
                raise RemoteProtocolError("it has no PROXY header")
            return None
        accepted.recv(found.size)
        return found


async def _peek(accepted: socket.socket, size: int) -> bytes:
    """The next bytes, at most `size`, which stay where they are."""
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(accepted, _resolve, readable)
    try:
        await readable
    finally:
        loop.remove_reader(accepted)
    seen = accepted.recv(size, socket.MSG_PEEK)
    if not seen:
        raise ConnectionResetError("closed before it said anything")
    return seen


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _peek_more(accepted: socket.socket, known: int) -> bytes:
    """All that has come of a header, once it is more than `known` bytes."""
    seen = await _peek(accepted, LONGEST)
    while len(seen) <= known:
        await asyncio.sleep(_GLANCE)  # no event tells of more: the socket stays readable
        seen = await _peek(accepted, LONGEST)
    return seen


def _peer_name(accepted: socket.socket) -> str:
    try:
        return join_address(*accepted.getpeername()[:2])
    except OSError:
        return "a peer that is gone"
