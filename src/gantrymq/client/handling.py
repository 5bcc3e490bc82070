"""Who handles messages: tasks for `async def`, threads for `def`, or a loop of the user's own.

What is to be handled waits in one row, for as many *hands* as may be at work at once. A piece of
work is one message, or several for a handler that takes a list; for an ordered queue it is a
*turn*: messages of that queue one after the other, for up to a minute, by one hand at a time. How
each piece ended is told to the `Listener`, on the loop.

**No task for a message.** A handler that is a coroutine is begun by whichever hand is free. Most
end without having waited for anything, and then the same hand takes the next message, at the cost
of a function call. Only when one does wait, another hand is asked to go on. So a hundred messages
that need no waiting are handled by one task, and a hundred that do by as many hands as there are.
Every few milliseconds a hand lets the loop do something else.

**Threads** work in the same way: one is sent for the row, and another only if something is left of
it a millisecond later. What they have finished is collected by the loop in one go.

Handlers that take too long are `overdue`. A coroutine is then cancelled; a thread cannot be
stopped, so its message is taken from it and what comes of it does not count any more.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import coroutine
from typing import Any, Final, Protocol, TypeAlias

from gantrymq.client.hooks import ConsumeHooks, Handling
from gantrymq.client.lining_up import line_up
from gantrymq.errors import GantryError, StateError
from gantrymq.model import ReceivedMessage
from gantrymq.net.alarms import clock_of

Batch: TypeAlias = list[ReceivedMessage]
"""What a handler gets at once; a handler of single messages gets the only one in it."""

_SLICE: Final = 0.005
"""Seconds that a hand goes on before it lets the loop do something else."""
_TURN: Final = 60.0
"""Seconds that a hand stays with one ordered queue while others wait."""
_RAMP: Final = 0.001


CALLER: Final = __file__
"""Marks frames that call handlers, for those who show tracebacks."""


class HandlerTimeout(GantryError, TimeoutError):
    """A handler was not done with its message in the time that it had."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A user's handler, and how it wants to be called."""

    call: Callable[[Any], Any]
    batch: int | None = None
    """Most messages at once, in a list; None for one message, and no list."""

    @property
    def is_async(self) -> bool:
        """Whether calling it gives something to await."""
        return is_async(self.call)

    @property
    def name(self) -> str:
        """What to call it in logs."""
        return getattr(self.call, "__qualname__", None) or type(self.call).__name__


def is_async(call: object) -> bool:
    """Whether `call` is a coroutine function, or an object whose `__call__` is one."""
    while isinstance(call, partial):
        call = call.func
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 – whether it can be called is not the question
    )


def watched(handler: Handler, hooks: ConsumeHooks) -> Handler:
    """The same handler with `hooks` around it, where it is called."""
    call = handler.call

    def handed(given: Any) -> Handling:
        return hooks.before(given if handler.batch is not None else [given])

    async def call_async(given: Any) -> Any:
        handling = handed(given)
        error: BaseException | None = None
        try:
            return await call(given)
        except BaseException as raised:
            error = raised
            raise
        finally:
            hooks.after(handling, error)

    def call_plain(given: Any) -> Any:
        handling = handed(given)
        error: BaseException | None = None
        try:
            return call(given)
        except BaseException as raised:
            error = raised
            raise
        finally:
            hooks.after(handling, error)

    around = call_async if handler.is_async else call_plain
    around.__qualname__ = handler.name
    return Handler(around, handler.batch)


async def call_once(handler: Handler, message: ReceivedMessage) -> BaseException | None:
    """Handle one message outside every row; what the handler raised."""
    given = [message] if handler.batch is not None else message
    try:
        if handler.is_async:
            await handler.call(given)
        else:
            await asyncio.to_thread(handler.call, given)
    except Exception as error:
        return error
    return None


class Row(Protocol):
    """What hands need to know of the queue that messages came from."""

    handler: Handler | None
    """Who handles its messages; None where that depends on the message."""
    stopped: bool

    def handler_of(self, batch: Batch) -> Handler:
        """Who handles these; `StateError` if nobody does."""
        ...

    def next_in_order(self) -> Batch | None:
        """The next messages of an ordered queue; None if it is not to go on for now."""
        ...


Work: TypeAlias = tuple[Row, Batch | None]
"""Messages to be handled, or None for a turn at an ordered queue."""


class Listener(Protocol):
    """What hands tell the consumer, always on its loop."""

    def finished(self, row: Any, batch: Batch, error: BaseException | None, seconds: float) -> None:
        """Messages were handled, or failed."""
        ...

    def turn_over(self, row: Any) -> None:
        """Nobody is at that ordered queue any more."""
        ...


