"""Message traces: what producers and consumers report about single messages, as text.

A trace is itself a message; its body is records one after the other. The fields of a record are
joined by 0x01, the first one says what it is, and 0x02 ends it. Null is the text `null`.

Older clients write fewer fields at the end. The one exception to "more fields come last" is `Pub`:
a record of 13 fields ends with success, and one of 14 has the offset id before it.

RocketMQ: TraceDataEncoder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, TypeAlias, get_type_hints

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.protocol.scalars import Unreadable, int64
from gantrymq.wire.open_enum import OpenIntEnum

_FIELD: Final = "\x01"
_RECORD: Final = "\x02"
_NULL: Final = "null"


class TracedType(OpenIntEnum):
    """What kind of message it was. RocketMQ: MessageType, by ordinal."""

    NORMAL = 0
    HALF = 1
    COMMITTED = 2
    DELAYED = 3
    ORDERED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A message was sent, or failed to be."""

    NAME: ClassVar[str] = "Pub"

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    message_id: str | None
    tags: str | None
    keys: str | None
    store_host: str | None
    body_length: int
    cost_ms: int
    type: TracedType
    offset_id: str | None = None
    success: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeBegun:
    """A message is about to be consumed."""

    NAME: ClassVar[str] = "SubBefore"

    time_ms: int
    region: str | None
    group: str | None
    request_id: str | None
    message_id: str | None
    retries: int
    keys: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeEnded:
    """A message was consumed, or failed to be. `request_id` is that of the begin."""

    NAME: ClassVar[str] = "SubAfter"

    request_id: str | None
    message_id: str | None
    cost_ms: int
    success: bool
    keys: str | None = None
    context_code: int = 0
    time_ms: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """A transaction was committed or rolled back."""

    NAME: ClassVar[str] = "EndTransaction"

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    message_id: str | None
    tags: str | None
    keys: str | None
    store_host: str | None
    type: TracedType
    transaction_id: str | None
    state: str | None
    from_check: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """A timed message was taken back."""

    NAME: ClassVar[str] = "Recall"

    time_ms: int
    region: str | None
    group: str | None
    topic: str | None
    message_id: str | None
    success: bool


TraceRecord: TypeAlias = Sent | ConsumeBegun | ConsumeEnded | TransactionEnded | Recalled

_RECORDS: Final[dict[str, type[TraceRecord]]] = {
    record.NAME: record for record in (Sent, ConsumeBegun, ConsumeEnded, TransactionEnded, Recalled)
}


def _fields(record: type[TraceRecord]) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(record)
    return tuple((f.name, hints[f.name]) for f in fields(record))


_FIELDS: Final = {name: _fields(record) for name, record in _RECORDS.items()}


def write_records(records: Iterable[TraceRecord]) -> str:
    """The body of a trace message."""
    return "".join(map(_write, records))


def _write(record: TraceRecord) -> str:
    values = (getattr(record, name) for name, _ in _FIELDS[record.NAME])
    texts = [record.NAME, *map(_text, values)]
    if any(_FIELD in text or _RECORD in text for text in texts):
        raise LocalProtocolError(f"a trace cannot hold 0x01 or 0x02: {record!r:.300}")
    return _FIELD.join(texts) + _RECORD


def _text(value: str | int | bool | None) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(int(value))


def read_records(text: str) -> Iterator[TraceRecord]:
    """The records of a trace message's body; kinds that nobody here knows are passed over."""
    for line in filter(None, text.split(_RECORD)):
        name, *values = line.split(_FIELD)
        record = _RECORDS.get(name)
        if record is not None:
            yield _read(record, values)


def _read(record: type[TraceRecord], texts: list[str]) -> TraceRecord:
    if record is Sent and len(texts) == len(_FIELDS[Sent.NAME]) - 1:
        texts.insert(-1, _NULL)
    try:
        given = zip(_FIELDS[record.NAME], texts, strict=False)  # old clients have fewer, new more
        return record(**{name: _value(hint, text) for (name, hint), text in given})
    except (Unreadable, TypeError) as error:
        raise RemoteProtocolError(f"trace record {record.NAME}, {texts!r:.300}: {error}") from None


def _value(hint: Any, text: str) -> Any:
    if hint is bool:
        return text.lower() == "true"
    if hint is int:
        return int64(text)
    if hint is TracedType:
        return TracedType(int64(text))
    return None if text == _NULL else text
