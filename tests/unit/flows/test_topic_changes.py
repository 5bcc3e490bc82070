"""Topics made, changed and dropped at all their brokers, or refused with the reason."""

from __future__ import annotations

import pytest

from gantrymq.errors import (
    AlreadyExists,
    CallTimeout,
    ConnectFailed,
    InvalidInput,
    PartlyDone,
    TopicNotFound,
)
from gantrymq.flows import topic_changes
from gantrymq.protocol.base import Done
from gantrymq.protocol.configs import DeleteKey, GetKey, KeyReply, PutKey
from gantrymq.protocol.groups import Heartbeat
from gantrymq.protocol.routing import DeleteRoute, GetRoute
from gantrymq.protocol.topics import DeleteTopic, GetTopic, PutTopic
from gantrymq.runtime import run_blocking
from tests.unit.flows.world import ABSENT, NS, OLD, A, B, route, settings, world

NOT_THERE = TopicNotFound.because("No topic in this broker")


def test_a_topic_is_made_at_every_broker_and_known_when_that_returns() -> None:
    runtime, reach = world()
    for address in (A, B):
        runtime.answer(address, GetTopic, [NOT_THERE, settings(read_queues=4, write_queues=4)])
    runtime.answer(NS, GetRoute, [ABSENT, route("orders", "broker-a"), route()])
    made = run_blocking(topic_changes.create_topic(reach, "orders", queues=4))
    assert {name: one.write_queues for name, one in made.items()} == {"broker-a": 4, "broker-b": 4}
    asked = [request for _, request in runtime.asked(PutTopic)]
    assert [(one.read_queues, one.write_queues, one.perm) for one in asked] == [(4, 4, 6)] * 2
    assert len(runtime.asked(GetRoute)) == 3
    assert runtime.time > 0


def test_what_is_there_is_not_made_again() -> None:
    runtime, reach = world()
    runtime.answer(B, GetTopic, NOT_THERE)
    with pytest.raises(AlreadyExists, match=r"broker-a \(2 queues, rw\); broker-b has it not"):
        run_blocking(topic_changes.create_topic(reach, "orders"))
    assert not runtime.asked(PutTopic)


def test_a_name_server_that_never_learns_of_it_is_named() -> None:
    runtime, reach = world()
    for address in (A, B):
        runtime.answer(address, GetTopic, NOT_THERE)
    runtime.answer(NS, GetRoute, ABSENT)
    with pytest.raises(CallTimeout, match=r"10s later name server ns:9876 has no route"):
        run_blocking(topic_changes.create_topic(reach, "orders"))


def test_a_message_type_is_an_attribute_that_old_brokers_do_not_have() -> None:
    runtime, reach = world()
    for address in (A, B):
        runtime.answer(address, GetTopic, [NOT_THERE, settings()])
    run_blocking(topic_changes.create_topic(reach, "orders", message_type="FIFO"))
    assert runtime.asked(PutTopic)[0][1].attributes == {"+message.type": "FIFO"}
    runtime.answer(B, GetTopic, NOT_THERE)
    runtime.answer(B, Heartbeat, OLD)
    with pytest.raises(InvalidInput, match=r"broker-b is RocketMQ 4\.9\.7.*need 5\.0"):
        run_blocking(
            topic_changes.create_topic(reach, "orders", message_type="FIFO", brokers=["broker-b"])
        )


def test_an_ordered_topic_is_written_down_at_the_name_servers() -> None:
    runtime, reach = world()
    runtime.answer(NS, PutKey, Done())
    for address in (A, B):
        runtime.answer(address, GetTopic, [NOT_THERE, settings()])
    run_blocking(topic_changes.create_topic(reach, "orders", queues=3, ordered=True))
    (_, put), *_ = runtime.asked(PutKey)
    assert (put.namespace, put.key, put.value) == (
        "ORDER_TOPIC_CONFIG",
        "orders",
        "broker-a:3;broker-b:3",
    )


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"queues": 0}, "from 1 to 65536"),
        ({"permission": "x"}, "a permission is r, w, rw or none"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_sent(
    how: dict[str, object], why: str
) -> None:
    runtime, reach = world()
    for address in (A, B):
        runtime.answer(address, GetTopic, NOT_THERE)
    with pytest.raises(InvalidInput, match=why):
        run_blocking(topic_changes.create_topic(reach, "orders", **how))  # type: ignore[arg-type]
    assert not runtime.asked(PutTopic)


def test_only_what_is_given_changes() -> None:
    runtime, reach = world()
    runtime.answer(B, GetTopic, settings(read_queues=4, write_queues=4, attributes={"a": "1"}))
    changes = run_blocking(
        topic_changes.alter_topic(
            reach, "orders", queues=4, permission="r", attributes={"a": None, "b": "2"}
        )
    )
    assert [str(change) for change in changes] == [
        "broker-a: read_queues 2 → 4",
        "broker-a: write_queues 2 → 4",
        "broker-a: permission rw → r",
        "broker-a: b None → 2",
        "broker-b: permission rw → r",
        "broker-b: a 1 → None",
        "broker-b: b None → 2",
    ]
    (_, first), (_, second) = runtime.asked(PutTopic)
    assert (first.read_queues, first.perm, second.attributes) == (4, 4, {"-a": "", "+b": "2"})


def test_a_dry_run_and_no_change_send_nothing() -> None:
    runtime, reach = world()
    assert run_blocking(topic_changes.alter_topic(reach, "orders", queues=4, dry_run=True))
    assert run_blocking(topic_changes.alter_topic(reach, "orders", queues=2)) == []
    assert not runtime.asked(PutTopic)


def test_messages_are_not_hidden_by_fewer_queues_to_read() -> None:
    _, reach = world()
    with pytest.raises(InvalidInput, match="1 queues to read and 2 to write at broker-a"):
        run_blocking(topic_changes.alter_topic(reach, "orders", read_queues=1))


def test_a_broker_that_does_not_take_it_is_named() -> None:
    runtime, reach = world()
    runtime.answer(B, PutTopic, ConnectFailed("gone"))
    with pytest.raises(PartlyDone, match=r"done at 1 of 2 brokers \(broker-a\); broker-b: gone"):
        run_blocking(topic_changes.alter_topic(reach, "orders", queues=4))


def test_a_topic_is_dropped_at_its_brokers_and_then_forgotten() -> None:
    runtime, reach = world()
    for address in (A, B):
        runtime.answer(address, DeleteTopic, Done())
    runtime.answer(NS, DeleteRoute, Done())
    runtime.answer(NS, GetKey, KeyReply(value="broker-a:2"))
    runtime.answer(NS, DeleteKey, Done())
    assert run_blocking(topic_changes.delete_topic(reach, "orders")) == ["broker-a", "broker-b"]
    kinds = [type(request).__name__ for _, request in runtime.calls]
    assert kinds.index("DeleteRoute") > kinds.index("DeleteTopic")
    assert runtime.asked(DeleteKey)[0][1].key == "orders"


def test_a_topic_without_a_route_is_looked_for() -> None:
    runtime, reach = world()
    runtime.answer(NS, GetRoute, ABSENT)
    runtime.answer(A, GetTopic, NOT_THERE)
    assert run_blocking(topic_changes.owners(reach, "orders")) == {"broker-b": B}
    runtime.answer(B, GetTopic, NOT_THERE)
    with pytest.raises(TopicNotFound, match="no broker of"):
        run_blocking(topic_changes.owners(reach, "orders"))
