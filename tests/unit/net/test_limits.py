"""What a server bears from the other end, and what ends a connection."""

import asyncio
import logging
import random
import tracemalloc
from collections.abc import Callable, Coroutine
from itertools import pairwise

import pytest

from gantrymq.errors import ConnectionLost
from gantrymq.net.aio import Ending, PeerOptions, Server, ServerOptions
from tests.support import Echo, Parrot, Wire, World, frame, until

MIB = 1024 * 1024
Scene = Callable[[Parrot, Server, Wire], Coroutine[object, None, None]]


def play(world: World, scene: Scene, **how: object) -> None:
    """Run `scene` between a server with the parrot and a connection of raw bytes."""

    async def main() -> None:
        owner = Parrot()
        async with await world.serve(owner, **how) as server:
            wire = await Wire.to(server, world.network)
            try:
                await scene(owner, server, wire)
            finally:
                owner.gate.set()
                await wire.close()

    world.run(main())


# --- bytes that are not frames, and frames that come in odd pieces ------------------------------


@pytest.mark.parametrize(
    "junk",
    [
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        bytes(1000),
        b"\xff" * 8,
        b"\x7f\xff\xff\xff\x00\x00\x00\x10",
        b"\x00\x00\x00\x10\x00\x00\x01\x00",
        b"\x00\x00\x00\x08\x07\x00\x00\x04{}{}",
        b"\x00\x00\x00\x08\x00\x00\x00\x04nope",
    ],
)
def test_junk_ends_the_connection_and_nothing_else(
    anywhere: World, junk: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        neighbour = await anywhere.connect(server)
        wire.transport.write(frame(Echo(body=b"good")) + junk)
        await wire.lost
        assert [bytes(reply.body) for reply in wire.replies()] == [b"good"]
        await neighbour.call(Echo(), timeout=5)
        assert server.endings == {Ending.BAD_FRAME: 1}
        neighbour.close()
        await neighbour.wait_closed()

    with caplog.at_level(logging.WARNING, logger="gantrymq.net"):
        play(anywhere, scene)
    (record,) = caplog.records
    assert "the peer broke the protocol" in record.getMessage()


def test_random_bytes_only_ever_end_the_connection(memory: World) -> None:
    dice = random.Random(7)

    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        for _ in range(300):
            hostile = await Wire.to(server, memory.network)
            good = bytearray(frame(Echo(body=dice.randbytes(50))))
            for _ in range(dice.randrange(4)):
                good[dice.randrange(len(good))] = dice.randrange(256)
            hostile.transport.write(bytes(good) + dice.randbytes(dice.randrange(200)))
            hostile.transport.close()
            await hostile.lost
        await until(lambda: len(server.peers) == 1)
        assert set(server.endings) <= {Ending.BAD_FRAME, Ending.REMOTE}
        assert server.endings.total() == 300

    play(memory, scene)


def test_frames_that_are_only_announced_take_no_memory(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        wires = [await Wire.to(server, memory.network) for _ in range(50)]
        tracemalloc.start()
        try:
            for one in wires:
                one.transport.write(b"\x00\xf0\x00\x00\x00\x00\x01\x00" + bytes(100))
            await until(lambda: server.traffic.bytes_in == 50 * 108)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 100 * MIB, "750 MiB were announced"
        for one in wires:
            await one.close()

    play(memory, scene)


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_frames_in_pieces_are_frames(memory: World, size: int) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        memory.network.at(server.address).chunk = size  # type: ignore[attr-defined]
        wire.transport.write(b"".join(frame(Echo(body=b"%d" % n), n) for n in range(50)))
        await until(lambda: len(wire.replies()) == 50)
        assert [reply.opaque for reply in wire.replies()] == list(range(50))

    play(memory, scene)


def test_the_answers_to_frames_that_come_together_leave_in_one_write(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        (peer,) = server.peers
        wire.transport.write(b"".join(frame(Echo(), n) for n in range(50)))
        await until(lambda: len(wire.replies()) == 50)
        assert peer.outbox.writes == 1

    play(memory, scene)


# --- limits --------------------------------------------------------------------------------------


def test_connections_over_the_limit_are_refused(tcp: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        second = await Wire.to(server, tcp.network)
        await until(lambda: len(server.peers) == 2)
        third = await Wire.to(server, tcp.network)
        await third.lost
        assert server.refused == 1
        await second.close()
        await until(lambda: len(server.peers) == 1)
        fourth = await tcp.connect(server)
        await fourth.call(Echo(), timeout=5)
        fourth.close()
        await fourth.wait_closed()

    play(tcp, scene, limits=ServerOptions(connections=2))


def test_a_reader_that_does_not_read_stops_being_read_from(anywhere: World) -> None:
    options = PeerOptions(write_high=64 * 1024, write_low=16 * 1024)

    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        wire.transport.pause_reading()
        request = frame(Echo(how="repeat", body=bytes(1024)))
        for _ in range(64):
            wire.transport.write(request)
        (peer,) = server.peers
        await until(lambda: peer.outbox.full)
        for _ in range(50):
            await asyncio.sleep(0)
        assert peer.outbox.unsent < 3 * MIB
        assert len(owner.heard) < 64
        wire.transport.resume_reading()
        await until(lambda: len(owner.heard) == 64)
        await until(lambda: len(wire.got) > 64 * MIB)
        assert not peer.outbox.full

    play(anywhere, scene, options=options)


def test_a_reader_that_lets_too_much_pile_up_is_cut_off(
    anywhere: World, caplog: pytest.LogCaptureFixture
) -> None:
    options = PeerOptions(write_high=64 * 1024, write_low=16 * 1024, write_limit=4 * MIB)

    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        wire.transport.pause_reading()
        (peer,) = server.peers
        notices = 0
        while peer.is_open:
            peer.notify(Echo(body=bytes(MIB)))
            notices += 1
            await asyncio.sleep(0)
        await wait_gone(server)
        assert server.endings == {Ending.SLOW_READER: 1}
        assert notices < 30
        wire.transport.resume_reading()

    with caplog.at_level(logging.WARNING, logger="gantrymq.net"):
        play(anywhere, scene, options=options)
    assert "does not read" in caplog.text


async def wait_gone(server: Server) -> None:
    await until(lambda: not server.peers)


def test_callers_wait_while_the_other_end_does_not_read(memory: World) -> None:
    async def main() -> None:
        owner = Parrot()
        async with await memory.serve(owner) as server:
            place = memory.network.at(server.address)  # type: ignore[attr-defined]
            options = PeerOptions(write_high=100_000, write_low=10_000)
            peer = await memory.connect(server, options=options)
            place.stall()
            big = [
                asyncio.ensure_future(peer.call(Echo(body=bytes(30_000)), timeout=60))
                for _ in range(20)
            ]
            await asyncio.sleep(1)
            assert peer.calls < 6
            assert peer.outbox.unsent < 200_000
            told = asyncio.ensure_future(peer.tell(Echo(how="told")))
            await asyncio.sleep(1)
            assert not told.done()
            place.go_on()
            await asyncio.gather(*big, told)
            assert "told" in owner.heard
            place.stall()
            full = [asyncio.ensure_future(peer.tell(Echo(body=bytes(90_000)))) for _ in range(20)]
            await asyncio.sleep(1)
            peer.abort()
            outcomes = await asyncio.gather(*full, return_exceptions=True)
            assert ConnectionLost in {type(outcome) for outcome in outcomes}
            await peer.wait_closed()

    memory.run(main())


# --- times ---------------------------------------------------------------------------------------

TIMES = PeerOptions(idle_timeout=120, frame_timeout=30, first_frame_timeout=20)


def ends(memory: World, scene: Scene) -> tuple[list[Ending], float]:
    """How, and when, a server ends the connection on which `scene` is played."""
    times: list[float] = []
    endings: list[Ending] = []

    async def timed(owner: Parrot, server: Server, wire: Wire) -> None:
        playing = asyncio.ensure_future(scene(owner, server, wire))
        await wire.lost
        playing.cancel()
        await asyncio.wait([playing])
        times.append(asyncio.get_running_loop().time())
        await wait_gone(server)
        endings.extend(server.endings)

    play(memory, timed, options=TIMES)
    return endings, times[0]


def test_a_connection_that_never_says_anything_is_closed(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        pass

    endings, seconds = ends(memory, scene)
    assert endings == [Ending.SILENT]
    assert seconds == pytest.approx(20, abs=0.1)


def test_a_first_frame_that_drips_in_is_not_waited_for(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        for byte in frame(Echo()):
            wire.transport.write(bytes([byte]))
            await asyncio.sleep(5)

    endings, seconds = ends(memory, scene)
    assert endings == [Ending.SILENT]
    assert seconds == pytest.approx(20, abs=0.1)


def test_a_later_frame_that_drips_in_is_not_waited_for_either(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        wire.transport.write(frame(Echo()))
        await asyncio.sleep(100)
        for byte in frame(Echo()):
            wire.transport.write(bytes([byte]))
            await asyncio.sleep(5)

    endings, seconds = ends(memory, scene)
    assert endings == [Ending.SLOW_FRAME]
    assert seconds == pytest.approx(130, abs=0.1)


def test_silence_for_two_minutes_is_idle(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        for second in range(5):
            wire.transport.write(frame(Echo(), second))
            await asyncio.sleep(100)

    endings, seconds = ends(memory, scene)
    assert endings == [Ending.IDLE]
    assert seconds == pytest.approx(520, abs=0.1)


def test_what_the_server_says_keeps_a_connection_but_not_if_nobody_reads_it(
    memory: World,
) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        (peer,) = server.peers
        wire.transport.write(frame(Echo()))
        for _ in range(10):
            await asyncio.sleep(100)
            peer.notify(Echo())
        wire.transport.pause_reading()
        while True:
            peer.notify(Echo(body=bytes(2 * MIB)))
            await asyncio.sleep(50)

    endings, seconds = ends(memory, scene)
    assert endings == [Ending.IDLE]
    assert seconds == pytest.approx(1000 + 120, abs=60)


def test_a_frame_is_not_slow_while_the_server_itself_does_not_read(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        second = frame(Echo(), 2)
        wire.transport.write(frame(Echo(how="wait"), 1) + second[:20])
        await asyncio.sleep(100)
        owner.gate.set()
        wire.transport.write(second[20:])
        await until(lambda: len(wire.replies()) == 2)
        (peer,) = server.peers
        assert peer.is_open

    play(memory, scene, options=PeerOptions(frame_timeout=30, answers_in_flight=1))


def test_closing_does_not_wait_for_ever_for_a_peer_that_does_not_read(memory: World) -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        owner = Parrot()
        async with await memory.serve(owner, options=PeerOptions(linger=5)) as server:
            wire = await Wire.to(server, memory.network)
            wire.transport.pause_reading()
            (peer,) = server.peers
            peer.notify(Echo(body=bytes(MIB)))
            started = loop.time()
            await server.close()
            seconds = loop.time() - started
            await wire.close()
            return seconds

    assert memory.run(main()) == pytest.approx(5, abs=0.1)


# --- fairness -----------------------------------------------------------------------------------


def test_a_flood_of_one_peer_leaves_others_their_turn(anywhere: World) -> None:
    """uvloop reads on within one turn for as long as a read fills its buffer: up to 8 MiB."""
    flood = b"".join(frame(Echo(body=bytes(1000)), n) for n in range(8000))

    async def scene(owner: Parrot, server: Server, wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        heard: list[int] = []

        def turn() -> None:
            heard.append(len(owner.heard))
            if heard[-1] < 8000:
                loop.call_soon(turn)

        wire.transport.write(flood)
        turn()
        await until(lambda: len(owner.heard) == 8000)
        assert max(after - before for before, after in pairwise(heard)) < 1500

    play(anywhere, scene)
