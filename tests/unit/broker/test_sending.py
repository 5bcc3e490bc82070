"""Messages from producers: what is stored, what is answered, what is refused."""

from __future__ import annotations

import asyncio

import pytest

from gantrymq.broker.keeping import Keeper
from gantrymq.broker.sending import Marks
from gantrymq.errors import ReplyError, ServiceUnavailable
from gantrymq.model import SendStatus
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.protocol.topics import TopicSettings
from gantrymq.wire import batch, properties
from gantrymq.wire.batch import BatchMessage
from gantrymq.wire.command import Command
from gantrymq.wire.flags import MULTI_TAGS
from tests.support import run_on, until
from tests.unit.broker.rig import (
    START_MS,
    MemoryFiles,
    Rig,
    SlowFiles,
    on_loop,
    refusal,
    with_rig,
)

BUSY = "[REJECTREQUEST]system busy, start flow control for a while"


# --- what is stored -------------------------------------------------------------------------------


@on_loop
def test_a_message_is_stored_as_it_came(rig):
    text = properties.join({"UNIQ_KEY": "U1", "TAGS": "A", "own": "ünï"})
    reply = rig.send(
        body=b"hello", queue_id=2, properties=text, flag=7, flags=0x101, reconsume_times=3
    )
    (found,) = rig.stored(queue_id=2)
    assert (found.topic, found.body, found.flag, found.sys_flag) == ("orders", b"hello", 7, 0x101)
    assert (found.born_ms, found.store_ms) == (START_MS - 5, START_MS)
    assert (found.born_host, found.store_host) == ("192.0.2.9:50123", "10.0.0.1:10911")
    assert found.reconsume_times == 3
    assert found.properties == {
        "UNIQ_KEY": "U1", "TAGS": "A", "own": "ünï", "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
    }  # fmt: skip
    assert reply == SendReply(
        message_id=found.offset_id, queue_id=2, offset=0, transaction_id="U1",
        region="DefaultRegion", traced=True,
    )  # fmt: skip


@on_loop
def test_offsets_count_up_in_each_queue(rig):
    assert [rig.send(queue_id=n % 2).offset for n in range(6)] == [0, 0, 1, 1, 2, 2]


@on_loop
def test_a_queue_is_chosen_where_none_is_named(rig):
    chosen = {rig.send(queue_id=-1).queue_id for _ in range(60)}
    assert chosen == {0, 1, 2, 3}


@on_loop
def test_a_message_without_an_id_gets_one(rig):
    for text in (None, "", "TAGS\x01A", "UNIQ_KEY\x01\x02"):
        reply = rig.send(properties=text)
        assert len(reply.transaction_id) == 32
    stored = rig.stored()
    assert len({message.message_id for message in stored}) == 4
    assert stored[2].properties["TAGS"] == "A"


@on_loop
def test_a_topic_for_several_tags_marks_its_messages(rig):
    rig.broker.topics.put([TopicSettings(topic="orders", filter_type=TopicFilterType.MULTI_TAG)])
    rig.send()
    assert rig.stored()[0].sys_flag == MULTI_TAGS


@on_loop
def test_clients_cannot_say_what_a_message_is_to_a_transaction(rig):
    rig.send(flags=0x4)
    assert [message.sys_flag for message in rig.stored()] == [0]


@on_loop
def test_large_bodies_come_as_views(rig):
    body = bytes(range(256)) * 1000
    rig.send(body=memoryview(body))
    assert rig.stored()[0].body == body


