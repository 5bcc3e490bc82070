"""Where a group stands, and where a queue begins and ends."""

from __future__ import annotations

from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    Reply,
    Request,
    TopicRequest,
    declared,
    in_body,
    named,
)
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import Boundary
from gantrymq.protocol.text_forms import CommaJoined
from gantrymq.wire.codes import RequestCode


@declared
class OffsetReply(Reply):
    """An offset in a queue.

    RocketMQ: GetMaxOffsetResponseHeader, GetMinOffsetResponseHeader,
    SearchOffsetResponseHeader, QueryConsumerOffsetResponseHeader.
    """

    offset: Long


@declared
class QueryConsumerOffset(TopicRequest[OffsetReply]):
    """How far a group has come in a queue; "not found" if it never committed and should not start.

    `zero_if_unknown` false makes the broker say so also where it would answer 0.

    RocketMQ: QueryConsumerOffsetRequestHeader, code 14.
    """

    CODE = RequestCode.QUERY_CONSUMER_OFFSET

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int
    zero_if_unknown: bool | None = named("setZeroIfNotFound", default=None)


@declared
class UpdateConsumerOffset(TopicRequest[Done]):
    """Say how far a group has come in a queue.

    RocketMQ: UpdateConsumerOffsetRequestHeader, code 15.
    """

    CODE = RequestCode.UPDATE_CONSUMER_OFFSET

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int
    offset: Long = named("commitOffset")


@declared
class SearchOffset(TopicRequest[OffsetReply]):
    """The first message stored at a time or later; with UPPER, the last one at it or before.

    RocketMQ: SearchOffsetRequestHeader, code 29.
    """

    CODE = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP

    topic: str
    lite_topic: str | None = None
    queue_id: Int
    timestamp_ms: Long = named("timestamp")
    boundary: Boundary = named("boundaryType", default=Boundary.LOWER)


@declared
class GetMaxOffset(TopicRequest[OffsetReply]):
    """The offset that the next message of a queue will have.

    RocketMQ: GetMaxOffsetRequestHeader, code 30.
    """

    CODE = RequestCode.GET_MAX_OFFSET

    topic: str
    queue_id: Int
    committed: bool = True


@declared
class GetMinOffset(TopicRequest[OffsetReply]):
    """The offset of the oldest message that a queue still has; -1 where there is no such queue.

    RocketMQ: GetMinOffsetRequestHeader, code 31.
    """

    CODE = RequestCode.GET_MIN_OFFSET

    topic: str
    queue_id: Int


@declared
class StoreTimeReply(Reply):
    """When a message was stored, or -1. RocketMQ: GetEarliestMsgStoretimeResponseHeader."""

    timestamp_ms: Long = named("timestamp")


@declared
class GetEarliestStoreTime(TopicRequest[StoreTimeReply]):
    """When the oldest message of a queue was stored.

    RocketMQ: GetEarliestMsgStoretimeRequestHeader, code 32.
    """

    CODE = RequestCode.GET_EARLIEST_MSG_STORETIME

    topic: str
    queue_id: Int


@declared
class CorrectionOffsets(Reply):
    """The least offset of some groups, by queue id. RocketMQ: QueryCorrectionOffsetBody."""

    offsets: dict[Int, Long] = in_body("correctionOffsets", default_factory=dict)


@declared
class QueryCorrectionOffsets(TopicRequest[CorrectionOffsets]):
    """The least offsets that the groups of a topic have, compared with one of them.

    RocketMQ: QueryCorrectionOffsetHeader, code 308.
    """

    CODE = RequestCode.QUERY_CORRECTION_OFFSET

    topic: str
    compare_group: str
    filter_groups: CommaJoined | None = None


@declared
class AllConsumerOffsets(Reply):
    """Offsets by `topic@group` and queue id. RocketMQ: ConsumerOffsetSerializeWrapper."""

    version: DataVersion | None = in_body("dataVersion", default=None)
    offsets: dict[str, dict[Int, Long]] = in_body("offsetTable", default_factory=dict)


@declared
class GetAllConsumerOffsets(Request[AllConsumerOffsets]):
    """Where every group stands at a broker.

    RocketMQ: GET_ALL_CONSUMER_OFFSET, code 43.
    """

    CODE = RequestCode.GET_ALL_CONSUMER_OFFSET


@declared
class AllDelayOffsets(Reply):
    """How far the delay queues were delivered, by level. RocketMQ: DelayOffsetSerializeWrapper."""

    version: DataVersion | None = in_body("dataVersion", default=None)
    offsets: dict[Int, Long] = in_body("offsetTable", default_factory=dict)


@declared
class GetAllDelayOffsets(Request[AllDelayOffsets]):
    """How far delayed messages were delivered.

    RocketMQ: GET_ALL_DELAY_OFFSET, code 45.
    """

    CODE = RequestCode.GET_ALL_DELAY_OFFSET
