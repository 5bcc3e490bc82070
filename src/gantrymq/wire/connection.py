"""A connection without the connection: bytes in, commands out, and the other way round.

A frame is `total: int32, mark: int32, header, body`. `total` counts what follows it; the mark's
high byte is the header's type and its low 24 bits the header's length. Frames follow each other
without any alignment.

**Reading.** The owner asks for room with `get_buffer`, lets the socket write into it, and says with
`received` how much came; complete commands come back. Small frames are read in a buffer that is
used again and again, and their bodies are copied out of it; it starts small, so that thousands of
quiet connections cost little, and doubles while the peer fills it. A large frame gets a buffer of
its own, into which the socket then writes directly; its body is a view of it and is never copied.
That buffer grows with the bytes that really arrive, so a peer that announces much and sends little
takes no memory. All lengths are checked as soon as they are there.

**Writing.** `encode` gives buffers for one `writelines`. The header type is set by the owner, or,
with `mirror`, follows whatever the peer wrote last: an old peer may know only one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NoReturn

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire.command import (
    MAX_HEADER,
    Buffer,
    Command,
    HeaderType,
    decode_binary,
    decode_json,
    encode_header,
)

DEFAULT_LIMIT: Final = 16 * 1024 * 1024
"""What RocketMQ allows for a frame, its first four bytes included: `frameMaxLength`."""

_SHARED_LEAST: Final = 8 * 1024
_SHARED_MOST: Final = 256 * 1024
_SMALL: Final = 64 * 1024
"""Frames up to this size are read in the shared buffer; larger ones get their own."""
_OWN_LEAST: Final = 1024 * 1024

_PREFIX: Final = Struct(">iI")
_pack_prefix = _PREFIX.pack
_unpack_prefix = _PREFIX.unpack_from
_PREFIX_SIZE: Final = 8


class Connection:
    """Turns what a peer sends into commands, and commands into what a peer reads."""

    __slots__ = (
        "_buffer",
        "_end",
        "_most",
        "_need",
        "_start",
        "_view",
        "header_type",
        "limit",
        "mirror",
    )

    def __init__(
        self,
        *,
        limit: int = DEFAULT_LIMIT,
        header_type: HeaderType = HeaderType.JSON,
        mirror: bool = False,
    ) -> None:
        self.limit = limit
        self._most = limit - 4  # of what a frame says of itself, which leaves those four bytes out
        self.header_type = header_type
        self.mirror = mirror
        self._need = 0  # bytes of the frame that has a buffer of its own; 0: none has
        self._buffer = bytearray(_SHARED_LEAST)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

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
        size = len(self._buffer)
        if self._need:
            if self._end == size:
                self._replace(min(self._need, 2 * size))
        elif self._start and size - self._end < size // 4:
            self._replace(size)
        return self._view[self._end :]

    def received(self, count: int) -> Iterator[Command]:
        """The commands that `count` more bytes in the buffer complete, in order.

        Raises `RemoteProtocolError` where a frame cannot be read; what came before it was given.
        """
        self._end += count
        if self._end == len(self._buffer) < _SHARED_MOST and not self._need:
            self._replace(2 * len(self._buffer))
        while (size := self._end - self._start) >= _PREFIX_SIZE:
            total, mark = _unpack_prefix(self._buffer, self._start)
            if not 4 <= total <= self._most or (mark & MAX_HEADER) > total - 4 or mark >> 24 > 1:
                self._refuse(total, mark)
            if size < total + 4:
                if total + 4 > len(self._buffer):
                    self._make_room(total + 4)
                return
            yield self._take(total + 4, mark)

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
        body, more = command.body, command.more
        total = 4 + len(header) + len(body)
        if more:
            total += sum(map(len, more))
        if total > self._most or len(header) > MAX_HEADER:
            raise LocalProtocolError(
                f"{command!r:.200} makes a frame of {total + 4} bytes (header {len(header)}); "
                f"the limit is {self.limit}"
            )
        head = _pack_prefix(total, header_type << 24 | len(header)) + header
        if more:
            return [head, body, *more] if len(body) else [head, *more]
        return [head, body] if len(body) else [head]

    def frame(self, header: bytes, body: Buffer) -> list[Buffer]:
        """The same for a JSON header that is written already."""
        size = len(header)
        total = 4 + size + len(body)
        if total > self._most or size > MAX_HEADER:
            raise LocalProtocolError(
                f"{header!r:.200} makes a frame of {total + 4} bytes (header {size}); "
                f"the limit is {self.limit}"
            )
        return [_pack_prefix(total, size) + header, body]

    def _refuse(self, total: int, mark: int) -> NoReturn:
        header_size = mark & MAX_HEADER
        if not 4 <= total <= self._most:
            why = f"{total} bytes follow; the least is 4, the most {self._most}"
        elif header_size > total - 4:
            why = f"its header is {header_size} bytes long, and it is {total} itself"
        else:
            why = f"its header is of type {mark >> 24}, neither JSON (0) nor binary (1)"
        raise RemoteProtocolError(f"a frame says that {why}")

    def _take(self, size: int, mark: int) -> Command:
        view = self._view
        start = self._start
        body_start = start + _PREFIX_SIZE + (mark & MAX_HEADER)
        header = view[start + _PREFIX_SIZE : body_start]
        command = decode_json(header) if mark <= MAX_HEADER else decode_binary(bytes(header))
        start += size
        if self._need:
            command.body = view[body_start:start]
            self._need = 0
            self._use(bytearray(_SHARED_LEAST), 0)
        else:
            command.body = view[body_start:start].tobytes()
            if start == self._end:
                self._start = self._end = 0
            else:
                self._start = start
        if self.mirror:
            self.header_type = HeaderType(mark >> 24)
        return command

    def _use(self, buffer: bytearray, filled: int) -> None:
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = 0
        self._end = filled

    def _make_room(self, size: int) -> None:
        """Let the begun frame, which the buffer cannot hold, have more of it or one of its own."""
        if size <= _SMALL:
            self._replace(_SMALL)
        elif not self._need:
            self._need = size
            self._replace(min(size, max(_OWN_LEAST, 2 * self.buffered)))

    def _replace(self, size: int) -> None:
        """Go on in a buffer of `size` bytes, with what has begun at its front."""
        pending = self._view[self._start : self._end]
        buffer = bytearray(size)
        buffer[: len(pending)] = pending
        self._use(buffer, len(pending))
