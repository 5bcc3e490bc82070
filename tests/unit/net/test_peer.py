import asyncio
import logging
import time
from collections.abc import Callable, Coroutine

import pytest

from gantrymq.errors import (
    BrokerFailure,
    CallTimeout,
    ClosedError,
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    NotSupported,
    TopicNotFound,
)
from gantrymq.net.aio import Ending, Peer, PeerOptions, Server, connect
from gantrymq.net.memory import MemoryNetwork
from gantrymq.wire.command import RESPONSE, Command
from gantrymq.wire.connection import Connection
from tests.support import PARROT, Echo, EchoReply, Other, Parrot, World, until


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="gantrymq.net")


Scene = Callable[[Parrot, Server, Peer], Coroutine[object, None, None]]


def play(world: World, scene: Scene, *, client: PeerOptions | None = None, **how: object) -> None:
    """Run `scene` between one client and a server with the parrot."""

    async def main() -> None:
        owner = Parrot()
        async with await world.serve(owner, **how) as server:
            options = client or PeerOptions()
            peer = await world.connect(server, table=PARROT, owner=owner, options=options)
            try:
                await scene(owner, server, peer)
            finally:
                owner.gate.set()
                peer.close()
                await peer.wait_closed()

    world.run(main())


def body(reply: EchoReply) -> bytes:
    return bytes(reply.body)


