"""TCP, with or without TLS: where connections really come from."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from errno import EADDRNOTAVAIL, EAFNOSUPPORT
from typing import Final

from gantrymq.errors import ConnectFailed
from gantrymq.net.accepting import Accepting, ProxyMode
from gantrymq.net.addresses import split_address
from gantrymq.net.network import Gate, Listener, MakeProtocol
from gantrymq.net.streams import limit_silence
from gantrymq.net.tls import ClientTls, ServerTls

_NO_SUCH_FAMILY: Final = (EADDRNOTAVAIL, EAFNOSUPPORT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tcp:
    """A network over TCP."""

    tls: ClientTls | None = None
    """Connections that we make use TLS."""
    server_tls: ServerTls | None = None
    """Connections that we take may, or have to, use TLS."""
    proxy_header: ProxyMode = "off"
    """Whether connections that we take may, or have to, begin with a PROXY header."""
    first_byte_timeout: float = 120.0
    """Seconds until a connection that has to be looked at says anything."""
    greeting_timeout: float = 10.0
    """Seconds from there until PROXY header and TLS handshake are done."""
    unacknowledged_timeout: float = 120.0
    """Seconds without an acknowledgement after which the kernel ends a connection, where it can."""
    backlog: int = 1024

    async def connect(self, address: str, make: MakeProtocol, *, timeout: float) -> None:
        """Connect `make()` to `address`, or raise `ConnectFailed`."""
        host, port = split_address(address)
        context = None if self.tls is None else self.tls.context()
        name = None if self.tls is None else (self.tls.server_name or host)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout) as limit:
                transport, _ = await loop.create_connection(
                    make, host, port, ssl=context, server_hostname=name
                )
        except OSError as error:
            if limit.expired():
                raise ConnectFailed(f"no connection to {address} in {timeout:.1f}s") from error
            kind = "TLS with" if isinstance(error, ssl.SSLError) else "connecting to"
            raise ConnectFailed(
                f"{kind} {address} failed: {str(error) or type(error).__name__}"
            ) from error

        limit_silence(transport.get_extra_info("socket"), self.unacknowledged_timeout)

    async def listen(self, address: str, gate: Gate) -> Listener:
        """Take connections at `address`; a name or an empty host can stand for several."""
        sockets = await _bind(address, self.backlog)
        for sock in sockets:
            limit_silence(sock, self.unacknowledged_timeout)  # accepted sockets take it over
        return Accepting(
            sockets,
            gate,
            tls=self.server_tls,
            proxy=self.proxy_header,
            first_byte_timeout=self.first_byte_timeout,
            timeout=self.greeting_timeout,
        )


async def _bind(address: str, backlog: int) -> list[socket.socket]:
    """Listening sockets for every address that `address` stands for, all on one port."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    targets = {(family, str(where[0])): where for family, _, _, _, where in found}
    sockets: list[socket.socket] = []
    try:
        for (family, _), where in targets.items():
            chosen = port or (sockets[0].getsockname()[1] if sockets else 0)
            sockets += _listening(family, (where[0], chosen, *where[2:]), backlog, host)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise OSError(error.errno, f"cannot listen on {address}: {error.strerror}") from error
    return sockets


def _listening(
    family: int, where: tuple[object, ...], backlog: int, host: str
) -> Iterable[socket.socket]:
    """One listening socket; none if "every interface" includes a family that is not there."""
    try:
        # asyncio turns Nagle's delay off only where the protocol is named
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError:
        if host:
            raise
        return ()
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(where)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        if host or error.errno not in _NO_SUCH_FAMILY:
            raise
        return ()
    return (sock,)
