"""Several processes' worth of peers on one network in memory, for minutes of virtual time."""

import asyncio
import random
from collections import Counter

import pytest

from gantrymq.errors import GantryError, TransportError
from gantrymq.net.aio import AsyncRuntime, PeerOptions, Pool, Server, ServerOptions, Terms, serve
from gantrymq.net.memory import MemoryNetwork
from gantrymq.runtime import Runtime
from tests.support import PARROT, Echo, Parrot, Wire, run_on, until

BROKERS = ("broker-a:10911", "broker-b:10911", "broker-c:10911")


async def first_that_answers(runtime: Runtime, body: bytes) -> tuple[str, bytes]:
    """A flow: try every broker in turn, for up to a minute in all."""
    deadline = runtime.now() + 60
    while runtime.now() < deadline:
        for address in BROKERS:
            try:
                reply = await runtime.call(address, Echo(body=body), timeout=3.0)
            except TransportError:
                continue
            return address, bytes(reply.body)
        await runtime.sleep(0.5)
    raise AssertionError("nobody answered for a minute")


def test_a_client_turns_to_whoever_is_there() -> None:
    async def main() -> Counter[str]:
        network = MemoryNetwork()
        servers: dict[str, Server] = {}

        async def start(address: str) -> None:
            servers[address] = await serve(address, PARROT, Parrot(), network=network)

        for address in BROKERS:
            await start(address)
        pool = Pool(network=network)
        runtime = AsyncRuntime(pool)
        used: Counter[str] = Counter()

        async def send(times: int) -> None:
            for number in range(times):
                address, body = await first_that_answers(runtime, b"%d" % number)
                assert body == b"%d" % number
                used[address] += 1

        await send(10)
        network.at("broker-a:10911").stall()
        await send(2)
        await servers.pop("broker-b:10911").close()
        await send(2)
        network.at("broker-a:10911").go_on()
        await start("broker-b:10911")
        network.at("broker-c:10911").cut()
        await send(10)
        await pool.close()
        for server in servers.values():
            await server.close()
        return used

    assert run_on("virtual", main()) == {BROKERS[0]: 20, BROKERS[1]: 2, BROKERS[2]: 2}


def test_heartbeats_keep_connections_for_an_hour_and_silence_ends_them() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        owner = Parrot()
        async with await serve(BROKERS[0], PARROT, owner, network=network) as server:
            busy, quiet = Pool(network=network), Pool(network=network)
            await quiet.peer(BROKERS[0])
            await AsyncRuntime(quiet).call(BROKERS[0], Echo(), timeout=3)
            beating = AsyncRuntime(busy)
            first = await busy.peer(BROKERS[0])
            for _ in range(120):
                await beating.call(BROKERS[0], Echo(how="heartbeat"), timeout=3)
                await beating.sleep(30)
            assert await busy.peer(BROKERS[0]) is first
            assert quiet.peers == {}
            assert owner.heard.count("heartbeat") == 120
            assert len(server.peers) == 1
            assert sum(server.endings.values()) == 1
            await busy.close()
            await quiet.close()

    run_on("virtual", main())


def test_notices_reach_everybody_but_those_who_do_not_read() -> None:
    async def main() -> None:
        network = MemoryNetwork()
        options = PeerOptions(write_high=32_768, write_low=8_192, write_limit=262_144)
        async with await serve(
            BROKERS[0], PARROT, Parrot(), network=network, options=options
        ) as server:
            clients = [Parrot() for _ in range(20)]
            pools = [
                Pool(network=network, terms=Terms(table=PARROT, owner=client)) for client in clients
            ]
            for pool in pools:
                await pool.peer(BROKERS[0])
            deaf = await Wire.to(server, network)
            deaf.transport.pause_reading()
            for _ in range(50):
                for theirs in tuple(server.peers):
                    theirs.notify(Echo(how="changed", body=bytes(10_000)))
                await asyncio.sleep(0.1)
            assert [client.heard.count("changed") for client in clients] == [50] * 20
            await deaf.lost
            assert len(server.peers) == 20
            for pool in pools:
                await pool.close()

    run_on("virtual", main())


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_to_the_network_every_call_ends_and_nothing_leaks(seed: int) -> None:
    dice = random.Random(seed)

    async def main() -> None:
        network = MemoryNetwork()
        owners = {address: Parrot() for address in BROKERS}
        servers = [
            await serve(
                address,
                PARROT,
                owners[address],
                network=network,
                limits=ServerOptions(connections=3),
            )
            for address in BROKERS
        ]
        pools = [Pool(network=network) for _ in range(4)]
        outcomes: Counter[str] = Counter()

        async def caller(pool: Pool) -> None:
            runtime = AsyncRuntime(pool)
            for _ in range(60):
                address = dice.choice(BROKERS)
                how = dice.choice(("", "", "", "wait", "crash later", "ask back", "repeat"))
                request = Echo(how=how, body=dice.randbytes(dice.randrange(2_000)))
                timeout = dice.uniform(0.1, 3)
                started = runtime.now()
                try:
                    await runtime.call(address, request, timeout=timeout)
                    outcomes["answered"] += 1
                except GantryError as error:
                    outcomes[type(error).__name__] += 1
                assert runtime.now() - started < timeout + 3.5

        async def weather() -> None:
            while True:
                await asyncio.sleep(dice.uniform(0.05, 0.5))
                place = network.at(dice.choice(BROKERS))
                place.delay = dice.choice((0.0, 0.01, 0.3))
                place.chunk = dice.choice((None, 1_000, 50_000))
                place.refuses = dice.random() < 0.1
                if dice.random() < 0.2:
                    place.cut()
                place.stall() if dice.random() < 0.1 else place.go_on()

        storm = asyncio.ensure_future(weather())
        async with asyncio.TaskGroup() as group:
            for pool in pools:
                for _ in range(3):
                    group.create_task(caller(pool))
        storm.cancel()
        for address in BROKERS:
            network.at(address).go_on()
        for pool in pools:
            await pool.close()
        for server in servers:
            await server.close(grace=1)
        assert sum(outcomes.values()) == 4 * 3 * 60
        assert outcomes["answered"] > 100
        assert len(outcomes) > 2, "the weather was too fine to prove anything"
        assert all(owner.waiting == 0 for owner in owners.values())
        await until(lambda: not any(network.at(address).transports for address in BROKERS))

    run_on("virtual", main())
