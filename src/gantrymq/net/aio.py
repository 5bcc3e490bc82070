"""Connections over asyncio: connect to a peer, serve peers, and run either on the fastest loop.

```python
async with await serve("127.0.0.1:0", HANDLERS, owner=broker) as server:
    peer = await connect(server.address)
    reply = await peer.call(GetMaxOffset(topic="orders", queue_id=0), timeout=3.0)
```

How a connection works is told in docs/explanation/connections.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, Literal, TypeVar

from gantrymq.net.answering import NO_TABLE, Table
from gantrymq.net.endings import Ending
from gantrymq.net.link import Terms, Traffic
from gantrymq.net.network import Network
from gantrymq.net.options import PLAIN, PeerOptions, ServerOptions
from gantrymq.net.peer import Peer
from gantrymq.net.pool import AsyncRuntime, Pool
from gantrymq.net.server import Server
from gantrymq.net.tcp import Tcp

try:
    import uvloop
except ImportError:  # not made for this platform
    uvloop = None  # type: ignore[assignment]

__all__ = [
    "AsyncRuntime",
    "Ending",
    "Peer",
    "PeerOptions",
    "Pool",
    "Server",
    "ServerOptions",
    "Tcp",
    "Terms",
    "Traffic",
    "connect",
    "run",
    "serve",
]

T = TypeVar("T")
LoopKind = Literal["fastest", "asyncio", "uvloop"]

CONNECT_TIMEOUT: Final = 3.0
_TCP: Final = Tcp()
_LIMITS: Final = ServerOptions()


def run(main: Coroutine[object, None, T], *, loop: LoopKind = "fastest") -> T:
    """`asyncio.run` on uvloop where there is one, or on the loop that is asked for."""
    with asyncio.Runner(loop_factory=loop_factory(loop)) as runner:
        return runner.run(main)


def loop_factory(kind: LoopKind = "fastest") -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes such a loop."""
    if kind == "asyncio" or (uvloop is None and kind == "fastest"):
        return asyncio.new_event_loop
    return uvloop.new_event_loop


async def connect(
    address: str,
    table: Table = NO_TABLE,
    owner: object = None,
    *,
    network: Network = _TCP,
    options: PeerOptions = PLAIN,
    timeout: float = CONNECT_TIMEOUT,
) -> Peer:
    """A connection to `address`; what the peer asks is answered from `table`."""
    peer = Peer(Terms(table=table, owner=owner, options=options), address=address)
    await network.connect(address, lambda: peer, timeout=timeout)
    return peer


async def serve(
    address: str | Sequence[str],
    table: Table,
    owner: object = None,
    *,
    network: Network = _TCP,
    options: PeerOptions = PLAIN,
    limits: ServerOptions = _LIMITS,
    on_open: Callable[[Peer], None] | None = None,
    on_end: Callable[[Peer], None] | None = None,
) -> Server:
    """A server at `address`, or at several; port 0 takes any free one, see `Server.addresses`."""
    terms = Terms(table=table, owner=owner, options=options, on_open=on_open, on_end=on_end)
    server = Server(terms, limits)
    await server.listen(network, [address] if isinstance(address, str) else address)
    return server
