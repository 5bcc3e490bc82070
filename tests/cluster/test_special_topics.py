"""Topics that are more than a row of messages: light queues, and topics of one type."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import gantrymq as gantry
from gantrymq.errors import InvalidInput, SendFailed
from gantrymq.model import Message, ReceivedMessage
from tests.cluster.threads import Platform, platform


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Platform]:
    with platform(tmp_path) as running:
        yield running


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_light_queues_are_sent_to_read_and_consumed(here: Platform) -> None:
    here.topic("orders", 4)
    got: list[ReceivedMessage] = []
    with (
        gantry.Producer(here.url) as producer,
        gantry.Reader(here.url) as reader,
        gantry.Consumer(
            here.url, group="lights", topics="%LMQ%anna", handler=got.append, start="earliest"
        ),
    ):
        for n in range(6):
            owners = ["anna", "bert"] if n % 3 == 0 else ["bert"]
            producer.send("orders", b"%d" % n, light_queues=owners)
        until(lambda: len(got) == 2)
        found = list(reader.messages("%LMQ%bert"))
        assert [one.body for one in found] == [b"%d" % n for n in range(6)]
        assert [one.offset for one in found] == list(range(6))
        assert [one.body for one in got] == [b"0", b"3"]
        assert {(one.queue.topic, one.queue.queue_id, one.offset) for one in got} == {
            ("%LMQ%anna", 0, 0), ("%LMQ%anna", 0, 1),
        }  # fmt: skip
        producer.send("orders", b"6", light_queues=["anna"])
        until(lambda: len(got) == 3)
        for wrong in (["a,b"], ["a/b"], [""]):
            with pytest.raises(InvalidInput, match="light queue"):
                producer.send("orders", b"x", light_queues=wrong)
        with pytest.raises(InvalidInput, match="light queues"):
            producer.send_batch([Message("orders", b"x", light_queues=("a",))])


def test_a_topic_says_how_its_messages_are_sent(here: Platform) -> None:
    with (
        gantry.Admin(here.url) as admin,
        gantry.Producer(here.url, group="shop", checker=lambda _: True) as producer,
    ):
        admin.create_topic("steps", queues=4, message_type="FIFO")
        with pytest.raises(SendFailed, match=r"messages of type FIFO.*order_key=") as failed:
            producer.send("steps", b"one")
        assert failed.value.code == 13
        assert producer.send("steps", b"one", order_key="a").offset == 0
        admin.create_topic("deals", queues=4, message_type="TRANSACTION")
        with pytest.raises(SendFailed, match=r"producer\.transaction\("):
            producer.send("deals", b"one")
        with producer.transaction("deals", b"one"):
            pass
        admin.create_topic("urgent", queues=4, message_type="PRIORITY")
        queues = [producer.send("urgent", b"x", priority=n).queue.queue_id for n in (0, 2, 7)]
        assert queues == [0, 2, 3]
        with pytest.raises(InvalidInput, match="priority"):
            producer.send("urgent", b"x", priority=-1)
        with pytest.raises(InvalidInput, match="priorit"):
            producer.send_batch([Message("urgent", b"x", priority=1)])


def test_open_transactions_are_listed_by_age(tmp_path: Path) -> None:
    with (
        platform(tmp_path, count=2, transactions__immunity="60s") as here,
        gantry.Admin(here.url) as admin,
        gantry.Producer(here.url, group="shop", checker=lambda _: None) as producer,
        gantry.Producer(here.url, group="till", checker=lambda _: None) as other,
    ):
        here.topic("orders", 2)
        assert admin.open_transactions() == []
        halves = [producer.transaction("orders", b"%d" % n) for n in range(4)]
        for half in halves:
            half.__enter__()
        time.sleep(0.005)  # ages are told in milliseconds
        late = other.transaction("orders", b"late")
        late.__enter__()
        halves[1].commit()
        halves[2].rollback()
        open_ones = [halves[0], halves[3], late]

        def listed() -> bool:
            found = admin.open_transactions()
            return [one.message_id for one in found] == [
                one.receipt.message_id for one in open_ones
            ]

        until(listed)
        first, *_, last = admin.open_transactions()
        assert (first.topic, first.group, last.group) == ("orders", "shop", "till")
        assert (first.broker, first.half_offset) == (
            halves[0].receipt.queue.broker, halves[0].receipt.offset,
        )  # fmt: skip
        assert 0 <= last.age <= first.age < 60
        assert [one.group for one in admin.open_transactions(group="till")] == ["till"]
        assert len(admin.open_transactions(most=1)) == 1
        for half in open_ones:
            half.rollback()
        until(lambda: admin.open_transactions() == [])


def test_who_waits_for_too_long_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    with (
        platform(tmp_path, timers__longest="2d") as here,
        gantry.Producer(here.url) as producer,
        gantry.Reader(here.url) as reader,
    ):
        here.topic("orders", 1)
        taken = producer.send("orders", b"x", delay=timedelta(days=1, hours=23))
        assert taken.recall_handle is not None
        for how in (
            {"delay": timedelta(days=2, seconds=1)},
            {"deliver_at": datetime.now(UTC) + timedelta(days=3)},
        ):
            with pytest.raises(InvalidInput, match=r"due within 2 days, 0:00:00, as its brokers"):
                producer.send("orders", b"x", **how)  # type: ignore[arg-type]
        assert list(reader.messages("orders")) == []


def test_urgent_messages_overtake_those_that_wait(here: Platform) -> None:
    got: list[bytes] = []
    begun, go_on = threading.Event(), threading.Event()

    def handle(message: ReceivedMessage) -> None:
        begun.set()
        assert go_on.wait(20)
        got.append(message.body)

    with (
        gantry.Admin(here.url) as admin,
        gantry.Producer(here.url) as producer,
    ):
        admin.create_topic("urgent", queues=4, message_type="PRIORITY")
        with gantry.Consumer(
            here.url, group="nurses", topics="urgent", start="earliest", handler=handle,
            concurrency=1,
        ) as consumer:  # fmt: skip
            producer.send("urgent", b"first", priority=0)
            assert begun.wait(20)
            for n in range(20):
                producer.send("urgent", b"low %d" % n, priority=0)
            for n in range(3):
                producer.send("urgent", b"high %d" % n, priority=3)

            def held() -> int:
                info = admin.running_info("nurses", consumer.client_id)
                return sum(queue.cached for queue in info.queues.values())

            until(lambda: held() == 24)
            go_on.set()
            until(lambda: len(got) == 24)
    assert got[1:4] == [b"high 0", b"high 1", b"high 2"]
    assert got[4:] == [b"low %d" % n for n in range(20)]
