"""One command: the value that a frame carries, and its two header encodings.

A header is either a JSON object or RocketMQ's own binary form; both hold the same members. The
binary form writes the code in 16 bits, so requests with larger codes (POP and its kin, 200050 and
up) always go out as JSON, whatever was asked for.

JSON headers are written with their keys in alphabetical order and absent members left out, exactly
as Java writes them; every value of `extFields` is a string.

RocketMQ: RemotingCommand, RemotingSerializable, RocketMQSerializable.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from enum import IntEnum
from struct import Struct
from typing import Final, TypeAlias

import orjson

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.wire import fastjson, versions
from gantrymq.wire.codes import Language

Buffer: TypeAlias = bytes | bytearray | memoryview

RESPONSE: Final = 1
ONEWAY: Final = 2
PYTHON: Final = 3

MAX_CODE_IN_BINARY: Final = 0x7FFF
MAX_HEADER: Final = 0xFF_FFFF

_LANGUAGE_NAMES: Final = {language.value: language.name for language in Language}
_LANGUAGE_NUMBERS: Final = {language.name: language.value for language in Language}

_FIXED: Final = Struct(">hBhiii")
_I32: Final = Struct(">i")
_pack_i32 = _I32.pack
_unpack_i32 = _I32.unpack_from
_I32_BIAS: Final = 0x8000_0000


_MOST_NAMES: Final = 1024
_NAMES: Final[dict[str, bytes]] = {}
"""Field names as they are written; there are few of them, and they come with every command."""


class HeaderType(IntEnum):
    """How a header is written; the high byte of a frame's second word."""

    JSON = 0
    BINARY = 1


class Command:
    """A request, a one-way request or a response, as it travels.

    `more` are further buffers of the body, which go out after `body` without being joined to it;
    what came in has none.

    RocketMQ: RemotingCommand.
    """

    __slots__ = (
        "body",
        "code",
        "fields",
        "flag",
        "language",
        "more",
        "opaque",
        "remark",
        "version",
    )

    def __init__(
        self,
        code: int,
        *,
        opaque: int = 0,
        flag: int = 0,
        remark: str | None = None,
        fields: dict[str, str] | None = None,
        body: Buffer = b"",
        more: Sequence[Buffer] = (),
        language: int = PYTHON,
        version: int = versions.CURRENT,
    ) -> None:
        self.code = code
        self.opaque = opaque
        self.flag = flag
        self.remark = remark
        self.fields = {} if fields is None else fields
        self.body = body
        self.more = more
        self.language = language
        self.version = version

    @property
    def body_size(self) -> int:
        """How many bytes the whole body has."""
        return len(self.body) + sum(map(len, self.more))

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether this is a request that is never answered."""
        return self.flag & (RESPONSE | ONEWAY) == ONEWAY

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Command):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Command.__slots__)

    __hash__ = None  # type: ignore[assignment]  # commands are changeable values

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "one-way" if self.is_oneway else "request"
        remark = f" {self.remark!r}" if self.remark else ""
        return f"<{kind} {self.code} #{self.opaque}{remark} {self.fields} +{self.body_size} B>"


def encode_header(command: Command, header_type: HeaderType) -> tuple[HeaderType, bytes]:
    """The header's bytes, and the type they are in: codes that binary cannot hold go as JSON."""
    if header_type is HeaderType.BINARY and -0x8000 <= command.code <= MAX_CODE_IN_BINARY:
        return HeaderType.BINARY, _encode_binary(command)
    return HeaderType.JSON, _encode_json(command)


def _encode_json(command: Command) -> bytes:
    header: dict[str, object] = {"code": command.code}
    if command.fields:
        header["extFields"] = command.fields
    header["flag"] = command.flag
    header["language"] = _LANGUAGE_NAMES.get(command.language, "OTHER")
    header["opaque"] = command.opaque
    if command.remark is not None:
        header["remark"] = command.remark
    header["serializeTypeCurrentRPC"] = "JSON"
    header["version"] = command.version
    try:
        return orjson.dumps(header)
    except TypeError as error:
        raise LocalProtocolError(f"the header of {command!r} cannot be written: {error}") from error


def decode_json(data: Buffer) -> Command:
    """The command that a JSON header describes, still without its body."""
    try:
        header = orjson.loads(data)
    except orjson.JSONDecodeError:
        header = fastjson.loads(data)
    command = Command.__new__(Command)
    try:
        code, opaque, flag = header["code"], header["opaque"], header["flag"]
        version, language = header["version"], header["language"]
        if type(code) is type(opaque) is type(flag) is type(version) is int and (
            -1 <= (code | opaque | flag | version) >> 31 <= 0  # 32 bits with their sign
        ):
            command.code, command.opaque, command.flag = code, opaque, flag
            command.version, command.language = version, _LANGUAGE_NUMBERS[language]
            command.remark = header.get("remark")
            command.fields = fields = header.get("extFields") or {}
            command.body = b""
            command.more = ()
            "".join(fields.values())  # the cheapest proof that every value is a string
            if command.remark is None or type(command.remark) is str:
                return command
    except (KeyError, TypeError, AttributeError):
        pass  # not as Java writes it, which need not be wrong
    return _decode_odd_json(header)


