"""A network in memory: the same peers and servers, over transports that tests can bend.

```python
network = MemoryNetwork()
server = await serve("broker-a:10911", HANDLERS, network=network)
peer = await connect("broker-a:10911", network=network)
network.at("broker-a:10911").delay = 0.02     # seconds each way, for connections of that address
network.at("broker-a:10911").cut()            # and every one of them is gone
```

Addresses are any `host:port`; port 0 takes a free one. A transport keeps what was written until the
other side takes it, says `pause_writing` above its limit as a socket's does, and gives it to the
other protocol in `get_buffer` / `buffer_updated` like a socket does, in pieces of `chunk` bytes if
that is set. So everything above the socket is the code that real connections run. Nothing here
takes time but `delay`, and on a loop with a virtual clock not even that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final, TypeAlias

from gantrymq.errors import ConnectFailed
from gantrymq.net.addresses import join_address, split_address
from gantrymq.net.network import Gate, MakeProtocol

Data: TypeAlias = bytes | bytearray | memoryview

_HIGH: Final = 64 * 1024
_FIRST_FREE_PORT: Final = 49_152


@dataclass(slots=True, eq=False)
class Place:
    """One address: who listens there, and how its connections behave."""

    address: str
    gate: Gate | None = None
    delay: float = 0.0
    """Seconds that bytes take, each way."""
    chunk: int | None = None
    """Most bytes given to a protocol at once."""
    refuses: bool = False
    """Turn new connections away."""
    swallows: bool = False
    """Let new connections hang, as a dropped SYN does."""
    stalled: bool = False
    """Deliver nothing for now; call `go_on` after clearing it."""
    transports: dict[MemoryTransport, None] = field(default_factory=dict)
    """The ends of its connections, in the order of their making: tests repeat themselves."""

    def cut(self) -> None:
        """Break every connection of this address, as a pulled cable and a reset would."""
        for transport in tuple(self.transports):
            transport.lose(ConnectionResetError("cut"))

    def stall(self) -> None:
        """Deliver nothing until `go_on`: both sides see a silent peer."""
        self.stalled = True

    def go_on(self) -> None:
        """Deliver what was held up."""
        self.stalled = False
        for transport in tuple(self.transports):
            transport.deliver_soon()


class MemoryNetwork:
    """Any number of addresses, all in this process."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._ports = count(_FIRST_FREE_PORT)

    def at(self, address: str) -> Place:
        """The address, to bend it or to look at it."""
        return self._places.setdefault(address, Place(address))

    async def connect(self, address: str, make: MakeProtocol, *, timeout: float) -> None:
        """Connect `make()` to whoever listens at `address`, or raise `ConnectFailed`."""
        place = self.at(address)
        there_and_back = 2 * place.delay
        if place.swallows or there_and_back > timeout:
            await asyncio.sleep(timeout)
            raise ConnectFailed(f"no connection to {address} in {timeout:.1f}s")
        await asyncio.sleep(there_and_back)
        if place.gate is None or place.refuses:
            raise ConnectFailed(f"connecting to {address} failed: connection refused")
        if not place.gate.admit():
            raise ConnectFailed(f"connecting to {address} failed: connection reset")
        ours = join_address("client", next(self._ports))
        near = MemoryTransport(place, make(), local=ours, remote=address)
        far = MemoryTransport(place, place.gate.protocol(), local=address, remote=ours)
        near.join(far)
        far.join(near)
        far.begin()
        near.begin()

    async def listen(self, address: str, gate: Gate) -> MemoryListener:
        """Take connections at `address`."""
        host, port = split_address(address)
        place = self.at(join_address(host, port or next(self._ports)))
        if place.gate is not None:
            raise OSError(f"cannot listen on {place.address}: somebody does already")
        place.gate = gate
        return MemoryListener(place)


class MemoryListener:
    """Keeps an address listened on."""

    def __init__(self, place: Place) -> None:
        self.addresses = (place.address,)
        self._place = place

    def close(self) -> None:
        """Take no further connections."""
        self._place.gate = None

    async def wait_closed(self) -> None:
        """There is nothing to wait for."""


