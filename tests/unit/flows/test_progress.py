"""How far groups are behind; what nobody knows is None, never 0 or -1."""

from __future__ import annotations

import pytest

from gantrymq.errors import (
    BrokerFailure,
    CallTimeout,
    ConsumerOffline,
    GroupNotFound,
    NotFound,
)
from gantrymq.flows import progress
from gantrymq.flows.reaching import Reach
from gantrymq.model import MessageQueue
from gantrymq.protocol.enums import MessageModel
from gantrymq.protocol.group_settings import GetGroups, GroupSettings, GroupTable
from gantrymq.protocol.groups import ConsumerConnections, GetConsumerConnections, Heartbeat
from gantrymq.protocol.offsets import (
    AllConsumerOffsets,
    GetAllConsumerOffsets,
    OffsetReply,
    QueryConsumerOffset,
)
from gantrymq.protocol.statistics import (
    ConsumeStatsReply,
    GetConsumeStats,
    GetTimeSpans,
    GetTopicStats,
    QueueProgress,
    QueueTimeSpan,
    TimeSpans,
)
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from tests.unit.flows.world import NOW, OLD, A, B, stats, world


def at(broker: str, *queues: tuple[int, int, int]) -> ConsumeStatsReply:
    """End, committed and fetched offset of each queue."""
    return ConsumeStatsReply(
        queues={
            MessageQueue("orders", broker, number): QueueProgress(
                broker_offset=end, consumer_offset=held, pull_offset=pulled, last_ms=NOW
            )
            for number, (end, held, pulled) in enumerate(queues)
        },
        consume_tps=2.5,
    )


def late(broker: str, *delays: int) -> TimeSpans:
    return TimeSpans(
        spans=[
            QueueTimeSpan(queue=MessageQueue("orders", broker, number), delay_ms=delay)
            for number, delay in enumerate(delays)
        ]
    )


def behind() -> tuple[ScriptedRuntime, Reach]:
    runtime, reach = world()
    runtime.answer(A, GetConsumeStats, at("broker-a", (10, 4, 6), (7, 7, 7)))
    runtime.answer(A, GetTimeSpans, late("broker-a", 6_500, 0))
    runtime.answer(B, GetConsumeStats, at("broker-b", (10, 10, 10), (7, 2, 2)))
    runtime.answer(B, GetTimeSpans, late("broker-b", 0, 30_000))
    runtime.answer(B, GetTopicStats, stats("broker-b", (0, 10), (5, 7)))
    return runtime, reach


def test_messages_and_seconds_of_each_queue_and_in_all() -> None:
    _, reach = behind()
    lag = run_blocking(progress.group_lag(reach, "billing"))
    assert [(str(one.queue), one.messages, one.seconds) for one in lag.queues] == [
        ("orders[broker-a:0]", 6, 6.5),
        ("orders[broker-a:1]", 0, 0.0),
        ("orders[broker-b:0]", 0, 0.0),
        ("orders[broker-b:1]", 2, 30.0),
    ]
    assert (lag.messages, lag.seconds, lag.consume_tps) == (8, 30.0, 5.0)
    assert [one.in_flight for one in lag.queues] == [2, 0, 0, 0]
    assert [one.lost for one in lag.queues] == [0, 0, 0, 3]


def test_zero_is_asked_again_because_it_may_mean_never() -> None:
    runtime, reach = behind()
    runtime.answer(A, GetConsumeStats, at("broker-a", (10, 0, 0), (7, 0, 0)))
    answers: list[object] = [NotFound.because("no offset"), OffsetReply(offset=0)]
    runtime.answer(A, QueryConsumerOffset, answers)  # type: ignore[arg-type]
    lag = run_blocking(progress.group_lag(reach, "billing"))
    first, second, *_ = lag.queues
    assert (first.offset, first.messages, first.seconds) == (None, None, None)
    assert first.why == progress.NEVER
    assert (second.offset, second.messages) == (0, 2)  # what is gone does not wait
    assert (lag.messages, lag.seconds, lag.known_messages) == (None, None, 4)


def test_an_old_broker_shows_its_whole_table_instead() -> None:
    runtime, reach = behind()
    runtime.answer(A, GetConsumeStats, at("broker-a", (10, 0, 0), (7, 0, 0)))
    runtime.answer(A, Heartbeat, OLD)
    table = AllConsumerOffsets(offsets={"orders@billing": {1: 0}})
    runtime.answer(A, GetAllConsumerOffsets, table)
    lag = run_blocking(progress.group_lag(reach, "billing"))
    assert [one.offset for one in lag.queues] == [None, 0, 10, 2]
    assert not runtime.asked(QueryConsumerOffset)


def test_a_delay_that_cannot_be_is_not_told() -> None:
    runtime, reach = behind()
    runtime.answer(A, GetTimeSpans, late("broker-a", NOW + 1, 0))
    lag = run_blocking(progress.group_lag(reach, "billing"))
    assert (lag.queues[0].messages, lag.queues[0].seconds) == (6, None)
    assert lag.seconds is None
    assert lag.messages == 8


def test_a_broker_that_is_away_makes_the_sum_unknown() -> None:
    runtime, reach = behind()
    runtime.answer(B, GetConsumeStats, CallTimeout("late"))
    lag = run_blocking(progress.group_lag(reach, "billing"))
    assert lag.messages is lag.seconds is None
    assert lag.known_messages == 6
    assert list(lag.failures) == ["broker-b"]


def test_no_queue_has_a_reason() -> None:
    runtime, reach = behind()
    known = GroupTable(groups={"billing": GroupSettings(group="billing")})
    for address in (A, B):
        runtime.answer(address, GetConsumeStats, BrokerFailure.because("no group"))
        runtime.answer(address, GetGroups, known)
        runtime.answer(address, GetConsumerConnections, ConsumerOffline.because("no"))
    lag = run_blocking(progress.group_lag(reach, "billing"))
    assert lag.messages is None
    assert lag.why == "the group never committed an offset anywhere, and nobody is connected"
    casting = ConsumerConnections(message_model=MessageModel.BROADCASTING)
    runtime.answer(A, GetConsumerConnections, casting)
    assert "broadcast" in (run_blocking(progress.group_lag(reach, "billing")).why or "")
    with pytest.raises(GroupNotFound):
        run_blocking(progress.group_lag(reach, "nobody"))
