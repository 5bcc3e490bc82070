"""Topics looked at: names, routes, settings and how full they are."""

from __future__ import annotations

import pytest

from gantrymq.errors import CallTimeout, NotSupported, TopicNotFound
from gantrymq.flows import topics
from gantrymq.protocol.routing import (
    ClusterInfo,
    GetAllTopics,
    GetClusterInfo,
    GetRoute,
    GetSystemTopics,
)
from gantrymq.protocol.statistics import GetGroupsOfTopic, GetTopicStats, GroupList
from gantrymq.protocol.topics import (
    GetBrokerSystemTopics,
    GetTopic,
    GetTopics,
    TopicList,
    TopicSettings,
    TopicTable,
    TopicTableReply,
)
from gantrymq.runtime import run_blocking
from tests.unit.flows.world import ABSENT, NS, A, B, settings, stats, world

NAMES = ["orders", "%RETRY%billing", "%DLQ%billing", "TBW102", "C", "broker-a", "rmq_sys_x"]


def test_users_see_their_own_topics_unless_they_ask_for_all() -> None:
    runtime, reach = world()
    runtime.answer(NS, GetAllTopics, TopicList(topics=NAMES))
    runtime.answer(NS, GetSystemTopics, TopicList(topics=["C", "broker-a"], broker_address=A))
    runtime.answer(A, GetBrokerSystemTopics, TopicList(topics=["TBW102"]))
    assert run_blocking(topics.list_topics(reach)) == ["orders"]
    assert run_blocking(topics.list_topics(reach, hidden=True)) == sorted(NAMES)


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("orders", "normal"),
        ("%RETRY%g", "retry"),
        ("%DLQ%g", "dead-letter"),
        ("%LMQ%$p$l", "light"),
        ("SCHEDULE_TOPIC_XXXX", "system"),
        ("C", "system"),
    ],
)
def test_what_a_topic_is_for_is_in_its_name(topic: str, kind: str) -> None:
    assert topics.kind_of(topic, {"C"}) == kind


def test_no_route_names_the_cause() -> None:
    runtime, reach = world()
    runtime.answer(NS, GetRoute, ABSENT)
    with pytest.raises(TopicNotFound, match="no broker of broker-a, broker-b has topic ordres"):
        run_blocking(topics.topic_route(reach, "ordres"))
    runtime.answer(NS, GetClusterInfo, ClusterInfo())
    with pytest.raises(TopicNotFound, match="no broker has registered"):
        run_blocking(topics.topic_route(reach, "orders"))


def test_how_full_a_topic_is() -> None:
    _, reach = world()
    status = run_blocking(topics.topic_status(reach, "orders"))
    assert [(str(one.queue), one.messages) for one in status.queues] == [
        ("orders[broker-a:0]", 10),
        ("orders[broker-a:1]", 2),
        ("orders[broker-b:0]", 10),
        ("orders[broker-b:1]", 2),
    ]
    assert (status.messages, status.put_tps) == (24, 3.0)


def test_an_unknown_number_is_not_a_number() -> None:
    runtime, reach = world()
    runtime.answer(A, GetTopicStats, stats("broker-a", (-1, 0)))
    runtime.answer(B, GetTopicStats, CallTimeout("late"))
    status = run_blocking(topics.topic_status(reach, "orders"))
    assert status.messages is None
    assert status.last_ms is None
    assert list(status.failures) == ["broker-b"]
    assert status.queues[0].messages == 0


def test_an_old_broker_says_all_its_settings() -> None:
    runtime, reach = world()
    table = TopicTable(topics={"orders": TopicSettings(topic="orders", read_queues=3)})
    runtime.answer(A, GetTopic, NotSupported.because("351"))
    runtime.answer(A, GetTopics, TopicTableReply(table=table))
    found = run_blocking(topics.topic_settings(reach, "orders"))
    assert {name: one.read_queues for name, one in found.answers.items()} == {
        "broker-a": 3,
        "broker-b": 2,
    }


def test_a_description_has_everything() -> None:
    runtime, reach = world()
    runtime.answer(NS, GetSystemTopics, TopicList(topics=[]))
    typed = settings(attributes={"message.type": "FIFO"})
    for address, group in ((A, "billing"), (B, "audit")):
        runtime.answer(address, GetTopic, typed)
        runtime.answer(address, GetGroupsOfTopic, GroupList(groups={group}))
    found = run_blocking(topics.describe_topic(reach, "orders"))
    assert (found.kind, found.message_type, found.groups) == (
        "normal",
        "FIFO",
        ["audit", "billing"],
    )
    runtime.answer(B, GetTopic, settings())
    assert run_blocking(topics.describe_topic(reach, "orders")).message_type is None
