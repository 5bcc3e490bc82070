"""A reset is planned, applied in the way that lasts, and read back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gantrymq.errors import ConsumerOffline, InvalidInput, NotFound, PartlyDone
from gantrymq.flows import resets
from gantrymq.flows.reaching import Reach
from gantrymq.flows.resets import ResetTo
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done
from gantrymq.protocol.configs import BrokerConfigReply, GetBrokerConfig
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.group_settings import GetGroups, GroupSettings, GroupTable
from gantrymq.protocol.groups import (
    ClientConnection,
    ConsumerConnections,
    GetConsumerConnections,
)
from gantrymq.protocol.offsets import (
    OffsetReply,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.protocol.resets import CloneGroupOffsets, ResetOffsets, ResetOffsetsReply
from gantrymq.protocol.routing import GetRoute
from gantrymq.protocol.statistics import (
    ConsumeStatsReply,
    GetConsumeStats,
    GetTimeSpans,
    GetTopicStats,
    QueueProgress,
    TimeSpans,
)
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from tests.unit.flows.world import NS, A, B, route, stats, world

QUEUE = [MessageQueue("orders", "broker-a", number) for number in range(2)]


class Offsets:
    """The offsets of one broker, as it keeps them."""

    def __init__(self, runtime: ScriptedRuntime, *, keeps: bool = True, members: int = 0) -> None:
        self.held: dict[int, int | None] = {0: 4, 1: None}
        self.deaf = False
        runtime.answer(NS, GetRoute, route("orders", "broker-a"))
        runtime.answer(A, GetTopicStats, stats("broker-a", (0, 10), (5, 7)))
        runtime.answer(A, QueryConsumerOffset, self.query)
        runtime.answer(A, UpdateConsumerOffset, self.commit)
        runtime.answer(A, ResetOffsets, self.reset)
        properties = {"useServerSideResetOffset": "true"} if keeps else {}
        reply = BrokerConfigReply(version=DataVersion(), properties=properties)
        runtime.answer(A, GetBrokerConfig, reply)
        for address in (A, B):
            known = {"billing": GroupSettings(group="billing")}
            runtime.answer(address, GetGroups, GroupTable(groups=known))
            runtime.answer(address, GetConsumerConnections, ConsumerOffline.because("no"))
        if members:
            there = [ClientConnection(client_id=f"c{number}") for number in range(members)]
            runtime.answer(A, GetConsumerConnections, ConsumerConnections(connections=there))

    def query(self, request: QueryConsumerOffset) -> OffsetReply | Exception:
        held = self.held[request.queue_id]
        return NotFound.because("none") if held is None else OffsetReply(offset=held)

    def commit(self, request: UpdateConsumerOffset) -> Done:
        if not self.deaf:
            self.held[request.queue_id] = request.offset
        return Done()

    def reset(self, request: ResetOffsets) -> ResetOffsetsReply:
        if request.queue_id >= 0 and request.offset is not None:
            self.held[request.queue_id] = request.offset
            queue = MessageQueue("orders", "broker-a", request.queue_id)
            return ResetOffsetsReply(offsets={queue: request.offset})
        self.held = {0: 0, 1: 5}
        return ResetOffsetsReply()


def start(*, keeps: bool = True, members: int = 0) -> tuple[ScriptedRuntime, Reach, Offsets]:
    runtime, reach = world()
    return runtime, reach, Offsets(runtime, keeps=keeps, members=members)


def test_a_plan_says_what_it_would_mean_and_changes_nothing() -> None:
    runtime, reach, _ = start()
    plan = run_blocking(resets.plan_reset(reach, "billing", "orders", "latest"))
    assert [(m.before, m.wanted, m.skipped, m.repeated) for m in plan.moves] == [
        (4, 10, 6, 0),
        (None, 7, 2, 0),
    ]
    assert (plan.skipped, plan.repeated, plan.members) == (8, 0, [])
    back = run_blocking(resets.plan_reset(reach, "billing", "orders", "earliest"))
    assert (back.skipped, back.repeated) == (0, 4)
    assert not runtime.asked(ResetOffsets)
    assert not runtime.asked(UpdateConsumerOffset)


def test_a_time_is_looked_up_and_kept_within_the_queue() -> None:
    runtime, reach, _ = start()
    runtime.answer(A, SearchOffset, [OffsetReply(offset=3), OffsetReply(offset=0)])
    when = datetime(2023, 1, 2, 3, 4, 5, tzinfo=UTC)
    plan = run_blocking(resets.plan_reset(reach, "billing", "orders", when))
    assert [move.wanted for move in plan.moves] == [3, 5]
    assert runtime.asked(SearchOffset)[0][1].timestamp_ms == int(when.timestamp() * 1000)
    late = run_blocking(resets.plan_reset(reach, "billing", "orders", datetime.now(UTC)))
    assert [move.wanted for move in late.moves] == [10, 7]
    assert len(runtime.asked(SearchOffset)) == 2  # after the last message there is nothing to find


def test_offset_zero_is_an_offset() -> None:
    _, reach, offsets = start()
    run_blocking(resets.reset_offsets(reach, "billing", "orders", 0, queues=[0]))
    assert offsets.held == {0: 0, 1: None}


@pytest.mark.parametrize(
    ("to", "queues", "why"),
    [
        (11, [0], r"goes from 0 to 10: a group cannot stand at 11"),
        ("soon", None, "earliest, latest, an offset or a time"),
        ("latest", [9], r"no queue of \[9\]"),
    ],
)
def test_what_cannot_be_is_refused(to: ResetTo, queues: list[int] | None, why: str) -> None:
    _, reach, _ = start()
    with pytest.raises(InvalidInput, match=why):
        run_blocking(resets.plan_reset(reach, "billing", "orders", to, queues=queues))


def test_a_broker_that_keeps_resets_is_told_each_offset() -> None:
    runtime, reach, offsets = start(members=2)
    run_blocking(resets.reset_offsets(reach, "billing", "orders", "earliest"))
    assert offsets.held == {0: 0, 1: 5}
    assert [request.queue_id for _, request in runtime.asked(ResetOffsets)] == [0, 1]


def test_at_an_old_broker_an_offset_is_committed_while_nobody_is_connected() -> None:
    runtime, reach, offsets = start(keeps=False)
    run_blocking(resets.reset_offsets(reach, "billing", "orders", "latest"))
    assert offsets.held == {0: 10, 1: 7}
    assert not runtime.asked(ResetOffsets)


def test_at_an_old_broker_members_are_pushed_by_time_only() -> None:
    runtime, reach, offsets = start(keeps=False, members=1)
    run_blocking(resets.reset_offsets(reach, "billing", "orders", "earliest"))
    ((_, order),) = runtime.asked(ResetOffsets)
    assert (order.timestamp_ms, order.queue_id, order.force) == (0, -1, True)
    assert offsets.held == {0: 0, 1: 5}
    with pytest.raises(InvalidInput, match=r"as long as 1 members.*Stop the members first"):
        run_blocking(resets.reset_offsets(reach, "billing", "orders", 6, queues=[0, 1]))


def test_an_order_that_was_taken_and_not_carried_out_is_an_error() -> None:
    runtime, reach, offsets = start(keeps=False)
    offsets.deaf = True
    with pytest.raises(PartlyDone) as caught:
        run_blocking(resets.reset_offsets(reach, "billing", "orders", "latest"))
    assert caught.value.done == ()
    assert "billing stands at 4 in orders[broker-a:0], not at 10" in str(caught.value)
    assert runtime.time >= 5


def test_members_go_on_from_where_they_were_put() -> None:
    _, reach, offsets = start(keeps=False, members=1)
    plan = run_blocking(resets.plan_reset(reach, "billing", "orders", "earliest"))
    move = plan.moves[0]
    assert resets._stands(move, 0, connected=True, accepted=False)
    assert resets._stands(move, 3, connected=True, accepted=False)
    assert not resets._stands(move, 4, connected=True, accepted=False)
    assert resets._stands(move, 9, connected=True, accepted=True)
    assert not resets._stands(move, 3, connected=False, accepted=True)
    assert offsets.held[0] == 4


def test_a_clone_is_read_back_and_refused_while_members_are_connected() -> None:
    runtime, reach, offsets = start()
    progress = {QUEUE[0]: QueueProgress(broker_offset=10, consumer_offset=4)}
    runtime.answer(A, GetConsumeStats, ConsumeStatsReply(queues=progress))
    runtime.answer(B, GetConsumeStats, ConsumeStatsReply())
    runtime.answer(A, GetTimeSpans, TimeSpans())

    def clone(request: CloneGroupOffsets) -> Done:
        assert (request.source_group, request.target_group) == ("billing", "audit")
        return Done()

    runtime.answer(A, CloneGroupOffsets, clone)
    copies = run_blocking(resets.clone_offsets(reach, "billing", "audit", topic="orders"))
    assert [(copy.source, copy.before) for copy in copies] == [(4, 4)]
    offsets.held[0] = None
    with pytest.raises(PartlyDone, match="audit stands at None, not at 4 as billing"):
        run_blocking(resets.clone_offsets(reach, "billing", "audit", topic="orders"))
    Offsets(runtime, members=1)
    with pytest.raises(InvalidInput, match=r"1 members of audit are connected \(c0\)"):
        run_blocking(resets.clone_offsets(reach, "billing", "audit", topic="orders"))
