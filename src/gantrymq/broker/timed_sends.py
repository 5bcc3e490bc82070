"""The quick way for a message that asks for nothing but to be delivered at a time.

But for that it is plain (see `plain_sends`), and so it is what it waits as: the time is cut out of
its properties to find that out. Whatever else is asked for goes the ordinary way (`sending` and
`Timers.redirect`), refusals with it, and what comes out is the same, to the byte.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gantrymq.broker.hosts import hosts_of
from gantrymq.broker.plain_sends import is_plain
from gantrymq.protocol.names import TIMER_TOPIC
from gantrymq.protocol.recall_handles import RecallHandle
from gantrymq.rules.timing import SECOND_MS, due_time, out_time
from gantrymq.wire import properties
from gantrymq.wire.properties import NAME_END, VALUE_END

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.protocol.sending import SendMessage
    from gantrymq.protocol.topics import TopicSettings
    from gantrymq.store.store import Appended

_MARK: Final = "TIMER_DE"
"""How the names of all three properties begin that say when."""
_MARK_BYTES: Final = _MARK.encode()
_NAME_END: Final = NAME_END.encode()
_END: Final = VALUE_END.encode()
_UNITS: Final = {
    properties.TIMER_DELAY_SECONDS.encode(): SECOND_MS,
    properties.TIMER_DELAY_MS.encode(): 1,
    properties.TIMER_DELIVER_MS.encode(): 0,
}
"""Milliseconds of what is counted from now on; 0 for a time as such."""
_DIGITS: Final = 15
_OUT: Final = f"{properties.TIMER_OUT_MS}{NAME_END}".encode()


def put_timed(
    request: SendMessage, settings: TopicSettings, broker: Broker, peer: Peer
) -> tuple[Appended, str, str] | None:
    """Have a message wait; that, its unique key, and with what it can be taken back."""
    text, queue_id, body = request.properties, request.queue_id, request.body
    if not text or _MARK not in text or queue_id < 0 or not is_plain(request, settings):
        return None
    raw = text.encode("utf-8", "replace")
    at = raw.find(_MARK_BYTES)
    end = raw.find(_END, at)
    name, _, value = raw[at:end].partition(_NAME_END)
    unit = _UNITS.get(name)
    if end < 0 or unit is None or not value.isdigit() or len(value) > _DIGITS:
        return None
    about = broker.marks.plain.read(raw[:at] + raw[end + 1 :])
    if about is None or (at and raw[at - 1 : at] != _END):
        return None
    now_ms, limits = broker.clock_ms(), broker.timers.settings
    due_ms = now_ms + int(value) * unit if unit else int(value)
    if not limits.enabled or not 0 < due_ms - now_ms <= limits.longest * SECOND_MS:
        return None
    out_ms, (_, code, unique) = out_time(due_ms), about
    waits = b"".join(
        (
            raw,
            broker.marks.plain.suffix,
            _OUT,
            str(out_ms).encode(),
            _place(request.topic, queue_id),
        )
    )
    if len(waits) > properties.MAX_SIZE:
        return None
    message = body if isinstance(body, bytes) else bytes(body), waits, request.flag
    appended = broker.storing.put_plain(
        TIMER_TOPIC, 0, (message,), ((waits, code, unique),), request.flags, request.born_ms,
        hosts_of(peer, broker.advertised),
    )  # fmt: skip
    if appended is None:
        return None
    identity = broker.config.identity
    handle = RecallHandle(request.topic, identity.name, due_time(out_ms), unique)
    return appended, unique, str(handle)


@lru_cache(maxsize=4096)
def _place(topic: str, queue_id: int) -> bytes:
    """Where the message is meant to go, after the entry before it."""
    real = {properties.REAL_TOPIC: topic, properties.REAL_QUEUE_ID: str(queue_id)}
    return _END + properties.encode(real)
