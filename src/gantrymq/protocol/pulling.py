"""Reading messages: by queue and offset, by key, by their place in the commit log."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum, IntFlag
from typing import Final

from gantrymq.protocol.base import (
    Buffer,
    Int,
    Long,
    Reply,
    Request,
    TopicRequest,
    declared,
    named,
    of_frame,
    raw_body,
)
from gantrymq.wire.codes import RequestCode


class PullFlag(IntFlag):
    """What a pull asks for besides messages. RocketMQ: PullSysFlag."""

    COMMIT_OFFSET = 1
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    LITE_PULL = 16


class PullStatus(IntEnum):
    """What a pull found. RocketMQ: PullStatus."""

    FOUND = 0
    NOTHING_NEW = 19
    NOTHING_MATCHED = 20
    OFFSET_MOVED = 21


COMPACTED: Final = 1 << 16
"""A flag of topics in answers to pulls: what is read there keeps one message of each key, so
offsets that are missing are no loss. RocketMQ has no such flag; its clients look for others alone.
"""


@declared
class PullReply(Reply):
    """Messages back to back in stored form, and where to go on.

    A broker puts them into `more`, as they lie in its log; all of them come out as `body`.
    `forbidden` says who forbids it when the answer is "no permission": 1 broker, 2 group, 3 topic,
    4 broadcasting, 5 subscription.

    RocketMQ: PullMessageResponseHeader.
    """

    status: PullStatus = of_frame("code", default=PullStatus.FOUND)
    suggested_broker: Long = named("suggestWhichBrokerId")
    next_offset: Long = named("nextBeginOffset")
    min_offset: Long
    max_offset: Long
    offset_delta: Long | None = None
    topic_flags: Int | None = named("topicSysFlag", default=None)
    group_flags: Int | None = named("groupSysFlag", default=None)
    forbidden: Int | None = named("forbiddenType", default=None)
    body: Buffer = raw_body(default=b"")
    more: Sequence[Buffer] = of_frame("more", default=())


@declared
class PullMessage(TopicRequest[PullReply]):
    """Read from one queue, waiting at the broker if it has nothing yet.

    RocketMQ: PullMessageRequestHeader, code 11.
    """

    CODE = RequestCode.PULL_MESSAGE

    group: str = named("consumerGroup")
    topic: str
    lite_topic: str | None = None
    queue_id: Int
    offset: Long = named("queueOffset")
    max_messages: Int = named("maxMsgNums", default=32)
    flags: Int = named("sysFlag", default=0)
    commit_offset: Long = 0
    wait_ms: Long = named("suspendTimeoutMillis", default=15_000)
    subscription: str | None = None
    subscription_version: Long = named("subVersion", default=0)
    expression_type: str | None = None
    max_bytes: Int | None = named("maxMsgBytes", default=None)
    source: Int | None = named("requestSource", default=None)
    forwarded_client: str | None = named("proxyFrowardClientId", default=None)


@declared
class LitePullMessage(PullMessage):
    """The same for consumers that pull at their own pace.

    RocketMQ: PullMessageRequestHeader, code 361.
    """

    CODE = RequestCode.LITE_PULL_MESSAGE


@declared
class QueryMessagesReply(Reply):
    """Messages found by key, and how far the index has come.

    RocketMQ: QueryMessageResponseHeader.
    """

    index_ms: Long = named("indexLastUpdateTimestamp")
    index_log_offset: Long = named("indexLastUpdatePhyoffset")
    body: Buffer = raw_body(default=b"")


@declared
class QueryMessages(TopicRequest[QueryMessagesReply]):
    """Look messages up by a key, or with `unique` by their unique id.

    Keys are found by hash, so the caller has to look at the keys of what came. `index_type` is K
    for keys, U for unique ids, T for tags.

    RocketMQ: QueryMessageRequestHeader, code 12.
    """

    CODE = RequestCode.QUERY_MESSAGE

    topic: str
    key: str
    max_messages: Int = named("maxNum")
    begin_ms: Long = named("beginTimestamp")
    end_ms: Long = named("endTimestamp")
    index_type: str | None = None
    last_key: str | None = None
    unique: bool | None = named("_UNIQUE_KEY_QUERY", default=None)


@declared
class ViewMessageReply(Reply):
    """One message in stored form. RocketMQ: ViewMessageResponseHeader."""

    body: Buffer = raw_body(default=b"")


@declared
class ViewMessage(Request[ViewMessageReply]):
    """Read the message that begins at an offset of the commit log.

    RocketMQ: ViewMessageRequestHeader, code 33.
    """

    CODE = RequestCode.VIEW_MESSAGE_BY_ID

    topic: str | None = None
    log_offset: Long = named("offset")
