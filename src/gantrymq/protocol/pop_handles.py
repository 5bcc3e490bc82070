"""What stands for a popped message until it is acknowledged, and the texts it is made from.

A message that was popped carries its handle in the property POP_CK: eight items, blank-separated.
Brokers put it there only for messages from retry topics; for all others the client makes it from
the infos of the answer:

| text | entries, joined by `;` |
|---|---|
| start offsets | `retry queueId startOffset` |
| offsets | `retry queueId offset,offset,…` |
| order counts | `retry queueId count` and `retry qo<queueId>%<offset> count` |

`retry` says which topic is meant: 0 the asked one, 1 its retry topic of the older form, 2 of the
newer form. A message's own offset in the handle is the entry of the offsets at the same place that
the message has among those popped from its queue.

RocketMQ: ExtraInfoUtil, ReceiptHandle.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.protocol.scalars import Unreadable, int32, int64

Source: TypeAlias = tuple[int, int]
"""Which kind of topic, and which queue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PopHandle:
    """A popped message's POP_CK."""

    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry: int
    broker: str
    queue_id: int
    offset: int

    def __str__(self) -> str:
        if not self.broker or " " in self.broker:
            raise LocalProtocolError(f"a handle cannot hold the broker name {self.broker!r}")
        return (
            f"{self.start_offset} {self.pop_ms} {self.invisible_ms} {self.revive_queue_id} "
            f"{self.retry} {self.broker} {self.queue_id} {self.offset}"
        )

    @classmethod
    def read(cls, text: str) -> PopHandle:
        """The handle that `text` is; `RemoteProtocolError` if it is none."""
        items = text.split(" ")
        if len(items) < 8 or not items[5]:
            raise RemoteProtocolError(f"a handle of {len(items)} items; it has 8: {text!r:.200}")
        start, popped, invisible, revive, retry, broker, queue_id, offset = items[:8]
        try:
            return cls(
                start_offset=int64(start),
                pop_ms=int64(popped),
                invisible_ms=int64(invisible),
                revive_queue_id=int32(revive),
                retry=int32(retry),
                broker=broker,
                queue_id=int32(queue_id),
                offset=int64(offset),
            )
        except Unreadable as error:
            raise RemoteProtocolError(f"handle {text!r:.200}: an item {error}") from None


def _entries(text: str | None, what: str) -> Iterator[tuple[int, str, str]]:
    """Kind, key and value of each entry."""
    for entry in filter(None, (text or "").split(";")):
        items = entry.split(" ")
        if len(items) != 3 or items[0] not in ("0", "1", "2"):
            raise RemoteProtocolError(f"an entry of the {what} cannot be read: {entry!r:.200}")
        yield int(items[0]), items[1], items[2]


def _number(text: str, what: str) -> int:
    try:
        return int64(text)
    except Unreadable as error:
        raise RemoteProtocolError(f"an entry of the {what} {error}") from None


def read_start_offsets(text: str | None) -> dict[Source, int]:
    """The offset at which a pop began, by source."""
    what = "start offsets"
    entries = _entries(text, what)
    return {(kind, _number(key, what)): _number(value, what) for kind, key, value in entries}


def write_start_offsets(offsets: Mapping[Source, int]) -> str:
    """The text of start offsets."""
    return ";".join(f"{kind} {queue} {offset}" for (kind, queue), offset in offsets.items())


def read_offsets(text: str | None) -> dict[Source, list[int]]:
    """The offsets that a pop took, by source."""
    what = "offsets"
    found: dict[Source, list[int]] = {}
    for kind, key, value in _entries(text, what):
        offsets = [_number(item, what) for item in value.split(",")]
        found.setdefault((kind, _number(key, what)), []).extend(offsets)
    return found


def write_offsets(offsets: Mapping[Source, list[int]]) -> str:
    """The text of offsets."""
    return ";".join(
        f"{kind} {queue} {','.join(map(str, taken))}" for (kind, queue), taken in offsets.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCounts:
    """How often messages of an orderly pop were consumed already."""

    by_queue: Mapping[Source, int]
    by_offset: Mapping[tuple[int, int, int], int]

    def of(self, source: Source, offset: int) -> int | None:
        """The count of one message, or of its queue, or None."""
        return self.by_offset.get((*source, offset), self.by_queue.get(source))

    def __str__(self) -> str:
        single = (f"{k} qo{q}%{offset} {n}" for (k, q, offset), n in self.by_offset.items())
        return ";".join([*single, *(f"{k} {q} {n}" for (k, q), n in self.by_queue.items())])


def read_order_counts(text: str | None) -> OrderCounts:
    """The order counts that `text` is."""
    what = "order counts"
    by_queue: dict[Source, int] = {}
    by_offset: dict[tuple[int, int, int], int] = {}
    for kind, key, value in _entries(text, what):
        count = _number(value, what)
        if key.startswith("qo"):
            queue, _, offset = key[2:].partition("%")
            by_offset[kind, _number(queue, what), _number(offset, what)] = count
        else:
            by_queue[kind, _number(key, what)] = count
    return OrderCounts(by_queue=by_queue, by_offset=by_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHandle:
    """What a timed message can be taken back with. RocketMQ: RecallMessageHandle.HandleV1."""

    topic: str
    broker: str
    deliver_ms: int
    message_id: str

    def __str__(self) -> str:
        items = ("v1", self.topic, self.broker, str(self.deliver_ms), self.message_id)
        if any(not item or " " in item for item in items):
            raise LocalProtocolError(f"a recall handle cannot hold empty items or blanks: {items}")
        return urlsafe_b64encode(" ".join(items).encode()).decode()

    @classmethod
    def read(cls, text: str) -> RecallHandle:
        """The handle that `text` is; `RemoteProtocolError` if it is none."""
        try:
            items = urlsafe_b64decode(text.encode("ascii")).decode().split(" ")
            version, topic, broker, deliver, message_id = items
            if version != "v1":
                raise Unreadable(f"version {version!r:.20} is not known")
            return cls(topic=topic, broker=broker, deliver_ms=int64(deliver), message_id=message_id)
        except (Base64Error, ValueError) as error:
            raise RemoteProtocolError(f"recall handle {text!r:.200}: {error}") from None
