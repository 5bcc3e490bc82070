"""What a group, a broker and RocketMQ's own clients do together: decisions, answers, traces.

Java's clients are those of both releases at our servers, and at RocketMQ's those of its release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any, Final

import pytest

import gantrymq as gantry
from gantrymq.model import ReceivedMessage
from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Sent,
    TracedType,
    TraceRecord,
    TransactionEnded,
    read_records,
)
from gantrymq.protocol.transactions import Decision
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.command import Command
from tests.rows.platforms import BROKERS, GANTRY
from tests.rows.site import PATIENCE, Seen, Site, run, soon, until
from tests.rows.tap import Swallowed

TRACES: Final = "RMQ_SYS_TRACE_TOPIC"
_TYPES: Final = {
    "Normal_Msg": TracedType.NORMAL,
    "Trans_Msg_Half": TracedType.HALF,
    "Trans_msg_Commit": TracedType.COMMITTED,
    "Delay_Msg": TracedType.DELAYED,
    "Order_Msg": TracedType.ORDERED,
}
_KINDS: Final[dict[str, type[TraceRecord]]] = {
    "Pub": Sent,
    "SubBefore": ConsumeBegun,
    "SubAfter": ConsumeEnded,
    "EndTransaction": TransactionEnded,
}


# --- transactions: our producers, everybody's brokers ---------------------------------------------


def test_a_decision_that_was_lost_is_asked_after(site: Site) -> None:
    def lose(command: Command) -> None:
        asked = command.fields.get("fromTransactionCheck") == "true"
        if command.code == RequestCode.END_TRANSACTION and not asked:
            raise Swallowed

    for tap in site.taps():
        tap.asked = lose
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> bool:
        asked.append(message.body)
        return False

    async def main() -> None:
        seen = Seen()
        producer = site.async_producer(checker=check)
        async with producer, site.consumer(seen, group=f"{site.group}-c"):
            async with producer.transaction(site.topic, b"commit lost") as good:
                pass
            with pytest.raises(KeyError):
                async with producer.transaction(site.topic, b"rollback lost") as bad:
                    raise KeyError("out of beer")
            assert (good.decision, good.told) == (Decision.COMMIT, False)
            assert (bad.decision, bad.told) == (Decision.ROLLBACK, False)
            # It remembers what it decided: the checker, which says no, is not asked.
            await soon(lambda: b"commit lost" in seen.bodies, "the committed one")
            answered = site.taps()
            await soon(lambda: _ended(answered) >= {"8", "12"}, "both were asked after")
        assert {*seen.bodies} == {b"commit lost"}
        assert not asked

    run(main())


def _ended(taps: Any) -> set[str]:
    """The decisions that were answers to questions."""
    return {
        command.fields["commitOrRollback"]
        for tap in taps
        for command in tap.requests(RequestCode.END_TRANSACTION)
        if command.fields.get("fromTransactionCheck") == "true"
    }


def test_another_member_of_the_group_is_asked_when_the_producer_is_gone(site: Site) -> None:
    asked: list[bytes] = []

    def check(message: ReceivedMessage) -> bool:
        asked.append(message.body)
        return message.body == b"good"

    async def main() -> None:
        seen = Seen()
        heir = site.async_producer(checker=check)  # which does not go through the taps
        taps = site.taps()
        first = site.async_producer(checker=lambda _: None)
        await first.start()
        for body in (b"good", b"bad"):
            await first.transaction(site.topic, body).__aenter__()
        for tap in taps:
            tap.refuse()
        async with heir, site.consumer(seen, group=f"{site.group}-c", address_map={}):
            await soon(lambda: {*asked} == {b"good", b"bad"}, "the heir is asked after both")
            await soon(lambda: b"good" in seen.bodies, "the good one")
        assert {*seen.bodies} == {b"good"}
        await first.close()

    run(main())


def test_open_transactions_are_listed_until_they_have_ended(site: Site) -> None:
    producer = site.producer(checker=lambda _: None)
    halves = [producer.transaction(site.topic, b"%d" % number) for number in range(3)]
    for half in halves:
        half.__enter__()
    first, second, third = (half.receipt.message_id for half in halves)

    def listed() -> set[str]:
        found = site.admin.open_transactions(group=site.group)
        assert {(one.topic, one.group) for one in found} <= {(site.topic, site.group)}
        assert {one.broker for one in found} <= {*BROKERS}
        return {one.message_id for one in found}

    until(lambda: listed() == {first, second, third}, "all of them are listed")
    halves[0].commit()
    halves[1].rollback()
    until(lambda: listed() == {third}, "two of them have ended")
    halves[2].rollback()
    until(lambda: not listed(), "the last has ended")


# --- filters --------------------------------------------------------------------------------------


def test_our_consumers_of_every_kind_read_by_sql92(site: Site) -> None:
    expression = "amount BETWEEN 3 AND 6 AND (colour IN ('red') OR gift IS NOT NULL)"
    producer = site.producer()
    for number in range(10):
        more = {"gift": "yes"} if number == 4 else {}
        colour = "red" if number % 2 else "blue"
        properties = {"amount": str(number), "colour": colour} | more
        producer.send(site.topic, b"%d" % number, properties=properties)
    producer.send(site.topic, b"nothing")
    wanted = [b"3", b"4", b"5"]

    async def main() -> None:
        seen, pulled = Seen(), Seen()
        pulling = site.pull_consumer(group=f"{site.group}-p")
        async with site.consumer(seen, topics=()) as consumer, pulling:
            await consumer.subscribe(site.topic, seen, sql=expression)
            await pulling.subscribe(site.topic, sql=expression)
            while len(pulled.messages) < len(wanted):
                pulled.messages += await pulling.poll()
            await soon(lambda: len(seen.messages) >= len(wanted), "the consumer has them")
        assert seen.has(wanted)
        assert pulled.has(wanted)

    run(main())
    with gantry.Reader(sql=expression, name_servers=site.platform.name_server) as reader:
        assert sorted(one.body for one in reader.messages(site.topic)) == wanted


# --- with Java's clients --------------------------------------------------------------------------


class Java:
    """Clients of one release, at a platform."""

    def __init__(self, peer: Any, site: Site) -> None:
        self.version: str = peer.version
        self.name = f"{site.number}-{peer.version.replace('.', '-')}"
        """Which no client of another JVM has: brokers know clients by what is made of it."""
        self._peer = peer
        self._at = {"name_server": site.platform.name_server}
        self._stack = ExitStack()
        self._producers: set[str] = set()

    def ask(self, operation: str, name: str, **item: Any) -> Any:
        (found,) = self._peer.ask(operation, [{"name": name} | item | self._at])
        return found

    def producer(self, name: str, **how: Any) -> None:
        self.ask("producer.start", name, **{"group": f"g_{name}"} | how)
        self._producers.add(name)
        self._stack.callback(self.stop, name)

    def stop(self, name: str) -> None:
        """Which has it write the traces that it still has."""
        if name in self._producers:
            self._producers.remove(name)
            self.ask("producer.stop", name)

    def answerer(self, name: str, topic: str, **how: Any) -> None:
        self.ask("answerer.start", name, **{"group": f"g_{name}", "topic": topic} | how)
        self._stack.callback(self.ask, "answerer.stop", name)

    def traces(self, bodies: list[str]) -> list[list[dict[str, Any]]]:
        found: list[list[dict[str, Any]]] = self._peer.ask("trace.read", bodies)
        return found

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def javas(site: Site, peers: Callable[[str], Any]) -> Iterator[list[Java]]:
    name = site.platform.name
    versions = ("5.5.0", "4.9.7") if name == GANTRY else (name,)
    found = [Java(peers(version), site) for version in versions]
    yield found
    for one in found:
        one.close()


@pytest.mark.interop
def test_requests_are_answered_in_all_pairings(site: Site, javas: list[Java]) -> None:
    producer = site.producer(send_timeout=PATIENCE)
    topics = {"python": site.another_topic()}
    for java in javas:
        topics[java.version] = site.another_topic()
        java.answerer(f"answerer-{java.name}", topics[java.version])
        java.producer(f"asker-{java.name}")

    def answer(message: ReceivedMessage) -> None:
        producer.reply(message, b"answer to " + message.body)

    asking: dict[str, Callable[[str, bytes], bytes]] = {
        "python": lambda topic, body: producer.request(topic, body, timeout=PATIENCE).body
    }
    for java in javas:
        asking[java.version] = lambda topic, body, java=java: java.ask(  # type: ignore[misc]
            "producer.request",
            f"asker-{java.name}",
            topic=topic,
            body=body,
            wait_ms=round(PATIENCE * 1000),
        )
    with gantry.Consumer(
        group=f"{site.group}-c", topics=topics["python"], handler=answer, start="earliest",
        **site.where(),
    ):  # fmt: skip
        for asker, ask in asking.items():
            for answerer, topic in topics.items():
                body = f"{asker} asks {answerer}".encode()
                assert ask(topic, body) == b"answer to " + body


@pytest.mark.interop
def test_traces_are_read_alike_by_both_sides(site: Site, javas: list[Java]) -> None:
    sent: dict[str, str] = {}
    for java in javas:
        name = f"traced-{java.name}"
        java.producer(name, trace=True)
        (one,) = java.ask(
            "producer.transact",
            name,
            topic=site.topic,
            messages=[
                {
                    "body": b"java",
                    "tag": "t",
                    "keys": "a b",
                    "local": "COMMIT_MESSAGE",
                    "properties": {},
                }
            ],
        )
        sent[one["unique_id"]] = f"g_{name}"
        item = {"kind": "push", "group": f"c_{name}", "topic": site.topic, "expression": "*"}
        java.ask("consumer.start", name, **item, trace=True)
    producer = site.producer(trace=True, checker=lambda _: None)
    ours = producer.send(site.topic, b"python", tag="t", keys=["a", "b"])
    sent[ours.message_id] = site.group
    producer.send(site.topic, b"later", delay=timedelta(seconds=1))
    producer.send(site.topic, b"ordered", order_key="k")
    with producer.transaction(site.topic, b"decided") as transaction:
        pass
    got: list[ReceivedMessage] = []
    with gantry.Consumer(
        group=f"{site.group}-c", topics=site.topic, handler=got.append, start="earliest",
        trace=True, **site.where(),
    ):  # fmt: skip
        wanted = 4 + len(javas)
        until(lambda: len(got) >= wanted, "our consumer has everything")
        for java in javas:
            name = f"traced-{java.name}"
            assert len(java.ask("consumer.take", name, count=wanted, wait_ms=60_000)) == wanted
            java.ask("consumer.stop", name)
            java.stop(name)
    producer.close()
    groups = {*sent.values(), f"{site.group}-c"}
    groups |= {f"c_traced-{java.name}" for java in javas}

    def complete() -> bool:
        found = list(_records(site))
        begun = {(one.group, one.message_id) for one in found if isinstance(one, ConsumeBegun)}
        consumers = {group for group in groups if group.startswith("c_") or group.endswith("-c")}
        return (
            {one.message_id for one in found if isinstance(one, Sent)} >= sent.keys()
            and begun >= {(group, one) for group in consumers for one in sent}
            and {one.message_id for one in found if isinstance(one, TransactionEnded)}
            >= {transaction.receipt.message_id} | {*sent} - {ours.message_id}
        )

    until(complete, "every trace is there")
    bodies = [message.body.decode() for message in _messages(site)]
    for java in javas:
        for body, theirs in zip(bodies, java.traces(bodies), strict=True):
            mine = [one for one in read_records(body) if type(one).NAME in _KINDS]
            assert [_as_java(one) for one in mine] == [_picked(one) for one in theirs], body


def _messages(site: Site) -> list[ReceivedMessage]:
    with gantry.Reader(name_servers=site.platform.name_server) as reader:
        return [message for queue in reader.queues(TRACES) for message in reader.messages(queue)]


def _records(site: Site) -> Iterator[TraceRecord]:
    for message in _messages(site):
        yield from read_records(message.body.decode())


def _as_java(one: TraceRecord) -> dict[str, Any]:
    """What Java's reader has to say of a record."""
    names = ("time_ms", "group", "topic", "message_id", "tags", "keys", "store_host", "success",
             "request_id", "retries", "body_length", "offset_id", "transaction_id", "from_check",
             "cost_ms", "context_code")  # fmt: skip
    found = {name: getattr(one, name) for name in names if hasattr(one, name)}
    return {"kind": type(one).NAME} | {name: found[name] for name in _compared(type(one).NAME)}


def _picked(record: dict[str, Any]) -> dict[str, Any]:
    kind = record["kind"]
    # Java's reader makes texts of nulls.
    plain = {name: None if text == "null" else text for name, text in record.items()}
    return {"kind": kind} | {name: plain[name] for name in _compared(kind)}


def _compared(kind: str) -> tuple[str, ...]:
    return {
        "Pub": ("time_ms", "group", "topic", "message_id", "tags", "keys", "store_host",
                "body_length", "cost_ms", "offset_id", "success"),
        "SubBefore": ("time_ms", "group", "request_id", "message_id", "retries", "keys"),
        "SubAfter": ("request_id", "message_id", "cost_ms", "success", "keys", "context_code"),
        "EndTransaction": ("time_ms", "group", "topic", "message_id", "tags", "keys",
                           "store_host", "transaction_id", "from_check"),
    }.get(kind, ())  # fmt: skip
