"""Taking back a delayed message before it is due, by the handle that its receipt has.

A handle is text that says where the message is: `v1 topic broker deliver-time unique-id`, in
base64. Only brokers of 5.3.2 and up know of it, and only if they are told to
(`recallMessageEnable`).

RocketMQ: RecallMessageHandle.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Final, NamedTuple

from gantrymq.errors import ClusterTooOld, InvalidInput, NoAddress, NoPermission, NotSupported
from gantrymq.flows.sending import Sender
from gantrymq.protocol.sending import RecallMessage
from gantrymq.runtime import Runtime

_VERSION: Final = "v1"


class Handle(NamedTuple):
    """What a recall handle says."""

    topic: str
    broker: str
    deliver_ms: int
    message_id: str


def parse_handle(text: str) -> Handle:
    """Read a recall handle."""
    try:
        padded = text + "=" * (-len(text) % 4)
        version, topic, broker, due, message_id = urlsafe_b64decode(padded).decode().split(" ")
        if version == _VERSION:
            return Handle(topic, broker, int(due), message_id)
    except ValueError:  # of every step: base64, UTF-8, the number of parts, the number
        pass
    raise InvalidInput(
        f"{text!r:.80} is no recall handle; it is the recall_handle of a delayed message's receipt"
    )


async def recall(runtime: Runtime, sender: Sender, handle: str, *, timeout: float) -> str:
    """Take the message back; its unique id."""
    what = parse_handle(handle)
    rules = sender.drafting.rules
    address = sender.places.address_to_send(what.broker)
    if address is None:
        await sender.places.queues_to_publish(what.topic, timeout=timeout)
        address = sender.places.address_to_send(what.broker)
    if address is None:
        raise NoAddress(f"no route has an address of broker {what.broker}, which holds the message")
    request = RecallMessage(group=rules.group, topic=what.topic, handle=handle, broker=what.broker)
    try:
        return (await runtime.call(address, request, timeout=timeout)).message_id
    except NoPermission as refusal:
        raise NoPermission.because(
            f"broker {what.broker} refuses to take the message back: {refusal.remark}; brokers do"
            f" it with recallMessageEnable=true, for access keys that may send there"
        ) from refusal
    except NotSupported as refusal:
        raise ClusterTooOld(
            f"broker {what.broker} cannot take messages back; RocketMQ can from 5.3.2 on"
        ) from refusal
