"""The quick way for the commonest message: one that asks for nothing but to be stored.

Of its properties there are only the unique key, tags, and others that mean nothing to a broker. So
all that has to be found out about them can be remembered for the next message that has the same
ones: only the unique key differs, and that is cut out for the comparison. What is not as common as
that goes the ordinary way (`sending`), and what comes out is the same, to the byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from gantrymq.broker.hosts import hosts_of
from gantrymq.protocol.enums import TopicFilterType
from gantrymq.rules.filtering import tag_code
from gantrymq.store import light
from gantrymq.wire import properties
from gantrymq.wire.plain_record import MAX_PROPERTIES, ODD_FLAGS
from gantrymq.wire.properties import NAME_END, VALUE_END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.protocol.sending import SendMessage
    from gantrymq.protocol.topics import TopicSettings
    from gantrymq.store.store import Appended
    from gantrymq.wire.batch import BatchMessage

_UNIQUE: Final = f"{properties.UNIQUE_KEY}{NAME_END}".encode()
_UNIQUE_SIZE: Final = len(_UNIQUE)
_END: Final = VALUE_END.encode()
_MOST_SHAPES: Final = 4096
_ROOM: Final = MAX_PROPERTIES - 1024
"""What properties may take, so that the broker's own fit in any case."""
_ODD: Final = 1 << 64
"""In place of a tags code: properties that have to be looked at."""
_UNKNOWN: Final = _ODD + 1
_NAMES: Final = (
    properties.KEYS,
    properties.HALF_MESSAGE,
    properties.MSG_REGION,
    properties.TRACE_ON,
    properties.CLUSTER,
    properties.POP_HANDLE,
    properties.PRIORITY,
)
_MEANINGFUL: Final = (
    *[f"{name}{NAME_END}".encode() for name in _NAMES],
    b"DEL",
    b"TIMER_",
    light.MARK,
)
"""What says that properties are more than plain; the last are parts of names of several."""


About: TypeAlias = tuple[bytes, int, str]
"""What there is to know of plain properties: as they are stored, tags code, unique key."""


class PlainProperties:
    """Tells plain properties from others."""

    __slots__ = ("_codes", "suffix")

    def __init__(self, suffix: str) -> None:
        """`suffix` are the broker's own, which come after those of a message."""
        self.suffix = suffix.encode()
        self._codes: dict[bytes, int] = {}

    def read(self, raw: bytes, suffix: bytes = b"") -> About | None:
        """What there is to know of `raw`, with `suffix` after it; None if that is not plain."""
        start = raw.find(_UNIQUE) + _UNIQUE_SIZE
        end = raw.find(_END, start)
        code = self._codes.get(raw[:start] + raw[end:], _UNKNOWN)
        if code >= _ODD:
            if code == _ODD or start < _UNIQUE_SIZE or end < 0:
                return None
            code = self._learn(raw[:start] + raw[end:])
            if code == _ODD:
                return None
        unique = raw[start:end]
        if not unique.isalnum() or len(raw) > _ROOM:
            return None
        return raw + suffix, code, unique.decode("ascii")

    def _learn(self, rest: bytes) -> int:
        if len(self._codes) >= _MOST_SHAPES:
            self._codes.clear()
        code = self._codes[rest] = _code(rest)
        return code


def _code(rest: bytes) -> int:
    """The tags code of such properties, of which the unique key was taken out; or `_ODD`."""
    at = rest.find(_UNIQUE)
    begins = at == 0 or rest[at - 1 : at] == _END
    if not begins or rest.count(_UNIQUE) > 1 or rest[-1:] != _END:
        return _ODD
    if any(name in rest for name in _MEANINGFUL):
        return _ODD
    return tag_code(properties.find(rest, properties.TAGS) or "")


def put_plain(
    request: SendMessage, settings: TopicSettings, broker: Broker, peer: Peer
) -> tuple[Appended, str] | None:
    """Store a message if it is plain; that, and its unique key."""
    text, queue_id, body = request.properties, request.queue_id, request.body
    if not text or queue_id < 0 or not is_plain(request, settings):
        return None
    known = broker.marks.plain
    about = known.read(text.encode("utf-8", "replace"), known.suffix)
    if about is None:
        return None
    message = body if isinstance(body, bytes) else bytes(body), about[0], request.flag
    appended = broker.storing.put_plain(
        request.topic, queue_id, (message,), (about,), request.flags, request.born_ms,
        hosts_of(peer, broker.advertised),
    )  # fmt: skip
    return None if appended is None else (appended, about[2])


def put_plain_batch(
    request: SendMessage,
    settings: TopicSettings,
    broker: Broker,
    peer: Peer,
    queue_id: int,
    messages: Sequence[BatchMessage],
) -> Appended | None:
    """Store the messages of a batch if all of them are plain."""
    if not is_plain(request, settings):
        return None
    read, about = broker.marks.plain.read, []
    for _, raw, _ in messages:
        one = read(raw)
        if one is None:
            return None
        about.append(one)
    hosts = hosts_of(peer, broker.advertised)
    return broker.storing.put_plain(
        request.topic, queue_id, messages, about, request.flags, request.born_ms, hosts
    )


def is_plain(request: SendMessage, settings: TopicSettings) -> bool:
    """Whether the request asks for nothing that takes more than storing."""
    return not (
        request.flags & ODD_FLAGS
        or request.reconsume_times
        or settings.attributes
        or settings.filter_type is TopicFilterType.MULTI_TAG
        or request.topic[:1] == "%"
        or request.topic[:8] == "rmq_sys_"
    )
