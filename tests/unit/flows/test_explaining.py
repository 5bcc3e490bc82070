"""What became of a message is gathered from all who know a part of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gantrymq.errors import BrokerFailure, CallTimeout, NotFound, TopicNotFound
from gantrymq.flows.explaining import explain
from gantrymq.flows.explanations import Explanation
from gantrymq.flows.reaching import Reach
from gantrymq.flows.verdicts import Role, State
from gantrymq.model import MessageQueue
from gantrymq.protocol.configs import BrokerConfigReply, GetBrokerConfig
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.group_settings import GetGroups, GroupSettings, GroupTable
from gantrymq.protocol.groups import (
    ClientConnection,
    ConsumerConnections,
    GetConsumerConnections,
    Subscription,
)
from gantrymq.protocol.offsets import OffsetReply, QueryConsumerOffset
from gantrymq.protocol.pulling import (
    PullMessage,
    PullReply,
    PullStatus,
    QueryMessages,
    QueryMessagesReply,
    ViewMessage,
)
from gantrymq.protocol.routing import GetAllTopics, GetSystemTopics
from gantrymq.protocol.running import GetRunningInfo, PulledQueue, RunningInfo
from gantrymq.protocol.statistics import GetGroupsOfTopic, GroupList
from gantrymq.protocol.topics import TopicList
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage
from tests.unit.flows.world import NOW, NS, REPLICA, A, B, world

ID = "7F000001" + "5" * 24
NOTHING = NotFound.because("can not find message")
REFUSED = BrokerFailure.because("not today")


def stored(topic: str = "orders", *, at: int = 4, retries: int = 0, **found: str) -> StoredMessage:
    return StoredMessage(
        topic=topic,
        body=b"one beer",
        property_bytes=properties.encode({"UNIQ_KEY": ID, "TAGS": "red"} | found),
        queue_id=1,
        queue_offset=at,
        log_offset=at * 100,
        store_ms=NOW - 20_000,
        reconsume_times=retries,
    )


def holding(*messages: StoredMessage) -> Callable[[QueryMessages], QueryMessagesReply | NotFound]:
    """A broker's index."""

    def answer(asked: QueryMessages) -> QueryMessagesReply | NotFound:
        body = b"".join(one.encode() for one in messages if one.topic == asked.topic)
        return QueryMessagesReply(index_ms=0, index_log_offset=0, body=body) if body else NOTHING

    return answer


def scene(*messages: StoredMessage) -> tuple[ScriptedRuntime, Reach]:
    """Broker A has the messages; group billing wants topic orders, and me@1 is its member."""
    runtime, reach = world()
    runtime.answer(NS, GetAllTopics, TopicList(topics=["orders"]))
    runtime.answer(NS, GetSystemTopics, TopicList())
    members = ConsumerConnections(
        connections=[ClientConnection(client_id="me@1")],
        subscriptions={"orders": Subscription(topic="orders")},
    )
    for address in (A, B, REPLICA):
        runtime.answer(address, ViewMessage, REFUSED)
        runtime.answer(address, QueryMessages, holding(*(messages if address == A else ())))
        runtime.answer(address, GetGroupsOfTopic, GroupList(groups={"billing"}))
        runtime.answer(address, GetConsumerConnections, members)
        settings = GroupSettings(group="billing", max_retries=7)
        runtime.answer(address, GetGroups, GroupTable(groups={"billing": settings}))
        runtime.answer(address, QueryConsumerOffset, OffsetReply(offset=3))
        runtime.answer(address, GetRunningInfo, RunningInfo())
        version = DataVersion()
        levels = {"messageDelayLevel": "1s 5s 10s 1h"}
        config = BrokerConfigReply(version=version, properties=levels)
        runtime.answer(address, GetBrokerConfig, config)
    return runtime, reach


def told(reach: Reach, **how: Any) -> Explanation:
    return run_blocking(explain(reach, ID, **how))


def test_one_message_and_all_that_is_known_of_it() -> None:
    runtime, reach = scene(stored())
    queue = MessageQueue("orders", "broker-a", 1)
    held = PulledQueue(commit_offset=3, cached_min_offset=3, cached_max_offset=9, cached=7)
    runtime.answer(A, GetRunningInfo, RunningInfo(queues={queue: held}))
    found = told(reach)
    (verdict,) = found.groups
    assert (verdict.state, verdict.holders) == (State.IN_FLIGHT, ["me@1"])
    assert verdict.most_retries == 7
    assert [copy.role for copy in found.copies] == [Role.MESSAGE]
    runtime.answer(A, QueryConsumerOffset, OffsetReply(offset=5))
    assert told(reach).groups[0].state is State.PASSED


