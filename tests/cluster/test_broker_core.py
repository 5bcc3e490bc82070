"""A broker with its name server and clients, in one process: over sockets and in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gantrymq.broker.app import BrokerServer
from gantrymq.broker.config import BrokerConfig
from gantrymq.errors import NotSupported, StoreError
from gantrymq.model import SendStatus
from gantrymq.nameserver.app import NameServer
from gantrymq.net.addresses import join_address, split_address
from gantrymq.net.aio import Peer, connect
from gantrymq.protocol.pulling import PullFlag, PullMessage, PullReply
from gantrymq.protocol.routing import GetRoute, TopicRoute
from gantrymq.protocol.sending import SendBatch, SendMessage, SendReply
from gantrymq.protocol.topics import DeleteTopic, GetTopics, PutTopic
from gantrymq.settings import load
from gantrymq.wire import batch, record
from gantrymq.wire.batch import BatchMessage
from tests.cluster.naming import name_server
from tests.support import World, run_on, world


@asynccontextmanager
async def broker(
    where: World, directory: Path, names: NameServer | None, **settings: Any
) -> AsyncIterator[BrokerServer]:
    """A broker with such settings, registered with `names`; `__` stands for the dot."""
    host = where.listen.rpartition(":")[0]
    flags = {
        "listen.bind": host,
        "listen.port": 0,
        "data": str(directory / "store"),
        "store.log.segment_size": 1 << 20,
    }
    if names is not None:
        flags["registering.name_servers"] = names.address
    flags |= {name.replace("__", "."): value for name, value in settings.items()}
    async with BrokerServer(load(BrokerConfig, flags=flags).value, network=where.network) as one:
        yield one


class Site:
    """A name server and a broker, and clients of them."""

    def __init__(self, where: World, directory: Path) -> None:
        self.where = where
        self.directory = directory
        self.stack = AsyncExitStack()

    async def __aenter__(self) -> Site:
        await self.stack.__aenter__()
        self.names = await self.stack.enter_async_context(
            name_server(self.where, self.directory / "namesrv")
        )
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await self.stack.__aexit__(*raised)

    def broker(self, **settings: Any) -> Any:
        return broker(self.where, self.directory, self.names, **settings)

    @asynccontextmanager
    async def client(self, address: str) -> AsyncIterator[Peer]:
        peer = await connect(address, network=self.where.network)
        try:
            yield peer
        finally:
            peer.close()
            await peer.wait_closed()

    async def route(self, topic: str) -> TopicRoute:
        async with self.client(self.names.address) as peer:
            route: TopicRoute = (await peer.call(GetRoute(topic=topic), timeout=5)).route
            return route


async def send(peer: Peer, body: bytes = b"hello", **fields: Any) -> SendReply:
    asked = {"group": "shop", "topic": "orders", "queue_id": 0, "born_ms": 1} | fields
    return await peer.call(SendMessage(body=body, **asked), timeout=5)


async def pull(peer: Peer, offset: int = 0, *, wait_ms: int = 0, **fields: Any) -> PullReply:
    flags = int(PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait_ms else 0))
    asked = {"group": "billing", "topic": "orders", "queue_id": 0, "subscription": "*"} | fields
    request = PullMessage(offset=offset, flags=flags, wait_ms=wait_ms, **asked)
    return await peer.call(request, timeout=5 + wait_ms / 1000)


def bodies(reply: PullReply) -> list[bytes]:
    return [message.body for message in record.iterate(reply.body)]


# --- messages -------------------------------------------------------------------------------------


def test_messages_go_in_and_come_out(anywhere: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Site(anywhere, tmp_path) as site,
            site.broker() as server,
            site.client(server.address) as one,
            site.client(server.address) as other,
        ):
            replies = [await send(one, b"%d" % n) for n in range(20)]
            assert [reply.offset for reply in replies] == list(range(20))
            both = batch.encode([BatchMessage(b"20"), BatchMessage(b"21")])
            request = SendBatch(group="shop", topic="orders", queue_id=0, born_ms=1, body=both)
            assert (await one.call(request, timeout=5)).offset == 20
            reply = await pull(other)
            assert bodies(reply) == [b"%d" % n for n in range(22)]
            waiting = asyncio.ensure_future(pull(other, 22, wait_ms=15_000))
            await asyncio.sleep(0.05)
            await send(one, b"late")
            assert bodies(await waiting) == [b"late"]

    anywhere.run(main())


def test_big_messages_and_big_pulls(anywhere: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Site(anywhere, tmp_path) as site,
            site.broker() as server,
            site.client(server.address) as peer,
        ):
            sent = [os.urandom(700_000) for _ in range(8)]
            for body in sent:
                await send(peer, body)
            found: list[bytes] = []
            while len(found) < len(sent):
                reply = await pull(peer, len(found))
                assert len(reply.body) <= 4 << 20
                found += bodies(reply)
            assert found == sent

    anywhere.run(main())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_what_was_stored_is_there_after_a_restart(
    anywhere: World, tmp_path: Path, mode: str
) -> None:
    if anywhere.loop == "virtual":
        mode = "async"  # the disk takes real time, in which a virtual clock goes on

    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            async with (
                site.broker(store__flush__mode=mode) as server,
                site.client(server.address) as peer,
            ):
                sending = [send(peer, b"%d" % n, queue_id=n % 3) for n in range(60)]
                replies = await asyncio.gather(*sending)
                assert {reply.status for reply in replies} == {SendStatus.OK}
                await peer.call(
                    PutTopic(topic="own", read_queues=3, write_queues=3, perm=6), timeout=5
                )
            assert server.closed is not None
            assert server.closed.problem is None
            async with site.broker() as server, site.client(server.address) as peer:
                found = [body for n in range(3) for body in bodies(await pull(peer, queue_id=n))]
                assert sorted(found) == sorted(b"%d" % n for n in range(60))
                assert (await send(peer)).offset == 20
                table = (await peer.call(GetTopics(), timeout=5)).table
                assert {"own", "orders"} <= table.topics.keys()

    anywhere.run(main())


# --- ports and addresses --------------------------------------------------------------------------


def test_the_vip_port_takes_messages_and_answers_no_pulls(anywhere: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(anywhere, tmp_path, None) as server:
            host, port = split_address(server.address)
            vip = join_address(host, port - 2)
            assert server.addresses == (server.address, vip)
            peer = await connect(vip, network=anywhere.network)
            assert (await send(peer)).offset == 0
            with pytest.raises(NotSupported):
                await pull(peer)
            peer.close()
            await peer.wait_closed()

    anywhere.run(main())


def test_the_vip_port_can_be_left_out(anywhere: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(anywhere, tmp_path, None, listen__vip=False) as server:
            assert server.addresses == (server.address,)

    anywhere.run(main())


def test_a_taken_vip_port_is_a_mistake_where_the_port_was_set(
    anywhere: World, tmp_path: Path
) -> None:
    async def main() -> None:
        async with broker(anywhere, tmp_path / "a", None) as first:
            port = split_address(first.address)[1]
            with pytest.raises(OSError, match=r"listen\.vip = false"):
                async with broker(anywhere, tmp_path / "b", None, listen__port=port + 2):
                    pass
            async with broker(anywhere, tmp_path / "b", None) as second:  # any other will do
                assert len(set(first.addresses + second.addresses)) == 4

    anywhere.run(main())


def test_clients_are_told_the_host_that_they_dialled(tmp_path: Path) -> None:
    """As `gantry up` has it: the broker leaves its host to the name server."""

    async def main() -> None:
        async with Site(world("tcp on uvloop"), tmp_path) as site:
            settings = {"listen__bind": "", "listen__advertise": "0.0.0.0"}
            async with site.broker(**settings) as server:
                (found,) = (await site.route("TBW102")).brokers
                assert found.addresses == {0: server.address}
                async with site.client(server.address) as peer:
                    await send(peer)
                    (message,) = record.iterate((await pull(peer)).body)
                    assert message.store_host == server.address

    run_on("uvloop", main())


def test_a_set_address_is_what_everybody_is_told(memory: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Site(memory, tmp_path) as site,
            site.broker(listen__advertise="192.0.2.50:7") as server,
        ):
            (found,) = (await site.route("TBW102")).brokers
            assert found.addresses == {0: "192.0.2.50:7"}
            async with site.client(server.address) as peer:
                await send(peer)
                (message,) = record.iterate((await pull(peer)).body)
                assert message.store_host == "192.0.2.50:7"

    memory.run(main())


# --- name servers ---------------------------------------------------------------------------------


def test_a_topic_is_in_the_route_when_the_send_that_made_it_is_answered(
    anywhere: World, tmp_path: Path
) -> None:
    async def main() -> None:
        async with (
            Site(anywhere, tmp_path) as site,
            site.broker() as server,
            site.client(server.address) as peer,
        ):
            for n in range(5):
                await send(peer, topic=f"t{n}", default_topic_queues=3)
                (queues,) = (await site.route(f"t{n}")).queues
                assert (queues.broker, queues.write_queues, queues.perm) == ("broker-a", 3, 6)
            await peer.call(PutTopic(topic="own", read_queues=5, write_queues=4, perm=4), timeout=5)
            (queues,) = (await site.route("own")).queues
            assert (queues.read_queues, queues.write_queues, queues.perm) == (5, 4, 4)
            await peer.call(DeleteTopic(topic="own"), timeout=5)

    anywhere.run(main())


def test_a_broker_comes_and_goes_with_its_process(anywhere: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            async with site.broker():
                assert site.names.tables.brokers.keys() == {"broker-a"}
            assert site.names.tables.brokers == {}
            assert site.names.tables.topics == {}

    anywhere.run(main())


def test_a_name_server_that_was_restarted_learns_everything_again(
    memory: World, tmp_path: Path
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            first = AsyncExitStack()
            names = await first.enter_async_context(name_server(memory, tmp_path / "namesrv"))
            port = split_address(names.address)[1]
            server = await stack.enter_async_context(broker(memory, tmp_path, names))
            await first.aclose()
            await asyncio.sleep(5)
            names = await stack.enter_async_context(
                name_server(memory, tmp_path / "namesrv", listen__port=port)
            )
            await asyncio.sleep(35)
            assert names.tables.topics.keys() == server.broker.topics.table.keys()

    memory.run(main())


# --- the end --------------------------------------------------------------------------------------


def test_closing_answers_pulls_that_wait(anywhere: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with Site(anywhere, tmp_path) as site:
            async with site.broker() as server:
                peer = await connect(server.address, network=anywhere.network)
                await send(peer)
                began = asyncio.get_running_loop().time()
                waiting = [asyncio.ensure_future(pull(peer, 1, wait_ms=15_000)) for _ in range(3)]
                await asyncio.sleep(0.05)
            replies: Sequence[PullReply] = await asyncio.gather(*waiting)
            assert asyncio.get_running_loop().time() - began < 5
            assert [int(reply.status) for reply in replies] == [19, 19, 19]
            await peer.wait_closed()

    anywhere.run(main())


def test_a_second_broker_on_the_same_store_is_refused(memory: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with broker(memory, tmp_path, None):
            with pytest.raises(StoreError, match=f"in use by process {os.getpid()}"):
                async with broker(memory, tmp_path, None):
                    pass

    memory.run(main())


def test_a_consumer_that_goes_leaves_nothing_waiting(anywhere: World, tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Site(anywhere, tmp_path) as site,
            site.broker() as server,
            site.client(server.address) as peer,
        ):
            await send(peer)
            async with site.client(server.address) as peer:
                waiting = asyncio.ensure_future(pull(peer, 1, wait_ms=60_000))
                await asyncio.sleep(0.05)
                assert server.broker.waiting.count == 1
            await asyncio.gather(waiting, return_exceptions=True)
            await asyncio.sleep(0.05)
            assert server.broker.waiting.count == 0

    anywhere.run(main())
