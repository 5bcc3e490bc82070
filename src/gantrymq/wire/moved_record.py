"""A message that goes on into another queue: its record, made of the one that it has.

Body, hosts, flags and the times of its sender stay what they are, so nothing of them is taken
apart; what changes is where it is, when it was stored, its topic and its properties. This is for
the ordinary kind of record alone: version 1, IPv4 hosts, no part of a transaction (see `record`).
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, NamedTuple

from gantrymq.wire.flags import IPV6_BITS, TRANSACTION_BITS
from gantrymq.wire.record import LEAST_SIZE, MAGIC_V1

_HEAD: Final = Struct(">ii4si4sqq20sq12sq")
"""Size, magic, checksum, queue, flag, its offset, its place, up to the sender's host, time of
storing, up to how often it was consumed, prepared offset."""
_HEAD_SIZE: Final = _HEAD.size
_pack_head: Final = _HEAD.pack
_unpack_head: Final = Struct(f"{_HEAD.format}i").unpack_from
_ODD: Final = IPV6_BITS | TRANSACTION_BITS
_FLAGS_LOW_BYTE: Final = 3
_LENGTH: Final = Struct(">H").pack
_OVERHEAD: Final = _HEAD_SIZE + 2


class Parts(NamedTuple):
    """A record, as far as it is taken apart."""

    checksum: bytes
    flag: bytes
    sender: bytes
    store_ms: int
    storer: bytes
    body: memoryview
    """With its length before it, where it is in the log."""
    topic: bytes
    """The same."""
    properties: bytes


def parts_at(view: memoryview, at: int, log_offset: int, *, trusted: bool) -> Parts | None:
    """The record at byte `at`, which belongs at that place, if it is whole and ordinary.

    One that is `trusted` was written a while ago by this process: its body is not looked at.
    """
    if at + LEAST_SIZE > len(view):
        return None
    (
        size, magic, checksum, _, flag, _, place, sender, store_ms, storer, _, body_size,
    ) = _unpack_head(view, at)  # fmt: skip
    if magic != MAGIC_V1 or place != log_offset or sender[_FLAGS_LOW_BYTE] & _ODD:
        return None
    topic_at = 4 + body_size
    if not LEAST_SIZE <= size <= len(view) - at or not 4 <= topic_at < size - _HEAD_SIZE - 2:
        return None
    begin, end = at + _HEAD_SIZE, at + size
    rest = view[begin + topic_at : end].tobytes()
    start = 3 + rest[0]
    if start > len(rest) or rest[start - 2] << 8 | rest[start - 1] != len(rest) - start:
        return None
    body = view[begin : begin + topic_at]
    if not trusted and zlib.crc32(body[4:]) & 0x7FFF_FFFF != int.from_bytes(checksum, "big"):
        return None
    topic, raw = rest[: start - 2], rest[start:]
    # what `Parts(…)` does, in half the time
    return tuple.__new__(Parts, (checksum, flag, sender, store_ms, storer, body, topic, raw))


def moved_size(parts: Parts, topic: bytes, raw: bytes) -> int:
    """How many bytes `moved` gives."""
    return _OVERHEAD + len(parts.body) + len(topic) + len(raw)


def moved(
    parts: Parts,
    topic: bytes,
    raw: bytes,
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    store_ms: int,
    prepared_offset: int,
) -> bytes:
    """The record in its new place; `topic` is from `plain_record.topic_part`, `raw` properties."""
    checksum, flag, sender, _, storer, body, _, _ = parts
    head = _pack_head(
        _OVERHEAD + len(body) + len(topic) + len(raw), MAGIC_V1, checksum, queue_id, flag,
        queue_offset, log_offset, sender, store_ms, storer, prepared_offset,
    )  # fmt: skip
    return b"".join((head, body, topic, _LENGTH(len(raw)), raw))
