"""Reading a queue: which messages one pull gets, and where their bytes are.

The entries of the queue say where the records are. What lies side by side in the log becomes one
piece, a slice of the mapped file, so the bytes of a pull's answer are not touched here.

A reader may also want messages by their **properties**. These are in the records, so records are
looked at one by one. Where that would wait for the disk, the read stops at once and says so
(`Found.again`): `warm` brings in what comes next, and then it is read anew.

Two things may have to be done before pieces are sent, and both read the bytes:

- **Cold** bytes are not in memory, and touching them would wait for the disk. `Found.cold` says so,
  and `warm` brings them in; it may run in another thread.
- **Unchecked** records are from before this start and were not read since. They are compared with
  their checksum, once for each read: a damaged one is left out and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from gantrymq.store.commit_log import CommitLog, Damage, check_body
from gantrymq.store.config import ReadConfig
from gantrymq.store.segment import Segment
from gantrymq.store.shapes import Entry, Queue
from gantrymq.wire.record import LEAST_SIZE, properties_at, properties_start

Matches: TypeAlias = Callable[[int], bool]
"""Whether a tags code is among those asked for."""

Accepts: TypeAlias = Callable[[bytes], bool]
"""Whether a message with such stored properties is among those asked for."""

Run: TypeAlias = tuple[Segment, int, int]
"""A stretch of the log within one file: from one log offset up to another."""

MAX_PULL_BYTES: Final = 128 * 1024 * 1024
_LEAST_PULL_BYTES: Final = 100
_ENTRY_SIZE: Final = 20
_SPAN: Final = 64 * 1024 * 1024
RECENT: Final = 16 * 1024 * 1024
"""So far back in the log bytes were written a moment ago, and nobody looks whether they are hot."""
_LOOKED_AT: Final = 1024 * 1024
"""Bytes that are asked about at once, where the properties of old records are looked at."""
_WINDOW: Final = 32 * 1024
"""Bytes of the log that are copied at once, which is quicker than to look for what is in them."""
_CLOSE: Final = 8
"""As long as there are so many records in them that are looked at."""


class Status(Enum):
    """What a read came to.

    RocketMQ: GetMessageStatus.
    """

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


@dataclass(slots=True)
class Found:
    """What a read found.

    RocketMQ: GetMessageResult.
    """

    status: Status
    next_offset: int
    min_offset: int
    max_offset: int
    count: int = 0
    size: int = 0
    cold: bool = False
    """Whether `Store.warm` has to come before the pieces are touched."""
    again: bool = False
    """Whether the read has to be done once more after that: so far nothing was looked at."""
    far_behind: bool = False
    """Whether the messages are older than what is taken to be in memory."""
    compacted: bool = False
    """Whether it is of the part of a queue in which only the newest message of each key is left."""
    runs: list[Run] = field(default_factory=list)
    """Where the records are: those that lie side by side are one run."""
    unchecked: list[tuple[Segment, int, int]] = field(default_factory=list)

    @property
    def pieces(self) -> list[memoryview]:
        """The records, in order; each piece keeps its file mapped for as long as it is held."""
        return [
            segment.view[start - segment.base : end - segment.base]
            for segment, start, end in self.runs
        ]


class _Cold(Exception):
    """The properties of a record are not in memory."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.run = run


