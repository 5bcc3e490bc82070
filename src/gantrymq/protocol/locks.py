"""Queues locked for one member of a group, so that they can be consumed in order."""

from __future__ import annotations

from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done, Reply, RpcRequest, declared, in_body
from gantrymq.wire.codes import RequestCode


@declared
class LockQueuesReply(Reply):
    """The queues that are locked now for who asked. RocketMQ: LockBatchResponseBody."""

    locked: set[MessageQueue] = in_body("lockOKMQSet", default_factory=set)


@declared
class LockQueues(RpcRequest[LockQueuesReply]):
    """Lock queues for one client of a group, or make its locks last longer.

    RocketMQ: LockBatchRequestBody, code 41.
    """

    CODE = RequestCode.LOCK_BATCH_MQ

    group: str = in_body("consumerGroup")
    client_id: str = in_body()
    queues: set[MessageQueue] = in_body("mqSet")
    only_this_broker: bool = in_body(default=False)


@declared
class UnlockQueues(RpcRequest[Done]):
    """Give locks back.

    RocketMQ: UnlockBatchRequestBody, code 42.
    """

    CODE = RequestCode.UNLOCK_BATCH_MQ

    group: str = in_body("consumerGroup")
    client_id: str = in_body()
    queues: set[MessageQueue] = in_body("mqSet")
    only_this_broker: bool = in_body(default=False)
