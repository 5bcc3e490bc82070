"""Blocking connections that threads share: lent to one call at a time, and the runtime over them.

A `BlockingPool` keeps the connections to each address. A call borrows the one that was used last
among those that are free; if none is free it opens another, up to `connections` for the address;
over that it waits its turn, within its own time limit. So there are as many connections as threads
call an address at the same moment, and no lock is held while anyone talks.

A connection that comes back broken is dropped. One that has rested for a while is looked at before
it is lent again: what the peer asked meanwhile is answered, and if the peer has closed it, another
one is opened.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from gantrymq.errors import ClosedError, ConnectFailed, GoingAway, NotSentInTime
from gantrymq.net.answering import NO_TABLE, Table
from gantrymq.net.backing_off import Attempts, BackOff, doubling
from gantrymq.net.blocking import CONNECT_TIMEOUT, Begun, BlockingPeer
from gantrymq.net.options import PLAIN, PeerOptions
from gantrymq.net.tls import ClientTls
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.forms import FilledForm
from gantrymq.protocol.sending import SendReply
from gantrymq.wire.command import Buffer

R = TypeVar("R", bound=Reply)

_RESTED: Final = 0.01
"""Seconds without use after which a connection is looked at before it is lent."""


@dataclass(slots=True, kw_only=True)
class _Shelf:
    """The connections to one address."""

    attempts: Attempts
    free: list[BlockingPeer] = field(default_factory=list)
    lent: int = 0


class BlockingPool:
    """Connections by address; any thread may borrow."""

    def __init__(
        self,
        *,
        table: Table = NO_TABLE,
        owner: object = None,
        options: PeerOptions = PLAIN,
        tls: ClientTls | None = None,
        connect_timeout: float = CONNECT_TIMEOUT,
        connections: int = 8,
        back_off: BackOff = doubling,
    ) -> None:
        self._table = table
        self._owner = owner
        self._options = options
        self._tls = tls
        self._connect_timeout = connect_timeout
        self._connections = connections
        self._back_off = back_off
        self._shelves: dict[str, _Shelf] = {}
        self._changed = threading.Condition(threading.Lock())
        self._waiting = 0
        self._closed = False

    @contextmanager
    def lend(self, address: str, *, timeout: float) -> Iterator[BlockingPeer]:
        """A connection to `address`, for this thread alone until the block ends."""
        peer = self.borrow(address, timeout)
        try:
            yield peer
        finally:
            self.give_back(address, peer)

    def drop(self, address: str) -> None:
        """Close the free connections to `address`."""
        with self._changed:
            shelf = self._shelves.get(address)
            free: list[BlockingPeer] = []
            if shelf is not None:
                free, shelf.free = shelf.free, free
        for peer in free:
            peer.close()

    def close(self) -> None:
        """Close what is free now, and what is lent when it comes back."""
        with self._changed:
            self._closed = True
            free = [peer for shelf in self._shelves.values() for peer in shelf.free]
            for shelf in self._shelves.values():
                shelf.free.clear()
            self._changed.notify_all()
        for peer in free:
            peer.close()

    def borrow(self, address: str, timeout: float) -> BlockingPeer:
        """A connection to `address`, for this thread alone until it gives it back."""
        deadline = time.monotonic() + timeout
        while True:
            peer = self._take_or_reserve(address, timeout, deadline)
            if peer is None:
                return self._open(address, deadline)
            if self._usable(peer):
                return peer
            self.give_back(address, peer)

    def _take_or_reserve(
        self, address: str, timeout: float, deadline: float
    ) -> BlockingPeer | None:
        """A free connection, or None with the right to open one."""
        with self._changed:
            while True:
                if self._closed:
                    raise ClosedError(f"the pool was closed; no connection to {address}")
                shelf = self._shelves.get(address)
                if shelf is None:
                    shelf = self._shelves[address] = _Shelf(attempts=Attempts(self._back_off))
                if shelf.free or shelf.lent < self._connections:
                    shelf.lent += 1
                    return shelf.free.pop() if shelf.free else None
                left = deadline - time.monotonic()
                if left <= 0:
                    raise NotSentInTime(
                        f"all {shelf.lent} connections to {address} were busy for {timeout:.1f}s"
                    )
                self._waiting += 1
                try:
                    self._changed.wait(left)
                finally:
                    self._waiting -= 1

    def _open(self, address: str, deadline: float) -> BlockingPeer:
        attempts = self._shelves[address].attempts
        try:
            attempts.check(address, time.monotonic())
        except BaseException:
            self.give_back(address, None)
            raise
        try:
            left = max(0.001, deadline - time.monotonic())
            peer = BlockingPeer.connect(
                address,
                self._table,
                self._owner,
                options=self._options,
                tls=self._tls,
                timeout=min(self._connect_timeout, left),
            )
        except BaseException as error:
            self.give_back(address, None)
            if isinstance(error, ConnectFailed):
                attempts.failed(error, time.monotonic())
            raise
        attempts.succeeded()
        return peer

    def _usable(self, peer: BlockingPeer) -> bool:
        rested = time.monotonic() - peer.last_used
        if rested > self._options.idle_timeout:
            peer.close()
        return peer.is_open and (rested < _RESTED or peer.catch_up())

    def give_back(self, address: str, peer: BlockingPeer | None) -> None:
        """Somebody else may have it; without one, the place of one that could not be made."""
        keep = peer is not None and peer.is_open and not peer.calls
        with self._changed:
            shelf = self._shelves[address]
            shelf.lent -= 1
            if peer is not None and keep and not self._closed:
                shelf.free.append(peer)
                peer = None
            if self._waiting:
                self._changed.notify()
        if peer is not None:
            peer.close()


class BlockingRuntime:
    """What flows ask for, on the thread that runs them: its coroutines block and never suspend."""

    def __init__(self, pool: BlockingPool) -> None:
        self.pool = pool

    async def call(self, address: str, request: Request[R], *, timeout: float) -> R:
        """The reply of the peer at `address`, within `timeout` seconds or `CallTimeout`."""
        deadline = time.monotonic() + timeout
        try:
            return self._call(address, request, timeout)
        except GoingAway:
            self.pool.drop(address)
            return self._call(address, request, deadline - time.monotonic())

    def post(self, address: str, form: FilledForm, body: Buffer, timeout: float) -> SendReply:
        """The reply to a send that is written already, and not signed."""
        deadline = time.monotonic() + timeout
        pool = self.pool
        peer = pool.borrow(address, timeout)
        try:
            return peer.post(form, body, deadline)
        except GoingAway:
            peer.close()
            raise
        finally:
            pool.give_back(address, peer)

    async def tell(self, address: str, request: Request[Any]) -> None:
        """Send `request` one-way."""
        with self.pool.lend(address, timeout=CONNECT_TIMEOUT) as peer:
            peer.tell(request)

    @asynccontextmanager
    async def pipe(self, address: str, *, timeout: float) -> AsyncIterator[BlockingPipe]:
        """A connection for several calls at a time; one with calls left over is closed."""
        with self.pool.lend(address, timeout=timeout) as peer:
            try:
                yield BlockingPipe(peer)
            except GoingAway:
                peer.close()
                raise

    async def sleep(self, seconds: float) -> None:
        """Let that much time pass."""
        time.sleep(seconds)  # noqa: ASYNC251 – this is what "blocking" means

    def now(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    def _call(self, address: str, request: Request[R], timeout: float) -> R:
        deadline = time.monotonic() + timeout
        with self.pool.lend(address, timeout=timeout) as peer:
            try:
                return peer.call(request, timeout=deadline - time.monotonic())
            except GoingAway:
                peer.close()
                raise


class BlockingPipe:
    """A connection that was lent for several calls at a time."""

    def __init__(self, peer: BlockingPeer) -> None:
        self._peer = peer

    async def begin(self, request: Request[R], *, timeout: float) -> BlockingPending[R]:
        """Send `request`."""
        return BlockingPending(self._peer, self._peer.begin(request, timeout=timeout))


class BlockingPending(Generic[R]):
    """A call on such a connection."""

    def __init__(self, peer: BlockingPeer, begun: Begun[R]) -> None:
        self._peer = peer
        self._begun = begun

    async def reply(self, *, timeout: float) -> R:
        """The reply; the time counts from now, however long ago it was asked."""
        self._begun.deadline = time.monotonic() + timeout
        return self._peer.finish(self._begun)
