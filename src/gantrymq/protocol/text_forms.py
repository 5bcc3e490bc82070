"""Texts with a structure of their own, inside headers and as bodies.

Configuration travels as Java properties, one `key=value` a line; changes to attributes as
`+key=value,-key`; lists joined by a comma or a semicolon; a data version as JSON inside a field.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeAlias

from gantrymq.errors import RemoteProtocolError
from gantrymq.protocol.declaring import Form
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.scalars import Unreadable, kind, utf8
from gantrymq.wire import fastjson
from gantrymq.wire.command import Buffer


def read_properties(data: Buffer) -> dict[str, str]:
    """Lines of `key=value`; comments are passed over, blanks around key and value cut off."""
    found: dict[str, str] = {}
    for line in utf8(data).split("\n"):
        stripped = line.strip()
        if stripped and stripped[0] not in "#!":
            key, _, value = stripped.partition("=")
            found[key.rstrip()] = value.lstrip()
    return found


def write_properties(properties: dict[str, str]) -> bytes:
    """The same text, sorted by key as Java sorts it."""
    for key, value in properties.items():
        if not key or key != key.strip() or key[0] in "#!" or any(c in key for c in "=\n\r"):
            raise ValueError(f"a property cannot be called {key!r:.60}")
        if value != value.strip() or any(c in value for c in "\n\r"):
            raise ValueError(f"property {key} cannot be {value!r:.60}")
    return "".join(f"{key}={properties[key]}\n" for key in sorted(properties)).encode()


PropertiesText: TypeAlias = Annotated[dict[str, str], Form(read_properties, write_properties)]
"""A body of Java properties."""


def read_attributes(text: str) -> dict[str, str]:
    """`+a=1,-b` as `{"+a": "1", "-b": ""}`: what to set and what to drop, with the sign."""
    found: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in text.split(","))):
        key, equals, value = item.partition("=")
        if len(key) < 2 or key[0] not in "+-" or (key[0] == "+") != bool(equals):
            raise Unreadable(f"an attribute is changed by +key=value or -key, not {item!r:.60}")
        found[key] = value
    return found


def write_attributes(attributes: dict[str, str]) -> str:
    """The text for such changes."""
    return ",".join(
        f"{key}={value}" if key[:1] == "+" else key for key, value in attributes.items()
    )


AttributeChanges: TypeAlias = Annotated[dict[str, str], Form(read_attributes, write_attributes)]
"""Changes to the attributes of a topic or group, in a header."""


def _joined(separator: str) -> Form:
    def write(items: Iterable[str]) -> str:
        texts = tuple(items)
        if any(separator in text or not text for text in texts):
            raise ValueError(
                f"names joined by {separator!r} cannot be empty or contain it: {texts}"
            )
        return separator.join(texts)

    def read(text: str) -> tuple[str, ...]:
        return tuple(filter(None, text.split(separator)))

    return Form(read, write)


CommaJoined: TypeAlias = Annotated[tuple[str, ...], _joined(",")]
"""Names in one header field, as `a,b`."""
SemicolonJoined: TypeAlias = Annotated[tuple[str, ...], _joined(";")]
"""Names in one header field, as `a;b`."""


def json_in_text(cls: type) -> Form:
    """The form of a declared class that a header field holds as JSON text; no text is `{}`."""

    def read(text: str) -> Any:
        if not text.strip():  # what Java's tools say of a table that they have not seen yet
            return shape(cls).read({})
        try:
            tree = fastjson.loads(text.encode("utf-8", "replace"))
        except RemoteProtocolError as error:
            raise Unreadable(str(error)) from None
        return shape(cls).read(tree)

    def write(value: Any) -> str:
        return fastjson.dumps(shape(cls).write(value)).decode()

    return Form(read, write)


def read_bits(value: Any) -> int:
    """A set of bits from base64 of its bytes, the lowest first."""
    if not isinstance(value, str):
        raise Unreadable(f"has to be a bit set in base64, not {kind(value)}")
    try:
        return int.from_bytes(b64decode(value, validate=True), "little")
    except (Base64Error, ValueError) as error:
        raise Unreadable(f"has to be a bit set in base64: {error}") from None


def write_bits(bits: int) -> str:
    """The same base64, without empty bytes at the end."""
    if bits < 0:
        raise ValueError(f"a bit set cannot be negative, and is {bits}")
    return b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


BitSet: TypeAlias = Annotated[int, Form(read_bits, write_bits)]
"""Bits in JSON, as one number whose bit i is set."""


def bytes_form(read: Callable[[bytes], Any], write: Callable[[Any], bytes]) -> Form:
    """The form of a body that is neither JSON nor text."""
    return Form(lambda body: read(bytes(body)), write)
