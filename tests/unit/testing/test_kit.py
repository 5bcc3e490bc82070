"""The test kit, used as programs' tests use it: through the fixture that comes with the package."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import gantrymq
from gantrymq.errors import SendFailed, StateError
from gantrymq.testing import kit

RETRY_TWICE = gantrymq.RetryPolicy(max_retries=2)


def fails(message: gantrymq.ReceivedMessage) -> None:
    raise ValueError("no")


def test_what_was_published_is_asked_for(gantry: kit.Gantry) -> None:
    with gantry.producer() as producer:
        producer.send(
            "orders", b'{"cups": 2}', tag="drinks", keys=("k1",), properties={"shop": "north"}
        )
        producer.send("orders", b"coffee")
    gantry.assert_published("orders", count=2)
    gantry.assert_published("orders", {"cups": 2}, tag="drinks", key="k1", shop="north", count=1)
    gantry.assert_published("orders", "coffee", where=lambda message: message.tag is None)
    gantry.assert_nothing_published("refunds")
    with pytest.raises(AssertionError, match=r"(?s)at least one in orders \(body=b'tea'\).*coffee"):
        gantry.assert_published("orders", b"tea")


def test_retries_come_when_time_passes(gantry: kit.Gantry) -> None:
    seen: list[int] = []

    def handle(message: gantrymq.ReceivedMessage) -> None:
        seen.append(message.retries)
        if message.retries < 3:
            raise ValueError("not yet")

    with gantry.producer() as producer, gantry.consumer("billing", topics="orders", handler=handle):
        producer.send("orders", b"coffee")
        gantry.settle("billing")
        assert seen == [0]
        gantry.clock.advance("16 min")
    assert seen == [0, 1, 2, 3]


def test_what_fails_too_often_is_a_dead_letter(gantry: kit.Gantry) -> None:
    with (
        gantry.producer() as producer,
        gantry.consumer("billing", topics="orders", handler=fails, retry=RETRY_TWICE),
    ):
        producer.send("orders", b"coffee")
        gantry.clock.advance(timedelta(minutes=20))
    assert [letter.body for letter in gantry.dead_letters("billing")] == [b"coffee"]


def test_a_wait_takes_no_time_but_lasts_as_long(gantry: kit.Gantry) -> None:
    began = gantry.clock.now()
    with gantry.producer() as producer, gantry.pull_consumer("billing", topics="orders") as pulling:
        producer.send("orders", b"later", delay=timedelta(minutes=10))
        assert pulling.poll(timeout=540) == []
        assert gantry.clock.now() - began >= timedelta(minutes=9)
        gantry.clock.advance("1 min")
        assert [message.body for message in pulling.poll(timeout=5)] == [b"later"]


def test_a_broker_that_is_killed_comes_back_with_what_it_wrote(gantry: kit.Gantry) -> None:
    with gantry.producer() as producer:
        producer.send("orders", b"before")
        gantry.kill()
        with pytest.raises(SendFailed):
            producer.send("orders", b"meanwhile")
        gantry.restart()
        gantry.clock.advance("5 s")  # clients leave alone for a while what refused them
        producer.send("orders", b"after")
    assert [message.body for message in gantry.published("orders")] == [b"before", b"after"]


def test_a_partition_ends(gantry: kit.Gantry) -> None:
    with gantry.producer() as producer:
        producer.send("orders", b"before")
        with gantry.partition(), pytest.raises(SendFailed) as failed:
            producer.send("orders", b"meanwhile")
        assert failed.value.maybe_stored
        producer.send("orders", b"after")
    assert {b"before", b"after"} <= {message.body for message in gantry.published("orders")}


@pytest.mark.gantry(brokers=("north", "south"), settings={"topics.queues": 2})
def test_the_marker_says_how_it_is_made(gantry: kit.Gantry) -> None:
    with gantry.producer() as producer, gantry.admin() as admin:
        producer.send("orders", b"coffee")
        assert {broker.name for broker in admin.list_brokers()} == {"north", "south"}
        assert len(admin.topic_status("orders").queues) in (2, 4)
    with pytest.raises(ValueError, match="no broker None; there are north, south"):
        gantry.kill()


async def test_the_same_awaited(gantry: kit.AsyncGantry) -> None:
    got: list[bytes] = []

    async def handle(message: gantrymq.ReceivedMessage) -> None:
        got.append(message.body)

    async with (
        gantry.producer(group="shop", checker=lambda message: True) as producer,
        gantry.consumer("billing", topics="orders", handler=handle),
    ):
        async with producer.transaction("orders", b"coffee"):
            await gantry.assert_nothing_published("orders")
        await gantry.settle("billing")
        assert got == [b"coffee"]
        await producer.send("orders", b"tea", delay=timedelta(minutes=16))
        await gantry.clock.advance("16 min")
        assert got == [b"coffee", b"tea"]


async def test_a_fault_awaited(gantry: kit.AsyncGantry) -> None:
    async with gantry.producer() as producer:
        await producer.send("orders", b"before")
        async with gantry.partition():
            with pytest.raises(SendFailed):
                await producer.send("orders", b"meanwhile")
        await gantry.kill()
        await gantry.restart()
        await gantry.clock.advance("5 s")
        await producer.send("orders", b"after")
    await gantry.assert_published("orders", b"before", count=1)
    await gantry.assert_published("orders", b"after", count=1)


async def test_blocking_clients_are_told_where_to_go(gantry: kit.AsyncGantry) -> None:
    with pytest.raises(StateError, match="AsyncProducer"):
        gantrymq.Producer(gantry.url).start()


def test_a_program_finds_it_by_its_url(gantry: kit.Gantry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANTRY_URL", gantry.url)

    async def program() -> None:
        async with gantrymq.AsyncProducer() as producer:
            await producer.send("orders", b"from elsewhere")

    with pytest.raises(StateError, match="runs on a thread of its own"):
        asyncio.run(program())
    with gantrymq.Producer() as producer:
        producer.send("orders", b"coffee")
    gantry.assert_published("orders", b"coffee", count=1)


@pytest.mark.parametrize("name", ["one", "two"])
def test_every_test_has_its_own(gantry: kit.Gantry, name: str) -> None:
    gantry.assert_nothing_published("orders")
    with gantry.producer() as producer:
        producer.send("orders", name.encode())
    gantry.assert_published("orders", name, count=1)
