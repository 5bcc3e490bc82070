"""Stored messages as Arrow record batches, without an object for a message.

What pulls bring is decoded as columns (`gantrymq.wire.columns`): where each part of each message
lies, and its numbers. Arrow then copies those parts together. A column that nobody asked for costs
nothing.

**Copying parts together** is one call for a whole column. The borders of all parts, start and end
in turn, are the offsets of an Arrow array over the whole buffer, in which every second item is a
part and the others are what lies between them; `take` copies the parts out.

**Out of the ordinary**, and found by one look at the flags: bodies that are compressed are opened
one by one; batches that readers have to take apart are written out as plain messages, and all of it
is decoded once more; texts that are not UTF-8 get U+FFFD where they are not.

This module needs pyarrow and numpy, which come with `gantrymq[spark]`; nothing else here does.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gantrymq.errors import ConfigError, RemoteProtocolError
from gantrymq.flows.reading import Piece
from gantrymq.model import MessageQueue
from gantrymq.rules.filtering import EVERYTHING, TagFilter
from gantrymq.wire import properties, record
from gantrymq.wire.arrays import Ints, Mask, Ranges, at_every_byte
from gantrymq.wire.columns import Columns, decode
from gantrymq.wire.command import Buffer
from gantrymq.wire.compression import decompress
from gantrymq.wire.flags import IPV6_BITS, compression_of

TIME: Final = pa.timestamp("us", tz="UTC")
TEXTS: Final = pa.map_(pa.string(), pa.string())

TYPES: Final[Mapping[str, pa.DataType]] = {
    "topic": pa.string(),
    "broker": pa.string(),
    "queue_id": pa.int32(),
    "queue_offset": pa.int64(),
    "message_id": pa.string(),
    "unique_id": pa.string(),
    "keys": pa.string(),
    "tags": pa.string(),
    "body": pa.binary(),
    "properties": TEXTS,
    "born_timestamp": TIME,
    "store_timestamp": TIME,
    "born_host": pa.string(),
    "store_host": pa.string(),
    "reconsume_times": pa.int32(),
    "sys_flag": pa.int32(),
    "flag": pa.int32(),
    "commit_log_offset": pa.int64(),
    "crc_ok": pa.bool_(),
}
"""Every column that there is, with its type."""

BadBody = Literal["raise", "null"]

_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), "S2")
_ID_BYTES: Final = np.dtype([("ip", "V4"), ("port", ">i4"), ("log_offset", ">i8")])


class Hole(NamedTuple):
    """Offsets of a queue that a piece should have had, and has not."""

    number: int
    start: int
    end: int


class Rows:
    """Some pieces of a reading, decoded; its columns are made when they are asked for.

    `queues` are those that the pieces' numbers stand for.
    """

    def __init__(self, pieces: Sequence[Piece], queues: Sequence[MessageQueue]) -> None:
        self._pieces = pieces
        self._queues = queues
        self._columns = decode(joined([piece.body for piece in pieces]))
        self._sizes = [len(piece.body) for piece in pieces]
        if len(self._columns) and self._columns.wrapped.any():
            plain = [_unwrapped(piece) for piece in pieces]
            self._columns = decode(joined(plain))
            self._sizes = [len(body) for body in plain]

    def __len__(self) -> int:
        return len(self._columns)

    @cached_property
    def counts(self) -> Ints:
        """How many messages each piece has."""
        if len(self._pieces) == 1:
            return np.array([len(self)])
        ends = np.cumsum(self._sizes)
        upto = np.searchsorted(self._columns.starts, ends)
        return np.diff(upto, prepend=0)

    def holes(self) -> list[Hole]:
        """What is missing between the first and the last offset of each piece."""
        found = self._columns["queue_offset"]
        pieces = self._pieces
        if len(found) == sum(piece.end - piece.start for piece in pieces):
            wanted = np.concatenate([np.arange(piece.start, piece.end) for piece in pieces])
            if np.array_equal(found, wanted):
                return []
        holes: list[Hole] = []
        at = 0
        for piece, count in zip(pieces, self.counts.tolist(), strict=True):
            if not piece.sparse:
                holes += _holes(piece, found[at : at + count])
            at += count
        return holes

    def batch(
        self,
        names: Sequence[str],
        *,
        tags: TagFilter | None = None,
        bad_body: BadBody = "raise",
        topics: Callable[[str], str] | None = None,
    ) -> pa.RecordBatch:
        """These columns as one batch; with `tags`, of the messages that have one of them."""
        arrays = [self.array(name, bad_body=bad_body, topics=topics) for name in names]
        batch = pa.RecordBatch.from_arrays(
            arrays, schema=pa.schema([(name, TYPES[name]) for name in names])
        )
        if tags is None or tags.expression == EVERYTHING:
            return batch
        mask = self.tagged(tags)
        return batch if mask is None else batch.filter(mask)

    def tagged(self, tags: TagFilter) -> pa.Array | None:
        """Which messages have one of these tags; None where all have."""
        wanted = pa.array(sorted(tags.tags), pa.string())
        mask = pc.is_in(self.array("tags"), value_set=wanted)
        return None if mask.true_count == len(mask) else mask

    def array(
        self,
        name: str,
        *,
        bad_body: BadBody = "raise",
        topics: Callable[[str], str] | None = None,
    ) -> pa.Array:
        """One column."""
        if name == "body":
            return self._bodies(bad_body)
        if name == "topic":
            return self._per_piece(lambda queue: topics(queue.topic) if topics else queue.topic)
        if name == "broker":
            return self._per_piece(lambda queue: queue.broker)
        try:
            return _MAKERS[name](self)
        except KeyError:
            raise unknown_column(name) from None

    def property(self, name: str) -> pa.Array:
        """The values of one property, null where a message has none."""
        return self._property(name)

    def where(self, row: int) -> tuple[MessageQueue, int]:
        """The queue and the offset of one message."""
        number = int(np.searchsorted(np.cumsum(self.counts), row, side="right"))
        queue = self._queues[self._pieces[number].number]
        return queue, int(self._columns["queue_offset"][row])

    # --- columns --------------------------------------------------------------------------------

    def _per_piece(self, of: Callable[[MessageQueue], str]) -> pa.Array:
        values = [of(self._queues[piece.number]) for piece in self._pieces]
        if len(set(values)) == 1:
            return pa.repeat(pa.scalar(values[0], pa.string()), len(self))
        rows = np.repeat(np.arange(len(values), dtype=np.int32), self.counts)
        return pa.array(values, pa.string()).take(pa.array(rows))

    def _bodies(self, bad: BadBody) -> pa.Array:
        columns = self._columns
        bodies = _gathered(columns.buffer, columns.body, pa.binary())
        compressed = columns.compressed
        if not compressed.any():
            return bodies
        rows = np.flatnonzero(compressed)
        opened = [self._opened(int(row), bad) for row in rows.tolist()]
        return pc.replace_with_mask(bodies, pa.array(compressed), pa.array(opened, pa.binary()))

    def _opened(self, row: int, bad: BadBody) -> bytes | None:
        columns = self._columns
        stored = memoryview(columns.buffer)[columns.body.starts[row] : columns.body.ends[row]]
        try:
            kind = compression_of(int(columns["sys_flag"][row]))
            assert kind is not None
            return decompress(stored, kind)
        except RemoteProtocolError as error:
            if bad == "null":
                return None
            queue, offset = self.where(row)
            raise RemoteProtocolError(f"{queue} @ {offset:,}: {error}") from error

    def _property(self, name: str) -> pa.Array:
        ranges = self._columns.property_ranges(name)
        return _text(self._columns.buffer, ranges, ranges.starts < 0)

    def _properties(self) -> pa.Array:
        columns = self._columns
        offsets, names, values = columns.entries()
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()),
            _text(columns.buffer, names),
            _text(columns.buffer, values),
        )

    def _message_ids(self) -> pa.Array:
        unique = self._property(properties.UNIQUE_KEY)
        return pc.coalesce(unique, self._offset_ids()) if unique.null_count else unique

    def _offset_ids(self) -> pa.Array:
        columns, count = self._columns, len(self)
        if (columns["sys_flag"] & IPV6_BITS).any():
            ids = [columns.message(row).offset_id for row in range(count)]
            return pa.array(ids, pa.string())
        parts = np.empty(count, _ID_BYTES)
        parts["ip"] = _four_bytes(columns, columns.store_ip)
        parts["port"] = columns["store_port"]
        parts["log_offset"] = columns["log_offset"]
        text = _HEX[parts.view(np.uint8)]
        ends = np.arange(count + 1, dtype=np.int32) * 32
        return pa.Array.from_buffers(
            pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text)]
        )

    def _hosts(self, ips: Ranges, ports: NDArray[Any], attribute: str) -> pa.Array:
        columns = self._columns
        if (columns["sys_flag"] & IPV6_BITS).any():
            texts = [getattr(columns.message(row), attribute) for row in range(len(self))]
            return pa.array(texts, pa.string())
        numbers = _four_bytes(columns, ips).view(np.uint32).astype(np.uint64)
        keys = numbers << np.uint64(32) | ports.astype(np.uint32)
        found, rows = np.unique(keys, return_inverse=True)
        texts = [
            record.host_text((key >> 32).to_bytes(4, _NATIVE), key & 0xFFFF_FFFF)
            for key in found.tolist()
        ]
        return pa.array(texts, pa.string()).take(pa.array(rows))

    def _times(self, name: str) -> pa.Array:
        return pa.array(self._columns[name] * 1000).view(TIME)

    def _crc_ok(self) -> pa.Array:
        columns = self._columns
        view = memoryview(columns.buffer)
        spans = zip(columns.body.starts.tolist(), columns.body.ends.tolist(), strict=True)
        found = np.fromiter((zlib.crc32(view[start:end]) for start, end in spans), np.int64)
        return pa.array((found & 0x7FFF_FFFF) == columns["body_crc"])


_NATIVE: Final[Literal["little", "big"]] = "little" if np.little_endian else "big"

_MAKERS: Final[Mapping[str, Callable[[Rows], pa.Array]]] = {
    "queue_id": lambda rows: pa.array(rows._columns["queue_id"]),
    "queue_offset": lambda rows: pa.array(rows._columns["queue_offset"]),
    "message_id": Rows._message_ids,
    "unique_id": lambda rows: rows._property(properties.UNIQUE_KEY),
    "keys": lambda rows: rows._property(properties.KEYS),
    "tags": lambda rows: rows._property(properties.TAGS),
    "properties": Rows._properties,
    "born_timestamp": lambda rows: rows._times("born_ms"),
    "store_timestamp": lambda rows: rows._times("store_ms"),
    "born_host": lambda rows: rows._hosts(
        rows._columns.born_ip, rows._columns["born_port"], "born_host"
    ),
    "store_host": lambda rows: rows._hosts(
        rows._columns.store_ip, rows._columns["store_port"], "store_host"
    ),
    "reconsume_times": lambda rows: pa.array(rows._columns["reconsume_times"]),
    "sys_flag": lambda rows: pa.array(rows._columns["sys_flag"]),
    "flag": lambda rows: pa.array(rows._columns["flag"]),
    "commit_log_offset": lambda rows: pa.array(rows._columns["log_offset"]),
    "crc_ok": Rows._crc_ok,
}


def unknown_column(name: str) -> ConfigError:
    """The error for a column that there is not."""
    return ConfigError(f"messages have no column {name!r}; they have {', '.join(TYPES)}")


def joined(bodies: Sequence[Buffer]) -> Buffer:
    """The bodies back to back; one alone is not copied."""
    return bodies[0] if len(bodies) == 1 else b"".join(bodies)


def _unwrapped(piece: Piece) -> bytes:
    """The messages of a piece with batches taken apart, each message once."""
    plain = []
    at = piece.start
    for message in record.iterate(piece.body):
        if at <= message.queue_offset < piece.end:
            plain.append(message.encode())
            at = message.queue_offset + 1
    return b"".join(plain)


def _holes(piece: Piece, found: NDArray[Any]) -> Iterable[Hole]:
    at = piece.start
    for offset in (*found.tolist(), piece.end):
        if offset > at:
            yield Hole(piece.number, at, offset)
        at = offset + 1


def _four_bytes(columns: Columns, where: Ranges) -> NDArray[Any]:
    data = np.frombuffer(columns.buffer, np.uint8)
    return at_every_byte(data, "V4")[where.starts]


def _text(buffer: Buffer, where: Ranges, missing: Mask | None = None) -> pa.Array:
    """Parts of the buffer as text; what is not UTF-8 in it becomes U+FFFD."""
    array = _gathered(buffer, where, pa.string(), missing)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        raw = array.view(pa.binary()).to_pylist()
        texts = [None if each is None else each.decode("utf-8", "replace") for each in raw]
        return pa.array(texts, pa.string())
    return array


def _gathered(
    buffer: Buffer, where: Ranges, kind: pa.DataType, missing: Mask | None = None
) -> pa.Array:
    """Parts of the buffer, which follow each other in it, as an array of their own."""
    count = len(where.starts)
    if not count:
        return pa.array([], kind)
    borders = np.empty(2 * count, np.int32)
    borders[0::2], borders[1::2] = where.starts, where.ends
    rows = np.arange(0, 2 * count, 2, dtype=np.int32)
    if missing is None or not missing.any():
        wanted = pa.array(rows)
    else:
        np.maximum.accumulate(borders, out=borders)
        np.maximum(borders, 0, out=borders)
        wanted = pa.array(rows, mask=missing)
    buffers = [None, pa.py_buffer(borders), pa.py_buffer(buffer)]
    return pa.Array.from_buffers(kind, 2 * count - 1, buffers).take(wanted)
