"""JSON as RocketMQ's Java writes it, and as every Java version accepts it.

Java's fastjson writes maps with number keys bare (`{0:"10.0.0.1:10911"}`) and maps with object keys
with the object itself as the key (`{{"brokerName":"b","queueId":1,"topic":"t"}:42}`); it also
accepts single quotes, bare words as names and trailing commas. Strict parsers refuse all of these.

Reading tries the strict parser first, which is right for nearly every frame, and only what that
refuses goes through the tolerant one. In the tree that comes out, keys are strings (`"0"` for `0`)
or `ObjectKey`s. Writing gives strict JSON with sorted keys, quoted numbers included, which all
versions accept; object keys have no strict form, so they are written as Java writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from gantrymq.errors import LocalProtocolError, RemoteProtocolError

MAX_DEPTH: Final = 64
"""How deep objects and arrays may be nested; RocketMQ's own bodies stay below ten."""

_STRICT: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_SORT_KEYS


class ObjectKey(tuple[tuple[str, Any], ...]):
    """A map's key that is itself an object: its members, sorted by name."""

    __slots__ = ()

    @classmethod
    def of(cls, members: Mapping[str, Any]) -> ObjectKey:
        """The key made of `members`."""
        return cls(sorted(members.items()))

    def members(self) -> dict[str, Any]:
        """The object that the key stands for."""
        return dict(self)


