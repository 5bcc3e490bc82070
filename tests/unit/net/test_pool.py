import asyncio

import pytest

from gantrymq.errors import (
    CallTimeout,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    GoingAway,
)
from gantrymq.net.aio import AsyncRuntime, Ending, Pool, Server
from gantrymq.net.backing_off import doubling
from gantrymq.net.memory import MemoryNetwork, Place
from tests.support import Echo, Parrot, World, until


def pool_in(world: World, **how: object) -> Pool:
    return Pool(network=world.network, **how)  # type: ignore[arg-type]


def place_of(world: World, server: Server) -> Place:
    assert isinstance(world.network, MemoryNetwork)
    return world.network.at(server.address)


def test_one_connection_however_many_ask(anywhere: World) -> None:
    async def main() -> None:
        async with await anywhere.serve(Parrot()) as server:
            pool = pool_in(anywhere)
            runtime = AsyncRuntime(pool)
            calls = [runtime.call(server.address, Echo(), timeout=5) for _ in range(50)]
            await asyncio.gather(*calls)
            assert len(server.peers) == 1
            assert list(pool.peers) == [server.address]
            await runtime.tell(server.address, Echo())
            assert pool.ready(server.address) is await pool.peer(server.address)
            await pool.close()
            assert pool.peers == {}
            with pytest.raises(ClosedError, match="pool was closed"):
                await runtime.call(server.address, Echo(), timeout=5)

    anywhere.run(main())


def test_who_stops_waiting_does_not_stop_the_connection(memory: World) -> None:
    async def main() -> None:
        async with await memory.serve(Parrot()) as server:
            place_of(memory, server).delay = 0.5
            pool = pool_in(memory)
            runtime = AsyncRuntime(pool)
            text = rf"no connection to {server.address} in 0\.3s \(Echo orders\)"
            with pytest.raises(CallTimeout, match=text):
                await runtime.call(server.address, Echo(), timeout=0.3)
            impatient = asyncio.ensure_future(pool.peer(server.address))
            await asyncio.sleep(0)
            impatient.cancel()
            await asyncio.sleep(0.8)
            assert pool.ready(server.address) is not None
            await pool.close()

    memory.run(main())


def test_a_lost_connection_is_made_anew(anywhere: World) -> None:
    async def main() -> None:
        owner = Parrot()
        async with await anywhere.serve(owner) as server:
            pool = pool_in(anywhere)
            runtime = AsyncRuntime(pool)
            await runtime.call(server.address, Echo(), timeout=5)
            parked = asyncio.ensure_future(
                runtime.call(server.address, Echo(how="wait"), timeout=60)
            )
            await until(lambda: owner.waiting)
            next(iter(server.peers)).abort()
            with pytest.raises(ConnectionLost):
                await parked
            await runtime.call(server.address, Echo(), timeout=5)
            await pool.close()

    anywhere.run(main())


def test_after_failures_an_address_is_left_alone_as_long_as_the_rule_says(memory: World) -> None:
    async def main() -> None:
        async with await memory.serve(Parrot()) as server:
            place = place_of(memory, server)
            place.refuses = True
            asked: list[int] = []

            def rule(failures: int) -> float:
                asked.append(failures)
                return 10.0 * failures

            pool = pool_in(memory, back_off=rule)
            for wait in (10, 20):
                outcomes = await asyncio.gather(
                    *(pool.peer(server.address) for _ in range(3)), return_exceptions=True
                )
                assert {str(outcome) for outcome in outcomes} == {
                    f"connecting to {server.address} failed: connection refused"
                }
                with pytest.raises(ConnectFailed, match=rf"left alone for another {wait}\.0s"):
                    await pool.peer(server.address)
                await asyncio.sleep(wait + 0.01)
            place.refuses = False
            peer = await pool.peer(server.address)
            assert asked == [1, 2]
            peer.abort()
            place.refuses = True
            with pytest.raises(ConnectFailed, match="refused"):
                await pool.peer(server.address)
            assert asked == [1, 2, 1], "a success forgets the failures"
            await pool.close()

    memory.run(main())


def test_the_rule_that_is_there_doubles_up_to_a_limit() -> None:
    assert [doubling(failures) for failures in (1, 2, 3, 6, 7, 1000)] == [
        0.1,
        0.2,
        0.4,
        3.2,
        5.0,
        5.0,
    ]


def test_a_call_that_is_sent_away_goes_out_once_more_on_a_new_connection(memory: World) -> None:
    async def main() -> None:
        first_owner, second_owner = Parrot(), Parrot()
        first = await memory.serve(first_owner)
        address = first.address
        pool = pool_in(memory)
        runtime = AsyncRuntime(pool)
        parked = asyncio.ensure_future(runtime.call(address, Echo(how="wait"), timeout=60))
        await until(lambda: first_owner.waiting)
        old = await pool.peer(address)
        closing = asyncio.ensure_future(first.close(grace=30))
        await asyncio.sleep(0)
        memory.listen = address
        async with await memory.serve(second_owner):
            await runtime.call(address, Echo(how="again"), timeout=5)
            assert second_owner.heard == ["again"]
            assert await pool.peer(address) is not old
            assert old.is_open, "it still has a call under way"
            first_owner.gate.set()
            await parked
            await closing
            await old.wait_closed()
            await pool.close()

    memory.run(main())


def test_sent_away_twice_is_an_error(memory: World) -> None:
    async def main() -> None:
        owner = Parrot()
        async with await memory.serve(owner) as server:
            pool = pool_in(memory)
            with pytest.raises(GoingAway):
                await AsyncRuntime(pool).call(server.address, Echo(how="go away"), timeout=5)
            assert owner.heard == ["go away", "go away"]
            assert server.endings == {Ending.REMOTE: 1}
            await pool.close()

    memory.run(main())


def test_closing_while_connecting(memory: World) -> None:
    async def main() -> None:
        async with await memory.serve(Parrot()) as server:
            place_of(memory, server).delay = 1.0
            pool = pool_in(memory)
            waiting = asyncio.ensure_future(pool.peer(server.address))
            await asyncio.sleep(0.1)
            await pool.close()
            with pytest.raises(ClosedError, match="pool was closed"):
                await waiting
            assert not server.peers

    memory.run(main())


def test_a_runtime_sleeps_and_knows_the_time(memory: World) -> None:
    async def main() -> None:
        runtime = AsyncRuntime(pool_in(memory))
        before = runtime.now()
        await runtime.sleep(100)
        assert runtime.now() - before == pytest.approx(100)

    memory.run(main())
