"""Who is connected, put together from what brokers and members say."""

from __future__ import annotations

import pytest

from gantrymq.errors import BrokerFailure, ConnectFailed, ConsumerOffline, NotFound
from gantrymq.flows import members
from gantrymq.protocol.enums import ConsumeType, MessageModel
from gantrymq.protocol.groups import (
    AllProducers,
    ClientConnection,
    ConsumerConnections,
    GetAllProducers,
    GetConsumerConnections,
    GetProducerConnections,
    ProducerConnections,
    ProducerInfo,
    Subscription,
)
from gantrymq.protocol.running import GetRunningInfo, RunningInfo
from gantrymq.runtime import run_blocking
from gantrymq.wire.codes import Language
from gantrymq.wire.versions import V5_5_0
from tests.unit.flows.world import A, B, world

OFFLINE = ConsumerOffline.because("no")


def connections(*ids: str) -> ConsumerConnections:
    return ConsumerConnections(
        connections=[
            ClientConnection(
                client_id=one, address="10.0.0.9:4", language=Language.PYTHON, version=V5_5_0
            )
            for one in ids
        ],
        subscriptions={"orders": Subscription(topic="orders")},
        consume_type=ConsumeType.PUSH,
        message_model=MessageModel.CLUSTERING,
    )


def test_a_member_of_two_brokers_is_one_member() -> None:
    runtime, reach = world()
    runtime.answer(A, GetConsumerConnections, connections("c1", "c2"))
    runtime.answer(B, GetConsumerConnections, connections("c1"))
    found = run_blocking(members.group_members(reach, "billing"))
    assert [(one.client_id, one.brokers) for one in found.members] == [
        ("c1", ["broker-a", "broker-b"]),
        ("c2", ["broker-a"]),
    ]
    assert (found.members[0].language, found.members[0].version) == ("PYTHON", "5.5.0")
    assert found.message_model == "CLUSTERING"


def test_nobody_is_an_answer_and_a_broker_that_is_away_is_told() -> None:
    runtime, reach = world()
    runtime.answer(A, GetConsumerConnections, OFFLINE)
    runtime.answer(B, GetConsumerConnections, ConnectFailed("gone"))
    found = run_blocking(members.group_members(reach, "billing"))
    assert found.members == []
    assert list(found.failures) == ["broker-b"]


def test_running_info_is_asked_where_the_member_is() -> None:
    runtime, reach = world()
    runtime.answer(A, GetConsumerConnections, OFFLINE)
    runtime.answer(B, GetConsumerConnections, connections("c1"))
    runtime.answer(B, GetRunningInfo, RunningInfo(properties={"x": "1"}))
    assert run_blocking(members.running_info(reach, "billing", "c1")).properties == {"x": "1"}
    with pytest.raises(NotFound, match="called 'c9'; there is: c1"):
        run_blocking(members.running_info(reach, "billing", "c9"))
    runtime.answer(B, GetRunningInfo, BrokerFailure.because("not online"))
    with pytest.raises(NotFound, match=r"could not ask c1: not online\. Clients behind a proxy"):
        run_blocking(members.running_info(reach, "billing", "c1"))


def test_members_that_want_different_things_are_found() -> None:
    runtime, reach = world()
    runtime.answer(A, GetConsumerConnections, connections("c1", "c2", "deaf"))
    runtime.answer(B, GetConsumerConnections, OFFLINE)
    wanted = {"c1": [("orders", "b||a")], "c2": [("orders", "a || b"), ("returns", "*")]}

    def info(request: GetRunningInfo) -> RunningInfo | Exception:
        if request.client_id == "deaf":
            return BrokerFailure.because("too old")
        subscriptions = [
            Subscription(topic=topic, expression=expression)
            for topic, expression in wanted[request.client_id]
        ]
        return RunningInfo(subscriptions=subscriptions)

    runtime.answer(A, GetRunningInfo, info)
    diverging, silent = run_blocking(members.diverging(reach, "billing"))
    assert [str(one) for one in diverging] == [
        "members of the group want returns differently: c1: not subscribed; c2: tags *"
    ]
    assert list(silent) == ["deaf"]


def test_producers_of_all_groups_or_of_one() -> None:
    runtime, reach = world()
    runtime.answer(
        A,
        GetAllProducers,
        AllProducers(
            producers={
                "PID": [ProducerInfo(client_id="p1", address="x:1", language=Language.JAVA)],
                "PID2": [ProducerInfo(client_id="p1", address="x:1", language=Language.JAVA)],
            }
        ),
    )
    runtime.answer(B, GetAllProducers, AllProducers())
    (found,) = run_blocking(members.producers(reach))
    assert (found.client_id, found.groups, found.brokers) == ("p1", ["PID", "PID2"], ["broker-a"])
    runtime.answer(A, GetProducerConnections, BrokerFailure.because("not exist"))
    runtime.answer(
        B, GetProducerConnections, ProducerConnections(connections=connections("p2").connections)
    )
    (found,) = run_blocking(members.producers(reach, group="PID"))
    assert (found.client_id, found.brokers) == ("p2", ["broker-b"])
