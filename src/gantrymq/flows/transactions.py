"""Transactions: a message that nobody sees until its sender says so.

```
half message stored ──▶ the sender's own work ──▶ commit, rollback ──▶ visible, or gone
        │                                               ▲
        └── no word for a while ──▶ the broker asks ────┘ or leaves it open, and is asked again
```

The end is said to the broker that holds the half message, and its answer waited for, so that a
sender knows. If that fails the message stays open, and the broker asks: whoever sent it remembers
what he decided, and after a crash another producer of the group is asked what to make of it.

RocketMQ: TransactionMQProducer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gantrymq.errors import GantryError, InvalidInput, SendFailed
from gantrymq.flows import sending
from gantrymq.flows.drafting import Draft
from gantrymq.flows.sending import Choice, Sender
from gantrymq.model import Message, SendReceipt, SendStatus
from gantrymq.protocol.transactions import CheckTransactionState, Decision, EndTransaction
from gantrymq.runtime import Runtime
from gantrymq.wire import properties as names
from gantrymq.wire.message_id import parse_offset_id

END_TIMEOUT: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A half message that is stored, and what its broker is told it is."""

    draft: Draft
    receipt: SendReceipt
    group: str

    @property
    def transaction_id(self) -> str:
        """The id that the transaction goes by."""
        return self.receipt.transaction_id or self.receipt.message_id

    def ending(self, decision: Decision, remark: str | None = None) -> EndTransaction:
        """What the broker is told."""
        return EndTransaction(
            topic=self.draft.topic,
            group=self.group,
            half_offset=self.receipt.offset,
            log_offset=parse_offset_id(self.receipt.offset_id or "").log_offset,
            decision=decision,
            message_id=self.receipt.message_id,
            transaction_id=self.transaction_id,
            broker=self.receipt.queue.broker,
            remark=remark,
        )


def half_properties(message: Message, group: str) -> dict[str, str]:
    """What makes a half message of `message`."""
    if message.delay_level or message.delay is not None or message.deliver_at is not None:
        raise InvalidInput(
            "a message cannot be delayed and part of a transaction: send it delayed when the"
            " transaction is committed"
        )
    return {names.HALF_MESSAGE: "true", names.PRODUCER_GROUP: group}


async def begin(
    runtime: Runtime,
    sender: Sender,
    draft: Draft,
    *,
    timeout: float,
    choice: Choice | None = None,
) -> Half:
    """Store the half message; one that is stored, but not safely, is taken back."""
    started = runtime.now()
    receipt = await sending.send(runtime, sender, draft, timeout=timeout, choice=choice)
    half = Half(draft=draft, receipt=receipt, group=draft.properties[names.PRODUCER_GROUP])
    if receipt.status is not SendStatus.OK:
        await end(runtime, sender, half, Decision.ROLLBACK)
        raise SendFailed(
            f"the half message was stored as {receipt.status.name}, which is not safe enough to"
            f" go on, and was rolled back: Topic: {draft.messages[0].topic}",
            topic=draft.messages[0].topic,
            brokers=(receipt.queue.broker,),
            elapsed=runtime.now() - started,
            code=int(receipt.status),
        )
    return half


async def end(
    runtime: Runtime,
    sender: Sender,
    half: Half,
    decision: Decision,
    *,
    remark: str | None = None,
    timeout: float = END_TIMEOUT,
) -> GantryError | None:
    """Tell the broker how it ends; the error if it could not be told, and will ask."""
    return await tell(runtime, sender, half.ending(decision, remark), timeout=timeout)


async def tell(
    runtime: Runtime, sender: Sender, ending: EndTransaction, *, timeout: float = END_TIMEOUT
) -> GantryError | None:
    """Tell the broker that holds the half message; the error if it could not be told."""
    broker = ending.broker or ""
    address = sender.places.address_to_send(broker)
    if address is None and ending.topic:
        try:  # somebody else sent it: this producer may never have looked for its topic
            await sender.places.queues_to_publish(ending.topic, timeout=timeout)
        except GantryError as error:
            return error
        address = sender.places.address_to_send(broker)
    if address is None:
        return SendFailed(f"broker {broker} is in no route any more")
    return await _tell_or_ask(runtime, address, ending, timeout)


async def answer_check(
    runtime: Runtime,
    address: str,
    asked: CheckTransactionState,
    *,
    group: str,
    message_id: str,
    decision: Decision,
    remark: str | None = None,
) -> GantryError | None:
    """Tell the broker that asked."""
    ending = EndTransaction(
        topic=asked.topic,
        group=group,
        half_offset=asked.half_offset,
        log_offset=asked.log_offset,
        decision=decision,
        from_check=True,
        message_id=message_id,
        transaction_id=asked.transaction_id,
        broker=asked.broker,
        remark=remark,
    )
    return await _tell_or_ask(runtime, address, ending, END_TIMEOUT)


async def _tell_or_ask(
    runtime: Runtime, address: str, ending: EndTransaction, timeout: float
) -> GantryError | None:
    try:
        if ending.decision is Decision.UNDECIDED:
            await runtime.tell(address, ending)  # which brokers do not answer
        else:
            await runtime.call(address, ending, timeout=timeout)
    except GantryError as error:
        return error
    return None