class TestMarks:
    """The broker's own properties, put into text."""

    marks = Marks(Rig().config.identity, lambda: "NEW")
    ours = "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"

    @pytest.mark.parametrize(
        ("text", "expected", "unique"),
        [
            (None, "UNIQ_KEY\x01NEW\x02", "NEW"),
            ("", "UNIQ_KEY\x01NEW\x02", "NEW"),
            ("UNIQ_KEY\x01U\x02", "UNIQ_KEY\x01U\x02", "U"),
            ("A\x01b\x02UNIQ_KEY\x01U", "A\x01b\x02UNIQ_KEY\x01U\x02", "U"),
            ("MY_UNIQ_KEY\x01V\x02", "MY_UNIQ_KEY\x01V\x02UNIQ_KEY\x01NEW\x02", "NEW"),
            ("UNIQ_KEY\x01\x02", "UNIQ_KEY\x01\x02UNIQ_KEY\x01NEW\x02", "NEW"),
            ("UNIQ_KEY\x01U\x02UNIQ_KEY\x01V\x02", "UNIQ_KEY\x01U\x02UNIQ_KEY\x01V\x02", "V"),
            ("UNIQ_KEY\x01U\x02UNIQ_KEY\x01\x02", "UNIQ_KEY\x01U\x02UNIQ_KEY\x01\x02", "U"),
            ("POP_CK\x01c\x02UNIQ_KEY\x01U\x02", "UNIQ_KEY\x01U\x02", "U"),
            ("CLUSTER\x01other\x02UNIQ_KEY\x01U\x02", "UNIQ_KEY\x01U\x02", "U"),
            ("MSG_REGION\x01r\x02TRACE_ON\x01false\x02UNIQ_KEY\x01U\x02", "UNIQ_KEY\x01U\x02", "U"),
            ("XCLUSTER\x01c\x02UNIQ_KEY\x01U\x02", "XCLUSTER\x01c\x02UNIQ_KEY\x01U\x02", "U"),
        ],
    )
    def test_what_becomes_of_a_text(self, text, expected, unique):
        assert self.marks.put(text) == (expected + self.ours, unique)


# --- batches --------------------------------------------------------------------------------------


def batch_of(*messages: BatchMessage, **fields):
    return {"body": batch.encode(messages), "batch": True} | fields


@on_loop
def test_the_messages_of_a_batch_lie_side_by_side(rig):
    rig.send()
    messages = [BatchMessage(b"one", b"TAGS\x01A\x02", 1), BatchMessage(b"two", b"", 2)]
    reply = rig.send(**batch_of(*messages, properties="UNIQ_KEY\x01U1\x02WAIT\x01true\x02"))
    _, *found = rig.stored()
    assert [(one.body, one.property_bytes, one.flag) for one in found] == messages
    assert [one.queue_offset for one in found] == [1, 2]
    assert found[0].log_offset + found[0].size == found[1].log_offset
    assert reply.message_id == ",".join(one.offset_id for one in found)
    assert (reply.offset, reply.transaction_id) == (1, "U1")


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (batch_of(topic="x" * 127 + "y"), "longer than topic max length"),
        (batch_of(topic="%RETRY%" + "g" * 125), "message topic length too long 132"),
        (batch_of(topic="%RETRY%billing"), "does not support retry group %RETRY%billing"),
        (batch_of(BatchMessage(b"x"), properties="DELAY\x013\x02"), "asks for level 3"),
        (batch_of(BatchMessage(b"x"), flags=4), "part of a transaction"),
        (batch_of(BatchMessage(bytes(4 * 2**20))), "these are 4194326B"),
        (batch_of(), "there is no message in it"),
        ({"body": b"no batch at all, but long enough", "batch": True}, "the batch is illegal"),
        ({"body": batch.encode([BatchMessage(b"x")])[:-1], "batch": True}, "the batch is illegal"),
    ],
)
@on_loop
def test_batches_that_are_refused(rig, fields, remark):
    code, said = refusal(lambda: rig.send(**fields))
    assert (code, remark in said) == (29 if "longer" in remark else 13, True), said
    assert rig.stored() == []


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "a b"}, 29, "contains illegal characters"),
        ({"topic": ""}, 29, "is blank"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "Sending message to topic[SCHEDULE_TOPIC_XXXX]"),
        ({"topic": "TRANS_CHECK_MAX_TIME_TOPIC"}, 16, "is forbidden."),
        ({"topic": "bills", "default_topic": "nowhere"}, 17, "topic[bills] not exist, apply first"),
        ({"queue_id": 4}, 29, "request queueId[4] is illegal, topic[orders] has 4 queues"),
        ({"topic": "bills", "default_topic_queues": 0, "queue_id": -1}, 29, "no queue to write"),
        ({"body": b""}, 13, "it has no body"),
        ({"flags": 0x80}, 13, "says that the message is a batch"),
        ({"properties": "x\x01" + "y" * 32_767 + "\x02"}, 13, "properties length limit 32KB"),
        ({"body": bytes(4 * 2**20 + 1)}, 13, "msg body length limit 4194304B"),
        ({"properties": "TIMER_DELAY_SEC\x013456001\x02"}, 13, "the max delay 3456000000ms"),
        ({"properties": "TIMER_DELIVER_MS\x01soon\x02"}, 13, "'soon', which is no number"),
    ],
)
@on_loop
def test_what_is_refused(rig, fields, code, remark):
    rig.send("orders", queue_id=1)
    outcome = refusal(lambda: rig.send(**fields))
    assert (outcome[0], remark in outcome[1]) == (code, True), outcome
    assert len(rig.stored(queue_id=1)) == 1


