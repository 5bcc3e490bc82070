"""What the properties of a timed message become when it is due, in the common case.

`Timers` writes where a message is meant to go at the end of its properties, so that is cut off
there. Properties that are more than that (light queues, those of a message that was stored anew,
those that another broker wrote) are taken apart by `Timers` itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from gantrymq.store import light
from gantrymq.wire import properties
from gantrymq.wire.properties import NAME_END, VALUE_END

_END: Final = VALUE_END.encode()
_END_BYTE: Final = _END[0]
_TOPIC: Final = f"{properties.REAL_TOPIC}{NAME_END}".encode()
_QUEUE: Final = f"{properties.REAL_QUEUE_ID}{NAME_END}".encode()
_UNIQUE: Final = f"{properties.UNIQUE_KEY}{NAME_END}".encode()
_UNIQUE_SIZE: Final = len(_UNIQUE)
_WAIT: Final = f"{properties.WAIT}{NAME_END}".encode()
_WAITS: Final = _WAIT + b"true" + _END
_WAITS_SIZE: Final = len(_WAITS)
_WAITS_NOT: Final = _WAIT + b"false" + _END
_ENQUEUED: Final = f"{properties.TIMER_ENQUEUE_MS}{NAME_END}".encode()
_DEQUEUED: Final = f"{VALUE_END}{properties.TIMER_DEQUEUE_MS}{NAME_END}".encode()
_KEYS: Final = f"{properties.KEYS}{NAME_END}".encode()
_REAL: Final = b"REAL_"
_QUEUED: Final = b"QUEUE_MS"
"""Parts of names that mean that there is more to do."""


class DueMessage(NamedTuple):
    """Where a message goes, and what it has there."""

    topic: str
    queue_id: int
    raw: bytes
    unique: str
    keys: str


def due_message(raw: bytes, stored_ms: int, now_ms: int) -> DueMessage | None:
    """What comes of a message with these properties that was stored then."""
    at = raw.rfind(_TOPIC)
    place = _place(raw[at:]) if at > 0 and raw[at - 1] == _END_BYTE else None
    if place is None:
        return None
    head = raw[:at]
    start = head.find(_UNIQUE)
    end = head.find(_END, start)
    unique = head[start + _UNIQUE_SIZE : end]
    if (
        start < 0 or (start and head[start - 1] != _END_BYTE)
        or not unique.isalnum() or head.find(_UNIQUE, end) >= 0
        or _REAL in head or _QUEUED in head or light.MARK in head
    ):  # fmt: skip
        return None
    keys = properties.find(head, properties.KEYS) or "" if _KEYS in head else ""
    waits = head.find(_WAITS)
    if waits < 0:
        if _WAIT in head:
            return None
        first, rest = head, b""
    elif waits and head[waits - 1] != _END_BYTE:
        return None
    else:
        first, rest = head[:waits], head[waits + _WAITS_SIZE :]
    times = str(stored_ms).encode(), _DEQUEUED, str(now_ms).encode()
    made = b"".join((first, _WAITS_NOT, rest, _ENQUEUED, *times, _END))
    if len(made) > properties.MAX_SIZE:
        return None
    found = *place, made, unique.decode("ascii"), keys
    return tuple.__new__(DueMessage, found)  # what `DueMessage(…)` does, in half the time


@lru_cache(maxsize=4096)
def _place(tail: bytes) -> tuple[str, int] | None:
    """Topic and queue, where nothing else is at the end."""
    topic, queue, *more = tail.removeprefix(_TOPIC).split(_END)
    number = queue.removeprefix(_QUEUE)
    if more != [b""] or number == queue or not number.isdigit() or not topic.isascii():
        return None
    return topic.decode(), int(number)
