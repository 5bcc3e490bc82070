"""Transactions: messages that nobody sees until their producer has decided.

A half message is stored in `RMQ_SYS_TRANS_HALF_TOPIC`; where it is meant to go stands in its
properties. A commit stores it again, in its own topic.

```
 send ──▶ open ──commit──▶ stored in its topic, and noted
           │ ──rollback─────────────────────────▶ noted
           │ ──asked too often, or too old──▶ stored in the discard topic, and noted
           └── no decision: asked after 6 s, then every 30 s ──▶ open
```

**Asking** goes down the connection of any member of the producer group, of each in turn
(`transaction_checks`). Only what was asked counts: while no member is there, a message stays open
until it is about to leave the log. RocketMQ counts then, too, and gives a message up after eight
minutes without producers. It stores a message anew each time it asks; here it stays where it is, so
that a decision that comes late and the answer to a question are about the same message, and only
the first of them counts.

**Crashes.** What is stored by a commit carries the place of its half message in the log, and that
is the decision; the note (`transaction_notes`) may come a moment later, together with others. A
rollback is noted before it is answered. At a start the end of the log is looked through for commits
that were not noted any more.

RocketMQ: TransactionalMessageServiceImpl, EndTransactionProcessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.broker.config import TransactionsConfig
from gantrymq.broker.transaction_checks import Checks, number
from gantrymq.broker.transaction_notes import Notes
from gantrymq.errors import (
    BrokerFailure,
    CorruptRecord,
    GantryError,
    IllegalOperation,
    InvalidInput,
    NoPermission,
)
from gantrymq.protocol.base import Done
from gantrymq.protocol.names import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from gantrymq.protocol.transactions import Decision, EndTransaction, ResumeHalfMessage
from gantrymq.wire import properties
from gantrymq.wire.flags import TRANSACTION_BITS, Transaction, with_transaction
from gantrymq.wire.message_id import parse_offset_id
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.broker.storing import Storing
    from gantrymq.broker.topics import Topics
    from gantrymq.net.peer import Peer
    from gantrymq.store.store import Appended, Store

log = logging.getLogger("gantrymq.broker")

TICK: Final = 0.1
KEEP_INTERVAL: Final = 1.0
_MOST_REMEMBERED: Final = 100_000
_LAST_CALL: Final = 0.9
"""The part of the retention time after which a message that nobody decides on is given up."""
_COMMIT: Final = int(Transaction.COMMIT)
_IMMUNITY: Final = properties.CHECK_IMMUNITY_SECONDS.encode()


class OpenTransaction(NamedTuple):
    """A half message that nobody has decided on, for people."""

    topic: str
    group: str
    message_id: str
    half_offset: int
    log_offset: int
    age: float
    """Seconds."""
    checks: int
    """How often a member of the group was asked."""


class _Open(NamedTuple):
    log_offset: int
    since_ms: int


class Transactions:
    """The half messages that are open, and what becomes of them."""

    def __init__(
        self,
        settings: TransactionsConfig,
        *,
        store: Store,
        storing: Storing,
        topics: Topics,
        checks: Checks,
        notes: Notes,
        clock_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self._store = store
        self._storing = storing
        self._topics = topics
        self._checks = checks
        self._notes = notes
        self._clock_ms = clock_ms
        self._open: dict[int, _Open] = {}
        self._asked: dict[int, int] = {}
        self._asked_more = False
        self._ended: dict[int, Decision] = {}
        self._host: tuple[bytes, int] = (b"\x7f\0\0\1", 0)
        self._loop: asyncio.AbstractEventLoop | None = None

    def __len__(self) -> int:
        return len(self._open)

    # --- beginning and ending -------------------------------------------------------------------

    def begin(self, message: StoredMessage, group: str) -> Appended:
        """Store a half message of a producer group, or refuse it as any other."""
        if self.settings.refuse:
            raise NoPermission.because("this broker takes no transaction messages")
        more = {
            properties.REAL_TOPIC: message.topic,
            properties.REAL_QUEUE_ID: str(message.queue_id),
            properties.TRANSACTION_ID: message.find(properties.UNIQUE_KEY) or "",
        }
        if not message.find(properties.PRODUCER_GROUP):
            more[properties.PRODUCER_GROUP] = group
        message.property_bytes = properties.added(message.property_bytes, more)
        return self._begin(message)

    def end(self, request: EndTransaction) -> int:
        """Commit or roll back; up to where the log has to be on the disk for that to last."""
        half = self._half(request)
        if half.queue_offset not in self._open:
            self._ended_before(request)
            return 0
        if not request.from_check:
            self._check_age(half)
        if request.decision == Decision.ROLLBACK:
            return self._settle(half, Decision.ROLLBACK)
        appended = self._storing.put(_committed(half))
        self._settle(half, Decision.COMMIT)
        return appended.end

    def resume(self, log_offset: int) -> None:
        """Open a message once more that was given up."""
        message = self._store.message_at(log_offset)
        if message.topic != CHECK_MAX_TIME_TOPIC:
            raise InvalidInput(f"{message!r} is not in {CHECK_MAX_TIME_TOPIC}")
        message.property_bytes = properties.without(
            message.property_bytes, properties.TRANSACTION_CHECK_TIMES
        )
        message.prepared_offset = 0
        self._begin(message)

    def oldest(self, most: int) -> list[OpenTransaction]:
        """The open ones, the oldest first."""
        return [found for found in map(self._described, islice(self._open, most)) if found]

    # --- life -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Take in what was kept, and find out what came after it."""
        kept, ended = self._notes.load()
        for offset, half in self._store.messages(HALF_TOPIC, 0, kept.half_offset):
            if offset not in ended:
                self._add(offset, _Open(half.log_offset, half.store_ms), half.property_bytes)
                if offset in kept.checks:
                    self._asked[offset] = kept.checks[offset]
        self._find_unnoted(kept.noted_to)

    def start(self) -> None:
        """Note commits a moment later than they come, on the running loop."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Note what has ended, and have kept how far things are."""
        self._loop = None
        self._note()
        if self._open or self._ended:
            self._notes.mark(next(iter(self._open), None))
            self._store.flush()
        self.keep()

    def tick(self) -> None:
        """Ask about what is due; to be called every `TICK` seconds."""
        self._note()
        for offset in self._checks.take(self._open):
            self._look_at(offset)

    def keep(self) -> None:
        """Have written how far things are on the disk, if that changed."""
        self._notes.mark(next(iter(self._open), None))
        self._notes.keep(self._asked, asked=self._asked_more)
        self._asked_more = False

    # --- inside: ends ---------------------------------------------------------------------------

    def _begin(self, message: StoredMessage) -> Appended:
        message.topic, message.queue_id = HALF_TOPIC, 0
        appended = self._storing.put(message)
        one = _Open(appended.log_offset, message.store_ms)
        self._add(appended.queue_offset, one, message.property_bytes)
        return appended

    def _half(self, request: EndTransaction) -> StoredMessage:
        """The half message that a decision is about, if every word about it is right."""
        try:
            half = self._store.message_at(request.log_offset)
        except CorruptRecord as error:
            raise BrokerFailure.because(
                f"Find prepared transaction message failed: {error}"
            ) from error
        if half.topic != HALF_TOPIC:
            raise BrokerFailure.because(f"Find prepared transaction message failed: it is {half!r}")
        if half.find(properties.PRODUCER_GROUP) != request.group:
            raise BrokerFailure.because("The producer group wrong")
        if half.queue_offset != request.half_offset:
            raise BrokerFailure.because("The transaction state table offset wrong")
        return half

    def _ended_before(self, request: EndTransaction) -> None:
        """Say nothing to a decision that was taken before, and refuse another one."""
        before = self._ended.get(request.half_offset)
        if before is not None and before != request.decision:
            raise IllegalOperation.because(
                f"half message {request.half_offset} has ended already: {before.name}"
            )

    def _check_age(self, half: StoredMessage) -> None:
        if _IMMUNITY not in half.property_bytes:
            return
        own = number(half.find(properties.CHECK_IMMUNITY_SECONDS))
        if own is None:
            return
        most = max(self._immunity(own), self.settings.immunity)
        age = (self._clock_ms() - half.born_ms) / 1000
        if age > most:
            raise IllegalOperation.because(
                f"the decision comes after {age:.1f}s, {most:.1f}s are the most;"
                f" the producer is going to be asked"
            )

    def _settle(self, half: StoredMessage, decision: Decision) -> int:
        """A half message has ended; where the log has to be on the disk for that to last."""
        offset, waiting = half.queue_offset, self._notes.waiting
        self._host = half.store_ip, half.store_port
        waiting.append(offset)
        end = 0
        if decision == Decision.COMMIT and self._loop is not None:
            if len(waiting) == 1:
                self._loop.call_soon(self._note)
        else:
            try:
                end = self._notes.write(*self._host)
            except GantryError:
                if decision == Decision.ROLLBACK:  # it stays open
                    waiting.remove(offset)
                    raise
        del self._open[offset]
        self._asked.pop(offset, None)
        if len(self._ended) >= _MOST_REMEMBERED:
            del self._ended[next(iter(self._ended))]
        self._ended[offset] = decision
        return end

    def _note(self) -> None:
        """Note what has ended; what cannot be noted now is tried again a moment later."""
        if self._notes.waiting:
            try:
                self._notes.write(*self._host)
            except GantryError as error:
                log.warning("the ends of transactions cannot be noted yet: %s", error)

    def _find_unnoted(self, noted_to: int) -> None:
        """Note the ends whose note is missing: they are among the log's last messages."""
        by_place = {one.log_offset: offset for offset, one in self._open.items()}
        if not by_place:
            return
        for message in self._store.records(max(noted_to, min(by_place))):
            offset = by_place.get(message.prepared_offset)
            if offset in self._open and _is_end(message):
                half = self._store.message_at(message.prepared_offset)
                if half.message_id == message.message_id:
                    self._settle(half, Decision.COMMIT)

    # --- inside: questions ----------------------------------------------------------------------

    def _add(self, offset: int, one: _Open, raw: bytes) -> None:
        self._open[offset] = one
        immunity = self.settings.immunity
        if _IMMUNITY in raw:
            own = properties.find(raw, properties.CHECK_IMMUNITY_SECONDS)
            immunity = self._immunity(number(own))
        age = max(0.0, (self._clock_ms() - one.since_ms) / 1000)
        self._checks.put(offset, max(0.0, immunity - age))

    def _immunity(self, own: int | None) -> float:
        return self.settings.immunity if own is None or own < 0 else float(own)

    def _look_at(self, offset: int) -> None:
        """Ask about a half message whose time has come, or give it up."""
        one = self._open.get(offset)
        if one is None:
            return
        try:
            half = self._store.message_at(one.log_offset)
        except CorruptRecord as error:
            log.error("half message %d is lost: %s", offset, error)  # noqa: TRY400
            del self._open[offset]
            return
        try:
            if self._asked.get(offset, 0) >= self.settings.most_checks or self._is_leaving(one):
                self._give_up(half, one)
                return
            if self._checks.ask(half):
                self._asked[offset] = self._asked.get(offset, 0) + 1
                self._asked_more = True
        except GantryError as error:
            log.warning("half message %d is looked at again later: %s", offset, error)
        self._checks.put(offset, self.settings.interval)

    def _is_leaving(self, one: _Open) -> bool:
        kept_for = self._store.config.retention.time
        return 0 < kept_for * _LAST_CALL < (self._clock_ms() - one.since_ms) / 1000

    def _give_up(self, half: StoredMessage, one: _Open) -> None:
        """Put a message aside that nobody decides on."""
        asked = self._asked.get(half.queue_offset, 0)
        raw = properties.without(half.property_bytes, properties.TRANSACTION_CHECK_TIMES)
        raw = properties.added(raw, {properties.TRANSACTION_CHECK_TIMES: str(asked)})
        self._topics.make(CHECK_MAX_TIME_TOPIC, queues=1)
        self._storing.put(_copy(half, CHECK_MAX_TIME_TOPIC, 0, raw, half.sys_flag))
        self._settle(half, Decision.COMMIT)
        self._ended[half.queue_offset] = Decision.UNDECIDED
        log.warning(
            "message %s of producer group %s was put into %s: after %.0f s and %d questions",
            half.message_id,
            half.find(properties.PRODUCER_GROUP),
            CHECK_MAX_TIME_TOPIC,
            (self._clock_ms() - one.since_ms) / 1000,
            asked,
        )

    def _described(self, offset: int) -> OpenTransaction | None:
        one = self._open[offset]
        try:
            half = self._store.message_at(one.log_offset)
        except CorruptRecord:
            return None
        return OpenTransaction(
            topic=half.find(properties.REAL_TOPIC) or "",
            group=half.find(properties.PRODUCER_GROUP) or "",
            message_id=half.message_id,
            half_offset=offset,
            log_offset=one.log_offset,
            age=(self._clock_ms() - one.since_ms) / 1000,
            checks=self._asked.get(offset, 0),
        )


