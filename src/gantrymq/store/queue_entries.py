"""The entries of a consume queue: their bytes, and finding one among many.

```
entry, 20 bytes:  0 log offset i64 | 8 size of the record i32 | 12 tags code i64
blank entry:      0                | 2³¹-1                    | 0
```

Log offsets grow from entry to entry, and so do store times unless a clock was set back; both can be
looked for by halving. Blank entries have neither. They are passed by: what holds for one is what
holds for the next entry that is none.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias

from gantrymq.store.shapes import Entry

ENTRY: Final = Struct(">qiq")
ENTRY_SIZE: Final = ENTRY.size
BLANK_SIZE: Final = 2**31 - 1
"""What blank entries have for the size of a record; no record is that large."""
BLANK: Final = ENTRY.pack(0, BLANK_SIZE, 0)

EntryAt: TypeAlias = Callable[[int], Entry]
TimeAt: TypeAlias = Callable[[int], int]
"""The store time of an entry's message; negative where there is no such message."""


def after_blanks(entry: EntryAt, at: int, end: int) -> int:
    """The first entry from `at` on that is not blank; `end` if all are."""
    while at < end and entry(at)[1] == BLANK_SIZE:
        at += 1
    return at


def first_where(entry: EntryAt, low: int, end: int, holds: Callable[[int, int], bool]) -> int:
    """The first entry whose log offset and size are so, as then are all later ones'."""
    high = end
    while low < high:
        middle = (low + high) // 2
        at = after_blanks(entry, middle, high)
        if at == high or holds(*entry(at)[:2]):
            high = middle
        else:
            low = at + 1
    return after_blanks(entry, low, end)


def first_from(time: TimeAt, store_ms: int, low: int, end: int) -> int:
    """The first entry of that time or later, found as if times never decreased."""
    high = end
    while low < high:
        middle = (low + high) // 2
        at, found = _first_with_time(time, middle, high)
        if at == high or found >= store_ms:
            high = middle
        else:
            low = at + 1
    return _first_with_time(time, low, end)[0]


def last_until(time: TimeAt, store_ms: int, low: int, end: int) -> int:
    """The last entry of that time or earlier; `low` if there is none."""
    at = first_from(time, store_ms + 1, low, end) - 1
    while at > low and time(at) < 0:
        at -= 1
    return max(at, low)


def _first_with_time(time: TimeAt, at: int, end: int) -> tuple[int, int]:
    while at < end:
        found = time(at)
        if found >= 0:
            return at, found
        at += 1
    return end, -1
