"""A broker's store: messages go in by topic and queue, and are read back by queue, place or key.

One thread appends and reads; it never waits for the disk. Two more belong to the store: one syncs
the log (`flush`), the other writes checkpoints and removes files (`chores`). What the first has to
tell the appending thread waits until that calls `settle`.

```
append ──▶ commit log ──async flush──▶ queue, index, `arrived`
                      ──sync flush───▶ … once the disk has it
```

A store stops taking messages in two ways. While the disk is too full it raises `StoreFull`, and
goes on when there is room. After a sync failed, or a file could not be written for another reason,
it raises `NotWritable` until it is opened anew.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Protocol, Self

from gantrymq.errors import CorruptRecord, NotWritable, StoreError, StoreFull
from gantrymq.rules.delay import DELAY_LEVELS, DelayLevels
from gantrymq.store import system
from gantrymq.store.checkpoint import Checkpoint
from gantrymq.store.chores import Chores
from gantrymq.store.commit_log import CommitLog, RecordTooLarge
from gantrymq.store.config import StoreConfig
from gantrymq.store.disk import Disk, RealDisk
from gantrymq.store.dispatch import Arrived, Dispatcher
from gantrymq.store.flush import Flusher, Waiter
from gantrymq.store.lock import StoreLock
from gantrymq.store.queue_table import MakeQueue, QueueTable, Slot
from gantrymq.store.reading import MAX_PULL_BYTES, Found, Matches, Reader, Status
from gantrymq.store.recovery import CleanStop, Recovered, Recovery, Report
from gantrymq.store.retention import Fullness, Limits, Retention
from gantrymq.store.segment import Segment, Segments
from gantrymq.store.shapes import Index, Queue
from gantrymq.wire.flags import TRANSACTION_BITS, Transaction
from gantrymq.wire.message_id import offset_id
from gantrymq.wire.record import StoredMessage

_logger: Final = logging.getLogger("gantrymq.store")
_BEYOND_BODY: Final = 64 * 1024
"""What a record may have besides a body of the greatest size."""
_COUNTED: Final = frozenset((Transaction.NONE, Transaction.COMMIT))


class Appended(NamedTuple):
    """Where a message, or the first of a batch, went.

    RocketMQ: AppendMessageResult.
    """

    log_offset: int
    queue_offset: int
    size: int
    end: int
    """What `Store.durable` takes."""
    offset_id: str
    """The ids that say where it is stored, joined by commas."""


class Queried(NamedTuple):
    """What a question by key found.

    RocketMQ: QueryMessageResult.
    """

    pieces: list[memoryview]
    last_update_ms: int
    last_update_log_offset: int


@dataclass(slots=True, kw_only=True)
class Closed:
    """What closing a store did."""

    flushed: int
    """How many bytes of the log went to the disk only now."""
    log_end: int
    problem: str | None
    """Why the next start has to look for damage, if it has to."""

    def __str__(self) -> str:
        done = f"log ends at {self.log_end}, {self.flushed} bytes of it flushed at the end"
        return done if self.problem is None else f"{done}; not closed properly: {self.problem}"


class MakeParts(Protocol):
    """Makes the parts of a store that keep entries about messages."""

    def queues(
        self, disk: Disk, directory: Path, config: StoreConfig, store_time: Callable[[int], int]
    ) -> MakeQueue:
        """What opens each consume queue under `directory`."""
        ...

    def index(self, disk: Disk, directory: Path, config: StoreConfig) -> Index | None:
        """The key index in `directory`, or None where none is kept."""
        ...


class Store:
    """The store, open.

    RocketMQ: DefaultMessageStore.
    """

    def __init__(
        self,
        directory: Path,
        config: StoreConfig,
        parts: MakeParts,
        *,
        disk: Disk,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        hour: Callable[[], int],
        report: Report,
        delays: DelayLevels,
    ) -> None:
        self.directory = directory
        self.config = config
        self.limits: dict[str, Limits] = {}
        """How much of which topics is kept, where that is not as much as of others."""
        self._disk = disk
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._report = report
        self._broken: str | None = None
        self._refusal: StoreError | None = None
        self._closed = False
        disk.make_directory(directory)
        self._lock = StoreLock(disk, directory)
        try:
            self._checkpoint = Checkpoint(disk, directory / "checkpoint")
            segments = Segments(disk, directory / "commitlog", config.log.segment_size)
            segments.load()
            self.log = CommitLog(segments)
            queues = directory / "consumequeue"
            make = parts.queues(disk, queues, config, self.log.store_time)
            self._queues = QueueTable(disk, queues, make)
            self._queues.load()
            self._index = parts.index(disk, directory / "index", config)
            self._dispatcher = Dispatcher(self._queues, self._index, delays)
            self.recovered: Final[Recovered] = self._recover()
            self._retention = Retention(
                self.log, self._queues, disk, directory, config.retention, config.space,
                clock_ms=clock_ms, hour=hour, report=report,
            )  # fmt: skip
        except BaseException:
            self._lock.release(in_order=False)
            raise
        self._flusher = Flusher(
            self.log, interval=config.flush.interval, timeout=config.flush.timeout,
            failed=self._break, monotonic=monotonic,
        )  # fmt: skip
        self._reader = Reader(
            self.log, config.read, memory=system.memory(), trusted_from=self.recovered.start,
            report=report,
        )  # fmt: skip
        self._chores = Chores(self.checkpoint, config.flush.checkpoint_interval)
        self._largest = config.log.max_message_size + _BEYOND_BODY
        self._held: deque[tuple[int, Slot, StoredMessage]] | None = (
            deque() if config.flush.mode == "sync" else None
        )
        self._dispatched_to = self.log.end
        self._last_ms = self._checkpoint.log_ms
        self._next_round = monotonic() + config.retention.interval
        self._refuse_if_full()

    @classmethod
    def open(
        cls,
        directory: Path,
        config: StoreConfig,
        parts: MakeParts,
        *,
        disk: Disk | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
        hour: Callable[[], int] = lambda: time.localtime().tm_hour,
        report: Report = _logger.warning,
        delays: DelayLevels = DELAY_LEVELS,
    ) -> Self:
        """Open or begin the store in `directory`, and recover it if it has to be."""
        return cls(
            directory, config, parts, disk=disk or RealDisk(), clock_ms=clock_ms,
            monotonic=monotonic, hour=hour, report=report, delays=delays,
        )  # fmt: skip

    # what happens by itself

    def start(self, notify: Callable[[], object]) -> None:
        """Start the threads; `notify` is called from one of them when `settle` is due."""
        self._flusher.start(notify)
        self._chores.start()

    def settle(self) -> None:
        """Take note of what reached the disk: let it be read, and tell who waits."""
        held = self._held
        if held:
            reached = self._flusher.flushed_to
            while held and held[0][0] <= reached:
                end, slot, message = held.popleft()
                self._dispatch(slot, message, end)
        self._flusher.settle()

    def tick(self) -> None:
        """To be called several times a second: waits that took too long, and old messages."""
        self._flusher.expire()
        if self._monotonic() >= self._next_round:
            self.clean()

    def clean(self) -> None:
        """See which old messages have to go, and whether the disk has room."""
        self._next_round = self._monotonic() + self.config.retention.interval
        for segment in self._retention.round(self._flusher.flushed_to, self.limits):
            self._chores.do(partial(self._remove, segment))
            if self._index is not None:
                self._index.correct_min(self.log.start)
        self._refuse_if_full()

    def flush(self) -> None:
        """Sync the log now, and settle."""
        self._flusher.flush()
        self.settle()

    def checkpoint(self) -> None:
        """Bring queues and index to the disk, so that a restart need not read what is in them."""
        end = min(self._flusher.flushed_to, self._dispatched_to)
        point, last_ms = self._checkpoint, self._last_ms
        if end == point.confirmed_offset or self._broken is not None:
            return
        try:
            for slot in self._queues:
                slot.queue.sync()
            if self._index is not None:
                self._index.sync()
                point.index_ms = self._index.max_store_ms
            point.confirmed_offset, point.log_ms, point.queues_ms = end, last_ms, last_ms
            point.save()
        except OSError as error:
            if error.errno == errno.ENOSPC:  # nothing is lost: it stays in memory and in the log
                self._report(f"no room for a checkpoint: {error}")
            else:
                self._break(f"writing a checkpoint failed: {error}")

    def close(self) -> Closed:
        """Flush everything and give up the store. Closing it again does nothing."""
        if self._closed:
            return Closed(flushed=0, log_end=self.log.end, problem=None)
        self._closed = True
        self._refusal = NotWritable(f"the store in {self.directory} is closed")
        behind = self._flusher.behind
        self._chores.stop()
        self._flusher.stop()
        self.settle()
        problem = self._leave()
        self._lock.release(in_order=problem is None)
        self._queues.close()
        if self._index is not None:
            self._index.close()
        self.log.segments.close()
        self._checkpoint.close()
        flushed = behind - self._flusher.behind
        return Closed(flushed=flushed, log_end=self.log.end, problem=problem)

    # writing

    def append(self, message: StoredMessage) -> Appended:
        """Store `message`; its offsets, store time and size are set to what they come to be."""
        if self._refusal is not None:
            self._refuse(self._refusal)
        key = message.topic, message.queue_id
        slot = self._queues.slots.get(key) or self._queues.obtain(*key)
        log = self.log
        counted = message.sys_flag & TRANSACTION_BITS in _COUNTED
        message.queue_offset = queue_offset = slot.next_offset if counted else 0
        message.store_ms = self._last_ms = self._clock_ms()
        message.log_offset = log_offset = log.end
        data = message.encode()
        message.size = size = len(data)
        if not log.fits(size) or size > self._largest:
            self._roll(size)
            message.log_offset = log_offset = log.end
            data = message.encode()
        log.put(data)
        if counted:
            slot.next_offset = queue_offset + 1
        end = log.end
        if self._held is None:
            self._dispatch(slot, message, end)
        else:
            self._held.append((end, slot, message))
        return Appended(
            log_offset, queue_offset, size, end,
            offset_id(message.store_ip, message.store_port, log_offset),
        )  # fmt: skip

    def append_batch(self, messages: Sequence[StoredMessage]) -> Appended:
        """Store messages of one queue side by side, all or none."""
        if self._refusal is not None:
            self._refuse(self._refusal)
        first, log = messages[0], self.log
        slot = self._queues.obtain(first.topic, first.queue_id)
        now = self._last_ms = self._clock_ms()
        for number, message in enumerate(messages):
            if (message.topic, message.queue_id) != (slot.topic, slot.queue_id):
                raise StoreError(f"a batch for {slot!r} has {message!r}")
            message.queue_offset = slot.next_offset + number
            message.store_ms = now
        data = _encode(messages, log.end)
        if not log.fits(len(data)) or len(data) > self._largest:
            self._roll(len(data))
            data = _encode(messages, log.end)
        log.put(data)
        slot.next_offset += len(messages)
        for message in messages:
            end = message.log_offset + message.size
            if self._held is None:
                self._dispatch(slot, message, end)
            else:
                self._held.append((end, slot, message))
        ids = ",".join(message.offset_id for message in messages)
        return Appended(first.log_offset, first.queue_offset, len(data), log.end, ids)

    def durable(self, end: int, tell: Waiter) -> None:
        """Call `tell` with what came of waiting until the log is on the disk up to `end`."""
        self._flusher.durable(end, tell)

    @property
    def arrived(self) -> Arrived | None:
        """Told of each message that can be read from now on."""
        return self._dispatcher.arrived

    @arrived.setter
    def arrived(self, told: Arrived | None) -> None:
        self._dispatcher.arrived = told

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's queues; what the log has of it goes with its files."""
        self._queues.remove_topic(topic)

    # reading

    def read(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = MAX_PULL_BYTES,
        matches: Matches | None = None,
    ) -> Found:
        """What the queue has from `offset` on; if it is cold, `warm` has to be called next."""
        slot = self._queues.slots.get((topic, queue_id))
        if slot is None:  # RocketMQ begins a queue by reading from it, so this is its answer, too
            return Found(Status.NO_MESSAGE_IN_QUEUE, 0, 0, 0)
        return self._reader.read(slot.queue, offset, max_messages, max_bytes, matches)

    def warm(self, found: Found) -> Found:
        """Bring what was found into memory; in any thread, because it takes its time."""
        return self._reader.warm(found)

    def message_at(self, log_offset: int) -> StoredMessage:
        """The message at that place of the log; `CorruptRecord` if there is none."""
        return self.log.message(log_offset)

    def query(
        self, topic: str, key: str, *, limit: int = 32, begin_ms: int = 0, end_ms: int = 2**63 - 1
    ) -> Queried:
        """Messages whose key or unique key has that key's hash, in the order of the log."""
        if self._index is None:
            return Queried([], 0, 0)
        hits = self._index.query(topic, key, limit, begin_ms, end_ms)
        pieces = []
        for offset in sorted(hits.log_offsets):
            try:
                size = self.log.message(offset).size
            except CorruptRecord:  # it is gone, or not readable any more
                continue
            if (piece := self.log.view(offset, size)) is not None:
                pieces.append(piece)
        return Queried(pieces, hits.last_update_ms, hits.last_update_log_offset)

    def queue(self, topic: str, queue_id: int) -> Queue | None:
        """The queue: its bounds, entries and offsets by time."""
        slot = self._queues.slots.get((topic, queue_id))
        return None if slot is None else slot.queue

    def queues(self) -> list[tuple[str, int, Queue]]:
        """All queues, with topic and queue id."""
        return [(slot.topic, slot.queue_id, slot.queue) for slot in self._queues]

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message of that queue offset was stored, in ms; -1 if it is not there."""
        queue = self.queue(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.max_offset:
            return -1
        return next((self.log.store_time(at) for at, _, _ in queue.entries(offset, 1)), -1)

    # how it is

    @property
    def log_start(self) -> int:
        """The offset of the oldest byte of the log."""
        return self.log.start

    @property
    def log_end(self) -> int:
        """The offset that the next record gets."""
        return self.log.end

    @property
    def flushed_to(self) -> int:
        """The offset up to which the log is on the disk."""
        return self._flusher.flushed_to

    @property
    def refusal(self) -> str | None:
        """Why nothing is stored now."""
        return None if self._refusal is None else str(self._refusal)

    @property
    def fullness(self) -> Fullness:
        """How full the disk was at the last look."""
        return self._retention.fullness

    @property
    def waiting(self) -> int:
        """How many appends wait for the disk."""
        return self._flusher.waiting

    @property
    def damaged(self) -> dict[int, str]:
        """Damaged records that somebody wanted to read: what is wrong, by log offset."""
        return dict(self._reader.damaged)

    # inside

    def _recover(self) -> Recovered:
        note_path = self.directory / "clean-stop.json"
        note = CleanStop.take(self._disk, note_path)
        found = Recovery(
            log=self.log, queues=self._queues, index=self._index, dispatcher=self._dispatcher,
            checkpoint=self._checkpoint, report=self._report, monotonic=self._monotonic,
        ).run(after_crash=self._lock.after_crash, note=note)  # fmt: skip
        for segment in self.log.segments.files:
            if segment.end > found.start:
                segment.file.sync()
        self.log.segments.sync_names()
        for slot in self._queues:
            slot.queue.sync()
        if self._index is not None:
            self._index.sync()
        point = self._checkpoint
        point.confirmed_offset = found.end
        point.log_ms, point.queues_ms = max(point.log_ms, 1), max(point.queues_ms, 1)
        point.save()
        self._disk.sync_directory(self.directory)
        return found

    def _dispatch(self, slot: Slot, message: StoredMessage, end: int) -> None:
        try:
            self._dispatcher.dispatch(slot, message)
        except OSError as error:
            self._break(f"writing queue or index failed: {error}; the next start completes them")
            assert self._refusal is not None
            self._refuse(self._refusal)
        self._dispatched_to = end

    def _roll(self, size: int) -> None:
        if size > self._largest or size + 8 > self.config.log.segment_size:
            raise RecordTooLarge(
                f"a record of {size} bytes; the most is {self._largest}, within files of"
                f" {self.config.log.segment_size}"
            )
        self.log.roll()

    def _break(self, why: str) -> None:
        self._broken = why
        self._refusal = NotWritable(f"{why}. Nothing is stored any more until the next start")
        self._report(str(self._refusal))

    def _refuse(self, refusal: StoreError) -> NoReturn:
        raise type(refusal)(str(refusal))

    def _refuse_if_full(self) -> None:
        if self._broken is None and not self._closed:
            why = self._retention.fullness.refusal
            self._refusal = None if why is None else StoreFull(why)

    def _remove(self, segment: Segment) -> None:
        try:
            self.log.segments.remove(segment)
        except OSError as error:
            self._report(f"{segment.path} cannot be removed: {error}")

    def _leave(self) -> str | None:
        """Write down what the next start has to know; why it cannot trust that, if so."""
        self.checkpoint()
        if self._broken is not None:
            return self._broken
        if self._checkpoint.confirmed_offset != self.log.end:
            return f"the last checkpoint is at {self._checkpoint.confirmed_offset}"
        note = CleanStop(
            log_end=self.log.end,
            index_end=-1 if self._index is None else self._index.max_log_offset,
            totals=self._queues.totals(),
        )
        try:
            note.leave(self._disk, self.directory / "clean-stop.json")
        except OSError as error:
            return f"writing the note failed: {error}"
        return None


def _encode(messages: Sequence[StoredMessage], at: int) -> bytes:
    records = []
    for message in messages:
        message.log_offset = at
        record = message.encode()
        message.size = len(record)
        at += message.size
        records.append(record)
    return b"".join(records)
