"""Row D10: the consumer that asks for messages. And that no row has been forgotten."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

import pytest

import gantrymq as gantry
from gantrymq.errors import StateError
from gantrymq.model import MessageQueue, ReceivedMessage
from tests.rows.site import PATIENCE, Site, numbered, run, soon
from tests.rows.test_sharing import committed, fill, name

_LAST: Final = {"a": 9, "b": 6, "c": 16, "d": 10, "e": 2}
ROWS: Final = {f"{part}{row}" for part, last in _LAST.items() for row in range(1, last + 1)}
"""What a client has to do, and what its servers do for it."""


def test_every_row_has_a_test_that_is_named_after_it() -> None:
    found = re.compile(r"def test_([a-e]\d+)_")
    texts = (file.read_text() for file in Path(__file__).parent.glob("test_*.py"))
    assert {row for text in texts for row in found.findall(text)} == ROWS


async def take(consumer: gantry.AsyncPullConsumer, count: int) -> list[ReceivedMessage]:
    """So many messages, over as many polls as it takes."""
    found: list[ReceivedMessage] = []
    async with asyncio.timeout(PATIENCE):
        while len(found) < count:
            found += await consumer.poll()
    assert len(found) == count
    return found


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return sorted((message.body for message in messages), key=int)


async def kept(site: Site, queues: list[MessageQueue]) -> list[int]:
    """How far the group has come, as brokers know."""
    return [await asyncio.to_thread(committed, site, queue) for queue in queues]


def test_d10_pull_consumers_share_a_topic_poll_and_commit(site: Site) -> None:
    async def main() -> None:
        queues = site.queues()
        one = site.pull_consumer(topics=site.topic, instance_name=name())
        two = site.pull_consumer(instance_name=name())
        async with one:
            await fill(site, numbered(16))
            assert bodies(await take(one, 16)) == numbered(16)
            assert await one.commit() == dict.fromkeys(queues, 2)
            assert await kept(site, queues) == [2] * 8
            async with two:
                await two.subscribe(site.topic)
                await soon(lambda: len(one.queues) == len(two.queues) == 4, "four queues each")
                assert one.queues | two.queues == set(queues)
                await fill(site, numbered(16, 16))
                mine, yours = await asyncio.gather(take(one, 8), take(two, 8))
                assert bodies(mine + yours) == numbered(16, 16)
                await asyncio.gather(one.commit(), two.commit())
            await soon(lambda: len(one.queues) == 8, "all queues again")
            await fill(site, numbered(8, 32))
            assert bodies(await take(one, 8)) == numbered(8, 32), "nothing twice, nothing lost"
        assert await kept(site, queues) == [4] * 8, "what was not asked beyond is not dealt with"

    run(main())


def test_d10_pull_consumers_are_assigned_queues_and_seek_in_them(site: Site) -> None:
    async def main() -> None:
        queues = site.queues()
        north, south = queues[0], queues[4]
        await fill(site, numbered(40))
        async with site.pull_consumer() as consumer:
            await consumer.assign([north, south])
            with pytest.raises(StateError, match="has assigned queues"):
                await consumer.subscribe(site.topic)
            first = await take(consumer, 10)
            assert {message.queue for message in first} == {north, south}
            assert (await consumer.bounds(north)).end == 5
            assert await consumer.seek(north, 3) == {north: 3}
            assert [(m.queue, m.offset) for m in await take(consumer, 2)] == [
                (north, 3),
                (north, 4),
            ]
            in_south = [message for message in first if message.queue == south]
            await consumer.seek(south, in_south[2].stored_at)
            (again,) = await consumer.poll(1)
            assert again.queue == south
            assert again.stored_at == in_south[2].stored_at
            assert await consumer.seek([north, south], "earliest") == {north: 0, south: 0}
            assert bodies(await take(consumer, 10)) == bodies(first)
            assert await consumer.seek([north, south], "latest") == {north: 5, south: 5}
            assert await consumer.poll(timeout=0.3) == []
            await consumer.commit({north: 4})
            assert await consumer.seek(north, "committed") == {north: 4}
            assert [message.offset for message in await take(consumer, 1)] == [4]
            assert await kept(site, [north]) == [4]

    run(main())


def test_d10_pull_consumers_pause_and_go_on(site: Site) -> None:
    async def main() -> None:
        queues = site.queues()
        async with site.pull_consumer(topics=site.topic) as consumer:
            await soon(lambda: consumer.queues == set(queues), "all queues")
            consumer.pause(*queues[:4])
            await fill(site, numbered(8))
            assert {message.queue for message in await take(consumer, 4)} == set(queues[4:])
            assert await consumer.poll(timeout=0.3) == []
            consumer.resume(queues[0])
            assert [message.queue for message in await take(consumer, 1)] == [queues[0]]
            consumer.resume()
            assert {message.queue for message in await take(consumer, 3)} == set(queues[1:4])

    run(main())
