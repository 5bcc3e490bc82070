"""What follows from how messages were handled.

| | handled well | failed |
|---|---|---|
| members share messages | out of the table | given back to the broker, then out of the table |
| … in order | the same, then the next ones | again after a pause; given up when told to |
| each gets all | the same | told in the log, and dropped: nobody keeps it for one client |

A message that cannot be given back, since no broker takes it, stays ours and is handled again after
five seconds. Until then it is out, so the offset that is committed stays before it.

RocketMQ: ConsumeMessageConcurrentlyService, ConsumeMessageOrderlyService.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gantrymq.client.handling import CALLER, Batch, HandlerTimeout, Hands
from gantrymq.client.identity import now_ms
from gantrymq.client.rates import Rates
from gantrymq.client.reading import OwnedQueue
from gantrymq.errors import GantryError
from gantrymq.flows import groups
from gantrymq.flows.groups import Failed, Verdict
from gantrymq.model import ReceivedMessage
from gantrymq.rules.delay import FIRST_RETRY_LEVEL
from gantrymq.rules.redelivery import NEVER, RetryLater, RetryPolicy

if TYPE_CHECKING:
    from gantrymq.client.engine import Engine

log = logging.getLogger("gantrymq.client")

_AGAIN: Final = 5.0
"""Seconds until a message that nobody took back is handled here once more."""
_AFTER_GIVING_UP_FAILED: Final = 1.0


@dataclass(slots=True)
class Tally:
    """How many messages were handled well, and given back, since the start."""

    finished: int = 0
    given_back: int = 0


class Outcomes:
    """Takes note of what was handled, for one consumer; a `Listener` of its hands."""

    def __init__(
        self,
        engine: Engine,
        group: str,
        retry: RetryPolicy,
        *,
        everything: bool,
        hands_of: Callable[[OwnedQueue, Batch], Hands],
        rates: Callable[[str], Rates],
    ) -> None:
        self._engine = engine
        self._group = group
        self._retry = retry
        self._everything = everything
        self._hands_of = hands_of
        self._rates = rates
        self._loop = asyncio.get_running_loop()
        self._clock = engine.runtime.now
        self._tasks: dict[asyncio.Task[None], None] = {}  # ended in the order of their beginning
        self._waiters: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self.tally = Tally()
        self.closed = False

    # --- what hands tell ------------------------------------------------------------------------

    def finished(
        self, queue: OwnedQueue, batch: Batch, error: BaseException | None, seconds: float
    ) -> None:
        """Messages were handled, or failed."""
        queue.last_consumed = self._clock()
        if error is not None:
            self._failed(queue, batch, error, seconds)
            return
        in_flight = queue.in_flight
        for message in batch:
            in_flight.done(message)
        self.tally.finished += len(batch)
        totals = self._rates(batch[0].topic).now
        totals.handled += len(batch)
        totals.seconds += seconds
        self._moved_on(queue)

    def turn_over(self, queue: OwnedQueue) -> None:
        """Nobody is at that ordered queue any more."""
        queue.in_turn = False
        self.enlist(queue)
        self._look()

    def enlist(self, queue: OwnedQueue) -> None:
        """Have somebody handle what an ordered queue has, if it may be handled now."""
        if queue.in_turn or not queue.waiting or queue.stopped or queue.suspended or self.closed:
            return
        if self._clock() >= queue.locked_until:
            return
        queue.in_turn = True
        self._hands_of(queue, [queue.waiting[0]]).give([(queue, None)])

    def overdue(self, queue: OwnedQueue, batch: Batch, seconds: float) -> None:
        """Messages were taken from a handler that cannot be stopped; its word does not count."""
        error = HandlerTimeout(
            f"the handler was not done after {seconds:.1f}s, and its message is given back, though"
            f" it goes on all the same; give it longer with handler_timeout="
        )
        self._failed(queue, batch, error, seconds)

    # --- failures -------------------------------------------------------------------------------

    def _failed(
        self, queue: OwnedQueue, batch: Batch, error: BaseException, seconds: float
    ) -> None:
        if queue.stopped and not queue.in_order:
            return  # whoever has the queue now has the messages, too
        bad = _blamed(batch, error)
        for message in batch:
            if message not in bad:
                queue.in_flight.done(message)
        totals = self._rates(batch[0].topic).now
        totals.failed += len(bad)
        totals.handled += len(batch) - len(bad)
        totals.seconds += seconds
        self.tally.finished += len(batch) - len(bad)
        self._note(queue, bad, error)
        if queue.in_order:
            self._failed_in_order(queue, bad, error)
        elif self._everything:
            self._drop(queue, bad)
        else:
            self._spawn(self.give_back(queue, bad, error), f"giving back {queue}")
        self._moved_on(queue)

    def _note(self, queue: OwnedQueue, batch: Batch, error: BaseException) -> None:
        first = batch[0]
        more = f" and {len(batch) - 1} more" if len(batch) > 1 else ""
        if isinstance(error, RetryLater):
            log.info("%s @ %d%s is to be retried: %s", queue, first.offset, more, error)
            return
        came_from = "" if isinstance(error, HandlerTimeout) else f"\n{users_traceback(error)}"
        log.warning(
            "the handler failed at %s @ %d%s (message %s, retry %d): %s: %s%s",
            queue,
            first.offset,
            more,
            first.message_id,
            first.retries,
            type(error).__name__,
            error,
            came_from.rstrip(),
        )

    def _drop(self, queue: OwnedQueue, batch: Batch) -> None:
        """Broadcast messages are not kept for one client."""
        for message in batch:
            queue.in_flight.done(message)

    async def give_back(self, queue: OwnedQueue, batch: Batch, error: BaseException) -> None:
        """Have the broker deliver messages again, later or never."""
        for message in batch:
            level = self._retry.level(error, message.retries)
            if isinstance(error, HandlerTimeout) and level == 0:
                level = FIRST_RETRY_LEVEL
            await self._give_one_back(queue, message, level, error)

    async def _give_one_back(
        self, queue: OwnedQueue, message: ReceivedMessage, level: int, error: BaseException
    ) -> bool:
        try:
            await self._hand_in(message, level, error)
        except GantryError as why:
            log.warning("%s @ %d cannot be given back: %s", queue, message.offset, why)
            message.stored.reconsume_times += 1
            self._loop.call_later(_AGAIN, self._again, queue, message)
            return False
        self.tally.given_back += 1
        queue.in_flight.done(message)
        self._moved_on(queue)
        return True

    async def _hand_in(self, message: ReceivedMessage, level: int, error: BaseException) -> None:
        verdict = Verdict(level=level, most=self._retry.most)
        if level == NEVER:
            verdict = Verdict(
                level=level,
                most=self._retry.most,
                reason=f"{type(error).__name__}: {error}",
                traceback=users_traceback(error),
            )
        routes = self._engine.routes
        others = [(broker, routes.master(broker)) for broker in routes.brokers]
        failed = Failed(
            message=message.stored,
            broker=message.broker,
            group=self._group,
            verdict=verdict,
            born_ms=now_ms(),
            others=[(broker, address) for broker, address in others if address is not None],
        )
        await groups.give_back(self._engine.runtime, routes.master(message.broker), failed)

    def _again(self, queue: OwnedQueue, message: ReceivedMessage) -> None:
        if not queue.stopped and not self.closed and message in queue.in_flight:
            self._hands_of(queue, [message]).give([(queue, [message])])

    # --- failures of ordered consumers ----------------------------------------------------------

    def _failed_in_order(self, queue: OwnedQueue, batch: Batch, error: BaseException) -> None:
        queue.suspended = True
        pause = self._retry.ordered_pause(error, batch[0].retries)
        if pause is not None:
            self._try_again(queue, batch, pause)
        elif self._everything:
            self._drop(queue, batch)
            queue.suspended = False
        else:
            self._spawn(self._give_up(queue, batch, error), f"giving up {queue}")

    def _try_again(self, queue: OwnedQueue, batch: Batch, pause: float) -> None:
        assert queue.waiting is not None
        for message in batch:
            message.stored.reconsume_times += 1
        queue.waiting.extendleft(reversed(batch))
        self._loop.call_later(pause, self._resume, queue)

    async def _give_up(self, queue: OwnedQueue, batch: Batch, error: BaseException) -> None:
        for number, message in enumerate(batch):
            try:
                await self._hand_in(message, NEVER, error)
            except GantryError as why:
                log.warning("%s @ %d cannot be given up: %s", queue, message.offset, why)
                self._try_again(queue, batch[number:], _AFTER_GIVING_UP_FAILED)
                return
            self.tally.given_back += 1
            queue.in_flight.done(message)
        self._resume(queue)

    def _resume(self, queue: OwnedQueue) -> None:
        queue.suspended = False
        self._moved_on(queue)
        self.enlist(queue)

    # --- waiting for it -------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return when `condition` holds; it is looked at whenever something was dealt with."""
        if condition():
            return
        entry = (condition, self._loop.create_future())
        self._waiters.append(entry)
        try:
            await entry[1]
        finally:
            self._waiters.remove(entry)

    async def close(self) -> None:
        """Give nothing more back."""
        self.closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _moved_on(self, queue: OwnedQueue) -> None:
        queue.made_room()
        if self._waiters:
            self._look()

    def _look(self) -> None:
        for condition, waiter in self._waiters:
            if not waiter.done() and condition():
                waiter.set_result(None)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=f"gantrymq {name}")
        self._tasks[task] = None
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
        self._look()

    @property
    def under_way(self) -> int:
        """How many failures are being seen to."""
        return len(self._tasks)


def users_traceback(error: BaseException) -> str:
    """Where `error` came from, without the frames that called the handler."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None and at.tb_frame.f_code.co_filename == CALLER:
        at = at.tb_next
    return "".join(traceback.format_exception(type(error), error, at))


def _blamed(batch: Batch, error: BaseException) -> Batch:
    """The messages that failed: those that the handler named, or all."""
    named = error.messages if isinstance(error, RetryLater) else None
    if not named:
        return batch
    ids = {id(message) for message in named}
    return [message for message in batch if id(message) in ids] or batch
