from __future__ import annotations

from gantrymq.protocol.lite import (
    ChangeLiteSubscriptions,
    GetBrokerLiteInfo,
    GetLiteClientInfo,
    GetLiteGroupInfo,
    GetLiteTopicInfo,
    GetParentTopicInfo,
    LiteAction,
    LiteClient,
    LiteLag,
    LiteSubscription,
    NotifyUnsubscribeLite,
    OffsetOption,
    OffsetOptionType,
    PopLiteMessages,
    TriggerLiteDispatch,
)
from gantrymq.protocol.popping import PopStatus
from gantrymq.wire.command import Command


def test_subscribing() -> None:
    change = LiteSubscription(
        action=LiteAction.ADD, client_id="c", group="CG", topic="P", lite_topics={"b", "a"},
        offset=OffsetOption(type=OffsetOptionType.TAIL, value=5), version=1,
    )  # fmt: skip
    command = ChangeLiteSubscriptions(changes=[change]).command()
    assert bytes(command.body) == (
        b'{"subscriptionSet":[{"action":"PARTIAL_ADD","clientId":"c","group":"CG",'
        b'"liteTopicSet":["a","b"],"offsetOption":{"type":"TAIL_N","value":5},"topic":"P",'
        b'"version":1}]}'
    )
    assert ChangeLiteSubscriptions.from_command(command).changes == [change]


def test_popping() -> None:
    request = PopLiteMessages(
        client_id="c", group="CG", topic="P", max_messages=8, invisible_ms=1, poll_ms=2, born_ms=3
    )
    assert request.command().fields["maxMsgNum"] == "8"
    assert request.reply_from(Command(210)).status is PopStatus.POLLING_TIMEOUT


def test_looking() -> None:
    body = b'{"currentLmqNum":3,"groupMeta":{"CG":["P"]},"topicMeta":{"P":3}}'
    broker = GetBrokerLiteInfo().reply_from(Command(0, body=body))
    assert (broker.queues, broker.groups, broker.topics) == (3, {"CG": {"P"}}, {"P": 3})
    parent = GetParentTopicInfo(topic="P").reply_from(Command(0, body=b'{"ttl":5,"topic":"P"}'))
    assert (parent.ttl_minutes, parent.groups) == (5, set())
    body = b'{"subscriber":[{"clientId":"c","group":"CG"}],"topicOffset":{"maxOffset":9}}'
    topic = GetLiteTopicInfo(parent_topic="P", lite_topic="L").reply_from(Command(0, body=body))
    assert topic.subscribers == [LiteClient(client_id="c", group="CG")]
    assert topic.bounds is not None
    assert topic.bounds.max_offset == 9
    request = GetLiteClientInfo(parent_topic="P", group="CG", client_id="c")
    assert request.command().fields["maxCount"] == "1000"
    client = request.reply_from(Command(0, body=b'{"liteTopicSet":["L"]}'))
    assert client.lite_topics == {"L"}
    body = b'{"lagCountTopK":[{"lagCount":4,"liteTopic":"L"}],"totalLagCount":4}'
    group = GetLiteGroupInfo(group="CG", top=1).reply_from(Command(0, body=body))
    assert group.most_behind == [LiteLag(lite_topic="L", count=4)]


def test_telling() -> None:
    told = NotifyUnsubscribeLite(lite_topic="L", group="CG", client_id="c")
    assert told.command().fields == {"liteTopic": "L", "consumerGroup": "CG", "clientId": "c"}
    assert TriggerLiteDispatch(group="CG").command().fields == {"group": "CG"}
