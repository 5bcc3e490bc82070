"""Code lists that stay open: a number nobody has named yet is carried through, not refused."""

from __future__ import annotations

from enum import IntEnum
from typing import Self


class OpenIntEnum(IntEnum):
    """An `IntEnum` in which any other int is a member called `UNKNOWN_n`.

    Such members compare and hash as their number and are not remembered, so that a peer that sends
    a million odd codes costs no memory.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, int):
            return None
        member = int.__new__(cls, value)
        member._name_ = f"UNKNOWN_{value}"
        member._value_ = value
        return member

    @property
    def known(self) -> bool:
        """Whether the list has a name for this number."""
        return self._value_ in type(self)._value2member_map_

    def __reduce_ex__(self, _protocol: object) -> tuple[type[Self], tuple[int]]:
        return type(self), (self._value_,)
