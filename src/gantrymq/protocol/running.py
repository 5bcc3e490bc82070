"""What an administrator asks of a consumer: what it is doing, and to consume one message now.

Both requests go to the broker, which passes them on to the client and the client's answer back.
"""

from __future__ import annotations

from gantrymq.model import MessageQueue
from gantrymq.protocol.base import (
    Buffer,
    Int,
    Long,
    Reply,
    RpcRequest,
    TopicRequest,
    declared,
    in_body,
    named,
    raw_body,
)
from gantrymq.protocol.enums import ConsumeResult
from gantrymq.protocol.groups import Subscription
from gantrymq.wire.codes import RequestCode


@declared
class PulledQueue:
    """A queue that a client pulls from. RocketMQ: ProcessQueueInfo."""

    commit_offset: Long = 0
    cached_min_offset: Long = named("cachedMsgMinOffset", default=0)
    cached_max_offset: Long = named("cachedMsgMaxOffset", default=0)
    cached: Int = named("cachedMsgCount", default=0)
    cached_mib: Int = named("cachedMsgSizeInMiB", default=0)
    transaction_min_offset: Long = named("transactionMsgMinOffset", default=0)
    transaction_max_offset: Long = named("transactionMsgMaxOffset", default=0)
    transaction_messages: Int = named("transactionMsgCount", default=0)
    locked: bool = False
    unlock_attempts: Long = named("tryUnlockTimes", default=0)
    last_lock_ms: Long = named("lastLockTimestamp", default=0)
    dropped: bool = named("droped", default=False)
    last_pull_ms: Long = named("lastPullTimestamp", default=0)
    last_consume_ms: Long = named("lastConsumeTimestamp", default=0)


@declared
class PoppedQueue:
    """A queue that a client pops from. RocketMQ: PopProcessQueueInfo."""

    waiting_acks: Int = named("waitAckCount", default=0)
    dropped: bool = named("droped", default=False)
    last_pop_ms: Long = named("lastPopTimestamp", default=0)


@declared
class ConsumeStatus:
    """Rates and times of one topic. RocketMQ: ConsumeStatus."""

    pull_ms: float = named("pullRT", default=0.0)
    pull_tps: float = named("pullTPS", default=0.0)
    consume_ms: float = named("consumeRT", default=0.0)
    consumed_tps: float = named("consumeOKTPS", default=0.0)
    failed_tps: float = named("consumeFailedTPS", default=0.0)
    failed: Long = named("consumeFailedMsgs", default=0)


@declared
class RunningInfo(Reply):
    """What a client is doing. RocketMQ: ConsumerRunningInfo."""

    properties: dict[str, str] = in_body(default_factory=dict)
    subscriptions: list[Subscription] = in_body("subscriptionSet", default_factory=list)
    queues: dict[MessageQueue, PulledQueue] = in_body("mqTable", default_factory=dict)
    popped_queues: dict[MessageQueue, PoppedQueue] = in_body("mqPopTable", default_factory=dict)
    topics: dict[str, ConsumeStatus] = in_body("statusTable", default_factory=dict)
    user_info: dict[str, str] = in_body("userConsumerInfo", default_factory=dict)
    stacks: str | None = in_body("jstack", default=None)


@declared
class GetRunningInfo(RpcRequest[RunningInfo]):
    """What a client is doing, with the stacks of its threads if asked.

    RocketMQ: GetConsumerRunningInfoRequestHeader, code 307.
    """

    CODE = RequestCode.GET_CONSUMER_RUNNING_INFO

    group: str = named("consumerGroup")
    client_id: str
    stacks: bool | None = named("jstackEnable", default=None)


@declared
class ConsumeDirectlyReply(Reply):
    """How consuming the message ended. RocketMQ: ConsumeMessageDirectlyResult."""

    ordered: bool = in_body("order", default=False)
    auto_commit: bool = in_body(default=True)
    result: ConsumeResult | None = in_body("consumeResult", default=None)
    explanation: str | None = in_body("remark", default=None)
    spent_ms: Long = in_body("spentTimeMills", default=0)


@declared
class ConsumeDirectly(TopicRequest[ConsumeDirectlyReply]):
    """Have a client consume one message now; the broker adds the stored message as the body.

    RocketMQ: ConsumeMessageDirectlyResultRequestHeader, code 309.
    """

    CODE = RequestCode.CONSUME_MESSAGE_DIRECTLY

    group: str = named("consumerGroup")
    client_id: str | None = None
    message_id: str | None = named("msgId", default=None)
    broker_name: str | None = None
    topic: str | None = None
    topic_flags: Int | None = named("topicSysFlag", default=None)
    group_flags: Int | None = named("groupSysFlag", default=None)
    body: Buffer = raw_body(default=b"")
