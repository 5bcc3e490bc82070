"""Name servers and their clients, in any world of `tests.support`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gantrymq.nameserver.app import NameServer
from gantrymq.nameserver.config import load_config
from gantrymq.net.aio import Peer, connect
from gantrymq.protocol.routing import GetClusterInfo, GetRoute, TopicRoute
from tests.support import World
from tests.unit.nameserver.asking import registration


@asynccontextmanager
async def name_server(where: World, data: Path, **settings: Any) -> AsyncIterator[NameServer]:
    """A name server with such settings; `__` stands for the dot in their names."""
    host = where.listen.rpartition(":")[0]
    flags = {"listen.bind": host, "listen.port": 0, "files.data": str(data)}
    flags |= {name.replace("__", "."): value for name, value in settings.items()}
    async with NameServer(load_config(flags=flags).value, network=where.network) as server:
        yield server


class Client:
    """A connection to a name server, with the calls that these tests make often."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def __call__(self, request: Any) -> Any:
        return await self.peer.call(request, timeout=5.0)

    async def register(self, *args: Any, **how: Any) -> Any:
        return await self(registration(*args, **how))

    async def route(self, topic: str = "orders", **how: Any) -> TopicRoute:
        route: TopicRoute = (await self(GetRoute(topic=topic, **how))).route
        return route

    async def brokers(self) -> dict[str, dict[int, str]]:
        found = await self(GetClusterInfo())
        return {name: members.addresses for name, members in found.brokers.items()}

    async def close(self) -> None:
        self.peer.close()
        await self.peer.wait_closed()


@asynccontextmanager
async def client(where: World, server: NameServer) -> AsyncIterator[Client]:
    """A client of `server`."""
    one = Client(await connect(server.address, network=where.network))
    try:
        yield one
    finally:
        await one.close()
