"""One connection to each address, made when it is needed and shared by everyone who asks.

However many ask for an address at the same time, one connection is made; who stops waiting does not
stop it. A connection that ended is made anew by the next who asks. After a failure the *back-off*,
a function of the number of failures in a row, says for how many seconds nobody tries again: until
then asking fails at once, with the last error, and a flow can turn to another broker.

A server that shuts down in good order answers `GO_AWAY`. Its connection is then *retired*: calls
under way go on, nobody gets it any more, and it is closed when it is idle. The call that was sent
away goes out once more, on a new connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from gantrymq.errors import ClosedError, ConnectFailed, GoingAway, NotSentInTime
from gantrymq.net.alarms import clock_of
from gantrymq.net.backing_off import Attempts, BackOff, doubling
from gantrymq.net.calls import describe
from gantrymq.net.link import Terms
from gantrymq.net.network import Network
from gantrymq.net.peer import Peer
from gantrymq.net.tcp import Tcp
from gantrymq.protocol.base import Reply, Request

R = TypeVar("R", bound=Reply)

_TCP: Final = Tcp()
_NOTHING_SPECIAL: Final = Terms()


@dataclass(slots=True, kw_only=True)
class _Place:
    """What is known about one address."""

    attempts: Attempts
    peer: Peer | None = None
    opening: asyncio.Task[Peer | ConnectFailed] | None = None


class Pool:
    """Connections by address."""

    def __init__(
        self,
        *,
        terms: Terms = _NOTHING_SPECIAL,
        network: Network = _TCP,
        connect_timeout: float = 3.0,
        back_off: BackOff = doubling,
    ) -> None:
        self._terms = terms
        self._network = network
        self._connect_timeout = connect_timeout
        self._back_off = back_off
        self._places: dict[str, _Place] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def peers(self) -> dict[str, Peer]:
        """The open connections."""
        places = self._places.items()
        return {address: peer for address, place in places if (peer := _open_peer(place))}

    def ready(self, address: str) -> Peer | None:
        """The connection to `address` if it is there already."""
        place = self._places.get(address)
        return None if place is None else _open_peer(place)

    async def peer(self, address: str) -> Peer:
        """The connection to `address`, made if need be."""
        if self._closed:
            raise ClosedError(f"the pool was closed; no connection to {address}")
        place = self._places.get(address) or self._new_place(address)
        if (peer := _open_peer(place)) is not None:
            return peer
        if place.opening is None:
            place.attempts.check(address, asyncio.get_running_loop().time())
            place.opening = asyncio.create_task(self._open(address, place))
        opening = place.opening
        try:
            outcome = await asyncio.shield(opening)
        except asyncio.CancelledError:
            if not opening.cancelled():
                raise
            raise ClosedError(f"the pool was closed; no connection to {address}") from None
        if isinstance(outcome, ConnectFailed):
            raise ConnectFailed(*outcome.args) from outcome
        return outcome

    def retire(self, peer: Peer) -> None:
        """Hand `peer` out no more, and close it when its calls have ended."""
        for address, place in tuple(self._places.items()):
            if place.peer is peer:
                del self._places[address]
        task = asyncio.create_task(_close_when_idle(peer))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    async def close(self) -> None:
        """Close every connection; what was written goes out."""
        self._closed = True
        opening = [place.opening for place in self._places.values() if place.opening]
        for task in (*opening, *self._retired):
            task.cancel()
        await asyncio.gather(*opening, *self._retired, return_exceptions=True)
        peers = [place.peer for place in self._places.values() if place.peer]
        self._places.clear()
        for peer in peers:
            peer.close()
        for peer in peers:
            await peer.wait_closed()

    async def _open(self, address: str, place: _Place) -> Peer | ConnectFailed:
        peer = Peer(self._terms, address=address)
        try:
            await self._network.connect(address, lambda: peer, timeout=self._connect_timeout)
        except ConnectFailed as error:
            place.attempts.failed(error, asyncio.get_running_loop().time())
            return error
        else:
            place.attempts.succeeded()
            place.peer = peer
            return peer
        finally:
            place.opening = None

    def _new_place(self, address: str) -> _Place:
        place = self._places[address] = _Place(attempts=Attempts(self._back_off))
        return place


class AsyncRuntime:
    """What flows ask for, over a pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self._clock: Callable[[], float] | None = None

    async def call(self, address: str, request: Request[R], *, timeout: float) -> R:
        """The reply of the peer at `address`, within `timeout` seconds or `CallTimeout`."""
        deadline = self.now() + timeout
        peer = self.pool.ready(address) or await self._peer(address, request, timeout)
        try:
            return await peer.call(request, timeout=deadline - self.now())
        except GoingAway:
            self.pool.retire(peer)
        peer = await self._peer(address, request, deadline - self.now())
        return await peer.call(request, timeout=deadline - self.now())

    async def tell(self, address: str, request: Request[Any]) -> None:
        """Send `request` one-way."""
        await (await self.pool.peer(address)).tell(request)

    @asynccontextmanager
    async def pipe(self, address: str, *, timeout: float) -> AsyncIterator[AsyncPipe]:
        """A connection for several calls at a time; those left over are given up."""
        try:
            async with asyncio.timeout(timeout):
                peer = await self.pool.peer(address)
        except TimeoutError as error:
            raise NotSentInTime(f"no connection to {address} in {timeout:.1f}s") from error
        pipe = AsyncPipe(peer)
        try:
            yield pipe
        except GoingAway:
            self.pool.retire(peer)
            raise
        finally:
            await pipe.close()

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        await asyncio.sleep(seconds)

    def now(self) -> float:
        """The loop's time."""
        if self._clock is None:
            self._clock = clock_of(asyncio.get_running_loop())
        return self._clock()

    async def _peer(self, address: str, request: Request[R], timeout: float) -> Peer:
        try:
            async with asyncio.timeout(timeout):
                return await self.pool.peer(address)
        except TimeoutError as error:
            text = f"no connection to {address} in {timeout:.1f}s ({describe(request)})"
            raise NotSentInTime(text) from error


class AsyncPipe:
    """A connection that is used for several calls at a time."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._calls: set[asyncio.Task[Any]] = set()

    async def begin(self, request: Request[R], *, timeout: float) -> AsyncPending[R]:
        """Send `request`."""
        call = asyncio.create_task(self._peer.call(request, timeout=timeout))
        self._calls.add(call)
        return AsyncPending(call, self._calls)

    async def close(self) -> None:
        """Give up the calls whose reply nobody took."""
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)


class AsyncPending(Generic[R]):
    """A call on such a connection."""

    def __init__(self, call: asyncio.Task[R], calls: set[asyncio.Task[Any]]) -> None:
        self._call = call
        self._calls = calls

    async def reply(self, *, timeout: float) -> R:  # noqa: ARG002 – the loop reads it in time
        """The reply; the time for it counts from when it was asked."""
        try:
            return await self._call
        finally:
            self._calls.discard(self._call)


def _open_peer(place: _Place) -> Peer | None:
    return place.peer if place.peer is not None and place.peer.is_open else None


async def _close_when_idle(peer: Peer) -> None:
    try:
        await peer.idle()
    finally:
        peer.close()
        await peer.wait_closed()
