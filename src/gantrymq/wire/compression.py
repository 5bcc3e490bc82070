"""Compressed message bodies: zlib streams, LZ4 frames and zstd frames, read with a limit on size.

A producer compresses a body of 4,096 bytes and more, never a batch, and says so in the system flag.
What it wrote decides nothing about what a reader gets: a few kilobytes can stand for a gigabyte. So
`decompress` asks each library for no more than its limit and one byte, and takes what exceeds it,
ends early or goes on after its end for what it is, a fault of the peer. While it joins the output
it may hold twice the limit, no more.

LZ4 frames are written in blocks that stand alone, because Java's reader knows no others; the
library's own default is to link them.
"""

from __future__ import annotations

import sys
import zlib
from typing import Final, Protocol

from lz4.frame import LZ4FrameDecompressor
from lz4.frame import compress as lz4_compress

from gantrymq.errors import ConfigError, RemoteProtocolError
from gantrymq.wire.command import Buffer
from gantrymq.wire.flags import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DEFAULT_THRESHOLD: Final = 4096
"""RocketMQ: compressMsgBodyOverHowmuch."""
DEFAULT_LIMIT: Final = 16 * 1024 * 1024
"""How large a body may become, unless the caller says otherwise: as large as a frame may be."""
DEFAULT_LEVELS: Final = {Compression.ZLIB: 5, Compression.LZ4: 0, Compression.ZSTD: 5}
"""Java's level, 5; but its LZ4 writer knows no levels, only the fast mode that is level 0 here."""
LEVELS: Final = {
    Compression.ZLIB: range(-1, 10),
    Compression.LZ4: range(17),
    Compression.ZSTD: range(-7, 23),
}


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Buffer, max_length: int, /) -> bytes: ...


def compress(data: Buffer, kind: Compression, level: int | None = None) -> bytes:
    """`data` compressed; without a level, as Java does it."""
    if level is None:
        level = DEFAULT_LEVELS[kind]
    elif level not in LEVELS[kind]:
        allowed = LEVELS[kind]
        raise ConfigError(
            f"compression level {level} is not one of {kind.name}, which go from "
            f"{allowed.start} to {allowed.stop - 1}"
        )
    if kind is Compression.ZLIB:
        return zlib.compress(data, level)
    if kind is Compression.ZSTD:
        return zstd.compress(data, level)
    frame: bytes = lz4_compress(data, compression_level=level, block_linked=False)
    return frame


def compress_large(
    body: bytes,
    kind: Compression = Compression.ZLIB,
    level: int | None = None,
    *,
    threshold: int = DEFAULT_THRESHOLD,
) -> tuple[bytes, int]:
    """The body to send, and the bits its system flag gains; 0 where it is sent as it is.

    Size alone decides, as in Java: what does not shrink is compressed all the same.
    """
    if len(body) < threshold:
        return body, 0
    return compress(body, kind, level), kind.bits


def decompress(data: Buffer, kind: Compression, limit: int = DEFAULT_LIMIT) -> bytes:
    """What `data` was before it was compressed: at most `limit` bytes."""
    decompressor = _decompressor(kind)
    try:
        content = decompressor.decompress(data, limit + 1)
    except (zlib.error, zstd.ZstdError, RuntimeError, EOFError) as error:
        raise RemoteProtocolError(
            f"{kind.name} body of {len(data)} bytes is damaged: {error}"
        ) from error
    if len(content) > limit:
        raise RemoteProtocolError(
            f"{kind.name} body of {len(data)} bytes becomes larger than the limit, {limit} bytes"
        )
    if not decompressor.eof:
        raise RemoteProtocolError(
            f"{kind.name} body of {len(data)} bytes ends too early, after {len(content)} of content"
        )
    if decompressor.unused_data:
        raise RemoteProtocolError(
            f"{kind.name} body of {len(data)} bytes goes on for {len(decompressor.unused_data)} "
            f"bytes after its end"
        )
    return content


def _decompressor(kind: Compression) -> _Decompressor:
    if kind is Compression.ZLIB:
        return zlib.decompressobj()
    if kind is Compression.ZSTD:
        return zstd.ZstdDecompressor()
    return _Lz4Decompressor()


class _Lz4Decompressor:
    """The LZ4 library's decompressor with the arguments of the other two."""

    __slots__ = ("_inner", "eof", "unused_data")

    def __init__(self) -> None:
        self._inner = LZ4FrameDecompressor()
        self.eof = False
        self.unused_data = b""

    def decompress(self, data: Buffer, max_length: int) -> bytes:
        content: bytes = self._inner.decompress(data, max_length=max_length)
        self.eof = self._inner.eof
        self.unused_data = self._inner.unused_data or b""
        return content
