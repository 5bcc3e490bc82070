"""Reads known parts of topics, without a group: as messages, as Arrow record batches, as bytes.

A reader is nobody's member. It asks for offsets, so that reading the same part twice gives the same
messages, and nobody else is moved or disturbed. It reads ahead (`gantrymq.flows.reading`), from
replicas while a master is away, and goes on where it was when a broker comes back.

What is not there any more is never passed over in silence: a part that a broker has removed, or
has lost, ends the reading with `DataLost`, which names the offsets, or is logged and left out when
the reader was made with `on_loss="skip"`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias, Unpack

from gantrymq.client.config import ClientArguments, ClientConfig, load_config
from gantrymq.client.identity import Origin
from gantrymq.client.ways import blocking_for, pool_for
from gantrymq.errors import ClosedError, ConfigError, DataLost, InvalidInput, NoRoute
from gantrymq.flows import offsets, reading, routing
from gantrymq.flows.offsets import Bounds
from gantrymq.flows.reading import SQL, TAG, Gap, Piece, ReadTerms, Stretch
from gantrymq.flows.routing import MASTER, NameServers
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.net.network import Network
from gantrymq.net.pool import AsyncRuntime
from gantrymq.protocol import names
from gantrymq.protocol.names import TOOLS_GROUP
from gantrymq.rules.filtering import EVERYTHING, parse_tags
from gantrymq.runtime import PipingRuntime, iterate_blocking, run_blocking
from gantrymq.wire import record
from gantrymq.wire.properties import TAGS

if TYPE_CHECKING:
    import pyarrow as pa

    from gantrymq.client.arrow import Rows

log = logging.getLogger("gantrymq.client")

OnLoss: TypeAlias = Literal["fail", "skip"]
What: TypeAlias = str | MessageQueue | Sequence[MessageQueue]
"""A topic, which means all of its queues, one queue, or several."""
Place: TypeAlias = Literal["earliest", "latest"] | int | datetime | None
"""An offset, the first one stored at a time or later, or an end of the queue."""

ROWS: Final = 1_000
BYTES: Final = 1 << 20
"""A record batch is made of so many rows or bytes, or more: of whole pulls."""
_SHOWN: Final = 5

Lost: TypeAlias = tuple[MessageQueue, int, int, str]
"""A queue, the first offset that is lost and the one after the last, and why."""


class Losses:
    """What to do about messages that are gone."""

    def __init__(self, on_loss: OnLoss) -> None:
        if on_loss not in ("fail", "skip"):
            raise ConfigError(f"on_loss={on_loss!r} is neither 'fail' nor 'skip'")
        self._fails = on_loss == "fail"

    def note(self, lost: Sequence[Lost]) -> None:
        """Raise, or log them."""
        if not lost:
            return
        if self._fails:
            raise data_lost(lost)
        for queue, start, end, why in lost:
            log.warning("%s", _loss(queue, start, end, why))


def data_lost(lost: Sequence[Lost]) -> DataLost:
    """The error that names what is lost."""
    shown = "; ".join(_loss(*one) for one in lost[:_SHOWN])
    more = f"; and {len(lost) - _SHOWN} more" if len(lost) > _SHOWN else ""
    return DataLost(shown + more, tuple((*queue, start, end) for queue, start, end, _ in lost))


def _loss(queue: MessageQueue, start: int, end: int, why: str) -> str:
    return f"{end - start:,} messages of {queue} are lost, offsets {start:,} to {end - 1:,}: {why}"


class Places:
    """Where topics are: looked up when asked for, and again when an address fails."""

    def __init__(self, config: ClientConfig, runtime: PipingRuntime) -> None:
        self._config = config
        self._runtime = runtime
        self._name_servers = NameServers(config.name_servers)
        self._reachable = config.reachable
        self._topic_of: dict[str, str] = {}
        self._addresses: dict[str, Mapping[int, str]] = {}

    def learn(self, queue: MessageQueue, addresses: Mapping[int, str]) -> None:
        """Take a broker's addresses from who knows them already."""
        self._topic_of[queue.broker] = queue.topic
        self._addresses[queue.broker] = addresses

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of `topic` that can be read."""
        wrapped = names.wrap(self._config.namespace or "", topic)
        timeout = self._config.call_timeout
        route = await routing.fetch_route(
            self._runtime, self._name_servers, wrapped, timeout=timeout
        )
        for broker, by_id in routing.addresses(route).items():
            self._topic_of[broker] = wrapped
            self._addresses[broker] = {
                number: self._reachable.get(address, address)
                for number, address in sorted(by_id.items())
            }
        return routing.subscribe_queues(wrapped, route)

    def addresses(self, broker: str) -> Mapping[int, str]:
        """Where a broker is, as far as is known; its master first."""
        return self._addresses.get(broker, {})

    async def where(self, broker: str, attempt: int) -> str:
        """The address for an attempt at reading: the master, then the others in turn."""
        if attempt:
            await self.queues(self._topic_of[broker])
        found = self._addresses.get(broker)
        if not found:
            raise NoRoute(f"no address is known of broker {broker}")
        in_order = [found[number] for number in sorted(found, key=lambda id_: (id_ != MASTER, id_))]
        return in_order[attempt % len(in_order)]

    async def address(self, queue: MessageQueue) -> str:
        """Where to ask about `queue`."""
        if queue.broker not in self._addresses:
            await self.queues(queue.topic)
        return await self.where(queue.broker, 0)


class _Core:
    """What both readers do, as coroutines over whatever runtime they have."""

    def __init__(
        self,
        config: ClientConfig,
        runtime: PipingRuntime,
        terms: ReadTerms,
        on_loss: OnLoss,
    ) -> None:
        self.places = Places(config, runtime)
        self._runtime = runtime
        self._terms = terms
        self._tags = parse_tags(terms.expression if terms.expression_type == TAG else EVERYTHING)
        self._losses = Losses(on_loss)
        self._as_users_say = partial(names.unwrap, config.namespace or "")
        self._timeout = config.call_timeout

    async def bounds(self, queue: MessageQueue) -> Bounds:
        address = await self.places.address(queue)
        return await offsets.bounds(self._runtime, address, queue, timeout=self._timeout)

    async def offset(self, queue: MessageQueue, place: Place, otherwise: str) -> int:
        """The offset that `place` stands for in `queue`."""
        if isinstance(place, int):
            return place
        address = await self.places.address(queue)
        if isinstance(place, datetime):
            when = offsets.check_start(place)
            assert isinstance(when, datetime)
            return await offsets.at_time(self._runtime, address, queue, when, timeout=self._timeout)
        kind = otherwise if place is None else place
        if kind == "earliest":
            return await offsets.least(self._runtime, address, queue, timeout=self._timeout)
        if kind == "latest":
            return await offsets.end(self._runtime, address, queue, timeout=self._timeout)
        raise InvalidInput(
            f"{place!r} is no place in a queue: it takes 'earliest', 'latest', an offset, or a"
            f" datetime with a time zone"
        )

    async def stretches(self, what: What, start: Place, end: Place) -> list[list[Stretch]]:
        """What is to be read, the stretches of each broker together."""
        if isinstance(what, str):
            queues: Sequence[MessageQueue] = await self.places.queues(what)
        else:
            queues = [what] if isinstance(what, MessageQueue) else what
        by_broker: dict[str, list[Stretch]] = {}
        for queue in queues:
            await self.places.address(queue)
            first = await self.offset(queue, start, "earliest")
            last = await self.offset(queue, end, "latest")
            by_broker.setdefault(queue.broker, []).append(Stretch(queue, first, last))
        return list(by_broker.values())

    async def pieces(
        self, what: What, start: Place, end: Place
    ) -> AsyncIterator[tuple[Piece, Sequence[Stretch]]]:
        """Everything that is there, piece by piece; what is not goes to the losses."""
        for stretches in await self.stretches(what, start, end):
            found = reading.read(self._runtime, self.places.where, stretches, self._terms)
            async for one in found:
                if isinstance(one, Piece):
                    yield one, stretches
                else:
                    self._lose(one, stretches)

    async def messages(
        self, what: What, start: Place, end: Place
    ) -> AsyncIterator[ReceivedMessage]:
        wanted = self._tags.tags
        async for piece, stretches in self.pieces(what, start, end):
            queue = stretches[piece.number].queue
            at = piece.start
            for message in record.iterate(piece.body):
                if not at <= message.queue_offset < piece.end:
                    continue
                if message.queue_offset > at:
                    self._missing(piece, at, message.queue_offset, stretches)
                at = message.queue_offset + 1
                if not wanted or message.find(TAGS) in wanted:
                    yield ReceivedMessage(
                        message, queue.broker, topic=self._as_users_say(message.topic)
                    )
            if at < piece.end:
                self._missing(piece, at, piece.end, stretches)

    async def chunks(self, what: What, start: Place, end: Place) -> AsyncIterator[bytes]:
        async for piece, stretches in self.pieces(what, start, end):
            for start_, end_ in reading.holes(piece):
                self._missing(piece, start_, end_, stretches)
            if len(piece.body):
                yield bytes(piece.body)

    async def batches(
        self, what: What, start: Place, end: Place, columns: Sequence[str] | None
    ) -> AsyncIterator[pa.RecordBatch]:
        rows_of, names_of = _arrow()
        wanted = names_of(columns)
        async for pieces, stretches in together(self.pieces(what, start, end)):
            rows = rows_of(pieces, [stretch.queue for stretch in stretches])
            self._note_holes(rows, stretches)
            batch = rows.batch(wanted, tags=self._tags, topics=self._as_users_say)
            if len(batch):
                yield batch

    def _note_holes(self, rows: Rows, stretches: Sequence[Stretch]) -> None:
        if not self._terms.filtered:
            holes = rows.holes()
            self._losses.note([(stretches[n].queue, a, b, _GONE) for n, a, b in holes])

    def _missing(self, piece: Piece, start: int, end: int, stretches: Sequence[Stretch]) -> None:
        if not self._terms.filtered and not piece.sparse:
            self._losses.note([(stretches[piece.number].queue, start, end, _GONE)])

    def _lose(self, gap: Gap, stretches: Sequence[Stretch]) -> None:
        self._losses.note([(stretches[gap.number].queue, gap.start, gap.end, gap.why)])


_GONE: Final = "the broker does not have them, though it has what comes after"


async def together(
    pieces: AsyncIterator[tuple[Piece, Sequence[Stretch]]],
) -> AsyncIterator[tuple[list[Piece], Sequence[Stretch]]]:
    """Pieces of one broker joined until they are worth decoding."""
    kept: list[Piece] = []
    of: Sequence[Stretch] = ()
    rows = size = 0
    async for piece, stretches in pieces:
        if kept and stretches is not of:
            yield kept, of
            kept, rows, size = [], 0, 0
        of = stretches
        kept.append(piece)
        rows += piece.end - piece.start
        size += len(piece.body)
        if size >= BYTES or (rows >= ROWS and size):
            yield kept, of
            kept, rows, size = [], 0, 0
    if kept:
        yield kept, of


def _arrow() -> tuple[type[Rows], Callable[[Sequence[str] | None], list[str]]]:
    try:
        from gantrymq.client.arrow import TYPES, Rows, unknown_column
    except ImportError as error:
        raise ConfigError(
            f"record batches need pyarrow and numpy ({error}): pip install 'gantrymq[spark]'"
        ) from error

    def names_of(columns: Sequence[str] | None) -> list[str]:
        wanted = list(TYPES if columns is None else columns)
        for name in wanted:
            if name not in TYPES:
                raise unknown_column(name)
        return wanted

    return Rows, names_of


def read_terms(
    tags: str, sql: str | None, group: str, max_bytes: int, patience: float
) -> ReadTerms:
    """What the arguments of a reader come to."""
    terms = ReadTerms(group=group, max_bytes=max_bytes, patience=patience)
    if sql is None:
        return replace(terms, expression=parse_tags(tags).expression)
    if tags != EVERYTHING:
        raise ConfigError(f"tags={tags!r} and sql={sql!r} were given: a reader filters by one")
    return replace(terms, expression=sql, expression_type=SQL)


class _Open:
    """What both readers are: usable until they are closed, in the process that made them."""

    def __init__(self, core: _Core) -> None:
        self._core = core
        self._origin = Origin()
        self._closed = False

    @property
    def _reads(self) -> _Core:
        if self._closed:
            raise ClosedError(f"this {type(self).__name__} was closed; make a new one to go on")
        self._origin.check(f"this {type(self).__name__}")
        return self._core

    def _closes(self) -> bool:
        """It is being closed; whether there is anything of this process's to close."""
        closed, self._closed = self._closed, True
        return not closed and self._origin.is_here


