"""Reading known stretches of queues, with many pulls sent ahead of the answers.

A *stretch* is a queue from one offset up to another. Stretches of one broker are read over one
connection, in order; what comes out is *pieces*, each with the stored messages of exactly the
offsets that it names, and *gaps*, which say what is not there any more and why. Pieces and gaps of
a stretch follow each other without a hole and without an overlap, whatever happens in between:
nothing is skipped that is not named.

**Ahead.** How much one pull brings is up to the broker: some give 4 MiB, RocketMQ's own 32 messages
unless told otherwise. Waiting for each answer before asking on would make the second kind slow. But
queue offsets have no holes, so the next pull can be sent before the answer to the last is there: as
long as each brings as much as was asked, every answer begins where the one before ends.

    asked     0..32  32..64  64..96  96..128
    answered  0..32  32..60  64..96            then 60..64 is asked for, and waited for

How much to ask for (the *step*) is learnt from the answers. One that brings less says that the step
is too long: its rest is asked for at once, and goes before what was sent ahead. If that happens
again with another number, it is bytes that are limited and not messages, and the step keeps some
distance. How many pulls are under way doubles from one on with every answer, as far as the bytes
that they are likely to bring have room.

**Filters** leave holes: an answer may reach further than was asked. Then the step grows to what was
looked at, and what overlaps the pulls that are under way is cut off.

**Faults.** When the connection ends or the broker is busy, everything not yet given is asked for
again, at whatever address the broker then has, for as long as `patience` says. A queue that ends
before the stretch does may belong to a broker that is still starting, or to a replica that lags: it
is asked again, too, and a gap only when patience is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from gantrymq.errors import (
    GantryError,
    GoingAway,
    ReadFailed,
    RemoteProtocolError,
    ServiceUnavailable,
    SystemBusy,
    TransportError,
)
from gantrymq.flows.pulling import placed
from gantrymq.model import MessageQueue
from gantrymq.protocol.names import TOOLS_GROUP
from gantrymq.protocol.pulling import COMPACTED, PullFlag, PullMessage, PullReply, PullStatus
from gantrymq.runtime import Pending, Pipe, PipingRuntime
from gantrymq.wire.command import Buffer
from gantrymq.wire.flags import WRAPPED_BITS
from gantrymq.wire.record import LEAST_SIZE

EVERYTHING: Final = "*"
TAG: Final = "TAG"
SQL: Final = "SQL92"

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0
_FEW_REFUSALS: Final = 3
_GROW_AFTER: Final = 32
_GROW_AFTER_LIMIT: Final = 512
"""Whole answers after which a longer step is tried; the second where a limit showed twice."""
_OFFSET_AT: Final = 20
_SIZE: Final = Struct(">i")
_OFFSET_AND_FLAGS: Final = Struct(">q8xi")

_WORTH_WAITING: Final = (
    TransportError, RemoteProtocolError, SystemBusy, ServiceUnavailable, GoingAway,
)  # fmt: skip
"""What passes by itself; other refusals are tried a few times only."""


class Stretch(NamedTuple):
    """A queue from offset `start` up to `end`, which is not in it any more."""

    queue: MessageQueue
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.queue} from {self.start:,} up to {self.end:,}"


class Piece(NamedTuple):
    """Everything that stretch `number` has from `start` up to `end`: stored messages, in order."""

    number: int
    start: int
    end: int
    body: Buffer
    sparse: bool = False
    """Whether the topic is a compacted one, in which offsets are missing without anything lost."""


class Gap(NamedTuple):
    """What stretch `number` does not have any more, from `start` up to `end`."""

    number: int
    start: int
    end: int
    why: str


Where: TypeAlias = Callable[[str, int], Awaitable[str]]
"""The address to read a broker's queues at; the number counts the attempts since it last worked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTerms:
    """How to read."""

    group: str = TOOLS_GROUP
    """In whose name; every broker has the default one, and it has no members and no offsets."""
    expression: str = EVERYTHING
    expression_type: str = TAG
    max_messages: int = 4096
    """Most that one pull asks for."""
    max_bytes: int = 4 * _MIB
    """Most bytes that one pull asks for, where the broker listens to that."""
    ahead: int = 32
    """Most pulls under way at a time."""
    ahead_bytes: int = 8 * _MIB
    """Most bytes under way, as far as can be foreseen; two pulls are sent ahead in any case."""
    timeout: float = 30.0
    """Seconds without an answer after which a connection is given up."""
    patience: float = 60.0
    """Seconds without any progress after which reading fails."""

    @property
    def filtered(self) -> bool:
        """Whether messages may be left out on purpose."""
        return self.expression_type != TAG or self.expression != EVERYTHING


