"""Finding the end of the log at the start, and bringing queues and index in step with it.

**After a clean stop** the end is known: a note says it (`CleanStop`), together with the number of
messages in each queue, so that a queue whose files were lost is noticed. If RocketMQ's broker had
the store meanwhile the note is out of date, which shows as a record at that end; then the end is
looked for from the last message that is in a queue. Neither depends on how large the log is.

**After a crash** everything before the checkpoint's confirmed offset is on the disk: log, queues
and index. From there the log is read record by record, and queues and index are written anew. At
the first record that is not whole the log ends. Without a usable checkpoint the start is the
newest file whose first message is older than the checkpoint's times, as in RocketMQ.

**When a queue lacks what came before** the whole log is read. Then a record can be found damaged
that was on the disk for long. Cutting the log there would throw away all that came later, so it is
skipped: the next whole record is looked for by its magic number and its own place in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self, TypeAlias

import orjson

from gantrymq.errors import CorruptRecord
from gantrymq.store.checkpoint import Checkpoint
from gantrymq.store.commit_log import BLANK_SIZE, CommitLog, Damage, read_whole
from gantrymq.store.disk import Disk, replace_whole
from gantrymq.store.dispatch import Dispatcher, Gap
from gantrymq.store.queue_table import QueueTable
from gantrymq.store.shapes import Index
from gantrymq.wire.record import LEAST_SIZE, MAGIC_V1, MAGIC_V2, StoredMessage

Report: TypeAlias = Callable[[str], object]
"""Takes a line for the operator."""

_MAGIC_AT: Final = 4
_MAGICS: Final = tuple(magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2))
_SEARCH_STEP: Final = 1024 * 1024
_PROGRESS_SECONDS: Final = 1.0
_PROGRESS_EVERY: Final = 64


@dataclass(slots=True, kw_only=True)
class CleanStop:
    """What a store knew when it was closed properly."""

    log_end: int
    index_end: int
    totals: dict[str, dict[str, int]]

    @classmethod
    def take(cls, disk: Disk, path: Path) -> Self | None:
        """Read the note and remove it: it is true only until the next message."""
        if not disk.exists(path):
            return None
        try:
            found = orjson.loads(disk.read(path))
            note = cls(
                log_end=int(found["logEnd"]),
                index_end=int(found["indexEnd"]),
                totals=dict(found["queues"]),
            )
        except (ValueError, KeyError, TypeError):
            note = None
        disk.remove(path)
        return note

    def leave(self, disk: Disk, path: Path) -> None:
        """Write the note."""
        fields = {"logEnd": self.log_end, "indexEnd": self.index_end, "queues": self.totals}
        replace_whole(disk, path, orjson.dumps(fields))


@dataclass(slots=True, kw_only=True)
class Recovered:
    """What recovery did."""

    start: int
    """Where it began to read the log."""
    end: int
    """Where the log ends now."""
    messages: int
    """How many records it read."""
    damage: list[Damage]
    rebuilt: bool
    """Whether all queues were written anew."""


@dataclass(slots=True)
class Walk:
    """The whole records of the log from `at` on. Afterwards `at` is where there is no further one.

    Up to `sure` the log was on the disk, with a record's end there: what is damaged before it is
    skipped, and noted. Anything damaged after it is the end. If nobody knows how far the log was on
    the disk, `sure` is None, and damage is skipped if a whole record follows somewhere.
    """

    log: CommitLog
    at: int
    sure: int | None
    damage: list[Damage] = field(default_factory=list)
    torn: str | None = None
    """What is wrong with the record at the end, if there are the beginnings of one."""

    def __iter__(self) -> Iterator[StoredMessage]:
        segments = self.log.segments
        while (segment := segments.find(self.at)) is not None:
            try:
                message = read_whole(segment, self.at)
            except CorruptRecord as error:
                following = self._after(str(error))
                if following is None:
                    return
                self.at = following
            else:
                yield message
                self.at += message.size

    def _after(self, why: str) -> int | None:
        if self.log.blank_at(self.at):
            following = self.log.next_file(self.at)
            return None if self.log.segments.find(following) is None else following
        found = next_whole(self.log, self.at + 1) if self.is_sure(self.at) else None
        if self.sure is not None and self.at < self.sure and (found is None or found > self.sure):
            found = self.sure
        if found is None:
            self.torn = None if _nothing_at(self.log, self.at) else why
        else:
            self.damage.append(Damage(start=self.at, end=found, reason=why))
        return found

    def is_sure(self, offset: int) -> bool:
        """Whether what is there now should be what was written."""
        return self.sure is None or offset < self.sure


def next_whole(log: CommitLog, start: int) -> int | None:
    """Where the first whole record at or after `start` is, wherever it stands."""
    for segment in log.segments.files:
        if segment.end <= start:
            continue
        at = max(start - segment.base, 0) + _MAGIC_AT
        while at < len(segment.view) - LEAST_SIZE + _MAGIC_AT:
            # four bytes more than a step, so that no magic number is missed between two
            part = bytes(segment.view[at : at + _SEARCH_STEP + _MAGIC_AT])
            for found in _places_of_magic(part):
                offset = segment.base + at + found - _MAGIC_AT
                try:
                    read_whole(segment, offset)
                except CorruptRecord:
                    continue
                return offset
            at += _SEARCH_STEP
    return None


@dataclass(slots=True, kw_only=True)
class Recovery:
    """The parts that have to agree, as they were found, and how to make them."""

    log: CommitLog
    queues: QueueTable
    index: Index | None
    dispatcher: Dispatcher
    checkpoint: Checkpoint
    report: Report
    known: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """The queues there were at the last checkpoint, by topic."""
    monotonic: Callable[[], float] = time.monotonic

    def run(self, *, after_crash: bool, note: CleanStop | None) -> Recovered:
        """Find the end of the log, cut off what follows it, and complete queues and index."""
        if not self.log.segments.files:
            found = self._begin(after_crash)
        elif after_crash:
            start, sure = self._after_crash()
            found = self._read_all(sure) if self._lacks_queues() else self._read_from(start, sure)
        else:
            found = self._after_stop(note)
        self.log.cut(found.end)
        self.queues.correct_min(self.log.start)
        if self.index is not None and self.index.max_log_offset >= found.end:
            # entries of messages that are lost stay, and find nothing; new ones have to get in
            self.index.max_log_offset = found.end
        for damage in found.damage:
            self.report(str(damage))
        return found

    def _begin(self, after_crash: bool) -> Recovered:
        """A new store, or one whose log is gone: its queues and their numbers go on where it was.

        RocketMQ starts such a queue at 0 again, and consumers miss as much as they had consumed.
        """
        if after_crash and self.checkpoint.log_ms > 0:  # what the queues have since was never safe
            for slot in self.queues:
                slot.queue.recover()
            self.queues.truncate(self.checkpoint.confirmed_offset)
        size = self.log.segments.size
        last = max(0, self.checkpoint.confirmed_offset, self.queues.max_log_offset)
        last = max(last, self._index_end())
        end = -(-last // size) * size
        if end:
            self.report(f"the commit log is gone; it goes on at offset {end}")
        return Recovered(start=end, end=end, messages=0, damage=[], rebuilt=False)

    def _after_stop(self, note: CleanStop | None) -> Recovered:
        if note is not None and self._ends_at(note.log_end):
            index_end = min(self._index_end(), note.log_end)
            if note.totals == self.queues.totals() and note.index_end == index_end:
                end = note.log_end
                return Recovered(start=end, end=end, messages=0, damage=[], rebuilt=False)
            self.report("queues or index are not what they were when the store was closed")
            return self._read_all(note.log_end)
        start = self.queues.max_log_offset
        if not self.log.start <= start <= self.log.end:
            start = self.log.start
        return self._read_from(start, max(start, self.checkpoint.confirmed_offset))

    def _after_crash(self) -> tuple[int, int | None]:
        """Where to begin, and up to where everything is known to be on the disk."""
        for slot in self.queues:
            slot.queue.recover()
        start = self.checkpoint.confirmed_offset
        sure: int | None = start
        usable = self.checkpoint.log_ms > 0 and self.log.start <= start <= self.log.end
        if not (usable and self._is_boundary(start)):
            start, sure = self._by_time(), None
        if self.queues.max_log_offset < 0:
            start = self.log.start
        return max(min(start, self._index_from(start)), self.log.start), sure

    def _lacks_queues(self) -> bool:
        there = self.queues.slots.keys()
        lost = [
            f"{topic}[{queue_id}]"
            for topic, ids in self.known.items()
            for queue_id in ids
            if (topic, queue_id) not in there
        ]
        if lost:
            self.report(f"consume queues were lost: {', '.join(lost[:3])}; {len(lost)} in all")
        return bool(lost)

    def _index_from(self, start: int) -> int:
        if self.index is None:
            return start
        again = self.index.recover(self.checkpoint.index_ms)
        if again is None and self.index.max_log_offset < 0 and self.checkpoint.index_ms > 0:
            again = self.log.start
        return start if again is None else again

    def _read_from(self, start: int, sure: int | None) -> Recovered:
        if start == self.log.start:
            return self._read(start, sure)
        doubtful = [slot for slot in self.queues if slot.queue.damaged]
        self.queues.truncate(start)
        before = [slot.queue.max_offset for slot in doubtful]
        try:
            found = self._read(start, sure, partly=True)
        except Gap as gap:
            self.report(f"{gap}: consume queues are incomplete")
            return self._read_all(sure)
        if any(
            slot.queue.max_offset == known for slot, known in zip(doubtful, before, strict=True)
        ):
            self.report("consume queues are damaged")
            return self._read_all(sure)
        return found

    def _read_all(self, sure: int | None) -> Recovered:
        self.report("reading the whole log to complete queues and index")
        found = self._read(self.log.start, sure)
        found.rebuilt = True
        return found

    def _read(self, start: int, sure: int | None, *, partly: bool = False) -> Recovered:
        self.queues.truncate(start)
        walk, count = Walk(self.log, start, sure), 0
        progress = _Progress(self.report, self.monotonic, start, self.log.end)
        for message in walk:
            try:
                self._again(message, walk, partly)
            except CorruptRecord as error:
                if not walk.is_sure(walk.at):
                    walk.torn = str(error)
                    break
                end = walk.at + message.size
                walk.damage.append(Damage(start=walk.at, end=end, reason=str(error)))
            count += 1
            if count % _PROGRESS_EVERY == 0:
                progress.at(walk.at, count)
        if walk.torn is not None:
            self.report(
                f"the log ends at {walk.at}, before a record that is not whole: {walk.torn}"
            )
        return Recovered(
            start=start, end=walk.at, messages=count, damage=walk.damage, rebuilt=False
        )

    def _again(self, message: StoredMessage, walk: Walk, partly: bool) -> None:
        if partly:
            self.dispatcher.again(message, "refused")
        elif walk.is_sure(walk.at) or walk.damage:
            self.dispatcher.again(message, "filled")
        else:
            try:
                self.dispatcher.again(message, "before the first")
            except Gap as gap:
                raise CorruptRecord(str(gap)) from gap

    def _index_end(self) -> int:
        return -1 if self.index is None else self.index.max_log_offset

    def _by_time(self) -> int:
        for segment in reversed(self.log.segments.files):
            try:
                first = read_whole(segment, segment.base)
            except CorruptRecord:
                continue
            if 0 < first.store_ms <= self.checkpoint.sure_ms:
                return segment.base
        return self.log.start

    def _is_boundary(self, offset: int) -> bool:
        """Whether a record can begin there; whether it does, and is whole, is another matter."""
        if self._is_record(offset) or self.log.blank_at(offset):
            return True
        if offset == self.queues.max_log_offset:
            return True
        walk = Walk(self.log, offset - offset % self.log.segments.size, 0)
        for _ in walk:
            if walk.at >= offset:
                break
        # if it ends before, something is damaged there, and this may be a boundary all the same
        return walk.at == offset or (walk.at < offset and walk.torn is not None)

    def _ends_at(self, offset: int) -> bool:
        """Whether the log can end there: no record follows."""
        if offset == self.log.end or self.log.blank_at(offset):
            return self.log.segments.find(self.log.next_file(offset)) is None
        return self.log.start <= offset < self.log.end and _nothing_at(self.log, offset)

    def _is_record(self, offset: int) -> bool:
        segment = self.log.segments.find(offset)
        try:
            return segment is not None and read_whole(segment, offset).size > 0
        except CorruptRecord:
            return False


class _Progress:
    """Says how far it is, but not before it took a second, and not more often."""

    __slots__ = ("_end", "_monotonic", "_next", "_report", "_start")

    def __init__(
        self, report: Report, monotonic: Callable[[], float], start: int, end: int
    ) -> None:
        self._report = report
        self._monotonic = monotonic
        self._start = start
        self._end = end
        self._next = monotonic() + _PROGRESS_SECONDS

    def at(self, offset: int, messages: int) -> None:
        now = self._monotonic()
        if now >= self._next:
            self._next = now + _PROGRESS_SECONDS
            done = (offset - self._start) / max(self._end - self._start, 1)
            self._report(
                f"reading the log: {done:.0%} of {(self._end - self._start) / 2**20:.0f} MiB,"
                f" {messages} messages"
            )


def _nothing_at(log: CommitLog, offset: int) -> bool:
    segment = log.segments.find(offset)
    at = offset - segment.base if segment else 0
    return segment is None or not any(segment.view[at : at + BLANK_SIZE])


def _places_of_magic(part: bytes) -> list[int]:
    found = []
    for magic in _MAGICS:
        at = part.find(magic)
        while at >= 0:
            found.append(at)
            at = part.find(magic, at + 1)
    return sorted(found)