class MemoryTransport(asyncio.Transport):
    """One end of a connection; what is written waits here until the other end takes it."""

    def __init__(
        self, place: Place, protocol: asyncio.BufferedProtocol, *, local: str, remote: str
    ) -> None:
        super().__init__({"sockname": split_address(local), "peername": split_address(remote)})
        self._loop = asyncio.get_running_loop()
        self._place = place
        self._protocol = protocol
        self._other: MemoryTransport = self
        self._written: deque[memoryview] = deque()
        self._size = 0
        self._high, self._low = _HIGH, _HIGH // 4
        self._over_high = False
        self._reading = True
        self._closing = False
        self._gone = False
        self._delivery: asyncio.Handle | None = None

    def join(self, other: MemoryTransport) -> None:
        """What is written here, `other` reads."""
        self._other = other

    def begin(self) -> None:
        """Tell the protocol that the connection is there."""
        self._place.transports[self] = None
        self._protocol.connection_made(self)

    # --- writing --------------------------------------------------------------------------------

    def write(self, data: Data) -> None:
        """Keep `data` for the other end."""
        self.writelines((data,))

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        """Keep all of it for the other end."""
        if self._closing:
            return
        for data in list_of_data:
            if len(data):
                self._written.append(memoryview(data).cast("B"))
                self._size += len(self._written[-1])
        if self._size > self._high and not self._over_high:
            self._over_high = True
            self._protocol.pause_writing()
        self.deliver_soon()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When to say that it is too much, and when that it is not any more."""
        self._high = _HIGH if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not taken."""
        return self._size

    def deliver_soon(self) -> None:
        """Let the other end take what is here, after the delay."""
        if self._delivery is None and (self._written or self._closing) and not self._gone:
            delay = self._place.delay
            later, deliver = self._loop.call_later, self._deliver
            self._delivery = later(delay, deliver) if delay else self._loop.call_soon(deliver)

    def _deliver(self) -> None:
        self._delivery = None
        other = self._other
        if other._gone:
            self.lose(BrokenPipeError("the other end is gone"))
        if self._gone or self._place.stalled or not other.is_reading():
            return
        budget = self._size  # not what is written while this is read
        while self._written and budget > 0 and other.is_reading():
            budget -= self._hand_over(self._written.popleft())
        self._say_if_low()
        if self._written:
            self.deliver_soon()
        elif self._closing:
            self.lose(None)
            other.end_of_file()

    def _hand_over(self, data: memoryview) -> int:
        """Give the other protocol as much of `data` as it has room for."""
        room = memoryview(self._other._protocol.get_buffer(len(data)))
        size = min(len(room), len(data), self._place.chunk or len(data))
        room[:size] = data[:size]
        if size < len(data):
            self._written.appendleft(data[size:])
        self._size -= size
        self._other._protocol.buffer_updated(size)
        return size

    def _say_if_low(self) -> None:
        if self._over_high and self._size <= self._low and not self._gone:
            self._over_high = False
            self._protocol.resume_writing()

    # --- reading --------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Take nothing from the other end."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take it again."""
        self._reading = True
        self._other.deliver_soon()

    def is_reading(self) -> bool:
        """Whether this end takes anything."""
        return self._reading and not self._gone

    def end_of_file(self) -> None:
        """The other end writes no more."""
        if not self._gone and not self._protocol.eof_received():
            self.close()

    # --- ending ---------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        """Whether `close` or `abort` was called."""
        return self._closing

    def close(self) -> None:
        """End when the other end has taken everything."""
        if not self._closing:
            self._closing = True
            if self._other._gone:
                self.lose(None)
            else:
                self.deliver_soon()

    def abort(self) -> None:
        """End now."""
        if not self._gone:
            self.lose(None)
            self._other.lose(ConnectionResetError("the other end aborted"))

    def lose(self, error: Exception | None) -> None:
        """The connection is gone for this end."""
        if self._gone:
            return
        self._gone = self._closing = True
        self._written.clear()
        self._size = 0
        if self._delivery is not None:
            self._delivery.cancel()
        self._place.transports.pop(self, None)
        self._loop.call_soon(self._protocol.connection_lost, error)
