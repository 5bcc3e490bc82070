"""A broker from its start to its end.

```python
async with BrokerServer(BrokerConfig(data="/tmp/store")) as server:
    print(server.address)
```

Starting goes from the inside out: the store (which may have to be recovered), the tables, the
ports, the name servers. When `start` returns, every port takes connections and the broker is
registered. Ending goes the other way: the name servers forget us, so that clients go elsewhere;
pulls that wait are answered; what is under way is finished; the tables and the log go to the disk.

RocketMQ: BrokerController, BrokerStartup.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from gantrymq.broker.addressing import (
    LOOPBACK,
    found_address,
    is_wildcard,
    local_address,
    resolve,
    set_address,
)
from gantrymq.broker.config import BrokerConfig
from gantrymq.broker.configs import FILE as CHANGES
from gantrymq.broker.configs import with_changes
from gantrymq.broker.flow_control import INTERVAL
from gantrymq.broker.keeping import Keeper
from gantrymq.broker.measuring import measure
from gantrymq.broker.state import Chore, assemble
from gantrymq.broker.table import HANDLERS, WITHOUT_WAITING
from gantrymq.net import aio
from gantrymq.net.addresses import join_address, parse_name_servers, split_address, vip_address
from gantrymq.net.answering import Table
from gantrymq.net.measuring import measure_process, measure_servers
from gantrymq.net.network import Network
from gantrymq.net.peer import Peer
from gantrymq.net.scraping import MetricsPage, Source, open_page
from gantrymq.net.tls_properties import TlsSettings, read_tls
from gantrymq.observe.metrics import Sample
from gantrymq.rules.delay import DelayLevels
from gantrymq.store.disk import Disk, RealDisk
from gantrymq.store.json_files import JsonFiles
from gantrymq.store.store import Closed, Store
from gantrymq.wire.javahash import java_hash
from gantrymq.wire.message_id import UniqueIds

log = logging.getLogger("gantrymq.broker")

TICK: Final = 0.1
"""Seconds between looks of the store at the time."""
METRICS_PORT: Final = 5557
"""Where RocketMQ's metrics are, and ours if nobody says otherwise."""
_ATTEMPTS: Final = 50
"""How often a free pair of ports is looked for."""


