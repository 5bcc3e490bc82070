"""A pull's body as columns: where everything is, and the numbers as arrays, no object a message.

Bulk readers take thousands of messages at a time and hand them on as columns. For them `decode`
finds where each record, body, topic and properties begin and end in the buffer, checks all of it as
strictly as `record` does, and makes arrays of the numbers when they are asked for.

**How.** Where a record begins is known only from the size of the one before, so that much is a loop
in Python; where traffic is even and sizes repeat, a whole run is checked at once with a strided
view of the size fields. The fixed parts are then gathered in one indexed copy. Those with IPv6
addresses are longer: their fields are moved to where the others have them, so that columns need not
know. The first record that is not whole is given to `record.decode`, which says what is wrong with
it, or that the list merely ends there.

Compressed bodies and wrapped batches are left as they are stored; `compressed` and `wrapped` say
which rows they are, and `message(row)` gives one as `record` reads it.

This module and its two helpers, `arrays` and `property_columns`, need numpy; no other imports them.
"""

from __future__ import annotations

import struct
from array import array
from itertools import repeat
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.wire import properties, record
from gantrymq.wire.arrays import Bytes, Ints, Mask, Ranges, at_every_byte, gather, leading
from gantrymq.wire.command import Buffer
from gantrymq.wire.flags import BORN_HOST_IPV6, COMPRESSED, IPV6_BITS, STORE_HOST_IPV6, WRAPPED_BITS
from gantrymq.wire.property_columns import Entries, PropertyTable

NUMBERS: Final = (
    "body_crc", "queue_id", "flag", "queue_offset", "log_offset", "sys_flag", "born_ms",
    "born_port", "store_ms", "store_port", "reconsume_times", "prepared_offset",
)  # fmt: skip
"""The columns of numbers; named as in `record.StoredMessage`."""

_HEAD: Final = np.dtype(
    [
        ("size", ">i4"), ("magic", ">i4"), ("body_crc", ">i4"), ("queue_id", ">i4"),
        ("flag", ">i4"), ("queue_offset", ">i8"), ("log_offset", ">i8"), ("sys_flag", ">i4"),
        ("born_ms", ">i8"), ("born_ip", "V4"), ("born_port", ">i4"), ("store_ms", ">i8"),
        ("store_ip", "V4"), ("store_port", ">i4"), ("reconsume_times", ">i4"),
        ("prepared_offset", ">i8"), ("body_size", ">i4"),
    ]
)  # fmt: skip
_BORN_IP_AT: Final = 48
_STORE_IP_AT: Final = 64
_IPV6_EXTRA: Final = 12
_AFTER_BORN_IP: Final = slice(52, 68)
_AFTER_STORE_IP: Final = slice(68, 88)

_SIZE: Final = Struct(">i")
_STRETCH: Final = 64
_SAME: Final = 8
"""After a stretch of records one by one, this many of one size suggest a run of that size."""


