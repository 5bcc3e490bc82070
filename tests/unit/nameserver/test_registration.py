"""Registration, step by step, and everything that takes a broker out again."""

import zlib

import pytest

from gantrymq.errors import BrokerFailure, RemoteProtocolError
from gantrymq.nameserver.registration import (
    depart,
    expired,
    refresh,
    registered_through,
    unregister,
)
from gantrymq.nameserver.state import Tables
from gantrymq.nameserver.topics import drop_topic
from gantrymq.protocol.registration import RegisterBroker
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.topics import READ, WRITE, TopicSettings
from tests.unit.nameserver.asking import A, B, C, place, registration, settings, take


@pytest.fixture
def tables() -> Tables:
    return Tables()


def perms(tables: Tables, broker: str = "broker-a") -> dict[str, int]:
    found = ((topic, at.get(broker)) for topic, at in tables.topics.items())
    return {topic: queues.perm for topic, queues in found if queues is not None}


# --- a master -------------------------------------------------------------------------------------


def test_a_master_brings_its_cluster_its_address_and_its_topics(tables):
    how = TopicSettings(topic="orders", read_queues=8, write_queues=4, perm=6, flags=3)
    registered = take(tables, registration(topics={"orders": how, **settings(["bills"])}), now=7.0)
    assert tables.clusters == {"east": {"broker-a"}}
    data = tables.brokers["broker-a"]
    assert (data.cluster, data.addresses, data.acting_master) == ("east", {0: A}, False)
    queues = tables.topics["orders"]["broker-a"]
    assert (queues.read_queues, queues.write_queues, queues.perm, queues.flags) == (8, 4, 6, 3)
    assert set(tables.topics) == {"orders", "bills"}
    live = tables.live[place()]
    assert (live.heard, live.timeout, live.ha_address) == (7.0, 120.0, f"{A}-ha")
    assert (registered.master_address, registered.ha_address) == (None, None)
    assert registered.notices == []


@pytest.mark.parametrize("version", [36, 37, 409, 513])
def test_every_form_of_the_body_is_read(tables, version):
    take(tables, registration(version=version))
    assert set(tables.topics) == {"orders", "bills"}


@pytest.mark.parametrize("says_so", [True, False], ids=["says so", "does not"])
@pytest.mark.parametrize("version", [409, 513])
def test_a_compressed_body_is_read_even_if_the_header_denies_it(tables, version, says_so):
    request = registration(compressed=True, version=version)
    assert request.body[0] == 0x78
    request.compressed = says_so
    take(tables, request)
    assert set(tables.topics) == {"orders", "bills"}


def test_no_body_is_no_topics_and_the_oldest_version(tables):
    request = RegisterBroker(
        broker="broker-a", address=A, cluster="east", ha_address="", broker_id=0
    )
    take(tables, request)
    version = tables.live[place()].version
    assert (version.state, version.counter, version.timestamp_ms) == (0, 0, 0)
    assert tables.topics == {}
    assert tables.brokers["broker-a"].addresses == {0: A}


def test_a_wrong_checksum_and_a_wrong_body_change_nothing(tables):
    wrong = registration()
    wrong.crc ^= 1
    with pytest.raises(RemoteProtocolError, match="crc32 not match"):
        take(tables, wrong)
    for body in (b"{", b"[]", zlib.compress(b"\0\0\0\x7f"), b"\x78\x9c"):
        garbled = registration()
        garbled.body, garbled.crc = body, 0
        with pytest.raises(RemoteProtocolError):
            take(tables, garbled)
    assert tables == Tables()


def test_its_own_timeout_goes_before_ours(tables):
    take(tables, registration(timeout_ms=10_000), timeout=60)
    take(tables, registration("broker-b", address=B), timeout=60)
    assert tables.live[place()].timeout == 10
    assert tables.live[place(B)].timeout == 60


# --- the same again -------------------------------------------------------------------------------


def test_the_same_again_is_a_sign_of_life_and_is_not_read(tables, monkeypatch):
    take(tables, registration(), now=1, connection="first")
    edition, live = tables.edition, tables.live[place()]
    monkeypatch.delattr(RegisterBroker, "registration")
    take(tables, registration(), now=31, connection="second")
    assert (live.heard, live.connection, tables.edition) == (31, "second", edition)


