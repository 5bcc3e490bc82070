"""What carries connections: TCP, or memory in tests. Peers and servers know only this."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeAlias

from gantrymq.net.proxy_header import ProxyHeader

MakeProtocol: TypeAlias = Callable[[], asyncio.BufferedProtocol]


class Gate(Protocol):
    """A server's word on each connection that wants in."""

    def admit(self) -> bool:
        """Whether there is room; every yes is followed by `protocol` or `dismiss`."""
        ...

    def protocol(self, proxied: ProxyHeader | None = None) -> asyncio.BufferedProtocol:
        """What talks to an admitted connection."""
        ...

    def dismiss(self, protocol: asyncio.BufferedProtocol | None = None) -> None:
        """An admitted connection came to nothing, before it had its protocol or with it."""
        ...


class Listener(Protocol):
    """One address that is listened on, or several that a name stands for."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where connections are taken, with the real port."""
        ...

    def close(self) -> None:
        """Take no further connections."""
        ...

    async def wait_closed(self) -> None:
        """Return when everything is released."""
        ...


class Network(Protocol):
    """How connections are made and taken."""

    async def connect(self, address: str, make: MakeProtocol, *, timeout: float) -> None:
        """Connect `make()` to `address`, or raise `ConnectFailed`."""
        ...

    async def listen(self, address: str, gate: Gate) -> Listener:
        """Take connections at `address`."""
        ...
