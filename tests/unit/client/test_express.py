"""Shots: sends that are one call, and what becomes of them when they are not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from gantrymq.client.express import Express
from gantrymq.client.messages import PLAINLY
from gantrymq.client.producing import Channel
from gantrymq.errors import InvalidInput, ReplyError, SendFailed
from gantrymq.flows.shots import Shot
from gantrymq.model import Message, SendStatus
from gantrymq.net.aio import AsyncRuntime, Pool, serve
from gantrymq.net.memory import MemoryNetwork
from gantrymq.net.options import PLAIN
from gantrymq.protocol.base import table
from gantrymq.protocol.sending import SendMessage, SendReply
from tests.support import run_on
from tests.unit.flows.sending_rig import Rig, stored

Handle = Callable[[SendMessage], Any]


class Scene:
    """Brokers `a` and `b` on a network in memory, and a producer's express."""

    def __init__(self, network: MemoryNetwork, **how: Any) -> None:
        self.network = network
        self.rig = Rig("ab", **how)
        self.pool = Pool(network=network)
        self.seen: list[tuple[str, SendMessage]] = []
        self._arrived = asyncio.Semaphore(0)
        self.handle: dict[str, Handle] = {"a": stored(), "b": stored()}
        runtime: Any = AsyncRuntime(self.pool)
        engine: Any = SimpleNamespace(
            config=SimpleNamespace(peer_options=PLAIN),
            runtime=runtime,
            loop=asyncio.get_running_loop(),
            pool=self.pool,
        )
        self.express = Express(Channel(runtime, self.rig.sender), engine)

    async def serve(self, broker: str) -> Any:
        async def answer(request: SendMessage, owner: object, peer: object) -> SendReply:
            self.seen.append((broker, request))
            self._arrived.release()
            outcome = self.handle[broker](request)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        answers: Any = table(SendMessage.answered_by(answer))
        return await serve(f"{broker}:1", answers, network=self.network)

    def shot(self, body: bytes = b"hello", **how: Any) -> Shot:
        """A message for broker `a` first."""
        shot = self.express.prepare(Message("orders", body, **how), PLAINLY, 3.0, "async")
        assert shot is not None
        return shot

    async def until_asked(self, times: int) -> None:
        for _ in range(times):
            await self._arrived.acquire()

    @property
    def asked(self) -> str:
        """Who was sent something, in turn."""
        return "".join(broker for broker, _ in self.seen)


@asynccontextmanager
async def scene(**how: Any) -> AsyncIterator[Scene]:
    made = Scene(MemoryNetwork(), **how)
    servers = [await made.serve(broker) for broker in "ab"]
    for broker in "ab":
        await made.pool.peer(f"{broker}:1")
    try:
        yield made
    finally:
        await made.pool.close()
        for server in servers:
            await server.close()


def on_loop(main: Any) -> None:
    run_on("virtual", main)


def fails(error: Exception) -> Handle:
    def handle(request: SendMessage) -> SendReply:
        raise error

    return handle


def test_it_is_one_call_and_no_task() -> None:
    async def main() -> None:
        async with scene() as at:
            before = asyncio.all_tasks()
            begun = at.express.begin(at.shot(keys=("k",), tag="t"))
            assert begun is not None
            assert asyncio.all_tasks() == before
            receipt = await begun.future
            (broker, request) = at.seen[0]
            assert (broker, bytes(request.body)) == ("a", b"hello")
            assert f"UNIQ_KEY\x01{receipt.message_id}\x02" in (request.properties or "")
            assert "KEYS\x01k\x02" in (request.properties or "")
            assert (receipt.queue.broker, receipt.queue.queue_id) == ("a", request.queue_id)
            assert receipt.offset == 3

    on_loop(main())


