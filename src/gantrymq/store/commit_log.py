"""The commit log: every message of the broker, one record after the other (see `wire.record`).

A record lies within one file. Where the next one, and 8 bytes more, do not fit into what is left of
a file, a **blank** is written there, of which only the first 8 bytes count, and the record goes to
the next file:

```
 0 what is left of the file i32 | 4 magic -875286124 i32
```

Bytes after the end of the log are zeros. That is what makes its end recognizable: a size of 0 is no
record. It also tells a torn record from a whole one where its checksum cannot, since that covers
the body only: a part that never reached the disk is zeros, so a record that ends in a zero, or has
16 of them in a row in its topic and properties, counts as torn.

RocketMQ: CommitLog.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import Final

from gantrymq.errors import CorruptRecord, RemoteProtocolError, StoreError, StoreFull
from gantrymq.store.segment import Segment, Segments
from gantrymq.wire import record
from gantrymq.wire.command import Buffer
from gantrymq.wire.flags import BORN_HOST_IPV6, IPV6_BITS
from gantrymq.wire.record import (
    LEAST_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MAX_TOPIC,
    MAX_TOPIC_V1,
    StoredMessage,
)

BLANK_SIZE: Final = 8
_AHEAD: Final = 32 * 1024

_BLANK: Final = Struct(">ii")
_STORE_TIME: Final = Struct(">q")
_MANY_ZEROS: Final = bytes(16)
_PLACE: Final = Struct(">q")
_PLACE_AT: Final = 28
_HEAD: Final = Struct(">iii16xqi")
"""Size, magic, body CRC, log offset, system flag."""
_BODY_SIZE: Final = Struct(">i")
_BODY_AT: Final = 88
_TOPIC_WIDTHS: Final = {MAGIC_V1: 1, MAGIC_V2: 2}


class RecordTooLarge(StoreError):
    """A message is larger than the store is set to take."""


@dataclass(slots=True, kw_only=True)
class Damage:
    """A stretch of the log that holds no readable record."""

    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"{self.end - self.start} bytes of the log at {self.start} are lost: {self.reason}"


class CommitLog:
    """The log, open for appending by one thread and for reading by any."""

    __slots__ = ("_base", "_file", "_write", "end", "limit", "segments")

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.end = segments.end
        """The offset that the next record gets, unless it does not fit there."""
        self._base = 0
        self.limit = 0
        """Where a record with `BLANK_SIZE` bytes after it has to end at the latest."""
        if segments.files:
            self._take(segments.files[-1])

    @property
    def start(self) -> int:
        """The offset of the oldest byte that is kept."""
        return self.segments.start if self.segments.files else self.end

    def put(self, data: Buffer) -> None:
        """Write a record, or several that stay together, at `end`; look at `limit` before."""
        end = self.end
        try:
            self._write(end - self._base, data)
        except OSError as error:
            raise self._full(error) from error
        self.end = end + len(data)

    def get_ready(self) -> None:
        """Have room for what is written next; only a saving of time."""
        if self.end < self.limit:
            with suppress(OSError):  # no room: `put` will say so
                self._file.set_aside(min(self.end + _AHEAD, self.limit) - self._base)

    def make_room(self, ahead: int) -> None:
        """The same on another thread, for so many bytes: a file system may take its time for it."""
        files = self.segments.files
        if files:
            last = files[-1]
            with suppress(OSError):
                last.file.make_room(min(self.end + ahead, last.end) - last.base)

    def roll(self) -> None:
        """Go on in a new file, with a blank for what is left of the old one."""
        try:
            left = self.limit - self.end
            if left >= BLANK_SIZE:
                self._write(self.end - self._base, _BLANK.pack(left, MAGIC_BLANK))
            made = self.segments.add(self.end)
        except OSError as error:
            raise self._full(error) from error
        self._take(made)
        self.end = made.base

    def cut(self, end: int) -> None:
        """Make `end` the end of the log; what follows it is gone."""
        self.segments.cut(end)
        self.end = end
        self.limit = self._base = end
        if self.segments.files and self.segments.end > end:
            self._take(self.segments.files[-1])

    def view(self, offset: int, size: int) -> memoryview | None:
        """These bytes where they are mapped, or None if they are not within one file of the log."""
        segment = self.segments.find(offset)
        if segment is None or size < 0 or offset + size > min(segment.end, self.end):
            return None
        at = offset - segment.base
        return segment.view[at : at + size]

    def store_time(self, offset: int) -> int:
        """When the record at `offset` was stored, in ms; -1 if there is none."""
        head = self.view(offset, LEAST_SIZE)
        if head is None:
            return -1
        at = 68 if head[39] & BORN_HOST_IPV6 else 56
        time: int = _STORE_TIME.unpack_from(head, at)[0]
        return time

    def message(self, offset: int) -> StoredMessage:
        """The record at `offset`, whole and unharmed, or `CorruptRecord`."""
        segment = self.segments.find(offset)
        if segment is None or offset >= self.end:
            raise CorruptRecord(
                f"the log has no byte {offset}: it is from {self.start} to {self.end}"
            )
        return read_whole(segment, offset)

    def blank_at(self, offset: int) -> bool:
        """Whether what is left of the file from `offset` on is a blank, or too little for one."""
        segment = self.segments.find(offset)
        if segment is None:
            return False
        left = segment.end - offset
        if left < BLANK_SIZE:
            return True
        return _BLANK.unpack_from(segment.view, offset - segment.base) == (left, MAGIC_BLANK)

    def next_file(self, offset: int) -> int:
        """Where the file after the one that has `offset` begins."""
        return offset - offset % self.segments.size + self.segments.size

    def _take(self, segment: Segment) -> None:
        self._base, self.limit = segment.base, segment.end
        self._file = segment.file
        self._write = segment.file.write

    def _full(self, error: OSError) -> StoreFull:
        return StoreFull(
            f"no room for the commit log in {self.segments.directory}, at offset {self.end}:"
            f" {error.strerror or error}"
        )


def read_whole(segment: Segment, offset: int) -> StoredMessage:
    """The record at `offset` of the log, if every check that there is holds for it."""
    at = offset - segment.base
    if len(segment.view) - at < LEAST_SIZE:
        raise CorruptRecord(f"log offset {offset}: no record fits before the end of the file")
    # before the rest, so that no wrong size makes us copy the rest of the file
    place: int = _PLACE.unpack_from(segment.view, at + _PLACE_AT)[0]
    if place != offset:
        raise CorruptRecord(f"log offset {offset}: what is there says that it belongs at {place}")
    try:
        found = record.decode(segment.view, at)
        found.check_crc()
    except RemoteProtocolError as error:
        raise CorruptRecord(f"log offset {offset}: {error}") from error
    if _torn(found):
        raise CorruptRecord(f"log offset {offset}: a part of {found!r} was never written")
    return found


def check_body(segment: Segment, offset: int, size: int) -> str | None:
    """What is wrong with the record at `offset`, of which a queue says it has `size` bytes.

    Less than `read_whole` looks at, and without a copy: this is done for every old message read.
    """
    view, at = segment.view, offset - segment.base
    said, magic, body_crc, place, sys_flag = _HEAD.unpack_from(view, at)
    start = at + _BODY_AT + 12 * (sys_flag & IPV6_BITS).bit_count()
    body_size: int = _BODY_SIZE.unpack_from(view, start - 4)[0]
    end, topic_at = at + size, start + body_size
    width = _TOPIC_WIDTHS.get(magic, 0)
    if said != size or place != offset or not width or not 0 <= body_size <= end - start - width:
        return f"its size {said}, magic {magic}, place {place} or body size {body_size} is wrong"
    topic_size = int.from_bytes(view[topic_at : topic_at + width], "big")
    raw_at = topic_at + width + topic_size + 2
    if raw_at > end or raw_at + int.from_bytes(view[raw_at - 2 : raw_at], "big") != end:
        return "its topic and properties do not end where it ends"  # and nobody could read it
    if topic_size > (MAX_TOPIC_V1 if width == 1 else MAX_TOPIC):
        return f"its topic of {topic_size} bytes is too long"
    computed = record.crc(view[start:topic_at])
    return None if computed == body_crc else f"its body's CRC is {computed:#x}, not {body_crc:#x}"


def _torn(message: StoredMessage) -> bool:
    rest = message.property_bytes or message.topic.encode()
    return rest[-1:] == b"\0" or _MANY_ZEROS in message.property_bytes or "\0\0" in message.topic
