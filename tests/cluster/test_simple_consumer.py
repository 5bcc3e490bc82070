"""Simple consumers against a name server and two brokers, in both forms."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from gantrymq.client.reader import Reader
from gantrymq.client.simple_consumer import AsyncSimpleConsumer, PoppedMessage, SimpleConsumer
from gantrymq.client.sync_producer import Producer
from gantrymq.errors import ClosedError, ConnectFailed, InvalidInput, NoRoute, StateError
from gantrymq.net import aio
from gantrymq.protocol.statistics import GetConsumeStats
from tests.cluster.threads import Platform, ask, platform

_NUMBERS = count()


class Either:
    """A consumer of either form, as one that blocks."""

    def __init__(self, kind: str, url: str, **how: Any) -> None:
        self._runner = asyncio.Runner(loop_factory=aio.loop_factory())

        async def made() -> AsyncSimpleConsumer:
            return AsyncSimpleConsumer(url, **how)

        self._of: Any = SimpleConsumer(url, **how) if kind == "sync" else self._runner.run(made())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            result = getattr(self._of, name)(*args, **options)
            return self._runner.run(result) if inspect.isawaitable(result) else result

        return call

    @contextmanager
    def renewing(self, *messages: PoppedMessage, **how: Any) -> Iterator[Callable[[float], None]]:
        """The block, and how to let time pass in it."""
        block = self._of.renewing(*messages, **how)
        if isinstance(block, AbstractContextManager):
            with block:
                yield time.sleep
            return
        self._runner.run(block.__aenter__())
        try:
            yield lambda seconds: self._runner.run(asyncio.sleep(seconds))
        finally:
            self._runner.run(block.__aexit__(None, None, None))

    def end(self) -> None:
        self.close()
        self._runner.close()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(tmp_path_factory.mktemp("platform"), count=2) as running:
        yield running


@pytest.fixture
def topic(here: Platform) -> str:
    name = f"orders_{next(_NUMBERS)}"
    here.topic(name, 2)
    for to in range(2):
        for queue_id in range(2):
            bodies = [b"%d-%d-%d" % (to, queue_id, n) for n in range(5)]
            here.send(name, queue_id, bodies, to=to, TAGS="red" if queue_id else "blue")
    return name


@pytest.fixture
def make(
    request: pytest.FixtureRequest, here: Platform, topic: str
) -> Iterator[Callable[..., Either]]:
    made: list[Either] = []

    def one(kind: str, **how: Any) -> Either:
        usual = {"group": f"of_{topic}", "topics": topic, "start": "earliest"}
        made.append(Either(kind, here.url, **(usual | how)))
        return made[-1]

    yield one
    for each in made:
        each.end()


both = pytest.mark.parametrize("kind", ["sync", "async"])


def all_of(consumer: Either, number: int) -> list[PoppedMessage]:
    found: list[PoppedMessage] = []
    while len(found) < number and (more := consumer.receive(wait=5.0)):
        found += more
    return found


@both
def test_messages_of_all_brokers_are_received_once_and_counted(
    make: Callable[..., Either], here: Platform, topic: str, kind: str
) -> None:
    consumer = make(kind)
    found = all_of(consumer, 20)
    assert len({one.body for one in found}) == len(found) == 20
    assert {one.broker for one in found} == {"broker-a", "broker-b"}
    consumer.ack(*found)
    assert consumer.receive(wait=0.0) == []
    deadline = time.monotonic() + 5
    behind = {1}
    while behind != {0} and time.monotonic() < deadline:
        stats = ask(here, GetConsumeStats(group=f"of_{topic}", topic=topic))
        behind = {one.broker_offset - one.consumer_offset for one in stats.queues.values()}
    assert behind == {0}


@both
def test_nacked_messages_come_again_and_renewed_ones_do_not(
    make: Callable[..., Either], kind: str
) -> None:
    consumer = make(kind, invisible_for=timedelta(seconds=3))
    slow, quick, back = all_of(consumer, 20)[:3]
    with consumer.renewing(slow, quick) as pass_time:
        consumer.nack(back)
        consumer.ack(quick)
        pass_time(3.6)
    consumer.ack(slow)
    again = all_of(consumer, 18)
    assert len(again) == 18
    assert {one.retries for one in again} == {1}
    assert back.body in {one.body for one in again}
    assert not {slow.body, quick.body} & {one.body for one in again}


@both
def test_a_renewal_has_an_end(make: Callable[..., Either], kind: str) -> None:
    consumer = make(kind, invisible_for=0.6)
    (message,) = consumer.receive(1)
    with consumer.renewing(message, at_most=0.5) as pass_time:
        pass_time(1.3)
        assert message.body in {one.body for one in all_of(consumer, 20)}


@both
def test_filters_and_topics_change(make: Callable[..., Either], topic: str, kind: str) -> None:
    consumer = make(kind)
    consumer.subscribe(topic, tags="red")
    found = all_of(consumer, 10)
    assert ({one.tag for one in found}, len(found)) == ({"red"}, 10)
    consumer.unsubscribe(topic)
    with pytest.raises(StateError, match="has no topic"):
        consumer.receive()


@both
def test_names_are_those_of_a_namespace(here: Platform, kind: str) -> None:
    url, topic = f"{here.url}/shop", f"spaced_{kind}"
    with Producer(url, group="till") as producer:
        producer.send(topic, b"one")
    consumer = Either(kind, url, group=f"billing_{kind}", topics=topic, start="earliest")
    (first,) = consumer.receive(wait=5.0)
    consumer.nack(first)
    (again,) = consumer.receive(wait=5.0)
    assert (first.topic, again.topic, again.retries) == (topic, topic, 1)
    assert again.asked_topic == f"shop%{topic}"
    consumer.give_up(again, "no till")
    assert consumer.receive(wait=0.0) == []
    consumer.end()
    with Reader(url) as reader:
        (buried,) = reader.messages(f"%DLQ%billing_{kind}", None, None)
        assert buried.body == b"one"


@both
def test_what_went_wrong_is_said(make: Callable[..., Either], kind: str) -> None:
    nowhere = make(kind, topics="nowhere_at_all")
    with pytest.raises(NoRoute, match="nowhere_at_all"):
        nowhere.receive(wait=0.1)
    consumer = make(kind)
    with pytest.raises(InvalidInput, match="limit=0"):
        consumer.receive(0)
    consumer.close()
    with pytest.raises(ClosedError, match="SimpleConsumer was closed"):
        consumer.receive()
    alone = Either(kind, "rmq://127.0.0.1:1", group="g", topics="t", start="latest")
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
        alone.receive(wait=0.6)
    alone.end()
