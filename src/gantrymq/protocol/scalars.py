"""Single values: text in a header, scalars in JSON, and what is wrong with unreadable ones.

Headers carry every value as text. Most numbers in them are small (queue ids, counts, flags), so
those are looked up in a table, which is faster than working them out; the table's answer is also
known to be in range. Everything else goes the checked way.
"""

from __future__ import annotations

from math import isfinite
from typing import Any, Final

INT32_LEAST: Final = -(1 << 31)
INT32_MOST: Final = (1 << 31) - 1
INT64_LEAST: Final = -(1 << 63)
INT64_MOST: Final = (1 << 63) - 1

_SMALL: Final = range(-1, 1025)

_LONGEST: Final = 20
"""Characters in the longest 64-bit number, sign included."""


class Unreadable(ValueError):
    """A value that is not what its declaration says; knows the way down to it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.path: tuple[str, ...] = ()

    def under(self, step: str) -> Unreadable:
        """The same, seen from the value around it, where it is called `step`."""
        self.path = (step, *self.path)
        return self

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.what}" if self.path else self.what


def kind(value: object) -> str:
    """What a JSON value is, in words."""
    if isinstance(value, str):
        return f"the string {value!r:.60}"
    if value is None or isinstance(value, bool | int | float):
        return f"{value!r:.60}"
    return "an object" if isinstance(value, dict) else "an array"


def missing() -> Unreadable:
    """What to raise for a value that has to be there."""
    return Unreadable("has to be there and is not")


def number_in(text: str, least: int, most: int) -> int:
    """The number that `text` is, as Java parses it: a sign perhaps, digits, nothing else."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not digits.isdecimal() or len(digits) > 4 * _LONGEST:
        raise Unreadable(f"has to be a whole number, not {text!r:.60}")
    return within(int(text), least, most)


def within(number: int, least: int, most: int) -> int:
    """`number` itself, if the wire has room for it."""
    if not isinstance(number, int):
        raise Unreadable(f"has to be a whole number, not {number!r:.60}")
    if not least <= number <= most:
        raise Unreadable(f"has to be from {least} to {most}, and is {_short(number)}")
    return number


def _short(number: int) -> str:
    bits = number.bit_length()
    return str(number) if bits < 128 else f"a number of {bits} bits"


def int32(text: str) -> int:
    """Read a 32-bit number."""
    return number_in(text, INT32_LEAST, INT32_MOST)


def int64(text: str) -> int:
    """Read a 64-bit number."""
    return number_in(text, INT64_LEAST, INT64_MOST)


def int32_text(number: int) -> str:
    """Write a 32-bit number."""
    return int.__repr__(within(number, INT32_LEAST, INT32_MOST))


def int64_text(number: int) -> str:
    """Write a 64-bit number."""
    return int.__repr__(within(number, INT64_LEAST, INT64_MOST))


def truth(text: str) -> bool:
    """`true` in any case is true; everything else is false, as in Java."""
    return text.lower() == "true"


def double(text: str) -> float:
    """Read a floating-point number."""
    try:
        return float(text)
    except ValueError:
        raise Unreadable(f"has to be a number, not {text!r:.60}") from None


class _NumberOf(dict[str, int]):
    """Text to 32-bit number: looked up, or worked out where the table has none."""

    def __missing__(self, text: str) -> int:
        return int32(text)


class _TextOf(dict[int, str]):
    """The other way round."""

    def __missing__(self, number: int) -> str:
        return int32_text(number)


class _TruthOf(dict[str, bool]):
    """Text to boolean, in the two spellings that occur and in all others."""

    def __missing__(self, text: str) -> bool:
        return truth(text)


NUMBER_OF: Final = _NumberOf((str(n), n) for n in _SMALL)
TEXT_OF: Final = _TextOf((n, str(n)) for n in _SMALL)
TRUTH_OF: Final = _TruthOf(true=True, false=False)


def utf8(data: bytes | bytearray | memoryview) -> str:
    """The text that some bytes are."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise Unreadable(f"has to be text in UTF-8: {error}") from None


def json_text(value: Any) -> str:
    """A string, or the text of another scalar, as Java converts it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise Unreadable(f"has to be a string, not {kind(value)}")


def json_int(value: Any, least: int, most: int) -> int:
    """A whole number, also as text, as a boolean, or with a fraction, which is dropped."""
    if isinstance(value, str):
        return number_in(value.strip(), least, most)
    if isinstance(value, float) and isfinite(value):
        value = int(value)
    if not isinstance(value, int):
        raise Unreadable(f"has to be a whole number, not {kind(value)}")
    return within(int(value), least, most)


def json_int32(value: Any) -> int:
    """Read a 32-bit number."""
    return json_int(value, INT32_LEAST, INT32_MOST)


def json_int64(value: Any) -> int:
    """Read a 64-bit number."""
    return json_int(value, INT64_LEAST, INT64_MOST)


def json_bool(value: Any) -> bool:
    """A boolean, also as text or as a number."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value != 0
    if isinstance(value, str):
        return value == "1" or truth(value)
    raise Unreadable(f"has to be true or false, not {kind(value)}")


def json_float(value: Any) -> float:
    """A floating-point number, also as text."""
    if isinstance(value, str):
        return double(value)
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            pass
    raise Unreadable(f"has to be a number, not {kind(value)}")
