"""Ending transactions, and asking a producer how one that was left open shall end."""

from __future__ import annotations

from gantrymq.protocol.base import (
    Buffer,
    Done,
    Long,
    Request,
    RpcRequest,
    declared,
    named,
    of_frame,
    raw_body,
)
from gantrymq.wire.codes import RequestCode
from gantrymq.wire.open_enum import OpenIntEnum


class Decision(OpenIntEnum):
    """How a transaction ends. RocketMQ: MessageSysFlag's transaction types."""

    UNDECIDED = 0
    COMMIT = 8
    ROLLBACK = 12


@declared
class EndTransaction(RpcRequest[Done]):
    """Commit or roll back a half message; one-way, and not answered when undecided.

    `half_offset` is the offset in the half queue that the send answer gave, `log_offset` the offset
    inside its message id, `remark` what went wrong in the producer.

    RocketMQ: EndTransactionRequestHeader, code 37.
    """

    CODE = RequestCode.END_TRANSACTION

    topic: str | None = None
    group: str = named("producerGroup")
    half_offset: Long = named("tranStateTableOffset")
    log_offset: Long = named("commitLogOffset")
    decision: Decision = named("commitOrRollback")
    from_check: bool = named("fromTransactionCheck", default=False)
    message_id: str = named("msgId")
    transaction_id: str | None = None
    remark: str | None = of_frame("remark", default=None)


@declared
class CheckTransactionState(RpcRequest[Done]):
    """Ask a producer how a half message shall end; one-way, answered by an `EndTransaction`.

    The body is the stored message, under its real topic and queue.

    RocketMQ: CheckTransactionStateRequestHeader, code 39.
    """

    CODE = RequestCode.CHECK_TRANSACTION_STATE

    topic: str | None = None
    half_offset: Long = named("tranStateTableOffset")
    log_offset: Long = named("commitLogOffset")
    message_id: str | None = named("msgId", default=None)
    transaction_id: str | None = None
    offset_id: str | None = named("offsetMsgId", default=None)
    body: Buffer = raw_body()


@declared
class ResumeHalfMessage(Request[Done]):
    """Have a half message checked again that was checked too often; `message_id` is an offset id.

    RocketMQ: ResumeCheckHalfMessageRequestHeader, code 323.
    """

    CODE = RequestCode.RESUME_CHECK_HALF_MESSAGE

    topic: str | None = None
    message_id: str | None = named("msgId", default=None)
