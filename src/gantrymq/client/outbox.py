"""A message and a row of a database that come about together, or not at all.

```python
outbox = Outbox(engine)
with gantry.Producer(url, group="shop", checker=outbox.check) as producer:
    with outbox.transaction(producer, "orders", b"one beer") as connection:
        connection.execute(orders.insert().values(what="beer"))
```

```
half message stored ──▶ ┌ the user's rows      ┐ ──▶ broker told ──▶ the note says so
   nobody sees it       └ the decision, a note ┘
                          one transaction of the database
```

**The decision is a row.** It is written together with the user's own rows, so it is there exactly
if they are. Whatever dies afterwards, the row stays: the broker asks about the message, and any
member of the producer group that has the database finds the answer (`check`). `relay` looks for
decisions that no broker has been told, and tells them without waiting to be asked.

**Where there is no row**, the transaction may still be at work. So the answer "roll back" is
written down before it is given, under the same primary key: either the user's transaction has
written its row first, or it comes upon ours and fails, with `OutboxConflict`. The database decides
which, not a clock. To leave slow transactions their time, nothing is written down in the first
`patience` seconds of a message's life; the broker asks again.

A broker that is told twice ends a transaction once; RocketMQ's may deliver it once more.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Engine,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    tuple_,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from gantrymq.errors import BrokerFailure, GantryError, ReplyError
from gantrymq.flows.transactions import Half
from gantrymq.protocol.transactions import Decision, EndTransaction

if TYPE_CHECKING:
    from gantrymq.client.messages import SendOptions
    from gantrymq.client.producer import AsyncProducer, AsyncTransaction
    from gantrymq.client.sync_producer import Producer, Transaction
    from gantrymq.model import Message, ReceivedMessage

log = logging.getLogger("gantrymq.client")

TABLE: Final = "gantry_outbox"
PATIENCE: Final = 60.0
KEPT: Final = 86_400.0
_AT_ONCE: Final = 100
_COMMIT, _ROLLBACK = Decision.COMMIT.name, Decision.ROLLBACK.name

Body: TypeAlias = bytes | bytearray | memoryview | None


class OutboxConflict(GantryError):
    """The message was rolled back, because nobody had decided on it for too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Relayed:
    """What one round of a relay came to."""

    told: int = 0
    """Decisions that brokers know now."""
    refused: int = 0
    """Decisions that brokers do not take; why stands in the table, and they are left there."""
    waiting: int = 0
    """Decisions whose broker could not be reached."""


class _Rows:
    """The table, and the statements that both kinds of outbox make."""

    def __init__(
        self,
        table: str,
        metadata: MetaData | None,
        patience: float,
        kept: float,
        clock: Callable[[], float],
    ) -> None:
        self.table: Final = Table(
            table,
            MetaData() if metadata is None else metadata,
            Column("message_id", String(64), primary_key=True),
            Column("decision", String(16), nullable=False),
            Column("topic", String(255), nullable=False),
            Column("producer_group", String(255), nullable=False),
            Column("broker", String(255), nullable=False),
            Column("half_offset", BigInteger, nullable=False),
            Column("log_offset", BigInteger, nullable=False),
            Column("decided_ms", BigInteger, nullable=False, index=True),
            Column("told", Boolean, nullable=False),
            Column("refusal", Text),
        )
        self.patience = patience
        self._kept_ms = round(kept * 1000)
        self._clock = clock

    def now_ms(self) -> int:
        return round(self._clock() * 1000)

    def committed(self, half: Half) -> Any:
        """The decision, as the transaction itself writes it."""
        ending = half.ending(Decision.COMMIT)
        return insert(self.table).values(
            message_id=half.receipt.message_id,
            decision=_COMMIT,
            topic=ending.topic,
            producer_group=half.group,
            broker=half.receipt.queue.broker,
            half_offset=ending.half_offset,
            log_offset=ending.log_offset,
            decided_ms=self.now_ms(),
            told=False,
        )

    def rolled_back(self, message: ReceivedMessage) -> Any:
        """The same as somebody writes it who was asked, and found nothing."""
        return insert(self.table).values(
            message_id=message.message_id,
            decision=_ROLLBACK,
            topic=message.topic,
            producer_group="",
            broker=message.broker,
            half_offset=message.offset,
            log_offset=message.stored.log_offset,
            decided_ms=self.now_ms(),
            told=True,  # which is what the answer does
        )

    def decision(self, message_id: str) -> Any:
        columns = self.table.c
        return select(columns.decision).where(columns.message_id == message_id)

    def untold(self, after: Mapping[str, Any] | None = None) -> Any:
        """What brokers do not know, the oldest first: a page of it, the one `after` a row."""
        columns = self.table.c
        place = tuple_(columns.decided_ms, columns.message_id)
        found = (
            select(self.table)
            .where(columns.told.is_(False), columns.refusal.is_(None))
            .order_by(columns.decided_ms, columns.message_id)
            .limit(_AT_ONCE)
        )
        if after is None:
            return found
        return found.where(place > tuple_(after["decided_ms"], after["message_id"]))

    def mark(self, message_id: str, **values: Any) -> Any:
        return update(self.table).where(self.table.c.message_id == message_id).values(**values)

    def outdated(self) -> Any:
        columns = self.table.c
        before = self.now_ms() - self._kept_ms
        return delete(self.table).where(columns.told.is_(True), columns.decided_ms < before)

    def may_decide(self, message: ReceivedMessage) -> bool:
        """Whether the message had its time."""
        return self.now_ms() - message.stored.born_ms >= 1000 * self.patience


