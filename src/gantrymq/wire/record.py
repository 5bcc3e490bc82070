"""Stored messages: the record of the commit log, which is also what pulls and views carry.

```
 0 totalSize i32 | 4 magic i32 | 8 bodyCRC i32 | 12 queueId i32 | 16 flag i32 | 20 queueOffset i64 |
28 physicalOffset i64 | 36 sysFlag i32 | 40 bornTimestamp i64 | 48 born address 4 or 16, port i32 |
storeTimestamp i64 | store address 4 or 16, port i32 | reconsumeTimes i32 |
preparedTransactionOffset i64 | bodyLength i32 | body |
topicLength i8 (version 1) or i16 (version 2) | topic | propertiesLength i16 | properties
```

Addresses are of 16 bytes where the system flag says IPv6, so the fixed part has four shapes, of 88,
100 or 112 bytes. Version 2 is written where the topic does not fit version 1.

**Reading** takes the whole fixed part in one `unpack`, as if both hosts were IPv4, and again in the
right shape where they are not. A record is accepted only if its parts make up exactly its size: all
lengths are checked before anything is copied. Records follow each other until the buffer ends or an
unknown magic number does, such as the blank that fills the end of a commit log file.

**Wrapped batches.** A record with both wrap bits set holds a batch (see `batch`); its messages have
its topic, queue, hosts and times, their own body, flag and properties, and count up from its queue
offset. They come out as plain messages: without wrap bits, so that nothing is unwrapped twice, and
without compression bits, because it was the batch that was compressed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from struct import Struct
from typing import Final, NoReturn

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire import batch, properties
from gantrymq.wire.command import Buffer
from gantrymq.wire.compression import DEFAULT_LIMIT, decompress
from gantrymq.wire.flags import (
    BORN_HOST_IPV6,
    IPV6_BITS,
    STORE_HOST_IPV6,
    WRAPPED_BITS,
    compression_of,
    is_wrapped,
    without_compression,
)
from gantrymq.wire.message_id import offset_id

MAGIC_V1: Final = -626843481
MAGIC_V2: Final = -626843477
MAGIC_BLANK: Final = -875286124
"""Fills the end of a commit log file, after the size of what is left; never sent to clients."""
MAX_TOPIC_V1: Final = 127
MAX_TOPIC: Final = 32_767
LEAST_SIZE: Final = 91
"""Of a record: IPv4 hosts, no body, no topic, no properties."""
MAX_WRAPPED: Final = 65_536
"""More messages than 4 MiB hold, each with one byte and a unique key."""

_MOST_TOPIC: Final = (0, MAX_TOPIC_V1, MAX_TOPIC)
_CRC_MASK: Final = 0x7FFF_FFFF
_HEAD: Final = Struct(">iiiiiqqiq4siq4siiqi")
_HEAD_SIZE: Final = 88
_unpack_head = _HEAD.unpack_from
_HEADS: Final = {
    0: _HEAD,
    BORN_HOST_IPV6: Struct(">iiiiiqqiq16siq4siiqi"),
    STORE_HOST_IPV6: Struct(">iiiiiqqiq4siq16siiqi"),
    IPV6_BITS: Struct(">iiiiiqqiq16siq16siiqi"),
}
_SIZE_AND_MAGIC: Final = Struct(">ii")
_SIZE: Final = Struct(">i")
_MAGIC_V1_LOW_BYTE: Final = MAGIC_V1 & 0xFF
_OFFSETS_AT: Final = 20
_OFFSETS: Final = Struct(">qq")
_SYS_FLAG: Final = 7
"""Where the system flag stands in an unpacked head; and the byte of a record with its low bits."""
_SYS_FLAG_LOW_BYTE: Final = 39
_unpack_outline: Final = Struct(">7xB31xB44xi").unpack_from
"""The low bytes of magic number and system flag, and where both hosts are IPv4 the body's size."""
_STORE_TIME_AT: Final = 56
_STORE_TIME: Final = Struct(">q")
_BITS: Final = {
    32: ("queue_id", "flag", "sys_flag", "born_port", "store_port", "reconsume_times"),
    64: ("queue_offset", "log_offset", "born_ms", "store_ms", "prepared_offset"),
}
_LOCALHOST: Final = b"\x7f\0\0\1"


class UnknownMagic(RemoteProtocolError):
    """No record of a known version begins here; in a list of records that is its end."""


