"""Messages that are delivered later: the delay levels.

A message that names a level is stored in `SCHEDULE_TOPIC_XXXX`, whose queue of number *level - 1*
holds the messages of that level; where it was meant to go stands in its properties. All of a queue
wait equally long, so the first is always the next. Its entry in the queue says when it is due, and
one timer is set for the earliest of all levels: nothing is looked at in vain. A delivered message
has all the properties of the one that waited, its level included, as it has them from RocketMQ.

```
redirect ──▶ store, in the level's queue ──arrived──▶ timer ──due──▶ store, in its own queue
```

**Clocks.** Times are those of the wall clock. When that is set ahead, messages come sooner. When it
is set back, a message would seem to wait for longer than its level does; it is then taken to have
come just now, so that it is late by no more than its own delay. To notice, no level waits longer
than a second for its next look.

**Crashes.** What is kept of how far a level has come never runs ahead of what is on the disk, so
that no power cut can make a message count as delivered that was not. It does lag behind; at a
start, messages that are found in their own queue already are not delivered again.

RocketMQ: ScheduleMessageService.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Final

from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.errors import CorruptRecord, LocalProtocolError, NotWritable, StoreFull
from gantrymq.protocol import names
from gantrymq.protocol.base import Int, Long, declared, named
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.offsets import AllDelayOffsets, GetAllDelayOffsets
from gantrymq.rules.delay import DelayLevels
from gantrymq.store.commit_log import RecordTooLarge
from gantrymq.wire import properties
from gantrymq.wire.flags import Transaction, transaction_of
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.store.shapes import Queue
    from gantrymq.store.store import Store

log = logging.getLogger("gantrymq.broker")

FILE: Final = "delayOffset.json"
_VERSION_STEP: Final = 200
"""Deliveries for which the version counts one. RocketMQ: delayOffsetUpdateVersionStep."""
_AT_ONCE: Final = 16
"""Messages of each level that are delivered before anything else has a turn."""
_LOOK: Final = 1.0
"""Seconds after which a level is looked at again at the latest."""
_GRAIN: Final = 0.005
"""Seconds between looks at the least, unless there is more to deliver already."""
_REFUSED: Final = 1.0
"""Seconds until the next attempt after the store took nothing."""
_TIMERS: Final = (
    properties.TIMER_DELIVER_MS,
    properties.TIMER_DELAY_SECONDS,
    properties.TIMER_DELAY_MS,
)


@declared
class KeptDelays:
    """What is in the file. RocketMQ: DelayOffsetSerializeWrapper."""

    version: DataVersion = named("dataVersion", default_factory=DataVersion)
    offsets: dict[Int, Long] = named("offsetTable", default_factory=dict)


class Delays:
    """Delivers delayed messages when they are due."""

    def __init__(
        self,
        levels: DelayLevels,
        *,
        store: Store,
        keeper: Keeper,
        clock_ms: Callable[[], int],
        delivered: Callable[[StoredMessage], object] | None = None,
    ) -> None:
        """`delivered` is told of each message that went on to its own queue."""
        self.levels = levels
        self.offsets: dict[int, int] = {}
        """How far each level has come."""
        self._store = store
        self._keeper = keeper
        self._clock_ms = clock_ms
        self._delivered = delivered
        self._version = DataVersion(timestamp_ms=clock_ms())
        self._count = 0
        self._safe: dict[int, int] = {}
        self._unsafe: deque[tuple[int, int, int]] = deque()
        self._changed = False
        self._skew: dict[int, int] = {}
        self._due = [-inf] * (levels.highest + 1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at = inf

    # --- taking messages in ---------------------------------------------------------------------

    def redirect(self, message: StoredMessage) -> None:
        """Have a message that names a delay level wait for it: its topic and queue change."""
        if transaction_of(message.sys_flag) in (Transaction.PREPARED, Transaction.ROLLBACK):
            return
        found = message.properties
        level = min(_number(found.get(properties.DELAY)), self.levels.highest)
        if level <= 0:
            return
        for name in _TIMERS:
            found.pop(name, None)
        found[properties.DELAY] = str(level)
        found[properties.REAL_TOPIC] = message.topic
        found[properties.REAL_QUEUE_ID] = str(message.queue_id)
        message.property_bytes = properties.encode(found)
        message.topic = names.SCHEDULE_TOPIC
        message.queue_id = level - 1

    def arrived(self, queue_id: int, due_ms: int) -> None:
        """A message of level `queue_id + 1` can be read, and is to be delivered then."""
        if self._loop is not None and queue_id < self.levels.highest:
            wait = max(_GRAIN, (due_ms - self._clock_ms()) / 1000)
            self._look_by(queue_id + 1, wait)

    # --- life -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Take in how far the levels had come, and find out how far they really have."""
        tree = self._keeper.load(FILE)
        if tree is not None:
            kept: KeptDelays = shape(KeptDelays).read(tree)
            self._version = kept.version
            self.offsets.update(kept.offsets)
        passed_on = _PassedOn(self._store)
        for level in range(1, self.levels.highest + 1):
            queue = self._store.queue(names.SCHEDULE_TOPIC, level - 1)
            if queue is not None:
                self.offsets[level] = self._first_left(level, queue, passed_on)
        self._safe = dict(self.offsets)

    def start(self) -> None:
        """Begin to deliver, on the running loop."""
        self._loop = asyncio.get_running_loop()
        for level in range(1, self.levels.highest + 1):
            self._look_by(level, 0)

    def stop(self) -> None:
        """Deliver nothing any more, and have kept how far the levels have come."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsafe:
            self._store.flush()
        self.keep()

    def keep(self) -> None:
        """Have written how far the levels have come on the disk, if that changed."""
        unsafe, flushed_to = self._unsafe, self._store.flushed_to
        while unsafe and unsafe[0][0] <= flushed_to:
            _, level, offset = unsafe.popleft()
            self._safe[level] = offset
            self._changed = True
        if self._changed:
            self._changed = False
            self._keeper.keep(FILE, self._tree)

    def behind(self, level: int) -> tuple[int, int]:
        """How far a level has come, and how far it has to go."""
        queue = self._store.queue(names.SCHEDULE_TOPIC, level - 1)
        return self.offsets.get(level, 0), 0 if queue is None else queue.max_offset

    @property
    def next_look(self) -> float | None:
        """When the timer rings, by the loop's clock; None while nothing waits."""
        return None if self._timer is None else self._at

    def snapshot(self) -> KeptDelays:
        """How far the levels have come, in the form that is kept and sent."""
        return KeptDelays(version=self._version, offsets=dict(self._safe))

    # --- the timer ------------------------------------------------------------------------------

    def _look_by(self, level: int, seconds: float) -> None:
        """Look at a level in so many seconds at the latest."""
        assert self._loop is not None
        when = self._loop.time() + seconds
        due = self._due[level]
        self._due[level] = when if due == -inf else min(due, when)
        self._set(self._due[level])

    def _set(self, when: float) -> None:
        if self._loop is None or when == inf or (self._timer is not None and self._at <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self._loop is None:
            return
        now = self._loop.time()
        for level in range(1, len(self._due)):
            if self._due[level] <= now + _GRAIN / 2:
                wait = self._deliver(level)
                self._due[level] = inf if wait == inf else now + (wait and max(wait, _GRAIN))
        self._set(min(self._due[1:]))

    # --- delivering -----------------------------------------------------------------------------

    def _deliver(self, level: int) -> float:
        """Deliver what is due; the seconds until there may be more, 0 if there is already."""
        queue = self._store.queue(names.SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return inf
        offset = self._within(level, queue)
        if offset >= queue.max_offset:
            return inf
        now = self._clock_ms()
        count = min(_AT_ONCE, queue.max_offset - offset)
        for log_offset, _, due_ms in queue.entries(offset, count):
            wait = self._wait(level, due_ms - now)
            if wait > 0:
                return min(wait / 1000, _LOOK)
            try:
                self._pass_on(level, offset, log_offset)
            except (StoreFull, NotWritable) as error:
                log.warning("level %d waits, %s", level, error)
                return _REFUSED
            offset += 1
        return 0.0 if offset < queue.max_offset else inf

    def _within(self, level: int, queue: Queue) -> int:
        held = self.offsets.get(level, 0)
        offset = min(max(held, queue.min_offset), queue.max_offset)
        if offset != held:
            if held:
                log.warning(
                    "level %d was at %d; its queue has %d to %d",
                    level, held, queue.min_offset, queue.max_offset,
                )  # fmt: skip
            self.offsets[level] = offset
        return offset

    def _wait(self, level: int, wait: int) -> int:
        """How many ms a message waits that is due in `wait` ms by the wall clock."""
        longest = 1000 * self.levels.delay(level)
        if wait <= longest:
            return wait
        wait -= self._skew.get(level, 0)
        if wait > longest:  # it came before the clock was set back: as if it came now
            self._skew[level] = self._skew.get(level, 0) + wait - longest
            wait = longest
        return wait

    def _pass_on(self, level: int, offset: int, log_offset: int) -> None:
        """Put the message in its own queue, unless it cannot be read or has none."""
        end = 0
        message = self._restored(level, offset, log_offset)
        if message is not None:
            try:
                end = self._store.append(message).end
            except (RecordTooLarge, LocalProtocolError) as error:
                log.error("a delayed message at %d is lost: %s", log_offset, error)  # noqa: TRY400
            else:
                if self._delivered is not None:
                    self._delivered(message)
        self.offsets[level] = offset + 1
        self._unsafe.append((end, level, offset + 1))
        self._count += 1
        if self._count % _VERSION_STEP == 0:
            version = self._version
            self._version = DataVersion(
                state=version.state, timestamp_ms=self._clock_ms(), counter=version.counter + 1
            )

    def _restored(self, level: int, offset: int, log_offset: int) -> StoredMessage | None:
        """The message as it was before it was redirected; None if there is none to be restored."""
        try:
            message = self._store.message_at(log_offset)
        except CorruptRecord as error:
            log.error("a delayed message is lost: %s", error)  # noqa: TRY400
            return None
        place = message.topic, message.queue_id, message.queue_offset
        if place != (names.SCHEDULE_TOPIC, level - 1, offset):  # the entry stands for a lost one
            return None
        topic = message.find(properties.REAL_TOPIC)
        if not topic or topic == names.HALF_TOPIC:
            log.error("a delayed message at %d is lost: it was for %s", log_offset, topic)
            return None
        message.topic = topic
        message.queue_id = _number(message.find(properties.REAL_QUEUE_ID))
        return message

    # --- what was delivered before a crash ------------------------------------------------------

    def _first_left(self, level: int, queue: Queue, passed_on: _PassedOn) -> int:
        """The first message of a level that was not delivered yet."""
        offset = self._within(level, queue)
        now = self._clock_ms()
        while offset < queue.max_offset:
            for log_offset, _, due_ms in queue.entries(offset, _AT_ONCE):
                if self._wait(level, due_ms - now) > 0:
                    return offset
                message = self._restored(level, offset, log_offset)
                if message is None or not passed_on.take(message, due_ms):
                    return offset
                offset += 1
        return offset

    def _tree(self) -> Tree:
        return shape(KeptDelays).write(self.snapshot())


class _PassedOn:
    """The messages that were delivered after they were due, for a start to look at.

    A delivered message is in its own queue, stored when it was due or later. So of each queue only
    the end is read: back to the earliest of those times that anybody asked for.
    """

    __slots__ = ("_found", "_seen_from", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: Counter[tuple[str, int, str | None, int, int]] = Counter()
        self._seen_from: dict[tuple[str, int], int] = {}

    def take(self, message: StoredMessage, due_ms: int) -> bool:
        """Whether `message` was delivered; each delivery is taken once."""
        self._look(message.topic, message.queue_id, due_ms)
        key = _delivery(message)
        if not self._found[key]:
            return False
        self._found[key] -= 1
        return True

    def _look(self, topic: str, queue_id: int, since_ms: int) -> None:
        """Read the queue's end back to that time, as far as it was not read yet."""
        queue = self._store.queue(topic, queue_id)
        if queue is None or queue.min_offset == queue.max_offset:
            return
        end = self._seen_from.get((topic, queue_id), queue.max_offset)
        offset = start = queue.offset_at(since_ms, "lower")
        while offset < end:
            for log_offset, _, _ in queue.entries(offset, min(_AT_ONCE, end - offset)):
                offset += 1
                with suppress(CorruptRecord):
                    message = self._store.message_at(log_offset)
                    if message.find(properties.REAL_TOPIC) == topic:
                        self._found[_delivery(message)] += 1
        self._seen_from[topic, queue_id] = min(start, end)


def _delivery(message: StoredMessage) -> tuple[str, int, str | None, int, int]:
    """What a delivered message has in common with the one that waited, and with no other."""
    unique = message.find(properties.UNIQUE_KEY)
    place = message.topic, message.queue_id
    return (*place, unique, message.reconsume_times, message.body_crc)


def _number(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0


# --- answers --------------------------------------------------------------------------------------


def get_all_delay_offsets(
    _request: GetAllDelayOffsets, broker: Broker, _peer: Peer
) -> AllDelayOffsets:
    """How far each level has come."""
    held = broker.delays.snapshot()
    return AllDelayOffsets(version=held.version, offsets=held.offsets)
