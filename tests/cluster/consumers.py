"""A whole cluster in one process for tests of consumers: name server, brokers, and who sends."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from gantrymq.broker.app import BrokerServer
from gantrymq.client.consumer import AsyncConsumer
from gantrymq.client.pull_consumer import AsyncPullConsumer
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.nameserver.app import NameServer
from gantrymq.net.addresses import split_address
from gantrymq.net.aio import Peer, connect
from gantrymq.net.options import PeerOptions
from gantrymq.protocol.offsets import QueryConsumerOffset
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.protocol.topics import PutTopic
from gantrymq.wire import properties
from tests.cluster.brokers import make, now_ms
from tests.cluster.naming import name_server
from tests.support import World

QUEUES = 4


class Site:
    """A name server and brokers, on the same ports and files however often they are restarted."""

    def __init__(
        self,
        where: World,
        directory: Path,
        brokers: tuple[str, ...] = ("a",),
        *,
        of_names: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are those of its brokers; `__` stands for the dot in their names."""
        self.where = where
        self._settings = settings
        self._settings_of_names = of_names or {}
        self.directory = directory
        self.brokers: dict[str, BrokerServer] = {}
        self._names = brokers
        self._ports: dict[str, int] = {}
        self._peers: dict[str, Peer] = {}
        self._stack = AsyncExitStack()
        self._serial = 0

    async def __aenter__(self) -> Site:
        await self.start_names()
        for name in self._names:
            await self.start(name)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()
        for peer in self._peers.values():
            peer.close()
            await peer.wait_closed()
        for name in tuple(self.brokers):
            await self.stop(name)
        await self.stop_names()

    # --- servers --------------------------------------------------------------------------------

    async def start_names(self) -> None:
        own = {"listen__port": self._ports.get("names", 0)}
        self._naming = name_server(
            self.where, self.directory / "namesrv", **own | self._settings_of_names
        )
        self.names: NameServer = await self._naming.__aenter__()
        self._ports["names"] = split_address(self.names.address)[1]

    async def stop_names(self) -> None:
        await self._naming.__aexit__(None, None, None)

    async def start(self, name: str) -> BrokerServer:
        own = {
            "identity__name": f"broker-{name}",
            "listen__port": self._ports.get(name, 0),
            "registering__name_servers": self.names.address,
            "flow__enabled": False,  # the machine may be busy with other tests
        }
        server = make(self.where, self.directory / f"store-{name}", **(own | self._settings))
        await server.start()
        self.brokers[name] = server
        self._ports[name] = split_address(server.address)[1]
        return server

    async def stop(self, name: str) -> None:
        await self.brokers.pop(name).close(grace=0)

    async def ask(self, request: Any, name: str = "a") -> Any:
        """What a broker answers."""
        peer = self._peers.get(name)
        if peer is None or not peer.is_open:
            options = PeerOptions(idle_timeout=1e6)
            address = self.brokers[name].address
            peer = await connect(address, network=self.where.network, options=options)
            self._peers[name] = peer
        return await peer.call(request, timeout=5)

    async def topic(self, topic: str = "orders", queues: int = QUEUES) -> None:
        for name in self.brokers:
            await self.ask(
                PutTopic(topic=topic, read_queues=queues, write_queues=queues, perm=6), name
            )
            await self.brokers[name].broker.registrar.spread()

    # --- messages -------------------------------------------------------------------------------

    async def send(
        self,
        count: int = 1,
        topic: str = "orders",
        *,
        broker: str = "a",
        queues: int = QUEUES,
        **found: str,
    ) -> list[bytes]:
        """Messages with bodies of their own, over the queues of a broker in turn."""
        bodies = []
        for _ in range(count):
            body = b"%d" % self._serial
            await self.send_one(body, topic, queue_id=self._serial % queues, broker=broker, **found)
            self._serial += 1
            bodies.append(body)
        return bodies

    async def send_one(
        self,
        body: bytes,
        topic: str = "orders",
        *,
        queue_id: int = 0,
        broker: str = "a",
        **found: str,
    ) -> SendReply:
        request = SendMessage(
            group="shop",
            topic=topic,
            queue_id=queue_id,
            born_ms=now_ms(),
            properties=properties.join(found) if found else None,
            body=body,
        )
        reply: SendReply = await self.ask(request, broker)
        return reply

    async def offset(
        self, queue_id: int = 0, topic: str = "orders", *, group: str = "billing", broker: str = "a"
    ) -> int:
        request = QueryConsumerOffset(
            group=group, topic=topic, queue_id=queue_id, zero_if_unknown=False
        )
        offset: int = (await self.ask(request, broker)).offset
        return offset

    # --- consumers ------------------------------------------------------------------------------

    def consumer(self, handler: Any = None, name: str = "c1", **how: Any) -> AsyncConsumer:
        """A consumer of this cluster, to be started."""
        asked: dict[str, Any] = {
            "group": "billing",
            "start": "earliest",
            "topics": "orders",
            "instance_name": name,
            "name_servers": self.names.address,
            "network": self.where.network,
            "close_timeout": 1.0,
            "handler": handler,
        }
        return AsyncConsumer(**(asked | how))

    def pull_consumer(self, name: str = "c1", **how: Any) -> AsyncPullConsumer:
        """One that is asked for messages, to be started."""
        asked: dict[str, Any] = {
            "group": "billing",
            "start": "earliest",
            "instance_name": name,
            "name_servers": self.names.address,
            "network": self.where.network,
        }
        return AsyncPullConsumer(**(asked | how))


class Seen:
    """What handlers got, and by whom."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.by: dict[str, list[ReceivedMessage]] = defaultdict(list)

    def by_name(self, name: str = "c1") -> Any:
        """A handler that notes what it gets."""

        async def handle(message: ReceivedMessage) -> None:
            self.messages.append(message)
            self.by[name].append(message)

        return handle

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def repeats(self) -> dict[bytes, int]:
        return {body: count for body, count in Counter(self.bodies).items() if count > 1}

    def has(self, bodies: list[bytes]) -> bool:
        return set(self.bodies) >= set(bodies)

    def queues(self) -> set[MessageQueue]:
        return {message.queue for message in self.messages}


async def soon(condition: Any, limit: float = 60.0) -> None:
    """Wait, by the loop's clock, until `condition` holds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit
    while not condition():
        assert loop.time() < end, "it never happened"
        await asyncio.sleep(0.01)
