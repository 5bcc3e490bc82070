"""Compacted queues: of what is old in them, only the newest message of each key is kept.

```
compaction/<topic>/<queue id>/00000000000000004711     for the queue offsets before 4711
```

A file has the records of the messages that are left, as they were in the log, one after the other;
after the last one come zeros, or its end. It stands for all offsets before the number in its name,
so a reader that comes to one which is gone finds the next that is there. Messages keep their
offsets. From the file's end on the queue is read as any other.

```
queue offset   0 … first      …     end                 max_offset
                     │ survivors only │ everything, in the log │
```

**Making one** goes through what the file before it has and what came since, and keeps of each key
(the text of `KEYS`) the message with the largest offset. A tombstone, that is a message without a
body or with `__TOMBSTONE`, has its key forgotten, and goes itself when it is old. Only what is on
the disk is taken, since a crash gives the offsets of the rest to other messages. The new file is
written under another name, synced and renamed; then the old one goes. So there is always one of
them, whole.

The log's old files go only when nothing that is not compacted is in them (`needed_from`), unless
the disk is about to be full.

RocketMQ keeps compacted topics in a log and a queue of their own; see CompactionStore.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from gantrymq.errors import RemoteProtocolError
from gantrymq.store.commit_log import CommitLog
from gantrymq.store.disk import Disk, Entry
from gantrymq.store.dispatch import Dispatcher
from gantrymq.store.queue_table import QueueTable, Slot
from gantrymq.store.reading import Accepts, Found, Matches, Run, Status
from gantrymq.store.recovery import Report
from gantrymq.store.segment import Segment
from gantrymq.store.steps import Steps
from gantrymq.wire import properties, record
from gantrymq.wire.flags import BORN_HOST_IPV6, IPV6_BITS
from gantrymq.wire.record import LEAST_SIZE, properties_at

_MARK: Final = f"{properties.TOMBSTONE}\x01".encode()
_FRESH: Final = ".tmp"
_DIGITS: Final = 20
_PAGE: Final = 4096
_AT_ONCE: Final = 1000
"""Messages that are looked at before others have a turn."""
_WORTH: Final = 10
"""It is worth while when there is one new message for so many that are left."""
_OFFSET: Final = Struct(">q")
_SIZE: Final = Struct(">i")
_OFFSET_AT, _FLAGS_LOW_AT, _BODY_SIZE_AT = 20, 39, 84
_NEVER: Final = 2**63 - 1


class Compacted:
    """The compacted part of one queue, open."""

    __slots__ = ("_codes", "_offsets", "_places", "_sizes", "end", "segment")

    def __init__(self, segment: Segment, end: int) -> None:
        self.segment = segment
        self.end = end
        """The queue offset before which it stands for everything."""
        self._offsets = array("q")
        self._places = array("q")
        self._sizes = array("i")
        self._codes = array("q")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def first(self) -> int:
        """The offset of its first message; where there is none, of what comes after."""
        return self._offsets[0] if self._offsets else self.end

    def add(self, offset: int, place: int, size: int, code: int) -> None:
        """One more message; they come by their offsets."""
        self._offsets.append(offset)
        self._places.append(place)
        self._sizes.append(size)
        self._codes.append(code)

    def entries(self) -> Iterator[tuple[int, int, int, int]]:
        """Offset, place, size and tags code of every message."""
        yield from zip(self._offsets, self._places, self._sizes, self._codes, strict=True)

    def read(
        self, found: Found, most: int, room: int, matches: Matches | None, accepts: Accepts | None
    ) -> None:
        """Put into `found` what is there from its `next_offset` on."""
        at = bisect_left(self._offsets, found.next_offset)
        view, runs = self.segment.view, found.runs
        while at < len(self._offsets) and found.count < most:
            place, size = self._places[at], self._sizes[at]
            if found.count and found.size + size > room:
                break
            at += 1
            if matches is not None and not matches(self._codes[at - 1]):
                continue
            if accepts is not None and not accepts(properties_at(view, place, size)):
                continue
            _extend(runs, self.segment, place, size)
            found.count += 1
            found.size += size
        found.next_offset = self._offsets[at] if at < len(self._offsets) else self.end
        found.status = Status.FOUND if found.count else Status.NO_MATCHED_MESSAGE


def _extend(runs: list[Run], segment: Segment, place: int, size: int) -> None:
    if runs and runs[-1][2] == place:
        runs[-1] = (segment, runs[-1][1], place + size)
    else:
        runs.append((segment, place, place + size))


class _Newest(NamedTuple):
    """The newest message of a key so far: where it is, and since when it says that it is gone."""

    offset: int
    segment: Segment
    place: int
    size: int
    code: int
    gone_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a new file is to hold."""

    slot: Slot
    """The queue as it was; where it is another one by now, these messages are gone."""
    end: int
    survivors: list[_Newest]
    looked_at: int

    @property
    def size(self) -> int:
        """Bytes of the records."""
        return sum(one.size for one in self.survivors)


