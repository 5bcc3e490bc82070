from __future__ import annotations

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError, TopicNotFound
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.static_topics import MappedStretch, QueueMappingDetail
from gantrymq.protocol.topics import (
    READ,
    WRITE,
    CleanUnusedTopics,
    DeleteTopic,
    GetBrokerSystemTopics,
    GetTopic,
    GetTopics,
    PutStaticTopic,
    PutTopic,
    PutTopics,
    TopicSettings,
)
from gantrymq.wire.command import Command

FIELDS = {
    "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "4",
    "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    "attributes": "+message.type=FIFO,-reserve.time", "force": "false",
}  # fmt: skip
PUT = PutTopic(
    topic="T", read_queues=8, write_queues=4, perm=READ | WRITE,
    attributes={"+message.type": "FIFO", "-reserve.time": ""},
)  # fmt: skip


def test_put() -> None:
    assert (PUT.command().code, PUT.command().fields) == (17, FIELDS)
    assert PutTopic.from_command(Command(17, fields=FIELDS)) == PUT


def test_a_4_9_tool_sends_less() -> None:
    old = {k: v for k, v in FIELDS.items() if k not in ("attributes", "force", "order")}
    request = PutTopic.from_command(Command(17, fields=old | {"topicFilterType": "multi_tag"}))
    assert (request.attributes, request.force, request.ordered) == (None, False, False)
    assert request.filter_type is TopicFilterType.MULTI_TAG


@pytest.mark.parametrize("text", ["message.type=FIFO", "+message.type", "-a=b", "+", "x"])
def test_attributes_need_their_sign(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="attributes: an attribute is changed by"):
        PutTopic.from_command(Command(17, fields=FIELDS | {"attributes": text}))


def test_put_many() -> None:
    command = PutTopics(topics=[TopicSettings(topic="T")]).command()
    assert bytes(command.body).startswith(b'{"topicConfigList":[{"attributes":{},"order":false')


def test_put_static() -> None:
    mapping = QueueMappingDetail(
        topic="T", broker="b", total_queues=2, epoch=5, current_ids={0: 1},
        hosted={0: [MappedStretch(broker="b", queue_id=1)]},
    )  # fmt: skip
    request = PutStaticTopic(topic="T", read_queues=2, write_queues=2, perm=6, mapping=mapping)
    command = request.command(bare_numbers=True)
    assert command.code == 513
    assert bytes(command.body) == (
        b'{"bname":"b","currIdMap":{0:1},"dirty":false,"epoch":5,"hostedQueues":{0:[{"bname":"b",'
        b'"endOffset":-1,"gen":0,"logicOffset":0,"queueId":1,"startOffset":0,"timeOfEnd":-1,'
        b'"timeOfStart":-1}]},"scope":"__global__","topic":"T","totalQueues":2}'
    )
    assert PutStaticTopic.from_command(command) == request


def test_get_one() -> None:
    request = GetTopic(topic="T", logical=True)
    assert request.command().fields == {"topic": "T", "lo": "true"}
    body = b'{"topicName":"T","perm":4,"attributes":{"message.type":"FIFO"}}'
    settings = request.reply_from(Command(0, body=body)).settings
    assert (settings.perm, settings.read_queues, settings.mapping) == (4, 16, None)
    assert settings.attributes == {"message.type": "FIFO"}
    with pytest.raises(TopicNotFound):
        request.reply_from(Command(17))


def test_get_all() -> None:
    assert GetTopics.from_command(Command(21)) == GetTopics()
    fields = {"topicSeq": "5", "dataVersion": "{}", "maxTopicNum": "100"}
    paged = GetTopics.from_command(Command(21, fields=fields))
    assert paged == GetTopics(start=5, version=DataVersion(), most=100)
    body = b'{"dataVersion":{"counter":7},"topicConfigTable":{"T":{"topicName":"T"}}}'
    reply = paged.reply_from(Command(0, fields={"totalTopicNum": "1"}, body=body))
    assert (reply.total, reply.table.version.counter) == (1, 7)
    assert reply.table.topics == {"T": TopicSettings(topic="T")}
    assert reply.table.mappings == {}


@pytest.mark.parametrize("topic", [None, "", "a b"])
def test_names_that_a_line_cannot_hold(topic: str | None) -> None:
    with pytest.raises(LocalProtocolError, match="a line of topic settings cannot hold"):
        TopicSettings(topic=topic).line()


@pytest.mark.parametrize(
    "line", ["", "T 1 2 6", "T 1 x 6 SINGLE_TAG", "T 1 2 6 SINGLE_TAG {", "T 1 2 6 SINGLE_TAG [1]"]
)
def test_lines_that_cannot_be_read(line: str) -> None:
    with pytest.raises(RemoteProtocolError):
        TopicSettings.from_line(line)


def test_attributes_on_a_line_may_hold_blanks() -> None:
    settings = TopicSettings(topic="T", attributes={"a": "b c"})
    assert TopicSettings.from_line(settings.line()) == settings


def test_the_rest() -> None:
    assert DeleteTopic(topic="T").command().fields == {"topic": "T"}
    assert CleanUnusedTopics().command().code == 316
    reply = GetBrokerSystemTopics().reply_from(Command(0, body=b'{"topicList":["TBW102"]}'))
    assert (reply.topics, reply.broker_address) == (["TBW102"], None)
