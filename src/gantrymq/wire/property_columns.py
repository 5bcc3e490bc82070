"""All properties of many messages at once, as ranges in the buffer that holds them.

Three ways, each for the rows that the one before leaves:

- **Alike.** Messages of one producer mostly have the same names, and values of the same lengths. So
  rows of one length are compared with the first of them: if names and separators are the same, and
  no value holds a separator, the borders are those of the first row.
- **Lines.** Rows of about one length become a matrix, one row a line, and the separators in it are
  found in one pass. Where they alternate, name end and value end, they are the borders of all names
  and values.
- **One by one**, by the rules of `properties`, what is out of the ordinary: a value that holds
  0x01, entries without a name end, a name that comes twice.

Names are compared as bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gantrymq.wire.arrays import Bytes, Ints, Mask, Ranges, at_every_byte, gather
from gantrymq.wire.command import Buffer

_MATRIX_BYTES: Final = 1 << 17
"""How much is worked on at a time: it stays in the processor's cache, and in memory that malloc
keeps; larger arrays are new pages every time, and the page faults can cost more than the work."""
_MOST_ENTRIES: Final = 32
"""Rows with more properties than this are taken apart one by one."""
_KEY_SIZE: Final = 8
_LEAST_ALIKE: Final = 24
"""Rows of one length for which comparing them with one of them pays."""
_MOST_LAYOUTS: Final = 4
"""How many rows are tried as the one that others of their length are like."""


class Entries(NamedTuple):
    """All properties of all rows; those of row i are `offsets[i]` up to `offsets[i + 1]`."""

    offsets: Ints
    names: Ranges
    values: Ranges


class PropertyTable:
    """The properties of the rows in `where`, without the entries that readers drop."""

    __slots__ = ("_alike", "_buffer", "_data", "_found", "_where")

    def __init__(self, buffer: Buffer, data: Bytes, where: Ranges) -> None:
        self._buffer = buffer
        self._data = data
        self._where = where
        rest = where.starts < where.ends
        self._alike = _find_alike(data, where, rest)
        odd = np.zeros(len(where.starts), np.bool_)
        found = _join([_find_in_lines(data, rows, where, odd) for rows in _similar(where, rest)])
        self._found = self._taken_apart(found, odd)

    def entries(self) -> Entries:
        """Every property of every row; a name comes once in a row, with the value that counts."""
        rows = len(self._where.starts)
        found = self._taken_apart(self._found, _doubtful(self._found, self._data, rows))
        alike = [layout.found(rows, self._where.starts[rows]) for rows, layout in self._alike]
        found = _join([*alike, found] if len(found.row) else alike or [found])
        offsets = np.searchsorted(found.row, np.arange(rows + 1))
        values = Ranges(found.name_end + 1, found.end)
        return Entries(offsets, Ranges(found.start, found.name_end), values)

    def ranges(self, name: str) -> Ranges:
        """Where the values of one property are; -1 for rows without it."""
        found, wanted = self._found, name.encode()
        missing = np.full(len(self._where.starts), -1)
        ranges = Ranges(missing, missing.copy())
        for rows, layout in self._alike:
            if (place := layout.values.get(wanted)) is not None:
                starts = self._where.starts[rows]
                ranges.starts[rows] = starts + place[0]
                ranges.ends[rows] = starts + place[1]
        hits = np.flatnonzero(found.name_end - found.start == len(wanted))
        if len(hits):
            names = gather(self._data, found.start[hits], len(wanted))
            hits = hits[names == np.frombuffer(wanted, names.dtype)]
        # where a name comes twice in a row, what is assigned last stays, and that is what counts
        ranges.starts[found.row[hits]] = found.name_end[hits] + 1
        ranges.ends[found.row[hits]] = found.end[hits]
        return ranges

    def _taken_apart(self, found: _Found, rows: Mask) -> _Found:
        if not rows.any():
            return found
        exact = _take_apart(self._buffer, self._where, rows)
        return _join([found.only(~rows[found.row]), exact])


class _Layout:
    """Where the properties of a row are within it, for all rows that are laid out as it is."""

    __slots__ = ("_threshold", "_wanted", "borders", "values")

    def __init__(self, row: bytes, borders: list[tuple[int, int, int]]) -> None:
        self.borders = np.array(borders, np.int64).reshape(-1, 3)
        self.values = {row[start:mid]: (mid + 1, end) for start, mid, end in borders}
        # Every byte of a name, and each separator, has to be this row's; in values, none may be a
        # separator. Both in one comparison: (byte ^ wanted) - 1 > threshold, in bytes that wrap.
        text = np.frombuffer(row, np.uint8)
        self._wanted = text.copy()
        self._threshold = np.full(len(row), 254, np.uint8)
        for _, mid, end in borders:
            self._wanted[mid + 1 : end] = 0
            self._threshold[mid + 1 : end] = 1

    @classmethod
    def of(cls, row: bytes) -> _Layout | None:
        """The layout of a row, if it is an ordinary one."""
        borders, at = [], 0
        for entry in row.removesuffix(b"\x02").split(b"\x02"):
            name, end, value = entry.partition(b"\x01")
            if not end or b"\x01" in value:
                return None
            if name and value:
                borders.append((at, at + len(name), at + len(entry)))
            at += len(entry) + 1
        layout = cls(row, borders)
        return layout if len(layout.values) == len(borders) else None

    def fits(self, lines: Bytes) -> Mask:
        """Which of these rows, of the length of this one, are like it."""
        lines ^= self._wanted
        lines -= 1
        unlike: Mask = lines <= self._threshold
        fits: Mask = ~np.logical_or.reduce(unlike, axis=1)
        return fits

    def found(self, rows: Ints, starts: Ints) -> _Found:
        """The properties of rows that are like this one."""
        places = starts[:, None, None] + self.borders
        return _Found(
            np.repeat(rows, len(self.borders)), *(places[:, :, n].reshape(-1) for n in range(3))
        )


def _find_alike(data: Bytes, where: Ranges, rest: Mask) -> list[tuple[Ints, _Layout]]:
    """The rows that are laid out alike, with their layout; they are taken out of `rest`."""
    alike: list[tuple[Ints, _Layout]] = []
    for rows, size in _of_one_size(where, rest):
        for _ in range(_MOST_LAYOUTS):
            if len(rows) < _LEAST_ALIKE:
                break
            first = int(where.starts[rows[0]])
            layout = _Layout.of(data[first : first + size].tobytes())
            if layout is None:
                rows = rows[1:]
                continue
            fits = _fitting(data, where.starts[rows], layout, size)
            alike.append((rows[fits], layout))
            rest[rows[fits]] = False
            rows = rows[~fits]
    return alike


def _of_one_size(where: Ranges, rest: Mask) -> Iterator[tuple[Ints, int]]:
    """Rows that are as long as many others."""
    sizes = where.ends - where.starts
    if not len(sizes):
        return
    if rest.all() and (sizes == sizes[0]).all():
        yield np.arange(len(sizes)), int(sizes[0])
        return
    counts = np.bincount(sizes)
    counts[0] = 0
    for size in np.flatnonzero(counts >= _LEAST_ALIKE).tolist():
        yield np.flatnonzero(sizes == size), size


def _fitting(data: Bytes, starts: Ints, layout: _Layout, size: int) -> Mask:
    step = max(_MATRIX_BYTES // size, 1)
    return np.concatenate(
        [
            layout.fits(gather(data, starts[at : at + step], size).view(np.uint8).reshape(-1, size))
            for at in range(0, len(starts), step)
        ]
    )


class _Found(NamedTuple):
    """Properties in the order of rows. A value begins one byte after its name ends."""

    row: Ints
    start: Ints
    name_end: Ints
    end: Ints

    def only(self, kept: Mask) -> _Found:
        """Those that `kept` names."""
        return self if kept.all() else _Found(*(column[kept] for column in self))

    def keys(self, data: Bytes) -> NDArray[np.uint64]:
        """The last eight bytes of each name, or all of a shorter one, as a number."""
        # there are always eight bytes before a name's end: the fixed part of the record
        ending = at_every_byte(data, "<u8")[self.name_end - _KEY_SIZE]
        missing = np.maximum(_KEY_SIZE - (self.name_end - self.start), 0)
        keys: NDArray[np.uint64] = ending.astype(np.uint64) >> (8 * missing).astype(np.uint64)
        return keys


_NONE: Final = _Found(*[np.empty(0, np.int64)] * 4)


def _join(parts: list[_Found]) -> _Found:
    if len(parts) == 1:
        return parts[0]
    joined = _Found(*map(np.concatenate, zip(_NONE, *parts, strict=True)))
    order = np.argsort(joined.row, kind="stable")
    return _Found(*(column[order] for column in joined))


def _similar(where: Ranges, rest: Mask) -> Iterator[Ints]:
    """The rows of `rest` in groups: within a factor of two in size, none too large."""
    sizes = np.where(rest, where.ends - where.starts, 0)
    classes = np.frexp(sizes)[1]
    for number in np.unique(classes[sizes > 0]).tolist():
        rows = np.flatnonzero(classes == number)
        step = max(_MATRIX_BYTES >> number, 1)
        for at in range(0, len(rows), step):
            yield rows[at : at + step]


def _find_in_lines(data: Bytes, rows: Ints, where: Ranges, odd: Mask) -> _Found:
    """The properties of `rows`; those whose separators do not alternate are marked in `odd`."""
    starts = where.starts[rows]
    sizes = where.ends[rows] - starts
    width = int(sizes.max()) + 1
    matrix = gather(data, starts, width).view(np.uint8).reshape(-1, width)
    open_ended = np.flatnonzero(matrix[np.arange(len(rows)), sizes - 1] != 2)
    matrix[open_ended, sizes[open_ended]] = 2  # the last separator may have been left out
    sizes[open_ended] += 1
    matrix -= 1  # now the separators are 0 and 1, and all else is more
    separates = matrix < 2
    separates &= np.arange(width, dtype=np.uint16) < sizes.astype(np.uint16)[:, None]
    separators = np.flatnonzero(separates)
    kinds = matrix.reshape(-1)[separators]
    # as every row ends with a 1, they alternate all through if they do in each row
    repeated = separators[kinds == np.concatenate(([1], kinds[:-1]))]
    if len(repeated):
        odd[rows[repeated // width]] = True
        separators = separators[~odd[rows[separators // width]]]
    name_ends, ends = separators[0::2], separators[1::2]
    line = name_ends // width
    begins = line * width
    shift = starts[line] - begins
    names = np.maximum(np.concatenate(([0], ends + 1))[:-1], begins)
    found = _Found(rows[line], names + shift, name_ends + shift, ends + shift)
    return found.only((names < name_ends) & (name_ends + 1 < ends))


def _doubtful(found: _Found, data: Bytes, rows: int) -> Mask:
    """Which rows may have a name twice, or have too many to look for one."""
    keys = found.keys(data)
    per_row = np.bincount(found.row, minlength=rows)
    doubtful = per_row > _MOST_ENTRIES
    name_sizes = found.name_end - found.start
    for lag in range(1, min(int(per_row.max(initial=0)), _MOST_ENTRIES)):
        later = np.flatnonzero(keys[lag:] == keys[:-lag]) + lag
        same_row = found.row[later] == found.row[later - lag]
        same_size = name_sizes[later] == name_sizes[later - lag]
        doubtful[found.row[later[same_row & same_size]]] = True
    return doubtful


def _take_apart(buffer: Buffer, where: Ranges, rows: Mask) -> _Found:
    """The properties of `rows`, one by one, as `properties.decode` would give them."""
    exact: list[tuple[int, int, int, int]] = []
    for row in np.flatnonzero(rows).tolist():
        at = int(where.starts[row])
        latest: dict[bytes, tuple[int, int, int, int]] = {}
        for entry in bytes(buffer[at : int(where.ends[row])]).split(b"\x02"):
            name, _, value = entry.partition(b"\x01")
            if name and value:
                latest.pop(name, None)
                latest[name] = row, at, at + len(name), at + len(entry)
            at += len(entry) + 1
        exact += latest.values()
    return _Found(*np.array(exact, np.int64).reshape(-1, 4).T)
