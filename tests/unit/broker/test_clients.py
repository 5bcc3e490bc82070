"""Heartbeats, who is in which group, who is told, and who falls silent."""

import pytest

from gantrymq.broker import clients
from gantrymq.broker.clients import ConsumerGroup
from gantrymq.protocol.enums import MessageModel
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.protocol.groups import (
    CheckClientConfig,
    GetAllProducers,
    GetConsumerConnections,
    GetConsumerList,
    GetProducerConnections,
    Subscription,
    UnregisterClient,
)
from gantrymq.wire.codes import Language
from tests.unit.broker.people import Client, beat, wants
from tests.unit.broker.rig import START_MS, Rig, on_loop, refusal, with_rig


def ids(rig, group):
    request = GetConsumerList(group=group)
    return clients.get_consumer_list(request, rig.broker, rig.caller).client_ids


@on_loop
def test_a_heartbeat_makes_the_group_its_retry_topic_and_its_members(rig):
    one = Client()
    reply = beat(rig, one, consumes={"billing": wants("orders")}, produces=("shop",))
    assert (reply.supports_fingerprints, reply.subscriptions_changed) == (True, True)
    assert rig.broker.groups.table["billing"].max_retries == 16
    retry = rig.broker.topics.table["%RETRY%billing"]
    assert (retry.read_queues, retry.write_queues, retry.perm, retry.flags) == (1, 1, 6, 0)
    assert ids(rig, "billing") == ["client-1"]
    assert set(rig.broker.groups.consumers("billing").subscriptions) == {"orders"}
    assert rig.broker.producers.members.by_group.keys() == {"shop"}
    assert one.notices() == ["billing"]


@on_loop
def test_the_retry_topic_is_as_the_group_says(rig):
    rig.broker.groups.put([GroupSettings(group="billing", retry_queues=3)])
    beat(rig, Client(), consumes={"billing": []}, unit_mode=True)
    retry = rig.broker.topics.table["%RETRY%billing"]
    assert (retry.read_queues, retry.flags) == (3, 2)


@with_rig(groups__auto_create=False)
def test_a_group_that_may_not_be_made_is_passed_over(rig):
    one = Client()
    reply = beat(rig, one, consumes={"billing": wants("orders"), "CID_RMQ_SYS_X": []})
    assert reply.subscriptions_changed is True
    assert "billing" not in rig.broker.groups.table
    assert rig.broker.groups.consumers("billing") is None
    assert ids(rig, "CID_RMQ_SYS_X") == ["client-1"]
    assert "%RETRY%billing" not in rig.broker.topics.table


@on_loop
def test_everybody_in_a_group_is_told_when_somebody_comes_or_wants_something_else(rig):
    first, second, other = (Client(client_id=f"c{n}") for n in range(3))
    group = {"billing": wants("orders")}
    beat(rig, first, consumes=group)
    beat(rig, other, consumes={"audit": wants("orders")})
    for one in (first, second, other):
        one.notices()
    beat(rig, first, consumes=group)
    assert first.notices() == []
    beat(rig, second, consumes=group)
    assert [one.notices() for one in (first, second, other)] == [["billing"], ["billing"], []]
    beat(rig, first, consumes={"billing": wants("orders", "bills")})
    assert [one.notices() for one in (first, second, other)] == [["billing"], ["billing"], []]
    beat(rig, second, consumes={"billing": wants("bills")})
    assert second.notices() == ["billing"]
    second.is_open = False
    beat(rig, Client(client_id="c9"), consumes={"billing": wants("bills")})
    assert second.notices() == []


@on_loop
def test_nobody_is_told_where_everybody_gets_everything_or_where_it_is_switched_off(rig):
    one = Client()
    beat(rig, one, consumes={"fans": []}, message_model=MessageModel.BROADCASTING)
    rig.broker.groups.put([GroupSettings(group="quiet", notify_changes=False)])
    beat(rig, one, consumes={"quiet": []})
    rig.broker.consumers.notify = False
    beat(rig, one, consumes={"billing": []})
    assert one.notices() == []


def test_a_newer_version_of_a_subscription_takes_the_place_of_an_older_one_only():
    group = ConsumerGroup()
    assert group.subscribe(wants("orders", expression="a", version=5)) is True
    assert group.subscribe(wants("orders", expression="b", version=5)) is False
    assert group.subscriptions["orders"].expression == "a"
    assert group.subscribe(wants("orders", expression="b", version=4)) is False
    assert group.subscribe(wants("orders", expression="c", version=6)) is False
    assert group.subscriptions["orders"].expression == "c"
    assert group.subscribe([]) is True
    assert group.subscriptions == {}


