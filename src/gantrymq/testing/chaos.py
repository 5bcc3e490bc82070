"""A network that misbehaves when it is told to: a relay between clients and a server.

```python
async with Relay(server.address) as relay:
    client = await connect(relay.address)
    relay.stall()      # bytes stop, connections stay: what a lost route looks like
    relay.resume()
    relay.cut()        # every connection ends in good order
    relay.reset()      # every connection ends at once, and what was on its way is lost
    relay.refuse()     # nobody gets in any more, as after the death of a server
```

What it does to the bytes that it carries is `relay.weather`; it may be changed at any moment, and
counts for the next bytes. Bytes are never changed, lost in the middle or swapped: TCP does not do
that either. What TCP does do is to cut them into other pieces, to be slow, to stop in the middle of
a frame, and to let one connection overtake another.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Final, Literal, Self

from gantrymq.net.addresses import join_address, split_address

Way = Literal["in", "out"]
"""Towards the server, or away from it."""

_MOST: Final = 64 * 1024
"""Bytes that are carried at a time, and about as many that may wait on each side."""
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER that closes with a reset."""


@dataclass(slots=True, kw_only=True)
class Weather:
    """What happens to the bytes of all connections."""

    piece: int = _MOST
    """The most bytes that are handed on at a time."""
    rate: float | None = None
    """Bytes a second, of each connection and way."""
    delay: float = 0.0
    """Seconds that each piece is held back."""
    jitter: float = 0.0
    """Up to that many seconds more, drawn for each piece: so connections overtake each other."""


class Relay:
    """Listens at a free port of this machine and passes on what comes, as the weather allows."""

    def __init__(self, upstream: str, *, weather: Weather | None = None, seed: int = 0) -> None:
        self.upstream = upstream
        """Where it passes on to; a change counts for the next connection."""
        self.weather = weather or Weather()
        self.address = ""
        self.accepted = 0
        """How many connections came."""
        self.carried: dict[Way, int] = {"in": 0, "out": 0}
        """How many bytes were handed on."""
        self._chance = Random(seed)
        self._moving = asyncio.Event()
        self._moving.set()
        self._limits: dict[Way, int | None] = {"in": None, "out": None}
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        await self.admit()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.refuse()
        self.reset()
        await asyncio.gather(*self._lines, return_exceptions=True)

    @property
    def connections(self) -> int:
        """How many connections go through it now."""
        return len(self._lines)

    # --- what can be done to it -----------------------------------------------------------------

    async def admit(self) -> None:
        """Let connections in, at the same address as before."""
        if self._server is None:
            host, port = split_address(self.address) if self.address else ("127.0.0.1", 0)
            self._server = await asyncio.start_server(self._accept, host, port, limit=_MOST)
            self.address = join_address(*self._server.sockets[0].getsockname()[:2])

    def refuse(self) -> None:
        """Let nobody in; connections that are there stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def stall(self) -> None:
        """Carry nothing, in either direction, until `resume`."""
        self._moving.clear()

    def resume(self) -> None:
        """Carry again."""
        self._moving.set()

    def cut(self) -> None:
        """End every connection in good order; what was handed on before arrives."""
        for writer in tuple(self._writers):
            writer.close()
        self._end_all()

    def reset(self) -> None:
        """End every connection at once."""
        for writer in tuple(self._writers):
            connection = writer.get_extra_info("socket")
            if connection is not None:
                with suppress(OSError):  # it may have ended by itself
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        self._end_all()

    def reset_after(self, way: Way, size: int) -> None:
        """Hand `size` more bytes on that way, of all connections, and then `reset`, once."""
        self._limits[way] = size

    @property
    def is_armed(self) -> bool:
        """Whether a `reset_after` is still to come."""
        return any(limit is not None for limit in self._limits.values())

    def _end_all(self) -> None:
        for line in tuple(self._lines):
            line.cancel()

    # --- carrying -------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        line = asyncio.current_task()
        assert line is not None
        self._lines.add(line)
        self._writers.add(writer)
        beyond: asyncio.StreamWriter | None = None
        try:
            source, beyond = await asyncio.open_connection(
                *split_address(self.upstream), limit=_MOST
            )
            self._writers.add(beyond)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry("in", reader, beyond))
                group.create_task(self._carry("out", source, writer))
        except* (OSError, asyncio.CancelledError):
            pass  # one side is gone; the other is told below
        finally:
            for end in (writer, beyond):
                if end is not None:
                    end.close()
                    self._writers.discard(end)
            self._lines.discard(line)

    async def _carry(
        self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(self.weather.piece):
            weather = self.weather
            pause = weather.delay + weather.jitter * self._chance.random()
            if weather.rate:
                pause += len(data) / weather.rate
            if pause:
                await asyncio.sleep(pause)
            await self._moving.wait()
            left = self._limits[way]
            if left is not None and left <= len(data):
                writer.write(data[:left])
                self.carried[way] += left
                self._limits[way] = None
                await asyncio.sleep(0)  # so that the bytes are out before the reset follows them
                self.reset()
                return
            if left is not None:
                self._limits[way] = left - len(data)
            writer.write(data)
            self.carried[way] += len(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
