"""How clients reach servers: over TCP, or without a network where a platform is in this process.

A blocking client that is outside of any loop uses blocking sockets on TCP. A platform inside this
process runs on the loop of a thread, and calls are made there while the caller waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from gantrymq.client.config import ClientConfig
from gantrymq.client.inside import inside_of
from gantrymq.client.loop_thread import LoopThread, thread_of
from gantrymq.net.aio import AsyncRuntime, Pool, Tcp, Terms
from gantrymq.net.lending import BlockingPool, BlockingRuntime
from gantrymq.net.network import Network
from gantrymq.protocol.base import Reply, Request
from gantrymq.runtime import Pending, Pipe, PipingRuntime

R = TypeVar("R", bound=Reply)
Given = TypeVar("Given", bound=Reply, covariant=True)


def network_for(config: ClientConfig, network: Network | None = None) -> Network:
    """What carries the connections of such a client: `network` if that is given."""
    if network is not None:
        return network
    inside = inside_of(config)
    return Tcp(tls=config.client_tls) if inside is None else inside.network


def pool_for(config: ClientConfig, network: Network | None = None) -> Pool:
    """Connections of a client that answers nothing."""
    return Pool(
        terms=Terms(options=config.peer_options),
        network=network_for(config, network),
        connect_timeout=config.connect_timeout,
    )


class Closable(Protocol):
    """What holds connections."""

    def close(self) -> None:
        """Close them."""
        ...


@dataclass(frozen=True, slots=True)
class Blocking:
    """What flows ask for on a thread that blocks, and the connections behind it."""

    runtime: PipingRuntime
    connections: Closable

    def close(self) -> None:
        """Close the connections."""
        self.connections.close()


def blocking_for(config: ClientConfig) -> Blocking:
    """How such a client calls from any thread."""
    if inside_of(config) is not None:
        there = ThreadRuntime(thread_of(config), config)
        return Blocking(there, there)
    pool = BlockingPool(
        options=config.peer_options, tls=config.client_tls, connect_timeout=config.connect_timeout
    )
    return Blocking(BlockingRuntime(pool), pool)


class ThreadRuntime:
    """Makes calls on a loop of another thread, while this one waits; its coroutines block."""

    def __init__(self, thread: LoopThread, config: ClientConfig) -> None:
        self._thread: Final = thread
        self._pool: Final = thread.do(pool_for, config)
        self._there: Final = AsyncRuntime(self._pool)

    async def call(self, address: str, request: Request[R], *, timeout: float) -> R:
        """The reply of the peer at `address`."""
        return self._thread.call(self._there.call(address, request, timeout=timeout))

    async def tell(self, address: str, request: Request[Any]) -> None:
        """Send `request` one-way."""
        self._thread.call(self._there.tell(address, request))

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        self._thread.call(asyncio.sleep(seconds))

    def now(self) -> float:
        """The time of that loop."""
        return self._thread.loop.time()

    @asynccontextmanager
    async def pipe(self, address: str, *, timeout: float) -> AsyncIterator[Pipe]:
        """A connection for several calls at a time."""
        lent = self._there.pipe(address, timeout=timeout)
        pipe = self._thread.call(lent.__aenter__())
        try:
            yield _ThreadPipe(self._thread, pipe)
        finally:
            self._thread.call(lent.__aexit__(None, None, None))

    def close(self) -> None:
        """Close the connections."""
        self._thread.call(self._pool.close())


class _ThreadPipe:
    def __init__(self, thread: LoopThread, pipe: Pipe) -> None:
        self._thread = thread
        self._pipe = pipe

    async def begin(self, request: Request[R], *, timeout: float) -> Pending[R]:
        begun = self._thread.call(self._pipe.begin(request, timeout=timeout))
        return _ThreadPending(self._thread, begun)


class _ThreadPending(Generic[Given]):
    def __init__(self, thread: LoopThread, pending: Pending[Given]) -> None:
        self._thread = thread
        self._pending = pending

    async def reply(self, *, timeout: float) -> Given:
        return self._thread.call(self._pending.reply(timeout=timeout))
