"""What tools are told of topics, groups and counts."""

import time

from gantrymq.broker import runtime_info, statistics
from gantrymq.broker.runtime_info import readable, spelled_out
from gantrymq.model import MessageQueue
from gantrymq.protocol.brokers import CleanConsumeQueues, DeleteExpiredLog, GetRuntimeInfo
from gantrymq.protocol.statistics import (
    GetBrokerConsumeStats,
    GetBrokerStats,
    GetConsumeStats,
    GetGroupsOfTopic,
    GetSubscription,
    GetTimeSpans,
    GetTopicsOfGroup,
    GetTopicStats,
    QueueBounds,
)
from tests.unit.broker.people import Client, beat, wants
from tests.unit.broker.rig import START_MS, on_loop, refusal


def queue(queue_id=0, topic="orders"):
    return MessageQueue(topic, "broker-a", queue_id)


def prepared(rig, messages=5):
    """Messages in the first queue, a second apart, of which a group has read two."""
    for _ in range(messages):
        rig.send()
        rig.now_ms += 1000
    rig.broker.groups.settings("billing")
    rig.broker.offsets.commit("billing", "orders", 0, 2)
    rig.broker.offsets.pulled("billing", "orders", 0, 4)


@on_loop
def test_where_the_queues_of_a_topic_begin_and_end(rig):
    prepared(rig)
    for _ in range(10):
        rig.broker.counts.tick()
        rig.seconds += 1.0
    request = GetTopicStats(topic="orders")
    answer = statistics.get_topic_stats(request, rig.broker, rig.caller)
    assert answer.queues == {
        queue(0): QueueBounds(min_offset=0, max_offset=5, last_update_ms=START_MS + 4000),
        queue(1): QueueBounds(),
        queue(2): QueueBounds(),
        queue(3): QueueBounds(),
    }
    assert answer.put_tps == 0.5
    unknown = GetTopicStats(topic="bills")
    assert refusal(lambda: statistics.get_topic_stats(unknown, rig.broker, rig.caller)) == (
        17,
        "topic[bills] not exist",
    )


def consume_stats(rig, **asked):
    request = GetConsumeStats(group="billing", **asked)
    return statistics.get_consume_stats(request, rig.broker, rig.caller)


@on_loop
def test_how_far_a_group_has_come(rig):
    prepared(rig)
    answer = consume_stats(rig)
    assert set(answer.queues) == {queue(number) for number in range(4)}
    one = answer.queues[queue(0)]
    assert (one.broker_offset, one.consumer_offset, one.pull_offset) == (5, 2, 4)
    assert one.last_ms == START_MS + 1000
    assert answer.queues[queue(1)].last_ms == 0
    rig.broker.offsets.commit("billing", "orders", 0, 5)
    assert consume_stats(rig).queues[queue(0)].pull_offset == 5
    assert consume_stats(rig, topic="orders").queues.keys() == answer.queues.keys()
    assert consume_stats(rig, topics=("orders", "bills")).queues.keys() == answer.queues.keys()
    assert consume_stats(rig, topic="bills").queues == {}


@on_loop
def test_topics_that_a_group_no_longer_wants_do_not_show(rig):
    prepared(rig)
    beat(rig, Client(), consumes={"billing": wants("bills")})
    assert consume_stats(rig).queues == {}
    beat(rig, Client(), consumes={"billing": wants("orders")})
    assert len(consume_stats(rig).queues) == 4


@on_loop
async def test_how_far_all_groups_have_come(rig):
    prepared(rig)
    rig.send("bills")
    rig.broker.groups.settings("audit")
    rig.broker.offsets.commit("audit", "bills", 0, 1)

    async def ask(**how):
        request = GetBrokerConsumeStats(**how)
        return await statistics.get_broker_consume_stats(request, rig.broker, rig.caller)

    answer = await ask()
    assert (answer.total_behind, answer.total_in_flight) == (3, 2)
    assert answer.broker_address == "10.0.0.1:10911"
    by_group = {name: found for group in answer.groups for name, found in group.items()}
    assert by_group.keys() == rig.broker.groups.table.keys()
    (billing,) = by_group["billing"]
    assert billing.queues[queue(0)].consumer_offset == 2
    assert by_group["TOOLS_CONSUMER"] == []
    rig.broker.topics.table["bills"].ordered = True
    ordered = {name: len(found) for group in (await ask(ordered=True)).groups
               for name, found in group.items()}  # fmt: skip
    assert (ordered["audit"], ordered["billing"]) == (1, 0)


