"""Messages that consumers send back."""

import asyncio

import pytest

from gantrymq.broker import retries
from gantrymq.broker.keeping import Keeper
from gantrymq.errors import BrokerFailure
from gantrymq.protocol.base import Done
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.protocol.sending import SendBack
from gantrymq.wire import properties
from gantrymq.wire.versions import V3_4_9
from tests.support import run_on
from tests.unit.broker.rig import MemoryFiles, Rig, on_loop, refusal, with_rig

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def send_back(rig, log_offset=0, delay_level=0, **how):
    request = {"group": "billing"} | how
    asked = SendBack(log_offset=log_offset, delay_level=delay_level, **request)
    return retries.send_back(asked, rig.broker, rig.caller)


@on_loop
def test_a_message_comes_back_to_its_group_later(rig):
    rig.send(properties=properties.join({"TAGS": "red", "UNIQ_KEY": "U1"}), flag=7, queue_id=3)
    (sent,) = rig.stored(queue_id=3)
    send_back(rig, sent.log_offset)
    (back,) = rig.stored(SCHEDULE, 2)
    assert (back.body, back.flag, back.born_ms) == (sent.body, 7, sent.born_ms)
    assert (back.born_host, back.store_host) == (sent.born_host, "10.0.0.1:10911")
    assert back.reconsume_times == 1
    found = back.properties
    assert found["RETRY_TOPIC"] == "orders"
    assert found["ORIGIN_MESSAGE_ID"] == sent.offset_id
    assert (found["REAL_TOPIC"], found["REAL_QID"]) == ("%RETRY%billing", "0")
    assert (found["DELAY"], found["WAIT"]) == ("3", "false")
    assert (found["TAGS"], found["UNIQ_KEY"]) == ("red", "U1")


@on_loop
def test_the_pause_grows_and_the_origin_stays(rig):
    rig.send()
    (message,) = rig.stored()
    origin = message.offset_id
    for level in range(3, 19):
        send_back(rig, message.log_offset)
        (message,) = rig.stored(SCHEDULE, level - 1)
        assert message.properties["ORIGIN_MESSAGE_ID"] == origin
        assert message.properties["RETRY_TOPIC"] == "orders"
    assert message.reconsume_times == 16
    send_back(rig, message.log_offset)
    (dead,) = rig.stored("%DLQ%billing")
    assert (dead.reconsume_times, dead.body) == (17, b"hello")
    assert dead.properties["ORIGIN_MESSAGE_ID"] == origin
    assert dead.properties["DELAY"] == "0"
    topic = rig.broker.topics.table["%DLQ%billing"]
    assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, 6)


@on_loop
def test_the_consumer_may_choose_the_level_or_give_up(rig):
    rig.send()
    send_back(rig, delay_level=5)
    send_back(rig, delay_level=40)
    send_back(rig, delay_level=-1)
    assert len(rig.stored(SCHEDULE, 4)) == 1
    (last,) = rig.stored(SCHEDULE, 17)
    assert last.properties["DELAY"] == "18"
    assert len(rig.stored("%DLQ%billing")) == 1


@pytest.mark.parametrize(
    ("version", "asked", "dead"),
    [(V3_4_9, 0, True), (V3_4_9 - 1, 0, False), (V3_4_9, None, False), (V3_4_9, 1, False)],
)
def test_a_client_may_say_how_often(version, asked, dead):
    @on_loop
    def check(rig):
        rig.send()
        send_back(rig, version=version, max_reconsume_times=asked)
        assert ("%DLQ%billing" in rig.broker.topics.table) is dead

    check()


@on_loop
def test_a_group_may_say_how_often_and_over_how_many_queues(rig):
    rig.broker.groups.put([GroupSettings(group="billing", max_retries=1, retry_queues=8)])
    for _ in range(20):
        rig.send()
    for message in rig.stored():
        send_back(rig, message.log_offset)
    waiting = rig.stored(SCHEDULE, 2)
    assert len({message.properties["REAL_QID"] for message in waiting}) > 3
    send_back(rig, waiting[0].log_offset)
    assert len(rig.stored("%DLQ%billing")) == 1


