"""Requests, replies and bodies as Apache RocketMQ 5.5.0 writes them, both ways.

The bodies are what fastjson2 printed for populated objects of the body classes, the frames what
`RemotingCommand.encode` gave, the registration what `RegisterBrokerBody.encode` gave, and the
signatures what `AclClientRPCHook` added.
"""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from gantrymq.model import MessageQueue
from gantrymq.protocol import pop_handles, signing
from gantrymq.protocol.assignments import QueryAssignment, QueryAssignmentReply, QueueAssignment
from gantrymq.protocol.base import Request
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import MessageRequestMode
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.protocol.groups import (
    ConsumerData,
    Heartbeat,
    NotifyConsumersChanged,
    ProducerData,
    Subscription,
)
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.locks import LockQueues
from gantrymq.protocol.popping import AckBatch, AckedRange
from gantrymq.protocol.pulling import PullReply, PullStatus
from gantrymq.protocol.registration import (
    RegisterBroker,
    Registration,
    checksum,
    read_registration,
    write_registration,
)
from gantrymq.protocol.resets import ResetOffsetsReply
from gantrymq.protocol.routing import BrokerData, GetRoute, QueueData, RouteReply, TopicRoute
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.signing import Credentials
from gantrymq.protocol.static_topics import QueueMapping
from gantrymq.protocol.topics import TopicSettings, TopicTable
from gantrymq.wire import fastjson
from gantrymq.wire.codes import Language
from gantrymq.wire.command import ONEWAY, Command, HeaderType
from gantrymq.wire.connection import Connection

NOW = 1_700_000_000_000
QUEUE = MessageQueue("TopicTest", "broker-a", 0)

