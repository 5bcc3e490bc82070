"""Lists of topics, and topics put in and taken out by hand."""

import pytest

from gantrymq.nameserver.state import Tables
from gantrymq.nameserver.topics import (
    drop_topic,
    put_topic,
    system_topics,
    topics_of_cluster,
    topics_where,
)
from gantrymq.protocol.routing import QueueData
from gantrymq.protocol.topics import TopicSettings
from tests.unit.nameserver.asking import A, B, C, registration, take


@pytest.fixture
def tables() -> Tables:
    tables = Tables()
    take(tables, registration())
    take(tables, registration("broker-b", address=B, topics=["orders", "own"]))
    take(tables, registration("broker-c", address=C, cluster="west", topics=["bills", "far"]))
    return tables


def test_the_topics_of_a_cluster_come_once_each(tables):
    assert sorted(topics_of_cluster(tables, "east")) == ["bills", "orders", "own"]
    assert sorted(topics_of_cluster(tables, "west")) == ["bills", "far"]
    assert topics_of_cluster(tables, "north") == []


def test_clusters_and_brokers_are_topics_and_one_broker_is_named(tables):
    found = system_topics(tables)
    assert found.topics == ["east", "broker-a", "broker-b", "west", "broker-c"]
    assert found.broker_address == A
    nothing = system_topics(Tables())
    assert (nothing.topics, nothing.broker_address) == ([], None)


def test_flags_are_those_of_the_first_broker():
    tables = Tables()
    flags = {f"t{number}": TopicSettings(topic=f"t{number}", flags=number) for number in range(4)}
    take(tables, registration(topics=flags))
    other = {f"t{number}": TopicSettings(topic=f"t{number}", flags=3) for number in range(4)}
    take(tables, registration("broker-b", address=B, topics=other))
    assert topics_where(tables, lambda flags: flags == 2) == ["t2"]
    assert topics_where(tables, bool) == ["t1", "t2", "t3"]


def test_a_topic_is_put_in_at_brokers_that_are_known(tables):
    put_topic(tables, "new", [QueueData(broker="broker-a", perm=6)])
    assert set(tables.topics["new"]) == {"broker-a"}
    put_topic(tables, "new", [QueueData(broker="broker-b", perm=6)])
    assert set(tables.topics["new"]) == {"broker-a", "broker-b"}
    put_topic(tables, "new", [])
    put_topic(tables, "none", [])
    assert "none" not in tables.topics


def test_an_unknown_broker_ends_the_work_silently(tables):
    stranger = QueueData(broker="stranger", perm=6)
    known = QueueData(broker="broker-a", perm=4)
    put_topic(tables, "new", [known, stranger])
    assert "new" not in tables.topics
    put_topic(tables, "orders", [known, stranger, QueueData(broker="broker-b", perm=4)])
    perms = {broker: queues.perm for broker, queues in tables.topics["orders"].items()}
    assert perms == {"broker-a": 4, "broker-b": 6}


def test_a_topic_is_taken_out_everywhere_or_in_one_cluster(tables):
    drop_topic(tables, "bills", "west")
    assert set(tables.topics["bills"]) == {"broker-a"}
    drop_topic(tables, "far", "west")
    assert "far" not in tables.topics
    drop_topic(tables, "orders", "")
    assert "orders" not in tables.topics
    before = set(tables.topics)
    drop_topic(tables, "unknown")
    drop_topic(tables, "own", "nowhere")
    assert set(tables.topics) == before
