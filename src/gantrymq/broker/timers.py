"""Messages that are delivered at a time of their own, to the millisecond.

Such a message is stored in `rmq_sys_wheel_timer`; where it is meant to go stands in its properties.
From there it goes through the timer log and the timer wheel, in RocketMQ's files, and what is due
within the next seconds is in memory (`timer_slots`). However many wait, memory holds no more.

```
redirect ──▶ store, in the timer topic ──arrived──▶ timer log and wheel ──near──▶ memory
                          ▲──── due in more than two days: stored anew ─────────────│
                                    store, in its own topic ◀──────────due──────────┘
```

RocketMQ delivers at the end of the second in which a message is due; here its own millisecond
counts. Nothing is delivered before it, by the wall clock. When that is set ahead, messages come
sooner by as much; when it is set back, they wait.

**Crashes.** A delivered message carries the place in the log that it had while it waited. A start
looks through the end of the log for such places, so that nothing is delivered twice, and the wheel
has everything that was not delivered.

RocketMQ: TimerMessageStore, RecallMessageProcessor.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from gantrymq.broker.config import TimersConfig
from gantrymq.broker.hosts import hosts_of
from gantrymq.broker.timer_properties import due_message
from gantrymq.broker.timer_slots import TimerSlots
from gantrymq.errors import (
    BrokerFailure,
    CorruptRecord,
    IllegalOperation,
    InvalidInput,
    LocalProtocolError,
    MessageIllegal,
    NoPermission,
    NotWritable,
    ServiceUnavailable,
    StoreError,
    StoreFull,
    TopicNotFound,
)
from gantrymq.protocol.names import HALF_TOPIC, TIMER_TOPIC
from gantrymq.protocol.recall_handles import RecallHandle
from gantrymq.protocol.sending import RecallMessage, RecallReply
from gantrymq.protocol.topics import WRITE
from gantrymq.rules.timing import SECOND_MS, asked_time, due_time, look_time, out_time
from gantrymq.store.store import Move
from gantrymq.store.timer_log import DELETE, DONE, PLAIN, ROLL
from gantrymq.store.timers import Entry, TimerCheck
from gantrymq.wire import properties
from gantrymq.wire.javahash import java_hash
from gantrymq.wire.plain_record import topic_part
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.broker.timer_slots import Held
    from gantrymq.net.peer import Peer
    from gantrymq.store.store import Store
    from gantrymq.store.timer_log import Unit
    from gantrymq.store.timers import TimerFiles

log = logging.getLogger("gantrymq.broker")

SAVE_INTERVAL: Final = 1.0
_AT_ONCE: Final = 128
"""Messages that are delivered together before anything else has a turn; one alone counts twice."""
_IN_A_TURN: Final = 2000
"""Messages that get their units before anything else has a turn."""
_GRAIN: Final = 0.005
"""Seconds between looks at the least, unless there is more to deliver already."""
_LOOK: Final = 1.0
"""Seconds after which the clock is looked at again at the latest."""
_REFUSED: Final = 1.0
"""Seconds until the next attempt after the store took nothing."""
_QUIET_SAVES: Final = 10
"""Times that nothing is saved while nothing but the clock has moved on."""
_OUT: Final = b"TIMER_OUT_MS\x01"
_END: Final = b"\x02"
_END_BYTE: Final = 2
_REAL_TOPIC: Final = b"REAL_TOPIC\x01"
_TAKES_BACK: Final = b"TIMER_DEL_UNIQKEY\x01"
_ROLLED: Final = b"TIMER_ROLL_TIMES\x01"
_RECALL_TAG: Final = "_RECALL_TAG_"
_TIMER_TOPIC: Final = topic_part(TIMER_TOPIC)
_OF_WAITING: Final = (
    properties.REAL_TOPIC,
    properties.REAL_QUEUE_ID,
    properties.WAIT,
    properties.TIMER_ENQUEUE_MS,
    properties.TIMER_DEQUEUE_MS,
)
"""What a delivered message has no more, or anew."""


class Timers:
    """Delivers timed messages when they are due."""

    def __init__(
        self,
        settings: TimersConfig,
        *,
        store: Store,
        broker: str,
        clock_ms: Callable[[], int],
        delivered: Callable[[str, int, int], object],
    ) -> None:
        """`delivered` is told of each message that went on: topic, queue id, size."""
        self.settings = settings
        self.behind = 0
        """How many messages are due and not delivered yet, at the last look."""
        self._store = store
        self._broker = broker
        self._clock_ms = clock_ms
        self._delivered_one = delivered
        self._files: TimerFiles | None = None
        self._slots: TimerSlots
        self._queue_offset = 0
        self._came: deque[tuple[int, bytes]] = deque()
        self._is_full = False
        """Whether the disk has no room for the units of messages that came."""
        self._placed: deque[tuple[int, int, int]] = deque()
        self._taken_back: dict[str, int] = {}
        self._delivered: set[int] = set()
        self._window_ms = self._window()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at = 0.0
        self._saving: asyncio.Task[None] | None = None
        self._failed = False
        self._quiet = 0

    # --- taking messages in ---------------------------------------------------------------------

    def redirect(self, message: StoredMessage) -> None:
        """Have a message wait that asks for a time to come; refuse one that asks for too much."""
        raw, now_ms = message.property_bytes, self._clock_ms()
        if message.topic == TIMER_TOPIC or (_OUT in raw and message.find(properties.TIMER_OUT_MS)):
            return
        try:
            due_ms = asked_time(raw, now_ms)
        except InvalidInput as error:
            raise MessageIllegal.because(str(error)) from error
        if due_ms is None:
            return
        self._check(due_ms, now_ms, takes_back=_TAKES_BACK in raw)
        if due_ms <= now_ms:
            return
        more = {
            properties.TIMER_OUT_MS: str(out_time(due_ms)),
            properties.REAL_TOPIC: message.topic,
            properties.REAL_QUEUE_ID: str(message.queue_id),
        }
        message.property_bytes = properties.added(raw, more)
        message.topic, message.queue_id = TIMER_TOPIC, 0

    def _check(self, due_ms: int, now_ms: int, *, takes_back: bool) -> None:
        if not self.settings.enabled:
            raise BrokerFailure.because(
                "accurate timer message is not enabled, timerWheelEnable is false"
            )
        most = self.settings.longest
        if due_ms - now_ms > most * SECOND_MS or (takes_back and due_ms <= now_ms):
            raise MessageIllegal.because(
                "timer message illegal, the delay time should not be bigger than the max delay"
                f" {most * SECOND_MS:.0f}ms; or if set del msg, the delay time should be bigger"
                " than the current time"
            )

    def handle(self, message: StoredMessage) -> str | None:
        """With what a message that was stored can be taken back."""
        out_ms = message.find(properties.TIMER_OUT_MS)
        if message.topic != TIMER_TOPIC or out_ms is None:
            return None
        topic = message.find(properties.REAL_TOPIC) or ""
        return str(RecallHandle(topic, self._broker, due_time(int(out_ms)), message.message_id))

    def arrived(self, queue_offset: int, raw: bytes) -> None:
        """A message of the timer topic can be read; those are its properties."""
        if self._loop is not None and not self._is_full:
            self._came.append((queue_offset, raw))
            if len(self._came) == 1:
                self._loop.call_soon(self._take_in)

    @property
    def in_memory(self) -> int:
        """How many messages are in memory, because they are due soon."""
        return 0 if self._files is None else self._slots.count

    @property
    def next_look(self) -> float | None:
        """When the timer rings, by the loop's clock; None while nothing waits."""
        return None if self._timer is None else self._at

    # --- life -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Make the files whole, and find out what was delivered before a crash."""
        self._files = self._store.timers(self.settings.file_size, make=False)
        queue = self._store.queue(TIMER_TOPIC, 0)
        if self._files is None and (queue is None or not queue.max_offset):
            return
        files = self._obtain()
        offset = files.recover(self._queue_offset_of, log.warning)
        low = 0 if queue is None else queue.min_offset
        high = 0 if queue is None else queue.max_offset
        self._queue_offset = min(max(offset, low), high)
        since = files.check.log_offset
        if not files.check.read_ms:  # nothing was ever saved: all that was delivered came after
            since = self._first_place()
        if since is not None:
            self._find_delivered(since)
            files.forget(self._delivered)
        self._slots = self._new_slots(files)

    def start(self) -> None:
        """Begin to deliver, on the running loop."""
        self._loop = asyncio.get_running_loop()
        if self._files is not None:
            self._slots.advance(self._clock_ms())
            self._take_in()

    async def close(self) -> None:
        """Deliver nothing any more, and leave the files whole."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._files is not None:
            if self._saving is not None:
                await asyncio.wait([self._saving])
            await self._slots.close()
            self._store.flush()
            moved = self._slots.settle(self._store.flushed_to) or bool(self._placed)
            if moved and not self._failed:
                self._files.save(self._checked())
            self._files.close()
            self._files = None

    def keep(self) -> None:
        """Have saved how far everything is on the disk; to be called every `SAVE_INTERVAL`."""
        files, busy = self._files, self._saving is not None or self._failed
        if files is None or self._loop is None or busy:
            return
        moved = self._slots.settle(self._store.flushed_to)
        check = self._checked()
        moved |= (check.place, check.queue_offset) != (files.check.place, files.check.queue_offset)
        self._quiet += 1
        if not moved and (check.read_ms == files.check.read_ms or self._quiet < _QUIET_SAVES):
            return
        self._quiet = 0
        files.log.remove_before(self._store.log_start)
        self._saving = self._loop.create_task(self._save(files, check))

    async def _save(self, files: TimerFiles, check: TimerCheck) -> None:
        try:
            await asyncio.to_thread(files.save, check)
            files.leave_memory()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                log.warning(
                    "no room to save the timer files; the next attempt comes soon: %s", error
                )
            else:  # what the disk dropped, the next sync would call safe
                self._failed = True
                self._store.give_up(f"saving the timer files failed: {error}")
        finally:
            self._saving = None

    # --- inside: taking in ----------------------------------------------------------------------

    def _obtain(self) -> TimerFiles:
        if self._files is None:
            self._files = self._store.timers(self.settings.file_size, make=True)
            assert self._files is not None
            self._slots = self._new_slots(self._files)
        return self._files

    def _new_slots(self, files: TimerFiles) -> TimerSlots:
        return TimerSlots(
            files,
            self._store,
            takes_back=self._take_back,
            changed=self._set,
        )

    def _take_in(self) -> None:
        """Give units to messages that came; while the disk has no room for them, they wait."""
        now_ms = self._clock_ms()
        try:
            files = self._obtain()
            room = files.room(_IN_A_TURN)
        except OSError as error:
            self._is_full = True
            self._came.clear()
            log.warning("timed messages wait for room in the timer log: %s", error)
            self._look_in(_REFUSED)
            return
        self._is_full = False
        self._slots.advance(now_ms)
        entries = []
        end = 0
        for log_offset, size, raw in islice(self._fresh(), room):
            end = log_offset + size
            entry = self._entry(log_offset, size, raw, now_ms)
            if entry is not None:
                entries.append(entry)
        files.add(entries, now_ms)
        if end:
            self._placed.append((end, files.log.end, self._queue_offset))
        if self._has_more() and self._loop is not None:
            self._loop.call_soon(self._take_in)
        else:
            self._delivered.clear()
        self._set()

    def _has_more(self) -> bool:
        queue = self._store.queue(TIMER_TOPIC, 0)
        return queue is not None and self._queue_offset < queue.max_offset

    def _fresh(self) -> Iterator[tuple[int, int, bytes]]:
        """Place, size and properties of the messages that have no unit yet."""
        queue, came = self._store.queue(TIMER_TOPIC, 0), self._came
        offset, end = self._queue_offset, 0 if queue is None else queue.max_offset
        while queue is not None and offset < end:
            for log_offset, size, _ in queue.entries(offset, end - offset):
                self._queue_offset = offset + 1
                if came and came[0][0] == offset:
                    yield log_offset, size, came.popleft()[1]
                elif (raw := self._properties_at(log_offset)) is not None:
                    yield log_offset, size, raw
                offset += 1
        came.clear()

    def _entry(self, log_offset: int, size: int, raw: bytes, now_ms: int) -> Entry | None:
        """What the timer log is to have of a message; None if it does not wait."""
        out_ms, topic = _waits_for(raw)
        if out_ms is None or log_offset in self._delivered:
            return None
        due_ms = due_time(out_ms)
        look_ms = look_time(due_ms, now_ms, self._window_ms)
        magic = PLAIN if look_ms == due_ms else PLAIN | ROLL
        slot_ms, near = self._slots.place(look_ms)
        if _TAKES_BACK in raw:
            magic |= DELETE
        if magic & (DELETE | ROLL) == DELETE:
            if near:
                self._take_back_by(raw, slot_ms // SECOND_MS)
        elif near:
            self._slots.hold(look_ms, log_offset, rolls=bool(magic & ROLL))
        return Entry(slot_ms, magic, due_ms, log_offset, size, _hash(topic))

    def _take_back(self, log_offset: int, second: int) -> None:
        raw = self._properties_at(log_offset)
        if raw is not None:
            self._take_back_by(raw, second)

    def _take_back_by(self, raw: bytes, second: int) -> None:
        key = properties.find(raw, properties.TIMER_DELETE_UNIQUE_KEY)
        if key:
            self._taken_back[key] = second

    def _properties_at(self, log_offset: int) -> bytes | None:
        message = self._waiting_at(log_offset)
        return None if message is None else message.property_bytes

    def _waiting_at(self, log_offset: int) -> StoredMessage | None:
        """The message that waits at a place of the log."""
        try:
            message = self._store.message_at(log_offset)
        except CorruptRecord as error:
            log.error("a timed message is lost: %s", error)  # noqa: TRY400
            return None
        if message.topic != TIMER_TOPIC:
            log.error("a timed message is lost: %r is in its place", message)
            return None
        return message

    # --- inside: delivering ---------------------------------------------------------------------

    def _set(self) -> None:
        """Set the timer for what comes next."""
        loop, slots = self._loop, self._slots
        if loop is None:
            return
        first, opening = slots.first(), slots.next_opening()
        if first is None and opening is None:
            return
        now_ms = self._clock_ms()
        wait_ms = min(
            _LOOK * SECOND_MS,
            *([] if first is None else [first.look_ms - now_ms]),
            *([] if opening is None else [opening - now_ms]),
        )
        self._look_in(max(_GRAIN, wait_ms / SECOND_MS))

    def _look_in(self, seconds: float) -> None:
        assert self._loop is not None
        when = self._loop.time() + seconds
        if self._timer is not None:
            if self._at <= when:
                return
            self._timer.cancel()
        self._at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._loop is not None:
            try:
                self._deliver()
            except Exception:  # whatever it is, the other messages have their time, too
                log.exception("delivering timed messages failed")
                self._look_in(_REFUSED)

    def _deliver(self) -> None:
        """Deliver what is due, and see when there is more."""
        now_ms, slots = self._clock_ms(), self._slots
        slots.advance(now_ms)
        if self._is_full:
            self._take_in()
        left = _AT_ONCE
        while left > 0:
            first = slots.first()
            if first is None or first.look_ms > now_ms:
                self.behind = 0
                self._set()
                return
            try:
                left -= self._pass_on_several(slots.due(now_ms, left)) or self._pass_on_one(first)
            except (StoreFull, NotWritable) as error:
                log.warning("timed messages wait, %s", error)
                self._look_in(_REFUSED)
                return
        self.behind = slots.count
        self._look_in(0)

    def _pass_on_several(self, log_offsets: list[int]) -> int:
        """Put messages in their own queues for which that is all; how many were."""
        moves: list[Move] = []
        now_ms = self._clock_ms()
        for log_offset in log_offsets if not self._taken_back else ():
            move = self._move(log_offset, now_ms)
            if move is None:
                break
            moves.append(move)
        if not moves:
            return 0
        sizes = self._store.append_moved(moves)
        for move, size in zip(moves, sizes, strict=False):
            self._delivered_one(move.slot.topic, move.slot.queue_id, size)
        if sizes:
            self._slots.drop_due(len(sizes))
        return len(sizes)

    def _move(self, log_offset: int, now_ms: int) -> Move | None:
        """How a message goes on, unless it takes more than that."""
        parts = self._store.parts_at(log_offset)
        if parts is None or parts.topic != _TIMER_TOPIC:
            return None
        found = due_message(parts.properties, parts.store_ms, now_ms)
        if found is None or found.topic == HALF_TOPIC:
            return None
        slot = self._store.plain_slot(found.topic, found.queue_id)
        if slot is None:
            return None
        made = slot, parts, log_offset, found.raw, found.unique, found.keys
        return tuple.__new__(Move, made)  # what `Move(…)` does, in half the time

    def _pass_on_one(self, held: Held) -> int:
        self._pass_on(held)
        self._slots.drop(held)
        return 2

    def _pass_on(self, held: Held) -> None:
        """Put the message in its own queue, or, if it is due much later, in the timer topic."""
        message = self._waiting_at(held.log_offset)
        if message is None:
            return
        raw = message.property_bytes
        more = {
            properties.TIMER_ENQUEUE_MS: str(message.store_ms),
            properties.TIMER_DEQUEUE_MS: str(self._clock_ms()),
            properties.WAIT: "false",
        }
        if held.rolls:
            rolled = (_number(message.find(properties.TIMER_ROLL_TIMES)) or 0) + 1
            more[properties.TIMER_ROLL_TIMES] = str(rolled)
            raw = properties.without(raw, *more)
        else:
            message.topic = message.find(properties.REAL_TOPIC) or ""
            message.queue_id = _number(message.find(properties.REAL_QUEUE_ID)) or 0
            if self._taken_back and self._is_taken_back(message):
                return
            if message.topic in ("", HALF_TOPIC):
                log.error("a timed message at %d is lost: it has no topic", held.log_offset)
                return
            raw = properties.without(raw, *_OF_WAITING)
        message.property_bytes = properties.added(raw, more)
        message.prepared_offset = held.log_offset
        try:
            self._store.append(message)
        except (StoreFull, NotWritable):
            raise
        except (StoreError, LocalProtocolError) as error:
            log.error("a timed message at %d is lost: %s", held.log_offset, error)  # noqa: TRY400
            return
        if not held.rolls:
            self._delivered_one(message.topic, message.queue_id, message.size)

    def _is_taken_back(self, message: StoredMessage) -> bool:
        unique = message.find(properties.UNIQUE_KEY) or ""
        return f"{message.topic}+{unique}" in self._taken_back or unique in self._taken_back

    # --- inside: what is kept -------------------------------------------------------------------

    def _checked(self) -> TimerCheck:
        """How far everything is that the disk has."""
        files, flushed_to = self._obtain(), self._store.flushed_to
        place, queue_offset = files.check.place, files.check.queue_offset
        while self._placed and self._placed[0][0] <= flushed_to:
            _, place, queue_offset = self._placed.popleft()
        second, since = self._slots.low()
        since = min(since, flushed_to)  # what comes after it may be lost, and others be there then
        for key in [key for key, last in self._taken_back.items() if last < second]:
            del self._taken_back[key]
        state, _, counter = files.check.version
        return TimerCheck(
            read_ms=second * SECOND_MS,
            place=place,
            queue_offset=queue_offset,
            log_offset=since,
            version=(state, self._clock_ms(), counter + 1),
        )

    def _find_delivered(self, since: int) -> None:
        """What the log's last messages say of messages that wait no more."""
        for message in self._store.records(since):
            raw = message.property_bytes
            if _OUT not in raw:
                continue
            if message.topic != TIMER_TOPIC or _ROLLED in raw:
                self._note_delivered(message)
            if _TAKES_BACK in raw:
                self._take_back_by(raw, self._clock_ms() // SECOND_MS)

    def _first_place(self) -> int:
        """Where in the log the oldest message of the timer topic is, or where the log ends."""
        queue = self._store.queue(TIMER_TOPIC, 0)
        for log_offset, _, _ in () if queue is None else queue.entries(queue.min_offset, 1):
            return log_offset
        return self._store.log_end

    def _note_delivered(self, message: StoredMessage) -> None:
        """It carries the place of the one that waited, unless it only has its properties."""
        with suppress(CorruptRecord):
            waited = self._store.message_at(message.prepared_offset)
            unique = waited.find(properties.UNIQUE_KEY)
            if waited.topic == TIMER_TOPIC and unique == message.find(properties.UNIQUE_KEY):
                self._delivered.add(message.prepared_offset)

    def _queue_offset_of(self, unit: Unit) -> int | None:
        """The queue offset of a unit's message; None if there is none that fits it."""
        try:
            message = self._store.message_at(unit.log_offset)
        except CorruptRecord:
            return None
        out_ms = _number(message.find(properties.TIMER_OUT_MS))
        fits = message.topic == TIMER_TOPIC and message.size == unit.size and out_ms is not None
        if fits and unit.due_ms in (0, DONE, due_time(out_ms or 0)):
            return message.queue_offset
        return None

    def _window(self) -> int:
        """After how many ms a message is stored anew, so that the log does not forget it."""
        kept = self._store.config.retention.time
        seconds = min(self.settings.roll_after, kept / 2) if kept else self.settings.roll_after
        return int(seconds * SECOND_MS)


def _waits_for(raw: bytes) -> tuple[int | None, str]:
    """The time, as it is put down, and the topic."""
    at = raw.rfind(_OUT)
    tail = raw[at:].split(_END) if at > 0 and raw[at - 1] == _END_BYTE else ()
    if len(tail) == 4 and tail[1].startswith(_REAL_TOPIC):  # as `redirect` puts them there
        digits = tail[0][len(_OUT) :]
        if digits.isdigit():
            return int(digits), tail[1][len(_REAL_TOPIC) :].decode("utf-8", "replace")
    topic = properties.find(raw, properties.REAL_TOPIC) or ""
    return _number(properties.find(raw, properties.TIMER_OUT_MS)), topic


@lru_cache(maxsize=1024)
def _hash(topic: str) -> int:
    return java_hash(topic)


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text else None
    except ValueError:
        return None


# --- answers --------------------------------------------------------------------------------------


def recall_message(
    request: RecallMessage, broker: Broker, peer: Peer
) -> RecallReply | Awaitable[RecallReply]:
    """Take back a timed message, by storing another that meets it when it is due."""
    handle = _checked_handle(request, broker)
    hosts = hosts_of(peer, broker.advertised)
    now_ms = broker.clock_ms()
    found = {
        properties.TAGS: _RECALL_TAG,
        properties.TIMER_DELETE_UNIQUE_KEY: f"{handle.topic}+{handle.message_id}",
        properties.UNIQUE_KEY: handle.message_id,
        properties.TIMER_DELIVER_MS: str(handle.due_ms),
        properties.BORN_TIME: str(now_ms),
        properties.PRODUCER_GROUP: request.group,
    }
    message = StoredMessage(
        topic=handle.topic,
        body=b"0",
        property_bytes=properties.encode(found),
        born_ms=now_ms,
        born_ip=hosts.born_ip,
        born_port=hosts.born_port,
        store_ip=hosts.store_ip,
        store_port=hosts.store_port,
    )
    appended = broker.storing.put(message)
    reply = RecallReply(message_id=handle.message_id, region=broker.marks.region)
    return _lasting(reply, broker, appended.end) if broker.storing.waits else reply


async def _lasting(reply: RecallReply, broker: Broker, end: int) -> RecallReply:
    await broker.storing.safety(end)
    return reply


def _checked_handle(request: RecallMessage, broker: Broker) -> RecallHandle:
    settings = broker.config.timers
    if not settings.recall:
        raise NoPermission.because("recall failed, recall is not allowed by this broker")
    if not broker.config.permission & WRITE:
        raise ServiceUnavailable.because("recall failed, broker service not available")
    if request.topic not in broker.topics.table:
        raise TopicNotFound.because(f"recall failed, the topic[{request.topic}] not exist")
    try:
        handle = RecallHandle.parse(request.handle)
    except InvalidInput as error:
        raise IllegalOperation.because("recall handle is invalid") from error
    if handle.topic != request.topic:
        raise IllegalOperation.because("recall failed, topic not match")
    if handle.broker != broker.config.identity.name:
        raise IllegalOperation.because("recall failed, broker service not available")
    left = handle.due_ms - broker.clock_ms()
    if not 0 < left < settings.longest * SECOND_MS:
        raise IllegalOperation.because("recall failed, timestamp invalid")
    return handle
