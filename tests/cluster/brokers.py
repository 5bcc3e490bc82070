"""Brokers without a name server, and clients that answer, in any world of `tests.support`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gantrymq.broker.app import BrokerServer
from gantrymq.broker.config import BrokerConfig
from gantrymq.net.aio import Peer, PeerOptions, connect
from gantrymq.protocol.base import Done, Request, table
from gantrymq.protocol.groups import (
    ConsumerData,
    GetConsumerList,
    Heartbeat,
    NotifyConsumersChanged,
    ProducerData,
    Subscription,
)
from gantrymq.protocol.pulling import PullFlag, PullMessage
from gantrymq.protocol.sending import SendMessage
from gantrymq.settings import load
from gantrymq.store.disk import Disk
from gantrymq.wire import properties, record
from gantrymq.wire.record import StoredMessage
from tests.support import World

START_MS = 1_700_000_000_000


def now_ms() -> int:
    """The wall clock of these tests, which goes with the loop's."""
    return START_MS + round(asyncio.get_running_loop().time() * 1000)


class LoopClock:
    """The same for threads, which have no loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __call__(self) -> int:
        return START_MS + round(self._loop.time() * 1000)


@asynccontextmanager
async def broker(
    where: World, data: Path, *, disk: Disk | None = None, **settings: Any
) -> AsyncIterator[BrokerServer]:
    """A broker with such settings; `__` stands for the dot in their names."""
    server = make(where, data, disk=disk, **settings)
    await server.start()
    try:
        yield server
    finally:
        await server.close(grace=0)


def make(where: World, data: Path, *, disk: Disk | None = None, **settings: Any) -> BrokerServer:
    """The same, not started."""
    flags = {
        "listen.bind": where.listen.rpartition(":")[0],
        "listen.port": 0,
        "listen.vip": False,
        "data": str(data),
        "store.log.segment_size": 1 << 20,
    }
    flags |= {name.replace("__", "."): value for name, value in settings.items()}
    config = load(BrokerConfig, flags=flags).value
    return BrokerServer(config, network=where.network, disk=disk, clock_ms=LoopClock())


class Client:
    """A connection of a client that notes what it is told, and answers from a table."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.told: list[str] = []
        self.peer: Peer

    async def __call__(self, request: Request[Any]) -> Any:
        return await self.peer.call(request, timeout=5.0)

    async def beat(
        self, consumes: Mapping[str, str] | None = None, produces: tuple[str, ...] = ()
    ) -> Any:
        """A heartbeat: groups, and the topic that each wants."""
        consumers = [
            ConsumerData(group=group, subscriptions=[Subscription(topic=topic, version=1)])
            for group, topic in (consumes or {}).items()
        ]
        producers = [ProducerData(group=group) for group in produces]
        return await self(
            Heartbeat(client_id=self.client_id, consumers=consumers, producers=producers)
        )

    async def members(self, group: str) -> list[str]:
        return sorted((await self(GetConsumerList(group=group))).client_ids)

    async def send(
        self, topic: str = "orders", body: bytes = b"hello", queue_id: int = 0, **found: str
    ) -> Any:
        text = properties.join(found) if found else None
        return await self(
            SendMessage(
                group="shop",
                topic=topic,
                queue_id=queue_id,
                born_ms=now_ms(),
                properties=text,
                body=body,
            )
        )

    async def pull(
        self,
        topic: str = "orders",
        offset: int = 0,
        *,
        queue_id: int = 0,
        wait: float = 0,
        **how: Any,
    ) -> Any:
        asked = {"group": "billing", "flags": PullFlag.SUBSCRIPTION, "subscription": "*"} | how
        if wait:
            asked["flags"] |= PullFlag.SUSPEND
        request = PullMessage(
            topic=topic, queue_id=queue_id, offset=offset, wait_ms=int(wait * 1000), **asked
        )
        return await self.peer.call(request, timeout=wait + 5.0)

    async def taken(
        self, topic: str = "orders", offset: int = 0, **how: Any
    ) -> list[StoredMessage]:
        """The messages that a pull gives."""
        return list(record.iterate((await self.pull(topic, offset, **how)).body))

    async def close(self) -> None:
        self.peer.close()
        await self.peer.wait_closed()


def _told(request: NotifyConsumersChanged, client: Client, _peer: Peer) -> Done:
    client.told.append(request.group)
    return Done()


@asynccontextmanager
async def client(
    where: World, server: BrokerServer, client_id: str = "client-1", *more: Any
) -> AsyncIterator[Client]:
    """A client of `server`; `more` are lines of the table that it answers from."""
    one = Client(client_id)
    answers = table(NotifyConsumersChanged.answered_by(_told), *more)
    one.peer = await connect(
        server.address,
        answers,
        one,
        network=where.network,
        options=PeerOptions(idle_timeout=100_000),
    )
    try:
        yield one
    finally:
        await one.close()
