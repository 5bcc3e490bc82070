"""Bodies of messages as people can read them: JSON, MessagePack, Avro, Protobuf, text, hex.

`auto` takes the first that fits: JSON, then UTF-8 text, then MessagePack (a whole map or list, as
anything is *some* MessagePack), then Avro's file form by its magic, then hex. Avro without a file
form needs the schema. Protobuf with a descriptor set and the name of a message has names; without
them the fields are shown by number, as far as bytes tell: lengths that hold text or another message
are shown as such.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from gantrymq.errors import ConfigError

FORMS: Final = ("auto", "json", "text", "msgpack", "avro", "protobuf", "hex", "base64")
_AVRO_FILE: Final = b"Obj\x01"
_WIRE_NAMES: Final = {0: "varint", 1: "fixed64", 2: "bytes", 5: "fixed32"}


class Decoded(NamedTuple):
    """A body as data, and which form it was taken for."""

    data: Any
    form: str
    error: str | None = None
    """Why it is not in the form that was asked for; `data` is hex then."""

    @property
    def text(self) -> str:
        """On one line."""
        if isinstance(self.data, str):
            return self.data
        return json.dumps(self.data, ensure_ascii=False, default=str)


class Decoder:
    """Decodes bodies in one way."""

    def __init__(self, form: str = "auto", schema: Path | None = None, name: str = "") -> None:
        """`schema` is Avro's (JSON) or a Protobuf descriptor set, `name` the message's in that."""
        self._form = form
        self._decode = self._way(schema, name)

    def __call__(self, body: bytes) -> Decoded:
        """What is in the body."""
        if self._form == "auto":
            return guessed(body)
        try:
            return Decoded(self._decode(body), self._form)
        except ConfigError:
            raise
        except Exception as error:
            why = f"not {self._form}: {type(error).__name__}: {error}"
            return Decoded(body.hex(), "hex", why)

    def _way(self, schema: Path | None, name: str) -> Callable[[bytes], Any]:
        if self._form == "avro" and schema is not None:
            return _avro_with(schema)
        if self._form == "protobuf" and schema is not None:
            return _protobuf_with(schema, name)
        return _WAYS.get(self._form, bytes.hex)


def guessed(body: bytes) -> Decoded:
    """A body in the first form that fits."""
    if body[:1] in (b"{", b"[", b'"') or body[:4] in (b"true", b"null") or body[:1].isdigit():
        try:
            return Decoded(json.loads(body), "json")
        except ValueError:
            pass
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return _binary(body)
    return Decoded(text, "text") if is_readable(text) else _binary(body)


def is_readable(text: str) -> bool:
    """Whether a terminal can show it."""
    return all(letter.isprintable() or letter in "\n\r\t" for letter in text)


def _binary(body: bytes) -> Decoded:
    if body[:4] == _AVRO_FILE:
        try:
            return Decoded(_avro_file(body), "avro")
        except Exception:
            return Decoded(body.hex(), "hex")
    try:
        found = _msgpack(body)
    except Exception:
        return Decoded(body.hex(), "hex")
    return (
        Decoded(found, "msgpack") if isinstance(found, dict | list) else Decoded(body.hex(), "hex")
    )


# --- forms ----------------------------------------------------------------------------------------


def _msgpack(body: bytes) -> Any:
    try:
        import msgpack
    except ImportError:
        raise _missing("MessagePack", "msgpack") from None
    return jsonable(msgpack.unpackb(body, strict_map_key=False, timestamp=3))


def _avro_file(body: bytes) -> Any:
    try:
        import fastavro
    except ImportError:
        raise _missing("Avro", "fastavro") from None
    records = [jsonable(one) for one in fastavro.reader(io.BytesIO(body))]
    return records[0] if len(records) == 1 else records


def _avro_with(path: Path) -> Callable[[bytes], Any]:
    try:
        import fastavro
    except ImportError:
        raise _missing("Avro", "fastavro") from None
    schema = fastavro.parse_schema(json.loads(_text_of(path)))

    def decode(body: bytes) -> Any:
        if body[:4] == _AVRO_FILE:
            return _avro_file(body)
        stream = io.BytesIO(body)
        found = fastavro.schemaless_reader(stream, schema, None)
        if stream.tell() != len(body):
            raise ValueError(f"{len(body) - stream.tell()} bytes are left over")
        return jsonable(found)

    return decode


def _protobuf_with(path: Path, name: str) -> Callable[[bytes], Any]:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    except ImportError:
        raise _missing("Protobuf", "protobuf") from None
    if not name:
        raise ConfigError(f"which message of {path} it is, has to be said: --message package.Name")
    files = descriptor_pb2.FileDescriptorSet.FromString(_bytes_of(path))
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    try:
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise ConfigError(f"{path} has no message {name!r}") from None

    def decode(body: bytes) -> Any:
        found = kind.FromString(body)
        return json_format.MessageToDict(found, preserving_proto_field_name=True)

    return decode


def protobuf_fields(body: bytes) -> dict[str, Any]:
    """The fields of a Protobuf message by number, without its description."""
    found: dict[str, Any] = {}
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        number, wire = tag >> 3, tag & 7
        if number == 0 or wire not in _WIRE_NAMES:
            raise ValueError(f"no field begins at byte {at}")
        value, at = _field(body, at, wire)
        key = str(number)
        if key in found:
            before = found[key]
            found[key] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            found[key] = value
    return found


def _field(body: bytes, at: int, wire: int) -> tuple[Any, int]:
    if wire == 0:
        return _varint(body, at)
    if wire == 2:
        size, at = _varint(body, at)
    else:
        size = 8 if wire == 1 else 4
    end = at + size
    if end > len(body):
        raise ValueError(f"a field of {size} bytes at byte {at} of {len(body)}")
    raw = body[at:end]
    return (_inner(raw) if wire == 2 else int.from_bytes(raw, "little")), end


def _inner(raw: bytes) -> Any:
    """What a field with a length holds: text, or a message, or bytes."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = None
    if text is not None and is_readable(text):
        return text
    try:
        return protobuf_fields(raw)
    except (ValueError, RecursionError):
        return raw.hex()


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(body) or shift > 63:
            raise ValueError(f"a number does not end, at byte {at} of {len(body)}")
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _base64(body: bytes) -> str:
    import base64

    return base64.b64encode(body).decode()


def jsonable(value: Any) -> Any:
    """The same with what JSON has no word for as text."""
    if isinstance(value, dict):
        return {str(key): jsonable(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


_WAYS: Final[dict[str, Callable[[bytes], Any]]] = {
    "json": json.loads,
    "text": functools.partial(str, encoding="utf-8", errors="replace"),
    "msgpack": _msgpack,
    "avro": _avro_file,
    "protobuf": protobuf_fields,
    "hex": bytes.hex,
    "base64": _base64,
}


def _missing(what: str, package: str) -> ConfigError:
    return ConfigError(
        f"{what} needs the package {package}: pip install 'gantrymq[formats]', or --decode hex"
    )


def _text_of(path: Path) -> str:
    return _bytes_of(path).decode()


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"--schema: {path} cannot be read: {error.strerror}") from error
