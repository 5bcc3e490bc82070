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
from itertools import repeat
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Self, TypeAlias

from gantrymq.errors import NotWritable, StoreError, StoreFull
from gantrymq.rules.delay import DELAY_LEVELS, DelayLevels
from gantrymq.store import light
from gantrymq.store.ages import AgeClock
from gantrymq.store.chores import Chores
from gantrymq.store.commit_log import BLANK_SIZE, RecordTooLarge
from gantrymq.store.config import StoreConfig
from gantrymq.store.disk import Disk, RealDisk
from gantrymq.store.dispatch import Arrived
from gantrymq.store.flush import Flusher, Waiter
from gantrymq.store.lookups import IN_QUEUES, Lookups
from gantrymq.store.opening import MakeParts, StoreFiles
from gantrymq.store.parts import RocketParts
from gantrymq.store.queue_table import Slot
from gantrymq.store.recovery import Recovered, Report
from gantrymq.store.retention import Fullness, Limits, Retention
from gantrymq.store.segment import Segment
from gantrymq.store.timers import TimerFiles
from gantrymq.wire.flags import TRANSACTION_BITS
from gantrymq.wire.message_id import offset_id
from gantrymq.wire.moved_record import Parts, moved, moved_size, parts_at
from gantrymq.wire.plain_record import plain_records, plain_size
from gantrymq.wire.record import StoredMessage

_logger: Final = logging.getLogger("gantrymq.store")
_AT_DISPATCH: Final = "writing queue or index failed"
_BEYOND_BODY: Final = 64 * 1024
"""What a record may have besides a body of the greatest size."""


Later: TypeAlias = Callable[[Callable[[], object]], object]
_PutOff: TypeAlias = tuple[Slot, list[bytes], Sequence[tuple[bytes, int, str]], int, int, int, int]
"""What `Dispatcher.plain` takes, and where the last record ends."""


class Move(NamedTuple):
    """A message that goes on into another queue, and what it is there."""

    slot: Slot
    """From `Store.plain_slot`."""
    parts: Parts
    prepared_offset: int
    raw: bytes
    """Its properties; no light queues are among them."""
    unique: str
    """Its unique key, which is among them."""
    keys: str
    """Its other keys, with blanks between them, which are as well."""


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