@on_loop
def test_it_is_the_larger_number_of_queues_that_counts(rig):
    rig.broker.topics.put([TopicSettings(topic="orders", read_queues=6, write_queues=2)])
    assert rig.send(queue_id=5).queue_id == 5
    assert refusal(lambda: rig.send(queue_id=6))[0] == 29


@on_loop
def test_flow_control_refuses_at_once_and_says_why(rig):
    rig.broker.flow.refusal = "the disk is slow"
    assert refusal(rig.send) == (2, f"{BUSY}: the disk is slow")


def test_no_message_is_taken_before_a_set_time():
    async def main():
        rig = Rig(sends__start_ms=START_MS + 10).load()
        assert refusal(rig.send)[0] == 1
        rig.now_ms += 10
        assert rig.send().offset == 0
        await rig.broker.close()

    run_on("asyncio", main())


@on_loop
def test_a_broker_that_is_not_to_be_written_to_refuses_ordered_topics(rig):
    rig.broker.topics.put([TopicSettings(topic="orders"), TopicSettings(topic="o", ordered=True)])
    rig.broker.apply(Rig(permission=4).config)
    assert refusal(lambda: rig.send("o")) == (
        16,
        "the broker[broker-a] sending message is forbidden",
    )
    assert rig.send("orders").offset == 0  # its queues are not in the route any more


@on_loop
def test_a_topic_that_keeps_one_message_for_each_key_takes_none_without(rig):
    rig.broker.topics.put(
        [TopicSettings(topic="orders", attributes={"+cleanup.policy": "COMPACTION"})]
    )
    assert refusal(rig.send) == (13, "Required message key is missing")
    assert refusal(lambda: rig.send(properties="KEYS\x01 \x02"))[0] == 13
    assert rig.send(properties="KEYS\x01k\x02").offset == 0


@on_loop
def test_a_full_disk_is_said_with_its_numbers(rig):
    rig.send()
    rig.disk.capacity = rig.disk.used
    code, remark = refusal(lambda: [rig.send(body=bytes(300_000)) for _ in range(20)])
    assert code == 14
    assert "service not available now. no room for the commit log" in remark


@on_loop
def test_refusals_carry_what_every_answer_to_a_producer_does(rig):
    for request in (
        SendMessage(group="shop", topic="a b", queue_id=0, born_ms=1, body=b"x"),
        SendMessage(group="shop", topic="orders", queue_id=0, born_ms=1, body=bytes(5 * 2**20)),
    ):
        answer = rig.answer(request)
        assert isinstance(answer, Command)
        assert answer.code in (13, 29)
        assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


# --- retries --------------------------------------------------------------------------------------


@on_loop
def test_a_message_that_was_tried_too_often_goes_to_the_dead_letters(rig):
    retry, dead = "%RETRY%billing", "%DLQ%billing"
    rig.broker.groups.settings("billing")
    assert rig.send(retry, reconsume_times=16).offset == 0
    assert len(rig.stored(retry)) == 1
    rig.send(retry, reconsume_times=17, properties="DELAY\x015\x02")
    (given_up,) = rig.stored(dead)
    assert given_up.properties["DELAY"] == "-1"
    table = rig.broker.topics.table
    assert (table[dead].write_queues, table[dead].perm) == (1, 6)
    assert table[retry].write_queues == 4


@on_loop
def test_how_often_is_the_clients_word_if_it_has_one(rig):
    retry = "%RETRY%billing"
    rig.send(retry, reconsume_times=3, max_reconsume_times=3)
    rig.send(retry, reconsume_times=3, max_reconsume_times=2)
    rig.send(retry, reconsume_times=3, max_reconsume_times=2, version=120)
    assert (len(rig.stored(retry)), len(rig.stored("%DLQ%billing"))) == (2, 1)


@on_loop
def test_a_retry_topic_is_made_even_where_topics_are_not(rig):
    rig.broker.apply(Rig(topics__auto_create=False).config)
    rig.send("%RETRY%billing", unit_mode=True)
    made = rig.broker.topics.table["%RETRY%billing"]
    assert (made.write_queues, made.perm, made.flags) == (1, 6, 2)
    assert refusal(lambda: rig.send("bills"))[0] == 17


