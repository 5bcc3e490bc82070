"""The bits of a message's system flag: what its bytes look like and what its transaction came to.

```
bit   0     body is compressed            bit  4     born host is IPv6
bit   1     several tags (legacy)         bit  5     store host is IPv6
bits  2-3   transaction state             bits 6, 7  the body is a batch, to be unwrapped by readers
bits  8-10  compression type; 0 is what senders before 4.9.4 wrote, and means zlib
```

The constants are plain integers because records are read and written by the million; the two fields
that are numbers rather than switches have an enum each.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from gantrymq.errors import RemoteProtocolError

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_BITS: Final = 0xC
BORN_HOST_IPV6: Final = 0x10
STORE_HOST_IPV6: Final = 0x20
IPV6_BITS: Final = 0x30
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
WRAPPED_BITS: Final = 0xC0
"""Both bits have to be set for readers to take the body apart."""
COMPRESSION_BITS: Final = 0x700
COMPRESSION_SHIFT: Final = 8


class Transaction(IntEnum):
    """What a message is to its transaction, as the two bits hold it in place.

    RocketMQ: MessageSysFlag.TRANSACTION_*_TYPE.
    """

    NONE = 0x0
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC


class Compression(IntEnum):
    """How a compressed body was compressed.

    RocketMQ: CompressionType.
    """

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def bits(self) -> int:
        """What a system flag gains when a body is compressed this way."""
        return COMPRESSED | self << COMPRESSION_SHIFT


def transaction_of(sys_flag: int) -> Transaction:
    """The transaction state within `sys_flag`."""
    return Transaction(sys_flag & TRANSACTION_BITS)


def with_transaction(sys_flag: int, state: Transaction) -> int:
    """`sys_flag` with its transaction state replaced."""
    return sys_flag & ~TRANSACTION_BITS | state


def compression_of(sys_flag: int) -> Compression | None:
    """How the body is compressed, or None if it is not."""
    if not sys_flag & COMPRESSED:
        return None
    number = (sys_flag & COMPRESSION_BITS) >> COMPRESSION_SHIFT
    if number > Compression.ZLIB:
        raise RemoteProtocolError(
            f"system flag {sys_flag:#x} names compression type {number}; known are 0 to 3"
        )
    return Compression(number or Compression.ZLIB)


def without_compression(sys_flag: int) -> int:
    """`sys_flag` for the same message once its body is plain."""
    return sys_flag & ~(COMPRESSED | COMPRESSION_BITS)


def is_wrapped(sys_flag: int) -> bool:
    """Whether the body is a batch that readers take apart."""
    return sys_flag & WRAPPED_BITS == WRAPPED_BITS
