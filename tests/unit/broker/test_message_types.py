"""Topics that take messages of one type, and priorities."""

from __future__ import annotations

import pytest

from gantrymq.errors import ReplyError
from gantrymq.protocol.topics import TopicSettings
from gantrymq.rules.message_types import mismatch, type_of
from gantrymq.wire import batch, properties
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.codes import Language
from tests.unit.broker.rig import on_loop, refusal, with_rig

GIVEN = {
    "NORMAL": {},
    "FIFO": {properties.SHARDING_KEY: "order-1"},
    "DELAY": {properties.TIMER_DELAY_MS: "5000"},
    "TRANSACTION": {properties.HALF_MESSAGE: "true"},
    "PRIORITY": {properties.PRIORITY: "3"},
}


def make(rig, wanted: str, topic: str = "orders", queues: int = 4) -> None:
    attributes = {"+message.type": wanted}
    rig.broker.topics.put(
        [TopicSettings(topic=topic, read_queues=queues, write_queues=queues, attributes=attributes)]
    )


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ({}, "NORMAL"),
        ({"TRAN_MSG": "true", "DELAY": "3"}, "TRANSACTION"),
        ({"TRAN_MSG": "false"}, "NORMAL"),
        ({"DELAY": "3", "__SHARDINGKEY": "a"}, "DELAY"),
        ({"TIMER_DELAY_SEC": "3"}, "DELAY"),
        ({"TIMER_DELIVER_MS": "3"}, "DELAY"),
        ({"__SHARDINGKEY": "a", "_SYS_MSG_PRIORITY_": "1"}, "FIFO"),
        ({"_SYS_MSG_PRIORITY_": "1", "__LITE_TOPIC": "l"}, "PRIORITY"),
        ({"__LITE_TOPIC": "l"}, "LITE"),
    ],
)
def test_what_a_message_is(found: dict[str, str], kind: str) -> None:
    assert type_of(found.get) == kind


@pytest.mark.parametrize("wanted", ["", "UNSPECIFIED", "MIXED"])
def test_what_takes_everything(wanted: str) -> None:
    assert {mismatch("orders", wanted, given) for given in GIVEN} == {None}


@pytest.mark.parametrize("wanted", list(GIVEN))
@on_loop
def test_a_topic_takes_its_own_type_and_says_how_to_send_it(rig, wanted):
    make(rig, wanted)
    for given, found in GIVEN.items():
        text = properties.join(found)
        if given == wanted:
            rig.send(properties=text)
            continue
        code, remark = refusal(lambda text=text: rig.send(properties=text))
        assert code == 13
        assert (
            f"topic orders is for messages of type {wanted}, and this one is of type {given}"
            in (remark)
        )
        assert {"FIFO": "order_key", "DELAY": "delay=", "TRANSACTION": "producer.transaction("}.get(
            wanted, "send it with"
        ) in remark
        assert f"message.type {given} or MIXED" in remark


@on_loop
def test_clients_that_cannot_say_that_a_message_is_ordered_need_not(rig):
    make(rig, "FIFO")
    assert rig.send(language=Language.JAVA).offset == 0
    assert refusal(rig.send)[0] == 13
    assert refusal(lambda: rig.send(language=Language.JAVA, properties="DELAY\x011\x02"))[0] == 13


@on_loop
def test_each_message_of_a_batch_is_looked_at(rig):
    make(rig, "NORMAL")
    plain = BatchMessage(b"a", b"KEYS\x01k\x02", 0)
    delayed = BatchMessage(b"b", b"KEYS\x01k\x02TIMER_DELAY_MS\x015\x02", 0)
    assert rig.send(body=batch.encode([plain, plain]), batch=True).offset == 0
    code, remark = refusal(lambda: rig.send(body=batch.encode([plain, delayed]), batch=True))
    assert (code, "of type DELAY" in remark) == (13, True)
    rig.broker.topics.put(
        [TopicSettings(topic="kept", attributes={"+cleanup.policy": "COMPACTION"})]
    )
    keyless = BatchMessage(b"b", b"", 0)
    rig.send("kept", body=batch.encode([plain, plain]), batch=True)
    with pytest.raises(ReplyError, match="Required message key is missing"):
        rig.send("kept", body=batch.encode([plain, keyless]), batch=True)


@with_rig(topics__check_types=False)
def test_types_are_not_asked_about_where_that_is_switched_off(rig):
    make(rig, "NORMAL")
    assert rig.send(properties="__SHARDINGKEY\x01a\x02").offset == 0


@on_loop
def test_a_priority_is_a_queue_and_means_nothing_elsewhere(rig):
    make(rig, "PRIORITY", queues=4)
    text = f"{properties.PRIORITY}\x01%d\x02"
    assert [rig.send(properties=text % n).queue_id for n in (0, 2, 3, 9)] == [0, 2, 3, 3]
    assert [message.find(properties.PRIORITY) for message in rig.stored(queue_id=3)] == ["3", "9"]
    make(rig, "MIXED", topic="mixed")
    assert rig.send("mixed", properties=f"a\x01b\x02{text % 2}").queue_id == 0
    (stored,) = rig.stored("mixed")
    assert stored.find(properties.PRIORITY) is None
    assert stored.find("a") == "b"


@on_loop
def test_a_topic_for_batches_has_their_messages_one_by_one(rig):
    """RocketMQ's producers give such a batch an id of its own, and may be told none."""
    attributes = {"+queue.type": "BatchCQ"}
    rig.broker.topics.put([TopicSettings(topic="orders", attributes=attributes)])
    body = batch.encode([BatchMessage(b"%d" % n, b"KEYS\x01k\x02", 0) for n in range(3)])
    reply = rig.send(body=body, batch=True, properties="UNIQ_KEY\x01B\x02")
    assert (reply.offset, reply.batch_id) == (0, None)
    assert [(one.queue_offset, one.body) for one in rig.stored()] == [
        (0, b"0"), (1, b"1"), (2, b"2"),
    ]  # fmt: skip
