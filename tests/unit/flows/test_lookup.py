"""Messages are found by id, by key, by place and by time, and are what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from gantrymq.errors import BrokerFailure, ConnectFailed, InvalidInput, NotFound
from gantrymq.flows import lookup
from gantrymq.flows.lookup import QueueSpan
from gantrymq.model import MessageQueue
from gantrymq.protocol.offsets import OffsetReply, SearchOffset
from gantrymq.protocol.pulling import (
    PullMessage,
    PullReply,
    PullStatus,
    QueryMessages,
    QueryMessagesReply,
    ViewMessage,
    ViewMessageReply,
)
from gantrymq.protocol.routing import GetAllTopics, GetSystemTopics
from gantrymq.protocol.topics import TopicList
from gantrymq.runtime import iterate_blocking, run_blocking
from gantrymq.wire import properties
from gantrymq.wire.message_id import offset_id
from gantrymq.wire.record import StoredMessage
from tests.unit.flows.world import NS, REPLICA, A, B, world

IP = bytes((10, 0, 0, 1))
UNIQUE = "7F000001" + "0" * 24
QUEUE = MessageQueue("orders", "broker-a", 1)


def message(
    offset: int, *, key: str = "", unique: str = UNIQUE, store_ms: int = 0
) -> StoredMessage:
    return StoredMessage(
        topic="orders",
        body=b"%d" % offset,
        property_bytes=properties.encode({"KEYS": key, "UNIQ_KEY": unique}),
        queue_id=1,
        queue_offset=offset,
        log_offset=offset * 100,
        store_ms=store_ms,
        store_ip=IP,
        store_port=10911,
    )


def found(*messages: StoredMessage) -> QueryMessagesReply:
    body = b"".join(one.encode() for one in messages)
    return QueryMessagesReply(index_ms=0, index_log_offset=0, body=body)


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


NOTHING = NotFound.because("can not find message")


def test_keys_are_looked_at_once_more_and_messages_come_in_order() -> None:
    runtime, reach = world()
    stored = [message(2, key="k1 k2", store_ms=5), message(3, key="other", store_ms=1)]
    runtime.answer(A, QueryMessages, found(*stored))
    runtime.answer(B, QueryMessages, found(message(1, key="k2", store_ms=3)))
    messages = run_blocking(lookup.messages_by_key(reach, "orders", "k2"))
    assert [one.offset for one in messages] == [1, 2]
    runtime.answer(B, QueryMessages, ConnectFailed("gone"))
    assert len(run_blocking(lookup.messages_by_key(reach, "orders", "k2"))) == 1


def test_an_offset_id_leads_to_its_broker_or_to_who_owns_it() -> None:
    runtime, reach = world()
    text = offset_id(IP, 10911, 700)
    view = ViewMessageReply(body=message(7).encode())
    not_here = BrokerFailure.because("can not find message by the offset")
    for address in (A, REPLICA):
        runtime.answer(address, ViewMessage, not_here)
    runtime.answer(B, ViewMessage, view)
    assert run_blocking(lookup.message_by_offset_id(reach, text)).offset == 7
    runtime.answer(B, ViewMessage, not_here)
    runtime.answer("10.0.0.1:10911", ViewMessage, view)
    assert run_blocking(lookup.find_message(reach, text)).offset == 7


def test_any_other_id_is_looked_up_in_the_index_of_each_topic() -> None:
    runtime, reach = world()
    runtime.answer(NS, GetAllTopics, TopicList(topics=["orders"]))
    runtime.answer(NS, GetSystemTopics, TopicList())
    for address in (A, B, REPLICA):
        runtime.answer(address, ViewMessage, BrokerFailure.because("no"))
        runtime.answer(address, QueryMessages, NOTHING)
    runtime.answer(B, QueryMessages, found(message(4), message(5, unique="8" * 32)))
    assert run_blocking(lookup.find_message(reach, UNIQUE)).offset == 4
    assert runtime.asked(QueryMessages)[0][1].unique
    runtime.answer(B, QueryMessages, NOTHING)
    with pytest.raises(NotFound, match=f"no message has the id {UNIQUE} in topic orders"):
        run_blocking(lookup.find_message(reach, UNIQUE, topic="orders"))
    with pytest.raises(InvalidInput, match="32"):
        run_blocking(lookup.find_message(reach, "short"))
    longer = "01" + "5" * 32  # as clients of the gRPC protocol make them
    runtime.answer(A, QueryMessages, found(message(6, unique=longer)))
    assert run_blocking(lookup.find_message(reach, longer)).offset == 6


def pulls(stored: list[StoredMessage], low: int, high: int) -> Callable[[PullMessage], PullReply]:
    def answer(request: PullMessage) -> PullReply:
        rest = [one for one in stored if one.queue_offset >= request.offset]
        some = rest[: min(request.max_messages, 2)]
        status = PullStatus.FOUND
        next_offset = some[-1].queue_offset + 1 if some else high
        if request.offset < low:
            status, some, next_offset = PullStatus.OFFSET_MOVED, [], low
        elif not some:
            status = PullStatus.NOTHING_NEW
        return PullReply(
            status=status,
            suggested_broker=0,
            next_offset=next_offset,
            min_offset=low,
            max_offset=high,
            body=b"".join(one.encode() for one in some),
        )

    return answer


def test_the_message_at_a_place() -> None:
    runtime, reach = world()
    runtime.answer(A, PullMessage, pulls([message(5), message(6)], 5, 7))
    assert run_blocking(lookup.message_at(reach, QUEUE, 6)).body == b"6"
    with pytest.raises(
        NotFound, match=r"no message at 7 of orders\[broker-a:1\]: it goes from 5 to 7"
    ):
        run_blocking(lookup.message_at(reach, QUEUE, 7))
    with pytest.raises(InvalidInput, match="'broker-x' has no topic orders"):
        run_blocking(lookup.message_at(reach, MessageQueue("orders", "broker-x", 0), 1))


def test_a_time_range_is_a_stretch_of_each_queue() -> None:
    runtime, reach = world()
    runtime.answer(A, SearchOffset, lambda request: OffsetReply(offset=request.timestamp_ms))
    runtime.answer(B, SearchOffset, lambda request: OffsetReply(offset=request.timestamp_ms))
    whole = run_blocking(lookup.spans(reach, "orders", queues=[1]))
    assert [(str(one.queue), one.start, one.end) for one in whole] == [
        ("orders[broker-a:1]", 5, 7),
        ("orders[broker-b:1]", 5, 7),
    ]
    part = run_blocking(lookup.spans(reach, "orders", begin=at(6), end=at(8), queues=[QUEUE]))
    assert [(one.start, one.end, one.messages) for one in part] == [(6, 7, 1)]
    none = run_blocking(lookup.spans(reach, "orders", begin=at(9), end=at(10), queues=[QUEUE]))
    assert none[0].messages == 0


def test_a_stretch_is_read_to_its_end_over_holes() -> None:
    runtime, reach = world()
    stored = [message(number) for number in (5, 6, 8, 9, 12)]
    runtime.answer(A, PullMessage, pulls(stored, 5, 13))
    span = QueueSpan(queue=QUEUE, address=A, start=5, end=12)
    batches = list(iterate_blocking(lookup.read_span(reach, span)))
    assert [[one.queue_offset for one in batch] for batch in batches] == [[5, 6], [8, 9]]
