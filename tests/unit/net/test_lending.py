import threading
import time
from collections.abc import Iterator

import pytest

from gantrymq.errors import CallTimeout, ClosedError, ConnectFailed, ConnectionLost, GoingAway
from gantrymq.net.aio import AsyncRuntime, PeerOptions, Pool
from gantrymq.net.lending import BlockingPool, BlockingRuntime
from gantrymq.runtime import Runtime, run_blocking
from tests.support import Echo, ThreadedServer, run_on, server_in_a_thread


@pytest.fixture
def threaded() -> Iterator[ThreadedServer]:
    with server_in_a_thread() as server:
        yield server


@pytest.fixture
def pool() -> Iterator[BlockingPool]:
    pool = BlockingPool(connections=2, back_off=lambda failures: 60.0)
    yield pool
    pool.close()


def call(pool: BlockingPool, address: str, *, timeout: float = 5.0, how: str = "") -> bytes:
    runtime = BlockingRuntime(pool)
    return bytes(
        run_blocking(runtime.call(address, Echo(how=how, body=b"x"), timeout=timeout)).body
    )


def connections(threaded: ThreadedServer) -> int:
    return threaded.do(lambda: len(threaded.server.peers))


def test_calls_one_after_another_share_a_connection(
    threaded: ThreadedServer, pool: BlockingPool
) -> None:
    assert [call(pool, threaded.address) for _ in range(20)] == [b"x"] * 20
    run_blocking(BlockingRuntime(pool).tell(threaded.address, Echo(how="told")))
    threaded.see(lambda: "told" in threaded.owner.heard)
    assert connections(threaded) == 1


def test_threads_at_the_same_time_have_one_each_up_to_the_limit(
    threaded: ThreadedServer, pool: BlockingPool
) -> None:
    answers: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: answers.append(call(pool, threaded.address, how="wait")))
        for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    threaded.see(lambda: threaded.owner.waiting == 2)
    with pytest.raises(CallTimeout, match=rf"all 2 connections to {threaded.address} were busy"):
        call(pool, threaded.address, timeout=0.05)
    threaded.do(threaded.owner.gate.set)
    for thread in threads:
        thread.join()
    assert answers == [b"x"] * 5
    assert connections(threaded) == 2
    assert threaded.owner.most_waiting == 2


def test_a_broken_connection_is_not_lent_again(
    threaded: ThreadedServer, pool: BlockingPool
) -> None:
    call(pool, threaded.address)
    with (
        pytest.raises(ConnectionLost),
        pool.lend(threaded.address, timeout=5) as peer,
    ):
        begun = peer.begin(Echo(how="wait"), timeout=5)
        threaded.see(lambda: threaded.owner.waiting)
        threaded.do(lambda: [theirs.abort() for theirs in threaded.server.peers])
        peer.finish(begun)
    assert call(pool, threaded.address) == b"x"


def test_one_that_was_closed_while_it_rested_is_noticed(
    threaded: ThreadedServer, pool: BlockingPool
) -> None:
    with pool.lend(threaded.address, timeout=5) as peer:
        peer.call(Echo(), timeout=5)
    threaded.do(lambda: [theirs.close() for theirs in threaded.server.peers])
    threaded.see(lambda: not threaded.server.peers)
    peer.last_used -= 10  # as if it had rested
    assert call(pool, threaded.address) == b"x"
    assert not peer.is_open


def test_one_that_rested_too_long_is_given_up(threaded: ThreadedServer, pool: BlockingPool) -> None:
    with pool.lend(threaded.address, timeout=5) as peer:
        peer.call(Echo(), timeout=5)
    peer.last_used -= PeerOptions().idle_timeout + 1
    with pool.lend(threaded.address, timeout=5) as other:
        assert other is not peer
        other.call(Echo(), timeout=5)


def test_one_with_calls_under_way_is_not_lent_again(
    threaded: ThreadedServer, pool: BlockingPool
) -> None:
    with pool.lend(threaded.address, timeout=5) as peer:
        peer.begin(Echo(), timeout=5)
    assert not peer.is_open


def test_after_a_failure_the_address_is_left_alone(pool: BlockingPool, free_port: int) -> None:
    address = f"127.0.0.1:{free_port}"
    with pytest.raises(ConnectFailed, match="connecting to"):
        call(pool, address)
    for _ in range(2):  # to have been left alone is no other failure
        with pytest.raises(
            ConnectFailed, match=r"^127\S+ is left alone for \S+ \S+ after 1 failures"
        ):
            call(pool, address)


def test_a_call_that_is_sent_away_goes_out_once_more(
    threaded: ThreadedServer, pool: BlockingPool
) -> None:
    with pool.lend(threaded.address, timeout=5) as rested, pool.lend(threaded.address, timeout=5):
        pass
    with pytest.raises(GoingAway):
        call(pool, threaded.address, how="go away")
    assert threaded.owner.heard == ["go away"] * 2
    assert not rested.is_open, "those that rested at the same server are dropped, too"
    assert call(pool, threaded.address) == b"x"


def test_a_closed_pool(threaded: ThreadedServer, pool: BlockingPool) -> None:
    call(pool, threaded.address)
    with pool.lend(threaded.address, timeout=5) as lent:
        pool.close()
        assert bytes(lent.call(Echo(body=b"still"), timeout=5).body) == b"still"
    assert not lent.is_open
    with pytest.raises(ClosedError, match="pool was closed"):
        call(pool, threaded.address)


def test_a_runtime_sleeps_and_knows_the_time(pool: BlockingPool) -> None:
    runtime = BlockingRuntime(pool)
    started = runtime.now()
    run_blocking(runtime.sleep(0.01))
    assert runtime.now() - started >= 0.01
    assert abs(runtime.now() - time.monotonic()) < 5


def test_the_same_flow_on_both_runtimes(threaded: ThreadedServer, pool: BlockingPool) -> None:
    async def flow(runtime: Runtime) -> list[bytes]:
        address = threaded.address
        return [
            bytes((await runtime.call(address, Echo(body=b"%d" % n), timeout=5)).body)
            for n in range(5)
        ]

    async def awaited() -> list[bytes]:
        aio = Pool()
        try:
            return await flow(AsyncRuntime(aio))
        finally:
            await aio.close()

    stepped = run_blocking(flow(BlockingRuntime(pool)))
    assert stepped == run_on("uvloop", awaited()) == [b"0", b"1", b"2", b"3", b"4"]
