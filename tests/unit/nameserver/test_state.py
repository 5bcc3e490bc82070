"""Whatever happens, the tables agree with each other, and repeated registrations lose nothing."""

from collections.abc import Callable
from copy import copy
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import BrokerFailure
from gantrymq.nameserver.registration import unregister
from gantrymq.nameserver.routing import find_route
from gantrymq.nameserver.state import Tables
from gantrymq.nameserver.topics import drop_topic, put_topic
from gantrymq.protocol.routing import QueueData
from gantrymq.protocol.topics import WRITE
from tests.unit.nameserver.asking import A, B, C, place, registration, settings, take

TOPICS = ("orders", "bills", "users")
BROKERS = ("broker-a", "broker-b")
CLUSTERS = ("east", "west")

Step = Callable[[Tables], object]


def try_to_take(tables: Tables, how: dict, *, delete_missing: bool) -> None:
    try:
        take(tables, registration(**how), delete_missing=delete_missing)
    except BrokerFailure:
        assert len(how["topics"]) == 1


@st.composite
def steps(draw: st.DrawFn) -> Step:
    broker, cluster = draw(st.sampled_from(BROKERS)), draw(st.sampled_from(CLUSTERS))
    address, broker_id = draw(st.sampled_from((A, B, C))), draw(st.integers(0, 2))
    topic = draw(st.sampled_from(TOPICS))
    match draw(st.integers(0, 9)):
        case 0:
            where = place(address, cluster)
            return lambda tables: unregister(tables, where, broker, broker_id)
        case 1:
            return partial(drop_topic, topic=topic, cluster=draw(st.sampled_from((None, cluster))))
        case 2:
            queues = [QueueData(broker=name, perm=6) for name in BROKERS]
            return lambda tables: put_topic(tables, topic, map(copy, queues))
        case 3:
            return lambda tables: tables.set_permission(broker, clear=WRITE)
        case _:
            names = draw(st.sets(st.sampled_from(TOPICS)))
            how = {
                "broker": broker,
                "broker_id": broker_id,
                "address": address,
                "cluster": cluster,
                "topics": settings(sorted(names), read_queues=draw(st.integers(1, 2))),
                "counter": draw(st.integers(1, 2)),
                "state": draw(st.integers(0, 1)),
                "filter_servers": draw(st.sampled_from((None, [], ["f:1"]))),
                "acting_master": draw(st.sampled_from((None, False, True))),
            }
            return partial(try_to_take, how=how, delete_missing=draw(st.booleans()))


def agree(tables: Tables) -> None:
    backwards = {(topic, broker) for broker, names in tables.topics_of.items() for topic in names}
    assert backwards == {(topic, broker) for topic, at in tables.topics.items() for broker in at}
    assert all(tables.topics.values()), "a topic that is nowhere"
    assert all(tables.clusters.values()), "a cluster of nobody"
    assert all(data.addresses for data in tables.brokers.values()), "a name without an address"
    assert {name for names in tables.clusters.values() for name in names} == set(tables.brokers)
    assert set(tables.topics_of) <= set(tables.brokers)
    assert set(tables.mappings) <= set(tables.topics)
    assert all(find_route(tables, topic) is not None for topic in tables.topics)


@given(st.lists(steps(), max_size=25))
def test_the_tables_agree_after_every_step(taken: list[Step]) -> None:
    tables = Tables()
    for step in taken:
        step(tables)
        agree(tables)


@given(st.lists(steps(), max_size=12))
def test_an_edition_stands_for_one_state_and_what_is_not_read_changes_nothing(
    taken: list[Step],
) -> None:
    quick, slow = Tables(), Tables()
    seen: dict[int, str] = {}
    for step in taken:
        step(quick)
        for live in slow.live.values():
            live.edition = -1  # nothing is taken for the same again
        step(slow)
        now = shown(quick)
        assert now == shown(slow)
        assert held(quick) == held(slow)
        assert seen.setdefault(quick.edition, now) == now


def shown(tables: Tables) -> str:
    """What answers show of brokers and topics."""
    clusters = {cluster: sorted(names) for cluster, names in tables.clusters.items()}
    rest = (tables.topics, tables.brokers, tables.filter_servers, tables.mappings)
    return repr((clusters, rest))


def held(tables: Tables) -> list[object]:
    """What is known of those who are alive."""
    return [(at, live.broker, live.broker_id, live.version) for at, live in tables.live.items()]


def test_a_name_that_is_taken_out_takes_its_topics_everywhere() -> None:
    tables = Tables()
    take(tables, registration())
    take(tables, registration("broker-b", address=B))
    tables.drop_broker("broker-a")
    assert {topic: set(at) for topic, at in tables.topics.items()} == {
        "orders": {"broker-b"},
        "bills": {"broker-b"},
    }
    tables.drop_broker("broker-z")
    assert set(tables.brokers) == {"broker-b"}


@pytest.mark.parametrize(("how", "perm"), [({"clear": 2}, 5), ({"put": 6}, 6)])
def test_permissions_are_cleared_or_set_and_counted(how: dict[str, int], perm: int) -> None:
    tables = Tables()
    take(tables, registration(topics=settings(["orders", "bills"], perm=7)))
    assert tables.set_permission("broker-a", **how) == 2
    assert {at["broker-a"].perm for at in tables.topics.values()} == {perm}
    assert tables.set_permission("broker-z", **how) == 0
