"""How tests run coroutines, and a small request that they send around.

`run_on(loop, main)` runs a coroutine on a fresh loop of that kind, within a time limit, and fails
if it leaves a task behind. Nothing waits for time to pass: tests that are about time run on the
`virtual` loop.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any, Final, Literal, TypeVar

import uvloop

from gantrymq.protocol.base import Buffer, Int, Reply, Request, declared, raw_body
from gantrymq.testing.clock import VirtualLoop
from gantrymq.wire.codes import RequestCode

T = TypeVar("T")
LoopName = Literal["asyncio", "uvloop", "virtual"]

REAL_LOOPS: Final[tuple[LoopName, ...]] = ("asyncio", "uvloop")
ALL_LOOPS: Final[tuple[LoopName, ...]] = (*REAL_LOOPS, "virtual")
LIMIT: Final = 20.0

_MAKERS: Final[dict[LoopName, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "virtual": VirtualLoop,
}


def run_on(loop: LoopName, main: Coroutine[Any, Any, T], *, limit: float = LIMIT) -> T:
    """What `main` returns; its limit is virtual, too, on the virtual loop, and then generous."""
    seconds = limit if loop != "virtual" else 1e6
    with asyncio.Runner(loop_factory=_MAKERS[loop]) as runner:
        complaints: list[str] = []
        runner.get_loop().set_exception_handler(lambda _, context: complaints.append(str(context)))
        result = runner.run(_bounded(main, seconds))
        gc.collect()
    assert not complaints, f"asyncio complained: {complaints}"
    return result


async def _bounded(main: Coroutine[Any, Any, T], seconds: float) -> T:
    async with asyncio.timeout(seconds):
        result = await main
    for _ in range(20):  # what is ending may end
        if len(asyncio.all_tasks()) == 1:
            break
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"tasks left behind: {left}"
    return result


async def until(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds; the test's own limit is the limit."""
    while not condition():
        await asyncio.sleep(0.001)


@declared
class EchoReply(Reply):
    """What was sent."""

    times: Int = 1
    body: Buffer = raw_body(default=b"")


@declared
class Echo(Request[EchoReply]):
    """Something to send back; `how` tells the handler to misbehave."""

    CODE = RequestCode.VIEW_BROKER_STATS_DATA

    topic: str = "orders"
    how: str = ""
    body: Buffer = raw_body(default=b"")


@declared
class Other(Request[EchoReply]):
    """A request that no table of these tests answers."""

    CODE = RequestCode.CLEAN_UNUSED_TOPIC

    topic: str = "orders"
