"""A whole platform in memory, on the running loop: name server, brokers, their disks and network.

Nothing of it leaves the process: connections are in memory, and so are the files. What runs on them
is the name server and the broker that `gantry up` runs. A broker that is killed loses what only its
process knew; when it is started again, it recovers from what it had written.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

from gantrymq.broker.app import BrokerServer
from gantrymq.broker.config import BrokerConfig
from gantrymq.client.identity import other_time
from gantrymq.client.inside import Inside, hosting
from gantrymq.client.loop_thread import LoopThread
from gantrymq.errors import GantryError, StateError
from gantrymq.nameserver.app import NameServer
from gantrymq.nameserver.config import NameServerConfig, load_config
from gantrymq.net.addresses import join_address
from gantrymq.net.memory import MemoryNetwork
from gantrymq.net.network import Gate, Listener, MakeProtocol, Network
from gantrymq.settings import load
from gantrymq.testing.faulty_disk import FaultyDisk

_NAME_SERVER_PORT: Final = 9876
_BROKER_PORT: Final = 10911
_numbers: Final = count(1)

DEFAULTS: Final[Mapping[str, Any]] = {
    "listen.vip": False,
    "metrics.enabled": False,
    "topics.trace": True,
    "topics.queues": 4,
    "store.log.segment_size": 8 << 20,
    "store.index.slots": 1_000,
    "store.index.entries": 4_000,
}
"""How its brokers differ from others: smaller, and measured by nobody."""


class Embedded:
    """Such a platform. It uses the clock of the loop, virtual or not."""

    def __init__(
        self,
        brokers: Sequence[str] = ("broker-a",),
        *,
        settings: Mapping[str, Any] | None = None,
        thread: LoopThread | None = None,
        random: Random | None = None,
        began_ns: int | None = None,
    ) -> None:
        """`settings` are those of its brokers, by their dotted names; it begins at `began_ns`."""
        self.host: Final = f"gantry-{next(_numbers)}.inside"
        self.url: Final = f"rmq://{self.host}:{_NAME_SERVER_PORT}"
        self.network: Final = MemoryNetwork()
        self.brokers: Final[dict[str, BrokerServer]] = {}
        """Those that are running."""
        self._names = tuple(brokers)
        self._settings = {**DEFAULTS, **(settings or {})}
        self._thread = thread
        self._random = random or Random()
        self._disks = {name: FaultyDisk() for name in self._names}
        self._around = ExitStack()
        self._began_ns = time.time_ns() if began_ns is None else began_ns
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began = 0.0
        self._starting: asyncio.Task[None] | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop that it runs on, once it does."""
        return self._loop

    def wall_ns(self) -> int:
        """The wall clock there: it began at the real time, and goes with the loop's."""
        passed = 0.0 if self._loop is None else self._loop.time() - self._began
        return self._began_ns + round(passed * 1e9)

    def announce(self) -> None:
        """Have clients of this process find it; the first to connect starts it."""
        self._around.enter_context(other_time(self.wall_ns))
        inside = Inside(_FrontDoor(self.network, self.start), self._thread)
        self._around.enter_context(hosting(self.host, inside))

    async def start(self) -> None:
        """Return when every broker is registered; once is enough."""
        loop = asyncio.get_running_loop()
        if self._starting is None:
            self._loop = loop
            self._began = self._loop.time()
            self._starting = loop.create_task(self._start())
        if self._loop is not loop:
            raise StateError(
                f"{self.host} runs on a thread of its own, for clients that block; those that are"
                f" awaited share a loop with it, in a test that is an `async def`"
            )
        await asyncio.shield(self._starting)

    async def _start(self) -> None:
        address = join_address(self.host, _NAME_SERVER_PORT)
        self._name_server = NameServer(_name_server(address), network=self.network)
        await self._name_server.start()
        for name in self._names:
            await self.restart(name)

    def forget(self) -> None:
        """Have no client find it any more."""
        self._around.close()

    async def close(self) -> None:
        """End it; nothing of it is left."""
        self.forget()
        if self._starting is not None:
            await self._starting
            for name in tuple(self.brokers):
                await self.brokers.pop(name).close(grace=0)
            await self._name_server.close(grace=0)

    # --- faults ---------------------------------------------------------------------------------

    async def kill(self, name: str | None = None) -> None:
        """End a broker as `kill -9` does: what it had not written is gone."""
        name = self._named(name)
        server = self.brokers.pop(name, None)
        if server is None:
            raise StateError(f"{name} is not running")
        self._disks[name] = self._disks[name].after_kill()
        place = self.network.at(self._address(name))
        place.refuses = True
        place.cut()
        with suppress(GantryError):
            await server.close(grace=0)  # to a disk that nobody will look at again

    async def restart(self, name: str | None = None) -> None:
        """Start a broker that is not running, with the files that it left."""
        name = self._named(name)
        if name in self.brokers:
            raise StateError(f"{name} is running")
        server = BrokerServer(
            self._config(name),
            network=self.network,
            disk=self._disks[name],
            clock_ms=lambda: self.wall_ns() // 1_000_000,
            random=self._random,
            threads=False,
        )
        self.network.at(self._address(name)).refuses = False
        await server.start()
        self.brokers[name] = server

    @contextmanager
    def partition(self, name: str | None = None) -> Iterator[None]:
        """Have nobody reach a broker: what is sent to it hangs, until the block ends."""
        place = self.network.at(self._address(self._named(name)))
        place.swallows = True
        place.stall()
        try:
            yield
        finally:
            place.swallows = False
            place.go_on()

    def _named(self, name: str | None) -> str:
        if name is None and len(self._names) == 1:
            return self._names[0]
        if name not in self._names:
            raise ValueError(f"there is no broker {name}; there are {', '.join(self._names)}")
        return name

    # --- settings -------------------------------------------------------------------------------

    def _address(self, name: str) -> str:
        return join_address(f"{name}.{self.host}", _BROKER_PORT)

    def _config(self, name: str) -> BrokerConfig:
        own = {
            "identity.name": name,
            "listen.bind": f"{name}.{self.host}",
            "listen.port": _BROKER_PORT,
            "registering.name_servers": join_address(self.host, _NAME_SERVER_PORT),
            "data": str(Path("/", name)),
        }
        return load(BrokerConfig, flags={**self._settings, **own}).value


class _FrontDoor:
    """The way in for clients: whoever comes first has the platform start."""

    def __init__(self, network: Network, ready: Callable[[], Awaitable[None]]) -> None:
        self._network = network
        self._ready = ready

    async def connect(self, address: str, make: MakeProtocol, *, timeout: float) -> None:
        await self._ready()
        await self._network.connect(address, make, timeout=timeout)

    async def listen(self, address: str, gate: Gate) -> Listener:
        return await self._network.listen(address, gate)


def _name_server(address: str) -> NameServerConfig:
    host, _, port = address.rpartition(":")
    flags = {"listen.bind": host, "listen.port": int(port), "metrics.enabled": False}
    return load_config(flags=flags, environ={}).value
