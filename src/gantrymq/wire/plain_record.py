"""The commonest kind of record, written in one go and without a `StoredMessage`.

It is of version 1 and has IPv4 hosts, so its head has one shape (see `record`); what is no part of
a transaction has no prepared offset, and what comes from a producer was consumed 0 times.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import Final

from gantrymq.wire import properties
from gantrymq.wire.flags import INNER_BATCH, IPV6_BITS, TRANSACTION_BITS
from gantrymq.wire.record import MAGIC_V1, MAX_TOPIC_V1

ODD_FLAGS: Final = IPV6_BITS | TRANSACTION_BITS | INNER_BATCH
"""What a system flag must not say for a record to be plain."""
MAX_PROPERTIES: Final = properties.MAX_SIZE

_CRC_MASK: Final = 0x7FFF_FFFF
_NEITHER: Final = bytes(12)
"""Consumed 0 times, no prepared offset."""
_HEAD: Final = Struct(">iiiiiqqiq4siq4si12si")
_pack_head: Final = _HEAD.pack
_OVERHEAD: Final = _HEAD.size + 2
_crc32: Final = zlib.crc32
_pack_size: Final = Struct(">H").pack


def topic_part(topic: str) -> bytes | None:
    """What stands for the topic in a plain record; None where it does not fit one."""
    data = topic.encode()
    return bytes((len(data),)) + data if len(data) <= MAX_TOPIC_V1 else None


def plain_size(topic: bytes, messages: Sequence[tuple[bytes, bytes, int]]) -> int:
    """How many bytes `plain_records` gives in all."""
    size = len(messages) * (_OVERHEAD + len(topic))
    for body, raw, _ in messages:
        size += len(body) + len(raw)
    return size


def plain_records(
    topic: bytes,
    messages: Sequence[tuple[bytes, bytes, int]],
    queue_id: int,
    queue_offset: int,
    log_offset: int,
    sys_flag: int,
    born_ms: int,
    store_ms: int,
    hosts: tuple[bytes, int, bytes, int],
) -> list[bytes]:
    """The records of bodies, properties (at most `MAX_PROPERTIES`) and flags, side by side.

    `topic` is from `topic_part`; `hosts` are the address and port of who sent and of who stores it.
    """
    born_ip, born_port, store_ip, store_port = hosts
    records = []
    for body, raw, flag in messages:
        body_size, raw_size = len(body), len(raw)
        size = _OVERHEAD + body_size + len(topic) + raw_size
        head = _pack_head(
            size,
            MAGIC_V1,
            _crc32(body) & _CRC_MASK,
            queue_id,
            flag,
            queue_offset,
            log_offset,
            sys_flag,
            born_ms,
            born_ip,
            born_port,
            store_ms,
            store_ip,
            store_port,
            _NEITHER,
            body_size,
        )
        records.append(b"".join((head, body, topic, _pack_size(raw_size), raw)))
        queue_offset += 1
        log_offset += size
    return records
