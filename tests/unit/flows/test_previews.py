"""Before something is deleted one can see what would go with it."""

from __future__ import annotations

from gantrymq.errors import CallTimeout, ConsumerOffline
from gantrymq.flows import previews
from gantrymq.model import MessageQueue
from gantrymq.protocol.group_settings import GetGroups, GroupSettings, GroupTable
from gantrymq.protocol.groups import (
    ClientConnection,
    ConsumerConnections,
    GetConsumerConnections,
)
from gantrymq.protocol.routing import GetAllTopics, GetRoute
from gantrymq.protocol.statistics import (
    ConsumeStatsReply,
    GetConsumeStats,
    GetGroupsOfTopic,
    GetTimeSpans,
    GetTopicStats,
    GroupList,
    QueueProgress,
    TimeSpans,
)
from gantrymq.protocol.topics import TopicList
from gantrymq.runtime import run_blocking
from tests.unit.flows.world import NS, A, B, route, stats, world


def progress(request: GetConsumeStats) -> ConsumeStatsReply:
    queue = MessageQueue(request.topic or "orders", "broker-a", 0)
    return ConsumeStatsReply(queues={queue: QueueProgress(broker_offset=10, consumer_offset=7)})


def test_what_goes_with_a_topic() -> None:
    runtime, reach = world()
    for address in (A, B):
        runtime.answer(address, GetGroupsOfTopic, GroupList(groups=set()))
        runtime.answer(address, GetConsumerConnections, ConsumerOffline.because("no"))
        runtime.answer(address, GetConsumeStats, ConsumeStatsReply())
    runtime.answer(A, GetGroupsOfTopic, GroupList(groups={"billing"}))
    runtime.answer(A, GetConsumeStats, progress)
    runtime.answer(A, GetTimeSpans, TimeSpans())
    there = ConsumerConnections(connections=[ClientConnection(client_id="c1")])
    runtime.answer(A, GetConsumerConnections, there)
    found = run_blocking(previews.preview_topic_deletion(reach, "orders"))
    assert (found.brokers, found.messages, found.put_tps) == (["broker-a", "broker-b"], 24, 3.0)
    assert [(one.group, one.members, one.messages) for one in found.groups] == [("billing", 1, 3)]
    assert found.is_in_use
    for address in (A, B):
        runtime.answer(address, GetConsumeStats, CallTimeout("late"))
    (group,) = run_blocking(previews.preview_topic_deletion(reach, "orders")).groups
    assert (group.members, group.messages) == (None, None)


def test_what_goes_with_a_group() -> None:
    runtime, reach = world()
    for address in (A, B):
        runtime.answer(address, GetConsumerConnections, ConsumerOffline.because("no"))
        runtime.answer(address, GetConsumeStats, ConsumeStatsReply())
        runtime.answer(address, GetGroups, GroupTable())
    billing = GroupTable(groups={"billing": GroupSettings(group="billing")})
    runtime.answer(A, GetGroups, billing)
    runtime.answer(A, GetConsumeStats, progress)
    runtime.answer(A, GetTimeSpans, TimeSpans())
    runtime.answer(NS, GetAllTopics, TopicList(topics=["orders", "%DLQ%billing"]))
    runtime.answer(NS, GetRoute, route("%DLQ%billing", "broker-a"))
    runtime.answer(A, GetTopicStats, stats("broker-a", (0, 4), topic="%DLQ%billing"))
    found = run_blocking(previews.preview_group_deletion(reach, "billing"))
    assert (found.brokers, found.members, found.is_in_use) == (["broker-a"], [], False)
    assert (found.lag.messages, found.retries, found.dead_letters) == (3, 0, 4)
