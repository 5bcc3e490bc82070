"""What the properties of a timed message become when it is due, in the common case.

`Timers` writes where a message is meant to go at the end of its properties, so that is cut off
there. Properties that are more than that (keys, light queues, those of a message that was stored
anew, those that another broker wrote) are taken apart by `Timers` itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gantrymq.store import light
from gantrymq.wire import properties
from gantrymq.wire.moved_record import fits
from gantrymq.wire.properties import NAME_END, VALUE_END

_END: Final = VALUE_END.encode()
_END_BYTE: Final = _END[0]
_TOPIC: Final = f"{properties.REAL_TOPIC}{NAME_END}".encode()
_QUEUE: Final = f"{properties.REAL_QUEUE_ID}{NAME_END}".encode()
_UNIQUE: Final = f"{properties.UNIQUE_KEY}{NAME_END}".encode()
_WAITS: Final = f"{properties.WAIT}{NAME_END}true{VALUE_END}".encode()
_WAIT: Final = f"{properties.WAIT}{NAME_END}".encode()
_WAITS_NOT: Final = f"{properties.WAIT}{NAME_END}false{VALUE_END}".encode()
_TOPIC_SIZE: Final = len(_TOPIC)
_QUEUE_SIZE: Final = len(_QUEUE)
_WAITS_SIZE: Final = len(_WAITS)
_UNIQUE_SIZE: Final = len(_UNIQUE)
_TIMES: Final = (
    f"{properties.TIMER_ENQUEUE_MS}{NAME_END}%d{VALUE_END}"
    f"{properties.TIMER_DEQUEUE_MS}{NAME_END}%d{VALUE_END}"
).encode()
_MORE: Final = (
    f"{properties.KEYS}{NAME_END}".encode(),
    properties.TIMER_ENQUEUE_MS.encode(),
    properties.TIMER_DEQUEUE_MS.encode(),
    _TOPIC,
    _QUEUE,
    light.MARK,
)


class DueMessage(NamedTuple):
    """Where a message goes, and what it has there."""

    topic: str
    queue_id: int
    raw: bytes
    unique: str


def due_message(raw: bytes, stored_ms: int, now_ms: int) -> DueMessage | None:
    """What comes of a message with these properties that was stored then."""
    at = raw.rfind(_TOPIC)
    if at < 1 or raw[at - 1] != _END_BYTE:
        return None
    head, tail = raw[:at], raw[at:].split(_END)
    if len(tail) != 3 or tail[2] or tail[1][:_QUEUE_SIZE] != _QUEUE:
        return None
    topic, queue = tail[0][_TOPIC_SIZE:], tail[1][_QUEUE_SIZE:]
    unique = _unique(head)
    if unique is None or not queue.isdigit() or not topic.isascii():
        return None
    for name in _MORE:
        if name in head:
            return None
    waits = head.find(_WAITS)
    if waits < 0:
        if _WAIT in head:
            return None
        head += _WAITS_NOT
    elif waits == 0 or head[waits - 1] == _END_BYTE:
        head = head[:waits] + _WAITS_NOT + head[waits + _WAITS_SIZE :]
    else:
        return None
    made = head + _TIMES % (stored_ms, now_ms)
    return DueMessage(topic.decode(), int(queue), made, unique) if fits(made) else None


def _unique(raw: bytes) -> str | None:
    """The unique key, if there is one and it is an ordinary one."""
    at = raw.find(_UNIQUE)
    if at < 0 or (at and raw[at - 1] != _END_BYTE):
        return None
    start = at + _UNIQUE_SIZE
    end = raw.find(_END, start)
    unique = raw[start:end]
    if end < 0 or not unique.isalnum() or raw.find(_UNIQUE, end) >= 0:
        return None
    return unique.decode("ascii")
