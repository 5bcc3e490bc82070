import asyncio
import errno
import socket
import time

import pytest

from gantrymq.errors import ConfigError, ConnectFailed, ConnectionLost, GoingAway
from gantrymq.net.aio import Ending, Peer, Tcp, connect, serve
from tests.support import PARROT, Echo, Parrot, Wire, World, frame, until


def test_several_addresses_and_both_families(tcp: World) -> None:
    async def main() -> None:
        owner = Parrot()
        async with await serve(["127.0.0.1:0", "[::1]:0"], PARROT, owner) as server:
            v4, v6 = server.addresses
            assert v4.startswith("127.0.0.1:")
            assert v6.startswith("[::1]:")
            for address in server.addresses:
                peer = await connect(address)
                await peer.call(Echo(), timeout=5)
                assert peer.remote == address
                peer.close()
                await peer.wait_closed()

    tcp.run(main())


def test_an_empty_host_is_every_interface_on_one_port(tcp: World) -> None:
    async def main() -> None:
        async with await serve(":0", PARROT, Parrot()) as server:
            ports = {address.rpartition(":")[2] for address in server.addresses}
            assert len(ports) == 1
            peer = await connect(f"127.0.0.1:{ports.pop()}")
            await peer.call(Echo(), timeout=5)
            peer.close()
            await peer.wait_closed()

    tcp.run(main())


def test_an_address_in_use_is_named_and_nothing_stays_open(anywhere: World) -> None:
    async def main() -> None:
        owner = Parrot()
        async with await anywhere.serve(owner) as server:
            with pytest.raises(OSError, match=server.address) as caught:
                await serve([anywhere.listen, server.address], PARROT, network=anywhere.network)
            assert caught.value.errno in (errno.EADDRINUSE, None)
            with pytest.raises(ConfigError, match="the port is missing"):
                await serve("nowhere", PARROT, network=anywhere.network)

    anywhere.run(main())


def test_owners_learn_of_connections_and_of_their_end(anywhere: World) -> None:
    async def main() -> None:
        seen: list[tuple[str, str]] = []

        def opened(peer: Peer) -> None:
            peer.state["name"] = "first"
            seen.append(("opened", peer.remote))

        def ended(peer: Peer) -> None:
            assert peer.state == {"name": "first"}
            assert peer.ending is Ending.REMOTE
            seen.append(("ended", peer.remote))

        owner = Parrot()
        async with await anywhere.serve(owner, on_open=opened, on_end=ended) as server:
            peer = await anywhere.connect(server)
            await peer.call(Echo(), timeout=5)
            peer.close()
            await peer.wait_closed()
            await until(lambda: not server.peers)
            assert seen == [("opened", peer.local), ("ended", peer.local)]

    anywhere.run(main())


def test_a_connection_that_comes_while_the_loop_is_busy_is_served(tcp: World) -> None:
    async def main() -> None:
        busy = Tcp(greeting_timeout=0.01)

        def opened(peer: Peer) -> None:
            time.sleep(0.03)

        async with await serve(
            tcp.listen, PARROT, Parrot(), network=busy, on_open=opened
        ) as server:
            peer = await tcp.connect(server)
            assert (await peer.call(Echo(body=b"x"), timeout=5)).body == b"x"
            peer.close()
            await peer.wait_closed()
            await until(lambda: not server.peers)
            assert server.dismissed == 0

    tcp.run(main())


def test_a_server_that_closes_while_somebody_comes_in_forgets_nobody(tcp: World) -> None:
    """uvloop tells a protocol nothing more whose greeting is cancelled."""

    async def main() -> None:
        ended: list[Peer] = []
        closing: list[asyncio.Task[None]] = []

        def opened(peer: Peer) -> None:
            closing.append(asyncio.create_task(server.close(grace=0)))

        server = await serve(
            tcp.listen, PARROT, Parrot(), network=tcp.network, on_open=opened, on_end=ended.append
        )
        wire = await Wire.to(server, Tcp())
        await until(lambda: closing)
        await closing[0]
        assert not server.peers
        assert len(ended) == 1
        await wire.lost

    tcp.run(main())