class Store(Lookups):
    """The store, open.

    RocketMQ: DefaultMessageStore.
    """

    def __init__(
        self,
        files: StoreFiles,
        config: StoreConfig,
        *,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        hour: Callable[[], int],
        report: Report,
    ) -> None:
        super().__init__(files, config.read, report)
        self.config = config
        self.limits: dict[str, Limits] = {}
        """How much of which topics is kept, where that is not as much as of others."""
        self.later: Later | None = None
        """Has something done when whoever waits for an answer has it; plain messages get into
        queues and index then. Without it they get there at once."""
        self._put_off: list[_PutOff] = []
        self._queues = files.queues
        self._dispatcher = files.dispatcher
        self._clock_ms = clock_ms
        self._monotonic = monotonic
        self._report = report
        self._broken: str | None = None
        self._refusal: StoreError | None = None
        self._closed = self._in_tick = False
        self._flusher = Flusher(
            files.log, interval=config.flush.interval, timeout=config.flush.timeout,
            failed=self._break, monotonic=monotonic,
        )  # fmt: skip
        self._retention = Retention(
            files.log, files.queues, files.disk, files.directory, config.retention, config.space,
            ages=AgeClock(clock_ms, monotonic, report), hour=hour, report=report,
        )  # fmt: skip
        self.compaction = files.compaction
        self._retention.needed_from = files.compaction.needed_from
        self._chores = Chores(self.checkpoint, config.flush.checkpoint_interval)
        self._largest = config.log.max_message_size + _BEYOND_BODY
        self._held: deque[tuple[int, Slot, StoredMessage]] | None = (
            deque() if config.flush.mode == "sync" else None
        )
        self._dispatched_to = files.log.end
        self._light = self._light_at = -1
        self._last_ms = files.checkpoint.log_ms
        self._next_round = monotonic() + config.retention.interval
        self._refuse_if_full()

    @classmethod
    def open(
        cls,
        directory: Path,
        config: StoreConfig,
        parts: MakeParts | None = None,
        *,
        disk: Disk | None = None,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
        hour: Callable[[], int] = lambda: time.localtime().tm_hour,
        report: Report = _logger.warning,
        delays: DelayLevels = DELAY_LEVELS,
    ) -> Self:
        """Open or begin the store in `directory`, and recover it if it has to be."""
        files = StoreFiles(
            directory, config, parts or RocketParts(clock_ms), disk=disk or RealDisk(),
            monotonic=monotonic, report=report, delays=delays,
        )  # fmt: skip
        try:
            return cls(
                files, config, clock_ms=clock_ms, monotonic=monotonic, hour=hour, report=report
            )
        except BaseException:
            files.close(in_order=False)
            raise

    # what happens by itself

    def start(self, notify: Callable[[], object], *, threads: bool = True) -> None:
        """Start the threads; `notify` is called from one of them when `settle` is due.

        Without threads, `tick` does what they would do.
        """
        self._flusher.start(notify, thread=threads)
        self._in_tick = not threads
        if threads:
            self._chores.start()

    def settle(self) -> None:
        """Take note of what reached the disk: let it be read, and tell who waits."""
        self.catch_up()
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
        if self._in_tick:
            self._flusher.tick()
            self._chores.tick(self._monotonic())
        if self._monotonic() >= self._next_round:
            self.clean()

    def clean(self) -> None:
        """See which old messages have to go, and whether the disk has room."""
        self._next_round = self._monotonic() + self.config.retention.interval
        for segment in self._retention.round(self._flusher.flushed_to, self.limits):
            self._chores.do(partial(self._remove, segment))
            if self._files.index is not None:
                self._files.index.correct_min(self.log.start)
        self._refuse_if_full()

    def flush(self) -> None:
        """Sync the log now, and settle."""
        self._flusher.flush()
        self.settle()

    def checkpoint(self) -> None:
        """Bring queues and index to the disk, so that a restart need not read what is in them."""
        end, newest_ms = min(self._flusher.flushed_to, self._dispatched_to), self._last_ms
        if end == self._files.checkpoint.confirmed_offset or self._broken is not None:
            return
        try:
            self._files.save_checkpoint(end, newest_ms)
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
        self._refusal = NotWritable(f"the store in {self._files.directory} is closed")
        self.catch_up()
        behind = self._flusher.behind
        self._chores.stop()
        self._flusher.stop()
        self.settle()
        problem = self._leave()
        self._files.close(in_order=problem is None)
        flushed = behind - self._flusher.behind
        return Closed(flushed=flushed, log_end=self.log.end, problem=problem)

    # writing

    def append(self, message: StoredMessage) -> Appended:
        """Store `message`; its offsets, store time and size are set to what they come to be."""
        if self._refusal is not None:
            self._refuse(self._refusal)
        if self._put_off:
            self.catch_up()
        slot = self._slots.get((message.topic, message.queue_id))
        if slot is None:
            slot = self._queues.obtain(message.topic, message.queue_id)
        log = self.log
        counted = message.sys_flag & TRANSACTION_BITS in IN_QUEUES
        lights = self._lights(message) if light.MARK in message.property_bytes else ()
        message.queue_offset = queue_offset = slot.next_offset if counted else 0
        message.store_ms = self._last_ms = self._clock_ms()
        message.log_offset = log_offset = log.end
        data = message.encode()
        message.size = size = len(data)
        if log_offset + size + BLANK_SIZE > log.limit or size > self._largest:
            self._roll(size)
            message.log_offset = log_offset = log.end
            data = message.encode()
        log.put(data)
        end = log_offset + size
        if counted:
            slot.next_offset = queue_offset + 1
            for one in lights:
                one.next_offset += 1
        if self._held is not None:
            self._held.append((end, slot, message))
        else:
            try:
                self._dispatcher.dispatch(slot, message)
            except OSError as error:
                self._break_at_dispatch(error)
            self._dispatched_to = end
        place = offset_id(message.store_ip, message.store_port, log_offset)
        # what `Appended(…)` does, in half the time
        return tuple.__new__(Appended, (log_offset, queue_offset, size, end, place))

    def append_batch(self, messages: Sequence[StoredMessage]) -> Appended:
        """Store messages of one queue side by side, all or none."""
        if self._refusal is not None:
            self._refuse(self._refusal)
        self.catch_up()
        first, log = messages[0], self.log
        slot = self._queues.obtain(first.topic, first.queue_id)
        now = self._last_ms = self._clock_ms()
        for number, message in enumerate(messages, slot.next_offset):
            if message.topic != slot.topic or message.queue_id != slot.queue_id:
                raise StoreError(f"a batch for {slot!r} has {message!r}")
            message.queue_offset = number
            message.store_ms = now
            if light.MARK in message.property_bytes:
                light.set_places(message, [])
        data = _encode(messages, log.end)
        if log.end + len(data) + BLANK_SIZE > log.limit or len(data) > self._largest:
            self._roll(len(data))
            data = _encode(messages, log.end)
        log.put(data)
        slot.next_offset += len(messages)
        if self._held is not None:
            ends = [message.log_offset + message.size for message in messages]
            self._held.extend(zip(ends, repeat(slot), messages))
        else:
            for message in messages:
                self._dispatch(slot, message, message.log_offset + message.size)
        ip, port = first.store_ip, first.store_port
        ids = ",".join([offset_id(ip, port, message.log_offset) for message in messages])
        return Appended(first.log_offset, first.queue_offset, len(data), log.end, ids)

    def plain_slot(self, topic: str, queue_id: int) -> Slot | None:
        """The queue's slot, for `append_plain`; None where only `append` will do."""
        slot = self._slots.get((topic, queue_id)) if self._held is None else None
        return None if slot is None or slot.topic_part is None else slot

    def append_plain(
        self,
        slot: Slot,
        messages: Sequence[tuple[bytes, bytes, int]],
        about: Sequence[tuple[bytes, int, str]],
        sys_flag: int,
        born_ms: int,
        hosts: tuple[bytes, int, bytes, int],
    ) -> Appended:
        """What `append_batch` does, with a third of the work, for plain records.

        `messages` are bodies, properties and flags, `about` their properties, tags codes and unique
        keys (there are no other keys), `hosts` the addresses and ports of sender and broker.
        """
        if self._refusal is not None:
            self._refuse(self._refusal)
        log, topic, queue_offset = self.log, slot.topic_part or b"", slot.next_offset
        size = plain_size(topic, messages)
        if log.end + size + BLANK_SIZE > log.limit or size > self._largest:
            self._roll(size)
        log_offset = log.end
        self._last_ms = store_ms = self._clock_ms()
        records = plain_records(
            topic, messages, slot.queue_id, queue_offset, log_offset, sys_flag, born_ms, store_ms,
            hosts,
        )  # fmt: skip
        log.put(records[0] if len(records) == 1 else b"".join(records))
        slot.next_offset = queue_offset + len(records)
        end = log_offset + size
        put_off = self._put_off
        put_off.append((slot, records, about, queue_offset, log_offset, store_ms, end))
        if self.later is None:
            self.catch_up()
        elif len(put_off) == 1:
            self.later(self.catch_up)
        ids = ",".join(_offset_ids(records, log_offset, hosts[2], hosts[3]))
        return tuple.__new__(Appended, (log_offset, queue_offset, size, end, ids))

    def parts_at(self, log_offset: int) -> Parts | None:
        """The record at a place of the log, for `append_moved`; None if it is not ordinary."""
        segment = self.log.segments.find(log_offset)
        if segment is None or log_offset >= self.log.end:
            return None
        trusted = log_offset >= self.recovered.start
        return parts_at(segment.view, log_offset - segment.base, log_offset, trusted=trusted)

    def append_moved(self, moves: Sequence[Move]) -> list[int]:
        """Store messages of the log in other queues, side by side; the sizes of those that were.

        That may be fewer of them, or none, where `append` has to do it: a new file begins.
        """
        if self._refusal is not None:
            self._refuse(self._refusal)
        self.catch_up()
        log, start = self.log, self.log.end
        self._last_ms = store_ms = self._clock_ms()
        records: list[bytes] = []
        offsets: list[int] = []
        at, most = start, min(log.limit - BLANK_SIZE, start + self._largest)
        for slot, parts, prepared_offset, raw, _, _ in moves:
            topic, offset = slot.topic_part or b"", slot.next_offset
            end = at + moved_size(parts, topic, raw)
            if end > most:
                break
            records.append(
                moved(parts, topic, raw, slot.queue_id, offset, at, store_ms, prepared_offset)
            )
            offsets.append(offset)
            slot.next_offset = offset + 1
            at = end
        try:
            log.put(b"".join(records))
        except StoreFull:
            for slot, *_ in moves[: len(records)]:
                slot.next_offset -= 1
            raise
        sizes = [len(record) for record in records]
        at, put = start, self._dispatcher.moved
        try:
            for move, offset, size in zip(moves, offsets, sizes, strict=False):
                slot, _, _, raw, unique, keys = move
                put(slot, raw, unique, keys, offset, at, size, store_ms)
                at += size
                self._dispatched_to = at
        except OSError as error:
            self._break_at_dispatch(error)
        return sizes

    def catch_up(self) -> None:
        """Bring plain messages into queues and index that were put off.

        Whoever asks for a queue has this done first, so nobody sees a message missing that was
        acknowledged.
        """
        if not self._put_off:
            return
        put_off, self._put_off = self._put_off, []
        try:
            for slot, records, about, queue_offset, log_offset, store_ms, end in put_off:
                self._dispatcher.plain(slot, records, about, queue_offset, log_offset, store_ms)
                self._dispatched_to = end
        except OSError as error:
            self._break(f"{_AT_DISPATCH}: {error}; the next start completes them")
        self.log.get_ready()

    def has_room_for_light(self, names: Sequence[str]) -> bool:
        """Whether there may be as many light queues as there then were."""
        new = sum(light.is_name(name) and (name, 0) not in self._slots for name in {*names})
        return not new or self._count_light() + new <= self.config.queues.most_light

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
        self.catch_up()
        self.compaction.remove_topic(topic)
        self._queues.remove_topic(topic)
        if self._held:
            self._held = deque(held for held in self._held if held[2].topic != topic)

    def timers(self, file_size: int, *, make: bool) -> TimerFiles | None:
        """The files of messages that wait for a time; None if there are none to be made."""
        files = self._files
        if not make and not TimerFiles.are_there(files.disk, files.directory):
            return None
        return TimerFiles(files.disk, files.directory, file_size)

    # how it is

    @property
    def directory(self) -> Path:
        """Where it is."""
        return self._files.directory

    @property
    def recovered(self) -> Recovered:
        """What had to be done to open it."""
        return self._files.recovered

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
    def dispatched_to(self) -> int:
        """The offset up to which the log's messages can be read."""
        return self._dispatched_to

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

    # inside

    def _lights(self, message: StoredMessage) -> list[Slot]:
        """The light queues that `message` is going to be in; it says so from now on."""
        names = light.names_of(message) if self.config.queues.light else []
        places, slots = [], []
        for name in names:
            slot = self._light_slot(name)
            if slot is None or slot in slots:
                places.append(light.NOWHERE)
            else:
                places.append(str(slot.next_offset))
                slots.append(slot)
        light.set_places(message, places)
        return slots

    def _light_slot(self, name: str) -> Slot | None:
        found = self._slots.get((name, 0))
        if not light.is_name(name) or (found is None and not self.has_room_for_light([name])):
            return None
        return self._queues.obtain(name, 0)

    def _count_light(self) -> int:
        if self._light_at != self._queues.changes:
            self._light_at = self._queues.changes
            self._light = sum(topic.startswith(light.PREFIX) for topic, _ in self._slots)
        return self._light

    def _dispatch(self, slot: Slot, message: StoredMessage, end: int) -> None:
        try:
            self._dispatcher.dispatch(slot, message)
        except OSError as error:
            self._break_at_dispatch(error)
        self._dispatched_to = end

    def _break_at_dispatch(self, error: OSError) -> NoReturn:
        self._break(f"{_AT_DISPATCH}: {error}; the next start completes them")
        assert self._refusal is not None
        self._refuse(self._refusal)

    def _roll(self, size: int) -> None:
        if size > self._largest or size + BLANK_SIZE > self.config.log.segment_size:
            raise RecordTooLarge(
                f"a record of {size} bytes; the most is {self._largest}, within files of"
                f" {self.config.log.segment_size}"
            )
        self.log.roll()

    def give_up(self, why: str) -> None:
        """Store nothing any more until the next start: files beside the log cannot be trusted."""
        self._break(why)

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
        confirmed = self._files.checkpoint.confirmed_offset
        if confirmed != self.log.end:
            return f"the last checkpoint is at {confirmed} of the log"
        try:
            self._files.leave_note()
        except OSError as error:
            return f"writing the note for the next start failed: {error}"
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


def _offset_ids(records: Sequence[bytes], at: int, ip: bytes, port: int) -> list[str]:
    ids = []
    for record in records:
        ids.append(offset_id(ip, port, at))
        at += len(record)
    return ids