TAGGED = Subscription(
    topic="TopicTest",
    expression="TagA || TagB",
    tags={"TagA", "TagB"},
    codes={2598919, 2598920},
    version=NOW,
)
TAGGED_TEXT = (
    '{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG",'
    '"subString":"TagA || TagB","subVersion":1700000000000,"tagsSet":["TagA","TagB"],'
    '"topic":"TopicTest"}'
)
ROUTE = TopicRoute(
    queues=[QueueData(broker="broker-a", read_queues=8, write_queues=8, perm=6)],
    brokers=[
        BrokerData(
            name="broker-a",
            cluster="DefaultCluster",
            addresses={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"},
        )
    ],
)
MAPPED_ROUTE = TopicRoute(
    queues=ROUTE.queues,
    brokers=ROUTE.brokers,
    order="broker-a:8;broker-b:4",
    mappings={
        "broker-a": QueueMapping(
            topic="T", broker="broker-a", total_queues=4, epoch=NOW, current_ids={0: 0, 1: 3}
        )
    },
)
ROUTE_TEXT = (
    '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    '"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
    '"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":8,'
    '"topicSysFlag":0,"writeQueueNums":8}]}'
)
MAPPED_ROUTE_TEXT = (
    '{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
    '"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
    '"filterServerTable":{},"orderTopicConf":"broker-a:8;broker-b:4","queueDatas":'
    '[{"brokerName":"broker-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}],'
    '"topicQueueMappingByBroker":{"broker-a":{"bname":"broker-a","currIdMap":{0:0,1:3},'
    '"dirty":false,"epoch":1700000000000,"scope":"__global__","topic":"T","totalQueues":4}}}'
)

VALUES = {
    "tag subscription": (TAGGED, TAGGED_TEXT),
    "sql subscription": (
        Subscription(
            topic="TopicTest",
            expression="a > 1 AND b = 'x'",
            expression_type="SQL92",
            version=NOW,
        ),
        '{"classFilterMode":false,"codeSet":[],"expressionType":"SQL92",'
        '"subString":"a > 1 AND b = \'x\'","subVersion":1700000000000,"tagsSet":[],'
        '"topic":"TopicTest"}',
    ),
    "fresh group": (
        GroupSettings(),
        '{"attributes":{},"brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":true,'
        '"consumeFromMinEnable":true,"consumeMessageOrderly":false,"consumeTimeoutMinute":15,'
        '"groupRetryPolicy":{"type":"CUSTOMIZED"},"groupSysFlag":0,'
        '"notifyConsumerIdsChangedEnable":true,"retryMaxTimes":16,"retryQueueNums":1,'
        '"whichBrokerWhenConsumeSlowly":1}',
    ),
    "fresh topic": (
        TopicSettings(topic="T"),
        '{"attributes":{},"order":false,"perm":6,"readQueueNums":16,'
        '"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":16}',
    ),
}

BODIES = {
    "heartbeat": (
        Heartbeat(
            client_id="10.1.2.3@4660#123456789",
            producers=[ProducerData(group="PG")],
            consumers=[ConsumerData(group="CG", subscriptions=[TAGGED])],
        ),
        '{"clientID":"10.1.2.3@4660#123456789","consumerDataSet":[{"consumeFromWhere":'
        '"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG",'
        '"messageModel":"CLUSTERING","subscriptionDataSet":['
        + TAGGED_TEXT
        + '],"unitMode":false}],"heartbeatFingerprint":0,'
        '"producerDataSet":[{"groupName":"PG"}],"withoutSub":false}',
    ),
    "route": (RouteReply(route=ROUTE), ROUTE_TEXT),
    "route of a static topic": (RouteReply(route=MAPPED_ROUTE), MAPPED_ROUTE_TEXT),
    "lock": (
        LockQueues(group="CG", client_id="c1", queues={QUEUE}),
        '{"clientId":"c1","consumerGroup":"CG","mqSet":[{"brokerName":"broker-a","queueId":0,'
        '"topic":"TopicTest"}],"onlyThisBroker":false}',
    ),
    "reset": (
        ResetOffsetsReply(offsets={QUEUE: 42}),
        '{"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:42}}',
    ),
    "assignment asked": (
        QueryAssignment(topic="TopicTest", group="CG", client_id="c1"),
        '{"clientId":"c1","consumerGroup":"CG","messageModel":"CLUSTERING","strategyName":"AVG",'
        '"topic":"TopicTest"}',
    ),
    "assignment given": (
        QueryAssignmentReply(
            assignments=[
                QueueAssignment(
                    queue=MessageQueue("TopicTest", "broker-a", -1), mode=MessageRequestMode.POP
                )
            ]
        ),
        '{"messageQueueAssignments":[{"messageQueue":{"brokerName":"broker-a","queueId":-1,'
        '"topic":"TopicTest"},"mode":"POP"}]}',
    ),
    "batch ack": (
        AckBatch(
            broker="broker-a",
            acks=[
                AckedRange(
                    group="CG", topic="TopicTest", start_offset=100, queue_id=2, revive_queue_id=5,
                    pop_ms=NOW, invisible_ms=60_000, acked=0b1000001001,
                )
            ],
        ),
        '{"acks":[{"b":"CQI=","c":"CG","it":60000,"pt":1700000000000,"q":2,"r":"0","rq":5,'
        '"so":100,"t":"TopicTest"}],"brokerName":"broker-a"}',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VALUES.values(), ids=VALUES)
def test_values(value: Any, text: str) -> None:
    form = shape(type(value))
    assert fastjson.dumps(form.write(value), bare_numbers=True).decode() == text
    assert form.read(fastjson.loads(text.encode())) == value


@pytest.mark.parametrize(("value", "text"), BODIES.values(), ids=BODIES)
def test_bodies(value: Any, text: str) -> None:
    assert bytes(value.command(bare_numbers=True).body).decode() == text
    fields = value.command().fields
    code = getattr(value, "CODE", 0)
    assert type(value).from_command(Command(code, fields=fields, body=text.encode())) == value


@pytest.mark.parametrize(
    ("route", "text"), [(ROUTE, ROUTE_TEXT), (MAPPED_ROUTE, MAPPED_ROUTE_TEXT)]
)
def test_strict_routes_have_their_numbers_quoted(route: TopicRoute, text: str) -> None:
    strict = text.replace("{0:", '{"0":').replace(",1:", ',"1":')
    reply = RouteReply(route=route)
    assert bytes(reply.command().body).decode() == strict
    assert RouteReply.from_command(Command(0, body=strict.encode())) == reply


SEND = SendMessage(
    language=Language.JAVA,
    group="PG",
    topic="TopicTest",
    queue_id=1,
    born_ms=NOW,
    properties="UNIQ_KEY\x010A01020312347B2A9C0E0001E2400007\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    broker="broker-a",
    body=b"hello",
)
ROUTE_REQUEST = GetRoute(topic="TopicTest")
IDS_CHANGED = NotifyConsumersChanged(group="CG")

FRAMES = {
    "route, JSON": (ROUTE_REQUEST, 7, 0, (
        "00000087000000837b22636f6465223a3130352c226578744669656c6473223a7b22746f706963223a22546f"
        "70696354657374227d2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565"
        "223a372c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f"
        "6e223a3531337d"
    )),
    "route, binary": (ROUTE_REQUEST, 7, 0, (
        "0000002d010000290069000201000000070000000000000000000000140005746f70696300000009546f7069"
        "6354657374"
    )),
    "send, JSON": (SEND, 9, 0, (
        "000001640000015b7b22636f6465223a3331302c226578744669656c6473223a7b2261223a225047222c2262"
        "223a22546f70696354657374222c2263223a22544257313032222c2264223a2234222c2265223a2231222c22"
        "66223a2230222c2267223a2231373030303030303030303030222c2268223a2230222c2269223a22554e4951"
        "5f4b45595c753030303130413031303230333132333437423241394330453030303145323430303030375c75"
        "30303032574149545c7530303031747275655c7530303032544147535c7530303031546167415c7530303032"
        "222c226a223a2230222c226b223a2266616c7365222c226d223a2266616c7365222c226e223a2262726f6b65"
        "722d61227d2c22666c6167223a302c226c616e6775616765223a224a415641222c226f7061717565223a392c"
        "2273657269616c697a655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a35"
        "31337d68656c6c6f"
    )),
    "send, binary": (SEND, 9, 0, (
        "000000ec010000e30136000201000000090000000000000000000000ce000161000000025047000162000000"
        "09546f70696354657374000163000000065442573130320001640000000134000165000000013100016600000"
        "001300001670000000d31373030303030303030303030000168000000013000016900"
        "00003e554e49515f4b4559013041303130323033313233343742324139433045303030314532343030303037"
        "025741495401747275650254414753015461674102"
        "00016a000000013000016b0000000566616c736500016d0000000566616c736500016e000000086272"
        "6f6b65722d6168656c6c6f"
    )),
    "group changed, JSON": (IDS_CHANGED, 11, ONEWAY, (
        "00000088000000847b22636f6465223a34302c226578744669656c6473223a7b22636f6e73756d657247726f"
        "7570223a224347227d2c22666c6167223a322c226c616e6775616765223a224a415641222c226f7061717565"
        "223a31312c2273657269616c697a655479706543757272656e74525043223a224a534f4e222c227665727369"
        "6f6e223a3531337d"
    )),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "opaque", "flag", "frame"), FRAMES.values(), ids=FRAMES)
def test_frames(request_: Request[Any], opaque: int, flag: int, frame: str) -> None:
    wire = bytes.fromhex(frame)
    (received,) = Connection().feed(wire)
    assert type(request_).from_command(received) == request_

    command = request_.command()
    command.opaque, command.flag, command.language = opaque, flag, Language.JAVA
    connection = Connection(header_type=HeaderType(wire[4]))
    assert b"".join(connection.encode(command)) == wire


PULL_REPLIES = (
    "00000108000001047b22636f6465223a31392c226578744669656c6473223a7b2273756767657374576869636842"
    "726f6b65724964223a2230222c2267726f7570537973466c6167223a2230222c226e657874426567696e4f666673"
    "6574223a2235222c226d61784f6666736574223a2235222c226d696e4f6666736574223a2230222c22746f706963"
    "537973466c6167223a2230227d2c22666c6167223a312c226c616e6775616765223a224a415641222c226f706171"
    "7565223a382c2272656d61726b223a224f46465345545f4f564552464c4f575f4f4e45222c2273657269616c697a"
    "655479706543757272656e74525043223a224a534f4e222c2276657273696f6e223a3531337d",
    "000000a30100009f00130002010000000800000001000000134f46465345545f4f564552464c4f575f4f4e450000"
    "0077001473756767657374576869636842726f6b657249640000000130000f6e657874426567696e4f6666736574"
    "000000013500096d696e4f6666736574000000013000096d61784f66667365740000000135000c746f7069635379"
    "73466c61670000000130000c67726f7570537973466c61670000000130",
)


@pytest.mark.parametrize("frame", PULL_REPLIES)
def test_pull_reply(frame: str) -> None:
    (received,) = Connection().feed(bytes.fromhex(frame))
    reply = PullReply.from_command(received)
    assert reply == PullReply(
        status=PullStatus.NOTHING_NEW,
        remark="OFFSET_OVERFLOW_ONE",
        suggested_broker=0,
        next_offset=5,
        min_offset=0,
        max_offset=5,
        topic_flags=0,
        group_flags=0,
    )
    command = reply.command()
    command.opaque, command.language = 8, Language.JAVA
    assert command == received


REGISTRATION = Registration(
    filter_servers=[],
    table=TopicTable(
        version=DataVersion(counter=3, timestamp_ms=NOW),
        mapping_version=DataVersion(timestamp_ms=NOW),
        topics={
            "TopicTest": TopicSettings(
                topic="TopicTest",
                read_queues=8,
                write_queues=8,
                attributes={"message.type": "NORMAL"},
            ),
            "TBW102": TopicSettings(topic="TBW102", read_queues=8, write_queues=8, perm=7),
        },
    ),
)
REGISTRATION_TEXT = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":3,'
    b'"stateVersion":0,"timestamp":1700000000000},"mappingDataVersion":{"counter":0,'
    b'"stateVersion":0,"timestamp":1700000000000},"topicConfigTable":{"TopicTest":{"attributes":'
    b'{"message.type":"NORMAL"},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":'
    b'"SINGLE_TAG","topicName":"TopicTest","topicSysFlag":0,"writeQueueNums":8},"TBW102":'
    b'{"attributes":{},"order":false,"perm":7,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"TBW102","topicSysFlag":0,"writeQueueNums":8}},"topicQueueMappingDetailMap":{},'
    b'"topicQueueMappingInfoMap":{}}}'
)
REGISTRATION_BINARY = bytes.fromhex(
    "000000387b22636f756e746572223a332c22737461746556657273696f6e223a302c2274696d657374616d70223a"
    "313730303030303030303030307d0000000200000034546f70696354657374203820382036205349"
    "4e474c455f544147207b226d6573736167652e74797065223a224e4f524d414c227d0000001a5442573130322038"
    "203820372053494e474c455f544147207b7d000000025b5d00000000"
)
REGISTRATION_DEFLATED = bytes.fromhex(
    "78da636060b0a8564ace2fcd2b492d52b232d6512a2e492c490d4b2d2acecccf53b232d0512ac9cc4d050ae61628"
    "59199a1b20402d03030313109b84e41764268700d5285800a19942b0a79fbb8f6b7c88a3bb42b512506f71627aaa"
    "5e496541aa9295929f7f90afa38f1248af548853b8a181115893398a26b0c9d1b140920100008d29b9"
)


