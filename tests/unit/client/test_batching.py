"""Messages that are gathered before they are sent."""

from __future__ import annotations

import asyncio
from typing import Any

from gantrymq.client.batching import Batcher
from gantrymq.client.messages import PLAINLY, How
from gantrymq.client.producing import Channel
from gantrymq.errors import NoRoute, ReplyError, SendFailed
from gantrymq.flows.sending import Choice
from gantrymq.model import Message
from gantrymq.protocol.sending import SendBatch, SendReply
from gantrymq.rules.queue_choice import TopicQueues
from gantrymq.rules.selectors import select_by_hash
from gantrymq.wire import batch
from tests.support import run_on
from tests.unit.flows.sending_rig import Places, Rig

IN_ORDER = How(Choice(selector=select_by_hash, argument="key"))


class SlowPlaces(Places):
    """A topic whose route comes when the test says so."""

    def __init__(self, brokers: str) -> None:
        super().__init__(brokers)
        self.known = False
        self.arrived = asyncio.Event()

    async def queues_to_publish(self, topic: str, *, timeout: float) -> TopicQueues:
        if not self.known:
            await self.arrived.wait()
        return await super().queues_to_publish(topic, timeout=timeout)


def stored(request: SendBatch) -> SendReply:
    ids = ",".join(f"7F00{number:028X}" for number in range(len(batch.decode(request.body))))
    return SendReply(message_id=ids, queue_id=request.queue_id, offset=0)


def made(rig: Rig, **how: Any) -> Batcher:
    for broker in rig.places.brokers:
        rig.world.answer(f"{broker}:1", SendBatch, stored)
    return Batcher(Channel(rig.world, rig.sender), linger=0.01, size=1 << 20, timeout=3.0, **how)


def order_of(rig: Rig) -> list[bytes]:
    """The bodies, in the order in which they went out."""
    return [bytes(one.body) for request in rig.requests for one in batch.decode(request.body)]


def test_order_is_kept_while_the_route_is_looked_up() -> None:
    async def main() -> None:
        rig = Rig("a")
        rig.places = rig.sender.places = places = SlowPlaces("a")
        batcher = made(rig)
        bodies = [b"%d" % number for number in range(9)]
        tasks = []
        for number, body in enumerate(bodies):
            if number == 3:
                await asyncio.sleep(0)
                places.known = True  # the route is there before those who wait for it know
            if number == 6:
                await asyncio.sleep(0)
                places.arrived.set()
            tasks.append(asyncio.create_task(batcher.send(Message("orders", body), IN_ORDER)))
        await asyncio.gather(*tasks)
        assert order_of(rig) == bodies

    run_on("asyncio", main())


def test_one_who_gives_up_lets_nobody_overtake() -> None:
    async def main() -> None:
        rig = Rig("a")
        rig.places = rig.sender.places = places = SlowPlaces("a")
        batcher = made(rig)
        tasks = [
            asyncio.create_task(batcher.send(Message("orders", b"%d" % number), IN_ORDER))
            for number in range(4)
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        places.arrived.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order_of(rig) == [b"0", b"2", b"3"]

    run_on("asyncio", main())


def test_nobody_waits_for_one_whose_lookup_failed() -> None:
    async def main() -> None:
        rig = Rig("a")
        rig.places.known = rig.places.there = False
        batcher = made(rig)
        sends = (batcher.send(Message("orders", b"x"), IN_ORDER) for _ in range(3))
        found = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(one) for one in found] == [SendFailed] * 3
        assert all(isinstance(one.__cause__, NoRoute) for one in found)  # type: ignore[union-attr]

    run_on("asyncio", main())


def test_what_is_begun_is_told_of_once_for_a_batch() -> None:
    async def main() -> None:
        rig = Rig("a")
        ended: list[tuple[int, int, BaseException | None]] = []
        batcher = made(rig, ended=lambda *one: ended.append(one))
        begun = [batcher.begin(Message("orders", b"x" * size), PLAINLY) for size in (1, 2, 3)]
        awaited = asyncio.create_task(batcher.send(Message("orders", b"xxxx"), PLAINLY))
        await asyncio.sleep(0)
        assert len(rig.requests) == 0
        await batcher.flush()
        assert ended == [(3, 6, None)]
        receipts = [one.result() for one in begun if one is not None] + [await awaited]
        assert [one.offset for one in receipts] == [0, 1, 2, 3]
        assert len({one.message_id for one in receipts}) == 4
        assert order_of(rig) == [b"x", b"xx", b"xxx", b"xxxx"]

    run_on("asyncio", main())


def test_what_is_begun_and_fails_is_told_of() -> None:
    async def main() -> None:
        rig = Rig("a")
        ended: list[tuple[int, int, BaseException | None]] = []
        batcher = made(rig, ended=lambda *one: ended.append(one))
        refused = ReplyError.for_code(13, "no")
        rig.world.answer("a:1", SendBatch, refused)
        begun = batcher.begin(Message("orders", b"hello"), PLAINLY)
        await batcher.flush()
        ((messages, size, error),) = ended
        assert (messages, size) == (1, 5)
        assert isinstance(error, SendFailed)
        assert begun is not None
        assert begun.exception() is error

    run_on("asyncio", main())


def test_one_whose_queue_has_to_be_looked_up_is_not_begun() -> None:
    async def main() -> None:
        rig = Rig("a")
        batcher = made(rig)
        rig.places.known = False
        assert batcher.begin(Message("orders", b"hello"), IN_ORDER) is None
        rig.places.known = True
        assert batcher.begin(Message("orders", b"hello"), IN_ORDER) is not None
        await batcher.flush()
        assert order_of(rig) == [b"hello"]

    run_on("asyncio", main())