def loads(data: bytes | bytearray | memoryview) -> Any:
    """The value that `data` holds, in strict JSON or in Java's dialect."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as strict:
        try:
            text = str(data, "utf-8")
        except UnicodeDecodeError:
            raise RemoteProtocolError(f"JSON that is not UTF-8: {strict}") from strict
        return _Reader(text).document()


def dumps(value: Any, *, bare_numbers: bool = False) -> bytes:
    """`value` as Java reads it; with `bare_numbers`, int keys unquoted as old peers expect."""
    try:
        if not bare_numbers:
            return orjson.dumps(value, option=_STRICT)
    except TypeError:
        pass  # object keys: only the writer below has a form for them
    parts: list[str] = []
    _write(value, parts, bare_numbers, 0)
    try:
        return "".join(parts).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text that UTF-8 cannot hold: {error}") from error


def _write(value: Any, parts: list[str], bare: bool, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise LocalProtocolError(f"JSON nested deeper than {MAX_DEPTH}")
    if isinstance(value, Mapping):
        parts.append("{")
        for position, (text, member) in enumerate(sorted(_members(value, bare, depth))):
            parts += ("," if position else "", text, ":")
            _write(value[member], parts, bare, depth + 1)
        parts.append("}")
    elif isinstance(value, list | tuple | set | frozenset) and not isinstance(value, ObjectKey):
        parts.append("[")
        for position, item in enumerate(value):
            parts.append("," if position else "")
            _write(item, parts, bare, depth + 1)
        parts.append("]")
    else:
        parts.append(_scalar(value))


def _members(value: Mapping[Any, Any], bare: bool, depth: int) -> list[tuple[str, Any]]:
    return [(_key(key, bare, depth), key) for key in value]


def _key(key: Any, bare: bool, depth: int) -> str:
    if isinstance(key, ObjectKey):
        parts: list[str] = []
        _write(key.members(), parts, bare, depth + 1)
        return "".join(parts)
    if bare and type(key) is int:
        return str(key)
    return _scalar(key if isinstance(key, str) else str(key))


def _scalar(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError as error:
        raise LocalProtocolError(f"JSON cannot hold {value!r:.80}: {error}") from error


_SPACE: Final = re.compile(r"[ \t\r\n\f\b]*")
_NUMBER: Final = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[LBSFD]?")
_INTEGER: Final = re.compile(r"-?\d{1,19}")
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_PLAIN: Final = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_ESCAPES: Final = {
    "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "0": "\0",
    "/": "/", "\\": "\\", '"': '"', "'": "'",
}  # fmt: skip
_HEX: Final = re.compile(r"[0-9A-Fa-f]+")
_WORDS: Final = {"true": True, "false": False, "null": None, "NaN": None}


class _Reader:
    """A recursive descent over one text, for what the strict parser refused."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> Any:
        value = self.value(0)
        if self.peek():
            raise self.error("text after the end of the value")
        return value

    def error(self, what: str) -> RemoteProtocolError:
        near = self.text[max(0, self.at - 20) : self.at + 20]
        return RemoteProtocolError(f"JSON: {what} at character {self.at}, near {near!r}")

    def peek(self) -> str:
        """The next character that is not a blank; empty at the end."""
        space = _SPACE.match(self.text, self.at)
        if space:
            self.at = space.end()
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self.error(f"nesting deeper than {MAX_DEPTH}")
        first = self.peek()
        if first == "{":
            return self.members(depth)
        if first == "[":
            return self.items(depth)
        if first in ('"', "'"):
            return self.string(first)
        if word := _WORD.match(self.text, self.at):
            return self.word(word)
        return self.number()

    def members(self, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        self.at += 1
        while self.peek() != "}":
            key = self.key(depth)
            if self.peek() != ":":
                raise self.error("a colon is missing")
            self.at += 1
            found[key] = self.value(depth + 1)
            self.separator("}")
        self.at += 1
        return found

    def items(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self.at += 1
        while self.peek() != "]":
            found.append(self.value(depth + 1))
            self.separator("]")
        self.at += 1
        return found

    def separator(self, end: str) -> None:
        following = self.peek()
        if following == ",":
            self.at += 1
        elif following != end:
            raise self.error(f"a comma or {end} is missing")

    def key(self, depth: int) -> str | ObjectKey:
        first = self.peek()
        if first in ('"', "'"):
            return self.string(first)
        if first == "{":
            return self.object_key(depth)
        if word := _WORD.match(self.text, self.at):
            self.at = word.end()
            return word.group()
        if number := _INTEGER.match(self.text, self.at):
            self.at = number.end()
            return number.group()
        raise self.error("a name is missing")

    def object_key(self, depth: int) -> ObjectKey:
        members = self.value(depth + 1)
        if any(isinstance(member, dict | list) for member in members.values()):
            raise self.error("an object that is a key has to be flat; this one, ending")
        if any(isinstance(name, ObjectKey) for name in members):
            raise self.error("an object that is a key has to have plain names; this one, ending")
        return ObjectKey.of(members)

    def string(self, quote: str) -> str:
        plain = _PLAIN[quote]
        start = self.at
        self.at += 1
        parts: list[str] = []
        while run := plain.match(self.text, self.at):
            parts.append(run.group())
            self.at = run.end()
            stop = self.text[self.at : self.at + 1]
            self.at += 1
            if stop == quote:
                return self.checked("".join(parts), start)
            if not stop:
                break
            parts.append(self.escape())
        self.at = start
        raise self.error("a string that does not end")

    def checked(self, text: str, start: int) -> str:
        """Escaped surrogates joined to the characters they stand for; a lone one is refused."""
        if text.isascii():
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.at = start
            raise self.error("half a surrogate pair in the string") from None

    def escape(self) -> str:
        letter = self.text[self.at : self.at + 1]
        self.at += 1
        if letter in ("u", "x"):
            width = 4 if letter == "u" else 2
            digits = self.text[self.at : self.at + width]
            if len(digits) == width and _HEX.fullmatch(digits):
                self.at += width
                return chr(int(digits, 16))
        elif letter in _ESCAPES:
            return _ESCAPES[letter]
        raise self.error("an escape nobody knows")

    def word(self, word: re.Match[str]) -> Any:
        if word.group() not in _WORDS:
            raise self.error(f"the word {word.group()!r:.40} has no meaning")
        self.at = word.end()
        return _WORDS[word.group()]

    def number(self) -> int | float:
        number = _NUMBER.match(self.text, self.at)
        if not number:
            raise self.error("a value is missing")
        self.at = number.end()
        text = number.group().rstrip("LBSFD")
        if len(text) > 400:
            raise self.error("a number of more than 400 digits, ending")
        whole = text.lstrip("-").isdigit()
        if whole and len(text) > 40:
            raise self.error("an integer of more than 40 digits, ending")
        return int(text) if whole else float(text)
