from __future__ import annotations

import pytest

from gantrymq.protocol import names

# Read from RocketMQ 5.5.0 by reflection.
SYSTEM = """
    BenchmarkTest CHECKPOINT_TOPIC OFFSET_MOVED_EVENT RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC
    RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC RMQ_SYS_TRACE_TOPIC RMQ_SYS_TRANS_HALF_TOPIC
    RMQ_SYS_TRANS_OP_HALF_TOPIC SCHEDULE_TOPIC_XXXX SELF_TEST_TOPIC TBW102
    TRANS_CHECK_MAX_TIME_TOPIC
"""
UNSENDABLE = """
    OFFSET_MOVED_EVENT RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC
    RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_TRANS_OP_HALF_TOPIC SCHEDULE_TOPIC_XXXX SELF_TEST_TOPIC
    TRANS_CHECK_MAX_TIME_TOPIC
"""
GROUPS = """
    CID_ONS-HTTP-PROXY CID_ONSAPI_OWNER CID_ONSAPI_PERMISSION CID_ONSAPI_PULL CID_RMQ_SYS_TRANS
    CLIENT_INNER_PRODUCER DEFAULT_CONSUMER DEFAULT_PRODUCER FILTERSRV_CONSUMER SCHEDULE_CONSUMER
    SELF_TEST_C_GROUP SELF_TEST_P_GROUP TOOLS_CONSUMER __MONITOR_CONSUMER
"""


def test_the_names_that_rocketmq_has_uses_for() -> None:
    assert set(SYSTEM.split()) == names.SYSTEM_TOPICS
    assert set(UNSENDABLE.split()) == names.UNSENDABLE_TOPICS
    assert set(GROUPS.split()) == names.PREDEFINED_GROUPS


@pytest.mark.parametrize(
    ("topic", "system"),
    [
        ("TBW102", True),
        ("rmq_sys_anything", True),
        (names.TIMER_TOPIC, True),
        ("TopicTest", False),
        ("RMQ_SYS_other", False),
        ("%RETRY%g", False),
    ],
)
def test_system_topics(topic: str, system: bool) -> None:
    assert names.is_system_topic(topic) is system


def test_system_groups_are_told_by_their_prefix() -> None:
    assert names.is_system_group("CID_RMQ_SYS_TRANS")
    assert not names.is_system_group("CID_ONSAPI_PULL")


def test_derived_topics() -> None:
    assert names.retry_topic("G") == "%RETRY%G"
    assert names.dead_letter_topic("G") == "%DLQ%G"
    assert names.reply_topic("C") == "C_REPLY_TOPIC"
    assert names.revive_topic("C") == "rmq_sys_REVIVE_LOG_C"
    assert names.member_sync_topic("b") == "rmq_sys_SYNC_BROKER_MEMBER_b"
    assert names.region_trace_topic("cn") == "rmq_sys_TRACE_DATA_cn"
    assert names.light_queue("q") == "%LMQ%q"
    assert names.lite_topic_queue("parent", "lite") == "%LMQ%$parent$lite"


def test_kinds_of_derived_topics() -> None:
    assert names.is_retry_topic("%RETRY%G")
    assert not names.is_retry_topic("%DLQ%G")
    assert names.is_dead_letter_topic("%DLQ%G")
    assert names.is_light_queue("%LMQ%q")
    assert not names.is_light_queue("LMQ")


@pytest.mark.parametrize(
    ("topic", "group"),
    [
        ("%RETRY%G", "G"),
        ("%DLQ%G", "G"),
        ("%RETRY%G+T", "G"),
        ("%RETRY%G_T", "G_T"),  # the joint may as well be a part of the group's name
        ("T", None),
        ("%LMQ%q", None),
    ],
)
def test_group_of_a_derived_topic(topic: str, group: str | None) -> None:
    assert names.group_of_derived_topic(topic) == group


@pytest.mark.parametrize("newer", [False, True])
@pytest.mark.parametrize(("group", "topic"), [("G", "T"), ("a_b", "c_d"), ("G", "G_T")])
def test_pop_retry_topics_can_be_undone_with_the_group(group: str, topic: str, newer: bool) -> None:
    retry = names.pop_retry_topic(group, topic, newer=newer)
    assert retry == f"%RETRY%{group}{'+' if newer else '_'}{topic}"
    assert names.topic_of_pop_retry(retry, group) == topic


def test_other_topics_are_no_pop_retry_of_the_group() -> None:
    for topic in ("T", "%RETRY%G", "%RETRY%H_T"):
        assert names.topic_of_pop_retry(topic, "G") == topic


@pytest.mark.parametrize(
    ("plain", "wrapped"),
    [
        ("T", "ns%T"),
        ("%RETRY%G", "%RETRY%ns%G"),
        ("%DLQ%G", "%DLQ%ns%G"),
        ("other%T", "ns%other%T"),
    ],
)
def test_a_namespace_goes_between_prefix_and_name(plain: str, wrapped: str) -> None:
    assert names.wrap("ns", plain) == wrapped
    assert names.wrap("ns", wrapped) == wrapped
    assert names.unwrap("ns", wrapped) == plain
    assert names.namespace_of(wrapped) == "ns"


@pytest.mark.parametrize("shared", ["", "TBW102", "rmq_sys_x", "CID_RMQ_SYS_TRANS", "%LMQ%x"])
def test_system_names_are_in_no_namespace(shared: str) -> None:
    assert names.wrap("ns", shared) == shared
    assert names.unwrap("ns", shared) == shared
    assert names.namespace_of(shared) == ""


def test_names_of_other_namespaces_stay() -> None:
    assert names.unwrap("ns", "other%T") == "other%T"
    assert names.unwrap("ns", "%RETRY%other%G") == "%RETRY%other%G"
    assert names.unwrap("", "ns%T") == "ns%T"
    assert names.unwrap("ns", "T") == "T"
    assert names.wrap("", "T") == "T"
    assert names.namespace_of("T") == ""
