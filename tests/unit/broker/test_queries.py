"""Looking messages up by key and by place."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from gantrymq.broker import queries
from gantrymq.broker.queries import UNIQUE_MOST
from gantrymq.protocol.pulling import QueryMessages, ViewMessage
from gantrymq.protocol.statistics import QueryConsumeQueue
from gantrymq.store.lookups import Queried
from gantrymq.wire import record
from gantrymq.wire.record import StoredMessage
from tests.unit.broker.people import Client, beat, wants
from tests.unit.broker.rig import START_MS, on_loop, refusal


@dataclass
class Shelf:
    """A store that has such messages under every key, and notes what it is asked."""

    messages: list[StoredMessage] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    stretches: int = 0

    def search(self, topic, key, **how):
        self.asked.append({"topic": topic, "key": key} | how)
        for _ in range(self.stretches):
            yield
        pieces = [memoryview(message.encode()) for message in self.messages]
        return Queried(pieces, START_MS, 4711)


@dataclass
class Keeper:
    """As much of a broker as is needed here."""

    store: Shelf


def ask(shelf, **how):
    asked = {"topic": "orders", "key": "k", "max_messages": 32, "begin_ms": 5, "end_ms": 9} | how
    return queries.query_messages(QueryMessages(**asked), Keeper(shelf), None)


def test_messages_come_in_one_body_with_how_far_the_index_has_come():
    shelf = Shelf([StoredMessage("orders", b"a"), StoredMessage("orders", b"b")])
    answer = ask(shelf)
    assert [message.body for message in record.iterate(answer.body)] == [b"a", b"b"]
    assert (answer.index_ms, answer.index_log_offset, answer.refusal) == (START_MS, 4711, None)
    assert shelf.asked == [{"topic": "orders", "key": "k", "limit": 32, "begin_ms": 5, "end_ms": 9}]


def test_limits_and_times_are_brought_within_bounds():
    shelf = Shelf([StoredMessage("orders", b"a")])
    ask(shelf, max_messages=-1, begin_ms=-1, end_ms=0)
    ask(shelf, max_messages=1 << 30)
    ask(shelf, max_messages=1, unique=True)
    assert [asked["limit"] for asked in shelf.asked] == [1, 64, UNIQUE_MOST]
    assert (shelf.asked[0]["begin_ms"], shelf.asked[0]["end_ms"]) == (0, 2**63 - 1)


def test_nothing_found_is_refused_and_still_says_how_far_the_index_has_come():
    answer = ask(Shelf())
    assert (answer.refusal, answer.remark) == (
        22,
        "can not find message, maybe time range not correct",
    )
    assert (answer.index_ms, answer.index_log_offset) == (START_MS, 4711)


@on_loop
async def test_others_have_a_turn_while_a_search_takes_long(rig):
    later = ask(Shelf([StoredMessage("orders", b"a")], stretches=3))
    turns = asyncio.create_task(asyncio.sleep(0))
    answer = await later
    assert turns.done()
    assert [message.body for message in record.iterate(answer.body)] == [b"a"]


def test_what_does_not_fit_into_an_answer_is_left_out():
    large = StoredMessage("orders", bytes(3 << 20))
    answer = ask(Shelf([large] * 4))
    assert len(list(record.iterate(answer.body))) == 2
    assert len(list(record.iterate(ask(Shelf([StoredMessage("o", bytes(9 << 20))])).body))) == 1


@on_loop
def test_a_message_is_seen_at_its_place(rig):
    rig.send(body=b"first")
    rig.send(body=b"second")
    _, second = rig.stored()

    def view(offset):
        return queries.view_message(ViewMessage(log_offset=offset), rig.broker, rig.caller).body

    raw = b"".join(rig.store.read("orders", 0, 1).pieces)
    assert view(second.log_offset) == raw
    for offset in (-1, 1, rig.store.log_end, 1 << 50):
        assert refusal(lambda offset=offset: view(offset)) == (
            1,
            f"can not find message by the offset, {offset}",
        )


def entries(rig, **how):
    asked = {"topic": "orders", "queue_id": 0, "index": 0, "count": 2} | how
    return queries.query_consume_queue(QueryConsumeQueue(**asked), rig.broker, rig.caller)


@on_loop
def test_a_queue_is_looked_into(rig):
    for tag in ("red", "blue", "red"):
        rig.send(properties=f"TAGS\x01{tag}\x02")
    first, second, _ = rig.stored()
    seen = entries(rig)
    assert (seen.min_index, seen.max_index, seen.filter_data) == (0, 3, None)
    assert [(one.log_offset, one.size) for one in seen.entries] == [
        (first.log_offset, first.size),
        (second.log_offset, second.size),
    ]
    assert not any(one.matches for one in seen.entries)
    assert len(entries(rig, index=1, count=100).entries) == 2
    assert entries(rig, count=-1).entries == []
    beyond = entries(rig, index=3)
    assert (beyond.entries, beyond.remark) == ([], "Index 3 of 0@orders is not exist!")
    assert refusal(lambda: entries(rig, queue_id=9)) == (1, "9@orders is not exist!")


@on_loop
def test_a_queue_is_looked_into_as_a_group_sees_it(rig):
    for tag in ("red", "blue", "red"):
        rig.send(properties=f"TAGS\x01{tag}\x02")
    assert entries(rig, group="billing").filter_data == "billing@orders is not online!"
    beat(rig, Client(), consumes={"billing": wants("orders", expression="red || green")})
    seen = entries(rig, group="billing", count=3)
    assert [one.matches for one in seen.entries] == [True, False, True]
    assert seen.subscription.expression == "red || green"
