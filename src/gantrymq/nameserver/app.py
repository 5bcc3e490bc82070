"""A name server from its start to its end.

```python
async with NameServer(NameServerConfig()) as server:
    print(server.address)
```

It owns what it knows (`Tables`, `Keys`), the settings, the connections and one task, which looks
for silent brokers. Nothing of what it knows about brokers is kept on disk: they register again
within half a minute of any start. Name servers do not talk to each other; brokers register with
all of them, and clients ask any.

RocketMQ: NamesrvController.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from gantrymq.errors import GantryError
from gantrymq.nameserver.config import NameServerConfig
from gantrymq.nameserver.files import Turns
from gantrymq.nameserver.keys import Keys
from gantrymq.nameserver.registration import Notice, depart, expired, registered_through
from gantrymq.nameserver.routing import Answers
from gantrymq.nameserver.state import Place, Tables
from gantrymq.nameserver.table import HANDLERS
from gantrymq.net import aio
from gantrymq.net.addresses import join_address, split_address
from gantrymq.net.measuring import measure_process, measure_servers
from gantrymq.net.network import Network
from gantrymq.net.peer import Peer
from gantrymq.net.scraping import MetricsPage, Source, open_page
from gantrymq.net.tls_properties import TlsSettings, read_tls
from gantrymq.observe import metrics
from gantrymq.observe.metrics import Sample
from gantrymq.protocol.base import Request

log = logging.getLogger("gantrymq.nameserver")

METRICS_PORT: Final = 5556
"""Where metrics are if nobody says otherwise: one below a broker's."""
_WILDCARDS = ("", "0.0.0.0", "::")


class NameServer:
    """One name server; `network` is TCP unless it is given."""

    def __init__(self, config: NameServerConfig, *, network: Network | None = None) -> None:
        self.config = config
        self.tables = Tables()
        self.answers = Answers(self.tables)
        self.turns = Turns()
        self.metrics: MetricsPage | None = None
        """Where it can be measured, if that is wanted."""
        self._network = _tcp(config) if network is None else network
        self._metrics_network = aio.Tcp() if network is None else network
        self._work: set[asyncio.Task[None]] = set()
        self._closing = self._closed = False

    # --- life -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Return when connections are taken."""
        loop = asyncio.get_running_loop()
        self.now = loop.time
        """Seconds; only differences mean anything, so that no change of the wall clock matters."""
        self.keys = Keys.load(self.config.files.keys_path, self.turns)
        self._runtime = aio.AsyncRuntime(aio.Pool(network=self._network))
        self._began = self.now()
        listen = self.config.listen
        self._server = await aio.serve(
            self.config.address,
            HANDLERS,
            owner=self,
            network=self._network,
            options=aio.PeerOptions(
                idle_timeout=listen.idle_timeout, frame_limit=listen.frame_limit
            ),
            limits=aio.ServerOptions(connections=listen.connections),
            on_end=self._lost,
        )
        self._spawn(self._look_for_silence())
        try:
            await self._open_metrics()
        except BaseException:
            await self.close(grace=0)
            raise

    async def close(self, *, grace: float | None = None) -> None:
        """Answer what is under way, finish what is being written, and end; again, to hurry."""
        self._closing = True
        for task in tuple(self._work):
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        if self.metrics is not None:
            await self.metrics.close()
        await self._server.close(grace=grace)
        await self.turns.over()
        await self._runtime.pool.close()
        if not self._closed:
            self._closed = True
            brokers, topics = len(self.tables.live), len(self.tables.topics)
            log.info("stopped; %d brokers and %d topics were known", brokers, topics)

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
        return self._server.addresses

    @property
    def address(self) -> str:
        """Where programs on this machine reach it."""
        host, port = split_address(self.addresses[0])
        return join_address("127.0.0.1" if host in _WILDCARDS else host, port)

    def measured(self) -> Source:
        """What can be measured of it."""
        return Source({"node_type": "nameserver", "node_id": self.address}, self._measure)

    @property
    def serves_routes(self) -> bool:
        """Whether clients are told routes: not while brokers still come in after a start."""
        routes = self.config.routes
        return not routes.wait or self.now() - self._began >= routes.wait_time

    def apply(self, config: NameServerConfig) -> None:
        """Go on with other settings."""
        self.config = config
        self.tables.changed()

    def tell(self, notices: Iterable[Notice]) -> None:
        """Send notices in the background, if that is wanted; they may be lost."""
        if self.config.brokers.notify_least and not self._closing:
            for notice in notices:
                for address in notice.addresses:
                    self._spawn(self._notify(address, notice.request))

    def say_gone(self, place: Place, why: str) -> None:
        """One line in the log about a broker that was taken out."""
        log.info("%s of %s is out: %s", place.address, place.cluster, why)

    # --- the work in the background -------------------------------------------------------------

    def _spawn(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _open_metrics(self) -> None:
        self.metrics = await open_page(
            self.config.metrics,
            (self.measured(), Source({}, measure_process)),
            network=self._metrics_network,
            usual=METRICS_PORT if self.config.listen.port else 0,
        )

    def _measure(self) -> Iterator[Sample]:
        yield metrics.KNOWN_BROKERS.of(len(self.tables.live))
        yield metrics.KNOWN_TOPICS.of(len(self.tables.topics))
        yield from measure_servers([self._server])

    async def _look_for_silence(self) -> None:
        while True:
            await asyncio.sleep(self.config.brokers.scan_interval)
            for place in expired(self.tables, self.now()):
                live = self.tables.live[place]
                self._take_out(place, f"nothing was heard of it for {live.timeout:g}s")
                if isinstance(live.connection, Peer):
                    live.connection.close()

    def _lost(self, peer: Peer) -> None:
        """A connection ended; brokers that registered through it are gone."""
        if not self._closing:
            for place in registered_through(self.tables, peer):
                self._take_out(place, "its connection ended")

    def _take_out(self, place: Place, why: str) -> None:
        self.tell(depart(self.tables, place))
        self.say_gone(place, why)

    async def _notify(self, address: str, request: Request[Any]) -> None:
        try:
            await self._runtime.tell(address, request)
        except (GantryError, OSError) as error:
            log.info("broker %s was not told: %s", address, error)


def _tcp(config: NameServerConfig) -> Network:
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