@on_loop
def test_a_fingerprint_stands_for_subscriptions_that_were_sent_before(rig):
    one = Client()

    def says(fingerprint, *, without, wanted=()):
        reply = beat(
            rig,
            one,
            consumes={"billing": list(wanted)},
            fingerprint=fingerprint,
            without_subscriptions=without,
        )
        return reply.subscriptions_changed

    assert says(7, without=False, wanted=wants("orders")) is False
    assert says(7, without=True) is False
    assert set(rig.broker.groups.consumers("billing").subscriptions) == {"orders"}
    assert says(8, without=True) is True
    assert says(8, without=False, wanted=wants("bills")) is False
    assert says(9, without=False, wanted=wants("bills")) is True


@on_loop
def test_a_broker_that_knows_nothing_asks_for_what_was_left_out(rig):
    one = Client()
    left_out = {"fingerprint": 7, "without_subscriptions": True}
    assert beat(rig, one, consumes={"billing": []}, **left_out).subscriptions_changed is True
    assert ids(rig, "billing") == ["client-1"]
    assert beat(rig, one, consumes={"billing": []}, **left_out).subscriptions_changed is True


@on_loop
def test_clients_leave_the_groups_they_name_and_the_others_hear_of_it(rig):
    first, second = Client(client_id="c1"), Client(client_id="c2")
    for one in (first, second):
        beat(rig, one, consumes={"billing": [], "audit": []}, produces=("shop",))
    first.notices(), second.notices()

    def leave(client, **groups):
        request = UnregisterClient(client_id=client.client_id, **groups)
        clients.unregister_client(request, rig.broker, client)

    leave(first, consumer_group="billing")
    assert ids(rig, "billing") == ["c2"]
    assert ids(rig, "audit") == ["c1", "c2"]
    assert (first.notices(), second.notices()) == ([], ["billing"])
    leave(first, consumer_group="billing", producer_group="nowhere")
    assert second.notices() == []
    leave(first, producer_group="shop")
    assert len(rig.broker.producers.members.by_group["shop"]) == 1
    leave(second, consumer_group="billing")
    assert rig.broker.groups.consumers("billing") is None
    assert refusal(lambda: ids(rig, "billing")) == (1, "no consumer for this group, billing")


@on_loop
def test_a_group_whose_setting_says_so_is_not_told_that_somebody_left(rig):
    rig.broker.groups.put([GroupSettings(group="quiet", notify_changes=False)])
    first, second = Client(client_id="c1"), Client(client_id="c2")
    for one in (first, second):
        beat(rig, one, consumes={"quiet": []})
    request = UnregisterClient(client_id="c1", consumer_group="quiet")
    clients.unregister_client(request, rig.broker, first)
    assert (ids(rig, "quiet"), second.notices()) == (["c2"], [])


@on_loop
def test_a_connection_that_ends_leaves_all_its_groups(rig):
    first, second = Client(client_id="c1"), Client(client_id="c2")
    beat(rig, first, consumes={"billing": [], "audit": []}, produces=("shop", "mill"))
    beat(rig, second, consumes={"billing": []})
    second.notices()
    rig.broker.left(first)
    assert (ids(rig, "billing"), second.notices()) == (["c2"], ["billing"])
    assert rig.broker.groups.consumers("audit") is None
    assert rig.broker.producers.members.by_group == {}
    rig.broker.left(first)


@on_loop
def test_who_says_nothing_for_two_minutes_is_out_and_loses_the_connection(rig):
    first, second = Client(client_id="c1"), Client(client_id="c2")
    for one in (first, second):
        beat(rig, one, consumes={"billing": []}, produces=("shop",))
    rig.seconds = 60.0
    beat(rig, second, consumes={"billing": []}, produces=("shop",))
    second.notices()
    rig.seconds = 119.9
    rig.broker.expire_clients()
    assert ids(rig, "billing") == ["c1", "c2"]
    rig.seconds = 120.0
    rig.broker.expire_clients()
    assert ids(rig, "billing") == ["c2"]
    assert (first.closed, second.closed) == (True, False)
    assert second.notices() == ["billing"]
    assert list(rig.broker.producers.members.by_group["shop"]) == [second]


@on_loop
def test_a_group_that_a_client_does_not_name_any_more_is_left_but_the_connection_stays(rig):
    one = Client()
    beat(rig, one, consumes={"billing": [], "audit": []})
    rig.seconds = 100.0
    beat(rig, one, consumes={"billing": []})
    rig.seconds = 130.0
    rig.broker.expire_clients()
    assert ids(rig, "billing") == ["client-1"]
    assert rig.broker.groups.consumers("audit") is None
    assert not one.closed


