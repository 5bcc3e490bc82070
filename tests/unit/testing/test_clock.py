import asyncio
import time

import pytest

from gantrymq.testing.clock import Deadlock, VirtualLoop, run_virtual


def test_an_hour_passes_at_once() -> None:
    started = time.monotonic()

    async def main() -> float:
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(3600)
    assert time.monotonic() - started < 5


def test_timers_fire_in_the_order_of_their_times_and_time_stands_while_work_is_done() -> None:
    async def main() -> list[tuple[str, float]]:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, float]] = []

        async def sleeper(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            for _ in range(100):
                await asyncio.sleep(0)
            seen.append((name, round(loop.time(), 6)))

        await asyncio.gather(sleeper("c", 3), sleeper("a", 1), sleeper("b", 2))
        return seen

    assert run_virtual(main()) == [("a", 1.0), ("b", 2.0), ("c", 3.0)]


def test_timeouts_strike() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(120):
                await asyncio.get_running_loop().create_future()
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(120)


def test_real_sockets_work_and_input_comes_before_time() -> None:
    async def main() -> tuple[bytes, float]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.read(100))
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"hello")
            async with asyncio.timeout(1e6):
                answer = await reader.read(100)
            writer.close()
            await writer.wait_closed()
        return answer, asyncio.get_running_loop().time()

    answer, _ = run_virtual(main())
    assert answer == b"hello"


def test_the_clock_stands_still_while_a_thread_works() -> None:
    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(0.001):
            answer = await loop.run_in_executor(None, _work)
        return answer, loop.time()

    answer, now = run_virtual(main())
    assert answer == "done"
    assert now < 0.001


def _work() -> str:
    return "done" if sum(range(200_000)) else ""


def test_nothing_left_to_happen_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with (
        asyncio.Runner(loop_factory=lambda: VirtualLoop(patience=0.01)) as runner,
        pytest.raises(Deadlock, match="no timer is set"),
    ):
        runner.run(main())


def test_time_can_be_moved_by_hand() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        waiting = asyncio.ensure_future(asyncio.sleep(10))
        await asyncio.sleep(0)
        loop.clock.advance(25)
        await waiting
        return loop.time()

    assert run_virtual(main()) == pytest.approx(25)
