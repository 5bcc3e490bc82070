"""Arrays over the bytes of a buffer: ranges in it, and gathers from any byte, aligned or not.

The trick behind the gathers is a view that overlaps itself: an item of some width at every single
byte. Indexing it with positions copies whole items, whatever their width, in one call; the
alternative, a matrix of byte positions, is twenty times slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]


class Ranges(NamedTuple):
    """For each row where something begins and ends in the buffer; -1 and -1 where it is missing."""

    starts: Ints
    ends: Ints


def at_every_byte(data: Bytes, item: str) -> NDArray[Any]:
    """A view of `data` as items that overlap: one begins at every byte that has room for it."""
    kind = np.dtype(item)
    return np.ndarray((max(len(data) - kind.itemsize + 1, 0),), kind, data, 0, (1,))


def gather(data: Bytes, starts: Ints, width: int) -> NDArray[np.void]:
    """`width` bytes from each of the ascending `starts` as an item; zeros follow the last byte."""
    kind = f"V{width}"
    items = at_every_byte(data, kind)
    inside = int(np.searchsorted(starts, len(items)))
    gathered: NDArray[np.void] = items[starts[:inside]]
    if inside == len(starts):
        return gathered
    first = int(starts[inside])
    tail = np.concatenate((data[first:], np.zeros(width, np.uint8)))
    return np.concatenate((gathered, at_every_byte(tail, kind)[starts[inside:] - first]))


def leading(whole: Mask) -> int:
    """How many are true before the first that is not."""
    return len(whole) if whole.all() else int(whole.argmin())
