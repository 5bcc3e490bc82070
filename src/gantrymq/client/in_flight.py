"""The messages of one queue that were read and are not dealt with yet.

They are dealt with in any order, and a queue has one offset to commit. So that is the smallest
offset still out; with nothing out, it is where reading goes on. What was dealt with beyond it is
consumed again if the consumer dies now, which is what "at least once" means.

The table keeps messages in the order in which they were read, so its first key is the smallest.

RocketMQ: ProcessQueue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gantrymq.model import ReceivedMessage

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much of one queue may be out before no more is read.

    `span` is the distance from the first to the last offset that is out; it does not count where
    messages are handled in order.

    RocketMQ: DefaultMQPushConsumer (pullThresholdForQueue and its neighbours).
    """

    messages: int = 1000
    size: int = 100 * _MIB
    span: int = 2000

    def shared_by(self, queues: int, messages: int | None, size: int | None) -> FlowLimits:
        """The same with limits of a whole topic divided by its queues."""
        return FlowLimits(
            messages=self.messages if messages is None else max(1, messages // max(1, queues)),
            size=self.size if size is None else max(1, size // max(1, queues)),
            span=self.span,
        )


class InFlight:
    """The messages of one queue that are out, and where reading goes on."""

    __slots__ = ("_out", "last", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self._out: dict[int, ReceivedMessage] = {}
        self.next_offset = next_offset
        """Where the next pull reads."""
        self.size = 0
        """Bytes that are out, as stored."""
        self.last = next_offset
        """The highest offset that ever was out."""

    def __len__(self) -> int:
        return len(self._out)

    def __contains__(self, message: ReceivedMessage) -> bool:
        return self._out.get(message.stored.queue_offset) is message

    def messages(self) -> list[ReceivedMessage]:
        """What is out, in order."""
        return list(self._out.values())

    def take(self, messages: Sequence[ReceivedMessage], next_offset: int) -> None:
        """Note what a pull gave, in the order of offsets."""
        out = self._out
        size = 0
        for message in messages:
            stored = message.stored
            out[stored.queue_offset] = message
            size += stored.size
        self.size += size
        if messages:
            self.last = messages[-1].stored.queue_offset
        self.next_offset = next_offset

    def done(self, message: ReceivedMessage) -> bool:
        """That one is dealt with; whether it was still out."""
        stored = message.stored
        if self._out.get(stored.queue_offset) is not message:
            return False
        del self._out[stored.queue_offset]
        self.size -= stored.size
        return True

    @property
    def committable(self) -> int:
        """Everything before this offset is dealt with."""
        return next(iter(self._out), self.next_offset)

    @property
    def span(self) -> int:
        """Offsets from the first message that is out to the last that was."""
        return self.last - next(iter(self._out), self.last)

    def exceeds(self, limits: FlowLimits, *, in_order: bool = False) -> str | None:
        """Why no more should be read for now, or None."""
        if len(self._out) >= limits.messages:
            return f"{len(self._out)} messages are out, and the limit is {limits.messages}"
        if self.size >= limits.size:
            return f"{self.size} bytes are out, and the limit is {limits.size}"
        if not in_order and (span := self.span) >= limits.span:
            return (
                f"the messages that are out span {span} offsets, and the limit is {limits.span}:"
                f" offset {self.committable} has not been dealt with"
            )
        return None