def test_closing_lets_answers_go_out_and_sends_new_requests_away(anywhere: World) -> None:
    async def main() -> None:
        owner = Parrot()
        server = await anywhere.serve(owner)
        peer = await anywhere.connect(server)
        old = await Wire.to(server, anywhere.network)
        idle = await anywhere.connect(server)
        await idle.call(Echo(), timeout=5)
        parked = asyncio.ensure_future(peer.call(Echo(how="wait", body=b"kept"), timeout=60))
        old.transport.write(frame(Echo(how="wait"), 1))
        await until(lambda: owner.waiting == 2)
        closing = asyncio.ensure_future(server.close(grace=30))
        assert await idle.wait_closed() is Ending.REMOTE
        with pytest.raises(GoingAway, match="please go away"):
            await peer.call(Echo(), timeout=5)
        old.transport.write(frame(Echo(), 2, version=401))
        await until(lambda: [reply.opaque for reply in old.replies()] == [2])
        assert old.replies()[0].code == 0, "a client that does not know GO_AWAY is served"
        assert not closing.done()
        owner.gate.set()
        assert bytes((await parked).body) == b"kept"
        await closing
        assert await peer.wait_closed() is Ending.REMOTE
        await old.lost
        assert server.endings == {Ending.SHUTDOWN: 3}
        idle.close()

    anywhere.run(main())


def test_closing_ends_what_is_not_answered_in_time(anywhere: World) -> None:
    async def main() -> None:
        owner = Parrot()
        server = await anywhere.serve(owner)
        peer = await anywhere.connect(server)
        parked = asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60))
        await until(lambda: owner.waiting)
        await server.close(grace=0.05)
        with pytest.raises(ConnectionLost):
            await parked
        assert owner.cancelled == 1
        await peer.wait_closed()
        await server.close()

    anywhere.run(main())


def test_a_server_whose_block_fails_does_not_wait(memory: World) -> None:
    async def main() -> float:
        owner = Parrot()
        with pytest.raises(ZeroDivisionError):
            async with await memory.serve(owner) as server:
                peer = await memory.connect(server)
                parked = asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60))
                await until(lambda: owner.waiting)
                raise ZeroDivisionError
        with pytest.raises(ConnectionLost):
            await parked
        return asyncio.get_running_loop().time()

    assert memory.run(main()) < 1


def test_connections_are_without_delay_and_the_kernel_gives_up_on_silence(tcp: World) -> None:
    async def main() -> None:
        async with await tcp.serve(Parrot()) as server:
            peer = await tcp.connect(server)
            await peer.call(Echo(), timeout=5)
            for end in (peer, *server.peers):
                sock = end.extra("socket")
                assert hasattr(sock, "getsockopt")
                assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                if hasattr(socket, "TCP_USER_TIMEOUT"):
                    limit = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
                    assert limit == 120_000
            peer.close()
            await peer.wait_closed()

    tcp.run(main())


def test_a_host_that_does_not_answer_times_out(memory: World) -> None:
    async def main() -> None:
        memory.network.at("far:1").swallows = True  # type: ignore[attr-defined]
        with pytest.raises(ConnectFailed, match=r"no connection to far:1 in 3\.0s"):
            await connect("far:1", network=memory.network)
        assert asyncio.get_running_loop().time() == pytest.approx(3)

    memory.run(main())


def test_a_request_and_the_end_of_its_connection_may_come_together(anywhere: World) -> None:
    async def main() -> None:
        owner = Parrot()
        async with await anywhere.serve(owner) as server:
            wire = await Wire.to(server, anywhere.network)
            wire.transport.write(frame(Echo(how="wait")) + bytes(8))  # and nothing that is a frame
            await wire.lost
            await until(lambda: not server.peers)
            assert owner.heard == ["wait"]
            assert owner.waiting == owner.cancelled == 0

    anywhere.run(main())
