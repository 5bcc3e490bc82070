"""Which old messages go, and when the disk is too full for new ones.

Files of the log go from the oldest on, never the one that is written to, and never one that is not
on the disk yet. The reasons, in the order in which they are looked at:

```
 part of the disk in use        what goes
 up to   warn                   files past their time, in the set hours; files beyond the set size
 from    warn                   files past their time at any hour
 from    clean                  the oldest files, whatever their age
 from    refuse                 the same, and nothing more is stored until there is room again
```

None of the three marks counts while `ample` bytes are free: a tenth of a large disk is a lot. With
an `ample` of 0 they count always, as in RocketMQ.

A file's age is that of its newest message, so it is looked up in the file after it: its first
message is younger than all before. RocketMQ goes by the time of the file, which copying changes.
What the time is now, a clock says that does not follow every jump (`ages`).

Removing a file takes its name and its place in the list. Whoever reads from it holds a slice of the
mapping and is not disturbed; the bytes are given back with the last slice.

**Limits of one topic.** All topics share the files of the log, so a topic's old messages cannot be
given back by themselves. Its queues can begin later, though (`Limits`): the messages before that
are not served any more, and go with their file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gantrymq.store.ages import AgeClock
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.config import RetentionConfig, SpaceConfig
from gantrymq.store.disk import Disk, Usage
from gantrymq.store.queue_table import QueueTable, Slot
from gantrymq.store.segment import Segment

_GIB: Final = 2**30
_STRETCH: Final = 1024
"""So many messages of a queue are counted as one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much of one topic is kept; None is no limit of its own."""

    seconds: float | None = None
    size: int | None = None


@dataclass(slots=True, kw_only=True)
class Fullness:
    """What was found at the last look at the disk."""

    usage: Usage
    past_warn: bool
    past_clean: bool
    refusal: str | None
    """Why nothing is stored now."""


class Retention:
    """Decides what goes; `round` is to be called every now and then.

    RocketMQ: CleanCommitLogService.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: QueueTable,
        disk: Disk,
        root: Path,
        retention: RetentionConfig,
        space: SpaceConfig,
        *,
        ages: AgeClock,
        hour: Callable[[], int],
        report: Callable[[str], object],
    ) -> None:
        self._log = log
        self._queues = queues
        self._disk = disk
        self._root = root
        self._retention = retention
        self._space = space
        self._ages = ages
        self._now_ms = ages.now_ms()
        self._hour = hour
        self._report = report
        self._sizes: dict[str, _TopicSize] = {}
        self.needed_from: Callable[[], int] = lambda: 2**63 - 1
        """From which log offset on messages have to stay for another reason."""
        self.fullness = self.look()

    def look(self) -> Fullness:
        """How full the disk is now, and what follows from that."""
        usage, space = self._disk.usage(self._root), self._space
        tight = usage.free < space.ample or not space.ample
        full = tight and usage.ratio > space.refuse
        return Fullness(
            usage=usage,
            past_warn=tight and usage.ratio > space.warn,
            past_clean=tight and usage.ratio > space.clean,
            refusal=self._refusal(usage) if full else None,
        )

    def round(self, flushed_to: int, limits: Mapping[str, Limits]) -> list[Segment]:
        """Take out the files that have to go, and give them, to be removed."""
        self._now_ms = self._ages.now_ms()
        was_full = self.fullness.refusal is not None
        self.fullness = self.look()
        self._tell(was_full)
        for topic, limit in limits.items():
            self._limit(topic, limit)
        count = self._count(flushed_to)
        if not count:
            return []
        files = self._log.segments.files
        gone = self._log.segments.take_before(files[count - 1].end)
        self._queues.correct_min(self._log.start)
        return gone

    def _count(self, flushed_to: int) -> int:
        """How many of the oldest files go now."""
        files = self._log.segments.files
        most = min(self._retention.batch, len(files) - 1)
        count = 0
        while count < most and files[count].end <= flushed_to and self._goes(files, count):
            count += 1
        return count

    def _goes(self, files: list[Segment], index: int) -> bool:
        fullness, retention = self.fullness, self._retention
        if fullness.past_clean and self._space.clean_early:
            return True
        if files[index].end > self.needed_from():
            return False
        if retention.size and files[-1].end - files[index].base > retention.size:
            return True
        timely = fullness.past_warn or not retention.hours or self._hour() in retention.hours
        return timely and self._is_past_time(files[index + 1].base, retention.time)

    def _is_past_time(self, following: int, seconds: float) -> bool:
        newer = self._log.store_time(following)
        return seconds > 0 and 0 < newer <= self._now_ms - seconds * 1000

    def _limit(self, topic: str, limits: Limits) -> None:
        slots = [slot for slot in self._queues if slot.topic == topic]
        if limits.seconds is not None:
            oldest = self._now_ms - int(limits.seconds * 1000)
            for slot in slots:
                if slot.queue.min_offset < slot.queue.max_offset:
                    _begin_at(slot, slot.queue.offset_at(oldest, "lower"))
        if limits.size is not None:
            known = self._sizes.setdefault(topic, _TopicSize())
            start = known.start_of_last(limits.size, slots)
            for slot in slots:
                slot.queue.correct_min(start)

    def _tell(self, was_full: bool) -> None:
        refusal = self.fullness.refusal
        if refusal is not None and not was_full:
            self._report(refusal)
        elif refusal is None and was_full:
            self._report("the disk has room again; messages are stored again")

    def _refusal(self, usage: Usage) -> str:
        space, files = self._space, self._log.segments.files
        needed = usage.total - usage.free - int(usage.total * space.refuse)
        if space.ample:
            needed = min(needed, space.ample - usage.free)
        biggest = ", ".join(f"{topic} {count}" for topic, count in self._biggest())
        return (
            f"the disk under {self._root} is {usage.ratio:.1%} full ({_gib(usage.free)} of"
            f" {_gib(usage.total)} free); from {space.refuse:.0%} on nothing is stored. Free"
            f" {_gib(needed)}: the commit log takes {_gib(len(files) * self._log.segments.size)} in"
            f" {len(files)} files; most messages have the topics {biggest or '(none)'}. Shorten"
            f" retention.time, set retention.size, or remove what else is there"
        )

    def _biggest(self) -> list[tuple[str, int]]:
        counts: dict[str, int] = {}
        for slot in self._queues:
            held = slot.queue.max_offset - slot.queue.min_offset
            counts[slot.topic] = counts.get(slot.topic, 0) + held
        return sorted(counts.items(), key=lambda item: -item[1])[:3]