class Hands(Protocol):
    """Whatever handles messages."""

    def give(self, work: Sequence[Work]) -> None:
        """Put `work` into the row."""
        ...

    @property
    def waiting(self) -> int:
        """How many pieces of work nobody has begun."""
        ...

    def busy(self) -> list[tuple[Row, Batch, float]]:
        """What is being handled, and since when."""
        ...

    def overdue(self, limit: float) -> list[tuple[Row, Batch, float]]:
        """Take from its handler what it has had for longer than `limit` seconds."""
        ...

    async def close(self) -> list[tuple[Row, Batch]]:
        """Handle nothing more; what was begun and will not be finished."""
        ...


# --- coroutines -----------------------------------------------------------------------------------


class _Hand:
    """A task of the loop, and what it is at."""

    __slots__ = ("batch", "expired", "row", "started", "task")

    def __init__(self) -> None:
        self.task: asyncio.Task[None]
        self.row: Row | None = None
        self.batch: Batch = []
        self.started = 0.0
        self.expired = False


class AsyncHands:
    """Runs handlers that are coroutines, on the loop."""

    def __init__(self, listener: Listener, concurrency: int) -> None:
        self._listener = listener
        self._most = concurrency
        self._row: deque[Work] = deque()
        self._hands: list[_Hand] = []
        self._idle: list[asyncio.Future[None]] = []
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._clock = clock_of(self._loop)

    @property
    def waiting(self) -> int:
        """How many pieces of work nobody has begun."""
        return len(self._row)

    def give(self, work: Sequence[Work]) -> None:
        """Put `work` into the row."""
        if not self._closed:
            line_up(self._row, work)
            self._call_a_hand()

    def busy(self) -> list[tuple[Row, Batch, float]]:
        """What is being handled, and since when."""
        return [
            (hand.row, hand.batch, hand.started) for hand in self._hands if hand.row is not None
        ]

    def overdue(self, limit: float) -> list[tuple[Row, Batch, float]]:
        """Cancel handlers that have been at it for too long; `finished` hears of each."""
        now = self._clock()
        for hand in self._hands:
            if hand.row is not None and now - hand.started > limit and not hand.expired:
                hand.expired = True
                hand.task.cancel()
        return []

    async def close(self) -> list[tuple[Row, Batch]]:
        """Cancel what is under way, and forget what waits."""
        self._closed = True
        self._row.clear()
        cut_off = [(hand.row, hand.batch) for hand in self._hands if hand.row is not None]
        tasks = [hand.task for hand in self._hands]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return cut_off

    def _call_a_hand(self) -> None:
        """See to it that somebody takes what is next in the row."""
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                waiter.set_result(None)
                return
        if self._row and len(self._hands) < self._most:
            hand = _Hand()
            self._hands.append(hand)
            hand.task = self._loop.create_task(self._work(hand), name="gantrymq handler")

    async def _work(self, hand: _Hand) -> None:
        row = self._row
        clock = self._clock
        finished = self._listener.finished
        while True:
            if not row:
                await self._wait_for_work()
                continue
            until = clock() + _SLICE
            while row:
                source, batch = row.popleft()
                if batch is None:
                    await self._take_turn(hand, source)
                    continue
                if source.stopped:
                    continue
                started = clock()
                error = await self._handle(hand, source, batch, started)
                now = clock()
                finished(source, batch, error, now - started)
                if now > until:
                    self._call_a_hand()
                    await asyncio.sleep(0)
                    until = clock() + _SLICE

    async def _wait_for_work(self) -> None:
        waiter = self._loop.create_future()
        self._idle.append(waiter)
        await waiter

    async def _handle(
        self, hand: _Hand, row: Row, batch: Batch, started: float
    ) -> BaseException | None:
        """Run the handler; what it raised, or None."""
        hand.row, hand.batch, hand.started = row, batch, started
        try:
            handler = row.handler or row.handler_of(batch)
            work: Coroutine[Any, Any, Any] = handler.call(
                batch if handler.batch is not None else batch[0]
            )
            try:
                waits_for = work.send(None)
            except StopIteration:
                return None
            if self._row:
                self._call_a_hand()
            await _rest_of(work, waits_for)
        except asyncio.CancelledError as cancelled:
            return self._cancelled(hand, cancelled)
        except Exception as error:
            return error
        else:
            return None
        finally:
            hand.row = None
            if hand.expired:
                hand.expired = False
                hand.task.uncancel()

    def _cancelled(self, hand: _Hand, error: asyncio.CancelledError) -> BaseException:
        """Either it took too long, or it cancelled itself, or we are closing."""
        if hand.expired:
            took = self._clock() - hand.started
            return HandlerTimeout(
                f"the handler was not done after {took:.1f}s, and was cancelled; give it longer"
                f" with handler_timeout="
            )
        if hand.task.cancelling():
            raise error
        return error

    async def _take_turn(self, hand: _Hand, row: Row) -> None:
        """Handle messages of one ordered queue, until there is none or one fails."""
        clock = self._clock
        begun = until = clock()
        try:
            while (batch := row.next_in_order()) is not None:
                started = clock()
                error = await self._handle(hand, row, batch, started)
                now = clock()
                self._listener.finished(row, batch, error, now - started)
                if error is not None or now - begun > _TURN:
                    break
                if now > until + _SLICE:
                    await asyncio.sleep(0)
                    until = clock()
        finally:
            self._listener.turn_over(row)


