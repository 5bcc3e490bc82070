"""What a store can be asked: reads by queue, by place in the log, by key and by time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gantrymq.errors import CorruptRecord
from gantrymq.store import system
from gantrymq.store.config import ReadConfig
from gantrymq.store.opening import StoreFiles
from gantrymq.store.reading import MAX_PULL_BYTES, RECENT, Accepts, Found, Matches, Reader, Status
from gantrymq.store.recovery import Report, Walk
from gantrymq.store.shapes import Queue
from gantrymq.store.steps import Steps, finish
from gantrymq.wire.flags import TRANSACTION_BITS, Transaction
from gantrymq.wire.record import StoredMessage

_WARM = 4096
"""Bytes of a record that are fetched beforehand; there is seldom more."""
_NEAR = 64 * 1024
"""Records that begin within so many bytes are looked for at once: mostly all are there."""
_STRETCH = 1024 * 1024
"""Bytes of records that a search reads at a time."""
IN_QUEUES = (int(Transaction.NONE), int(Transaction.COMMIT))
"""Messages of these transaction states are in a queue; others are in the log alone."""


class Queried(NamedTuple):
    """What a question by key found.

    RocketMQ: QueryMessageResult.
    """

    pieces: list[memoryview]
    last_update_ms: int
    last_update_log_offset: int


class Lookups:
    """The reading half of a store."""

    def __init__(self, files: StoreFiles, config: ReadConfig, report: Report) -> None:
        self.log = files.log
        self._files = files
        self._slots = files.queues.slots
        self._compacted = files.compaction.queues
        self._reader = Reader(
            files.log, config, memory=system.memory(), trusted_from=files.recovered.start,
            report=report,
        )  # fmt: skip

    def catch_up(self) -> None:
        """Bring messages into their queues that were put off; here are none."""

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = MAX_PULL_BYTES,
        matches: Matches | None = None,
        accepts: Accepts | None = None,
        mark: bytes = b"",
        warmed: bool = False,
    ) -> Found:
        """What the queue has from `offset` on; if it is cold, `warm` has to be called next.

        `matches` is asked about tags codes, `accepts` about stored properties, among which `mark`
        is where that says yes. With `warmed` nobody looks whether these are in memory.
        """
        self.catch_up()
        slot = self._slots.get((topic, queue_id))
        if slot is None:  # RocketMQ begins a queue by reading from it, so this is its answer, too
            return Found(Status.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        one = self._compacted.get((topic, queue_id)) if self._compacted else None
        if one is not None and offset < one.end:
            return self._files.compaction.read(
                slot, one, offset, max_messages, max_bytes, matches, accepts
            )
        return self._reader.read(
            slot.queue, offset, max_messages, max_bytes, matches, accepts, mark, warmed=warmed
        )

    def warm(self, found: Found) -> Found:
        """Bring what was found into memory; in any thread, because it takes its time."""
        return self._reader.warm(found)

    def message_at(self, log_offset: int) -> StoredMessage:
        """The message at that place of the log; `CorruptRecord` if there is none."""
        found = self.log.message(log_offset)
        queue = self.queue(found.topic, found.queue_id)
        place = found.queue_offset
        if queue is not None and queue.min_offset <= place < queue.max_offset:
            # so that no body can pass for a record, by holding one
            known = next((at for at, _, _ in queue.entries(place, 1)), log_offset)
            if known != log_offset and found.sys_flag & TRANSACTION_BITS in IN_QUEUES:
                raise CorruptRecord(f"log offset {log_offset}: {found!r} is at {known}")
        return found

    def messages(
        self, topic: str, queue_id: int, start: int
    ) -> Iterator[tuple[int, StoredMessage]]:
        """The messages of a queue from an offset on, with theirs; damaged ones are missing."""
        queue = self.queue(topic, queue_id)
        offset, end = (0, 0) if queue is None else (max(start, queue.min_offset), queue.max_offset)
        while queue is not None and offset < end:
            for log_offset, _, _ in queue.entries(offset, end - offset):
                try:
                    yield offset, self.message_at(log_offset)
                except CorruptRecord as error:
                    self._reader.report(f"{topic}[{queue_id}] @ {offset} is lost: {error}")
                offset += 1

    def records(self, start: int) -> Iterator[StoredMessage]:
        """The messages of the log from the end of any of them on; damaged ones are missing."""
        yield from Walk(self.log, max(start, self.log.start), self.log.end)

    def warm_records(self, log_offsets: Iterable[int]) -> None:
        """Bring the messages at these places, in order, into memory; in any thread."""
        recent = self.log.end - RECENT
        for group in _neighbours(offset for offset in log_offsets if offset < recent):
            segment = self.log.segments.find(group[0])
            if segment is None:
                continue
            base, end = segment.base, segment.end
            if group[-1] >= end:
                self.warm_records(offset for offset in group if offset >= end)
                group = [offset for offset in group if offset < end]
            if segment.file.resident(group[0] - base, min(group[-1] + _WARM, end) - base):
                continue
            for offset in group:
                if offset < end:
                    segment.file.warm(offset - base, min(offset + _WARM, end) - base)

    def search(
        self, topic: str, key: str, *, limit: int = 32, begin_ms: int = 0, end_ms: int = 2**63 - 1
    ) -> Steps[Queried]:
        """Messages whose key or unique key has that key's hash, in the order of the log."""
        if self._files.index is None:
            return Queried([], 0, 0)
        self.catch_up()
        hits = yield from self._files.index.search(topic, key, limit, begin_ms, end_ms)
        pieces, taken = [], 0
        for offset in sorted(hits.log_offsets):
            try:
                size = self.log.message(offset).size
            except CorruptRecord:  # it is gone, or not readable any more
                continue
            if (piece := self.log.view(offset, size)) is not None:
                pieces.append(piece)
            taken += size
            if taken > _STRETCH:
                taken = 0
                yield
        return Queried(pieces, hits.last_update_ms, hits.last_update_log_offset)

    def query(
        self, topic: str, key: str, *, limit: int = 32, begin_ms: int = 0, end_ms: int = 2**63 - 1
    ) -> Queried:
        """The same, all at once."""
        return finish(self.search(topic, key, limit=limit, begin_ms=begin_ms, end_ms=end_ms))

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        """The queue: its bounds, entries and offsets by time."""
        self.catch_up()
        slot = self._slots.get((topic, queue_id))
        return None if slot is None else slot.queue

    def first_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue that has a message; 0 where nothing was ever put."""
        one = self._compacted.get((topic, queue_id)) if self._compacted else None
        if one is not None:
            return one.first
        queue = self.queue(topic, queue_id)
        return 0 if queue is None else queue.min_offset

    def queues(self) -> list[tuple[str, int, Queue]]:
        """All queues, with topic and queue id."""
        self.catch_up()
        return [(slot.topic, slot.queue_id, slot.queue) for slot in self._files.queues]

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message of that queue offset was stored, in ms; -1 if it is not there."""
        queue = self.queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        return next((self.log.store_time(at) for at, _, _ in queue.entries(offset, 1)), -1)

    @property
    def damaged(self) -> dict[int, str]:
        """Damaged records that somebody wanted to read: what is wrong, by log offset."""
        return dict(self._reader.damaged)


def _neighbours(offsets: Iterable[int]) -> Iterator[list[int]]:
    """Offsets that grow, in groups that lie close together."""
    group: list[int] = []
    for offset in offsets:
        if group and offset - group[0] >= _NEAR:
            yield group
            group = []
        group.append(offset)
    if group:
        yield group
