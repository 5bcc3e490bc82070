"""The two kinds of message id: where a broker stored a message, and who sent it when.

```
offset id   ip (4 | 16) | port i32 | commit-log offset i64                            upper-case hex
unique id   ip (4 | 16) | process u16 | loader hash u32 | ms since month began u32 | counter u16
```

Both have 32 characters with an IPv4 address and 56 with an IPv6 one, so the text alone does not
tell one kind from the other.

**Time in a unique id** counts from the first of the month, local time, of the sender. The sender
takes a new beginning when the month is over. A clock that was set back across a beginning would
count below zero: less than 1,000 s back counts as 0, more is written as Java's int wraps it. A
reader assumes the current month, or the one before where that would lie ahead of its own clock.
Neither clock nor calendar is known here; both are handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from itertools import count
from struct import Struct
from typing import Final, NamedTuple

from gantrymq.errors import InvalidInput

_OFFSET: Final = Struct(">iq")
_UNIQUE: Final = Struct(">HIIH")
_LENGTHS: Final = {32: 4, 56: 16}
_LONGER_THAN_A_MONTH_MS: Final = 32 * 24 * 3600 * 1000
_STEP_BACK_MS: Final = 1_000_000


class OffsetId(NamedTuple):
    """Where a message is stored: the broker's address and the offset in its commit log.

    RocketMQ: MessageId, made by MessageDecoder.createMessageId.
    """

    ip: bytes
    port: int
    log_offset: int

    @property
    def host(self) -> str:
        """The broker's address as text, without the port."""
        return str(ip_address(self.ip))

    def __str__(self) -> str:
        return offset_id(self.ip, self.port, self.log_offset)


class UniqueId(NamedTuple):
    """The parts of a unique id.

    RocketMQ: MessageClientIDSetter.
    """

    ip: bytes
    process: int
    loader_hash: int
    month_ms: int
    counter: int

    def __str__(self) -> str:
        return (self.ip + _UNIQUE.pack(*self[1:])).hex().upper()

    def born_ms(self, now_ms: int, month_start: Callable[[int], int]) -> int:
        """About when it was made, in ms since 1970: the latest time up to now that fits.

        `month_start` gives the beginning of the month, local time, that a time lies in.
        """
        start = month_start(now_ms)
        if start + self.month_ms >= now_ms:
            start = month_start(start - 1)
        return start + self.month_ms


class UniqueIds:
    """Makes unique ids, in any number of threads at once.

    RocketMQ: MessageClientIDSetter.createUniqID.
    """

    __slots__ = ("_count", "_month", "_month_start", "_now_ms", "_prefix")

    def __init__(
        self,
        ip: bytes,
        pid: int,
        loader_hash: int,
        now_ms: Callable[[], int],
        month_start: Callable[[int], int],
    ) -> None:
        if len(ip) not in (4, 16):
            raise InvalidInput(f"an address of {len(ip)} bytes is neither IPv4 nor IPv6")
        self._prefix = f"{ip.hex()}{pid & 0xFFFF:04x}{loader_hash & 0xFFFF_FFFF:08x}".upper()
        self._now_ms = now_ms
        self._month_start = month_start
        self._count = count()
        self._month = self._month_of(now_ms())

    def next(self) -> str:
        """An id that no other call gives."""
        now = self._now_ms()
        start, end = self._month  # replaced whole, so that threads see one month or the other
        if now >= end:
            start, end = self._month = self._month_of(now)
        elapsed = now - start
        if -_STEP_BACK_MS < elapsed < 0:
            elapsed = 0
        return f"{self._prefix}{elapsed & 0xFFFF_FFFF:08X}{next(self._count) & 0xFFFF:04X}"

    def _month_of(self, now: int) -> tuple[int, int]:
        start = self._month_start(now)
        return start, self._month_start(start + _LONGER_THAN_A_MONTH_MS)


def offset_id(ip: bytes, port: int, log_offset: int) -> str:
    """The id of the message at `log_offset` in the commit log of the broker at `ip` and `port`."""
    return (ip + _OFFSET.pack(port, log_offset)).hex().upper()


def parse_offset_id(text: str) -> OffsetId:
    """The address and offset that `text` names."""
    ip, rest = _parts(text)
    port, log_offset = _OFFSET.unpack(rest)
    return OffsetId(ip, port, log_offset)


def parse_unique_id(text: str) -> UniqueId:
    """The parts that `text` is made of."""
    ip, rest = _parts(text)
    return UniqueId(ip, *_UNIQUE.unpack(rest))


def _parts(text: str) -> tuple[bytes, bytes]:
    size = _LENGTHS.get(len(text))
    if size is None:
        raise InvalidInput(
            f"message id {text!r:.80} has {len(text)} characters; ids have 32 (IPv4) or 56 (IPv6)"
        )
    try:
        raw = bytes.fromhex(text)
    except ValueError as error:
        raise InvalidInput(f"message id {text!r} is not hexadecimal") from error
    if len(raw) != len(text) // 2:  # fromhex skips white space
        raise InvalidInput(f"message id {text!r} is not hexadecimal")
    return raw[:size], raw[size:]
