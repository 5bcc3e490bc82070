"""A Java process with RocketMQ's own codecs, asked in big batches over its stdin and stdout.

Values travel as the packed form of `Packed.java`: one tag byte each, no JSON, since JSON is one of
the things under test.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import jars

SOURCES: Final = sorted((Path(__file__).parent / "java").glob("*.java"))

_OPTIONS: Final = ("-Xmx1g", "-XX:+UseSerialGC", "-Dfile.encoding=UTF-8")
_I32: Final = struct.Struct(">i")
_TAGGED_I32: Final = struct.Struct(">ci")
_TAGGED_I64: Final = struct.Struct(">cq")
_TAGGED_F64: Final = struct.Struct(">cd")
_I64: Final = struct.Struct(">q")
_F64: Final = struct.Struct(">d")


class PeerRefused(AssertionError):
    """Java's codec threw where it should have given a value."""


class JavaPeer:
    """One JVM with the jars of one RocketMQ release; a context manager."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._home = tempfile.mkdtemp(prefix="gantry-peer-")
        self._errors = Path(self._home, "stderr").open("wb")  # noqa: SIM115 - closed by close()
        options = (*_OPTIONS, f"-Duser.home={self._home}")
        self._process = subprocess.Popen(
            jars.java(version, "server", "CodecPeer", *options, sources=SOURCES),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process; it ends by itself when its input does."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
        shutil.rmtree(self._home, ignore_errors=True)

    def ask(self, operation: str, items: Iterable[object]) -> list[Any]:
        """What Java makes of each item; raises at the first that it refuses."""
        asked = list(items)
        values = []
        for index, (done, value) in enumerate(self.attempt(operation, asked)):
            if not done:
                raise PeerRefused(
                    f"{operation} with {self.version}, item {index} {asked[index]!r:.1500}: {value}"
                )
            values.append(value)
        return values

    def attempt(self, operation: str, items: Iterable[object]) -> list[tuple[bool, Any]]:
        """For each item, whether Java could, and its value or the text of its error."""
        request = pack({"op": operation, "items": list(items)})
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the peer was started without pipes")
        try:
            self._process.stdin.write(_I32.pack(len(request)))
            self._process.stdin.write(request)
            self._process.stdin.flush()
            (size,) = _I32.unpack(self._read(4))
            return [(done, value) for done, value in unpack(self._read(size))]
        except (BrokenPipeError, EOFError) as error:
            said = Path(self._home, "stderr").read_text(errors="replace")
            raise RuntimeError(f"the Java peer died during {operation}: {said[-2000:]}") from error

    def _read(self, size: int) -> bytes:
        data = self._process.stdout.read(size) if self._process.stdout else b""
        if len(data) < size:
            raise EOFError
        return data


def pack(value: object) -> bytes:
    """`value` in packed form: None, bool, int, float, str, bytes, and lists and dicts of them."""
    parts: list[bytes] = []
    _pack(value, parts.append)
    return b"".join(parts)


def _pack(value: object, put: Any) -> None:
    match value:
        case None:
            put(b"n")
        case True:
            put(b"t")
        case False:
            put(b"f")
        case int():
            put(_TAGGED_I64.pack(b"i", value))
        case float():
            put(_TAGGED_F64.pack(b"d", value))
        case str():
            _pack_sized(b"s", value.encode(), put)
        case bytes() | bytearray() | memoryview():
            _pack_sized(b"b", bytes(value), put)
        case list() | tuple():
            put(_TAGGED_I32.pack(b"l", len(value)))
            for item in value:
                _pack(item, put)
        case dict():
            put(_TAGGED_I32.pack(b"m", len(value)))
            for key, item in value.items():
                _pack(key, put)
                _pack(item, put)
        case _:
            raise TypeError(f"{type(value).__name__} has no packed form")


def _pack_sized(tag: bytes, data: bytes, put: Any) -> None:
    put(_TAGGED_I32.pack(tag, len(data)))
    put(data)


def unpack(data: bytes) -> Any:
    """The value that `pack` was given."""
    value, end = _unpack(data, 0)
    if end != len(data):
        raise ValueError(f"{len(data) - end} bytes after the packed value")
    return value


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    tag = data[at : at + 1]
    at += 1
    match tag:
        case b"n":
            return None, at
        case b"t":
            return True, at
        case b"f":
            return False, at
        case b"i":
            return _I64.unpack_from(data, at)[0], at + 8
        case b"d":
            return _F64.unpack_from(data, at)[0], at + 8
    (size,) = _I32.unpack_from(data, at)
    at += 4
    match tag:
        case b"s":
            return str(data[at : at + size], "utf-8"), at + size
        case b"b":
            return data[at : at + size], at + size
        case b"l":
            return _unpack_list(data, at, size)
        case b"m":
            return _unpack_map(data, at, size)
    raise ValueError(f"no packed value begins with tag {tag!r}")


def _unpack_list(data: bytes, at: int, size: int) -> tuple[list[Any], int]:
    items = []
    for _ in range(size):
        item, at = _unpack(data, at)
        items.append(item)
    return items, at


def _unpack_map(data: bytes, at: int, size: int) -> tuple[dict[Any, Any], int]:
    items = {}
    for _ in range(size):
        key, at = _unpack(data, at)
        items[key], at = _unpack(data, at)
    return items, at
