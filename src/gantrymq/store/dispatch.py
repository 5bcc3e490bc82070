"""What a message leaves behind besides its record: an entry in its queue, and some in the index.

The log is the truth; this module keeps the rest in step with it, while messages are appended and
when a log is read again after a crash. Both ways end in the same calls, so both make the same
files.

**An entry that is there already** is passed over: after a crash the log is dispatched again from a
point that is surely too early. **A hole** (records that were damaged and cannot be read any more)
is filled with entries that point nowhere, so that the offsets after it stay what they were. **A
queue that starts anew**, at 0 and later in the log, belongs to a topic that was deleted and made
again; its older entries go. Any other number is that of a damaged record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from gantrymq.errors import CorruptRecord, StoreError
from gantrymq.rules.delay import DELAY_LEVELS, DelayLevels
from gantrymq.rules.filtering import tag_code
from gantrymq.store import light
from gantrymq.store.queue_table import QueueTable, Slot
from gantrymq.store.shapes import Index
from gantrymq.wire import properties
from gantrymq.wire.flags import TRANSACTION_BITS, Transaction
from gantrymq.wire.record import StoredMessage

Arrived: TypeAlias = Callable[[str, int, int, int, int, bytes], object]
"""Told of each message that can be read from now on: topic, queue id, queue offset, tags code,
store time in ms, properties as stored."""

Gaps: TypeAlias = Literal["refused", "before the first", "filled"]
"""What becomes of a message whose queue offset is larger than the next one of its queue."""

SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""Here messages wait for a delay level to pass."""

_TAGS: Final = b"TAGS\x01"
_MOST_TAGS: Final = 10_000
_IN_QUEUES: Final = (int(Transaction.NONE), int(Transaction.COMMIT))
_ROLLBACK: Final = int(Transaction.ROLLBACK)


class Gap(Exception):
    """A queue lacks entries before the one that is dispatched: the log has to be read earlier."""


