"""The values that all parts and all users share: messages, and the queues they live in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class MessageQueue(NamedTuple):
    """One queue of a topic at one broker; sorts as RocketMQ sorts, by topic, broker, queue id.

    RocketMQ: MessageQueue.
    """

    topic: str
    broker: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.broker}:{self.queue_id}]"


@dataclass(slots=True, kw_only=True)
class Message:
    """What a producer sends: a body for a topic, with a tag, keys and properties of the user's own.

    RocketMQ: Message.
    """

    topic: str
    body: bytes
    tag: str | None = None
    keys: tuple[str, ...] = ()
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    wait_stored: bool = True
    delay_level: int = 0
