"""Java's `String.hashCode` and its 32-bit arithmetic, because their results are stored and sent.

The tag code in a consume queue, the key hash of an index file and the queue that a sharding key
selects are all this number: `h = 31·h + unit` over the UTF-16 units of the text, in a signed 32-bit
`int` that wraps. Python's integers do not wrap, so the sum is cut back to 32 bits, but only once in
a while: adding to a growing integer is quicker than masking at every character, up to a point.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

INT_MAX: Final = 0x7FFF_FFFF
INT_MIN: Final = -0x8000_0000

_INT_MASK: Final = 0xFFFF_FFFF
_UNITS_PER_CUT: Final = 64  # measured: beyond this the growing integer costs more than the mask


def java_hash(text: str) -> int:
    """`text.hashCode()` as Java computes it.

    RocketMQ: String.hashCode (tags, index keys, SelectMessageQueueByHash).
    """
    units = _utf16_units(text)
    value = 0
    for start in range(0, len(units), _UNITS_PER_CUT):
        for unit in units[start : start + _UNITS_PER_CUT]:
            value = 31 * value + unit
        value &= _INT_MASK
    return value if value <= INT_MAX else value - 0x1_0000_0000


def int32(value: int) -> int:
    """`value` as a Java `int` would hold it: the low 32 bits, signed."""
    value &= _INT_MASK
    return value if value <= INT_MAX else value - 0x1_0000_0000


def java_remainder(dividend: int, divisor: int) -> int:
    """Java's `dividend % divisor`, which has the sign of the dividend, not of the divisor."""
    remainder = abs(dividend) % abs(divisor)
    return remainder if dividend >= 0 else -remainder


def _utf16_units(text: str) -> Sequence[int]:
    if text.isascii():
        return text.encode("ascii")
    data = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(data) // 2}H", data)