@on_loop
def test_a_client_with_two_connections_is_one_member(rig):
    before, after = Client(), Client(remote="192.0.2.9:50124")
    beat(rig, before, consumes={"billing": []})
    rig.seconds = 1.0
    beat(rig, after, consumes={"billing": []})
    assert ids(rig, "billing") == ["client-1"]
    assert rig.broker.consumers.find("billing", "client-1").peer is after
    assert rig.broker.consumers.find("billing", "client-2") is None


@on_loop
def test_tools_see_who_consumes_and_what(rig):
    one = Client(language=Language.CPP, version=401)
    beat(rig, one, consumes={"billing": wants("orders")})
    request = GetConsumerConnections(group="billing")
    seen = clients.get_consumer_connections(request, rig.broker, rig.caller)
    (connection,) = seen.connections
    assert (connection.client_id, connection.address) == ("client-1", one.remote)
    assert (connection.language, connection.version) == (Language.CPP, 401)
    assert set(seen.subscriptions) == {"orders"}
    assert seen.consume_type == "CONSUME_PASSIVELY"
    assert seen.message_model is MessageModel.CLUSTERING
    unknown = GetConsumerConnections(group="nobody")
    code, remark = refusal(
        lambda: clients.get_consumer_connections(unknown, rig.broker, rig.caller)
    )
    assert (code, remark) == (206, "the consumer group[nobody] not online")


@on_loop
def test_tools_see_who_produces(rig):
    one = Client()
    beat(rig, one, produces=("shop",))
    request = GetProducerConnections(group="shop")
    seen = clients.get_producer_connections(request, rig.broker, rig.caller)
    assert [connection.client_id for connection in seen.connections] == ["client-1"]
    everybody = clients.get_all_producers(GetAllProducers(), rig.broker, rig.caller).producers
    (producer,) = everybody["shop"]
    assert (producer.client_id, producer.address) == ("client-1", one.remote)
    assert producer.last_update_ms == START_MS
    unknown = GetProducerConnections(group="nobody")
    code, remark = refusal(
        lambda: clients.get_producer_connections(unknown, rig.broker, rig.caller)
    )
    assert (code, remark) == (1, "the producer group[nobody] not exist")


@pytest.mark.parametrize("kind", ["", "TAG"])
def test_subscriptions_by_tag_are_fine(kind):
    assert checked(Rig(), "red", kind).remark is None


def test_subscriptions_by_sql_are_fine_where_they_are_right():
    rig = Rig()
    assert checked(rig, "amount > 5", "SQL92").remark is None
    code, remark = refusal(lambda: checked(rig, "amount > ", "SQL92"))
    assert (code, "at character 10: there is the end, expected" in remark) == (23, True)
    code, remark = refusal(lambda: checked(rig, "amount", "XPATH"))
    assert (code, remark) == (23, "an expression is of type TAG or SQL92, not XPATH")


def test_subscriptions_by_sql_are_refused_where_they_are_turned_off():
    assert refusal(lambda: checked(Rig(pulls__sql=False), "amount > 5", "SQL92")) == (
        1,
        "The broker does not support consumer to filter message by SQL92",
    )


def checked(rig, expression, kind):
    wanted = Subscription(topic="orders", expression=expression, expression_type=kind)
    request = CheckClientConfig(group="billing", subscription=wanted)
    return clients.check_client_config(request, rig.broker, rig.caller)


@on_loop
def test_what_pulls_say_they_want_is_remembered_for_ten_minutes(rig):
    consumers = rig.broker.consumers
    rig.send()
    rig.pull(subscription="red")
    assert consumers.subscription("billing", "orders").expression == "red"
    rig.seconds = 300.0
    rig.pull(subscription="red")
    rig.pull(subscription="blue")
    rig.seconds = 899.0
    rig.broker.expire_clients()
    assert consumers.subscription("billing", "orders").expression == "blue"
    rig.seconds = 900.0
    rig.broker.expire_clients()
    assert consumers.subscription("billing", "orders") is None
    beat(rig, Client(), consumes={"billing": wants("orders", expression="a")})
    assert consumers.subscription("billing", "orders").expression == "a"
    assert list(consumers.wanting("orders")) == ["billing"]


@on_loop
def test_what_a_group_says_it_wants_is_all_it_wants_but_for_its_pulls(rig):
    unwanted = rig.broker.consumers.is_unwanted
    assert not unwanted("billing", "bills")
    one = Client()
    beat(rig, one, consumes={"billing": []})
    assert not unwanted("billing", "bills")
    beat(rig, one, consumes={"billing": wants("orders")})
    assert (unwanted("billing", "bills"), unwanted("billing", "orders")) == (True, False)
    rig.send("bills")
    rig.pull("bills")
    assert not unwanted("billing", "bills")
