"""Simple consumers while a test lets time pass: what takes long, and what is never dealt with."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

import gantrymq
from gantrymq.errors import InvalidInput
from gantrymq.testing import kit


def test_a_message_is_hidden_for_as_long_as_somebody_is_at_it(gantry: kit.Gantry) -> None:
    with gantrymq.Producer(gantry.url, group="shop") as producer:
        producer.send("orders", b"a long one")
    with gantrymq.SimpleConsumer(
        gantry.url, group="billing", topics="orders", start="earliest"
    ) as consumer:
        (message,) = consumer.receive(wait=5.0)
        with consumer.renewing(message):
            gantry.clock.advance("5 min")
        assert consumer.receive(wait=0.0) == []
        gantry.clock.advance("40 s")
        (again,) = consumer.receive(wait=5.0)
        assert again.retries == 1
        consumer.ack(again)
        gantry.clock.advance("2 min")
        assert consumer.receive(wait=0.0) == []


async def test_what_is_never_dealt_with_ends_as_a_dead_letter(gantry: kit.AsyncGantry) -> None:
    async with gantrymq.AsyncProducer(gantry.url, group="shop") as producer:
        await producer.send("orders", b"nobody can bill this")
    async with gantrymq.AsyncSimpleConsumer(
        gantry.url, group="billing", topics="orders", start="earliest", max_retries=3
    ) as consumer:
        retries = []
        while found := await consumer.receive(wait=60.0):
            retries += [message.retries for message in found]
        assert retries == [0, 1, 2, 3]
    async with gantrymq.AsyncReader(gantry.url) as reader:
        (buried,) = [message async for message in reader.messages("%DLQ%billing")]
    assert buried.properties["GANTRY_DLQ_REASON"].startswith("it was received 4 times")


@pytest.mark.parametrize("start", [datetime(2026, 1, 1), "beginning"])
def test_where_a_group_that_pops_cannot_begin(start: object) -> None:
    with pytest.raises(InvalidInput, match=r"'earliest' or at 'latest'.*reset_offsets"):
        gantrymq.SimpleConsumer("rmq://nobody:1", group="g", start=start)  # type: ignore[arg-type]


@pytest.mark.parametrize("span", [0, -1.0, timedelta(days=4)])
def test_for_how_long_nothing_can_be_hidden(span: float | timedelta) -> None:
    with pytest.raises(InvalidInput, match="up to three days"):
        gantrymq.SimpleConsumer("rmq://nobody:1", group="g", start="latest", invisible_for=span)