def test_the_same_again_is_read_where_something_changed_meanwhile(tables):
    take(tables, registration())
    take(tables, registration("broker-b", address=B))
    drop_topic(tables, "orders")
    take(tables, registration())
    assert set(tables.topics["orders"]) == {"broker-a"}


def test_an_unchanged_version_brings_only_topics_that_are_missing_here(tables):
    take(tables, registration(topics=settings(["orders", "bills"], read_queues=4)))
    drop_topic(tables, "bills")
    take(tables, registration(topics=settings(["orders", "bills", "new"], read_queues=9)))
    reads = {topic: at["broker-a"].read_queues for topic, at in tables.topics.items()}
    assert reads == {"orders": 4, "bills": 9, "new": 9}


def test_a_new_version_brings_everything_and_drops_nothing(tables):
    take(tables, registration())
    take(tables, registration(topics=settings(["orders", "new"], read_queues=9), counter=2))
    assert set(tables.topics) == {"orders", "bills", "new"}
    assert tables.topics["orders"]["broker-a"].read_queues == 9


def test_an_increment_of_one_topic_is_fine_once_the_broker_is_known(tables):
    take(tables, registration())
    take(tables, registration(topics=["new"], counter=2))
    assert set(tables.topics) == {"orders", "bills", "new"}


def test_topics_that_are_missing_are_dropped_where_that_is_wanted(tables):
    take(tables, registration())
    take(tables, registration("broker-b", address=B))
    take(tables, registration(topics=["orders", "new"], counter=2), delete_missing=True)
    assert set(tables.topics) == {"orders", "bills", "new"}
    assert set(tables.topics["bills"]) == {"broker-b"}
    take(tables, registration("broker-b", address=B, topics=[], counter=2), delete_missing=True)
    assert set(tables.topics) == {"orders", "new"}


def test_with_static_topics_nothing_is_dropped(tables):
    mapping = QueueMapping(topic="orders", broker="broker-a", total_queues=4)
    take(tables, registration())
    more = registration(topics=["orders", "new"], counter=2, mappings={"orders": mapping})
    take(tables, more, delete_missing=True)
    assert set(tables.topics) == {"orders", "bills", "new"}


# --- guards ---------------------------------------------------------------------------------------


def test_a_broker_that_is_not_known_cannot_begin_with_one_topic(tables):
    with pytest.raises(BrokerFailure, match="register broker failed") as caught:
        take(tables, registration(topics=["orders"]))
    assert caught.value.code == 1
    assert tables == Tables()
    take(tables, registration(topics=[]))
    take(tables, registration(topics=["orders"], counter=2))
    assert set(tables.topics) == {"orders"}


def test_nor_can_another_id_of_a_broker_that_is_known(tables):
    take(tables, registration())
    before = dict(tables.brokers["broker-a"].addresses)
    with pytest.raises(BrokerFailure):
        take(tables, registration(broker_id=1, address=B, topics=["orders"]))
    with pytest.raises(BrokerFailure):  # the same address, promoted or not
        take(tables, registration(broker_id=1, topics=["orders"]))
    assert tables.brokers["broker-a"].addresses == before


def test_an_older_state_is_turned_away_while_the_other_address_is_alive(tables):
    take(tables, registration(state=5))
    take(tables, registration("broker-b", address=B))
    registered = take(tables, registration(address=C, state=4, topics=["intruder", "x"]))
    assert registered.notices == []
    assert tables.brokers["broker-a"].addresses == {0: A}
    assert place(C) not in tables.live
    assert "intruder" not in tables.topics
    take(tables, registration(address=C, state=5))
    assert tables.brokers["broker-a"].addresses == {0: C}


def test_an_older_state_is_taken_when_the_other_one_is_dead(tables):
    take(tables, registration(state=5))
    del tables.live[place()]
    take(tables, registration(address=B, state=4))
    assert tables.brokers["broker-a"].addresses == {0: B}


# --- replicas -------------------------------------------------------------------------------------


def test_a_replica_learns_where_its_master_is_and_brings_no_topics(tables):
    take(tables, registration())
    registered = take(tables, registration(broker_id=1, address=B, topics=["x", "y"]))
    assert (registered.master_address, registered.ha_address) == (A, f"{A}-ha")
    assert set(tables.topics) == {"orders", "bills"}
    assert tables.brokers["broker-a"].addresses == {0: A, 1: B}
    again = take(tables, registration(broker_id=1, address=B, topics=["x", "y"]))
    assert again.master_address == A


