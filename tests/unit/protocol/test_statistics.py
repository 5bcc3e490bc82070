from __future__ import annotations

from gantrymq.model import MessageQueue
from gantrymq.protocol.groups import Subscription
from gantrymq.protocol.statistics import (
    GetBrokerConsumeStats,
    GetBrokerStats,
    GetConsumeStats,
    GetGroupsOfTopic,
    GetSubscription,
    GetTimeSpans,
    GetTopicsOfGroup,
    GetTopicStats,
    GroupProgress,
    QueryConsumeQueue,
    QueueBounds,
    QueueProgress,
    QueueTimeSpan,
    StatsItem,
)
from gantrymq.wire.command import Command

QUEUE = MessageQueue("T", "b", 1)
KEY = b'{"brokerName":"b","queueId":1,"topic":"T"}'


def test_topic_stats() -> None:
    body = (
        b'{"offsetTable":{' + KEY + b':{"lastUpdateTimestamp":9,"maxOffset":7,"minOffset":2}},'
        b'"topicPutTps":1.5}'
    )
    stats = GetTopicStats(topic="T").reply_from(Command(0, body=body))
    assert stats.queues == {QUEUE: QueueBounds(min_offset=2, max_offset=7, last_update_ms=9)}
    assert stats.put_tps == 1.5
    assert stats.command().body == body


PROGRESS = b'{"brokerOffset":9,"consumerOffset":5,"lastTimestamp":1,"pullOffset":6}'


def test_consume_stats() -> None:
    request = GetConsumeStats(group="CG", topics=("T", "U"))
    assert request.command().fields == {"consumerGroup": "CG", "topicList": "T;U"}
    body = b'{"consumeTps":0.0,"offsetTable":{' + KEY + b":" + PROGRESS + b"}}"
    reply = request.reply_from(Command(0, body=body))
    progress = QueueProgress(broker_offset=9, consumer_offset=5, pull_offset=6, last_ms=1)
    assert reply.queues == {QUEUE: progress}

    body = b'{"brokerAddr":"a:1","consumeStatsList":[{"CG":[' + body + b']}],"totalDiff":4}'
    everyone = GetBrokerConsumeStats(ordered=True).reply_from(Command(0, body=body))
    assert everyone.groups == [{"CG": [GroupProgress(queues={QUEUE: progress})]}]
    assert (everyone.total_behind, everyone.total_in_flight) == (4, 0)


def test_who_reads_what() -> None:
    groups = GetGroupsOfTopic(topic="T").reply_from(Command(0, body=b'{"groupList":["B","A"]}'))
    assert groups.groups == {"A", "B"}
    topics = GetTopicsOfGroup(group="CG").reply_from(Command(0, body=b'{"topicList":["T"]}'))
    assert topics.topics == ["T"]
    body = b'{"group":"CG","subscriptionData":{"topic":"T"},"topic":"T"}'
    found = GetSubscription(group="CG", topic="T").reply_from(Command(0, body=body))
    assert found.subscription == Subscription(topic="T")


def test_time_spans() -> None:
    body = (
        b'{"consumeTimeSpanSet":[{"delayTime":3,"messageQueue":'
        + KEY
        + b',"minTimeStampStr":"x"}]}'
    )
    reply = GetTimeSpans(topic="T", group="CG").reply_from(Command(0, body=body))
    assert reply.spans == [QueueTimeSpan(queue=QUEUE, delay_ms=3, min_text="x")]


def test_broker_stats() -> None:
    request = GetBrokerStats(name="TOPIC_PUT_NUMS", key="T")
    assert request.command().fields == {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
    stats = request.reply_from(Command(0, body=b'{"statsMinute":{"avgpt":1.0,"sum":5,"tps":0.1}}'))
    assert (stats.minute, stats.day) == (StatsItem(sum=5, tps=0.1, average=1.0), None)


def test_looking_into_a_consume_queue() -> None:
    body = b'{"maxQueueIndex":9,"minQueueIndex":1,"queueData":[{"eval":true,"physicOffset":7}]}'
    reply = QueryConsumeQueue(topic="T", count=1).reply_from(Command(0, body=body))
    assert (reply.max_index, reply.entries[0].log_offset, reply.entries[0].matches) == (9, 7, True)
