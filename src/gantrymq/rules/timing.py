"""When a message is delivered that asks for a time: which, and when it is looked at before.

A message says when in one of three properties: in so many seconds, in so many milliseconds, at a
time in ms since 1970; of several the first counts. Nothing is delivered before that millisecond.

RocketMQ keeps a message that is due in more than two days in the log by storing it anew every so
often, since the log forgets what is older than three. So does this broker.

RocketMQ: TimerMessageStore, HookUtils.
"""

from __future__ import annotations

from typing import Final

from gantrymq.errors import InvalidInput
from gantrymq.wire import properties

SECOND_MS: Final = 1000

_SPANS: Final = tuple(
    (name, name.encode(), factor)
    for name, factor in ((properties.TIMER_DELAY_SECONDS, 1000), (properties.TIMER_DELAY_MS, 1))
)
_LARGEST: Final = 2**63 - 1


def asked_time(raw: bytes, now_ms: int) -> int | None:
    """The time that stored properties ask for, in ms since 1970; None if they do not."""
    for name, mark, factor in _SPANS:
        if mark in raw and (text := properties.find(raw, name)) is not None:
            return now_ms + factor * _number(name, text)
    name = properties.TIMER_DELIVER_MS
    at = properties.find(raw, name)
    return None if at is None else _number(name, at)


def out_time(due_ms: int) -> int:
    """The property `TIMER_OUT_MS` of a message that is due then.

    RocketMQ rounds it down to a whole second, and delivers at the end of that. Here it is the
    millisecond before, which belongs to the same second; a whole second would be taken for a
    rounded one, so what is due a millisecond after that is due after two.
    """
    return due_ms - 1 if (due_ms - 1) % SECOND_MS else due_ms


def due_time(out_ms: int) -> int:
    """When a message is due that has this property; of one that RocketMQ stored, the latest."""
    return out_ms + 1 if out_ms % SECOND_MS else out_ms + SECOND_MS


def look_time(due_ms: int, now_ms: int, window_ms: int) -> int:
    """When a message is looked at next: when it is due, or before, to be stored anew."""
    left = due_ms - now_ms - window_ms
    if left < 0:
        return due_ms
    return now_ms + (window_ms // 2 if left < window_ms // 3 else window_ms)


def _number(name: str, text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or abs(number) > _LARGEST:
        raise InvalidInput(f"the property {name} is {text!r:.50}, which is no number")
    return number