@on_loop
def test_a_group_without_retry_queues_wants_nothing_back(rig):
    rig.broker.groups.put([GroupSettings(group="billing", retry_queues=0)])
    rig.send()
    end = rig.store.log_end
    send_back(rig)
    assert rig.store.log_end == end


@on_loop
def test_what_is_not_there_cannot_come_back(rig):
    rig.send()
    for offset in (-1, 17, 1 << 40):
        code, remark = refusal(lambda offset=offset: send_back(rig, offset))
        assert (code, remark.startswith("look message by offset failed, ")) == (1, True)


@with_rig(groups__auto_create=False)
def test_an_unknown_group_is_refused(rig):
    rig.send()
    assert refusal(lambda: send_back(rig)) == (26, "subscription group not exist, billing")


@on_loop
def test_where_nothing_may_be_written_nothing_is(rig):
    rig.send()
    rig.broker.topics.make("%RETRY%billing", queues=1, perm=4)
    assert refusal(lambda: send_back(rig)) == (
        16,
        "the topic[%RETRY%billing] sending message is forbidden",
    )


@with_rig(permission=4)
def test_a_broker_that_takes_nothing_takes_nothing_back(rig):
    assert refusal(lambda: send_back(rig)) == (
        16,
        "the broker[broker-a] sending message is forbidden",
    )


@on_loop
def test_a_full_store_says_so(rig):
    rig.send()
    rig.disk.capacity = rig.disk.used
    rig.store.clean()
    code, remark = refusal(lambda: send_back(rig))
    assert (code, remark[:22]) == (1, "SERVICE_NOT_AVAILABLE:")
    assert "100.0% full" in remark
    rig.disk.capacity *= 100


@on_loop
def test_a_message_that_has_grown_too_large_says_so(rig):
    text = properties.join({"k": "v" * 32_600, "UNIQ_KEY": "U1"})
    rig.send(properties=text)
    code, remark = refusal(lambda: send_back(rig))
    assert (code, remark.startswith("MESSAGE_ILLEGAL: ")) == (1, True)


@on_loop
def test_what_came_back_is_counted(rig):
    rig.send()
    send_back(rig)
    send_back(rig, delay_level=-1)
    returned, column = rig.broker.counts.find("SNDBCK_PUT_NUMS", "orders@billing")
    given_up, _ = rig.broker.counts.find("DLQ_PUT_NUMS", "orders@billing")
    assert (returned.messages, given_up.messages, column) == (2, 1, 2)


def test_with_sync_flush_the_group_hears_of_it_when_the_disk_has_it():
    async def main():
        rig = Rig(store__flush__mode="sync").load()
        first = asyncio.ensure_future(rig.send())
        await asyncio.sleep(0)
        rig.store.flush()
        await first
        back = asyncio.ensure_future(send_back(rig))
        await asyncio.sleep(0)
        assert not back.done()
        rig.store.flush()
        await back
        late = asyncio.ensure_future(send_back(rig))
        await asyncio.sleep(0)
        rig.disk.sync_fails = True
        rig.store.flush()
        with pytest.raises(BrokerFailure, match=r"SERVICE_NOT_AVAILABLE: .*syncing the commit log"):
            await late
        await rig.broker.close()

    run_on("asyncio", main())


def test_a_retry_topic_that_is_new_is_in_its_file_first():
    async def main():
        files = MemoryFiles()
        rig = Rig(keeper=Keeper(files)).load()
        await rig.send()
        back = send_back(rig)
        assert "%RETRY%billing" not in files.trees["topics.json"]["topicConfigTable"]
        await back
        assert "%RETRY%billing" in files.trees["topics.json"]["topicConfigTable"]
        assert send_back(rig) == Done()
        await rig.broker.close()

    run_on("asyncio", main())
