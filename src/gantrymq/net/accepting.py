"""Accepting sockets that have to be looked at first: PROXY headers, and TLS or plain.

```
accepted ──▶ PROXY header? ──▶ first byte ──▶ protocol, plain or with TLS
             (taken off)       (only seen)
```

The kernel lets us look at bytes without taking them. A PROXY header is taken once it is complete;
of what follows, one byte is looked at: 0x16 begins a TLS handshake and no frame. What then happens
is this table, and there is one time limit for all of it:

| mode | 0x16 | anything else |
|---|---|---|
| disabled | refused | plain |
| permissive | TLS | plain |
| enforcing | TLS | refused |
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Coroutine, Sequence
from errno import EMFILE, ENFILE, ENOBUFS, ENOMEM
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


class Accepting:
    """Takes connections at some sockets and greets each of them."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        gate: Gate,
        *,
        tls: ServerTls | None,
        proxy: ProxyMode,
        timeout: float,
    ) -> None:
        self.addresses = tuple(join_address(*sock.getsockname()[:2]) for sock in sockets)
        self._sockets = sockets
        self._gate = gate
        self._tls = tls
        self._proxy = proxy
        self._timeout = timeout
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to take connections."""
        for listening in self._sockets:
            self._spawn(self._accept(listening))

    def close(self) -> None:
        """Take no further connections, and leave those that are being greeted."""
        for task in self._tasks:
            task.cancel()

    async def wait_closed(self) -> None:
        """Return when everything is released."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    accepted, _ = await loop.sock_accept(listening)
                except OSError as error:
                    if error.errno not in _EXHAUSTED:
                        log.debug("a connection went before it was accepted: %s", error)
                        continue
                    log.warning("cannot accept connections: %s", error)
                    await asyncio.sleep(_BREATHER)
                    continue
                if self._gate.admit():
                    self._spawn(self._greet(accepted))
                else:
                    accepted.close()

    async def _greet(self, accepted: socket.socket) -> None:
        """Find out what the connection is and give it its protocol; close it if it is nothing."""
        protocol: asyncio.BufferedProtocol | None = None
        try:
            async with asyncio.timeout(self._timeout):
                proxied = await self._proxy_header(accepted)
                context = await self._context(accepted)
                protocol = self._gate.protocol(proxied)
                await _hand_over(accepted, protocol, context, self._timeout)
        except (OSError, RemoteProtocolError) as error:  # TimeoutError and SSLError are OSErrors
            why = error if str(error) else f"nothing sensible in {self._timeout:g}s"
            log.info("connection from %s refused: %s", _peer_name(accepted), why)
            self._gate.dismiss(protocol)
        except asyncio.CancelledError:
            self._gate.dismiss(protocol)
            raise
        finally:
            if protocol is None:
                accepted.close()

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


async def _hand_over(
    accepted: socket.socket,
    protocol: asyncio.BufferedProtocol,
    context: ssl.SSLContext | None,
    timeout: float,
) -> None:
    """Let the loop have the socket, which closes it from now on."""
    await asyncio.get_running_loop().connect_accepted_socket(
        lambda: protocol,
        accepted,
        ssl=context,
        ssl_handshake_timeout=None if context is None else timeout,
    )


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