def test_a_retry_waits_by_the_brokers_own_delays() -> None:
    waits = stored("SCHEDULE_TOPIC_XXXX", at=8, retries=2, REAL_TOPIC="%RETRY%billing", DELAY="4")
    _, reach = scene(stored(), waits)
    (verdict,) = told(reach).groups
    assert (verdict.state, verdict.retries) == (State.RETRYING, 2)
    assert verdict.due_ms == NOW - 20_000 + 3_600_000


@pytest.mark.parametrize("joint", ["_", "+"])
def test_what_pop_consumers_did_not_acknowledge_in_time(joint: str) -> None:
    again = stored(f"%RETRY%billing{joint}orders", at=3, retries=1)
    _, reach = scene(stored(), again)
    (verdict,) = told(reach).groups
    assert (verdict.state, verdict.retries) == (State.WAITING, 1)
    assert f"%RETRY%billing{joint}orders[broker-a:1] @ 3" in verdict.why[0]


def test_delayed_for_its_own_topic_nobody_can_have_it_yet() -> None:
    waits = stored("SCHEDULE_TOPIC_XXXX", REAL_TOPIC="orders", DELAY="2")
    runtime, reach = scene(waits)
    found = told(reach)
    assert (found.topic, found.groups) == ("orders", [])
    (copy,) = found.copies
    assert (copy.role, copy.due_ms) == (Role.DELAYED, NOW - 15_000)
    runtime.answer(A, GetBrokerConfig, REFUSED)
    assert "not known: the delay levels of broker-a; the usual are assumed" in told(reach).notes
    runtime.answer(A, QueryMessages, holding(waits, stored(at=0)))
    assert "over: it was delivered" in str(told(reach))


def test_what_is_refused_is_said_and_the_rest_is_told() -> None:
    runtime, reach = scene(stored())
    for kind in (GetConsumerConnections, GetGroups, QueryConsumerOffset):
        runtime.answer(A, kind, REFUSED)
        runtime.answer(B, kind, REFUSED)
    found = told(reach)
    (verdict,) = found.groups
    assert verdict.state is State.WAITING
    assert any(note.startswith("not known: how many retries") for note in found.notes)
    for what in ("who is in the group", "how far the group is"):
        assert any(line.startswith(what) for line in verdict.unknown), verdict.unknown
    runtime.answer(A, GetGroupsOfTopic, REFUSED)
    runtime.answer(B, GetGroupsOfTopic, REFUSED)
    found = told(reach)
    assert found.groups == []
    assert any(note.startswith("not known: who consumes orders") for note in found.notes)


def test_a_member_that_does_not_answer() -> None:
    runtime, reach = scene(stored())
    runtime.answer(A, GetRunningInfo, CallTimeout("no reply"))
    (verdict,) = told(reach).groups
    assert any(line.startswith("what me@1 has in hand") for line in verdict.unknown)


def test_members_are_not_asked_for_ever() -> None:
    runtime, reach = scene(stored())
    many = [ClientConnection(client_id=f"me@{number}") for number in range(40)]
    runtime.answer(A, GetConsumerConnections, ConsumerConnections(connections=many))
    runtime.answer(A, GetRunningInfo, RunningInfo(), takes=16)
    (verdict,) = told(reach).groups
    assert len(runtime.asked(GetRunningInfo)) == 2
    assert any(line.startswith("what 38 more members have") for line in verdict.unknown)


@pytest.mark.parametrize("fits", [True, False])
def test_other_filters_are_the_brokers_to_read(fits: bool) -> None:
    runtime, reach = scene(stored())
    wanted = Subscription(topic="orders", expression="a > 1", expression_type="SQL92")
    members = ConsumerConnections(
        connections=[ClientConnection(client_id="me@1")], subscriptions={"orders": wanted}
    )
    for address in (A, B):
        runtime.answer(address, GetConsumerConnections, members)
    body = stored().encode() if fits else b""
    status = PullStatus.FOUND if fits else PullStatus.NOTHING_MATCHED
    reply = PullReply(
        status=status, suggested_broker=0, next_offset=5, min_offset=0, max_offset=9, body=body
    )
    runtime.answer(A, PullMessage, reply)
    (verdict,) = told(reach).groups
    assert verdict.state is (State.WAITING if fits else State.FILTERED)
    ((_, asked),) = runtime.asked(PullMessage)
    assert (asked.subscription, asked.expression_type, asked.offset) == ("a > 1", "SQL92", 4)


def test_a_message_that_nobody_has() -> None:
    _, reach = scene()
    with pytest.raises(NotFound, match=f"no message has the id {ID}"):
        told(reach)
    with pytest.raises((NotFound, TopicNotFound)):
        told(reach, topic="orders")
