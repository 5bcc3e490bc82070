from collections.abc import AsyncIterator, Generator

import pytest

from gantrymq.errors import CallTimeout
from gantrymq.runtime import Runtime, iterate_blocking, run_blocking
from tests.support import Echo, EchoReply


class Scripted:
    """A blocking runtime of a few lines: answers at once, and its clock is moved by sleeping."""

    def __init__(self) -> None:
        self.time = 0.0
        self.called: list[str] = []

    async def call(self, address: str, request: Echo, *, timeout: float) -> EchoReply:
        self.called.append(address)
        if address == "down:1":
            raise CallTimeout(address)
        return EchoReply(body=request.body)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    def now(self) -> float:
        return self.time


async def first_that_answers(runtime: Runtime, addresses: list[str]) -> bytes:
    for address in addresses:
        try:
            return bytes((await runtime.call(address, Echo(body=b"hi"), timeout=1.0)).body)
        except CallTimeout:
            await runtime.sleep(0.5)
    raise LookupError("nobody answers")


async def counted(runtime: Runtime, closed: list[str]) -> AsyncIterator[float]:
    try:
        for _ in range(3):
            await runtime.sleep(1.0)
            yield runtime.now()
    finally:
        await runtime.sleep(10.0)
        closed.append("closed")


class Suspends:
    """Something foreign to await."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def test_a_flow_is_stepped_to_its_end() -> None:
    runtime = Scripted()
    assert run_blocking(first_that_answers(runtime, ["down:1", "up:1"])) == b"hi"
    assert runtime.called == ["down:1", "up:1"]
    assert runtime.now() == 0.5


def test_what_a_flow_raises_comes_out() -> None:
    with pytest.raises(LookupError, match="nobody answers"):
        run_blocking(first_that_answers(Scripted(), ["down:1"]))


def test_a_flow_that_suspends_is_refused_and_closed() -> None:
    ended = []

    async def foreign() -> None:
        try:
            await Suspends()
        finally:
            ended.append(True)

    with pytest.raises(RuntimeError, match="other than its Runtime"):
        run_blocking(foreign())
    assert ended


def test_an_iterating_flow_is_stepped_item_by_item() -> None:
    runtime, closed = Scripted(), list[str]()
    items = iterate_blocking(counted(runtime, closed))
    assert next(items) == 1.0
    assert runtime.now() == 1.0, "nothing runs ahead of what is asked for"
    assert list(items) == [2.0, 3.0]
    assert closed == ["closed"]


def test_leaving_early_closes_the_flow() -> None:
    runtime, closed = Scripted(), list[str]()
    for _ in iterate_blocking(counted(runtime, closed)):
        break
    assert closed == ["closed"]
    assert runtime.now() == 11.0


def test_an_iterating_flow_that_suspends_is_refused() -> None:
    async def foreign() -> AsyncIterator[int]:
        await Suspends()
        yield 1

    with pytest.raises(RuntimeError, match="other than its Runtime"):
        list(iterate_blocking(foreign()))
