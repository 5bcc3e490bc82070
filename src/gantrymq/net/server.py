"""A server: listening addresses, the peers that came through them, and an end in good order."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from gantrymq.net.endings import Ending
from gantrymq.net.link import Terms, Traffic
from gantrymq.net.network import Listener, Network
from gantrymq.net.options import ServerOptions
from gantrymq.net.peer import Peer
from gantrymq.net.proxy_header import ProxyHeader

log = logging.getLogger("gantrymq.net")


class Server:
    """Takes connections and answers them from one table."""

    def __init__(self, terms: Terms, options: ServerOptions) -> None:
        self.options = options
        self.peers: dict[Peer, None] = {}
        self.refused = 0
        """Connections that came over the limit."""
        self.dismissed = 0
        """Connections that were to begin in another way than they did."""
        self.endings: Counter[Ending] = Counter()
        """How connections ended."""
        self.refusals = terms.refusals
        """Requests that were answered with an error."""
        self._past = Traffic()
        self._terms = replace(terms, on_open=self._opened, on_end=self._ended)
        self._theirs = terms
        self._greeted = 0
        """Connections that are admitted and have no peer yet."""
        self._made: set[asyncio.BaseProtocol] = set()
        """Peers whose connection is not there yet."""
        self._listeners: list[Listener] = []
        self._closing = False
        self._fewer = asyncio.Event()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, with real ports."""
        return tuple(address for one in self._listeners for address in one.addresses)

    @property
    def address(self) -> str:
        """The first of them."""
        return self.addresses[0]

    @property
    def traffic(self) -> Traffic:
        """What went over all its connections."""
        total = Traffic()
        total.add(self._past)
        for peer in self.peers:
            total.add(peer.traffic)
        return total

    async def listen(self, network: Network, addresses: Sequence[str]) -> None:
        """Take connections at `addresses`, all or none."""
        try:
            for address in addresses:
                self._listeners.append(await network.listen(address, self))
        except BaseException:
            await self.close(grace=0)
            raise

    async def close(self, *, grace: float | None = None) -> None:
        """Take no more connections, answer what is under way within `grace` seconds, and end."""
        self._closing = True
        for listener in self._listeners:
            listener.close()
        seconds = self.options.grace if grace is None else grace
        finishing = [asyncio.ensure_future(peer.finish()) for peer in self.peers]
        if finishing:
            _, late = await asyncio.wait(finishing, timeout=seconds)
            for one in late:
                one.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        for peer in tuple(self.peers):
            peer.close(Ending.SHUTDOWN)
        while self._connections:
            self._fewer.clear()
            await self._fewer.wait()
        for listener in self._listeners:
            await listener.wait_closed()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(grace=None if kind is None else 0)

    # --- the gate -------------------------------------------------------------------------------

    def admit(self) -> bool:
        """Whether there is room for one connection more."""
        if self._closing:
            return False
        if self._connections >= self.options.connections:
            self.refused += 1
            if self.refused & (self.refused - 1) == 0:  # 1, 2, 4, …: a flood must not fill the log
                log.warning(
                    "refused a connection: %d are open, %d refused so far",
                    self.options.connections,
                    self.refused,
                )
            return False
        self._greeted += 1
        return True

    def protocol(self, proxied: ProxyHeader | None = None) -> Peer:
        """The peer of an admitted connection."""
        peer = Peer(self._terms, accepted=True, proxied=proxied)
        self._greeted -= 1
        self._made.add(peer)
        return peer

    def dismiss(self, protocol: asyncio.BaseProtocol | None = None) -> None:
        """An admitted connection came to nothing."""
        if not self._closing:
            self.dismissed += 1
        if protocol is None:
            self._greeted -= 1
        elif isinstance(protocol, Peer) and protocol in self.peers:
            # uvloop says nothing more to a protocol whose greeting is cut short
            protocol.abort(Ending.BROKEN)
            protocol.connection_lost(None)
        self._made.discard(protocol)
        self._fewer.set()

    @property
    def _connections(self) -> int:
        return len(self.peers) + len(self._made) + self._greeted

    def _opened(self, peer: Peer) -> None:
        self._made.discard(peer)
        self.peers[peer] = None
        if self._closing:
            peer.abort(Ending.SHUTDOWN)
        elif self._theirs.on_open is not None:
            self._theirs.on_open(peer)

    def _ended(self, peer: Peer) -> None:
        self.peers.pop(peer, None)
        self._past.add(peer.traffic)
        if peer.ending is not None:
            self.endings[peer.ending] += 1
        self._fewer.set()
        if self._theirs.on_end is not None:
            self._theirs.on_end(peer)