def _verdict(decision: str | None) -> bool | None:
    return None if decision is None else decision == _COMMIT


def _ending(row: Mapping[str, Any]) -> EndTransaction:
    return EndTransaction(
        topic=row["topic"],
        group=row["producer_group"],
        half_offset=row["half_offset"],
        log_offset=row["log_offset"],
        decision=Decision[row["decision"]],
        message_id=row["message_id"],
        transaction_id=row["message_id"],
        broker=row["broker"],
    )


def _conflict(half: Half, error: IntegrityError) -> OutboxConflict:
    conflict = OutboxConflict(
        f"message {half.receipt.message_id} of {half.receipt.queue} has been rolled back already:"
        f" the broker asked about it before its decision was written down"
    )
    conflict.__cause__ = error
    return conflict


class _Tally:
    """What a round has come to so far."""

    def __init__(self) -> None:
        self.told = self.refused = self.waiting = 0
        self._silent: set[str] = set()

    def passes_by(self, row: Mapping[str, Any]) -> bool:
        """Whether the row's broker could not be reached a moment ago."""
        silent = row["broker"] in self._silent
        self.waiting += silent
        return silent

    def note(self, row: Mapping[str, Any], failure: GantryError | None) -> dict[str, Any] | None:
        """What is to be written into the row; None for nothing."""
        if failure is None:
            self.told += 1
            return {"told": True}
        if isinstance(failure, BrokerFailure) or (
            isinstance(failure, ReplyError) and not failure.retriable
        ):
            self.refused += 1
            log.error(
                "broker %s does not take the decision %s on message %s of %s: %s",
                row["broker"], row["decision"], row["message_id"], row["topic"], failure,
            )  # fmt: skip
            return {"refusal": str(failure)}
        self.waiting += 1
        self._silent.add(row["broker"])
        return None

    def sum(self) -> Relayed:
        return Relayed(told=self.told, refused=self.refused, waiting=self.waiting)


