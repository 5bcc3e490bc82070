"""Sockets read and written with a deadline, plain or with TLS, for the blocking endpoint.

The socket never blocks; waiting is `poll`, so that every wait ends exactly at its deadline, however
many pieces a message comes in. A write that has to wait also watches for input and hands it over:
if both ends wrote and neither read, both would stand still.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from math import ceil
from typing import Final, Protocol

from gantrymq.errors import ConnectFailed
from gantrymq.net.addresses import split_address
from gantrymq.net.tls import ClientTls
from gantrymq.wire.command import Buffer

IN: Final = getattr(select, "POLLIN", 1)
OUT: Final = getattr(select, "POLLOUT", 4)
_UNACKNOWLEDGED: Final = 120.0
_SMALL: Final = 16 * 1024
"""Bodies below this are copied behind their header; several buffers cost more than that."""
_MANY: Final = 512
"""Buffers that one system call takes; the least that systems allow is 1024."""


class Poll:
    """Waits for one socket."""

    __slots__ = ("_asked", "_poll", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._poll = select.poll() if hasattr(select, "poll") else None
        self._asked = 0

    def wait(self, events: int, deadline: float) -> int:
        """Which of `events` came; `TimeoutError` at the deadline. Errors and ends count as both."""
        left = deadline - time.monotonic()
        found = self._look(events, max(0.0, left))
        if not found:
            raise TimeoutError
        return found if found & (IN | OUT) else IN | OUT

    def ready(self, events: int) -> bool:
        """Whether one of `events` is there now."""
        return bool(self._look(events, 0.0))

    def _look(self, events: int, seconds: float) -> int:
        if self._poll is None:
            return self._select(events, seconds)
        if events != self._asked:
            self._poll.register(self._sock, events)
            self._asked = events
        found = self._poll.poll(ceil(seconds * 1000))
        return found[0][1] if found else 0

    def _select(self, events: int, seconds: float) -> int:
        """The same where there is no `poll`."""
        mine = [self._sock]
        reads, writes, errors = select.select(
            mine if events & IN else [], mine if events & OUT else [], mine, seconds
        )
        return (IN if reads or errors else 0) | (OUT if writes or errors else 0)


class Stream:
    """A connected socket."""

    __slots__ = ("_poll", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._poll = Poll(sock)

    @property
    def remote(self) -> object:
        """The socket's name for the other end."""
        return self._sock.getpeername()

    @property
    def local(self) -> object:
        """The socket's name for this end."""
        return self._sock.getsockname()

    def read(self, into: memoryview, deadline: float) -> int:
        """Bytes read, at least one; 0 says that the other end is done."""
        while True:
            self._poll.wait(IN, deadline)
            try:
                return self._sock.recv_into(into)
            except BlockingIOError:  # it was ready, and is not any more
                continue

    def write(
        self, buffers: Sequence[Buffer], deadline: float, drain: Callable[[], object]
    ) -> None:
        """Write all of it; calls `drain` for input that comes meanwhile."""
        small = len(buffers) > 1 and len(buffers[-1]) < _SMALL
        rest: list[Buffer] = [b"".join(buffers)] if small else list(buffers)
        while rest:
            try:
                sent = self._send(rest[:_MANY])
            except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if self._poll.wait(IN | OUT, deadline) & IN:
                    drain()
            else:
                _drop(rest, sent)

    def has_input(self) -> bool:
        """Whether a read would return at once."""
        return self._poll.ready(IN)

    def close(self) -> None:
        """Let go of the socket."""
        self._sock.close()

    def _send(self, buffers: Sequence[Buffer]) -> int:
        if len(buffers) > 1 and hasattr(self._sock, "sendmsg"):
            return self._sock.sendmsg(buffers)
        return self._sock.send(buffers[0])


class TlsStream(Stream):
    """The same with TLS, which may hold bytes that the socket does not show any more."""

    __slots__ = ("_tls",)

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock)
        self._tls = sock

    def read(self, into: memoryview, deadline: float) -> int:
        """As above."""
        while True:
            try:
                return self._tls.recv_into(into)
            except ssl.SSLWantReadError:
                self._poll.wait(IN, deadline)
            except ssl.SSLWantWriteError:
                self._poll.wait(OUT, deadline)
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return 0

    def has_input(self) -> bool:
        """As above."""
        return self._tls.pending() > 0 or super().has_input()

    def _send(self, buffers: Sequence[Buffer]) -> int:
        return self._tls.send(buffers[0])  # TLS must see the same bytes again if it has to wait


class _Tunable(Protocol):
    def setsockopt(self, level: int, name: int, value: int, /) -> None: ...


def limit_silence(sock: _Tunable, seconds: float) -> None:
    """Let the kernel end a connection whose other end acknowledges nothing for so long."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def open_stream(address: str, tls: ClientTls | None, timeout: float) -> Stream:
    """Connect to `address`, or raise `ConnectFailed`."""
    host, port = split_address(address)
    try:
        sock = socket.create_connection((host, port), timeout)
    except OSError as error:
        raise _failed("connecting to", address, timeout, error) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit_silence(sock, _UNACKNOWLEDGED)
        if tls is None:
            return Stream(sock)
        name = tls.server_name or host
        return TlsStream(tls.context().wrap_socket(sock, server_hostname=name))
    except OSError as error:
        sock.close()
        raise _failed("TLS with", address, timeout, error) from error


def _failed(doing: str, address: str, timeout: float, error: OSError) -> ConnectFailed:
    if isinstance(error, TimeoutError):
        return ConnectFailed(f"no connection to {address} in {timeout:.1f}s")
    return ConnectFailed(f"{doing} {address} failed: {str(error) or type(error).__name__}")


def _drop(buffers: list[Buffer], sent: int) -> None:
    """Take the first `sent` bytes off."""
    done = 0
    for buffer in buffers:
        if len(buffer) > sent:
            break
        sent -= len(buffer)
        done += 1
    del buffers[:done]
    if sent:
        buffers[0] = memoryview(buffers[0])[sent:]
