"""RocketMQ's own clients at our servers: transactions, messages for later, SQL92, traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

import pytest
from conftest import or_skip
from gantry import Gantry
from peer import JavaPeer
from test_broker_groups_java import Mortal
from traffic import Traffic, bodies

import gantrymq as gantry
from gantrymq.wire import properties as names

_NAMES: Final = count()
_LATE_MS: Final = 1500
"""How late something may be that is due, on a machine that runs a JVM and a broker."""

COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"
"""RocketMQ: LocalTransactionState."""

EXPRESSIONS: Final = {
    "price > 10 AND color = 'red'": [b"11 red", b"12 red"],
    "color IN ('blue') OR price BETWEEN 9 AND 10": [b"10 blue", b"11 blue", b"12 blue", b"10 red"],
    "color IS NULL": [b"nothing said"],
}


class Java:
    """Clients of one release, in one JVM, at our servers."""

    def __init__(self, peer: JavaPeer, at: Gantry) -> None:
        self.peer = peer
        self.traffic = Traffic(peer, at)
        self.at = {"name_server": at.name_server}

    def producer(self, name: str, group: str, **how: Any) -> None:
        self.peer.ask("producer.start", [{"name": name, "group": group} | how | self.at])

    def transact(
        self, name: str, topic: str, messages: list[dict[str, Any]], *, lose: bool = False
    ) -> list[dict[str, Any]]:
        item = {"name": name, "topic": topic, "messages": messages, "lose": lose}
        (sent,) = self.peer.ask("producer.transact", [item])
        found: list[dict[str, Any]] = sent
        assert {one["status"] for one in found} == {"SEND_OK"}
        return found

    def asked(self, name: str) -> list[dict[str, Any]]:
        (found,) = self.peer.ask("producer.asked", [{"name": name}])
        asked: list[dict[str, Any]] = found
        return asked

    def send(self, name: str, topic: str, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        (sent,) = self.peer.ask(
            "producer.send", [{"name": name, "topic": topic, "messages": messages}]
        )
        found: list[dict[str, Any]] = sent
        return found

    def stop(self, name: str) -> None:
        self.peer.ask("producer.stop", [{"name": name}])

    def taken(self, topic: str, wanted: int) -> list[dict[str, Any]]:
        """What a consumer group that is new gets of a topic."""
        name = name_for("taker")
        self.traffic.start("push", name, topic)
        found = self.traffic.take(name, wanted)
        found += self.traffic.take(name, 1, wait_ms=300)
        self.traffic.stop(name)
        return found


@pytest.fixture(scope="module")
def running() -> Iterator[Gantry]:
    with Gantry("transactions.interval=1s", "transactions.immunity=1s") as running:
        yield running


@pytest.fixture
def java(version: str, peers: Callable[[str], JavaPeer], running: Gantry) -> Java:
    return Java(peers(version), running)


@pytest.fixture
def topic(running: Gantry) -> str:
    name = name_for("features")
    with gantry.Admin(name_servers=running.name_server, timeout=20) as admin:
        admin.create_topic(name, queues=2)
    return name


def name_for(what: str) -> str:
    return f"{what}_{next(_NAMES)}"


def half(body: bytes, local: str, answer: str = UNKNOWN) -> dict[str, Any]:
    """A message, how its transaction ends, and what is said when the broker asks."""
    return {"body": body, "keys": "k", "local": local, "properties": {"answer": answer}}


def until(condition: Callable[[], object], what: str, seconds: float = 40) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not after {seconds:g}s"
        time.sleep(0.05)


# --- transactions ---------------------------------------------------------------------------------


def test_transactions_end_as_decided_and_are_asked_after_if_that_is_lost(
    java: Java, topic: str
) -> None:
    name = name_for("deciding")
    java.producer(name, f"g_{name}")
    sent = java.transact(
        name, topic, [half(b"committed", COMMIT), half(b"rolled back", ROLLBACK)]
    ) + java.transact(
        name,
        topic,
        [half(b"found good", UNKNOWN, COMMIT), half(b"found bad", UNKNOWN, ROLLBACK)],
    )
    lost = java.transact(
        name,
        topic,
        [half(b"commit lost", COMMIT, COMMIT), half(b"rollback lost", ROLLBACK, ROLLBACK)],
        lose=True,
    )
    assert all(one["transaction_id"] == one["unique_id"] for one in sent + lost)
    asked: dict[bytes, dict[str, Any]] = {}

    def all_asked() -> bool:
        asked.update({bytes(one["body"]): one for one in java.asked(name)})
        return asked.keys() >= {b"found good", b"found bad", b"commit lost", b"rollback lost"}

    until(all_asked, "the broker asks after four of them")
    assert asked.keys() == {b"found good", b"found bad", b"commit lost", b"rollback lost"}
    assert {one["topic"] for one in asked.values()} == {topic}
    found = java.taken(topic, 3)
    assert sorted(bodies(found)) == [b"commit lost", b"committed", b"found good"]
    java.stop(name)


def test_another_member_of_the_group_is_asked_when_the_producer_is_dead(
    java: Java, topic: str
) -> None:
    group, heir = name_for("g"), name_for("heir")
    with or_skip(lambda: Mortal(java.peer.version)) as peer:
        mortal = Java(peer, java.traffic.gantry)  # type: ignore[arg-type]
        mortal.producer("testator", group)
        sent = mortal.transact(
            "testator",
            topic,
            [half(b"good", UNKNOWN, COMMIT), half(b"bad", COMMIT, ROLLBACK)],
            lose=True,
        )
        peer.kill()
    java.producer(heir, group)
    java.send(heir, topic, [{"body": b"hello", "properties": {}}])  # brokers do not know it before
    asked: set[bytes] = set()

    def both() -> bool:
        asked.update(bytes(one["body"]) for one in java.asked(heir))
        return asked == {b"good", b"bad"}

    until(both, "the heir is asked after both")
    found = {bytes(one["body"]): one["properties"]["UNIQ_KEY"] for one in java.taken(topic, 2)}
    assert found.keys() == {b"hello", b"good"}
    assert found[b"good"] == sent[0]["unique_id"]
    java.stop(heir)


# --- messages for later ---------------------------------------------------------------------------


def test_messages_come_at_their_time_and_not_if_they_are_taken_back(java: Java, topic: str) -> None:
    name, taker = name_for("later"), name_for("taker")
    java.producer(name, f"g_{name}")
    java.traffic.start("push", taker, topic)
    java.send(name, topic, [{"body": b"first", "properties": {}}])
    assert bodies(java.traffic.take(taker, 1)) == [b"first"]
    began = round(time.time() * 1000)
    how = {
        b"ms": {names.TIMER_DELAY_MS: "1500"},
        b"seconds": {names.TIMER_DELAY_SECONDS: "2"},
        b"at": {names.TIMER_DELIVER_MS: str(began + 3000)},
        b"recalled": {names.TIMER_DELAY_MS: "2500"},
        b"level": {names.DELAY: "1"},
    }
    sent = java.send(
        name, topic, [{"body": body, "properties": given} for body, given in how.items()]
    )
    one, expected = dict(zip(how, sent, strict=True))[b"recalled"], how.keys()
    if not java.peer.version.startswith("4."):  # which knows nothing of handles
        item = {"name": name, "topic": topic, "handle": one["recall_handle"]}
        assert java.peer.ask("producer.recall", [item]) == [one["unique_id"]]
        expected -= {b"recalled"}
    found = java.traffic.take(taker, len(expected))
    found += java.traffic.take(taker, 1, wait_ms=500)
    assert sorted(bodies(found)) == sorted(expected)
    due = {b"ms": 1500, b"seconds": 2000, b"level": 1000, b"recalled": 2500}
    for one in found:
        body = bytes(one["body"])
        late = one["store_time"] - (began + 3000 if body == b"at" else one["born_time"] + due[body])
        assert -5 <= late <= _LATE_MS, f"{body!r} was {late} ms late"
    java.traffic.stop(taker)
    java.stop(name)


def test_a_message_for_later_than_the_broker_allows_is_refused(java: Java, topic: str) -> None:
    name = name_for("too_late")
    java.producer(name, f"g_{name}")
    late = {names.TIMER_DELAY_MS: str(41 * 86_400_000)}
    item = {"name": name, "topic": topic, "messages": [{"body": b"x", "properties": late}]}
    ((done, text),) = java.peer.attempt("producer.send", [item])
    assert not done
    assert "CODE: 13" in text
    assert "timer message illegal" in text
    java.stop(name)


# --- SQL92 ----------------------------------------------------------------------------------------


def test_consumers_get_what_their_expressions_select(java: Java, topic: str) -> None:
    name = name_for("selling")
    java.producer(name, f"g_{name}")
    messages = [
        {
            "body": b"%d %s" % (price, color.encode()),
            "properties": {"price": str(price), "color": color},
        }
        for price in (10, 11, 12)
        for color in ("red", "blue")
    ]
    java.send(name, topic, [*messages, {"body": b"nothing said", "properties": {}}])
    for expression, expected in EXPRESSIONS.items():
        taker = name_for("sql_taker")
        item = {"kind": "push", "name": taker, "group": f"g_{taker}", "topic": topic}
        java.peer.ask("consumer.start", [item | {"sql": True, "expression": expression} | java.at])
        found = java.traffic.take(taker, len(expected))
        found += java.traffic.take(taker, 1, wait_ms=300)
        java.traffic.stop(taker)
        assert sorted(bodies(found)) == sorted(expected), expression
    java.stop(name)


def test_a_wrong_expression_is_refused_with_the_place_and_what_may_stand_there(
    java: Java, topic: str
) -> None:
    taker = name_for("sql_taker")
    item = {"kind": "push", "name": taker, "group": f"g_{taker}", "topic": topic}
    wrong = {"sql": True, "expression": "price > AND color = 'red'"}
    ((done, text),) = java.peer.attempt("consumer.start", [item | wrong | java.at])
    assert not done
    assert "character 9" in text