def test_registration_as_json() -> None:
    assert checksum(REGISTRATION_TEXT) == 1937265471
    assert read_registration(REGISTRATION_TEXT, compressed=False, version=513) == REGISTRATION
    # Java keeps the order of its hash map among the topics; everything else is sorted, as here.
    written = write_registration(REGISTRATION)
    assert len(written) == len(REGISTRATION_TEXT)
    assert fastjson.loads(written) == fastjson.loads(REGISTRATION_TEXT)


@pytest.mark.parametrize("compressed", [True, False], ids=["flagged", "as 5.x brokers flag it"])
def test_compressed_registration(compressed: bool) -> None:
    request = RegisterBroker(
        broker="broker-a",
        address="10.0.0.1:10911",
        cluster="DefaultCluster",
        ha_address="10.0.0.1:10912",
        broker_id=0,
        compressed=compressed,
        crc=377423041,
        body=REGISTRATION_DEFLATED,
    )
    found = request.registration()
    assert found.table.topics == REGISTRATION.table.topics
    assert found.table.version == REGISTRATION.table.version
    assert found.filter_servers == []
    assert found.table.mappings == {}

    request.carry(REGISTRATION, compressed=True)
    assert request.body == REGISTRATION_DEFLATED
    assert request.crc == 377423041
    assert zlib.decompress(request.body) == REGISTRATION_BINARY


