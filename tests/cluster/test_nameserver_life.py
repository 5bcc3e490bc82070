"""Name servers and time: who is dropped and when, who hears of it, and how a server ends."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gantrymq.errors import BrokerFailure, ConnectionLost, NotFound, TopicNotFound
from gantrymq.net.aio import Ending, Peer, Server, connect, serve
from gantrymq.protocol.base import Done, table
from gantrymq.protocol.configs import GetKey, PutKey
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.registration import (
    BrokerHeartbeat,
    NotifyLeastBrokerChanged,
    QueryDataVersion,
    UnregisterBroker,
)
from gantrymq.protocol.routing import GetAllTopics
from tests.cluster.naming import Client, client, name_server
from tests.support import World, until
from tests.unit.nameserver.asking import A, B, registration

# --- time -----------------------------------------------------------------------------------------


def test_a_silent_broker_is_dropped_after_two_minutes(memory, data, caplog):
    caplog.set_level(logging.INFO, "gantrymq.nameserver")

    async def main() -> None:
        async with (
            name_server(memory, data) as server,
            client(memory, server) as broker,
            client(memory, server) as ask,
        ):
            await broker.register()
            for _ in range(6):  # it talks, so that its connection is not idle, but of other things
                await asyncio.sleep(20)
                assert (await broker.route()).brokers[0].addresses == {0: A}
                assert await ask.brokers() == {"broker-a": {0: A}}
            await asyncio.sleep(5.1)
            assert await ask.brokers() == {}
            with pytest.raises(TopicNotFound):
                await ask.route()
            assert await broker.peer.wait_closed() is Ending.REMOTE

    memory.run(main())
    (line,) = [record.getMessage() for record in caplog.records if " is out" in record.msg]
    assert line == f"{A} of east is out: nothing was heard of it for 120s"


@pytest.mark.parametrize("sign", ["heartbeat", "query", "register"])
def test_signs_of_life_keep_a_broker(memory, data, sign):
    async def main() -> None:
        about = {"broker": "broker-a", "address": A, "cluster": "east", "broker_id": 0}
        signs = {
            "heartbeat": BrokerHeartbeat(**about),
            "query": QueryDataVersion(**about, version=DataVersion()),
            "register": registration(timeout_ms=10_000),
        }
        async with name_server(memory, data) as server, client(memory, server) as broker:
            await broker.register(timeout_ms=10_000)
            for _ in range(10):
                await asyncio.sleep(9)
                await broker(signs[sign])
                assert await broker.brokers() == {"broker-a": {0: A}}
            await asyncio.sleep(16)
            async with client(memory, server) as ask:
                assert await ask.brokers() == {}

    memory.run(main())


def test_a_sign_of_life_does_not_register(memory, data):
    async def main() -> None:
        async with name_server(memory, data) as server, client(memory, server) as ask:
            beat = BrokerHeartbeat(broker="broker-a", address=A, cluster="east", broker_id=0)
            await ask(beat)
            assert await ask.brokers() == {}

    memory.run(main())


def test_a_broker_goes_with_its_connection(anywhere, data):
    async def main() -> None:
        async with name_server(anywhere, data) as server, client(anywhere, server) as ask:
            async with client(anywhere, server) as broker:
                await broker.register()
                await broker.register("broker-b", address=B)
                assert set(await ask.brokers()) == {"broker-a", "broker-b"}
            await until(lambda: not server.tables.live)
            assert await ask.brokers() == {}
            assert (await ask(GetAllTopics())).topics == []

    anywhere.run(main())


def test_a_broken_connection_takes_its_broker_too(memory, data):
    async def main() -> None:
        async with name_server(memory, data) as server:
            async with client(memory, server) as broker:
                await broker.register()
                memory.network.at(server.address).cut()
                await broker.peer.wait_closed()
            await until(lambda: not server.tables.live)
            assert server.tables.topics == {}

    memory.run(main())


def test_an_idle_connection_takes_its_broker_too(memory, data):
    async def main() -> None:
        # The broker says that it may be silent for an hour; its connection may not.
        async with name_server(memory, data) as server, client(memory, server) as broker:
            await broker.register(timeout_ms=3_600_000)
            await asyncio.sleep(119)
            assert set(server.tables.live)
            await asyncio.sleep(2)
            assert not server.tables.live

    memory.run(main())


def test_a_broker_that_came_back_through_a_new_connection_stays(memory, data):
    async def main() -> None:
        async with name_server(memory, data) as server, client(memory, server) as ask:
            old = Client(await connect(server.address, network=memory.network))
            await old.register()
            async with client(memory, server) as new:
                await new.register()
                await old.close()
                await asyncio.sleep(1)
                assert await ask.brokers() == {"broker-a": {0: A}}
            await asyncio.sleep(1)
            assert await ask.brokers() == {}

    memory.run(main())


def test_clients_may_have_to_wait_after_a_start(memory, data):
    async def main() -> None:
        wait = {"routes__wait": True}
        async with name_server(memory, data, **wait) as server, client(memory, server) as ask:
            await ask.register()
            await asyncio.sleep(44)
            with pytest.raises(BrokerFailure, match="name server not ready"):
                await ask.route()
            await asyncio.sleep(1)
            await ask.route()

    memory.run(main())


# --- notices --------------------------------------------------------------------------------------


class Broker:
    """The part of a broker that hears notices."""

    def __init__(self) -> None:
        self.heard: list[NotifyLeastBrokerChanged] = []


def hear(request: NotifyLeastBrokerChanged, broker: Broker, _peer: Peer) -> Done:
    broker.heard.append(request)
    return Done()


NOTICES = table(NotifyLeastBrokerChanged.answered_by(hear))


async def listening(where: World) -> tuple[Server, Broker]:
    broker = Broker()
    return await serve(where.listen, NOTICES, broker, network=where.network), broker


@pytest.mark.parametrize("wanted", [True, False])
def test_members_hear_when_the_smallest_id_is_another(anywhere, data, wanted):
    async def main() -> None:
        (one, first), (two, second) = await listening(anywhere), await listening(anywhere)
        notify = {"brokers__notify_least": wanted}
        async with (
            one,
            two,
            name_server(anywhere, data, **notify) as server,
            client(anywhere, server) as ask,
        ):
            await ask.register(broker_id=1, address=one.address, acting_master=True)
            await ask.register(broker_id=2, address=two.address, acting_master=True)
            await ask.register(broker_id=0, address=A, acting_master=True)
            leave = UnregisterBroker(broker="broker-a", address=A, cluster="east", broker_id=0)
            await ask(leave)
            if not wanted:
                await asyncio.sleep(0.01)
                assert first.heard == second.heard == []
                return
            await until(lambda: len(first.heard) == len(second.heard) == 2)
            for heard in (first.heard, second.heard):
                came, went = sorted(heard, key=lambda each: each.least_id or 0)
                assert (came.least_id, came.least_address, came.offline_address) == (0, A, None)
                assert (came.ha_address, came.broker) == (f"{A}-ha", "broker-a")
                assert (went.least_id, went.least_address) == (1, one.address)
                assert went.offline_address == A

    anywhere.run(main())


def test_members_that_cannot_be_reached_are_no_trouble(memory, data, caplog):
    caplog.set_level(logging.INFO, "gantrymq.nameserver")

    async def main() -> None:
        notify = {"brokers__notify_least": True}
        async with name_server(memory, data, **notify) as server, client(memory, server) as ask:
            await ask.register(broker_id=1, address=B, acting_master=True)
            await ask.register(broker_id=2, address="no address", acting_master=True)
            await ask.register(broker_id=0, address=A, acting_master=True)
            await asyncio.sleep(5)
            assert len((await ask.brokers())["broker-a"]) == 3

    memory.run(main())
    told = sorted(r.getMessage() for r in caplog.records if "was not told" in r.msg)
    assert len(told) == 2
    assert told[0].startswith(f"broker {B} was not told: connecting to {B} failed")


# --- side by side, and the end --------------------------------------------------------------------


def test_name_servers_side_by_side_know_nothing_of_each_other(anywhere, tmp_path):
    async def main() -> None:
        async with (
            name_server(anywhere, tmp_path / "1") as one,
            name_server(anywhere, tmp_path / "2") as two,
            client(anywhere, one) as first,
            client(anywhere, two) as second,
        ):
            await first.register()
            await first(PutKey(namespace="N", key="k", value="v"))
            assert await second.brokers() == {}
            with pytest.raises(NotFound):
                await second(GetKey(namespace="N", key="k"))
            await second.register()
            await first.close()
            await until(lambda: not one.tables.live)
            assert await second.brokers() == {"broker-a": {0: A}}

    anywhere.run(main())


def test_a_new_name_server_knows_nothing_until_brokers_register_again(memory, data):
    async def main() -> None:
        async with name_server(memory, data) as server, client(memory, server) as ask:
            await ask.register()
        async with name_server(memory, data) as server, client(memory, server) as ask:
            assert await ask.brokers() == {}
            await ask.register()
            assert await ask.brokers() == {"broker-a": {0: A}}

    memory.run(main())


def test_closing_ends_every_connection_and_drops_nobody_first(anywhere, data, caplog):
    caplog.set_level(logging.INFO, "gantrymq.nameserver")

    async def main() -> None:
        async with name_server(anywhere, data) as server:
            broker = Client(await connect(server.address, network=anywhere.network))
            await broker.register()
        await broker.peer.wait_closed()
        with pytest.raises(ConnectionLost):
            await broker.brokers()
        await server.close()

    anywhere.run(main())
    said = [record.getMessage() for record in caplog.records]
    assert said.count("stopped; 1 brokers and 2 topics were known") == 1
    assert not [r for r in caplog.records if " is out" in r.msg]


def test_a_damaged_file_of_keys_stops_the_start(memory, data):
    data.mkdir()
    (data / "kvConfig.json").write_text("{")

    async def main() -> None:
        with pytest.raises(ValueError, match=r"kvConfig\.json cannot be read"):
            async with name_server(memory, data):
                pass

    memory.run(main())
