from __future__ import annotations

import pytest

from gantrymq.errors import ConsumerOffline, RemoteProtocolError
from gantrymq.protocol.enums import ConsumeFromWhere, ConsumeType, MessageModel
from gantrymq.protocol.groups import (
    CheckClientConfig,
    ClientConnection,
    ConsumerConnections,
    ConsumerData,
    GetAllProducers,
    GetConsumerConnections,
    GetConsumerList,
    GetProducerConnections,
    Heartbeat,
    HeartbeatReply,
    ProducerInfo,
    Subscription,
    UnregisterClient,
)
from gantrymq.wire.codes import Language
from gantrymq.wire.command import Command


def test_a_heartbeat_of_an_old_client_has_defaults() -> None:
    body = (
        b'{"clientID":"c1","consumerDataSet":[{"groupName":"CG","consumeType":"CONSUME_ACTIVELY",'
        b'"messageModel":"broadcasting","subscriptionDataSet":[{"topic":"T","subString":"*"}]}]}'
    )
    beat = Heartbeat.from_command(Command(34, body=body, language=Language.GO, version=399))
    assert (beat.language, beat.version, beat.producers) == (Language.GO, 399, [])
    assert beat.consumers == [
        ConsumerData(
            group="CG", consume_type=ConsumeType.PULL, message_model=MessageModel.BROADCASTING,
            subscriptions=[Subscription(topic="T")],
        )
    ]  # fmt: skip
    assert beat.consumers[0].consume_from is ConsumeFromWhere.LAST_OFFSET


def test_a_heartbeat_s_answer_tells_the_broker_s_version() -> None:
    fields = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "false"}
    reply = Heartbeat(client_id="c").reply_from(Command(0, fields=fields, version=479))
    assert reply == HeartbeatReply(
        supports_fingerprints=True, subscriptions_changed=False, version=479
    )


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"clientID":"c","consumerDataSet":[{"subscriptionDataSet":[]}]}']
)
def test_who_it_is_and_which_group_have_to_be_said(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"(clientID|groupName): has to be there"):
        Heartbeat.from_command(Command(34, body=body))


def test_unregistering() -> None:
    request = UnregisterClient(client_id="c1", consumer_group="CG")
    assert request.command().fields == {"clientID": "c1", "consumerGroup": "CG"}


def test_checking_a_subscription() -> None:
    request = CheckClientConfig(group="CG", client_id="c", subscription=Subscription(topic="T"))
    body = bytes(request.command().body)
    assert body.startswith(b'{"clientId":"c","group":"CG","subscriptionData":{"classFilterMode"')


def test_who_consumes() -> None:
    request = GetConsumerList(group="CG")
    assert request.command().fields == {"consumerGroup": "CG"}
    reply = request.reply_from(Command(0, body=b'{"consumerIdList":["c1","c2"]}'))
    assert reply.client_ids == ["c1", "c2"]


def test_connections() -> None:
    body = (
        b'{"connectionSet":[{"clientAddr":"1.2.3.4:5","clientId":"c1","language":"JAVA",'
        b'"version":513},{"clientId":"c2","language":"COBOL"}],"consumeFromWhere":'
        b'"CONSUME_FROM_TIMESTAMP","consumeType":"CONSUME_POP","messageModel":"CLUSTERING",'
        b'"subscriptionTable":{"T":{"topic":"T"}}}'
    )
    reply = GetConsumerConnections(group="CG").reply_from(Command(0, body=body))
    assert reply == ConsumerConnections(
        connections=[
            ClientConnection(
                client_id="c1", address="1.2.3.4:5", language=Language.JAVA, version=513
            ),
            ClientConnection(client_id="c2"),
        ],
        subscriptions={"T": Subscription(topic="T")},
        consume_type=ConsumeType.POP,
        message_model=MessageModel.CLUSTERING,
        consume_from=ConsumeFromWhere.TIMESTAMP,
    )
    with pytest.raises(ConsumerOffline):
        GetConsumerConnections(group="CG").reply_from(Command(206))


def test_producers() -> None:
    body = b'{"connectionSet":[{"clientId":"p1","language":"PYTHON"}]}'
    reply = GetProducerConnections(group="PG").reply_from(Command(0, body=body))
    assert reply.connections[0].language is Language.PYTHON
    body = (
        b'{"data":{"PG":[{"clientId":"p1","language":3,"lastUpdateTimestamp":5,"remoteIP":"a"}]}}'
    )
    everyone = GetAllProducers().reply_from(Command(0, body=body))
    assert everyone.producers == {
        "PG": [
            ProducerInfo(client_id="p1", address="a", language=Language.PYTHON, last_update_ms=5)
        ]
    }
