"""The simple consumer against brokers that know POP, and against one that does not."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

import jars
import pytest
from apache import Cluster
from gantry import Gantry

import gantrymq as gantry
from gantrymq.errors import InvalidInput, NotSupported
from gantrymq.net import aio

WHOLE: Final = 60.0
_NUMBERS: Final = count()


each_once = pytest.mark.parametrize(
    ("kind", "name_server"), [("sync", "ours"), ("async", jars.CURRENT)], indirect=True
)
"""Each face and each server, and not each with each: for what takes its time."""


class Either:
    """A consumer of either face, as one that blocks."""

    def __init__(self, kind: str, name_server: str, how: dict[str, Any]) -> None:
        url = f"rmq://{name_server}"
        self._runner = asyncio.Runner(loop_factory=aio.loop_factory())
        self._of: Any = (
            gantry.SimpleConsumer(url, **how)
            if kind == "sync"
            else self._runner.run(self._made(url, how))
        )

    async def _made(self, url: str, how: dict[str, Any]) -> gantry.AsyncSimpleConsumer:
        return gantry.AsyncSimpleConsumer(url, **how)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._of, name)

        def call(*args: Any, **options: Any) -> Any:
            result = method(*args, **options)
            return self._runner.run(result) if inspect.isawaitable(result) else result

        return call

    @contextmanager
    def renewing(self, *messages: Any) -> Iterator[Callable[[float], None]]:
        """The block, and how to let time pass in it."""
        block = self._of.renewing(*messages)
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


@pytest.fixture(params=["sync", "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["ours", jars.CURRENT])
def name_server(request: pytest.FixtureRequest) -> str:
    if request.param == "ours":
        ours: Gantry = request.getfixturevalue("ours")
        return ours.name_server
    clusters: Callable[[str], Cluster] = request.getfixturevalue("clusters")
    return clusters(request.param).name_server


@pytest.fixture
def topic(kind: str) -> str:
    return f"popped_{next(_NUMBERS)}_{kind}_{time.time_ns()}"


@pytest.fixture
def make(kind: str, name_server: str, topic: str) -> Iterator[Callable[..., Either]]:
    made: list[Either] = []

    def one(**how: Any) -> Either:
        start = {"group": f"of_{topic}", "topics": topic, "start": "earliest"}
        made.append(Either(kind, name_server, start | how))
        return made[-1]

    yield one
    for each in made:
        each.end()


def send(name_server: str, topic: str, number: int) -> set[bytes]:
    bodies = [b"order %d" % n for n in range(number)]
    with gantry.Producer(f"rmq://{name_server}", group="shop") as producer:
        for n, body in enumerate(bodies):
            producer.send(topic, body, tag="even" if n % 2 == 0 else "odd")
    return {*bodies}


def all_of(consumer: Either, number: int, **how: Any) -> list[Any]:
    """So many messages, or as many as come within the time of a test."""
    found: list[Any] = []
    deadline = time.monotonic() + WHOLE
    while len(found) < number and time.monotonic() < deadline:
        found += consumer.receive(wait=2.0, **how)
    return found


def test_everything_is_received_once_and_by_one_member(
    make: Callable[..., Either], name_server: str, topic: str
) -> None:
    sent = send(name_server, topic, 20)
    one, other = make(), make()
    first = one.receive(7)
    rest = all_of(other, 20 - len(first))
    assert 0 < len(first) <= 7
    assert {message.body for message in first} | {message.body for message in rest} == sent
    assert len(first) + len(rest) == 20
    one.ack(*first)
    other.ack(*rest)
    assert one.receive(wait=0.0) == []
    message = first[0]
    assert (message.topic, message.retries) == (topic, 0)
    assert 20 < (message.hidden_until - datetime.now(UTC)).total_seconds() <= 30


@each_once
def test_what_is_not_acknowledged_comes_again_and_what_was_does_not(
    make: Callable[..., Either], name_server: str, topic: str
) -> None:
    sent = send(name_server, topic, 4)
    consumer = make(invisible_for=4.0)
    first = all_of(consumer, 4)
    kept = first.pop()
    consumer.ack(*first)
    (again,) = all_of(consumer, 1)
    assert {message.body for message in (*first, kept)} == sent
    assert (again.body, again.topic, again.retries) == (kept.body, topic, 1)
    consumer.nack(again)
    (third,) = all_of(consumer, 1)
    assert (third.body, third.retries) == (kept.body, 2)
    consumer.ack(third)
    assert consumer.receive(wait=4.5) == []


@each_once
def test_a_message_stays_hidden_while_it_is_renewed(
    make: Callable[..., Either], name_server: str, topic: str
) -> None:
    send(name_server, topic, 2)
    consumer, other = make(invisible_for=3.0), make()
    slow, quick = all_of(consumer, 2)
    before = str(slow.handle)
    with consumer.renewing(slow, quick) as pass_time:
        consumer.ack(quick)
        pass_time(4.5)
    assert str(slow.handle) != before
    assert other.receive(wait=0.0) == []
    consumer.change_invisibility(slow, 30.0)
    consumer.ack(slow)


@each_once
def test_what_is_given_up_lies_in_the_dead_letter_topic(
    make: Callable[..., Either], name_server: str, topic: str, kind: str
) -> None:
    send(name_server, topic, 2)
    consumer = make(invisible_for=2.0, max_retries=0)
    first, second = all_of(consumer, 2)
    consumer.give_up(first, "no such customer")
    # the other one comes again, which is once too often; RocketMQ takes its time with that
    assert consumer.receive(wait=4.0 if kind == "sync" else 8.0) == []
    with gantry.Reader(f"rmq://{name_server}") as reader:
        buried = {
            message.body: message.properties["GANTRY_DLQ_REASON"]
            for message in reader.messages(f"%DLQ%of_{topic}")
        }
    assert buried == {
        first.body: "no such customer",
        second.body: "it was received 1 times, and never acknowledged",
    }


def test_only_some_tags_and_several_topics(
    make: Callable[..., Either], name_server: str, topic: str
) -> None:
    send(name_server, topic, 6)
    send(name_server, f"{topic}_too", 2)
    consumer = make()
    consumer.subscribe(topic, tags="odd")
    consumer.subscribe(f"{topic}_too")
    found = all_of(consumer, 5)
    consumer.ack(*found)
    assert sorted((message.topic, message.body) for message in found) == [
        *((topic, b"order %d" % n) for n in (1, 3, 5)),
        *((f"{topic}_too", b"order %d" % n) for n in (0, 1)),
    ]
    consumer.unsubscribe(topic)
    consumer.unsubscribe(f"{topic}_too")
    with pytest.raises(gantry.errors.StateError, match="has no topic"):
        consumer.receive()


def test_a_receive_that_waits_gets_what_comes(
    make: Callable[..., Either], name_server: str, topic: str
) -> None:
    send(name_server, topic, 1)
    consumer = make()
    consumer.ack(*all_of(consumer, 1))
    with gantry.Producer(f"rmq://{name_server}", group="shop") as producer:
        later = threading.Timer(0.5, producer.send, (topic, b"later"))
        later.start()
        began = time.monotonic()
        (message,) = consumer.receive(wait=15.0)
        later.join()
    consumer.ack(message)
    assert message.body == b"later"
    assert time.monotonic() - began < 10


def test_places_that_popping_does_not_know_are_refused(make: Callable[..., Either]) -> None:
    with pytest.raises(InvalidInput, match=r"'earliest' or at 'latest'.*reset_offsets"):
        make(start=datetime.now(UTC))
    with pytest.raises(InvalidInput, match="up to three days"):
        make(invisible_for=0)


def test_a_broker_of_4_says_what_to_use_instead(
    clusters: Callable[[str], Cluster], kind: str, topic: str
) -> None:
    old = clusters(jars.VERSIONS[0] if jars.VERSIONS[0] != jars.CURRENT else jars.VERSIONS[1])
    send(old.name_server, topic, 1)
    how = {"group": f"of_{topic}", "topics": topic, "start": "earliest"}
    consumer = Either(kind, old.name_server, how)
    try:
        with pytest.raises(NotSupported, match=r"since 5\.0.*PullConsumer"):
            consumer.receive(wait=1.0)
    finally:
        consumer.end()


def test_a_broker_that_is_killed_forgets_nothing_that_was_popped() -> None:
    topic = f"killed_{time.time_ns()}"
    with Gantry() as server:
        sent = send(server.name_server, topic, 12)
        how = {"group": f"of_{topic}", "topics": topic, "start": "earliest"}
        consumer = Either("sync", server.name_server, how)
        try:
            dealt_with = all_of(consumer, 8, limit=4)
            consumer.ack(*dealt_with)
            forgotten = all_of(consumer, 12 - len(dealt_with), invisible_for=8.0)
            server.kill()
            server.start()
            again = all_of(consumer, len(forgotten), invisible_for=60.0)
        finally:
            consumer.end()
    assert {one.body for one in dealt_with} | {one.body for one in forgotten} == sent
    assert sorted(one.body for one in again) == sorted(one.body for one in forgotten)
    assert {one.retries for one in again} == {1}