def test_a_call_gets_its_reply(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        assert body(await peer.call(Echo(body=b"hello"), timeout=5)) == b"hello"
        assert body(await peer.call(Echo(body=bytes(300_000)), timeout=5)) == bytes(300_000)
        assert str(peer) == server.address == peer.remote
        (theirs,) = server.peers
        assert theirs.remote == peer.local
        assert (theirs.traffic.requests, theirs.traffic.bytes_in) == (2, peer.traffic.bytes_out)
        assert server.traffic.bytes_out == peer.traffic.bytes_in > 300_000

    play(anywhere, scene)


def test_many_calls_share_a_connection_and_replies_come_in_any_order(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        parked = asyncio.ensure_future(peer.call(Echo(how="wait", body=b"parked"), timeout=60))
        texts = [str(number).encode() for number in range(500)]
        calls = [peer.call(Echo(body=text), timeout=5) for text in texts]
        assert [body(reply) for reply in await asyncio.gather(*calls)] == texts
        assert not parked.done()
        assert (peer.calls, next(iter(server.peers)).answers) == (1, 1)
        owner.gate.set()
        assert body(await parked) == b"parked"
        assert peer.calls == 0

    play(anywhere, scene)


def test_both_ends_call_and_answer(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        (theirs,) = server.peers
        calls = [end.call(Echo(body=b"x"), timeout=5) for end in (peer, theirs) for _ in range(50)]
        assert {body(reply) for reply in await asyncio.gather(*calls)} == {b"x"}
        assert body(await peer.call(Echo(how="ask back", body=b"back"), timeout=5)) == b"back"
        assert owner.heard[-2:] == ["ask back", "asked back"]

    play(anywhere, scene)


def test_a_command_is_sent_as_it_is_and_refusals_come_back_as_they_are(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        response = await peer.invoke(Command(4711), timeout=5)
        assert (response.code, response.remark) == (3, " request type 4711 not supported")

    play(anywhere, scene)


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ("refuse", TopicNotFound, "no such topic"),
        ("refuse later", TopicNotFound, "no such topic"),
        ("crash", BrokerFailure, "ZeroDivisionError: by nought"),
        ("crash later", BrokerFailure, "ZeroDivisionError: by nought"),
        ("huge", BrokerFailure, "the limit is 65536"),
    ],
)
def test_what_goes_wrong_at_the_handler_becomes_a_refusal(
    memory: World, how: str, error: type[Exception], says: str
) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        with pytest.raises(error, match=says) as caught:
            await peer.call(Echo(how=how), timeout=5)
        assert f"from {server.address}" in str(caught.value)
        assert body(await peer.call(Echo(body=b"and on"), timeout=5)) == b"and on"

    play(memory, scene, options=PeerOptions(frame_limit=65_536))


def test_a_request_that_nobody_answers_is_not_supported(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        with pytest.raises(NotSupported, match="request type 316 not supported"):
            await peer.call(Other(), timeout=5)

    play(memory, scene)


def test_a_crash_is_logged_once(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        for how in ("crash", "crash later"):
            caplog.clear()
            with pytest.raises(BrokerFailure):
                await peer.call(Echo(how=how), timeout=5)
            assert [record.levelname for record in caplog.records] == ["ERROR"]

    play(memory, scene)


def test_one_way_requests_arrive_and_are_never_answered(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        for how in ("", "refuse", "crash", "crash later"):
            await peer.tell(Echo(how=how))
        await peer.tell(Other())
        await peer.call(Echo(how="last"), timeout=5)
        assert owner.heard == ["", "refuse", "crash", "crash later", "last"]
        await until(lambda: not next(iter(server.peers)).answers)
        assert peer.traffic.late == 0
        received = peer.traffic.bytes_in
        await peer.call(Echo(how="last"), timeout=5)
        assert peer.traffic.bytes_in == 2 * received, "nothing but the answer to the two calls"

    play(anywhere, scene)


def test_a_call_that_is_not_answered_times_out_and_the_late_reply_is_dropped(
    anywhere: World,
) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        text = rf"no reply from {server.address} in 0\.1s \(Echo orders\)"
        with pytest.raises(CallTimeout, match=text):
            await peer.call(Echo(how="wait"), timeout=0.1)
        assert peer.calls == 0
        owner.gate.set()
        await until(lambda: peer.traffic.late == 1)
        assert body(await peer.call(Echo(body=b"and on"), timeout=5)) == b"and on"

    play(anywhere, scene)


def test_deadlines_are_at_most_a_hundredth_of_a_second_late(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        loop = asyncio.get_running_loop()
        lateness: list[float] = []

        async def call(timeout: float) -> None:
            due = loop.time() + timeout
            with pytest.raises(CallTimeout):
                await peer.call(Echo(how="wait"), timeout=timeout)
            lateness.append(loop.time() - due)

        await asyncio.gather(*(call(3 - number / 150) for number in range(300)))
        assert len(lateness) == 300
        assert -0.002 < min(lateness) <= max(lateness) < 0.0101

    play(memory, scene)


def test_a_loop_that_was_busy_takes_no_time_from_a_call(tcp: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        await peer.call(Echo(), timeout=5)
        keep_busy(0.15)
        assert body(await peer.call(Echo(body=b"after"), timeout=0.1)) == b"after"
        call = asyncio.ensure_future(peer.call(Echo(body=b"before"), timeout=0.1))
        await asyncio.sleep(0)
        keep_busy(0.15)
        assert body(await call) == b"before", "nobody was late but this loop"

    play(tcp, scene)


def keep_busy(seconds: float) -> None:
    """Hold up the loop, as a long computation does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_a_call_without_a_typed_request_is_named_by_its_code(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        command = Echo(how="wait").command()
        with pytest.raises(CallTimeout, match=r"\(VIEW_BROKER_STATS_DATA\)"):
            await peer.invoke(command, timeout=1)

    play(memory, scene)


def test_a_cancelled_caller_leaves_nothing_behind(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        call = asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60))
        await until(lambda: owner.waiting)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert peer.calls == 0
        owner.gate.set()
        await until(lambda: peer.traffic.late == 1)

    play(anywhere, scene)


def test_callers_wait_while_as_many_as_may_be_are_in_flight(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        calls = [asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60)) for _ in range(20)]
        await until(lambda: owner.waiting == 3)
        with pytest.raises(CallTimeout, match=r"no room for a call .* 3 wait for their reply"):
            await peer.call(Echo(), timeout=0.05)
        calls.pop().cancel()
        calls.pop(0).cancel()
        await until(lambda: owner.waiting == 4)
        owner.gate.set()
        await asyncio.gather(*calls)
        assert owner.most_waiting == 4, "one at a time took the cancelled caller's place"

    play(anywhere, scene, client=PeerOptions(calls_in_flight=3))


def test_reading_stops_while_as_many_requests_as_may_be_are_in_work(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        calls = [peer.call(Echo(how="wait", body=b"%d" % n), timeout=60) for n in range(40)]
        answers = asyncio.gather(*calls)
        await until(lambda: owner.waiting == 3)
        await peer.tell(Echo(how="more"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(owner.heard) == 3
        owner.gate.set()
        assert [body(reply) for reply in await answers] == [b"%d" % n for n in range(40)]
        await peer.call(Echo(), timeout=5)
        assert owner.most_waiting == 3

    play(anywhere, scene, options=PeerOptions(answers_in_flight=3))


def test_calls_fail_when_the_other_end_closes(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        call = asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60))
        await until(lambda: owner.waiting)
        next(iter(server.peers)).close()
        with pytest.raises(
            ConnectionLost, match=r"closed by the peer; Echo orders had waited 0\.\ds"
        ):
            await call
        assert await peer.wait_closed() is Ending.REMOTE
        assert owner.cancelled == 1
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await peer.call(Echo(), timeout=5)
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await peer.tell(Echo())

    play(anywhere, scene)


def test_calls_fail_at_once_when_this_end_closes(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        calls = [asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60)) for _ in range(9)]
        await until(lambda: owner.waiting == 4)
        peer.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {ConnectionLost}
        assert "closed here" in str(outcomes[0])
        with pytest.raises(ClosedError, match="was closed here"):
            await peer.call(Echo(), timeout=5)
        assert await peer.wait_closed() is Ending.LOCAL
        await until(lambda: not server.peers)
        assert server.endings == {Ending.REMOTE: 1}
        assert owner.cancelled == 4

    play(anywhere, scene, client=PeerOptions(calls_in_flight=4))


def test_what_was_written_goes_out_before_the_connection_closes(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        for _ in range(100):
            await peer.tell(Echo(how="told", body=bytes(10_000)))
        peer.close()
        await peer.wait_closed()
        await until(lambda: not server.peers)
        assert owner.heard == ["told"] * 100

    play(anywhere, scene)


def test_a_request_over_the_limit_is_not_sent(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        with pytest.raises(LocalProtocolError, match="the limit is 1024"):
            await peer.call(Echo(body=bytes(2000)), timeout=5)
        assert peer.calls == 0
        assert body(await peer.call(Echo(body=b"small"), timeout=5)) == b"small"

    play(memory, scene, client=PeerOptions(frame_limit=1024))


def test_replies_that_nobody_asked_for_are_counted(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        before = peer.traffic.late
        (theirs,) = server.peers
        for number in (77, 78, 1 << 30):
            theirs.outbox.put(Connection().encode(Command(0, opaque=number, flag=RESPONSE)))
        await peer.call(Echo(), timeout=5)
        assert peer.traffic.late - before == 3

    play(memory, scene)


def test_a_timeout_can_close_the_connection_as_java_does(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        other = asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=60))
        with pytest.raises(CallTimeout):
            await peer.call(Echo(how="wait"), timeout=1)
        with pytest.raises(ConnectionLost, match="a call got no reply in time"):
            await other
        assert await peer.wait_closed() is Ending.TIMED_OUT

    play(memory, scene, client=PeerOptions(close_after_timeout=True))


def test_a_peer_that_died_without_a_word_is_given_up_soon(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        assert isinstance(memory.network, MemoryNetwork)
        loop = asyncio.get_running_loop()
        await peer.call(Echo(), timeout=3)
        died = loop.time()
        memory.network.at(server.address).stall()
        while peer.is_open:
            with pytest.raises(CallTimeout):
                await peer.call(Echo(), timeout=3)
        assert loop.time() - died == pytest.approx(15, abs=0.1)
        assert await peer.wait_closed() is Ending.UNRESPONSIVE

    play(memory, scene)


def test_one_slow_answer_does_not_end_a_connection_on_which_others_come(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        slow = asyncio.ensure_future(peer.call(Echo(how="wait"), timeout=30))
        for _ in range(10):
            await asyncio.sleep(5)
            await peer.call(Echo(), timeout=3)
        with pytest.raises(CallTimeout):
            await slow
        assert peer.is_open

    play(memory, scene)


def test_calls_of_one_turn_leave_in_one_write(anywhere: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        await asyncio.gather(*(peer.call(Echo(), timeout=5) for _ in range(100)))
        assert peer.outbox.writes == 1

    play(anywhere, scene)


def test_a_handler_whose_own_work_is_cancelled_still_answers(memory: World) -> None:
    async def scene(owner: Parrot, server: Server, peer: Peer) -> None:
        with pytest.raises(BrokerFailure, match="cancelled"):
            await peer.call(Echo(how="cancelled"), timeout=60)

    play(memory, scene)


def test_connecting_to_nobody_fails(anywhere: World) -> None:
    async def main() -> None:
        server = await anywhere.serve(Parrot())
        await server.close()
        with pytest.raises(ConnectFailed, match=f"connecting to {server.address} failed"):
            await connect(server.address, network=anywhere.network)

    anywhere.run(main())
