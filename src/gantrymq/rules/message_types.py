"""Which messages a topic is for: normal, ordered, delayed, transactional, by priority, or any.

What a message is shows in its properties; the first that holds counts:

| it has | it is |
|---|---|
| `TRAN_MSG` of true | TRANSACTION |
| `DELAY`, or a `TIMER_…` that says when | DELAY |
| `__SHARDINGKEY` | FIFO |
| `_SYS_MSG_PRIORITY_` | PRIORITY |
| `__LITE_TOPIC` | LITE |
| none of these | NORMAL |

RocketMQ's remoting clients choose the queue of an ordered message and write nothing about it into
the message. So a FIFO topic takes what looks NORMAL from them, and from nobody else.

RocketMQ: TopicMessageType, DefaultTopicMessageTypeValidator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gantrymq.wire import properties as names

NORMAL: Final = "NORMAL"
FIFO: Final = "FIFO"
DELAY: Final = "DELAY"
TRANSACTION: Final = "TRANSACTION"
PRIORITY: Final = "PRIORITY"
LITE: Final = "LITE"

ANY: Final = frozenset({"", "UNSPECIFIED", "MIXED"})
"""What topics are that take everything; one that was never given a type is so as well."""

_DELAYED: Final = (
    names.DELAY,
    names.TIMER_DELIVER_MS,
    names.TIMER_DELAY_SECONDS,
    names.TIMER_DELAY_MS,
)
_FIXES: Final = {
    NORMAL: "send it without an order key, a delay, a priority or a transaction",
    FIFO: "send it with order_key=…, or in another client with a sharding key",
    DELAY: "send it with delay=…, deliver_at=… or delay_level=…",
    TRANSACTION: "send it with producer.transaction(…)",
    PRIORITY: "send it with priority=…",
    LITE: "send it with the name of a lite topic",
}
"""How a message is sent that a topic of a type takes."""


def type_of(find: Callable[[str], str | None]) -> str:
    """What a message is whose properties are found so."""
    if (find(names.HALF_MESSAGE) or "").lower() == "true":
        return TRANSACTION
    if any(find(name) for name in _DELAYED):
        return DELAY
    if find(names.SHARDING_KEY):
        return FIFO
    if find(names.PRIORITY):
        return PRIORITY
    return LITE if find(names.LITE_TOPIC) else NORMAL


def mismatch(topic: str, wanted: str, given: str, *, says_order: bool = True) -> str | None:
    """Why a topic for `wanted` does not take a message that is `given`; None if it does.

    `says_order` is whether the sender would have said so if the message were ordered.
    """
    if wanted in ANY or wanted == given:
        return None
    if wanted == FIFO and given == NORMAL and not says_order:
        return None
    fix = _FIXES.get(wanted, "")
    return (
        f"topic {topic} is for messages of type {wanted}, and this one is of type {given}:"
        f" {fix}, or to another topic; or have the topic take {given} as well, by giving it"
        f" message.type {given} or MIXED"
    )
