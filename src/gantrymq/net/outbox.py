"""The writing half of a connection: one write for each turn of the loop, and never too much.

Buffers are collected and handed to the transport together: at the end of the turn in which the
first one came, or, for what is written while reading, at the end of that read. The transport says
when it holds too much (`pause_writing`); from then on the outbox is *full*, whoever can wait waits,
and what cannot wait is still taken, up to `write_limit`, where `overflow` is called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from gantrymq.net.alarms import clock_of
from gantrymq.net.options import PeerOptions
from gantrymq.wire.command import Buffer


class Outbox:
    """Collects what goes out."""

    __slots__ = (
        "_clock",
        "_collecting",
        "_high",
        "_limit",
        "_loop",
        "_overflow",
        "_parts",
        "_paused",
        "_size",
        "_transport",
        "_waiting",
        "bytes_out",
        "full",
        "last_write",
        "writes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.WriteTransport,
        options: PeerOptions,
        overflow: Callable[[], None] | None,
    ) -> None:
        """Without `overflow`, nothing limits what a single turn may write."""
        self._loop = loop
        self._clock = clock_of(loop)
        self._transport = transport
        self._high = options.write_high
        self._limit = options.write_limit
        self._overflow = overflow
        self._parts: list[Buffer] = []
        self._size = 0
        self._collecting = False
        self._paused = False
        self._waiting: list[asyncio.Future[None]] = []
        self.full = False
        """Whether whoever can wait should; an attribute, since every call looks at it."""
        self.bytes_out = 0
        self.writes = 0
        """How often something was handed over."""
        self.last_write = self._clock()
        """When something was last handed over to a transport that was not full already."""
        transport.set_write_buffer_limits(high=options.write_high, low=options.write_low)

    @property
    def paused(self) -> bool:
        """Whether the transport has said that it holds too much."""
        return self._paused

    @property
    def unsent(self) -> int:
        """Bytes that have not gone out."""
        return self._size + self._transport.get_write_buffer_size()

    def put(self, buffers: Sequence[Buffer]) -> None:
        """Write these with everything else of this turn."""
        self._parts += buffers
        for buffer in buffers:
            self._size += len(buffer)
        if self._size > self._high:
            self.full = True
        if not self._collecting:
            self._collecting = True
            self._loop.call_soon(self.flush)

    def collect(self) -> None:
        """Hold everything until `flush`, which the caller promises to call in this turn."""
        self._collecting = True

    def flush(self) -> None:
        """Hand over what was collected."""
        self._collecting = False
        parts = self._parts
        if not parts:
            return
        self._parts = []
        self.writes += 1
        self.bytes_out += self._size
        self._size = 0
        if self._transport.is_closing():
            return
        if not self._paused:
            self.last_write = self._clock()
        self._transport.writelines(parts)  # calls `pause` if it is too much
        self.full = self._paused
        if self._paused:
            self._check_limit()

    async def wait(self) -> None:
        """Return when there is room; raises what `close` was given if it never comes."""
        while self.full:
            self.flush()
            if not self._paused:
                return
            ticket = self._loop.create_future()
            self._waiting.append(ticket)
            try:
                await ticket
            finally:
                with suppress(ValueError):
                    self._waiting.remove(ticket)

    def pause(self) -> None:
        """The transport holds too much."""
        self._paused = self.full = True

    def resume(self) -> None:
        """The transport has room again."""
        self._paused = False
        self.full = self._size > self._high
        self.last_write = self._clock()
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            if not ticket.done():
                ticket.set_result(None)

    def close(self, error: Callable[[], Exception]) -> None:
        """Drop what was not handed over, and send everybody who waits away."""
        self._parts.clear()
        self._size = 0
        self._overflow = None
        waiting, self._waiting = self._waiting, []
        for ticket in waiting:
            if not ticket.done():
                ticket.set_exception(error())

    def _check_limit(self) -> None:
        if self._overflow is not None and self._transport.get_write_buffer_size() > self._limit:
            self._overflow()