def test_a_master_that_is_not_alive_is_not_named(tables):
    take(tables, registration())
    del tables.live[place()]
    registered = take(tables, registration(broker_id=1, address=B))
    assert (registered.master_address, registered.ha_address) == (None, None)


def test_a_promoted_replica_leaves_its_old_id(tables):
    take(tables, registration())
    take(tables, registration(broker_id=1, address=B))
    unregister(tables, place(), "broker-a", 0)
    take(tables, registration(broker_id=0, address=B, counter=2))
    assert tables.brokers["broker-a"].addresses == {0: B}


def test_an_old_replica_alone_brings_no_topics(tables):
    take(tables, registration(broker_id=1))
    assert tables.topics == {}


@pytest.mark.parametrize(("acting", "perm"), [(True, READ), (False, READ | WRITE)])
def test_the_first_replica_of_the_new_kind_brings_topics(tables, acting, perm):
    take(tables, registration(broker_id=1, acting_master=acting))
    assert perms(tables) == {"orders": perm, "bills": perm}
    assert tables.brokers["broker-a"].acting_master is acting
    take(tables, registration(broker_id=2, address=B, acting_master=acting, topics=["x", "y"]))
    assert "x" not in tables.topics


def test_a_returning_master_opens_its_topics_for_writing(tables):
    take(tables, registration(broker_id=1, acting_master=True))
    take(tables, registration(address=B, acting_master=True, counter=2))
    assert perms(tables) == {"orders": 6, "bills": 6}


def test_flags_and_zone_are_those_of_the_last_registration(tables):
    take(tables, registration(acting_master=True, zone="north"))
    data = tables.brokers["broker-a"]
    assert (data.acting_master, data.zone) == (True, "north")
    take(tables, registration())
    assert (data.acting_master, data.zone) == (False, None)


# --- what comes along -----------------------------------------------------------------------------


def test_filter_servers_absent_empty_and_named(tables):
    take(tables, registration(filter_servers=["f:1"]))
    assert tables.filter_servers == {place(): ["f:1"]}
    take(tables, registration(filter_servers=None, counter=2))
    assert tables.filter_servers == {place(): ["f:1"]}
    take(tables, registration(filter_servers=[], counter=3))
    assert tables.filter_servers == {}


def test_mappings_are_kept_by_broker_and_go_with_their_topic(tables):
    old = QueueMapping(topic="orders", broker="broker-a", total_queues=4)
    new = QueueMapping(topic="orders", broker="broker-a", total_queues=8)
    other = QueueMapping(topic="elsewhere", broker="broker-a", total_queues=1)
    take(tables, registration(mappings={"orders": old, "elsewhere": other}))
    assert tables.mappings == {"orders": {"broker-a": old}}
    take(tables, registration(mappings={"orders": new}))
    assert tables.mappings["orders"]["broker-a"] == old
    take(tables, registration(mappings={"orders": new}, counter=2))
    assert tables.mappings["orders"]["broker-a"] == new
    drop_topic(tables, "orders")
    assert tables.mappings == {}
    take(tables, registration(mappings={"orders": new}, counter=2))
    assert tables.mappings["orders"]["broker-a"] == new


# --- staying --------------------------------------------------------------------------------------


def test_a_sign_of_life_counts_for_those_who_are_known(tables):
    take(tables, registration(), now=0)
    assert refresh(tables, place(), 100) is tables.live[place()]
    assert tables.live[place()].heard == 100
    assert refresh(tables, place(B), 100) is None
    assert refresh(tables, place(A, "west"), 100) is None


def test_silence_is_over_the_limit_only_after_it(tables):
    take(tables, registration(), now=0)
    take(tables, registration("broker-b", address=B, timeout_ms=10_000), now=0)
    assert expired(tables, 10) == []
    assert expired(tables, 10.01) == [place(B)]
    assert expired(tables, 120) == [place(B)]
    assert expired(tables, 120.01) == [place(), place(B)]


