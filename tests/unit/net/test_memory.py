"""The network in memory by itself: it has to behave as sockets do, or tests on it prove nothing."""

import asyncio

import pytest

from gantrymq.errors import CallTimeout, ConnectFailed, ConnectionLost
from gantrymq.net.aio import Ending, Peer, Server, connect
from gantrymq.net.memory import MemoryNetwork, Place
from tests.support import PARROT, Echo, Parrot, Wire, World, run_on, until


def place_of(memory: World, server: Server) -> Place:
    assert isinstance(memory.network, MemoryNetwork)
    return memory.network.at(server.address)


async def pair(memory: World, parrot: Parrot | None = None) -> tuple[Server, Peer, Place]:
    server = await memory.serve(parrot or Parrot())
    return server, await memory.connect(server), place_of(memory, server)


def test_bytes_take_their_time_both_ways(memory: World) -> None:
    async def main() -> None:
        server, peer, place = await pair(memory)
        loop = asyncio.get_running_loop()
        place.delay = 0.25
        started = loop.time()
        replies = await asyncio.gather(*(peer.call(Echo(), timeout=5) for _ in range(10)))
        assert len(replies) == 10
        assert loop.time() - started == pytest.approx(0.5)
        peer.close()
        await server.close()

    memory.run(main())


def test_a_cut_is_seen_by_both_ends(memory: World) -> None:
    async def main() -> None:
        server, peer, place = await pair(memory, owner := Parrot())
        call = asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60))
        await until(lambda: owner.waiting)
        place.cut()
        with pytest.raises(ConnectionLost, match=r"broken \(cut\)"):
            await call
        assert server.endings == {Ending.BROKEN: 1}
        again = await memory.connect(server)
        await again.call(Echo(), timeout=5)
        again.close()
        await server.close()

    memory.run(main())


def test_a_stall_is_silence_until_it_goes_on(memory: World) -> None:
    async def main() -> None:
        server, peer, place = await pair(memory)
        place.stall()
        with pytest.raises(CallTimeout):
            await peer.call(Echo(), timeout=1)
        call = asyncio.ensure_future(peer.call(Echo(body=b"late"), timeout=5))
        await asyncio.sleep(1)
        place.go_on()
        assert bytes((await call).body) == b"late"
        peer.close()
        await server.close()

    memory.run(main())


def test_connections_can_be_refused_and_swallowed(memory: World) -> None:
    async def main() -> None:
        server, peer, place = await pair(memory)
        place.refuses = True
        with pytest.raises(ConnectFailed, match="connection refused"):
            await memory.connect(server)
        place.refuses, place.swallows = False, True
        with pytest.raises(ConnectFailed, match=r"in 3\.0s"):
            await memory.connect(server)
        peer.close()
        await server.close()
        with pytest.raises(ConnectFailed):
            await connect("nobody:1", network=memory.network)

    memory.run(main())


def test_a_writer_is_told_when_the_reader_does_not_read() -> None:
    class Other(Wire):
        paused = 0
        resumed = 0

        def pause_writing(self) -> None:
            self.paused += 1

        def resume_writing(self) -> None:
            self.resumed += 1

    async def main() -> None:
        network = MemoryNetwork()
        far = Other()

        class Gate:
            def admit(self) -> bool:
                return True

            def protocol(self, proxied: object = None) -> Other:
                return far

            def dismiss(self, protocol: object = None) -> None:
                raise AssertionError

        listener = await network.listen("far:1", Gate())
        near = Other()
        await network.connect("far:1", lambda: near, timeout=1)
        near.transport.set_write_buffer_limits(high=1000, low=100)
        far.transport.pause_reading()
        near.transport.writelines([bytes(600), b"", bytes(600)])
        assert (near.paused, near.transport.get_write_buffer_size()) == (1, 1200)
        await asyncio.sleep(1)
        assert not far.got
        far.transport.resume_reading()
        await until(lambda: near.resumed)
        assert (near.paused, near.resumed, len(far.got)) == (1, 1, 1200)
        near.transport.write(b"last words")
        near.transport.close()
        near.transport.write(b"too late")
        assert await near.lost is None
        assert await far.lost is None
        assert far.got.endswith(b"last words")
        listener.close()

    run_on("virtual", main())


def test_an_address_is_listened_on_once(memory: World) -> None:
    async def main() -> None:
        server, peer, _ = await pair(memory)
        memory.listen = server.address
        with pytest.raises(OSError, match="somebody does already"):
            await memory.serve(Parrot())
        peer.close()
        await server.close()
        async with await memory.serve(Parrot()) as again:
            assert again.address == server.address

    memory.run(main())


def test_it_works_without_a_virtual_clock_too() -> None:
    async def main() -> bytes:
        network = MemoryNetwork()
        memory = World(loop="uvloop", network=network, listen="parrot:1")
        async with await memory.serve(Parrot()) as server:
            peer = await connect(server.address, PARROT, network=network)
            body = bytes((await peer.call(Echo(body=b"real"), timeout=5)).body)
            peer.close()
            await peer.wait_closed()
            return body

    assert run_on("uvloop", main()) == b"real"