@on_loop
def test_who_consumes_what(rig):
    prepared(rig)
    one = Client()
    beat(rig, one, consumes={"audit": wants("orders", expression="red")})
    broker, caller = rig.broker, rig.caller
    request = GetGroupsOfTopic(topic="orders")
    groups = statistics.get_groups_of_topic(request, broker, caller).groups
    assert groups == {"billing", "audit"}
    topics = statistics.get_topics_of_group(GetTopicsOfGroup(group="billing"), broker, caller)
    assert (topics.topics, topics.broker_address) == (["orders"], "10.0.0.1:10911")
    asked = GetSubscription(group="audit", topic="orders")
    found = statistics.get_subscription(asked, broker, caller)
    assert (found.group, found.topic) == ("audit", "orders")
    assert found.subscription.expression == "red"
    asked = GetSubscription(group="billing", topic="orders")
    assert statistics.get_subscription(asked, broker, caller).subscription is None


@on_loop
def test_how_late_a_group_is(rig):
    prepared(rig)
    request = GetTimeSpans(topic="orders", group="billing")
    spans = statistics.get_time_spans(request, rig.broker, rig.caller).spans
    assert [span.queue for span in spans] == [queue(number) for number in range(4)]
    first = spans[0]
    assert (first.min_ms, first.max_ms) == (START_MS, START_MS + 4000)
    assert (first.consumed_ms, first.delay_ms) == (START_MS + 1000, 3000)
    local = time.strftime("%Y-%m-%d#%H:%M:%S:000", time.localtime(START_MS / 1000))
    assert first.min_text == local
    assert (spans[1].min_ms, spans[1].delay_ms) == (-1, 0)
    rig.broker.offsets.commit("billing", "orders", 0, 5)
    (first, *_) = statistics.get_time_spans(request, rig.broker, rig.caller).spans
    assert (first.consumed_ms, first.delay_ms) == (START_MS + 4000, 0)
    unknown = GetTimeSpans(topic="bills", group="billing")
    assert refusal(lambda: statistics.get_time_spans(unknown, rig.broker, rig.caller))[0] == 17


@on_loop
def test_counts_by_name_and_key(rig):
    prepared(rig)
    for _ in range(10):
        rig.broker.counts.tick()
        rig.seconds += 1.0

    def ask(name, key):
        request = GetBrokerStats(name=name, key=key)
        return statistics.get_broker_stats(request, rig.broker, rig.caller)

    answer = ask("TOPIC_PUT_NUMS", "orders")
    assert (answer.minute.sum, answer.minute.tps, answer.minute.average) == (5, 0.5, 1.0)
    assert (answer.hour.sum, answer.day.sum) == (0, 0)
    assert ask("BROKER_PUT_NUMS", "DefaultCluster").minute.sum == 5
    assert refusal(lambda: ask("TOPIC_PUT_NUMS", "bills")) == (
        1,
        "The stats <TOPIC_PUT_NUMS> <bills> not exist",
    )


@on_loop
def test_what_the_broker_is_doing(rig):
    prepared(rig)
    rig.pull()
    rig.seconds = 93_784.9
    request = GetRuntimeInfo()
    table = runtime_info.get_runtime_info(request, rig.broker, rig.caller).table
    expected = {
        "brokerVersionDesc": "V5_5_0",
        "brokerActive": "true",
        "bootTimestamp": str(START_MS),
        "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]",
        "putMessageTimesTotal": "5",
        "msgPutTotalTodayNow": "5",
        "msgPutTotalTodayMorning": "0",
        "msgGetTotalTodayNow": "5",
        "putTps": "  ",
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(rig.store.log_end),
        "earliestMessageTimeStamp": str(START_MS),
        "scheduleMessageOffset_3": "0,0",
        "sendThreadPoolQueueSize": "0",
        "sendThreadPoolQueueCapacity": "10000",
        "remainHowManyDataToFlush": readable(rig.store.log_end),
    }
    assert {name: table[name] for name in expected} == expected
    assert table["commitLogDirCapacity"].startswith("Total : 1.0 TiB, Free : ")


@on_loop
def test_cleaning_up_is_done_at_once(rig):
    broker, caller = rig.broker, rig.caller
    rig.disk.capacity = rig.disk.used
    statistics.clean_consume_queues(CleanConsumeQueues(), broker, caller)
    assert rig.store.refusal is not None
    rig.disk.capacity = 1 << 40
    statistics.delete_expired_log(DeleteExpiredLog(), broker, caller)
    assert rig.store.refusal is None


def test_sizes_and_spans_as_people_read_them():
    assert [readable(size) for size in (0, 1023, 1024, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert spelled_out(0.9) == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