def _decode_odd_json(header: object) -> Command:
    """The same for headers with absent members, numbers as text and text as numbers."""
    if type(header) is not dict:
        raise RemoteProtocolError(f"a header has to be a JSON object, not {_kind(header)}")
    remark = header.get("remark")
    return Command(
        _int(header, "code"),
        opaque=_int(header, "opaque"),
        flag=_int(header, "flag"),
        remark=None if remark is None else _text(remark, "remark"),
        fields=_string_fields(header.get("extFields")),
        language=_language(header.get("language")),
        version=_int(header, "version"),
    )


def _language(value: object) -> int:
    """Absent means Java; a name nobody knows counts as OTHER."""
    if value is None:
        return Language.JAVA.value
    if type(value) is str:
        return _LANGUAGE_NUMBERS.get(value.upper(), Language.OTHER.value)
    return Language.OTHER.value


def _int(header: dict[str, object], name: str) -> int:
    value = header.get(name)
    if value is None:
        return 0
    if type(value) is str and len(value) < 12:
        with suppress(ValueError):
            value = int(value)
    if type(value) is not int or (value + _I32_BIAS) >> 32:
        raise RemoteProtocolError(f"header member {name} has to be a 32-bit number: {value!r:.60}")
    return value


def _text(value: object, where: str) -> str:
    """What Java makes of a scalar where it wants a string."""
    if type(value) is str:
        return value
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise RemoteProtocolError(f"header member {where} has to be a string, not {_kind(value)}")


def _string_fields(fields: object) -> dict[str, str]:
    if fields is None:
        return {}
    if type(fields) is not dict:
        raise RemoteProtocolError(f"extFields has to be a JSON object, not {_kind(fields)}")
    named = fields.items()
    return {
        str(name): _text(value, f"extFields.{name}") for name, value in named if value is not None
    }


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")


def _encode_binary(command: Command) -> bytes:
    remark = b"" if command.remark is None else _utf8(command.remark)
    try:
        fixed = _FIXED.pack(
            command.code,
            command.language & 0xFF,
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise LocalProtocolError(f"a number of {command!r:.200} is too large: {error}") from error
    parts: list[bytes] = []
    for name, value in command.fields.items():
        text = _utf8(value)
        parts += (_NAMES.get(name) or _name(name), _pack_i32(len(text)), text)
    fields = b"".join(parts)
    return b"".join((fixed, remark, _pack_i32(len(fields)), fields))


def _name(name: str) -> bytes:
    """A field's name with its length in front, kept for the next time."""
    text = _utf8(name)
    if len(text) > 0x7FFF:
        raise LocalProtocolError(f"field name of {len(text)} bytes; a binary header holds 32767")
    data = len(text).to_bytes(2, "big") + text
    if len(_NAMES) < _MOST_NAMES:
        _NAMES[name] = data
    return data


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text that UTF-8 cannot hold: {error}") from error


def decode_binary(data: bytes) -> Command:
    """The command that a binary header describes, still without its body."""
    size = len(data)
    if size < _FIXED.size + 4:
        raise RemoteProtocolError(
            f"a binary header of {size} bytes; the least is {_FIXED.size + 4}"
        )
    code, language, version, opaque, flag, length = _FIXED.unpack_from(data)
    at = _FIXED.size
    if length < 0 or length > size - at - 4:
        raise RemoteProtocolError(f"remark of {length} bytes at {at} in a header of {size} bytes")
    try:
        remark = str(data[at : at + length], "utf-8") if length else None
        at += length
        (length,) = _unpack_i32(data, at)
        at += 4
        if length < 0 or length > size - at:
            raise RemoteProtocolError(
                f"fields of {length} bytes at {at} in a header of {size} bytes"
            )
        fields = _decode_fields(data, at, at + length)
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(
            f"a binary header holds text that is not UTF-8: {error}"
        ) from error
    return Command(
        code,
        opaque=opaque,
        flag=flag,
        remark=remark,
        fields=fields,
        language=language,
        version=version,
    )


def _decode_fields(data: bytes, at: int, end: int) -> dict[str, str]:
    """Names and values until `end`; an empty name or value stands for none, as in Java."""
    fields: dict[str, str] = {}
    letters = str(data, "latin-1")  # one character a byte: slices of it that are ASCII are the text
    while at < end:
        start = at
        if end - at < 2:
            raise RemoteProtocolError(f"a field name's length is cut off at {at} of {end}")
        length = data[at] << 8 | data[at + 1]
        name_end = at + 2 + length
        if length > 0x7FFF or name_end + 4 > end:
            raise RemoteProtocolError(f"field name of {length} bytes at {start}, {end} is the end")
        name = letters[start + 2 : name_end]
        (length,) = _unpack_i32(data, name_end)
        at = name_end + 4 + length
        if length < 0 or at > end:
            raise RemoteProtocolError(
                f"field value of {length} bytes at {name_end}, {end} is the end"
            )
        if length and name:
            value = letters[name_end + 4 : at]
            if not name.isascii():
                name = str(data[start + 2 : name_end], "utf-8")
            fields[name] = value if value.isascii() else str(data[name_end + 4 : at], "utf-8")
    return fields