class Columns:
    """The records of one buffer, which has to stay as it is; made by `decode`."""

    __slots__ = ("_data", "_heads", "_table", "body", "buffer", "properties", "starts", "topic")

    def __init__(
        self, buffer: Buffer, data: Bytes, heads: NDArray[Any], starts: Ints, parts: _Parts
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.body = parts.body
        self.topic = parts.topic
        self.properties = parts.properties
        self._data = data
        self._heads = heads
        self._table: PropertyTable | None = None

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, name: str) -> NDArray[np.int32] | Ints:
        """The column of numbers called `name`, one of `NUMBERS`; made anew at each call."""
        if name not in NUMBERS:
            raise KeyError(f"{name!r} is no column of numbers; there are {', '.join(NUMBERS)}")
        column = self._heads[name]
        return column.astype(column.dtype.newbyteorder("="))

    @property
    def compressed(self) -> Mask:
        """Which bodies are compressed."""
        return self._flagged(COMPRESSED)

    @property
    def wrapped(self) -> Mask:
        """Which bodies are batches that readers take apart."""
        return self._flagged(WRAPPED_BITS)

    @property
    def born_ip(self) -> Ranges:
        """Where the senders' addresses are, of 4 or 16 bytes."""
        starts = self.starts + _BORN_IP_AT
        return Ranges(starts, starts + 4 + _IPV6_EXTRA * self._flagged(BORN_HOST_IPV6))

    @property
    def store_ip(self) -> Ranges:
        """Where the brokers' addresses are, of 4 or 16 bytes."""
        starts = self.starts + _STORE_IP_AT + _IPV6_EXTRA * self._flagged(BORN_HOST_IPV6)
        return Ranges(starts, starts + 4 + _IPV6_EXTRA * self._flagged(STORE_HOST_IPV6))

    def message(self, row: int) -> record.StoredMessage:
        """One record as an object."""
        return record.decode(self.buffer, int(self.starts[row]))

    def check_crc(self) -> None:
        """Refuse the first body that is not the one that was stored."""
        view = memoryview(self.buffer)
        spans = zip(self.body.starts.tolist(), self.body.ends.tolist(), strict=True)
        computed = np.fromiter((record.crc(view[start:end]) for start, end in spans), np.int64)
        wrong = np.flatnonzero(computed != self["body_crc"])
        if len(wrong):
            self.message(int(wrong[0])).check_crc()

    def entries(self) -> Entries:
        """Every property of every row; a name comes once in a row, with the value that counts."""
        return self._property_table().entries()

    def property_ranges(self, name: str) -> Ranges:
        """Where the values of one property are; -1 for rows without it."""
        return self._property_table().ranges(name)

    def _flagged(self, bits: int) -> Mask:
        flagged: Mask = self["sys_flag"] & bits == bits
        return flagged

    def _property_table(self) -> PropertyTable:
        if self._table is None:
            self._table = PropertyTable(self.buffer, self._data, self.properties)
        return self._table


class _Parts(NamedTuple):
    body: Ranges
    topic: Ranges
    properties: Ranges


def decode(buffer: Buffer) -> Columns:
    """The records of a pull's body as columns, refused where `record.iterate` refuses them.

    Views of a buffer are fine: nothing is copied out of it but the numbers.
    """
    data = np.frombuffer(buffer, np.uint8) if len(buffer) else np.empty(0, np.uint8)
    starts, reached = _scan(buffer)
    heads = at_every_byte(data, f"V{_HEAD.itemsize}")[starts].view(_HEAD)
    parts = _locate(data, starts, heads)
    whole = len(parts.body.starts)
    if whole < len(starts):
        reached = int(starts[whole])
    if reached < len(buffer):
        _expect_end(buffer, reached)
    return Columns(buffer, data, heads[:whole], starts[:whole], parts)


def _scan(buffer: Buffer) -> tuple[Ints, int]:
    """Where records begin if sizes are to be trusted, and where no further one can begin.

    The loop looks at nothing but sizes: it is the one thing here that is done for each record. What
    a wrong size leads to is cut off afterwards.
    """
    starts: list[int] = []
    runs: list[Ints] = []
    add, read = starts.append, _SIZE.unpack_from
    at, last = 0, len(buffer) - record.LEAST_SIZE
    while at <= last:
        begun = at
        try:
            for _ in repeat(None, _STRETCH):
                add(at)
                at += read(buffer, at)[0]
        except struct.error:  # nothing there any more
            break
        if at < begun + _STRETCH * record.LEAST_SIZE:
            break
        size = at - starts[-1]
        if at - starts[-_SAME] == _SAME * size:
            more = _run(buffer, at, size)
            runs += _ints(starts), at + size * np.arange(more)
            starts.clear()
            at += size * more
    runs.append(_ints(starts))
    found = np.concatenate(runs)
    sizes = np.diff(found, append=at)
    good = leading((sizes >= record.LEAST_SIZE) & (found <= last))
    return found[:good], int(found[good]) if good < len(found) else at