def test_topic_line() -> None:
    line = 'TopicTest 8 8 6 SINGLE_TAG {"message.type":"NORMAL"}'
    settings = REGISTRATION.table.topics["TopicTest"]
    assert settings.line() == line
    assert TopicSettings.from_line(line) == settings
    assert TopicSettings.from_line("T 1 2 6 SINGLE_TAG").attributes == {}


HANDLES = [
    "100 1700000000000 60000 5 0 broker-a 2 103",
    "100 1700000000000 60000 5 1 broker-a 2 103",
    "100 1700000000000 60000 5 2 broker-a 2 103",
]


@pytest.mark.parametrize(("retry", "text"), list(enumerate(HANDLES)))
def test_pop_handles(retry: int, text: str) -> None:
    handle = pop_handles.PopHandle(
        start_offset=100, pop_ms=NOW, invisible_ms=60_000, revive_queue_id=5, retry=retry,
        broker="broker-a", queue_id=2, offset=103,
    )  # fmt: skip
    assert str(handle) == text
    assert pop_handles.PopHandle.read(text) == handle


def test_pop_infos() -> None:
    starts, offsets, counts = "0 2 100;1 0 7", "0 2 100,103;1 0 7", "0 qo2%100 1;0 2 0"
    assert pop_handles.read_start_offsets(starts) == {(0, 2): 100, (1, 0): 7}
    assert pop_handles.write_start_offsets({(0, 2): 100, (1, 0): 7}) == starts
    assert pop_handles.read_offsets(offsets) == {(0, 2): [100, 103], (1, 0): [7]}
    assert pop_handles.write_offsets({(0, 2): [100, 103], (1, 0): [7]}) == offsets
    read = pop_handles.read_order_counts(counts)
    assert str(read) == counts
    assert (read.of((0, 2), 100), read.of((0, 2), 101), read.of((1, 2), 100)) == (1, 0, None)


