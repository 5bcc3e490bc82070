"""A connection without the connection: bytes in, commands out, and the other way round.

A frame is `total: int32, mark: int32, header, body`. `total` counts what follows it; the mark's high
byte is the header's type and its low 24 bits the header's length. Frames follow each other without
any alignment.

**Reading.** The owner asks for room with `get_buffer`, lets the socket write into it, and says with
`received` how much came; complete commands come back. Small frames are read in a buffer that is used
again and again, and their bodies are copied out of it. A frame that is larger than that buffer gets
a buffer of its own, into which the socket then writes directly; its body is a view of it and is
never copied. That buffer grows with the bytes that really arrive, so a peer that announces much and
sends little takes no memory. All lengths are checked as soon as they are there.

**Writing.** `encode` gives buffers for one `writelines`. The header type is set by the owner, or,
with `mirror`, follows whatever the peer wrote last, since a peer may be old enough to know one only.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire.command import (
    MAX_HEADER,
    Buffer,
    Command,
    HeaderType,
    decode_header,
    encode_header,
)

DEFAULT_LIMIT: Final = 16 * 1024 * 1024
"""What RocketMQ allows for a frame: `com.rocketmq.remoting.frameMaxLength`."""

_SHARED: Final = 64 * 1024
_LEAST_ROOM: Final = 16 * 1024
_GROWTH: Final = 1024 * 1024

_PREFIX: Final = Struct(">iI")
_PREFIX_SIZE: Final = 8


class Connection:
    """Turns what a peer sends into commands, and commands into what a peer reads."""

    __slots__ = ("_buffer", "_end", "_need", "_start", "_view", "header_type", "limit", "mirror")

    def __init__(
        self,
        *,
        limit: int = DEFAULT_LIMIT,
        header_type: HeaderType = HeaderType.JSON,
        mirror: bool = False,
    ) -> None:
        self.limit = limit
        self.header_type = header_type
        self.mirror = mirror
        self._need = 0  # bytes of the frame that has a buffer of its own; 0: none has
        self._use(bytearray(_SHARED), 0)

    @property
    def mid_frame(self) -> bool:
        """Whether a frame has begun and not ended."""
        return self._end > self._start

    @property
    def buffered(self) -> int:
        """How many bytes have arrived that no command was made of yet."""
        return self._end - self._start

    def get_buffer(self, _hint: int = -1) -> memoryview:
        """Room for the socket to write into; never empty."""
        if self._need:
            if self._end == len(self._buffer):
                self._grow()
            return self._view[self._end : self._need]
        if len(self._buffer) - self._end < _LEAST_ROOM:
            self._compact()
        return self._view[self._end :]

    def received(self, count: int) -> Iterator[Command]:
        """The commands that `count` more bytes in the buffer complete, in order.

        Raises `RemoteProtocolError` where a frame cannot be read; what came before it was given.
        """
        self._end += count
        while (size := self._end - self._start) >= _PREFIX_SIZE:
            total, header_size = self._lengths()
            if size < total + 4:
                if total + 4 > len(self._buffer) and not self._need:
                    self._move_out(total + 4)
                return
            yield self._take(total + 4, header_size)

    def feed(self, data: Buffer) -> Iterator[Command]:
        """The commands that `data` completes; for callers that hold bytes already."""
        source = memoryview(data).cast("B")
        while source:
            room = self.get_buffer()
            size = min(len(room), len(source))
            room[:size] = source[:size]
            room.release()
            yield from self.received(size)
            source = source[size:]

    def encode(self, command: Command) -> list[Buffer]:
        """The buffers to write for `command`: prefix with header, then the body if there is one."""
        header_type, header = encode_header(command, self.header_type)
        body = command.body
        total = 4 + len(header) + len(body)
        if total > self.limit or len(header) > MAX_HEADER:
            raise LocalProtocolError(
                f"{command!r:.200} makes a frame of {total} bytes (header {len(header)}); "
                f"the limit is {self.limit}"
            )
        head = _PREFIX.pack(total, header_type << 24 | len(header)) + header
        return [head, body] if len(body) else [head]

    def _lengths(self) -> tuple[int, int]:
        total, mark = _PREFIX.unpack_from(self._buffer, self._start)
        header_size = mark & MAX_HEADER
        if not 4 <= total <= self.limit:
            raise RemoteProtocolError(
                f"a frame says it is {total} bytes long; the least is 4, the limit {self.limit}"
            )
        if header_size > total - 4:
            raise RemoteProtocolError(
                f"a frame of {total} bytes says its header is {header_size} bytes long"
            )
        if mark >> 24 > 1:
            raise RemoteProtocolError(
                f"header type {mark >> 24} is neither JSON (0) nor binary (1)"
            )
        return total, header_size

    def _take(self, size: int, header_size: int) -> Command:
        start = self._start
        head = start + _PREFIX_SIZE
        header_type = self._buffer[start + 4]
        command = decode_header(header_type, self._view[head : head + header_size])
        body = self._view[head + header_size : start + size]
        if self._need:
            command.body = body
            self._need = 0
            self._use(bytearray(_SHARED), 0)
        else:
            command.body = bytes(body)
            self._start = start + size
            if self._start == self._end:
                self._start = self._end = 0
        if self.mirror:
            self.header_type = HeaderType(header_type)
        return command

    def _use(self, buffer: bytearray, filled: int) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = 0
        self._end = filled

    def _compact(self) -> None:
        """Make room at the end by moving the begun frame to the front."""
        pending = bytes(self._view[self._start : self._end])
        self._buffer[: len(pending)] = pending
        self._start, self._end = 0, len(pending)

    def _move_out(self, size: int) -> None:
        """Give the begun frame, which the shared buffer cannot hold, a buffer of its own."""
        pending = self._view[self._start : self._end]
        own = bytearray(min(size, max(_GROWTH, 2 * len(pending))))
        own[: len(pending)] = pending
        self._need = size
        self._use(own, len(pending))

    def _grow(self) -> None:
        larger = bytearray(min(self._need, 2 * len(self._buffer)))
        larger[: self._end] = self._view[: self._end]
        self._use(larger, self._end)