def _ints(numbers: list[int]) -> Ints:
    return np.frombuffer(array("q", numbers), np.int64)  # three times as quick as numpy's own way


def _run(buffer: Buffer, at: int, size: int) -> int:
    """How many records of this very size follow each other from `at` on."""
    found, step, room = 0, 4 * _STRETCH, (len(buffer) - at) // size
    while found < room:
        step = min(2 * step, room - found)
        sizes: NDArray[Any] = np.ndarray((step,), ">i4", buffer, at + size * found, (size,))
        same = leading(sizes == size)
        found += same
        if same < step:
            break
    return found


def _locate(data: Bytes, starts: Ints, heads: NDArray[Any]) -> _Parts:
    """Where the parts of each record are, as far as records are whole; `heads` get one shape."""
    ends = starts + heads["size"]
    magic = heads["magic"].astype(np.int32)
    tall = magic == record.MAGIC_V2
    wide = heads["sys_flag"] & IPV6_BITS
    is_wide = bool(wide.any())
    body = starts + _HEAD.itemsize
    if is_wide:
        body += _IPV6_EXTRA * (wide & BORN_HOST_IPV6 != 0)
        body += _IPV6_EXTRA * (wide & STORE_HOST_IPV6 != 0)
    whole = leading((tall | (magic == record.MAGIC_V1)) & (ends <= len(data)) & (body + 3 <= ends))
    if whole < len(starts):
        return _locate(data, starts[:whole], heads[:whole])
    if is_wide:
        _straighten(data, starts, heads, wide)

    body_size = heads["body_size"].astype(np.int64)
    topic = body + body_size + 1
    whole = leading((body_size >= 0) & (topic + 2 <= ends))
    if whole < len(starts):
        return _locate(data, starts[:whole], heads[:whole])
    body_ends = body + body_size

    topic_size = data[body_ends].astype(np.int64)
    most: int | Ints = record.MAX_TOPIC_V1
    if tall.any():
        topic_size = np.where(tall, topic_size << 8 | data[topic], topic_size)
        topic += tall
        most = np.where(tall, record.MAX_TOPIC, record.MAX_TOPIC_V1)
    topic_ends = topic + topic_size
    whole = leading((topic_size <= most) & (topic_ends + 2 <= ends))
    if whole < len(starts):
        return _locate(data, starts[:whole], heads[:whole])

    size = at_every_byte(data, ">u2")[topic_ends].astype(np.int64)
    whole = leading((topic_ends + 2 + size == ends) & (size <= properties.MAX_SIZE))
    if whole < len(starts):
        return _locate(data, starts[:whole], heads[:whole])
    return _Parts(Ranges(body, body_ends), Ranges(topic, topic_ends), Ranges(topic_ends + 2, ends))


def _straighten(data: Bytes, starts: Ints, heads: NDArray[Any], wide: NDArray[np.int32]) -> None:
    """Move what follows IPv6 addresses to where it is in records with IPv4 addresses."""
    rows = np.flatnonzero(wide)
    at = starts[rows] + _IPV6_EXTRA * (wide[rows] & BORN_HOST_IPV6 != 0)
    flat = heads.view(np.uint8).reshape(-1, _HEAD.itemsize)
    born = gather(data, at + _AFTER_BORN_IP.start, 16)
    flat[rows, _AFTER_BORN_IP] = born.view(np.uint8).reshape(-1, 16)
    at += _IPV6_EXTRA * (wide[rows] & STORE_HOST_IPV6 != 0)
    store = gather(data, at + _AFTER_STORE_IP.start, 20)
    flat[rows, _AFTER_STORE_IP] = store.view(np.uint8).reshape(-1, 20)


def _expect_end(buffer: Buffer, at: int) -> None:
    """Raise what is wrong with the record at `at`, unless the list of records just ends there."""
    try:
        message = record.decode(buffer, at)
    except record.UnknownMagic:
        return
    raise AssertionError(f"{message!r} at byte {at} is whole, and was taken for broken")