class BrokerServer:
    """One broker; network, disk and clock are the machine's unless they are given."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        network: Network | None = None,
        disk: Disk | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        random: Random | None = None,
        neighbours: Sequence[Source] = (),
        threads: bool = True,
    ) -> None:
        """`neighbours` are in the same process, and measured on the same page.

        Without `threads` the loop waits for the disk, and time is the loop's: for a `disk` in
        memory, where everything is then done in one order.
        """
        self.config = config
        self.closed: Closed | None = None
        """What was flushed at the end, when it has come."""
        self.metrics: MetricsPage | None = None
        """Where it can be measured, if that is wanted."""
        self._network = _tcp(config) if network is None else network
        self._metrics_network = aio.Tcp() if network is None else network
        self._neighbours = neighbours
        self._disk = disk
        self._clock_ms = clock_ms
        self._random = Random() if random is None else random
        self._threads = threads
        self._servers: list[aio.Server] = []
        self._chores: list[asyncio.Task[None]] = []
        self._closing = False

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when connections are taken and the broker is registered."""
        self._loop = asyncio.get_running_loop()
        self._pool = aio.Pool(network=self._network)
        self._files = JsonFiles(self._disk or RealDisk(), self.config.directory / "config")
        self.config = with_changes(self.config, self._files.load(CHANGES))
        opening = partial(
            Store.open,
            self.config.directory,
            self.config.store,
            disk=self._disk,
            clock_ms=self._clock_ms,
            monotonic=time.monotonic if self._threads else self._loop.time,
            delays=DelayLevels.parse(self.config.delays.levels),
        )
        # the store looks through its files before it is there, and others may go on meanwhile
        self._store = await asyncio.to_thread(opening) if self._threads else opening()
        try:
            await self._start()
        except BaseException:
            await self.close(grace=0)
            raise

    async def _start(self) -> None:
        config = self.config
        self._store.start(self._settle_soon, threads=self._threads)
        self._store.later = self._loop.call_soon
        self.broker = assemble(
            config,
            store=self._store,
            keeper=Keeper(self._files),
            runtime=aio.AsyncRuntime(self._pool),
            next_id=self._unique_ids().next,
            clock_ms=self._clock_ms,
            now=self._loop.time,
            random=self._random,
        )
        self.broker.load()
        self.broker.start()
        await self._listen()
        await self._open_metrics()
        if config.listen.advertise:
            self.broker.advertised = resolve(set_address(config.listen.advertise, self.port))
        self._chores = [asyncio.create_task(_do(chore)) for chore in self._all_chores()]
        name_servers = config.registering.name_servers
        await self.broker.registrar.start(
            parse_name_servers(name_servers).addresses if name_servers else (),
            self._address_for,
            self._ha_address(),
        )

    async def close(self, *, grace: float | None = None) -> None:
        """Have others forget us, answer what is under way, bring everything to the disk, end."""
        if self._closing:
            return
        self._closing = True
        try:
            await self._finish(grace)
        finally:  # whoever does not want to wait for the rest gets this all the same
            self.closed = self._store.close()
            log.info("stopped; %s", self.closed)

    async def _finish(self, grace: float | None) -> None:
        broker = getattr(self, "broker", None)
        if broker is not None:
            await broker.registrar.close()
            broker.waiting.close()
        if self.metrics is not None:
            await self.metrics.close()
        for server in self._servers:
            await server.close(grace=grace)
        for task in self._chores:
            task.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        if broker is not None:
            await broker.close()
        await self._pool.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close(grace=None if kind is None else 0)

    # --- what others ask of it ------------------------------------------------------------------

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, with real ports."""
        return tuple(address for server in self._servers for address in server.addresses)

    @property
    def address(self) -> str:
        """Where programs on this machine reach it."""
        return local_address(self.addresses[0])

    @property
    def port(self) -> int:
        """Its main port."""
        return split_address(self.addresses[0])[1]

    # --- inside ---------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Take connections at the main port and at the VIP port, if there is to be one."""
        listen = self.config.listen
        for attempt in range(_ATTEMPTS):
            main = await self._serve(HANDLERS, join_address(listen.bind, listen.port))
            self._servers = [main]
            if not listen.vip:
                return
            port = split_address(main.address)[1]
            try:
                at = vip_address(join_address(listen.bind, port))
                self._servers.append(await self._serve(WITHOUT_WAITING, at))
            except (OSError, ValueError) as error:
                await main.close(grace=0)
                if listen.port or attempt == _ATTEMPTS - 1:
                    raise OSError(
                        f"{error}; that is the VIP port, which `listen.vip = false` leaves out"
                    ) from error
            else:
                return

    async def _serve(self, table: Table, address: str) -> aio.Server:
        config = self.config
        return await aio.serve(
            address,
            table,
            owner=self.broker,
            network=self._network,
            options=aio.PeerOptions(
                idle_timeout=config.listen.idle_timeout,
                frame_limit=config.listen.frame_limit,
                answers_in_flight=max(1, config.pulls.waiting),
            ),
            limits=aio.ServerOptions(connections=config.listen.connections),
            on_end=self._left,
        )

    async def _open_metrics(self) -> None:
        identity = self.config.identity
        common: dict[str, object] = {
            "cluster": identity.cluster,
            "node_type": "broker",
            "node_id": identity.name,
        }
        self.metrics = await open_page(
            self.config.metrics,
            (Source(common, self._measure), *self._neighbours, Source({}, measure_process)),
            network=self._metrics_network,
            usual=METRICS_PORT if self.config.listen.port else 0,
        )

    def _measure(self) -> Iterator[Sample]:
        yield from measure(self.broker)
        yield from measure_servers(self._servers)

    def _left(self, peer: Peer) -> None:
        if not self._closing:
            self.broker.left(peer)

    def _settle_soon(self) -> None:
        """From the store's thread: something reached the disk."""
        self._loop.call_soon_threadsafe(self._store.settle)

    def _all_chores(self) -> Iterable[Chore]:
        yield Chore(name="flow control", interval=INTERVAL, do=self._look)
        yield Chore(name="the store's", interval=TICK, do=self._store.tick)
        yield from self.broker.chores()

    def _look(self) -> None:
        self.broker.flow.look(self._loop.time())

    async def _address_for(self, name_server: str) -> str:
        """The address to register there."""
        listen = self.config.listen
        if listen.advertise:
            return set_address(listen.advertise, self.port)
        local = (await self._pool.peer(name_server)).local
        return found_address(listen.bind, self.port, local)

    def _ha_address(self) -> str:
        """Where replicas would come to; nobody is there yet, and RocketMQ wants to be told."""
        listen = self.config.listen
        host = listen.bind
        if listen.advertise:
            host = split_address(set_address(listen.advertise, self.port))[0]
        return join_address(LOOPBACK if is_wildcard(host) else host, self.port + 1)

    def _unique_ids(self) -> UniqueIds:
        host = self.config.listen.bind
        try:
            ip = ip_address(LOOPBACK if is_wildcard(host) else host).packed
        except ValueError:
            ip = ip_address(LOOPBACK).packed
        name = java_hash(f"{self.config.identity.name}@{self._random.random()}")
        return UniqueIds(ip, os.getpid(), name, self._clock_ms, _month_start)


async def _do(chore: Chore) -> None:
    """Do it again and again."""
    while True:
        await asyncio.sleep(chore.interval)
        try:
            chore.do()
        except Exception:
            log.exception("%s chore failed", chore.name)


def _month_start(ms: int) -> int:
    """When the month of that time began, local time."""
    start = datetime.fromtimestamp(ms / 1000).astimezone()
    first = start.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return int(first.timestamp() * 1000)


def _tcp(config: BrokerConfig) -> Network:
    listen = config.listen
    tls = TlsSettings(server=None, client=None)
    if listen.tls:
        tls = read_tls(Path(listen.tls).expanduser())
    return aio.Tcp(
        tls=tls.client,
        server_tls=tls.server,
        proxy_header=listen.proxy_header,
        backlog=listen.backlog,
    )