PLAIN: Final = ReadTerms()


class _Behind(GantryError):
    """The queue ends before the stretch does."""


async def read(
    runtime: PipingRuntime, where: Where, stretches: Sequence[Stretch], terms: ReadTerms = PLAIN
) -> AsyncIterator[Piece | Gap]:
    """What the stretches, all of one broker, hold: in their order, each from its start to its end.

    `ReadFailed` says where it did not go on.
    """
    plan = _Plan(stretches, terms)
    troubles = _Troubles(runtime.now())
    while not plan.done:
        broker = stretches[plan.at[0]].queue.broker
        address = "?"
        try:
            address = await where(broker, troubles.count)
            async with runtime.pipe(address, timeout=terms.timeout) as pipe:
                async for found in _along(pipe, plan, terms):
                    if found is not None:
                        yield found
                    if troubles.count:
                        troubles = _Troubles(runtime.now())
                    troubles.progress(runtime.now())
        except GantryError as error:
            plan.begin_again()
            pause = troubles.another(error, runtime.now(), terms.patience)
            if pause is None:
                if not isinstance(error, _Behind):
                    number, at = plan.at
                    raise troubles.failed(stretches[number], at, address, error) from error
                yield plan.give_up(str(error))
                troubles = _Troubles(runtime.now())
            else:
                await runtime.sleep(pause)


async def _along(pipe: Pipe, plan: _Plan, terms: ReadTerms) -> AsyncIterator[Piece | Gap | None]:
    """The same over one connection, until all is read or something goes wrong."""
    while not plan.done:
        await plan.send(pipe)
        pull = plan.flight[0]
        assert pull.pending is not None
        reply = await pull.pending.reply(timeout=terms.timeout)
        yield await plan.take(pipe, reply)


class _Troubles:
    """What went wrong since something last went well."""

    def __init__(self, now: float) -> None:
        self.count = 0
        self._since = now
        self._refusals = 0
        self._now = now
        self._pause = _FIRST_PAUSE

    def progress(self, now: float) -> None:
        """Something went well."""
        self._since = now

    def another(self, error: GantryError, now: float, patience: float) -> float | None:
        """Seconds to wait before the next attempt, or None when there is to be none."""
        self.count += 1
        self._now = now
        if not isinstance(error, (*_WORTH_WAITING, _Behind)):
            self._refusals += 1
            if not error.retriable or self._refusals >= _FEW_REFUSALS:
                return None
        left = self._since + patience - now
        if left <= 0:
            return None
        pause = min(self._pause, left)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        return pause

    def failed(self, stretch: Stretch, at: int, address: str, last: GantryError) -> ReadFailed:
        """The error to end with."""
        return ReadFailed(
            f"{stretch} was read up to {at:,} and no further: {self.count} attempts in"
            f" {self._now - self._since:.1f}s, the last at {address}: {last}"
        )


class _Pull:
    """A pull that is under way, for these offsets of one stretch."""

    __slots__ = ("end", "number", "orders", "pending", "start")

    def __init__(self, number: int, start: int, end: int) -> None:
        self.number = number
        self.start = start
        self.end = end
        self.orders = 0
        """How often the broker answered with the order to read elsewhere."""
        self.pending: Pending[PullReply] | None = None