class Reader:
    """Reads queues of one log."""

    __slots__ = ("_config", "_log", "_memory", "_scan", "_trusted_from", "damaged", "report")

    def __init__(
        self,
        log: CommitLog,
        config: ReadConfig,
        *,
        memory: int,
        trusted_from: int,
        report: Callable[[str], object],
    ) -> None:
        self._log = log
        self._config = config
        self._memory = int(memory * config.memory_ratio)
        self._scan = config.scan_bytes // _ENTRY_SIZE
        self._trusted_from = trusted_from if config.verify else 0
        self.report = report
        self.damaged: dict[int, str] = {}
        """The records that are damaged, by log offset, as far as somebody wanted them."""

    def read(
        self,
        queue: Queue,
        offset: int,
        max_messages: int,
        max_bytes: int,
        matches: Matches | None,
        accepts: Accepts | None = None,
        mark: bytes = b"",
        *,
        warmed: bool = False,
    ) -> Found:
        """Read from queue offset `offset` on; the rules are those of `semantics.md` 1.11.

        `mark` is among the properties of every message that is accepted.
        """
        low, high = queue.min_offset, queue.max_offset
        if high == 0:
            return Found(Status.NO_MESSAGE_IN_QUEUE, 0, low, high)
        if offset < low:
            return Found(Status.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return Found(Status.OFFSET_OVERFLOW_ONE, offset, low, high)
        if offset > high:
            return Found(Status.OFFSET_OVERFLOW_BADLY, high, low, high)
        found = Found(Status.NO_MATCHED_MESSAGE, offset, low, high)
        max_bytes = min(max(max_bytes, _LEAST_PULL_BYTES), MAX_PULL_BYTES)
        try:
            self._choose(
                found, queue, max_messages, max_bytes, matches, accepts, mark, warmed=warmed
            )
        except _Cold as cold:
            return Found(found.status, offset, low, high, cold=True, again=True, runs=[cold.run])
        if found.runs and found.runs[0][1] < self._log.end - RECENT:
            found.cold = not _are_resident(found.runs)
        if found.unchecked and not found.cold:
            self._check(found)
        return found

    def warm(self, found: Found) -> Found:
        """Bring what was found into memory, and check what has to be checked."""
        for segment, start, end in found.runs:
            with suppress(OSError):  # the file went; what is mapped can be read all the same
                segment.file.warm(start - segment.base, end - segment.base)
        if found.unchecked:
            self._check(found)
        found.cold = False
        return found

    def _choose(
        self,
        found: Found,
        queue: Queue,
        max_messages: int,
        max_bytes: int,
        matches: Matches | None,
        accepts: Accepts | None,
        mark: bytes,
        *,
        warmed: bool,
    ) -> None:
        config, log = self._config, self._log
        memory_from = log.end - self._memory
        trusted_from = self._trusted_from
        most = min(max_messages, config.disk_messages)
        room = min(max_bytes, config.disk_bytes)
        in_memory = False
        next_offset, count, size = found.next_offset, 0, 0
        start = end = base = limit = 0
        segment: Segment | None = None
        runs, unchecked = found.runs, found.unchecked
        wanted = min(max(max_messages, self._scan), found.max_offset - next_offset)
        entries = queue.entries(next_offset, wanted)
        if accepts is not None:
            entries = self._accepted(found, entries, matches, accepts, mark, warmed=warmed)
        for at, length, code in entries:
            if not in_memory and at >= memory_from:
                in_memory = True
                most = min(max_messages, config.memory_messages)
                room = min(max_bytes, config.memory_bytes)
            if count and (count >= most or size + length > room):
                break
            if accepts is not None:
                next_offset = code
            else:
                next_offset += 1
                if matches is not None and not matches(code):
                    continue
            if at != end or at + length > limit:
                if segment is not None:
                    runs.append((segment, start, end))
                if at < base or at + length > limit:
                    segment = self._find(at, length)
                    if segment is None:
                        limit = 0
                        if not count:
                            found.status = Status.MESSAGE_WAS_REMOVING
                        continue
                    base, limit = segment.base, min(segment.end, log.end)
                start = at
            assert segment is not None
            end = at + length
            count += 1
            size += length
            if at < trusted_from:
                unchecked.append((segment, at, length))
            if count >= most and accepts is not None:  # what comes next would be looked at twice
                break
        else:
            if accepts is not None:
                next_offset = found.next_offset
        if segment is not None:
            runs.append((segment, start, end))
        if count:
            found.status = Status.FOUND
            found.far_behind = not in_memory
        found.next_offset, found.count, found.size = next_offset, count, size

    def _accepted(
        self,
        found: Found,
        entries: Iterable[Entry],
        matches: Matches | None,
        accepts: Accepts,
        mark: bytes,
        *,
        warmed: bool,
    ) -> Iterator[Entry]:
        """The entries whose records are accepted, or are not there, which others tell of.

        In place of a tags code they have the queue offset after them. When there are no more, the
        offset after all that were looked at is in `found`.
        """
        log = self._log
        recent_from = 0 if warmed else log.end - RECENT
        base = limit = known_from = known_to = 0
        copied, copied_from, copied_to, copies, taken = b"", 0, 0, 0, 0
        offset = found.next_offset
        for at, length, code in entries:
            offset += 1
            if matches is not None and not matches(code):
                continue
            end = at + length
            if at < copied_from or end > copied_to:
                if at < base or end > limit:
                    there = self._find(at, length)
                    if there is None:
                        limit = 0
                        yield at, length, offset
                        continue
                    segment, view = there, there.view
                    base, limit = segment.base, min(segment.end, log.end)
                if at < recent_from and not known_from <= at <= end <= known_to:
                    known_from, known_to = at, min(limit, max(end, at + _LOOKED_AT))
                    if not segment.file.resident(known_from - base, known_to - base):
                        raise _Cold((segment, at, min(limit, at + RECENT)))
                if taken >= copies * _CLOSE:
                    copies += 1
                    copied_from, copied_to = at, min(limit, max(end, at + _WINDOW))
                    if at < recent_from:
                        copied_to = min(copied_to, known_to)
                    copied = view[at - base : copied_to - base].tobytes()
                else:
                    if accepts(properties_at(view, at - base, length)):
                        yield at, length, offset
                    continue
            taken += 1
            last = end - copied_from
            first = properties_start(copied, last - length, length)
            if copied.rfind(mark, first, last) >= 0 and accepts(copied[first:last]):
                yield at, length, offset
        found.next_offset = offset

    def _find(self, at: int, length: int) -> Segment | None:
        segment = self._log.segments.find(at)
        if segment is None or length < LEAST_SIZE or at + length > min(segment.end, self._log.end):
            return None
        return segment

    def _check(self, found: Found) -> None:
        for segment, at, length in found.unchecked:
            if self._is_damaged(segment, at, length):
                found.runs = [part for run in found.runs for part in _without(run, at, length)]
                found.count -= 1
                found.size -= length
        found.unchecked.clear()
        if not found.count:
            found.status = Status.MESSAGE_WAS_REMOVING

    def _is_damaged(self, segment: Segment, at: int, length: int) -> bool:
        if at in self.damaged:
            return True
        reason = check_body(segment, at, length)
        if reason is None:
            return False
        self.damaged[at] = reason
        self.report(str(Damage(start=at, end=at + length, reason=reason)))
        return True


def _without(run: Run, at: int, length: int) -> list[Run]:
    segment, start, end = run
    if not start <= at < end:
        return [run]
    return [
        part for part in ((segment, start, at), (segment, at + length, end)) if part[1] < part[2]
    ]


def _are_resident(runs: list[Run]) -> bool:
    """Ask once for each file if that will do: the answer is mostly that all of it is."""
    for segment, group in groupby(runs, itemgetter(0)):
        parts = [(start - segment.base, end - segment.base) for _, start, end in group]
        first, last = parts[0][0], parts[-1][1]
        if last - first < _SPAN and segment.file.resident(first, last):
            continue
        if not all(segment.file.resident(start, end) for start, end in parts):
            return False
    return True