def test_awaited_or_not_it_is_the_same() -> None:
    async def main() -> None:
        async with scene() as at:
            one = await at.express.send(at.shot())
            begun = at.express.begin(at.shot())
            assert begun is not None
            other = await begun.future
            assert other.queue.queue_id == one.queue.queue_id + 1
            first, second = (request for _, request in at.seen)
            first.queue_id = second.queue_id
            first.properties = second.properties
            assert first == second

    on_loop(main())


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize(
    ("handle", "asked"),
    [
        (fails(ReplyError.for_code(2, "broker busy")), "ab"),
        (stored(SendStatus.FLUSH_DISK_TIMEOUT), "a"),
    ],
)
def test_what_is_not_simply_stored_goes_on(waits: bool, handle: Handle, asked: str) -> None:
    async def main() -> None:
        async with scene() as at:
            at.handle["a"] = handle
            shot = at.shot()
            if waits:
                receipt = await at.express.send(shot)
            else:
                begun = at.express.begin(shot)
                assert begun is not None
                receipt = await begun.future
            assert at.asked == asked
            ids = {(request.properties or "")[:41] for _, request in at.seen}
            assert ids == {f"UNIQ_KEY\x01{receipt.message_id}"}

    on_loop(main())


@pytest.mark.parametrize("waits", [True, False])
def test_a_server_that_goes_away_is_asked_anew(waits: bool) -> None:
    async def main() -> None:
        async with scene() as at:
            outcomes = [fails(ReplyError.for_code(1500, "going away")), stored()]
            at.handle["a"] = lambda request: outcomes.pop(0)(request)
            peer = at.pool.ready("a:1")
            shot = at.shot()
            if waits:
                receipt = await at.express.send(shot)
            else:
                begun = at.express.begin(shot)
                assert begun is not None
                receipt = await begun.future
            assert (at.asked, receipt.queue.broker) == ("aa", "a")
            assert at.pool.ready("a:1") is not peer

    on_loop(main())


def test_a_connection_that_breaks_sends_it_elsewhere() -> None:
    async def main() -> None:
        async with scene() as at:
            never = asyncio.Event()

            async def silence() -> SendReply:
                await never.wait()
                raise AssertionError

            at.handle["a"] = lambda request: silence()
            begun = at.express.begin(at.shot())
            assert begun is not None
            await at.until_asked(1)
            at.network.at("a:1").cut()
            assert (await begun.future).queue.broker == "b"
            never.set()

    on_loop(main())


def test_a_refusal_for_good_is_raised() -> None:
    async def main() -> None:
        async with scene() as at:
            at.handle["a"] = fails(ReplyError.for_code(13, "no"))
            begun = at.express.begin(at.shot())
            assert begun is not None
            with pytest.raises(SendFailed, match="no"):
                await begun.future
            assert at.asked == "a"

    on_loop(main())


def test_whoever_gives_up_frees_his_place() -> None:
    async def main() -> None:
        async with scene() as at:
            never = asyncio.Event()

            async def silence() -> SendReply:
                await never.wait()
                return SendReply(message_id="", queue_id=0, offset=0)

            at.handle["a"] = lambda request: silence()
            peer = at.pool.ready("a:1")
            assert peer is not None
            waiting = asyncio.create_task(at.express.send(at.shot()))
            begun = at.express.begin(at.shot())
            assert begun is not None
            await at.until_asked(2)
            assert peer.calls == 2
            waiting.cancel()
            await asyncio.wait((waiting,))
            assert waiting.cancelled()
            begun.future.cancel()
            begun.forget()
            assert peer.calls == 0
            never.set()

    on_loop(main())


def test_what_is_not_plain_is_no_shot() -> None:
    async def main() -> None:
        async with scene() as at:
            express = at.express
            for message in (
                Message("orders", bytearray(b"hello")),
                Message("orders", b"hello", flag=1),
                Message("orders", bytes(5000)),  # to be compressed
                Message("orders", b""),
            ):
                assert express.prepare(message, PLAINLY, 3.0, "async") is None
            with pytest.raises(InvalidInput, match="illegal characters"):
                express.prepare(Message("or ders", b"hello"), PLAINLY, 3.0, "async")
            at.rig.places.known = False
            assert express.prepare(Message("orders", b"hello"), PLAINLY, 3.0, "async") is None

    on_loop(main())


def test_without_a_connection_it_is_fired_as_any_send() -> None:
    async def main() -> None:
        async with scene() as at:
            shot = at.shot()
            at.pool.retire(await at.pool.peer("a:1"))
            assert at.express.begin(shot) is None
            assert (await at.express.fire(shot)).queue.broker == "a"

    on_loop(main())