@dataclass(slots=True, repr=False)
class StoredMessage:
    """One record: a message with its place in the log. Body and properties are as stored.

    Two messages are equal if what was put in is equal; `size` and `body_crc` follow from the rest.

    RocketMQ: MessageExt, and MessageExtBrokerInner where it is written.
    """

    topic: str
    body: bytes
    property_bytes: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_ip: bytes = _LOCALHOST
    born_port: int = 0
    store_ms: int = 0
    store_ip: bytes = _LOCALHOST
    store_port: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    version: int = 1
    body_crc: int = field(default=0, compare=False)
    """As it was read; `encode` computes it anew."""
    size: int = field(default=0, compare=False)
    """How many bytes the record took where it was read."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties, taken apart anew at each call."""
        return properties.decode(self.property_bytes)

    def find(self, name: str) -> str | None:
        """One property, without taking the rest apart."""
        return properties.find(self.property_bytes, name)

    @property
    def born_host(self) -> str:
        """Who sent it, as `10.1.2.3:51234` or `[2001:db8::1]:51234`."""
        return host_text(self.born_ip, self.born_port)

    @property
    def store_host(self) -> str:
        """Which broker stored it."""
        return host_text(self.store_ip, self.store_port)

    @property
    def offset_id(self) -> str:
        """The id that says where it is stored."""
        return offset_id(self.store_ip, self.store_port, self.log_offset)

    @property
    def message_id(self) -> str:
        """The id that clients show: the sender's unique one, or else where it is stored."""
        return self.find(properties.UNIQUE_KEY) or self.offset_id

    def content(self, limit: int = DEFAULT_LIMIT) -> bytes:
        """The body as it was before it was compressed: at most `limit` bytes."""
        kind = compression_of(self.sys_flag)
        return self.body if kind is None else decompress(self.body, kind, limit)

    def check_crc(self) -> None:
        """Refuse a body that is not the one that was stored. RocketMQ's clients do not look."""
        computed = crc(self.body)
        if computed != self.body_crc:
            raise RemoteProtocolError(
                f"{self!r}: body CRC {computed:#010x}, stored was {self.body_crc:#010x}"
            )

    def encode(self) -> bytes:
        """The record, in the shape that its hosts need and the version that its topic needs."""
        try:
            topic, body, raw = self.topic.encode(), self.body, self.property_bytes
            topic_size, body_size, raw_size = len(topic), len(body), len(raw)
            if topic_size > MAX_TOPIC or raw_size > properties.MAX_SIZE:
                self._refuse(topic_size)
            magic, topic_width = MAGIC_V1, 1
            if topic_size > MAX_TOPIC_V1 or self.version != 1:
                magic, topic_width = MAGIC_V2, 2
            sys_flag, shape, head_size = self.sys_flag, _HEAD, _HEAD_SIZE
            if sys_flag & IPV6_BITS or len(self.born_ip) != 4 or len(self.store_ip) != 4:
                sys_flag = sys_flag & ~IPV6_BITS | _ipv6_bits(self.born_ip, self.store_ip)
                shape = _HEADS[sys_flag & IPV6_BITS]
                head_size = shape.size
            head = shape.pack(
                head_size + body_size + topic_width + topic_size + 2 + raw_size,
                magic,
                zlib.crc32(body) & _CRC_MASK,
                self.queue_id,
                self.flag,
                self.queue_offset,
                self.log_offset,
                sys_flag,
                self.born_ms,
                self.born_ip,
                self.born_port,
                self.store_ms,
                self.store_ip,
                self.store_port,
                self.reconsume_times,
                self.prepared_offset,
                body_size,
            )
        except (struct.error, UnicodeEncodeError) as error:
            why = self._too_large() or error
            raise LocalProtocolError(f"{self!r} cannot be stored: {why}") from error
        topic_head, raw_head = topic_size.to_bytes(topic_width, "big"), raw_size.to_bytes(2, "big")
        return b"".join((head, body, topic_head, topic, raw_head, raw))

    def _refuse(self, topic_size: int) -> NoReturn:
        raise LocalProtocolError(
            f"{self!r} cannot be stored: its topic has {topic_size} bytes (at most {MAX_TOPIC}), "
            f"its properties {len(self.property_bytes)} (at most {properties.MAX_SIZE})"
        )

    def _too_large(self) -> str | None:
        for bits, names in _BITS.items():
            for name in names:
                if not -1 << bits - 1 <= getattr(self, name) < 1 << bits - 1:
                    return f"{name} {getattr(self, name)} does not fit an int{bits}"
        return None

    def __repr__(self) -> str:
        return (
            f"<StoredMessage {self.topic:.200}[{self.queue_id}] @ {self.queue_offset}, "
            f"log {self.log_offset}, body {len(self.body)} bytes>"
        )


