"""Receiving without owning a queue: pop, acknowledge, hide longer, wait, peek."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

from gantrymq.protocol.base import (
    Buffer,
    Done,
    Int,
    Long,
    Reply,
    Request,
    TopicRequest,
    declared,
    in_body,
    named,
    of_frame,
    raw_body,
)
from gantrymq.protocol.text_forms import BitSet
from gantrymq.wire.codes import RequestCode


class PopStatus(IntEnum):
    """What a pop found. RocketMQ: PopStatus."""

    FOUND = 0
    NOTHING_THERE = 19
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210


@declared
class PopReply(Reply):
    """Messages in stored form, and what is needed to make their handles.

    The three infos are texts that `gantrymq.protocol.pop_handles` reads.

    RocketMQ: PopMessageResponseHeader.
    """

    status: PopStatus = of_frame("code", default=PopStatus.FOUND)
    pop_ms: Long = named("popTime", default=0)
    invisible_ms: Long = named("invisibleTime", default=0)
    revive_queue_id: Int = named("reviveQid", default=0)
    rest: Long = named("restNum", default=0)
    start_offsets: str | None = named("startOffsetInfo", default=None)
    offsets: str | None = named("msgOffsetInfo", default=None)
    order_counts: str | None = named("orderCountInfo", default=None)
    body: Buffer = raw_body(default=b"")


@declared
class PopMessages(TopicRequest[PopReply]):
    """Take messages out of any queue of a topic; until acknowledged they are hidden for a while.

    `init_mode` says where a new group begins: 0 at the least offset, 1 at the greatest.

    RocketMQ: PopMessageRequestHeader, code 200050.
    """

    CODE = RequestCode.POP_MESSAGE

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int = -1
    max_messages: Int = named("maxMsgNums")
    invisible_ms: Long = named("invisibleTime")
    poll_ms: Long = named("pollTime")
    born_ms: Long = named("bornTime")
    init_mode: Int
    expression_type: str | None = named("expType", default=None)
    expression: str | None = named("exp", default=None)
    ordered: bool = named("order", default=False)
    attempt_id: str | None = None


@declared
class AckMessage(TopicRequest[Done]):
    """Say that a popped message was consumed.

    `handle` is the message's POP_CK; topic, queue and offset are those that it names.

    RocketMQ: AckMessageRequestHeader, code 200051.
    """

    CODE = RequestCode.ACK_MESSAGE

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int
    handle: str = named("extraInfo")
    offset: Long
    lite_topic: str | None = None


@declared
class AckedRange:
    """Some of the messages that one pop took from one queue.

    Bit i of `acked` stands for the offset `start_offset` + i; `retry` is the kind of topic: 0 the
    asked one, 1 and 2 its retry topics.

    RocketMQ: BatchAck.
    """

    group: str = named("c")
    topic: str = named("t")
    retry: str = named("r", default="0")
    start_offset: Long = named("so")
    queue_id: Int = named("q")
    revive_queue_id: Int = named("rq")
    pop_ms: Long = named("pt")
    invisible_ms: Long = named("it")
    acked: BitSet = named("b")

    def offsets(self) -> Iterator[int]:
        """The offsets that are acknowledged, in order."""
        bits = self.acked
        while bits:
            lowest = bits & -bits
            yield self.start_offset + lowest.bit_length() - 1
            bits ^= lowest


@declared
class AckBatch(Request[Done]):
    """Say that many popped messages were consumed.

    RocketMQ: BatchAckMessageRequestBody, code 200151.
    """

    CODE = RequestCode.BATCH_ACK_MESSAGE

    broker: str | None = in_body("brokerName", default=None)
    acks: list[AckedRange] = in_body(default_factory=list)


@declared
class ChangeInvisibleTimeReply(Reply):
    """The times that the message's new handle has. RocketMQ: ChangeInvisibleTimeResponseHeader."""

    pop_ms: Long = named("popTime", default=0)
    invisible_ms: Long = named("invisibleTime", default=0)
    revive_queue_id: Int = named("reviveQid", default=0)


@declared
class ChangeInvisibleTime(TopicRequest[ChangeInvisibleTimeReply]):
    """Hide a popped message for another while, counted from now.

    RocketMQ: ChangeInvisibleTimeRequestHeader, code 200053.
    """

    CODE = RequestCode.CHANGE_MESSAGE_INVISIBLETIME

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int
    handle: str = named("extraInfo")
    offset: Long
    invisible_ms: Long = named("invisibleTime")
    lite_topic: str | None = None
    suspend: bool = False


@declared
class AwaitMessagesReply(Reply):
    """Whether there is something to pop. RocketMQ: NotificationResponseHeader."""

    has_messages: bool = named("hasMsg", default=False)
    polling_full: bool = False


@declared
class AwaitMessages(TopicRequest[AwaitMessagesReply]):
    """Wait until there is something to pop, and do not pop it.

    RocketMQ: NotificationRequestHeader, code 200054.
    """

    CODE = RequestCode.NOTIFICATION

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int
    poll_ms: Long = named("pollTime")
    born_ms: Long = named("bornTime")
    ordered: bool = named("order", default=False)
    attempt_id: str | None = None
    expression_type: str | None = named("expType", default=None)
    expression: str | None = named("exp", default=None)


@declared
class PollingInfoReply(Reply):
    """How many requests wait. RocketMQ: PollingInfoResponseHeader."""

    polling: Int = named("pollingNum", default=0)


@declared
class GetPollingInfo(TopicRequest[PollingInfoReply]):
    """How many pops wait at a queue.

    RocketMQ: PollingInfoRequestHeader, code 200055.
    """

    CODE = RequestCode.POLLING_INFO

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int


@declared
class PeekMessages(TopicRequest[PopReply]):
    """Read what a pop would give, and leave it there.

    RocketMQ: PeekMessageRequestHeader, code 200052.
    """

    CODE = RequestCode.PEEK_MESSAGE

    group: str = named("consumerGroup")
    topic: str
    queue_id: Int
    max_messages: Int = named("maxMsgNums")


@declared
class RollBackPops(Request[Done]):
    """Move the broker's pop records from its key-value store back to its files.

    RocketMQ: POP_ROLLBACK, code 200056.
    """

    CODE = RequestCode.POP_ROLLBACK
