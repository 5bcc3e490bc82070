from __future__ import annotations

import pytest

from gantrymq.errors import TopicNotFound
from gantrymq.protocol.routing import (
    BrokerData,
    BrokerMembers,
    DeleteRoute,
    GetAllTopics,
    GetBrokerMembers,
    GetClusterInfo,
    GetRoute,
    GetTopicsOfCluster,
    GetUnitTopics,
    QueueData,
    RegisterTopic,
    TopicRoute,
)
from gantrymq.wire.command import Command


def test_route_request() -> None:
    request = GetRoute(topic="T", strict_json=True)
    assert request.command().fields == {"topic": "T", "acceptStandardJsonOnly": "true"}
    assert GetRoute.from_command(Command(105, fields={"topic": "T"}, version=399)).version == 399


def test_a_route_of_an_old_name_server() -> None:
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c"}],'
        b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"topicSynFlag":0,'
        b'"writeQueueNums":4}]}'
    )
    route = GetRoute(topic="T").reply_from(Command(0, body=body)).route
    assert route == TopicRoute(
        brokers=[BrokerData(name="b", cluster="c", addresses={0: "a:1"})],
        queues=[QueueData(broker="b", perm=6, read_queues=4, write_queues=4)],
    )
    with pytest.raises(TopicNotFound):
        GetRoute(topic="T").reply_from(Command(17, remark="No topic route info"))


def test_cluster_info() -> None:
    body = (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"a:1"},"brokerName":"b","cluster":"c",'
        b'"enableActingMaster":false}},"clusterAddrTable":{"c":["b"]}}'
    )
    info = GetClusterInfo().reply_from(Command(0, body=body))
    assert info.clusters == {"c": {"b"}}
    assert info.brokers["b"].addresses == {0: "a:1"}
    assert bytes(info.command(bare_numbers=True).body) == body


def test_members_of_a_name() -> None:
    request = GetBrokerMembers(cluster="c", broker="b")
    assert request.command().fields == {"clusterName": "c", "brokerName": "b"}
    body = b'{"brokerMemberGroup":{"brokerAddrs":{2:"a:1"},"brokerName":"b","cluster":"c"}}'
    members = request.reply_from(Command(0, body=body)).members
    assert members == BrokerMembers(cluster="c", name="b", addresses={2: "a:1"})


def test_lists_of_topics() -> None:
    body = b'{"brokerAddr":"a:1","topicList":["T","U"]}'
    for request in (GetAllTopics(), GetUnitTopics(), GetTopicsOfCluster(cluster="c")):
        reply = request.reply_from(Command(0, body=body))
        assert (reply.topics, reply.broker_address) == (["T", "U"], "a:1")


def test_one_topic_at_a_time() -> None:
    assert DeleteRoute(topic="T", cluster="c").command().fields == {
        "topic": "T", "clusterName": "c",
    }  # fmt: skip
    request = RegisterTopic(topic="T", route=TopicRoute(queues=[QueueData(broker="b")]))
    assert RegisterTopic.from_command(request.command()) == request