# --- sync flush -----------------------------------------------------------------------------------


def test_with_sync_flush_the_answer_waits_for_the_disk():
    async def main():
        rig = Rig(store__flush__mode="sync").load()
        waiting = [asyncio.ensure_future(rig.send()) for _ in range(3)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        assert rig.stored() == []
        rig.store.flush()
        replies = await asyncio.gather(*waiting)
        assert [(one.status, one.offset) for one in replies] == [
            (SendStatus.OK, n) for n in range(3)
        ]
        assert len(rig.stored()) == 3
        await rig.broker.close()

    run_on("asyncio", main())


def test_who_does_not_want_to_wait_is_answered_at_once():
    async def main():
        rig = Rig(store__flush__mode="sync").load()
        assert isinstance(rig.send(properties="WAIT\x01false\x02"), SendReply)
        one = batch_of(BatchMessage(b"x"), properties="WAIT\x01false\x02")
        assert isinstance(rig.send(**one), SendReply)
        late = rig.send(properties="AWAIT\x01false\x02")
        rig.store.flush()
        assert (await late).status is SendStatus.OK
        await rig.broker.close()

    run_on("asyncio", main())


def test_a_late_disk_is_told_with_the_place_of_the_message():
    async def main():
        rig = Rig(store__flush__mode="sync").load()
        waiting = asyncio.ensure_future(rig.send())
        await asyncio.sleep(0)
        rig.seconds += 5.1
        rig.store.tick()
        reply = await waiting
        assert (reply.status, reply.offset) == (SendStatus.FLUSH_DISK_TIMEOUT, 0)
        assert reply.command().code == 10
        await rig.broker.close()

    run_on("asyncio", main())


def test_a_disk_that_fails_ends_it():
    async def main():
        rig = Rig(store__flush__mode="sync").load()
        waiting = asyncio.ensure_future(rig.send())
        await asyncio.sleep(0)
        rig.disk.sync_fails = True
        rig.store.flush()
        with pytest.raises(ReplyError, match="syncing the commit log failed") as refused:
            await waiting
        assert refused.value.code == 14
        assert refusal(rig.send)[0] == 14
        await rig.broker.close()

    run_on("asyncio", main())


# --- topics that are new --------------------------------------------------------------------------


def test_nobody_is_told_of_a_message_whose_topic_a_crash_would_take():
    async def main():
        files = SlowFiles()
        rig = Rig(keeper=Keeper(files)).load()
        first = asyncio.ensure_future(rig.send("fresh"))
        second = asyncio.ensure_future(rig.send("fresh"))
        await until(files.begun.is_set)
        assert not first.done()
        assert not second.done()
        files.gate.set()
        assert [(await one).offset for one in (first, second)] == [0, 1]
        assert "fresh" in files.trees["topics.json"]["topicConfigTable"]
        assert isinstance(rig.send("fresh"), SendReply)
        await rig.broker.close()

    run_on("asyncio", main())


def test_while_the_table_of_topics_cannot_be_written_no_message_counts_as_stored(caplog):
    async def main():
        files = MemoryFiles()
        rig = Rig(keeper=Keeper(files)).load()
        files.failing = "no room"
        for _ in range(2):
            with pytest.raises(ServiceUnavailable, match=r"topics cannot be written: .*no room"):
                await rig.send("fresh")
        files.failing = None
        assert (await rig.send("fresh")).status is SendStatus.OK
        assert isinstance(rig.send("fresh"), SendReply)
        await rig.broker.close()

    run_on("asyncio", main())


# --- on the wire ----------------------------------------------------------------------------------


@on_loop
def test_both_spellings_are_answered(rig):
    for code in SendMessage.codes():
        request = SendMessage(
            code=code, group="shop", topic="orders", queue_id=0, born_ms=1, body=b"x"
        )
        answer = rig.answer(request)
        assert isinstance(answer, Command)
        assert answer.code == 0
        assert answer.fields["MSG_REGION"] == "DefaultRegion"
        assert answer.fields["TRACE_ON"] == "true"
    assert [one.queue_offset for one in rig.stored()] == [0, 1]


@with_rig(groups__auto_create=False)
def test_a_group_that_may_not_be_made_has_no_retries(rig):
    assert refusal(lambda: rig.send("%RETRY%billing")) == (
        26,
        "subscription group not exist, billing",
    )