def test_a_connection_stands_for_all_that_registered_through_it_last(tables):
    first, second = object(), object()
    take(tables, registration(), connection=first)
    take(tables, registration("broker-b", address=B), connection=first)
    take(tables, registration("broker-c", address=C), connection=first)
    take(tables, registration("broker-c", address=C), connection=second)
    assert registered_through(tables, first) == [place(), place(B)]
    assert registered_through(tables, second) == [place(C)]


# --- going ----------------------------------------------------------------------------------------


def test_the_last_of_a_name_takes_topics_cluster_and_filter_servers_along(tables):
    take(tables, registration(filter_servers=["f:1"]))
    take(tables, registration("broker-b", address=B, topics=["orders", "own"]))
    assert unregister(tables, place(), "broker-a", 0) == []
    assert set(tables.topics) == {"orders", "own"}
    assert set(tables.topics["orders"]) == {"broker-b"}
    assert tables.clusters == {"east": {"broker-b"}}
    assert tables.filter_servers == {}
    depart(tables, place(B))
    edition = tables.edition
    assert tables == Tables(edition=edition)


def test_who_is_not_known_can_go_too(tables):
    take(tables, registration())
    before = perms(tables)
    assert unregister(tables, place(B), "broker-z", 0) == []
    assert unregister(tables, place(B), "broker-a", 0) == []
    assert perms(tables) == before
    assert set(tables.live) == {place()}


def test_a_broker_that_moved_to_another_cluster_leaves_nothing_in_the_old_one(tables):
    take(tables, registration())
    take(tables, registration(cluster="west", counter=2))
    assert tables.clusters == {"east": {"broker-a"}, "west": {"broker-a"}}
    depart(tables, place(A, "west"))
    assert tables.clusters == {}
    assert tables.topics == {}


@pytest.mark.parametrize(("acting", "perm"), [(True, READ), (False, READ | WRITE), (None, 6)])
def test_without_a_master_nobody_writes_if_a_replica_can_act_for_it(tables, acting, perm):
    take(tables, registration(acting_master=acting))
    take(tables, registration(broker_id=1, address=B, acting_master=acting))
    unregister(tables, place(), "broker-a", 0)
    assert perms(tables) == {"orders": perm, "bills": perm}


def test_without_a_replica_everybody_goes_on_writing(tables):
    take(tables, registration(acting_master=True))
    take(tables, registration(broker_id=1, address=B, acting_master=True))
    assert unregister(tables, place(B), "broker-a", 1) == []
    assert perms(tables) == {"orders": 6, "bills": 6}


# --- notices --------------------------------------------------------------------------------------


def test_those_who_stay_hear_that_the_smallest_id_is_another(tables):
    for broker_id, address in enumerate((A, B, C)):
        take(tables, registration(broker_id=broker_id, address=address, acting_master=True))
    (notice,) = unregister(tables, place(), "broker-a", 0)
    assert notice.addresses == (B, C)
    said = notice.request
    assert (said.least_id, said.least_address, said.offline_address) == (1, B, A)
    assert (said.broker, said.ha_address) == ("broker-a", None)
    (notice,) = unregister(tables, place(B), "broker-a", 1)
    assert notice.addresses == (C,)
    assert unregister(tables, place(C), "broker-a", 2) == []


def test_the_others_hear_of_a_newcomer_with_a_smaller_id(tables):
    take(tables, registration(broker_id=2, address=C, acting_master=True))
    take(tables, registration(broker_id=3, address=B, acting_master=True))
    registered = take(tables, registration(acting_master=True))
    (notice,) = registered.notices
    assert notice.addresses == (C, B)
    said = notice.request
    assert (said.least_id, said.least_address, said.offline_address) == (0, A, None)
    assert said.ha_address == f"{A}-ha"
    assert take(tables, registration(acting_master=True, counter=2)).notices == []


def test_who_promoted_itself_hears_of_it_alone(tables):
    take(tables, registration(broker_id=1, acting_master=True))
    registered = take(tables, registration(broker_id=0, acting_master=True))
    (notice,) = registered.notices
    assert notice.addresses == (A,)


def test_nobody_hears_of_a_departure_where_replicas_do_not_act(tables):
    take(tables, registration())
    take(tables, registration(broker_id=1, address=B))
    assert unregister(tables, place(), "broker-a", 0) == []
