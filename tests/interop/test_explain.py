"""What became of a message is told alike on our servers and on RocketMQ's, and is what happened."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import jars
import pytest
from apache import Cluster
from gantry import Gantry
from peer import JavaPeer

import gantrymq as gantry
from gantrymq.flows.explanations import Explanation
from gantrymq.flows.verdicts import GroupVerdict, Role, State
from gantrymq.rules.redelivery import RetryPolicy

Where = Gantry | Cluster
_numbers: Final = itertools.count(1)


@pytest.fixture(scope="module")
def url(anywhere: Where) -> str:
    return f"rmq://{anywhere.name_server}"


@pytest.fixture(scope="module")
def admin(anywhere: Where, url: str) -> Iterator[gantry.Admin]:
    with gantry.Admin(url, timeout=10) as admin:
        if isinstance(anywhere, Cluster):
            admin.alter_broker_config("broker-a", {"enablePropertyFilter": "true"})
            if anywhere.version.startswith("5"):
                admin.alter_broker_config("broker-a", {"recallMessageEnable": "true"})
        yield admin


@pytest.fixture(scope="module")
def shop(url: str, admin: gantry.Admin) -> Iterator[gantry.Producer]:
    with gantry.Producer(url, group="explain-shop", trace=True) as shop:
        yield shop


@pytest.fixture
def topic(admin: gantry.Admin) -> str:
    name = f"explain-{next(_numbers)}"
    admin.create_topic(name, queues=1)
    return name


@contextmanager
def member(
    url: str,
    admin: gantry.Admin,
    group: str,
    topic: str | gantry.Subscription,
    handler: Callable[[gantry.ReceivedMessage], object] = lambda message: None,
    *,
    trace: bool = False,
    retry: RetryPolicy | None = None,
) -> Iterator[gantry.Consumer]:
    if group not in admin.list_groups().answers["broker-a"]:
        admin.create_group(group)
    consumer = gantry.Consumer(
        url,
        group=group,
        start="earliest",
        topics=[topic],
        handler=handler,
        trace=trace,
        retry=retry,
        close_timeout=1,
    )
    with consumer:
        yield consumer


def until(
    look: Callable[[], Explanation], group: str, state: State, *, traced: bool = False
) -> GroupVerdict:
    """How it is with a group, once it is like that, and `traced` if a trace is to say so."""
    deadline = time.monotonic() + 30
    while True:
        told = look()
        verdict = told.group(group)
        is_so = verdict is not None and verdict.state is state
        if verdict is not None and is_so and (verdict.acknowledged_ms is not None or not traced):
            return verdict
        assert time.monotonic() < deadline, f"never {state}:\n{told}"
        time.sleep(0.1)


def test_who_has_it_who_waits_and_who_does_not_want_it(
    url: str, admin: gantry.Admin, shop: gantry.Producer, topic: str
) -> None:
    go_on = threading.Event()
    slow, idle, other, sql = (f"{kind}-{topic}" for kind in ("slow", "idle", "other", "sql"))
    fitting = gantry.Subscription(topic, "amount > 3", "sql")
    unfit = gantry.Subscription(topic, "amount > 30", "sql")
    seen = threading.Event()
    with (
        member(url, admin, slow, topic, lambda message: go_on.wait(60)) as holder,
        member(url, admin, other, gantry.Subscription(topic, "red || blue")),
        member(url, admin, sql, fitting, lambda message: seen.set()),
        member(url, admin, f"un{sql}", unfit),
    ):
        sent = shop.send(topic, b"one", tag="green", keys="k1", properties={"amount": "7"})
        assert seen.wait(30)
        admin.create_group(idle)
        admin.reset_offsets(idle, topic, "earliest")

        def look() -> Explanation:
            return admin.explain(sent.message_id, topic=topic)

        try:
            verdict = until(look, slow, State.IN_FLIGHT)
            assert verdict.holders == [holder.client_id]
            assert "matched: it wants every tag" in verdict.why
            verdict = until(look, other, State.FILTERED)
            assert verdict.why == [
                "it wants tags blue || red; the message's is green; that is what it wants now"
            ]
            assert (
                until(look, f"un{sql}", State.FILTERED)
                .why[0]
                .startswith(
                    "it wants SQL92 amount > 30, for which the broker passes the message over"
                )
            )
            verdict = until(look, idle, State.WAITING)
            assert "nobody of the group is connected" in verdict.why
            assert any("it is the next" in line for line in verdict.why)
        finally:
            go_on.set()
        verdict = until(look, sql, State.ACKNOWLEDGED)  # by the member's word, then the broker's
        assert any("for which the broker gives it the message" in line for line in verdict.why)
        verdict = until(look, slow, State.PASSED)
        assert any("traces would tell" in line for line in verdict.unknown)
        text = str(look())
        assert f"message {sent.message_id} of {topic}, tag green, keys k1" in text
        assert f"stored in {topic}[broker-a:0] @ 0" in text
        by_place = admin.explain(sent.offset_id or "", topic=topic, group=slow)
        assert [one.group for one in by_place.groups] == [slow]


def test_retries_dead_letters_and_their_reasons(
    url: str, admin: gantry.Admin, shop: gantry.Producer, topic: str
) -> None:
    def fail(message: gantry.ReceivedMessage) -> None:
        raise LookupError("no such customer")

    group, before = f"fails-{topic}", time.time() * 1000
    retry = RetryPolicy(max_retries=1, delays=[timedelta(seconds=5)])
    with member(url, admin, group, topic, fail, retry=retry, trace=True):
        sent = shop.send(topic, b"one")

        def look() -> Explanation:
            return admin.explain(sent.message_id, topic=topic, group=group)

        verdict = until(look, group, State.RETRYING)
        assert verdict.retries == 1
        assert verdict.due_ms is not None
        assert 4_000 < verdict.due_ms - before < 60_000
        assert verdict.why[0].startswith(f"retry 1 of {verdict.most_retries}, at ")
        verdict = until(look, group, State.DEAD)
    assert verdict.retries == 1
    assert verdict.reason == "LookupError: no such customer"
    assert verdict.why[0].startswith("after 1 retry, at ")
    assert f"%DLQ%{group}[broker-a:0] @ 0" in verdict.why[0]


def test_a_trace_says_when(
    url: str, admin: gantry.Admin, shop: gantry.Producer, topic: str
) -> None:
    failed = threading.Event()

    def once(message: gantry.ReceivedMessage) -> None:
        if not failed.is_set():
            failed.set()
            raise LookupError("not yet")

    group, before = f"traced-{topic}", time.time() * 1000
    retry = RetryPolicy(delays=[timedelta(seconds=1)])
    with member(url, admin, group, topic, once, retry=retry, trace=True):
        sent = shop.send(topic, b"one")
        verdict = until(
            lambda: admin.explain(sent.message_id, topic=topic),
            group,
            State.ACKNOWLEDGED,
            traced=True,
        )
        assert verdict.acknowledged_ms is not None
        assert before < verdict.acknowledged_ms < time.time() * 1000
        assert "consumed at retry 1 at " in verdict.why[0]
    told = admin.trace(sent.message_id)
    assert told.topic == topic
    assert [one.succeeded for one in told.deliveries[group]] == [False, True]
    lines = str(told).splitlines()
    assert lines[0] == f"{sent.message_id} of {topic}"
    assert " sent by explain-shop, 3 bytes, to " in lines[1]
    assert lines[2] == f"└─ {group}: consumed at the 2nd delivery"
    assert " delivered, raised an error after " in lines[3]
    assert " delivered again (retry 1), consumed in " in lines[4]
    assert str(admin.trace(sent.offset_id or "", topic=topic)) == str(told)


@pytest.mark.parametrize("version", jars.VERSIONS)
def test_what_javas_consumers_tell_is_read(
    anywhere: Where,
    url: str,
    admin: gantry.Admin,
    shop: gantry.Producer,
    topic: str,
    version: str,
    peers: Callable[[str], JavaPeer],
) -> None:
    if anywhere.version not in ("ours", version):
        return  # RocketMQ's clients of one release with its brokers of another are its own matter
    java, name = peers(version), f"told-{topic}"
    consumer = {"kind": "push", "name": name, "group": name, "topic": topic, "expression": "*"}
    server = url.removeprefix("rmq://")
    java.ask("consumer.start", [consumer | {"name_server": server, "trace": True}])
    try:
        sent = shop.send(topic, b"one")
        (taken,) = java.ask("consumer.take", [{"name": name, "count": 1, "wait_ms": 45_000}])
        assert len(taken) == 1
        verdict = until(
            lambda: admin.explain(sent.message_id, topic=topic),
            name,
            State.ACKNOWLEDGED,
            traced=True,
        )
    finally:
        java.ask("consumer.stop", [{"name": name}])
    assert verdict.why[0].endswith("as its trace tells")
    told = admin.trace(sent.message_id)
    assert [one.group for one in told.sends] == ["explain-shop"]
    (delivery,) = told.deliveries[name]
    assert (delivery.succeeded, delivery.retries) == (True, 0)


def test_what_waits_for_its_time(
    anywhere: Where, admin: gantry.Admin, shop: gantry.Producer, topic: str
) -> None:
    by_level = shop.send(topic, b"later", delay_level=9)
    told = admin.explain(by_level.message_id, topic=topic)
    (copy,) = told.copies
    assert (copy.role, told.topic, told.groups) == (Role.DELAYED, topic, [])
    assert copy.due_ms is not None
    assert 290_000 < copy.due_ms - copy.stored_ms <= 300_000
    if anywhere.version.startswith("4"):
        return
    timed = shop.send(topic, b"later", delay=timedelta(minutes=10))
    (copy,) = admin.explain(timed.message_id).copies
    assert copy.role is Role.TIMED
    assert copy.due_ms is not None
    assert 595_000 < copy.due_ms - copy.stored_ms < 605_000
    assert timed.recall_handle is not None
    shop.recall(timed.recall_handle)
    deadline = time.monotonic() + 20
    while len((told := admin.explain(timed.message_id)).copies) < 2:
        assert time.monotonic() < deadline, told
        time.sleep(0.1)
    assert [one.role for one in told.copies] == [Role.TIMED, Role.RECALL]
    assert told.copies[0].note == "taken back: it is never delivered"


def test_transactions(anywhere: Where, url: str, admin: gantry.Admin) -> None:
    topic = f"explain-{next(_numbers)}"
    kind = {} if anywhere.version.startswith("4") else {"message_type": "TRANSACTION"}
    admin.create_topic(topic, queues=1, **kind)
    with gantry.Producer(url, group="explain-tx", checker=lambda message: None) as shop:
        with shop.transaction(topic, b"yes") as committed:
            committed_id = committed.receipt.message_id
        told = admin.explain(committed_id, topic=topic)
        assert [one.role for one in told.copies] == [Role.HALF, Role.MESSAGE]
        assert told.copies[0].note == "committed"
        with pytest.raises(LookupError), shop.transaction(topic, b"no") as dropped:
            open_now = admin.explain(dropped.receipt.message_id)
            raise LookupError
        (half,) = open_now.copies
        assert half.role is Role.HALF
        assert (half.note or "").startswith("open, or decided within the last ")
        if anywhere.version.startswith("4"):
            return  # it lets nobody read its notes, and looks at them once a minute
        deadline = time.monotonic() + 30  # a note of it is written some seconds later
        while True:
            (half,) = admin.explain(dropped.receipt.message_id).copies
            if (half.note or "").startswith("rolled back"):
                break
            assert time.monotonic() < deadline, half.note
            time.sleep(0.2)