class Outbox:
    """Decisions on messages, kept in a database beside what they are about; for `Producer`."""

    def __init__(
        self,
        engine: Engine,
        *,
        table: str = TABLE,
        metadata: MetaData | None = None,
        patience: float = PATIENCE,
        kept: float = KEPT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`patience` is how long a transaction of the database may take, in seconds.

        Give `metadata` to have the table made with your own ones. Decisions that were told are
        `kept` for so many seconds.
        """
        self.engine = engine
        self._rows = _Rows(table, metadata, patience, kept, clock)
        self.table: Final = self._rows.table

    def create_table(self) -> None:
        """Make the table if it is not there."""
        self.table.create(self.engine, checkfirst=True)

    @contextmanager
    def transaction(
        self,
        producer: Producer,
        message: Message | str,
        body: Body = None,
        /,
        **options: Unpack[SendOptions],
    ) -> Iterator[Connection]:
        """A connection whose transaction commits the message, or rolls it back, together with it.

        If the broker cannot be told in the end, nothing is raised: the decision stands.
        """
        half = producer.transaction(message, body, **options)
        with half, self.engine.begin() as connection:
            yield connection
            self.write(connection, half)
        self.note(half)

    def write(self, where: Connection | Session, transaction: Transaction) -> None:
        """Write the decision to commit, in a transaction of the database that is yours.

        `transaction` is one of `producer.transaction(…)`, whose block has to go on until yours is
        committed.
        """
        half = transaction.half
        try:
            where.execute(self._rows.committed(half))
        except IntegrityError as error:
            raise _conflict(half, error) from error

    def note(self, transaction: Transaction) -> None:
        """Write down that the broker knows, if it does; a relay tells it otherwise."""
        if transaction.told:
            with suppress(DBAPIError), self.engine.begin() as connection:
                connection.execute(self._rows.mark(transaction.receipt.message_id, told=True))

    def check(self, message: ReceivedMessage) -> bool | None:
        """The producer's `checker`: what became of a message that the broker asks about."""
        message_id = message.message_id
        with self.engine.connect() as connection:
            found = connection.scalar(self._rows.decision(message_id))
        if found is not None or not self._rows.may_decide(message):
            return _verdict(found)
        try:
            with self.engine.begin() as connection:
                connection.execute(self._rows.rolled_back(message))
        except IntegrityError:
            with self.engine.connect() as connection:
                return _verdict(connection.scalar(self._rows.decision(message_id)))
        return False

    def relay(self, producer: Producer) -> Relayed:
        """Tell brokers what they have not been told, the oldest first, once."""
        tally = _Tally()
        with self.engine.begin() as connection:
            connection.execute(self._rows.outdated())
        for row in self._untold():
            if tally.passes_by(row):
                continue
            failure = producer.tell_end(_ending(row))
            if (values := tally.note(row, failure)) is not None:
                with self.engine.begin() as connection:
                    connection.execute(self._rows.mark(row["message_id"], **values))
        return tally.sum()

    def relay_until(self, stop: threading.Event, producer: Producer, *, every: float = 1.0) -> None:
        """Go on telling until `stop` is set; what fails is tried again."""
        while not stop.wait(every):
            try:
                self.relay(producer)
            except DBAPIError as error:
                log.warning("the outbox cannot be read now: %s", error)

    def _untold(self) -> Iterator[Mapping[str, Any]]:
        last: Mapping[str, Any] | None = None
        while True:
            with self.engine.connect() as connection:
                rows = [row._asdict() for row in connection.execute(self._rows.untold(last))]
            for last in rows:
                yield last
            if len(rows) < _AT_ONCE:
                return


class AsyncOutbox:
    """The same for `AsyncProducer`, over one of SQLAlchemy's asyncio engines."""

    def __init__(
        self,
        engine: AsyncEngine,
        *,
        table: str = TABLE,
        metadata: MetaData | None = None,
        patience: float = PATIENCE,
        kept: float = KEPT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`patience` is how long a transaction of the database may take, in seconds.

        Give `metadata` to have the table made with your own ones. Decisions that were told are
        `kept` for so many seconds.
        """
        self.engine = engine
        self._rows = _Rows(table, metadata, patience, kept, clock)
        self.table: Final = self._rows.table

    async def create_table(self) -> None:
        """Make the table if it is not there."""
        async with self.engine.begin() as connection:
            await connection.run_sync(lambda plain: self.table.create(plain, checkfirst=True))

    @asynccontextmanager
    async def transaction(
        self,
        producer: AsyncProducer,
        message: Message | str,
        body: Body = None,
        /,
        **options: Unpack[SendOptions],
    ) -> AsyncIterator[AsyncConnection]:
        """A connection whose transaction commits the message, or rolls it back, together with it.

        If the broker cannot be told in the end, nothing is raised: the decision stands.
        """
        half = producer.transaction(message, body, **options)
        async with half, self.engine.begin() as connection:
            yield connection
            await self.write(connection, half)
        await self.note(half)

    async def write(
        self, where: AsyncConnection | AsyncSession, transaction: AsyncTransaction
    ) -> None:
        """Write the decision to commit, in a transaction of the database that is yours.

        `transaction` is one of `producer.transaction(…)`, whose block has to go on until yours is
        committed.
        """
        half = transaction.half
        try:
            await where.execute(self._rows.committed(half))
        except IntegrityError as error:
            raise _conflict(half, error) from error

    async def note(self, transaction: AsyncTransaction) -> None:
        """Write down that the broker knows, if it does; a relay tells it otherwise."""
        if transaction.told:
            with suppress(DBAPIError):
                await self._mark(transaction.receipt.message_id, told=True)

    async def check(self, message: ReceivedMessage) -> bool | None:
        """The producer's `checker`: what became of a message that the broker asks about."""
        message_id = message.message_id
        found = await self._decision(message_id)
        if found is not None or not self._rows.may_decide(message):
            return _verdict(found)
        try:
            async with self.engine.begin() as connection:
                await connection.execute(self._rows.rolled_back(message))
        except IntegrityError:
            return _verdict(await self._decision(message_id))
        return False

    async def relay(self, producer: AsyncProducer) -> Relayed:
        """Tell brokers what they have not been told, the oldest first, once."""
        tally = _Tally()
        async with self.engine.begin() as connection:
            await connection.execute(self._rows.outdated())
        async for row in self._untold():
            if tally.passes_by(row):
                continue
            failure = await producer.tell_end(_ending(row))
            if (values := tally.note(row, failure)) is not None:
                await self._mark(row["message_id"], **values)
        return tally.sum()

    async def relay_for_ever(self, producer: AsyncProducer, *, every: float = 1.0) -> None:
        """Go on telling until cancelled; what fails is tried again."""
        while True:
            try:
                await self.relay(producer)
            except DBAPIError as error:
                log.warning("the outbox cannot be read now: %s", error)
            await asyncio.sleep(every)

    async def _untold(self) -> AsyncIterator[Mapping[str, Any]]:
        last: Mapping[str, Any] | None = None
        while True:
            async with self.engine.connect() as connection:
                found = await connection.execute(self._rows.untold(last))
                rows = [row._asdict() for row in found]
            for last in rows:
                yield last
            if len(rows) < _AT_ONCE:
                return

    async def _decision(self, message_id: str) -> str | None:
        async with self.engine.connect() as connection:
            found: str | None = await connection.scalar(self._rows.decision(message_id))
            return found

    async def _mark(self, message_id: str, **values: Any) -> None:
        async with self.engine.begin() as connection:
            await connection.execute(self._rows.mark(message_id, **values))