class _TopicSize:
    """How many bytes of the log a topic has from where on, without adding all up each time."""

    __slots__ = ("_seen", "_stretches")

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._stretches: list[tuple[int, int]] = []

    def start_of_last(self, size: int, slots: Iterable[Slot]) -> int:
        """From which log offset on the topic has `size` bytes, or up to a stretch of each more."""
        for slot in slots:
            self._count(slot)
        self._stretches.sort()
        for number in range(len(self._stretches) - 1, -1, -1):
            start, taken = self._stretches[number]
            size -= taken
            if size <= 0:
                del self._stretches[:number]
                return start
        return 0

    def _count(self, slot: Slot) -> None:
        queue = slot.queue
        first = max(self._seen.get(slot.queue_id, 0), queue.min_offset)
        if first > queue.max_offset:  # it began anew
            first = queue.min_offset
        while first < queue.max_offset:
            count, start, taken = 0, 0, 0
            for at, length, _ in queue.entries(first, min(_STRETCH, queue.max_offset - first)):
                count += 1
                if at + length <= queue.max_log_offset:  # or else it stands for a lost record
                    start, taken = start or at, taken + length
            if not count:
                break
            self._stretches.append((start, taken))
            first += count
        self._seen[slot.queue_id] = first


def _begin_at(slot: Slot, offset: int) -> None:
    start = slot.queue.max_log_offset
    for at, _, _ in slot.queue.entries(offset, 1) if offset < slot.queue.max_offset else ():
        start = at
    slot.queue.correct_min(start)


def _gib(size: int) -> str:
    return f"{size / _GIB:.1f} GiB"