def crc(body: Buffer) -> int:
    """The checksum that a record holds: CRC-32 of the body as stored, without the highest bit."""
    return zlib.crc32(body) & _CRC_MASK


def host_text(ip: bytes, port: int) -> str:
    """An address and port as people write them."""
    if len(ip) == 4:
        return f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}:{port}"
    return f"[{IPv6Address(ip)}]:{port}"


def stamp(
    buffer: bytearray | memoryview, at: int, *, queue_offset: int, log_offset: int, store_ms: int
) -> None:
    """Put its place and time into the record at `at`: a log knows them only as it appends."""
    _OFFSETS.pack_into(buffer, at + _OFFSETS_AT, queue_offset, log_offset)
    shift = 12 if buffer[at + _SYS_FLAG_LOW_BYTE] & BORN_HOST_IPV6 else 0
    _STORE_TIME.pack_into(buffer, at + _STORE_TIME_AT + shift, store_ms)


def properties_at(buffer: memoryview, at: int, size: int) -> bytes:
    """The properties of the record of `size` bytes at byte `at`; none if it is not whole.

    For whoever looks at the properties of many records and at nothing else of them.
    """
    if size < LEAST_SIZE:
        return b""
    version, flags, body_size = _unpack_outline(buffer, at)
    head = _HEAD_SIZE
    if flags & IPV6_BITS:
        head = _HEADS[flags & IPV6_BITS].size
        if head + 4 > size:
            return b""
        body_size = _SIZE.unpack_from(buffer, at + head - _SIZE.size)[0]
    topic_at = head + body_size
    if body_size < 0 or topic_at + 4 > size:
        return b""
    if version == _MAGIC_V1_LOW_BYTE:
        start = topic_at + 3 + buffer[at + topic_at]
    else:
        start = topic_at + 4 + int.from_bytes(buffer[at + topic_at : at + topic_at + 2], "big")
    return buffer[at + start : at + size].tobytes()


def properties_start(data: bytes, at: int, size: int) -> int:
    """Where the properties begin of the record of `size` bytes at byte `at`; they end it."""
    version, flags, body_size = _unpack_outline(data, at)
    if version != _MAGIC_V1_LOW_BYTE or flags & IPV6_BITS or not 0 <= body_size <= size - 92:
        return at + size - len(properties_at(memoryview(data), at, size))
    start: int = at + body_size + 91
    return start + data[start - 3]


def decode(buffer: Buffer, at: int = 0) -> StoredMessage:
    """The record that begins at byte `at`, with its body and properties copied out.

    Raises `UnknownMagic` where none begins, `RemoteProtocolError` where one is not whole.
    """
    if isinstance(buffer, bytes):
        return _read(buffer, at, 0)
    left = len(buffer) - at
    size = _SIZE_AND_MAGIC.unpack_from(buffer, at)[0] if left >= _SIZE_AND_MAGIC.size else left
    return _read(bytes(buffer[at : at + max(size, LEAST_SIZE)]), 0, at)


def iterate(
    buffer: Buffer, *, unwrap: bool = True, limit: int = DEFAULT_LIMIT
) -> Iterator[StoredMessage]:
    """The records of a pull's body, one by one, wrapped batches taken apart unless told otherwise.

    A buffer that is not bytes is copied once: that is cheaper than a view for each of three parts.
    """
    data = buffer if isinstance(buffer, bytes) else bytes(buffer)
    at, end = 0, len(data)
    while at < end:
        try:
            message = _read(data, at, 0)
        except UnknownMagic:
            return
        at += message.size
        if unwrap and message.sys_flag & WRAPPED_BITS == WRAPPED_BITS:
            yield from unwrapped(message, limit)
        else:
            yield message


def unwrapped(message: StoredMessage, limit: int = DEFAULT_LIMIT) -> Iterator[StoredMessage]:
    """The messages that `message` wraps, or itself if it wraps none."""
    if not is_wrapped(message.sys_flag):
        yield message
        return
    sys_flag = without_compression(message.sys_flag) & ~WRAPPED_BITS
    for number, (body, raw, flag) in enumerate(batch.iterate(message.content(limit))):
        if number == MAX_WRAPPED:
            raise RemoteProtocolError(f"{message!r} wraps more than {MAX_WRAPPED} messages")
        yield StoredMessage(
            message.topic,
            body,
            raw,
            message.queue_id,
            flag,
            message.queue_offset + number,
            message.log_offset,
            sys_flag,
            message.born_ms,
            message.born_ip,
            message.born_port,
            message.store_ms,
            message.store_ip,
            message.store_port,
            message.reconsume_times,
            message.prepared_offset,
            message.version,
            crc(body),
        )


