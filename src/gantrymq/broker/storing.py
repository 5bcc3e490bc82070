"""Putting messages into the store, from whatever part they come, and what producers are told of it.

`put` stores at once and answers for nothing but memory. Whether the message is on the disk is
another question, asked only where an append has to wait for that (`waits`): then `safety` waits,
together with everybody else who does, for the next sync.

| what the store says | code |
|---|---|
| stored in time | 0 |
| stored, the disk is late | 10 |
| too large a body, record or properties | 13 |
| it takes nothing now, or the sync failed | 14, with the reason |

RocketMQ: SendMessageProcessor.handlePutMessageResult.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gantrymq.broker.seams import Counts, Delays, Timers
from gantrymq.errors import (
    LocalProtocolError,
    MessageIllegal,
    NotWritable,
    QuotaExceeded,
    ServiceUnavailable,
    StoreFull,
)
from gantrymq.model import SendStatus
from gantrymq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC
from gantrymq.store import light
from gantrymq.store.commit_log import RecordTooLarge
from gantrymq.store.flush import Outcome
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.broker.hosts import Hosts
    from gantrymq.store.store import Appended, Store

_DELAYED: Final = b"DEL"
"""In the name of every property that delays a message, and of few others."""
_LEVEL: Final = b"DELAY\x01"
_TIME: Final = b"TIMER_DE"


class Storing:
    """The way into the store."""

    __slots__ = (
        "_append", "_append_plain", "_counts", "_delays", "_plain_slot", "_store", "_timers",
        "largest", "waits",
    )  # fmt: skip

    def __init__(self, *, store: Store, delays: Delays, timers: Timers, counts: Counts) -> None:
        self._store = store
        self._append = store.append
        self._plain_slot = store.plain_slot
        self._append_plain = store.append_plain
        self._delays = delays
        self._timers = timers
        self._counts = counts
        self.largest = store.config.log.max_message_size
        """Bytes that a body may have."""
        self.waits = store.config.flush.mode == "sync"
        """Whether a stored message has to be waited for, unless its producer does not want that."""

    def put(self, message: StoredMessage) -> Appended:
        """Store `message`, in the topic where it waits if it names a delay; or refuse it."""
        raw = message.property_bytes
        if _DELAYED in raw:
            self._delay(message)
        if light.MARK in raw:
            self._check_light(message)
        if len(message.body) > self.largest:
            raise MessageIllegal.because(self.too_large(len(message.body)))
        try:
            appended = self._append(message)
        except (RecordTooLarge, LocalProtocolError) as error:
            raise MessageIllegal.because(
                self.too_large(len(message.body), len(message.property_bytes))
            ) from error
        except (StoreFull, NotWritable) as error:
            self._counts.failed_puts += 1
            raise ServiceUnavailable.because(f"service not available now. {error}") from error
        self._counts.stored(message.topic, message.queue_id, 1, appended.size)
        return appended

    def _delay(self, message: StoredMessage) -> None:
        """Have the message wait if it says so; a half message does that when it is committed."""
        if message.topic == HALF_TOPIC:
            return
        if _LEVEL in message.property_bytes:
            self._delays.redirect(message)
        if _TIME in message.property_bytes and message.topic != SCHEDULE_TOPIC:
            self._timers.redirect(message)

    def _check_light(self, message: StoredMessage) -> None:
        """Refuse a message that names light queues for which there is no room."""
        if not self._store.has_room_for_light(light.names_of(message)):
            most = self._store.config.queues.most_light
            raise QuotaExceeded.because(
                f"there are {most} light queues at most, and the message names more of them"
            )

    def put_batch(self, messages: Sequence[StoredMessage]) -> Appended:
        """Store messages of one queue side by side, or refuse them all."""
        try:
            appended = self._store.append_batch(messages)
        except (RecordTooLarge, LocalProtocolError) as error:
            raise MessageIllegal.because(f"the batch is illegal: {error}") from error
        except (StoreFull, NotWritable) as error:
            self._counts.failed_puts += len(messages)
            raise ServiceUnavailable.because(f"service not available now. {error}") from error
        first = messages[0]
        self._counts.stored(first.topic, first.queue_id, len(messages), appended.size)
        return appended

    def put_plain(
        self,
        topic: str,
        queue_id: int,
        messages: Sequence[tuple[bytes, bytes, int]],
        about: Sequence[tuple[bytes, int, str]],
        sys_flag: int,
        born_ms: int,
        hosts: Hosts,
    ) -> Appended | None:
        """Store plain messages of one queue side by side; None if that has to be done otherwise.

        See `Store.append_plain`. What is refused is refused by the other way, with its reasons.
        """
        slot = self._plain_slot(topic, queue_id)
        if slot is None or len(hosts.born_ip) != 4 or len(hosts.store_ip) != 4:
            return None
        for body, _, _ in messages:
            if len(body) > self.largest:
                return None
        try:
            appended = self._append_plain(slot, messages, about, sys_flag, born_ms, hosts)
        except (RecordTooLarge, StoreFull, NotWritable):
            return None
        self._counts.stored(topic, queue_id, len(messages), appended.size)
        return appended

    async def safety(self, end: int) -> SendStatus:
        """How safe the log is up to `end`, once that is known."""
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def tell(outcome: Outcome) -> None:
            if not told.done():
                told.set_result(outcome)

        self._store.durable(end, tell)
        outcome = await told
        if outcome is Outcome.FAILED:
            raise ServiceUnavailable.because(f"service not available now. {self._store.refusal}")
        return SendStatus.OK if outcome is Outcome.STORED else SendStatus.FLUSH_DISK_TIMEOUT

    def too_large(self, body: int, properties_: int = 0) -> str:
        """Why a message of such sizes is refused."""
        return (
            "the message is illegal, maybe msg body or properties length not matched."
            f" msg body length limit {self.largest}B, msg properties length limit 32KB;"
            f" these are {body}B and {properties_}B."
        )
