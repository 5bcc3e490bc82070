"""The least that can talk to a peer: one socket, one request, its answer.

For starting servers and for tests that must not depend on our own endpoint.
"""

from __future__ import annotations

import itertools
import socket
from types import TracebackType
from typing import Final, Self

from gantrymq.errors import ConnectionLost
from gantrymq.wire.command import Command, HeaderType
from gantrymq.wire.connection import Connection

_OPAQUES: Final = itertools.count(1)


class Caller:
    """A blocking connection to `host:port`; a context manager."""

    def __init__(
        self, address: str, *, header_type: HeaderType = HeaderType.JSON, timeout: float = 10
    ) -> None:
        host, _, port = address.rpartition(":")
        self.address = address
        self._connection = Connection(header_type=header_type)
        self._socket = socket.create_connection((host, int(port)), timeout)

    def call(self, request: Command) -> Command:
        """The answer to `request`; whatever else arrives meanwhile is dropped."""
        request.opaque = next(_OPAQUES)
        self._socket.sendall(b"".join(self._connection.encode(request)))
        while data := self._socket.recv(1 << 16):
            for command in self._connection.feed(data):
                if command.is_response and command.opaque == request.opaque:
                    return command
        raise ConnectionLost(f"{self.address} closed the connection before answering {request!r}")

    def tell(self, request: Command) -> None:
        """Send a one-way request."""
        self._socket.sendall(b"".join(self._connection.encode(request)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()
