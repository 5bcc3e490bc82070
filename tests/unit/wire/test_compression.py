"""Compression: every type and level, bombs, damage, and what Java can read."""

from __future__ import annotations

import tracemalloc
import zlib

import pytest

from gantrymq.errors import ConfigError, RemoteProtocolError
from gantrymq.wire import compression, flags
from gantrymq.wire.flags import Compression, Transaction

TEXT = b"All work and no play makes Jack a dull boy. " * 3000
KINDS = pytest.mark.parametrize("kind", Compression)


@KINDS
def test_every_level_is_read_again(kind: Compression) -> None:
    for level in (None, *compression.LEVELS[kind]):
        packed = compression.compress(TEXT, kind, level)
        assert len(packed) <= len(TEXT) + 64
        assert compression.decompress(packed, kind) == TEXT
    assert compression.decompress(compression.compress(b"", kind), kind) == b""


@KINDS
def test_a_level_that_there_is_not_names_those_that_there_are(kind: Compression) -> None:
    level = compression.LEVELS[kind].stop
    with pytest.raises(ConfigError, match=f"level {level} is not one of {kind.name}.*{level - 1}"):
        compression.compress(TEXT, kind, level)


@KINDS
def test_the_limit_is_exact(kind: Compression) -> None:
    packed = compression.compress(TEXT, kind)
    assert compression.decompress(memoryview(packed), kind, limit=len(TEXT)) == TEXT
    with pytest.raises(RemoteProtocolError, match=f"limit, {len(TEXT) - 1} bytes"):
        compression.decompress(packed, kind, limit=len(TEXT) - 1)


@KINDS
def test_a_bomb_takes_no_more_memory_than_the_limit_allows(kind: Compression) -> None:
    limit = 1024 * 1024
    bomb = compression.compress(bytes(64 * limit), kind)
    tracemalloc.start()
    with pytest.raises(RemoteProtocolError, match=f"{kind.name} body of {len(bomb)} bytes becomes"):
        compression.decompress(bomb, kind, limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * limit


@KINDS
@pytest.mark.parametrize("keep", [0, 1, 5, 20, -1, -5])
def test_a_body_that_ends_early_is_refused(kind: Compression, keep: int) -> None:
    packed = compression.compress(TEXT, kind)[:keep]
    with pytest.raises(RemoteProtocolError, match=f"{kind.name} body of {len(packed)} bytes"):
        compression.decompress(packed, kind)


@KINDS
def test_a_body_that_goes_on_after_its_end_is_refused(kind: Compression) -> None:
    packed = compression.compress(TEXT, kind) + b"more"
    with pytest.raises(RemoteProtocolError, match="goes on for 4 bytes after its end"):
        compression.decompress(packed, kind)


@KINDS
def test_bytes_of_another_kind_are_refused(kind: Compression) -> None:
    with pytest.raises(RemoteProtocolError, match=f"{kind.name} body of 1000 bytes is damaged"):
        compression.decompress(b"\x55" * 1000, kind)


def test_lz4_blocks_stand_alone_because_java_reads_no_others() -> None:
    for level in (0, 5):
        frame = compression.compress(TEXT, Compression.LZ4, level)
        assert frame[:4] == bytes.fromhex("04224d18")
        assert frame[4] & 0x20, "the frame's blocks are linked"


def test_size_alone_decides_what_is_compressed() -> None:
    assert compression.compress_large(b"A" * 4095) == (b"A" * 4095, 0)
    body, bits = compression.compress_large(b"A" * 4096)
    assert (body, bits) == (zlib.compress(b"A" * 4096, 5), 0x301)
    body, bits = compression.compress_large(b"A", Compression.LZ4, threshold=1)
    assert bits == 0x101
    assert compression.decompress(body, Compression.LZ4) == b"A"


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0x000, None),
        (0x300, None),
        (0x001, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x331, Compression.ZLIB),
    ],
)
def test_the_system_flag_says_how_a_body_is_compressed(
    sys_flag: int, kind: Compression | None
) -> None:
    assert flags.compression_of(sys_flag) is kind
    assert flags.compression_of(flags.without_compression(sys_flag)) is None
    assert flags.without_compression(sys_flag) == sys_flag & 0x30


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_compression_types_nobody_knows_are_refused(number: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"compression type {number}"):
        flags.compression_of(0x1 | number << 8)


def test_transaction_states_replace_each_other() -> None:
    sys_flag = 0x331
    for state in Transaction:
        sys_flag = flags.with_transaction(sys_flag, state)
        assert flags.transaction_of(sys_flag) is state
        assert sys_flag & ~0xC == 0x331