class AsyncReader(_Open):
    """Reads parts of topics.

    ```python
    async with gantry.AsyncReader("rmq://localhost:9876") as reader:
        async for message in reader.messages("orders", start=yesterday):
            print(message.offset, message.body)
    ```

    `tags` (`a || b`) or `sql` choose messages; the broker leaves the others out.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tags: str = EVERYTHING,
        sql: str | None = None,
        group: str = TOOLS_GROUP,
        on_loss: OnLoss = "fail",
        max_bytes: int = 4 << 20,
        patience: float = 60.0,
        network: Network | None = None,
        **client: Unpack[ClientArguments],
    ) -> None:
        config = load_config(url, arguments=client)
        terms = read_terms(tags, sql, group, max_bytes, patience)
        self._pool = pool_for(config, network)
        super().__init__(_Core(config, AsyncRuntime(self._pool), terms, on_loss))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of `topic` that can be read."""
        return await self._reads.places.queues(topic)

    async def bounds(self, queue: MessageQueue) -> Bounds:
        """The offsets that `queue` has."""
        return await self._reads.bounds(queue)

    async def offset(self, queue: MessageQueue, place: Place) -> int:
        """The offset that `place` stands for in `queue`."""
        return await self._reads.offset(queue, place, "latest")

    def messages(
        self, what: What, start: Place = None, end: Place = None
    ) -> AsyncIterator[ReceivedMessage]:
        """The messages of a topic or of queues, one queue after the other.

        Without `start` from the oldest that there is, without `end` up to the newest that there is
        when the reading begins.
        """
        return self._reads.messages(what, start, end)

    def batches(
        self,
        what: What,
        start: Place = None,
        end: Place = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> AsyncIterator[pa.RecordBatch]:
        """The same as Arrow record batches, of all columns or of those that are named."""
        return self._reads.batches(what, start, end, columns)

    def chunks(self, what: What, start: Place = None, end: Place = None) -> AsyncIterator[bytes]:
        """The same as bytes: stored messages back to back, as brokers send them."""
        return self._reads.chunks(what, start, end)

    async def close(self) -> None:
        """Close its connections."""
        if self._closes():
            await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class Reader(_Open):
    """Reads parts of topics, on the caller's own thread.

    ```python
    with gantry.Reader("rmq://localhost:9876") as reader:
        for message in reader.messages("orders", start=yesterday):
            print(message.offset, message.body)
    ```

    `tags` (`a || b`) or `sql` choose messages; the broker leaves the others out.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        tags: str = EVERYTHING,
        sql: str | None = None,
        group: str = TOOLS_GROUP,
        on_loss: OnLoss = "fail",
        max_bytes: int = 4 << 20,
        patience: float = 60.0,
        **client: Unpack[ClientArguments],
    ) -> None:
        config = load_config(url, arguments=client)
        terms = read_terms(tags, sql, group, max_bytes, patience)
        self._blocking = blocking_for(config)
        super().__init__(_Core(config, self._blocking.runtime, terms, on_loss))

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of `topic` that can be read."""
        return run_blocking(self._reads.places.queues(topic))

    def bounds(self, queue: MessageQueue) -> Bounds:
        """The offsets that `queue` has."""
        return run_blocking(self._reads.bounds(queue))

    def offset(self, queue: MessageQueue, place: Place) -> int:
        """The offset that `place` stands for in `queue`."""
        return run_blocking(self._reads.offset(queue, place, "latest"))

    def messages(
        self, what: What, start: Place = None, end: Place = None
    ) -> Iterator[ReceivedMessage]:
        """The messages of a topic or of queues, one queue after the other.

        Without `start` from the oldest that there is, without `end` up to the newest that there is
        when the reading begins.
        """
        return iterate_blocking(self._reads.messages(what, start, end))

    def batches(
        self,
        what: What,
        start: Place = None,
        end: Place = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same as Arrow record batches, of all columns or of those that are named."""
        return iterate_blocking(self._reads.batches(what, start, end, columns))

    def chunks(self, what: What, start: Place = None, end: Place = None) -> Iterator[bytes]:
        """The same as bytes: stored messages back to back, as brokers send them."""
        return iterate_blocking(self._reads.chunks(what, start, end))

    def close(self) -> None:
        """Close its connections."""
        if self._closes():
            self._blocking.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
