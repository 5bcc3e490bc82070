from datetime import UTC, datetime, timedelta, timezone

import pytest

from gantrymq.errors import BrokerFailure, CallTimeout, InvalidInput, NoPermission, NotFound
from gantrymq.flows import offsets
from gantrymq.flows.offsets import Bounds, check_start
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done
from gantrymq.protocol.offsets import (
    AllConsumerOffsets,
    GetAllConsumerOffsets,
    GetMaxOffset,
    GetMinOffset,
    OffsetReply,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire.versions import V4_9_4, V5_5_0

A = "a:10911"
QUEUE = MessageQueue("orders", "broker-a", 3)
RETRIES = MessageQueue("%RETRY%billing", "broker-a", 0)
NONE = NotFound.because("Not found, do not set to zero, maybe this group boot first")
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


def broker(committed: object = NONE, *, least: int = 10, end: int = 20) -> ScriptedRuntime:
    runtime = ScriptedRuntime()
    if isinstance(committed, int):
        committed = OffsetReply(offset=committed)
    runtime.answer(A, QueryConsumerOffset, committed)  # type: ignore[arg-type]
    runtime.answer(A, GetMinOffset, OffsetReply(offset=least))
    runtime.answer(A, GetMaxOffset, OffsetReply(offset=end))
    runtime.answer(A, SearchOffset, OffsetReply(offset=15))
    runtime.answer(A, UpdateConsumerOffset, Done())
    return runtime


def begins(runtime, start, queue=QUEUE, version=V5_5_0):
    flow = offsets.where_to_begin(runtime, A, queue, "billing", start, version=version)
    return run_blocking(flow)


@pytest.mark.parametrize(("start", "offset"), [("earliest", 10), ("latest", 20), (NOON, 15)])
def test_a_new_group_begins_where_it_is_told(start, offset):
    assert begins(broker(), start) == offset


@pytest.mark.parametrize("start", ["earliest", "latest", NOON])
def test_a_group_with_an_offset_goes_on_there(start):
    runtime = broker(0)
    assert begins(runtime, start) == 0
    assert len(runtime.calls) == 1
    assert runtime.calls[0][1].zero_if_unknown is False


@pytest.mark.parametrize("start", ["earliest", "latest", NOON])
def test_of_its_own_retries_a_group_skips_none(start):
    assert begins(broker(), start, RETRIES) == 10


@pytest.mark.parametrize(
    ("table", "offset"),
    [({"orders@billing": {3: 0}}, 0), ({"orders@billing": {2: 0}}, 20), ({}, 20)],
)
def test_a_zero_of_4x_is_looked_into(table, offset):
    runtime = broker(0)
    runtime.answer(A, GetAllConsumerOffsets, AllConsumerOffsets(offsets=table))
    assert begins(runtime, "latest", version=V4_9_4) == offset


def test_a_zero_of_4x_is_good_enough_for_who_begins_there_anyway():
    assert begins(broker(0), "earliest", version=V4_9_4) == 0


def test_a_zero_of_4x_counts_where_the_table_may_not_be_seen():
    runtime = broker(0)
    runtime.answer(A, GetAllConsumerOffsets, NoPermission.because("no"))
    assert begins(runtime, "latest", version=V4_9_4) == 0


@pytest.mark.parametrize("error", [CallTimeout("late"), BrokerFailure.because("no")])
def test_who_cannot_know_does_not_guess(error):
    with pytest.raises(type(error)):
        begins(broker(error), "latest")


def test_the_time_is_asked_for_in_milliseconds():
    runtime = broker()
    begins(runtime, NOON.astimezone(timezone(timedelta(hours=8))))
    ((_, asked),) = runtime.asked(SearchOffset)
    assert asked.timestamp_ms == 1_782_907_200_000


@pytest.mark.parametrize("least", [10, -1])
def test_bounds(least):
    found = run_blocking(offsets.bounds(broker(least=least), A, QUEUE))
    assert found == Bounds(max(0, least), 20)
    assert len(found) == 20 - max(0, least)


def test_commit():
    runtime = broker()
    run_blocking(offsets.commit(runtime, A, QUEUE, "billing", 7))
    ((_, asked),) = runtime.asked(UpdateConsumerOffset)
    assert (asked.group, asked.topic, asked.queue_id, asked.offset) == ("billing", "orders", 3, 7)


@pytest.mark.parametrize("wrong", ["first", 0, None, "LATEST"])
def test_a_start_that_is_none_is_told(wrong):
    with pytest.raises(InvalidInput, match="takes 'earliest', 'latest' or a datetime"):
        check_start(wrong)


def test_a_start_without_a_time_zone_is_told():
    with pytest.raises(InvalidInput, match="no time zone"):
        check_start(datetime(2026, 7, 1))
    assert check_start(NOON) is NOON
