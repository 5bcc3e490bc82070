"""Sending a message: which queue, which broker, how often, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gantrymq.errors import SendFailed
from gantrymq.model import Message, MessageQueue, SendReceipt
from gantrymq.protocol.sending import SendMessage, SendReply
from gantrymq.protocol.validation import check_message
from gantrymq.rules.queue_choice import QueueChoice, TopicQueues
from gantrymq.rules.retry import SendRetries
from gantrymq.runtime import Runtime
from gantrymq.wire import properties as names
from gantrymq.wire.message_id import UniqueIds

DEFAULT_TIMEOUT: Final = 3.0


class Places(Protocol):
    """Where topics and brokers are."""

    async def queues_to_publish(self, topic: str) -> TopicQueues:
        """The queues that may be sent to."""
        ...

    def master(self, broker: str) -> str | None:
        """The address to write to."""
        ...


@dataclass(slots=True, kw_only=True)
class Sender:
    """What sends have in common."""

    group: str
    places: Places
    choice: QueueChoice
    retries: SendRetries
    unique_ids: UniqueIds
    now_ms: Callable[[], int]


async def send(
    runtime: Runtime, sender: Sender, message: Message, *, timeout: float = DEFAULT_TIMEOUT
) -> SendReceipt:
    """Store `message`, or raise why not."""
    check_message(message)
    unique_id = sender.unique_ids.next()
    queues = await sender.places.queues_to_publish(message.topic)
    queue = sender.choice.choose(queues)
    address = sender.places.master(queue.broker)
    if address is None:
        raise SendFailed(f"broker {queue.broker} has no address", topic=message.topic, code=10003)
    found = dict(message.properties)
    found[names.UNIQUE_KEY] = unique_id
    found[names.WAIT] = "true" if message.wait_stored else "false"
    if message.tag is not None:
        found[names.TAGS] = message.tag
    if message.keys:
        found[names.KEYS] = " ".join(message.keys)
    request = SendMessage(
        group=sender.group,
        topic=message.topic,
        queue_id=queue.queue_id,
        born_ms=sender.now_ms(),
        flag=message.flag,
        properties=names.join(found),
        broker=queue.broker,
        body=message.body,
    )
    reply = await runtime.call(address, request, timeout=timeout)
    return receipt(reply, queue, unique_id)


def receipt(reply: SendReply, queue: MessageQueue, unique_id: str) -> SendReceipt:
    """What a sender gets for the broker's answer."""
    return SendReceipt(
        message_id=unique_id,
        queue=MessageQueue(queue.topic, queue.broker, reply.queue_id),
        offset=reply.offset,
        offset_id=reply.message_id,
        status=reply.status,
        transaction_id=reply.transaction_id,
        recall_handle=reply.recall_handle,
        region=reply.region,
        traced=reply.traced is not False,
    )