@coroutine
def _rest_of(work: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, None]:
    """Go on with a coroutine whose first step was made by hand, and which waits for something."""
    while True:
        try:
            value = yield waits_for
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            try:
                waits_for = work.throw(error)
            except StopIteration:
                return
        else:
            try:
                waits_for = work.send(value)
            except StopIteration:
                return


REST_OF: Final = _rest_of.__code__
"""Marks the frame that goes on with a handler, for those who look at stacks."""


# --- threads --------------------------------------------------------------------------------------


class _Errand:
    """What a thread is at."""

    __slots__ = ("batch", "given_up", "row", "started")

    def __init__(self, row: Row, batch: Batch, started: float) -> None:
        self.row = row
        self.batch = batch
        self.started = started
        self.given_up = False


class ThreadHands:
    """Runs handlers that are plain functions, in threads."""

    def __init__(self, listener: Listener, concurrency: int) -> None:
        self._listener = listener
        self._most = concurrency
        self._row: deque[Work] = deque()
        self._ended: deque[tuple[Row, Batch | None, BaseException | None, float]] = deque()
        self._told = False
        self._errands: set[_Errand] = set()
        self._active = 0
        self._ramp: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="gantrymq handler")
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many pieces of work nobody has begun."""
        return len(self._row)

    def give(self, work: Sequence[Work]) -> None:
        """Put `work` into the row."""
        if self._closed:
            return
        line_up(self._row, work)
        if self._active == 0:
            self._send_threads(1)
        elif self._ramp is None and self._active < self._most:
            self._ramp = self._loop.call_later(_RAMP, self._more)

    def busy(self) -> list[tuple[Row, Batch, float]]:
        """What is being handled, and since when."""
        return [(errand.row, errand.batch, errand.started) for errand in tuple(self._errands)]

    def overdue(self, limit: float) -> list[tuple[Row, Batch, float]]:
        """Take their messages from threads that have had them for too long; the caller has them."""
        now = time.monotonic()
        late = []
        for errand in tuple(self._errands):
            if now - errand.started > limit and not errand.given_up:
                errand.given_up = True
                late.append((errand.row, errand.batch, now - errand.started))
        return late

    async def close(self) -> list[tuple[Row, Batch]]:
        """Take nothing more from the row. Threads that are at work end when their handler does."""
        self._closed = True
        self._row.clear()
        if self._ramp is not None:
            self._ramp.cancel()
        cut_off = [(row, batch) for row, batch, _ in self.overdue(-1.0)]
        self._pool.shutdown(wait=False, cancel_futures=True)
        return cut_off

    def _more(self) -> None:
        """What was there a millisecond ago is not done: as many threads again."""
        self._ramp = None
        if self._row and not self._closed:
            self._send_threads(min(self._active, self._most - self._active, len(self._row)))
            if self._active < self._most:
                self._ramp = self._loop.call_later(_RAMP, self._more)

    def _send_threads(self, count: int) -> None:
        for _ in range(count):
            self._active += 1
            self._loop.run_in_executor(self._pool, self._work).add_done_callback(self._back)
        if self._ramp is None and self._active < self._most and len(self._row) > 1:
            self._ramp = self._loop.call_later(_RAMP, self._more)

    def _back(self, _: asyncio.Future[None]) -> None:
        self._active -= 1
        self._collect()
        if self._row and self._active == 0 and not self._closed:
            self._send_threads(1)

    # --- in a thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        row = self._row
        while True:
            try:
                source, batch = row.popleft()
            except IndexError:
                return
            if batch is None:
                self._take_turn(source)
            elif not source.stopped:
                self._handle(source, batch)

    def _take_turn(self, row: Row) -> None:
        until = time.monotonic() + _TURN
        try:
            while (batch := row.next_in_order()) is not None:
                failed = self._handle(row, batch)
                if failed or time.monotonic() > until:
                    break
        finally:
            self._tell(row, None, None, 0.0)

    def _handle(self, row: Row, batch: Batch) -> bool:
        """Run the handler; whether it failed."""
        errand = _Errand(row, batch, time.monotonic())
        self._errands.add(errand)
        failure: BaseException | None = None
        try:
            handler = row.handler or row.handler_of(batch)
            given = handler.call(batch if handler.batch is not None else batch[0])
            if isinstance(given, Awaitable):
                failure = StateError(
                    f"handler {handler.name} gave back something to await: make it an `async def`"
                )
                close = getattr(given, "close", None)
                if close is not None:
                    close()
        except BaseException as error:
            failure = error
        self._errands.discard(errand)
        if not errand.given_up:
            self._tell(row, batch, failure, time.monotonic() - errand.started)
        return failure is not None

    def _tell(
        self, row: Row, batch: Batch | None, error: BaseException | None, seconds: float
    ) -> None:
        self._ended.append((row, batch, error, seconds))
        if not self._told:
            self._told = True
            with suppress(RuntimeError):  # the loop is closed: nobody is interested any more
                self._loop.call_soon_threadsafe(self._collect)

    # --- on the loop ----------------------------------------------------------------------------

    def _collect(self) -> None:
        self._told = False
        ended = self._ended
        while ended:
            row, batch, error, seconds = ended.popleft()
            if batch is None:
                self._listener.turn_over(row)
            else:
                self._listener.finished(row, batch, error, seconds)


# --- a loop of the user's own -----------------------------------------------------------------


class Handed:
    """Gives work to whoever asks for it: what `async for message in consumer` is made of."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.hooks: ConsumeHooks | None = None
        self._row: deque[Work] = deque()
        self._out: dict[int, tuple[Row, Batch, float]] = {}
        self._seen: dict[int, Handling] = {}
        self._turns: set[int] = set()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._clock = clock_of(self._loop)
        self.closed = False
        self.is_used = False
        """Whether anybody ever asked for a message."""

    @property
    def waiting(self) -> int:
        """How many pieces of work nobody has begun."""
        return len(self._row)

    def give(self, work: Sequence[Work]) -> None:
        """Put `work` into the row."""
        line_up(self._row, work)
        for _ in range(len(self._row)):
            if not self._wake_one():
                return

    def busy(self) -> list[tuple[Row, Batch, float]]:
        """What is being handled, and since when."""
        return list(self._out.values())

    def overdue(self, limit: float) -> list[tuple[Row, Batch, float]]:
        """Take back what was handed out for too long."""
        now = self._clock()
        late = [(key, entry) for key, entry in self._out.items() if now - entry[2] > limit]
        for key, (row, _, started) in late:
            del self._out[key]
            self._told(key, HandlerTimeout(f"nobody was done with it after {now - started:.1f}s"))
            self._end_turn(key, row)
        return [(row, batch, now - started) for _, (row, batch, started) in late]

    async def close(self) -> list[tuple[Row, Batch]]:
        """Hand out nothing more."""
        self.closed = True
        self._row.clear()
        while self._wake_one():
            pass
        return []

    def abandon(self, message: ReceivedMessage) -> None:
        """Whoever had it does not say what became of it: it stays out."""
        entry = self._out.pop(id(message), None)
        if entry is not None:
            self._told(id(message), HandlerTimeout("nobody says what became of it"))
            self._end_turn(id(message), entry[0])

    async def take(self) -> ReceivedMessage | None:
        """The next message; None when the consumer is closed."""
        self.is_used = True
        while not self.closed:
            while self._row:
                row, batch = self._row.popleft()
                in_turn = batch is None
                if batch is None:
                    batch = row.next_in_order()
                if batch is None:
                    self._listener.turn_over(row)
                    continue
                if row.stopped:
                    continue
                message = batch[0]
                self._out[id(message)] = (row, batch, self._clock())
                if in_turn:
                    self._turns.add(id(message))
                if self.hooks is not None:
                    self._seen[id(message)] = self.hooks.before([message], called=False)
                return message
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()  # what it was woken for is somebody else's now
                raise
        return None

    def put_back(self, message: ReceivedMessage, error: BaseException | None = None) -> bool:
        """It was handled, or failed; whether it was still out."""
        entry = self._out.pop(id(message), None)
        if entry is None:
            return False
        row, batch, started = entry
        self._told(id(message), error)
        self._listener.finished(row, batch, error, self._clock() - started)
        self._end_turn(id(message), row)
        return True

    def _told(self, key: int, error: BaseException | None) -> None:
        handling = self._seen.pop(key, None)
        if handling is not None and self.hooks is not None:
            self.hooks.after(handling, error)

    def _end_turn(self, key: int, row: Row) -> None:
        if key in self._turns:
            self._turns.discard(key)
            self._listener.turn_over(row)

    def _wake_one(self) -> bool:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return True
        return False