class _Plan:
    """What is still to be read: the pulls under way in their order, and then from `at` on."""

    def __init__(self, stretches: Sequence[Stretch], terms: ReadTerms) -> None:
        self.flight: deque[_Pull] = deque()
        self.at = (0, 0)
        """The stretch to go on with, by its number, and the offset in it."""
        self._stretches = stretches
        self._terms = terms
        self._flags = int(PullFlag.SUBSCRIPTION)
        self._step = terms.max_messages
        self._window = 1
        self._whole = 0
        """How many answers in a row brought all that was asked."""
        self._short = 0
        """How much the last one brought that did not."""
        self._grow_after = _GROW_AFTER
        self._likely = 0
        """How many bytes an answer is likely to bring."""
        self._go_to(0)

    @property
    def done(self) -> bool:
        """Whether nothing is left."""
        return not self.flight and self.at[0] >= len(self._stretches)

    async def send(self, pipe: Pipe) -> None:
        """Send pulls ahead, as far as the window allows."""
        while len(self.flight) < self._window and (pull := self._next()) is not None:
            pull.pending = await self._begin(pipe, pull)
            self.flight.append(pull)

    async def take(self, pipe: Pipe, reply: PullReply) -> Piece | Gap | None:
        """What the answer to the first pull under way brings."""
        pull = self.flight[0]
        found = self._judge(pull, reply)
        if found is None:  # moved by an order to the group: ask once more
            pull.pending = await self._begin(pipe, pull)
            return None
        self.flight.popleft()
        self._learn(pull, reply, found)
        if found.end < pull.end:
            await self._ask_for_rest(pipe, pull.number, found.end, pull.end)
        return found

    def begin_again(self) -> None:
        """Nothing is under way any more."""
        if self.flight:
            first = self.flight[0]
            self.at = (first.number, first.start)
            self.flight.clear()
        self._window = 1

    def give_up(self, why: str) -> Gap:
        """Leave the rest of the stretch that is being read."""
        number, start = self.at
        gap = Gap(number, start, self._stretches[number].end, why)
        self._go_to(number + 1)
        return gap

    def _judge(self, pull: _Pull, reply: PullReply) -> Piece | Gap | None:
        """What an answer says of the offsets that were asked for; None: it does not."""
        start, to = pull.start, reply.next_offset
        end = min(to, pull.end)
        status = reply.status
        if status is PullStatus.FOUND or status is PullStatus.NOTHING_MATCHED:
            if to <= start:
                raise RemoteProtocolError(
                    f"{self._named(pull)}: the broker says to go on at {to:,}, not after {start:,}"
                )
            sparse = bool((reply.topic_flags or 0) & COMPACTED)
            filtered = self._terms.filtered or sparse
            if status is PullStatus.NOTHING_MATCHED and not filtered:
                return Gap(pull.number, start, end, f"not readable at the broker: {reply.remark}")
            body = placed(reply.body, self._stretches[pull.number].queue.topic)
            if to > pull.end:
                body = before(body, pull.end)
            return Piece(pull.number, start, end, body, sparse)
        if start < reply.min_offset:
            end = min(reply.min_offset, pull.end)
            why = f"removed at the broker, where the queue begins at {reply.min_offset:,}"
            return Gap(pull.number, start, end, why)
        if start >= reply.max_offset:
            raise _Behind(f"the queue ends at {reply.max_offset:,}")
        if status is PullStatus.OFFSET_MOVED:
            pull.orders += 1
            if pull.orders > _FEW_REFUSALS:
                raise RemoteProtocolError(f"{self._named(pull)}: the broker says to go elsewhere")
            return None
        if to > start:
            return Gap(pull.number, start, end, f"not readable at the broker: {reply.remark}")
        raise _Behind(f"nothing at {start:,}, though the queue ends at {reply.max_offset:,}")

    def _learn(self, pull: _Pull, reply: PullReply, found: Piece | Gap) -> None:
        """How long the next step is, and how many are sent ahead."""
        if isinstance(found, Gap):
            return
        terms = self._terms
        asked, advance = pull.end - pull.start, reply.next_offset - pull.start
        if advance < asked:
            self._whole = 0
            if advance >= self._step:  # a longer one was tried
                self._grow_after = _GROW_AFTER_LIMIT
            else:
                by_count = self._short in (0, advance)
                self._step = advance if by_count else max(1, advance * 3 // 4)
                self._grow_after = _GROW_AFTER
                self._short = advance
        elif advance > asked:
            self._step = min(max(advance, self._step), terms.max_messages)
        elif asked >= self._step:
            self._whole += 1
            self._step = asked
        self._likely = max(len(reply.body), (3 * self._likely + len(reply.body)) // 4, _KIB)
        room = max(2, terms.ahead_bytes // self._likely)
        self._window = min(2 * self._window, terms.ahead, room)

    async def _ask_for_rest(self, pipe: Pipe, number: int, start: int, end: int) -> None:
        """Have what an answer left out read before everything that comes after it."""
        if not self.flight:
            self.at = (number, start)
            return
        pulls = [
            _Pull(number, at, min(at + self._step, end)) for at in range(start, end, self._step)
        ]
        for pull in pulls:
            pull.pending = await self._begin(pipe, pull)
        self.flight.extendleft(reversed(pulls))

    def _next(self) -> _Pull | None:
        number, at = self.at
        if number >= len(self._stretches):
            return None
        end = self._stretches[number].end
        step = self._step
        if self._whole >= self._grow_after:
            step = min(step + max(1, step // 4), self._terms.max_messages)
            self._whole = 0
        to = min(at + step, end)
        if to < end:
            self.at = (number, to)
        else:
            self._go_to(number + 1)
        return _Pull(number, at, to)

    def _go_to(self, number: int) -> None:
        """Go on with this stretch, or the first after it that is not empty."""
        while number < len(self._stretches):
            _, start, end = self._stretches[number]
            if start < end:
                self.at = (number, start)
                return
            number += 1
        self.at = (number, 0)

    async def _begin(self, pipe: Pipe, pull: _Pull) -> Pending[PullReply]:
        terms, queue = self._terms, self._stretches[pull.number].queue
        request = PullMessage(
            group=terms.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            offset=pull.start,
            max_messages=pull.end - pull.start,
            max_bytes=terms.max_bytes,
            flags=self._flags,
            wait_ms=0,
            subscription=terms.expression,
            expression_type=terms.expression_type,
        )
        return await pipe.begin(request, timeout=terms.timeout)

    def _named(self, pull: _Pull) -> str:
        return f"{self._stretches[pull.number].queue} @ {pull.start:,}"


def before(body: Buffer, end: int) -> Buffer:
    """The leading messages of a pull's body whose offsets in the queue are below `end`."""
    for at, offset, _ in _offsets(body):
        if offset >= end:
            return memoryview(body)[:at]
    return body


def holes(piece: Piece) -> Iterator[tuple[int, int]]:
    """The offsets that a piece should have and has not, from one up to another."""
    at: int | None = piece.start
    if piece.sparse:
        return
    for _, offset, flags in _offsets(piece.body):
        if at is not None and offset > at:
            yield at, offset
        at = None if flags & WRAPPED_BITS == WRAPPED_BITS else offset + 1
    if at is not None and at < piece.end:
        yield at, piece.end


def _offsets(body: Buffer) -> Iterator[tuple[int, int, int]]:
    """Where each message begins, its offset in the queue, and its system flag."""
    at, last = 0, len(body) - LEAST_SIZE
    while at <= last:
        size = _SIZE.unpack_from(body, at)[0]
        if size < LEAST_SIZE:
            return
        offset, flags = _OFFSET_AND_FLAGS.unpack_from(body, at + _OFFSET_AT)
        yield at, offset, flags
        at += size
