"""The same requests to RocketMQ's broker and to ours: the same codes, fields and offsets come back.

What is compared is what clients go by. Remarks are for people, and ours say more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import jars
import plain
import pytest
from apache import Cluster
from gantry import Gantry

from gantrymq.protocol.base import Request
from gantrymq.protocol.pulling import PullMessage
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.topics import (
    DeleteTopic,
    GetBrokerSystemTopics,
    GetTopic,
    PutTopic,
    TopicList,
)
from gantrymq.wire import batch, properties
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.command import Command

Both = tuple[plain.Caller, plain.Caller]

MIB: Final = 2**20
TOPIC: Final = "answers"
IN_BATCH: Final = BatchMessage(b"x", b"UNIQ_KEY\x01A\x02")
VARYING: Final = frozenset({"msgId", "transactionId"})


def send(**fields: Any) -> SendMessage:
    asked = {"group": "g", "topic": TOPIC, "queue_id": 0, "born_ms": 1, "body": b"hello"} | fields
    return SendMessage(**asked)


def pull(**fields: Any) -> PullMessage:
    asked = {"group": "cg", "topic": TOPIC, "queue_id": 0, "offset": 0, "flags": 4}
    return PullMessage(**({"subscription": "*"} | asked | fields))


def put(topic: str, **fields: Any) -> PutTopic:
    return PutTopic(topic=topic, **({"read_queues": 3, "write_queues": 2, "perm": 6} | fields))


def of_batch(*messages: BatchMessage, **fields: Any) -> SendMessage:
    return send(batch=True, body=batch.encode(messages), **fields)


SENDS: Final = {
    "plain": send(),
    "another queue": send(queue_id=3),
    "batch": of_batch(IN_BATCH, IN_BATCH),
    "delayed": send(properties=properties.join({"DELAY": "3"})),
    "as large as may be": send(queue_id=2, body=bytes(4 * MIB)),
    "to the template": send(topic="TBW102"),
    "long name": send(topic="y" * 127),
    "unit": send(topic="unit", unit_mode=True),
    "retry of a new group": send(topic="%RETRY%new"),
    "given up": send(topic="%RETRY%new", reconsume_times=17),
    "odd flags": send(queue_id=1, flags=0x700),
    "no such queue": send(queue_id=4),
    "no such topic": send(topic="nope", default_topic="nowhere"),
    "bad name": send(topic="a b"),
    "blank name": send(topic=""),
    "too long a name": send(topic="x" * 128),
    "schedule topic": send(topic="SCHEDULE_TOPIC_XXXX"),
    "half topic": send(topic="RMQ_SYS_TRANS_HALF_TOPIC"),
    "too large": send(body=bytes(4 * MIB + 1)),
    "much too large": send(body=bytes(5 * MIB)),
    "too many properties": send(properties=properties.join({"x": "y" * 40_000})),
    "batch to a retry topic": of_batch(IN_BATCH, topic="%RETRY%new"),
    "delayed batch": of_batch(IN_BATCH, properties=properties.join({"DELAY": "3"})),
    "says it is a batch": send(flags=0xC0),
}
PULLS: Final = {
    "found": pull(),
    "with another tag": pull(subscription="TagX"),
    "nothing new": pull(offset=2),
    "beyond the end": pull(offset=99),
    "before the start": pull(offset=-1),
    "empty queue": pull(queue_id=3),
    "empty queue beyond": pull(queue_id=3, offset=7),
    "no such queue": pull(queue_id=4),
    "negative queue": pull(queue_id=-1),
    "no such topic": pull(topic="nope"),
    "nobody subscribed": pull(flags=0),
    "bad expression": pull(subscription="||"),
    "by SQL": pull(expression_type="SQL92", subscription="a > 1"),
    "no group's name": pull(group="a b"),
    "system group": pull(group="CID_RMQ_SYS_x"),
}
TOPICS: Final = {
    "made": put("made"),
    "made again": put("made"),
    "with attributes": put("typed", attributes={"+message.type": "FIFO"}),
    "changed": put("typed", attributes={"+message.type": "DELAY", "+reserve.time": "5"}),
    "RocketMQ's own": put("TBW102"),
    "bad name": put("a b"),
    "unknown attribute": put("odd", attributes={"+colour": "red"}),
    "bad value": put("odd", attributes={"+message.type": "LOUD"}),
    "mixed": put("odd", attributes={"+message.type": "MIXED"}),
    "dropping of a new one": put("odd", attributes={"-message.type": ""}),
    "unchangeable": put("typed", attributes={"+queue.type": "BatchCQ"}),
    "found": GetTopic(topic="typed"),
    "not found": GetTopic(topic="nope"),
    "deleted": DeleteTopic(topic="made"),
    "deleted again": DeleteTopic(topic="made"),
    "deleting RocketMQ's own": DeleteTopic(topic="TBW102"),
    "deleting no name": DeleteTopic(topic=" "),
}


@pytest.fixture(scope="module")
def both(clusters: Callable[[str], Cluster]) -> Iterator[Both]:
    """Connections to RocketMQ's broker and to ours."""
    theirs = clusters(jars.CURRENT)
    with Gantry() as ours, plain.Caller(theirs.broker) as one, plain.Caller(ours.broker) as other:
        yield one, other


def answers(both: Both, request: Request[Any]) -> tuple[Command, Command]:
    theirs, ours = (caller.call(request.command()) for caller in both)
    return theirs, ours


def seen(answer: Command) -> tuple[int, dict[str, str]]:
    """What clients go by."""
    return answer.code, {
        name: "" if name in VARYING else value for name, value in answer.fields.items()
    }


def test_sends(both: Both) -> None:
    for name, request in SENDS.items():
        theirs, ours = answers(both, request)
        assert seen(ours) == seen(theirs), (name, ours.remark, theirs.remark)


def test_pulls(both: Both) -> None:
    topic = "pulled"
    for queue_id in (0, 0, 1):
        for answer in answers(both, send(topic=topic, queue_id=queue_id)):
            assert answer.code == 0
    for name, request in PULLS.items():
        if request.topic == TOPIC:
            request.topic = topic
        theirs, ours = answers(both, request)
        assert seen(ours) == seen(theirs), (name, ours.remark, theirs.remark)
        assert bool(ours.body) == bool(theirs.body), name
        if ours.code in (0, 19, 20, 21):
            assert ours.remark == theirs.remark, name


def test_topics(both: Both) -> None:
    for name, request in TOPICS.items():
        theirs, ours = answers(both, request)
        assert seen(ours) == seen(theirs), (name, ours.remark, theirs.remark)
        assert bytes(ours.body) == bytes(theirs.body), name


def test_system_topics(both: Both) -> None:
    theirs, ours = answers(both, GetBrokerSystemTopics())
    found = {*TopicList.from_command(theirs).topics}
    assert {*TopicList.from_command(ours).topics} == found


@pytest.mark.parametrize(
    "request_",
    [send(body=b""), send(batch=True, body=b"junk"), send(batch=True, body=b"")],
    ids=["no body", "no batch", "empty batch"],
)
def test_what_makes_rocketmq_fail_inside_is_refused_as_illegal(
    both: Both, request_: SendMessage
) -> None:
    theirs, ours = answers(both, request_)
    assert (theirs.code, ours.code) == (1, 13)