class Dispatcher:
    """Brings messages of the log into queues and index.

    RocketMQ: ReputMessageService, CommitLogDispatcher.
    """

    __slots__ = ("_codes", "_delays", "_index", "_queues", "arrived")

    def __init__(
        self, queues: QueueTable, index: Index | None, delays: DelayLevels = DELAY_LEVELS
    ) -> None:
        self._queues = queues
        self._index = index
        self._delays = delays
        self._codes: dict[bytes, int] = {}
        self.arrived: Arrived | None = None

    def dispatch(self, slot: Slot, message: StoredMessage) -> None:
        """A message that was just appended."""
        kind = message.sys_flag & TRANSACTION_BITS
        if kind in _IN_QUEUES:
            code = self.tags_code(message)
            slot.append(message.log_offset, message.size, code, message.queue_offset)
            if self.arrived is not None:
                self.arrived(
                    message.topic, message.queue_id, message.queue_offset, code, message.store_ms,
                    message.property_bytes,
                )  # fmt: skip
            if light.MARK in message.property_bytes:
                self._dispatch_light(message, code)
        if self._index is not None and kind != _ROLLBACK:
            self._put(message)

    def plain(
        self,
        slot: Slot,
        records: Sequence[bytes],
        about: Sequence[tuple[bytes, int, str]],
        queue_offset: int,
        log_offset: int,
        store_ms: int,
    ) -> None:
        """Records that were just appended, and their properties, tags codes and unique keys."""
        topic, queue_id, append = slot.topic, slot.queue_id, slot.append
        arrived, index = self.arrived, self._index
        for record, (raw, code, unique) in zip(records, about, strict=True):
            size = len(record)
            append(log_offset, size, code, queue_offset)
            if arrived is not None:
                arrived(topic, queue_id, queue_offset, code, store_ms, raw)
            if index is not None:
                index.put_unique(unique, topic, log_offset, store_ms)
            queue_offset += 1
            log_offset += size

    def moved(
        self,
        slot: Slot,
        raw: bytes,
        unique: str,
        keys: str,
        queue_offset: int,
        log_offset: int,
        size: int,
        store_ms: int,
    ) -> None:
        """A record that was just appended, and its properties, unique key and other keys."""
        code = self.code_of(raw)
        slot.append(log_offset, size, code, queue_offset)
        if self.arrived is not None:
            self.arrived(slot.topic, slot.queue_id, queue_offset, code, store_ms, raw)
        if self._index is None:
            return
        if keys:
            self._index.put(_words(keys), unique, slot.topic, log_offset, store_ms)
        else:
            self._index.put_unique(unique, slot.topic, log_offset, store_ms)

    def again(self, message: StoredMessage, gaps: Gaps) -> None:
        """A message that was read from the log; one with a gap before it may raise `Gap`."""
        kind = message.sys_flag & TRANSACTION_BITS
        if kind in _IN_QUEUES:
            self._requeue(message, gaps)
        if self._index is not None and kind != _ROLLBACK:
            self._put(message)

    def tags_code(self, message: StoredMessage) -> int:
        """What the queue's entry says of the message: its tag's code, or when it is due."""
        if message.topic == SCHEDULE_TOPIC:
            level = _number(message.find(properties.DELAY))
            if level > 0:
                return message.store_ms + 1000 * self._delays.delay(level)
        return self.code_of(message.property_bytes)

    def code_of(self, raw: bytes) -> int:
        """The code of the tag among these properties; 0 where there is none."""
        at = raw.find(_TAGS)
        if at < 0:
            return 0
        # this is done for every message, so first for those that have the tag once and in full
        end = raw.find(b"\x02", at)
        if end > 0 and (at == 0 or raw[at - 1] == 2) and raw.find(_TAGS, end) < 0:
            code = self._codes.get(raw[at + 5 : end])
            if code is not None:
                return code
        return self._new_code(_value(raw, _TAGS, properties.TAGS))

    def _new_code(self, tag: bytes) -> int:
        if len(self._codes) > _MOST_TAGS:
            self._codes.clear()
        code = self._codes[tag] = tag_code(tag.decode("utf-8", "replace"))
        return code

    def _dispatch_light(self, message: StoredMessage, code: int) -> None:
        for name, offset in light.places_of(message):
            self._queues.obtain(name, 0).append(message.log_offset, message.size, code, offset)
            if self.arrived is not None:
                self.arrived(name, 0, offset, code, message.store_ms, message.property_bytes)

    def _requeue(self, message: StoredMessage, gaps: Gaps) -> None:
        self._requeue_in(message.topic, message.queue_id, message.queue_offset, message, gaps)
        if light.MARK in message.property_bytes:
            for name, offset in light.places_of(message):
                self._requeue_in(name, 0, offset, message, gaps)

    def _requeue_in(
        self, topic: str, queue_id: int, offset: int, message: StoredMessage, gaps: Gaps
    ) -> None:
        try:
            slot = self._queues.obtain(topic, queue_id)
        except StoreError as error:  # what was appended had a topic that can be
            raise CorruptRecord(f"{message!r}: {error}") from error
        queue = slot.queue
        if offset < queue.max_offset:
            if message.log_offset < queue.max_log_offset:
                return
            if offset > 0:
                raise CorruptRecord(f"{message!r} comes after queue offset {queue.max_offset - 1}")
            queue.clear()
        elif offset > queue.max_offset and (
            gaps == "refused" or (gaps == "before the first" and queue.max_log_offset >= 0)
        ):
            raise Gap(f"{slot!r} is asked to take {message!r}")
        queue.append(message.log_offset, message.size, self.tags_code(message), offset)
        slot.next_offset = queue.max_offset

    def _put(self, message: StoredMessage) -> None:
        raw = message.property_bytes
        keys = _value(raw, b"KEYS\x01", properties.KEYS)
        unique = _value(raw, b"UNIQ_KEY\x01", properties.UNIQUE_KEY)
        if keys or unique:
            assert self._index is not None
            self._index.put(
                _words(keys.decode("utf-8", "replace")),
                unique.decode("utf-8", "replace") or None,
                message.topic,
                message.log_offset,
                message.store_ms,
            )


def _words(text: str) -> Sequence[str]:
    """Each of them once: a message is found by a key, however often it has it."""
    return [key for key in dict.fromkeys(text.split(" ")) if key] if " " in text else [text]


def _value(raw: bytes, mark: bytes, name: str) -> bytes:
    """As `properties.find(raw, name)`, but quicker, and bytes; nothing is `b""`."""
    at = raw.rfind(mark)
    if at < 0:
        return b""
    if at == 0 or raw[at - 1] == 2:
        start = at + len(mark)
        end = raw.find(b"\x02", start)
        value = raw[start:] if end < 0 else raw[start:end]
        if value:
            return value
    return (properties.find(raw, name) or "").encode()


def _number(text: str | None) -> int:
    try:
        return int(text or 0)
    except ValueError:
        return 0
