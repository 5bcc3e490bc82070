"""The body of a batch: several messages of one topic in one send, or in one stored message.

```
totalSize i32 | magic i32 = 0 | bodyCRC i32 = 0 | flag i32 | bodyLength i32 | body |
propertiesLength i16 | properties                                  … and the next, back to back
```

Topic, queue, system flag and times are those of what carries the batch. Java writes zeros for magic
and CRC and reads neither, so any value is taken. A batch is not compressed by its sender and as a
whole must not exceed the broker's message limit, hence `split`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple, NoReturn

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire import properties
from gantrymq.wire.command import Buffer

MAX_SIZE: Final = 4 * 1024 * 1024
"""RocketMQ: maxMessageSize, of client and broker alike."""
OVERHEAD: Final = 22
"""What one message takes beyond its body and properties."""

_HEAD: Final = Struct(">iiiii")
_pack_head = _HEAD.pack
_unpack_head = _HEAD.unpack_from
_HEAD_SIZE: Final = 20


class BatchMessage(NamedTuple):
    """One message of a batch.

    RocketMQ: Message, as MessageDecoder.encodeMessage writes it.
    """

    body: bytes
    property_bytes: bytes = b""
    flag: int = 0

    @property
    def size(self) -> int:
        """How many bytes it takes in a batch body."""
        return OVERHEAD + len(self.body) + len(self.property_bytes)

    @property
    def properties(self) -> dict[str, str]:
        """The properties, taken apart anew at each call."""
        return properties.decode(self.property_bytes)


def encode(messages: Iterable[BatchMessage]) -> bytes:
    """The batch body of `messages`."""
    parts: list[bytes] = []
    for number, (body, raw, flag) in enumerate(messages):
        if len(raw) > properties.MAX_SIZE:
            raise LocalProtocolError(
                f"message {number} of the batch has {len(raw)} bytes of properties; "
                f"the most is {properties.MAX_SIZE}"
            )
        size = OVERHEAD + len(body) + len(raw)
        try:
            head = _pack_head(size, 0, 0, flag, len(body))
        except struct.error as cause:
            raise LocalProtocolError(
                f"message {number} of the batch: flag {flag} and size {size} have to fit an int32"
            ) from cause
        parts += head, body, len(raw).to_bytes(2, "big"), raw
    return b"".join(parts)


def decode(buffer: Buffer) -> list[BatchMessage]:
    """All messages of a batch body."""
    return list(iterate(buffer))


def iterate(buffer: Buffer) -> Iterator[BatchMessage]:
    """The messages of a batch body, one by one; raises at the first that is not whole."""
    data = buffer if isinstance(buffer, bytes) else bytes(buffer)
    at, end = 0, len(data)
    while at < end:
        if end - at < OVERHEAD:
            _refuse(data, at, f"only {end - at} bytes are left and {OVERHEAD} are the least")
        size, _, _, flag, body_size = _unpack_head(data, at)
        if not OVERHEAD <= size <= end - at:
            _refuse(data, at, f"it says {size} bytes and {end - at} are left")
        if not 0 <= body_size <= size - OVERHEAD:
            _refuse(data, at, f"it says a body of {body_size} bytes and {size} in all")
        body_end = at + _HEAD_SIZE + body_size
        property_size = data[body_end] << 8 | data[body_end + 1]
        if property_size != size - OVERHEAD - body_size:
            _refuse(
                data,
                at,
                f"properties of {property_size} bytes and a body of {body_size} bytes "
                f"do not make {size} bytes",
            )
        # what `BatchMessage(…)` does, in half the time
        yield tuple.__new__(
            BatchMessage, (data[at + _HEAD_SIZE : body_end], data[body_end + 2 : at + size], flag)
        )
        at += size


def split(messages: Iterable[BatchMessage], limit: int = MAX_SIZE) -> Iterator[list[BatchMessage]]:
    """The messages in their order, in batches whose bodies take at most `limit` bytes each."""
    batch: list[BatchMessage] = []
    room = limit
    for message in messages:
        size = message.size
        if size > limit:
            raise LocalProtocolError(
                f"a message takes {size} bytes in a batch body; the limit is {limit}"
            )
        if size > room:
            yield batch
            batch, room = [], limit
        batch.append(message)
        room -= size
    if batch:
        yield batch


def _refuse(data: bytes, at: int, why: str) -> NoReturn:
    raise RemoteProtocolError(f"batch message at byte {at} of {len(data)}: {why}")
