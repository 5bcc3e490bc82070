"""The same questions to RocketMQ's broker and to ours: the answers are the same.

Every step of `SCRIPT` is asked of both, in order. Answers are compared as what they say: refusals
by code and text, replies by their fields, with the order taken out of what has none, and with the
times, addresses and ids taken out that cannot be equal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final

import pytest
from apache import Cluster
from gantry import Gantry

from gantrymq.errors import ReplyError
from gantrymq.model import MessageQueue
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.assignments import QueryAssignment, RequestMode, SetRequestMode
from gantrymq.protocol.base import Request
from gantrymq.protocol.brokers import CleanConsumeQueues, DeleteExpiredLog
from gantrymq.protocol.enums import Boundary, MessageModel
from gantrymq.protocol.group_settings import (
    DeleteGroup,
    ForbidGroup,
    GetGroup,
    GroupSettings,
    PutGroup,
)
from gantrymq.protocol.groups import (
    CheckClientConfig,
    ConsumerData,
    GetConsumerConnections,
    GetConsumerList,
    GetProducerConnections,
    Heartbeat,
    ProducerData,
    Subscription,
    UnregisterClient,
)
from gantrymq.protocol.locks import LockQueues, UnlockQueues
from gantrymq.protocol.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    QueryCorrectionOffsets,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.protocol.pulling import PullFlag, PullMessage, QueryMessages, ViewMessage
from gantrymq.protocol.resets import CloneGroupOffsets, GetClientOffsets, ResetOffsets
from gantrymq.protocol.running import GetRunningInfo
from gantrymq.protocol.sending import SendBack, SendMessage
from gantrymq.protocol.statistics import (
    GetBrokerStats,
    GetConsumeStats,
    GetGroupsOfTopic,
    GetSubscription,
    GetTimeSpans,
    GetTopicsOfGroup,
    GetTopicStats,
    QueryConsumeQueue,
)
from gantrymq.wire import properties, record

T: Final = "answers"
RETRY: Final = "%RETRY%GID_answers"
DEAD: Final = "%DLQ%GID_answers"
G: Final = "GID_answers"
LATER: Final = 4_102_444_800_000
"""In the year 2100."""

Step = tuple[str, Request[Any]]


def send(queue_id: int = 0, **found: str) -> SendMessage:
    return SendMessage(
        group="PID_answers",
        topic=T,
        queue_id=queue_id,
        born_ms=1_700_000_000_000,
        properties=properties.join(found),
        body=b"body",
    )


def pull(topic: str, offset: int = 0, queue_id: int = 0, *, wait_ms: int = 0) -> PullMessage:
    flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait_ms else 0)
    return PullMessage(
        group=G,
        topic=topic,
        queue_id=queue_id,
        offset=offset,
        flags=flags,
        subscription="*",
        wait_ms=wait_ms,
    )


def heartbeat(group: str = G, *, wants: bool = True, **how: Any) -> Heartbeat:
    subscriptions = [Subscription(topic=T, version=1)] if wants else []
    return Heartbeat(
        client_id="c1",
        consumers=[ConsumerData(group=group, subscriptions=subscriptions)],
        producers=[ProducerData(group="PID_answers")],
        **how,
    )


def queues(*numbers: int) -> set[MessageQueue]:
    return {MessageQueue(T, "broker-a", number) for number in numbers}


def query(group: str = G, topic: str = T, queue_id: int = 0, **how: Any) -> QueryConsumerOffset:
    return QueryConsumerOffset(group=group, topic=topic, queue_id=queue_id, **how)


def update(offset: int, group: str = G, topic: str = T) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(group=group, topic=topic, queue_id=0, offset=offset)


def by_key(key: str, **how: Any) -> QueryMessages:
    asked: dict[str, Any] = {"max_messages": 10, "begin_ms": 0, "end_ms": LATER} | how
    return QueryMessages(topic=T, key=key, **asked)


def assignment(client_id: str = "c1", group: str = G, **how: Any) -> QueryAssignment:
    return QueryAssignment(topic=T, group=group, client_id=client_id, **how)


def mode(topic: str = T, group: str = G) -> SetRequestMode:
    return SetRequestMode(setting=RequestMode(topic=topic, group=group))


def reset(**how: Any) -> ResetOffsets:
    asked: dict[str, Any] = {"topic": T, "group": G, "timestamp_ms": -1} | how
    return ResetOffsets(**asked)


def script(first_ms: int, first_offset: int) -> Iterator[Step]:
    """What is asked after the messages were sent; the first of them is there."""
    fingerprint: dict[str, Any] = {"group": "GID_prints", "fingerprint": 7}
    left_out: dict[str, Any] = {"wants": False, "without_subscriptions": True}
    # clients
    yield "nobody is there", GetConsumerList(group="GID_nobody")
    yield "heartbeat", heartbeat()
    yield "fingerprint, first", heartbeat(**fingerprint)
    yield "fingerprint, same", heartbeat(**fingerprint, **left_out)
    yield "fingerprint, other", heartbeat(**fingerprint | {"fingerprint": 8}, **left_out)
    yield "fingerprint, other again", heartbeat(**fingerprint | {"fingerprint": 8})
    yield "group without a proper name", heartbeat("a/b")
    yield "members", GetConsumerList(group=G)
    yield "connections", GetConsumerConnections(group=G)
    yield "connections of nobody", GetConsumerConnections(group="GID_nobody")
    yield "producers", GetProducerConnections(group="PID_answers")
    yield "producers of nobody", GetProducerConnections(group="PID_nobody")
    yield "filter by tag", CheckClientConfig(group=G, subscription=Subscription(topic=T))
    # offsets
    yield "offset of a new group", query("GID_new")
    yield "offset of a new group, not nought", query("GID_new", zero_if_unknown=False)
    yield "offset in an empty queue", query("GID_new", queue_id=3)
    yield "offset in no topic", query("GID_new", "nowhere")
    yield "commit of no group", update(1, group="GID_gone")
    yield "commit in no topic", update(1, topic="nowhere")
    yield "commit", update(2)
    yield "offset", query()
    yield "least", GetMinOffset(topic=T, queue_id=0)
    yield "least in no topic", GetMinOffset(topic="nowhere", queue_id=0)
    yield "end", GetMaxOffset(topic=T, queue_id=0)
    yield "end in no topic", GetMaxOffset(topic="nowhere", queue_id=0)
    yield "earliest in an empty queue", GetEarliestStoreTime(topic=T, queue_id=3)
    for what, when in (("long before", 0), ("at the first", first_ms), ("long after", LATER)):
        for boundary in Boundary:
            request = SearchOffset(topic=T, queue_id=0, timestamp_ms=when, boundary=boundary)
            yield f"by time, {what}, {boundary}", request
    # resets
    yield "reset of one queue", reset(queue_id=0, offset=1)
    yield "commit before the reset is taken", update(2)
    yield "reset beyond the end", reset(queue_id=0, offset=70)
    yield "reset in no topic", reset(topic="nowhere")
    yield "reset of no group", reset(group="GID_gone")
    yield "pull that takes the reset", pull(T, 2)
    yield "offset after the reset", query()
    yield "commit after it", update(3)
    yield "reset to the beginning", reset(timestamp_ms=0)
    yield "reset to the end", reset()
    yield "correction", QueryCorrectionOffsets(topic=T, compare_group=G)
    yield "clone", CloneGroupOffsets(source_group=G, target_group="GID_clone", topic=T)
    yield "offset of the clone", query("GID_clone")
    # locks
    yield "lock", LockQueues(group=G, client_id="c1", queues=queues(0, 1))
    yield "lock of another", LockQueues(group=G, client_id="c2", queues=queues(1, 2))
    yield "unlock of what is another's", UnlockQueues(group=G, client_id="c2", queues=queues(1))
    yield "lock of another again", LockQueues(group=G, client_id="c2", queues=queues(1))
    yield "unlock", UnlockQueues(group=G, client_id="c1", queues=queues(0, 1))
    yield "lock after all", LockQueues(group=G, client_id="c2", queues=queues(0, 1))
    yield "unlock everything", UnlockQueues(group=G, client_id="c2", queues=queues(0, 1, 2))
    # messages
    yield "by key", by_key("k1")
    yield "by unique key", by_key("UQ1", unique=True)
    yield "by no key", by_key("nothing")
    yield "by key, too early", by_key("k1", end_ms=1000)
    yield "view", ViewMessage(log_offset=first_offset)
    yield "view of nothing", ViewMessage(log_offset=1 << 40)
    yield "entries", QueryConsumeQueue(topic=T, queue_id=0, index=1, count=1, group="GID_nobody")
    yield "entries of no queue", QueryConsumeQueue(topic=T, queue_id=50, index=0, count=1)
    # retries
    back = {"log_offset": first_offset, "topic": T}
    yield "sent back", SendBack(group=G, delay_level=1, **back)
    yield "comes back", pull(RETRY, wait_ms=5000)
    yield "given up", SendBack(group=G, delay_level=-1, **back)
    yield "rests", pull(DEAD)
    yield "sent back what is not there", SendBack(log_offset=7, group=G, delay_level=1, topic=T)
    yield "sent back by no group", SendBack(group="a/b", delay_level=1, **back)
    # statistics
    yield "topic", GetTopicStats(topic=T)
    yield "no topic", GetTopicStats(topic="nowhere")
    yield "progress", GetConsumeStats(group=G)
    yield "progress of a clone", GetConsumeStats(group="GID_clone", topic=T)
    yield "progress of nobody", GetConsumeStats(group="GID_nobody")
    yield "count of nothing", GetBrokerStats(name="TOPIC_PUT_NUMS", key="nowhere")
    yield "no count", GetBrokerStats(name="FOO", key=T)
    yield "groups of a topic", GetGroupsOfTopic(topic=T)
    yield "topics of a group", GetTopicsOfGroup(group="GID_clone")
    yield "subscription", GetSubscription(group=G, topic=T)
    yield "no subscription", GetSubscription(group="GID_clone", topic=T)
    yield "time spans", GetTimeSpans(topic=T, group=G)
    yield "time spans of no topic", GetTimeSpans(topic="nowhere", group=G)
    yield "clean", CleanConsumeQueues()
    yield "delete", DeleteExpiredLog()
    # what clients would have to answer
    yield "nobody runs", GetRunningInfo(group=G, client_id="c9")
    yield "nobody stands anywhere", GetClientOffsets(topic=T, group="GID_nobody")
    # assignments
    yield "share", assignment()
    yield "share by turns", assignment(strategy="AVG_BY_CIRCLE")
    yield "share by no rule", assignment(strategy="ODD")
    yield "share of a stranger", assignment("c9")
    yield "share of nobody's group", assignment(group="GID_nobody")
    yield "share in broadcasting", assignment("c9", message_model=MessageModel.BROADCASTING)
    yield "mode", mode()
    yield "mode of a retry topic", mode(RETRY)
    yield "mode of no topic", mode("nowhere")
    yield "mode of a new group", mode(group="GID_moded")
    # groups
    yield "forbid", ForbidGroup(group=G, topic=T, readable=False)
    yield "is forbidden", ForbidGroup(group=G, topic=T)
    yield "allow", ForbidGroup(group=G, topic=T, readable=True)
    settings = GroupSettings(group="GID_put", max_retries=3, attributes={"+priority.factor": "7"})
    yield "put", PutGroup(settings=settings)
    yield "get", GetGroup(group="GID_put")
    yield "get a new one", GetGroup(group="GID_got")
    wrong = GroupSettings(group="GID_wrong", attributes={"+foo": "1"})
    yield "put an attribute that there is not", PutGroup(settings=wrong)
    yield "leave", UnregisterClient(client_id="c1", producer_group="PID_answers", consumer_group=G)
    yield "nobody is left", GetConsumerList(group=G)
    yield "delete the group", DeleteGroup(group=G, clean_offsets=True)
    yield "offset of the deleted group", query(queue_id=3)


CODE_ALONE: Final = {
    "nobody stands anywhere": "RocketMQ answers with a NullPointerException",
    "entries": "RocketMQ says that no code was set, and sends the entries",
    "sent back what is not there": "we say why",
}
"""Steps of which only the code is compared, and why."""


def plain(value: Any) -> Any:
    """An answer without what cannot be equal, and without an order where there is none."""
    if isinstance(value, MessageQueue) or not is_dataclass(value):
        return _plain_part(value)
    return {one.name: _plain_field(one.name, getattr(value, one.name)) for one in fields(value)}


def _plain_part(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted((repr(key), plain(part)) for key, part in value.items())
    if isinstance(value, set | list | tuple) and not isinstance(value, MessageQueue):
        return sorted((plain(part) for part in value), key=repr)
    return value


def _plain_field(name: str, value: Any) -> Any:
    if name == "remark":
        return value or None
    if name == "body":
        return [_message(one) for one in record.iterate(value)]
    if name in ("log_offset", "index_log_offset", "size", "broker_address", "address", "more"):
        return "?"
    if name.endswith(("_text", "tps")) or (name.endswith("_ms") and value > 0):
        return "?"
    return plain(value)


def _message(one: record.StoredMessage) -> Any:
    found = one.properties
    if "ORIGIN_MESSAGE_ID" in found:
        found["ORIGIN_MESSAGE_ID"] = "?"
    return (one.topic, one.queue_id, one.queue_offset, one.body, one.flag, one.sys_flag,
            one.born_ms, one.reconsume_times, sorted(found.items()))  # fmt: skip


def answer(peer: BlockingPeer, what: str, request: Request[Any]) -> Any:
    """What a broker makes of it, ready to be compared."""
    try:
        reply = peer.call(request, timeout=20)
    except ReplyError as error:
        text = re.sub(
            r"^java\.lang\.\w+: |, org\.apache\S+$| ?\nSee http.*", "", error.remark or ""
        )
        return error.code, "" if what in CODE_ALONE else text
    return 0, "" if what in CODE_ALONE else plain(reply)


def answers(broker: str) -> dict[str, Any]:
    """Everything that a broker answers."""
    with BlockingPeer.connect(broker) as peer:
        for number in range(6):
            found = {"KEYS": f"k{number}", "UNIQ_KEY": f"UQ{number}", "TAGS": "t"}
            sent = peer.call(send(number % 2, **found), timeout=20)
            time.sleep(0.01)
        assert sent.offset == 2
        deadline = time.monotonic() + 20  # RocketMQ builds its queues and index behind
        while not (found_first := list(record.iterate(peer.call(pull(T), timeout=20).body))):
            assert time.monotonic() < deadline
        time.sleep(1)
        first = found_first[0]
        return {
            what: answer(peer, what, request)
            for what, request in script(first.store_ms, first.log_offset)
        }


@pytest.fixture(scope="module")
def gantry() -> Iterator[Gantry]:
    with Gantry() as running:
        yield running


def test_the_answers_are_the_same(clusters: Callable[[str], Cluster], gantry: Gantry) -> None:
    theirs, ours = answers(clusters("5.5.0").broker), answers(gantry.broker)
    assert list(ours) == list(theirs)
    different = [
        f"{what}:\n  RocketMQ {theirs[what]}\n  Gantry   {said}"
        for what, said in ours.items()
        if said != theirs[what]
    ]
    assert not different, "\n".join(different)