def _read(data: bytes, at: int, base: int) -> StoredMessage:
    """The record at `at`; `base` is what offsets in errors are counted from."""
    if len(data) - at < LEAST_SIZE:
        _refuse(data, at, base)
    head, body_at = _unpack_head(data, at), at + _HEAD_SIZE
    if head[_SYS_FLAG] & IPV6_BITS:
        shape = _HEADS[head[_SYS_FLAG] & IPV6_BITS]
        body_at = at + shape.size
        if body_at > len(data):
            _refuse(data, at, base)
        head = shape.unpack_from(data, at)
    (
        size, magic, body_crc, queue_id, flag, queue_offset, log_offset, sys_flag, born_ms, born_ip,
        born_port, store_ms, store_ip, store_port, reconsume_times, prepared_offset, body_size,
    ) = head  # fmt: skip
    end, topic_at = at + size, body_at + body_size + 1
    if body_size < 0 or topic_at + 2 > end or end > len(data):
        _refuse(data, at, base)
    topic_size, version = data[topic_at - 1], 1
    if magic == MAGIC_V2:
        topic_size, version = topic_size << 8 | data[topic_at], 2
        topic_at += 1
    elif magic != MAGIC_V1:
        _refuse(data, at, base)
    topic_end = topic_at + topic_size
    if topic_end + 2 > end or topic_size > _MOST_TOPIC[version]:
        _refuse(data, at, base)
    raw_size = data[topic_end] << 8 | data[topic_end + 1]
    if topic_end + 2 + raw_size != end or raw_size > properties.MAX_SIZE:
        _refuse(data, at, base)
    return StoredMessage(
        data[topic_at:topic_end].decode("utf-8", "replace"),
        data[body_at : body_at + body_size],
        data[topic_end + 2 : end],
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
        reconsume_times,
        prepared_offset,
        version,
        body_crc,
        size,
    )


def _refuse(data: bytes, at: int, base: int) -> NoReturn:
    """Say what is wrong with the record at `at`; quick to nobody, so it looks again in order."""
    left = len(data) - at
    where = f"stored message at byte {base + at}"
    if left < _SIZE_AND_MAGIC.size:
        raise RemoteProtocolError(f"{where}: only {left} bytes are left")
    size, magic = _SIZE_AND_MAGIC.unpack_from(data, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise UnknownMagic(f"{where}: {magic & 0xFFFF_FFFF:#010x} is no message's magic number")
    if size < LEAST_SIZE:
        raise RemoteProtocolError(f"{where}: it says {size} bytes; the least is {LEAST_SIZE}")
    if size > left:
        raise RemoteProtocolError(f"{where}: it says {size} bytes, and only {left} are left")
    width = 1 if magic == MAGIC_V1 else 2
    head = _HEADS[data[at + _SYS_FLAG_LOW_BYTE] & IPV6_BITS]
    room = size - head.size - width - 2
    body_size = head.unpack_from(data, at)[-1] if room >= 0 else 0
    if not 0 <= body_size <= room:
        raise RemoteProtocolError(
            f"{where}: a body of {body_size} bytes does not fit a record of {size} bytes"
        )
    topic_at = at + head.size + body_size + width
    topic_size = int.from_bytes(data[topic_at - width : topic_at], "big")
    topic_end = topic_at + topic_size
    raw_size = int.from_bytes(data[topic_end : topic_end + 2], "big")
    raise RemoteProtocolError(
        f"{where}: a body of {body_size} bytes, a topic of {topic_size} (at most "
        f"{_MOST_TOPIC[width]}) and properties of {raw_size} (at most {properties.MAX_SIZE}) "
        f"do not make up {size} bytes"
    )


def _ipv6_bits(born_ip: bytes, store_ip: bytes) -> int:
    bits = 0
    for ip, bit in ((born_ip, BORN_HOST_IPV6), (store_ip, STORE_HOST_IPV6)):
        if len(ip) == 16:
            bits |= bit
        elif len(ip) != 4:
            raise LocalProtocolError(f"an address of {len(ip)} bytes is neither IPv4 nor IPv6")
    return bits