def test_recall_handle() -> None:
    text = (
        "djEgVG9waWNUZXN0IGJyb2tlci1hIDE3MDAwMDAwNjAwMDAgMEEwMTAyMDMxMjM0N0IyQTlDMEUwMDAxRTI0MDAw"
        "MDc="
    )
    handle = pop_handles.RecallHandle(
        topic="TopicTest",
        broker="broker-a",
        deliver_ms=1_700_000_060_000,
        message_id="0A01020312347B2A9C0E0001E2400007",
    )
    assert str(handle) == text
    assert pop_handles.RecallHandle.read(text) == handle


SIGNATURES = {
    "with a body": (
        SEND.command(), Credentials(access_key="rocketmq2", secret_key="12345678"),
        "W+M0Lqthly3zB0OdXdUBqyVbZLM=",
    ),
    "without": (
        ROUTE_REQUEST.command(), Credentials(access_key="rocketmq2", secret_key="12345678"),
        "GeeGoP9mRvDhoVp4PD5omX0prgE=",
    ),
    "with a token": (
        Command(105), Credentials(access_key="AK", secret_key="SK", security_token="TOKEN"),
        "z6Nv6ImnbI1Pm4r6TYY/CdM9JxQ=",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "credentials", "expected"), SIGNATURES.values(), ids=SIGNATURES
)
def test_signatures(command: Command, credentials: Credentials, expected: str) -> None:
    signed = Command(command.code, fields=dict(command.fields), body=command.body)
    signing.sign(signed, credentials)
    assert signed.fields["Signature"] == expected
    assert signing.signed_by(signed, credentials.secret_key)


def test_signed_content() -> None:
    signed = SEND.command()
    signing.sign(signed, Credentials(access_key="rocketmq2", secret_key="12345678"))
    assert signing.signed_content(signed.fields, signed.body).hex() == (
        "726f636b65746d71325047546f7069635465737454425731303234313031373030303030303030303030"
        "30554e49515f4b455901304130313032303331323334374232413943304530303031453234303030303702574149"
        "5401747275650254414753015461674102"
        "3066616c736566616c736562726f6b65722d6168656c6c6f"
    )