class Compaction:
    """The compacted queues of a store. RocketMQ: CompactionStore, CompactionService."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        *,
        log: CommitLog,
        queues: QueueTable,
        dispatcher: Dispatcher,
        report: Report,
    ) -> None:
        self.topics: Collection[str] = frozenset()
        """Those that are to be compacted."""
        self.queues: dict[tuple[str, int], Compacted] = {}
        """Those of which there is a file."""
        self._disk = disk
        self._directory = directory
        self._log = log
        self._table = queues
        self._dispatcher = dispatcher
        self._report = report

    # --- life -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Open what the directory holds."""
        for topic in self._disk.entries(self._directory):
            where = self._directory / topic.name
            for queue in self._disk.entries(where) if topic.is_directory else ():
                if queue.is_directory and queue.name.isdecimal():
                    self._load(topic.name, int(queue.name), where / queue.name)

    def close(self) -> None:
        """Close the files."""
        for one in self.queues.values():
            one.segment.file.close()
        self.queues.clear()

    def remove_topic(self, topic: str) -> None:
        """Forget a topic's files."""
        for key in [key for key in self.queues if key[0] == topic]:
            self.queues.pop(key).segment.file.close()
            self._disk.remove_tree(self._directory / topic)

    def _load(self, topic: str, queue_id: int, where: Path) -> None:
        """Open the newest file of a queue that is about messages which there are.

        One that is about later ones stays, unused: the queue was lost, and it may be all that is
        left of it.
        """
        slot = self._table.slots.get((topic, queue_id))
        most = -1 if slot is None else slot.queue.max_offset
        usable: list[Entry] = []
        for entry in sorted(self._disk.entries(where)):
            if entry.is_directory or not entry.name.isdecimal() or not entry.size:
                if entry.name.endswith(_FRESH):
                    self._disk.remove(where / entry.name)
            elif int(entry.name) <= most:
                usable.append(entry)
            else:
                self._report(f"{where / entry.name} is about messages of a queue that is gone")
        for entry in usable[:-1]:
            self._disk.remove(where / entry.name)
        for entry in usable[-1:]:
            file = self._disk.open(where / entry.name, entry.size)
            segment = Segment(where / entry.name, file, 0, entry.size)
            self.queues[topic, queue_id] = self._indexed(Compacted(segment, int(entry.name)))

    def _indexed(self, one: Compacted) -> Compacted:
        view, at = one.segment.view, 0
        while at + LEAST_SIZE <= len(view) and _SIZE.unpack_from(view, at)[0]:
            try:
                message = record.decode(view, at)
                message.check_crc()
            except RemoteProtocolError as error:
                self._report(f"{one.segment.path} is damaged at byte {at}: {error}")
                break
            one.add(message.queue_offset, at, message.size, self._dispatcher.tags_code(message))
            at += message.size
        return one

    # --- what others ask ------------------------------------------------------------------------

    def read(
        self,
        slot: Slot,
        one: Compacted,
        offset: int,
        most: int,
        room: int,
        matches: Matches | None,
        accepts: Accepts | None,
    ) -> Found:
        """What a queue has from an offset before `one.end` on."""
        found = Found(
            Status.NO_MATCHED_MESSAGE, max(0, offset), min(one.first, one.end),
            slot.queue.max_offset,
        )  # fmt: skip
        found.compacted = True
        one.read(found, max(1, most), room, matches, accepts)
        found.cold = any(
            not segment.file.resident(start, end) for segment, start, end in found.runs
        )
        return found

    def needed_from(self) -> int:
        """The log offset from which on there are messages that are not compacted yet."""
        return min((self._first_raw(slot) for slot in self._slots()), default=_NEVER)

    def _first_raw(self, slot: Slot) -> int:
        """Where in the log the first message of a queue is that is not compacted."""
        queue, one = slot.queue, self.queues.get((slot.topic, slot.queue_id))
        first = max(queue.min_offset, 0 if one is None else one.end)
        if first >= queue.max_offset:
            return _NEVER
        return next((at for at, _, _ in queue.entries(first, 1)), _NEVER)

    def _slots(self) -> list[Slot]:
        topics = self.topics
        return [slot for slot in self._table if slot.topic in topics] if topics else []

    # --- compacting -----------------------------------------------------------------------------

    def due(self, flushed_to: int) -> list[Slot]:
        """The queues for which it is worth while."""
        files = self._log.segments.files
        newest = files[-1].base if files else 0
        found = []
        for slot in self._slots():
            one = self.queues.get((slot.topic, slot.queue_id))
            first = self._first_raw(slot)
            new = slot.queue.max_offset - (slot.queue.min_offset if one is None else one.end)
            worth = new >= max(1, (0 if one is None else len(one)) // _WORTH)
            if first < flushed_to and (worth or first < newest):
                found.append(slot)
        return found

    def plan(self, slot: Slot, flushed_to: int, tombstones_before_ms: int) -> Steps[Plan | None]:
        """What is left of a queue; None if that cannot be said. Others have turns in between."""
        newest: dict[bytes, _Newest] = {}
        one = self.queues.get((slot.topic, slot.queue_id))
        if one is not None:
            for number, (offset, place, size, code) in enumerate(one.entries(), 1):
                _note(newest, _Newest(offset, one.segment, place, size, code, None))
                if not number % _AT_ONCE:
                    yield
        queue = slot.queue
        at = start = max(queue.min_offset, 0 if one is None else one.end)
        limit = queue.max_offset
        while at < limit:
            began = at
            for place, size, code in queue.entries(at, min(_AT_ONCE, limit - at)):
                if place + size > flushed_to:
                    limit = at
                    break
                segment = self._log.segments.find(place)
                if segment is not None and place + size <= segment.end and size >= LEAST_SIZE:
                    _note(newest, _Newest(at, segment, place - segment.base, size, code, None))
                at += 1
            if at == began:
                break
            yield
        if at == start:
            return None
        left = sorted(
            one
            for one in newest.values()
            if one.gone_ms is None or one.gone_ms >= tombstones_before_ms
        )
        return Plan(slot=slot, end=at, survivors=left, looked_at=at - start)

    def write(self, plan: Plan) -> Compacted:
        """Make the file; in any thread."""
        where = self._directory / plan.slot.topic / str(plan.slot.queue_id)
        self._disk.make_directory(where)
        path = where / f"{plan.end:0{_DIGITS}}"
        fresh = path.with_name(path.name + _FRESH)
        size = max(_PAGE, plan.size)
        file = self._disk.create(fresh, size)
        made, at = Compacted(Segment(path, file, 0, size), plan.end), 0
        for one in plan.survivors:
            file.write(at, one.segment.view[one.place : one.place + one.size])
            made.add(one.offset, at, one.size, one.code)
            at += one.size
        file.sync()
        self._disk.rename(fresh, path)
        self._disk.sync_directory(where)
        return made

    def install(self, plan: Plan, made: Compacted) -> bool:
        """Read from the new file from now on; False if the queue is another one by now."""
        key = plan.slot.topic, plan.slot.queue_id
        slot, before = self._table.slots.get(key), self.queues.get(key)
        same = slot is plan.slot and plan.end <= slot.queue.max_offset
        if not same or plan.slot.topic not in self.topics:
            made.segment.file.close()
            self._disk.remove(made.segment.path)
            return False
        self.queues[key] = made
        if before is not None and before.segment.path != made.segment.path:
            before.segment.file.close()
            self._disk.remove(before.segment.path)
        return True


def _note(newest: dict[bytes, _Newest], one: _Newest) -> None:
    """Take a message in: later ones come later, so it is the newest of its key."""
    view = one.segment.view
    raw = properties_at(view, one.place, one.size)
    key = (properties.find(raw, properties.KEYS) or "").strip().encode()
    if not key:  # it came before the topic was compacted; nobody says that another replaces it
        key = b"\0" + _OFFSET.pack(one.offset)
    newest[key] = one._replace(gone_ms=_gone_ms(view, one.place, raw))


def _gone_ms(view: memoryview, place: int, raw: bytes) -> int | None:
    """When a tombstone was stored; None for other messages."""
    flags = view[place + _FLAGS_LOW_AT]
    body_at = _BODY_SIZE_AT + 12 * (flags & IPV6_BITS).bit_count()
    empty = not _SIZE.unpack_from(view, place + body_at)[0]
    if not empty and _MARK not in raw:
        return None
    at = 68 if flags & BORN_HOST_IPV6 else 56
    found: int = _OFFSET.unpack_from(view, place + at)[0]
    return found
