"""Text read as Java's number classes read it: what they take, what they refuse, and how they order.

RocketMQ: ComparisonExpression, which leaves this to Integer, Long, Double and Boolean.
"""

from __future__ import annotations

import math
import re
from typing import Final

from gantrymq.wire.javahash import INT_MAX, INT_MIN

LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1

_WHOLE: Final = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")
_DECIMAL: Final = re.compile(
    r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)"
)
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What Java's String.trim takes off."""


class Unfit(Exception):
    """A property cannot be read as what it is compared with: the message does not match."""


def int32(raw: bytes) -> int:
    """A property as Java's Integer.valueOf reads it."""
    if raw.isdigit() and len(raw) < 10:
        return int(raw)
    return _integer(raw, INT_MIN, INT_MAX)


def int64(raw: bytes) -> int:
    """A property as Java's Long.valueOf reads it."""
    if raw.isdigit() and len(raw) < 19:
        return int(raw)
    return _integer(raw, LONG_MIN, LONG_MAX)


def _integer(raw: bytes, least: int, most: int) -> int:
    text = raw.decode("utf-8", "replace")
    if not _WHOLE.fullmatch(text):
        raise Unfit(f"{text:.100} is not a whole number")
    try:
        number = int(text)
    except ValueError as error:  # more digits than Python reads
        raise Unfit(f"{text:.100} has {len(text)} digits") from error
    if not least <= number <= most:
        raise Unfit(f"{text} is not between {least} and {most}")
    return number


def double(raw: bytes) -> float:
    """A property as Java's Double.valueOf reads it."""
    text = raw.decode("utf-8", "replace").strip(_BLANKS)
    if _DECIMAL.fullmatch(text):
        return float(text[:-1] if text[-1] in "fFdD" else text)
    if found := _HEXADECIMAL.fullmatch(text):
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    raise Unfit(f"{text:.100} is not a number")


def comparable(raw: bytes) -> float:
    """A property for a comparison with a literal: NaN is greater than every number."""
    number = double(raw)
    return number if number == number else math.inf


def truth(raw: bytes) -> bool:
    """A property as Java's Boolean.valueOf reads it."""
    return raw.lower() == b"true"


def order_of(number: float) -> tuple[float, int]:
    """What orders doubles as Java does: -0.0 before 0.0, NaN after all others."""
    if number != number:
        return math.inf, 1
    return number, 0 if number or math.copysign(1, number) > 0 else -1
