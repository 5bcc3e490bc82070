"""What was told of a message is put together from records in any order, and shown as a tree."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from gantrymq.errors import BrokerFailure, NotFound, TopicNotFound
from gantrymq.flows import traces
from gantrymq.flows.trace_trees import ordinal, put_together
from gantrymq.protocol.pulling import QueryMessages, QueryMessagesReply, ViewMessage
from gantrymq.protocol.routing import GetRoute
from gantrymq.protocol.tracing import (
    ConsumeBegun,
    ConsumeEnded,
    Recalled,
    Sent,
    TracedType,
    TraceRecord,
    TransactionEnded,
    write_records,
)
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage
from tests.unit.flows.world import NS, REPLICA, A, B, route, world

ID = "7F000001" + "0" * 24
OTHER = "7F000002" + "0" * 24
T0 = 1_700_000_000_000
NOTHING = NotFound.because("can not find message")


def sent(**given: Any) -> Sent:
    fields: dict[str, Any] = {
        "time_ms": T0, "region": "R", "group": "shop", "topic": "orders", "message_id": ID,
        "tags": None, "keys": None, "store_host": "a:10911", "body_length": 12, "cost_ms": 3,
        "type": TracedType.NORMAL,
    }  # fmt: skip
    return Sent(**(fields | given))


def begun(request: str, after: int, *, group: str = "billing", retries: int = 0) -> ConsumeBegun:
    return ConsumeBegun(
        time_ms=T0 + after,
        region="R",
        group=group,
        request_id=request,
        message_id=ID,
        retries=retries,
    )


def ended(request: str, after: int, cost: int, **given: Any) -> ConsumeEnded:
    fields: dict[str, Any] = {
        "request_id": request, "message_id": ID, "cost_ms": cost, "success": True,
        "time_ms": T0 + after, "group": "billing",
    }  # fmt: skip
    return ConsumeEnded(**(fields | given))


def whole_story() -> list[TraceRecord]:
    return [
        sent(type=TracedType.HALF),
        TransactionEnded(
            time_ms=T0 + 40,
            region="R",
            group="shop",
            topic="orders",
            message_id=ID,
            tags=None,
            keys=None,
            store_host="a:10911",
            type=TracedType.COMMITTED,
            transaction_id=ID,
            state="COMMIT_MESSAGE",
            from_check=True,
        ),
        begun("r1", 50),
        ended("r1", 52, 2, success=False, context_code=2),
        begun("r2", 10_250, retries=1),
        ended("r2", 10_251, 1),
        begun("r3", 60, group="audit"),
    ]


def test_the_tree_tells_the_story_whatever_the_order_of_the_records() -> None:
    records = [*whole_story(), *whole_story(), sent(message_id=OTHER)]
    expected = [
        f"{ID} of orders",
        "├─ 2023-11-14 22:13:20.000Z  sent by shop as a half message, 12 bytes, to a:10911 in 3 ms",
        "├─ +40 ms  committed by shop, when the broker asked",
        "├─ audit: at the 1st delivery",
        "│  └─ +60 ms  delivered, and nothing told of since",
        "└─ billing: consumed at the 2nd delivery",
        "   ├─ +50 ms  delivered, raised an error after 2 ms",
        "   └─ +10.2 s  delivered again (retry 1), consumed in 1 ms",
    ]
    for seed in range(20):
        random.Random(seed).shuffle(records)
        told = put_together(ID, records)
        assert str(told).splitlines() == expected
        consumed = told.consumed("billing")
        assert consumed is not None
        assert (consumed.retries, consumed.ended_ms) == (1, T0 + 10_251)
        assert told.consumed("audit") is None


def test_what_is_missing_is_said() -> None:
    told = put_together(ID, [ended("r1", 70, 5, group=None, success=False, context_code=1)])
    assert str(told).splitlines() == [
        f"{ID} of a topic that nobody tells",
        "├─ no send was told of",
        "└─ a group that is not told: not consumed, 1st delivery failed",
        "   └─ 2023-11-14 22:13:20.065Z  delivered, took too long after 5 ms",
    ]
    recalled = Recalled(
        time_ms=T0 + 9, region="R", group="shop", topic="t", message_id=ID, success=True
    )
    lines = str(put_together(ID, [sent(success=False), recalled])).splitlines()
    assert lines[1].endswith("in 3 ms, which did not store it safely")
    assert lines[2:] == ["├─ +9 ms  taken back by shop", "└─ no delivery was told of"]
    assert put_together(OTHER, [sent()]).is_empty


def test_an_end_without_a_time_of_its_own_is_counted_from_the_beginning() -> None:
    told = put_together(ID, [begun("r1", 50), ended("r1", 0, 7, time_ms=0)])
    (delivery,) = told.deliveries["billing"]
    assert (delivery.began_ms, delivery.ended_ms, delivery.succeeded) == (T0 + 50, T0 + 57, True)


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (21, "21st")]
)
def test_ordinals(number: int, text: str) -> None:
    assert ordinal(number) == text


# --- reading them from brokers --------------------------------------------------------------------


def carrier(number: int, *records: TraceRecord, body: bytes | None = None) -> StoredMessage:
    """A trace message."""
    return StoredMessage(
        topic="RMQ_SYS_TRACE_TOPIC",
        body=write_records(records).encode() if body is None else body,
        property_bytes=properties.encode({"KEYS": ID}),
        queue_offset=number,
        log_offset=1000 - number,
        store_ms=T0 + 1000 - number,
    )


def reply(*messages: StoredMessage) -> QueryMessagesReply:
    body = b"".join(one.encode() for one in messages)
    return QueryMessagesReply(index_ms=0, index_log_offset=0, body=body)


def answering(*messages: StoredMessage) -> Callable[[QueryMessages], QueryMessagesReply | NotFound]:
    """A broker that gives 64 at once, the newest first."""

    def answer(asked: QueryMessages) -> QueryMessagesReply | NotFound:
        fitting = [one for one in messages if one.store_ms <= asked.end_ms and asked.key == ID]
        return reply(*fitting[:64]) if fitting else NOTHING

    return answer


def with_traces(*messages: StoredMessage) -> tuple[ScriptedRuntime, Any]:
    runtime, reach = world()
    runtime.answer(NS, GetRoute, route("RMQ_SYS_TRACE_TOPIC"))
    runtime.answer(A, QueryMessages, answering(*messages))
    runtime.answer(B, QueryMessages, NOTHING)
    return runtime, reach


def test_more_traces_than_a_broker_gives_at_once_are_all_read() -> None:
    carriers = [carrier(n, begun(f"r{n}", n), body=None) for n in range(150)]
    runtime, reach = with_traces(*carriers)
    told = run_blocking(traces.trace(reach, ID))
    assert len(told.deliveries["billing"]) == 150
    assert len([place for place, _ in runtime.asked(QueryMessages) if place == A]) == 3


def test_what_is_no_trace_is_passed_over() -> None:
    _, reach = with_traces(carrier(1, sent()), carrier(2, body=b"Pub\x01what\x02"))
    assert run_blocking(traces.trace(reach, ID)).sends == [sent()]


def test_where_nothing_was_told_the_error_says_how_it_would_be() -> None:
    runtime, reach = with_traces()
    for address in (A, B, REPLICA):
        runtime.answer(address, ViewMessage, BrokerFailure.because("can not find message"))
    with pytest.raises(NotFound, match="write traces with trace=True"):
        run_blocking(traces.trace(reach, ID))
    runtime.answer(NS, GetRoute, TopicNotFound.because("No topic route info"))
    assert run_blocking(traces.told_of(reach, ID)).is_empty
