"""The topics of a broker: their settings, and creating, changing and deleting them."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.protocol.base import (
    Done,
    Int,
    Reply,
    Request,
    RpcRequest,
    TopicRequest,
    declared,
    in_body,
    named,
    whole_body,
)
from gantrymq.protocol.data_version import DataVersion, DataVersionText
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.scalars import Unreadable, int32
from gantrymq.protocol.static_topics import QueueMapping, QueueMappingDetail
from gantrymq.protocol.text_forms import AttributeChanges
from gantrymq.wire import fastjson
from gantrymq.wire.codes import RequestCode

INHERIT: Final = 1
WRITE: Final = 2
READ: Final = 4


@declared
class TopicSettings:
    """What a broker keeps about a topic; `perm` is a sum of READ, WRITE and INHERIT.

    In a request the keys of `attributes` carry a sign: `+key` sets, `-key` drops.

    RocketMQ: TopicConfig.
    """

    topic: str | None = named("topicName", default=None)
    read_queues: Int = named("readQueueNums", default=16)
    write_queues: Int = named("writeQueueNums", default=16)
    perm: Int = READ | WRITE
    filter_type: TopicFilterType = named("topicFilterType", default=TopicFilterType.SINGLE_TAG)
    flags: Int = named("topicSysFlag", default=0)
    ordered: bool = named("order", default=False)
    attributes: dict[str, str] = field(default_factory=dict)

    def line(self) -> str:
        """The settings on one line; flags and order have no place there.

        RocketMQ: TopicConfig.encode.
        """
        if not self.topic or " " in self.topic:
            raise LocalProtocolError(f"a line of topic settings cannot hold {self.topic!r}")
        attributes = fastjson.dumps(self.attributes).decode()
        numbers = f"{self.read_queues} {self.write_queues} {self.perm}"
        return f"{self.topic} {numbers} {self.filter_type} {attributes}"

    @classmethod
    def from_line(cls, line: str) -> TopicSettings:
        """The settings that such a line holds; the attributes may be missing."""
        topic, *items = line.split(" ", 5)
        if len(items) < 4:
            raise RemoteProtocolError(f"topic settings of {len(items) + 1} items: {line!r:.200}")
        try:
            read, write, perm = map(int32, items[:3])
            tree = fastjson.loads(items[4].encode("utf-8", "replace")) if items[4:] else {}
            attributes = shape(dict[str, str]).read(tree or {})
        except Unreadable as error:
            raise RemoteProtocolError(f"topic settings {line!r:.200}: {error}") from None
        return cls(
            topic=topic,
            read_queues=read,
            write_queues=write,
            perm=perm,
            filter_type=TopicFilterType(items[3]),
            attributes=attributes,
        )


@declared
class TopicTable:
    """Every topic's settings. RocketMQ: TopicConfigAndMappingSerializeWrapper."""

    version: DataVersion = named("dataVersion", default_factory=DataVersion)
    topics: dict[str, TopicSettings] = named("topicConfigTable", default_factory=dict)
    mapping_version: DataVersion = named("mappingDataVersion", default_factory=DataVersion)
    mappings: dict[str, QueueMapping] = named("topicQueueMappingInfoMap", default_factory=dict)
    mapping_details: dict[str, QueueMappingDetail] = named(
        "topicQueueMappingDetailMap", default_factory=dict
    )


@declared
class PutTopic(TopicRequest[Done]):
    """Create a topic, or change its settings.

    RocketMQ: CreateTopicRequestHeader, code 17.
    """

    CODE = RequestCode.UPDATE_AND_CREATE_TOPIC

    topic: str
    default_topic: str = "TBW102"
    read_queues: Int = named("readQueueNums")
    write_queues: Int = named("writeQueueNums")
    perm: Int
    filter_type: TopicFilterType = named("topicFilterType", default=TopicFilterType.SINGLE_TAG)
    flags: Int | None = named("topicSysFlag", default=None)
    ordered: bool = named("order", default=False)
    attributes: AttributeChanges | None = None
    force: bool = False


@declared
class PutTopics(RpcRequest[Done]):
    """Create or change several topics; if one is already as asked, nothing is done at all.

    RocketMQ: CreateTopicListRequestBody, code 18.
    """

    CODE = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST

    topics: list[TopicSettings] = in_body("topicConfigList")


@declared
class PutStaticTopic(PutTopic):
    """Create or change a topic and this broker's part of its logical queues.

    RocketMQ: CreateTopicRequestHeader, TopicQueueMappingDetail, code 513.
    """

    CODE = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC

    mapping: QueueMappingDetail = whole_body()


@declared
class DeleteTopic(TopicRequest[Done]):
    """Drop a topic from a broker.

    RocketMQ: DeleteTopicRequestHeader, code 215.
    """

    CODE = RequestCode.DELETE_TOPIC_IN_BROKER

    topic: str


@declared
class TopicTableReply(Reply):
    """Every topic's settings, or a page of them out of `total`.

    RocketMQ: GetAllTopicConfigResponseHeader.
    """

    total: Int | None = named("totalTopicNum", default=None)
    table: TopicTable = whole_body()


@declared
class GetTopics(Request[TopicTableReply]):
    """The settings of all topics; with `start`, a page of them while `version` still holds.

    RocketMQ: GetAllTopicConfigRequestHeader, code 21.
    """

    CODE = RequestCode.GET_ALL_TOPIC_CONFIG

    start: Int | None = named("topicSeq", default=None)
    version: DataVersionText | None = named("dataVersion", default=None)
    most: Int | None = named("maxTopicNum", default=None)


@declared
class MappedTopicSettings(TopicSettings):
    """A topic's settings with its mapping if static. RocketMQ: TopicConfigAndQueueMapping."""

    mapping: QueueMappingDetail | None = named("mappingDetail", default=None)


@declared
class TopicReply(Reply):
    """One topic's settings."""

    settings: MappedTopicSettings = whole_body()


@declared
class GetTopic(TopicRequest[TopicReply]):
    """The settings of one topic; `logical` asks for its mapping too.

    RocketMQ: GetTopicConfigRequestHeader, code 351.
    """

    CODE = RequestCode.GET_TOPIC_CONFIG

    topic: str


@declared
class TopicList(Reply):
    """Names of topics, and from some peers a broker to ask next. RocketMQ: TopicList."""

    topics: list[str] = in_body("topicList", default_factory=list)
    broker_address: str | None = in_body("brokerAddr", default=None)


@declared
class GetBrokerSystemTopics(Request[TopicList]):
    """The system topics of a broker.

    RocketMQ: GET_SYSTEM_TOPIC_LIST_FROM_BROKER, code 305.
    """

    CODE = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER


@declared
class CleanUnusedTopics(Request[Done]):
    """Drop the files of topics that are no more.

    RocketMQ: CLEAN_UNUSED_TOPIC, code 316.
    """

    CODE = RequestCode.CLEAN_UNUSED_TOPIC
