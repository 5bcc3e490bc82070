"""When a producer is asked about a transaction, and who of its group.

Times are those of the clock that never goes back, in tenths of a second: all that is due within one
is looked at together, but no more than a hundred at a time.

RocketMQ: AbstractTransactionalMessageCheckListener, ProducerManager.getAvailableChannel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator
from math import ceil
from typing import TYPE_CHECKING, Final

from gantrymq.protocol.transactions import CheckTransactionState
from gantrymq.wire import properties

if TYPE_CHECKING:
    from gantrymq.broker.clients import Members
    from gantrymq.wire.record import StoredMessage

_AT_ONCE: Final = 100
_PER_SECOND: Final = 10


class Checks:
    """Half messages by the time when they are looked at."""

    __slots__ = ("_broker", "_due", "_now", "_producers", "_ready", "_turns")

    def __init__(self, *, producers: Members, broker: str, now: Callable[[], float]) -> None:
        self._producers = producers
        self._broker = broker
        self._now = now
        self._due: dict[int, list[int]] = {}
        self._ready: deque[int] = deque()
        self._turns: dict[str, int] = {}

    def put(self, offset: int, seconds: float) -> None:
        """Have a half message looked at in so many seconds."""
        self._due.setdefault(ceil((self._now() + seconds) * _PER_SECOND), []).append(offset)

    def take(self, still_open: Container[int]) -> Iterator[int]:
        """What is to be looked at now of what is open; the rest comes with the next call."""
        now = int(self._now() * _PER_SECOND)
        for due in sorted(due for due in self._due if due <= now):
            self._ready.extend(self._due.pop(due))
        left, ready = _AT_ONCE, self._ready
        while ready and left:
            offset = ready.popleft()
            if offset in still_open:
                left -= 1
                yield offset

    def ask(self, half: StoredMessage) -> bool:
        """Ask a member of the producer group, the next in turn; whether there is one."""
        group = half.find(properties.PRODUCER_GROUP) or ""
        members = [peer for peer in self._producers.by_group.get(group, ()) if peer.is_open]
        if not members:
            self._turns.pop(group, None)
            return False
        turn = self._turns[group] = self._turns.get(group, -1) + 1
        members[turn % len(members)].notify(self._question(half))
        return True

    def _question(self, half: StoredMessage) -> CheckTransactionState:
        place = half.topic, half.queue_id
        unique, offset_id = half.find(properties.UNIQUE_KEY), half.offset_id
        half.topic = half.find(properties.REAL_TOPIC) or half.topic
        half.queue_id = number(half.find(properties.REAL_QUEUE_ID)) or 0
        body = half.encode()
        half.topic, half.queue_id = place
        return CheckTransactionState(
            topic=half.topic,
            half_offset=half.queue_offset,
            log_offset=half.log_offset,
            message_id=unique,
            transaction_id=unique,
            offset_id=offset_id,
            broker=self._broker,
            body=body,
        )


def number(text: str | None) -> int | None:
    """What a property says that should be a number."""
    try:
        return int(text) if text else None
    except ValueError:
        return None