def _is_end(message: StoredMessage) -> bool:
    """Whether a message is what became of the half message whose place it carries."""
    return message.sys_flag & TRANSACTION_BITS == _COMMIT or message.topic == CHECK_MAX_TIME_TOPIC


def _committed(half: StoredMessage) -> StoredMessage:
    """The message that a half message becomes."""
    raw = half.property_bytes
    topic = properties.find(raw, properties.REAL_TOPIC) or ""
    queue_id = number(properties.find(raw, properties.REAL_QUEUE_ID)) or 0
    raw = properties.without(
        raw, properties.REAL_TOPIC, properties.REAL_QUEUE_ID, properties.HALF_MESSAGE
    )
    return _copy(half, topic, queue_id, raw, with_transaction(half.sys_flag, Transaction.COMMIT))


def _copy(
    half: StoredMessage, topic: str, queue_id: int, raw: bytes, sys_flag: int
) -> StoredMessage:
    """What comes of `half` in another topic; it says where that was."""
    return StoredMessage(
        topic=topic,
        body=half.body,
        property_bytes=raw,
        queue_id=queue_id,
        flag=half.flag,
        sys_flag=sys_flag,
        born_ms=half.born_ms,
        born_ip=half.born_ip,
        born_port=half.born_port,
        store_ip=half.store_ip,
        store_port=half.store_port,
        reconsume_times=half.reconsume_times,
        prepared_offset=half.log_offset,
    )


# --- answers --------------------------------------------------------------------------------------


def end_transaction(request: EndTransaction, broker: Broker, _peer: Peer) -> Done | Awaitable[Done]:
    """Commit or roll back a half message; a producer that cannot say yet is asked later."""
    if request.decision not in (Decision.COMMIT, Decision.ROLLBACK):
        return Done()
    end = broker.transactions.end(request)
    return _lasting(broker, end) if end and broker.storing.waits else Done()


async def _lasting(broker: Broker, end: int) -> Done:
    await broker.storing.safety(end)
    return Done()


def resume_half_message(request: ResumeHalfMessage, broker: Broker, _peer: Peer) -> Done:
    """Have a message decided on after all that was given up."""
    try:
        broker.transactions.resume(parse_offset_id(request.message_id or "").log_offset)
    except (InvalidInput, CorruptRecord) as error:
        raise BrokerFailure.because(
            f"Not found the message by the offset id {request.message_id}: {error}"
        ) from error
    return Done()
