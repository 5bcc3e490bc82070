"""The driver's eye on what a streaming query reads: which queues there are, and how far they go.

Routes are looked at every few seconds. A queue that was not there before joins with its oldest
message. One that is gone has been removed if its broker is registered and says nothing of it; if
the broker itself is away the queue waits, and the others go on. A broker that stays away for too
long ends the query. So does everything that amounts to a loss of messages, unless the query was
told to go on.

**Waiting.** When nothing is new a pull that brokers hold back until something arrives is left with
each queue; whichever is answered first ends the wait. Those that are not answered stay where they
are for the next time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Final

from gantrymq.client.reader import Losses, Lost
from gantrymq.errors import GantryError, NoAddress
from gantrymq.flows.offsets import Bounds
from gantrymq.model import MessageQueue
from gantrymq.protocol.names import TOOLS_GROUP
from gantrymq.protocol.pulling import PullFlag, PullMessage, PullReply, PullStatus
from gantrymq.spark import bounding
from gantrymq.spark.cluster import Cluster, Layout, away
from gantrymq.spark.offsets import LATEST, Positions
from gantrymq.spark.options import Options
from gantrymq.wire.columns import decode

log = logging.getLogger("gantrymq.spark")

_HELD_MS: Final = 15_000
_CATCH_UP: Final = 3.0
"""Seconds that a queue has to come to where the query left it."""
_POLLED: Final = 64
"""Queues that a pull is left with; news of the others are found by the next look."""
_SAMPLED: Final = 8
_SAMPLE: Final = 32
_SAMPLE_BYTES: Final = 256 << 10


class Watch:
    """What a driver knows of the queues of one query."""

    def __init__(self, options: Options) -> None:
        self._source = options.source
        self._wanted = bounding.wanted(options.source)
        self._cluster = Cluster(options.client)
        self._losses = Losses("fail" if options.source.fail_on_data_loss else "skip")
        self._layout: Layout | None = None
        self._looked_at = 0.0
        self._since: dict[str, float] = {}
        """Brokers that are away, and since when."""
        self._behind: dict[MessageQueue, float] = {}
        """Queues that end before where the query is, and since when."""
        self._polls: dict[MessageQueue, tuple[int, asyncio.Task[PullReply]]] = {}
        self._group = options.source.group or TOOLS_GROUP
        self.ends: Positions = {}
        """As far as is known; a broker that is away may have more."""

    @property
    def cluster(self) -> Cluster:
        """Whom it asks."""
        return self._cluster

    def close(self) -> None:
        """Leave."""
        self._cluster.run(self._forget_polls())
        self._cluster.close()

    # --- where to begin, and how far it goes -----------------------------------------------------

    def initial(self) -> Positions:
        """Where the query begins; all brokers have to say."""
        return self._cluster.run(self._initial())

    async def _initial(self) -> Positions:
        place = bounding.starting(self._source, LATEST)
        layout = await self._look()
        place.check(layout)
        bounds: dict[MessageQueue, Bounds] = await self._cluster.insist(
            lambda: self._cluster.bounds(layout.queues), self._look, self._source.broker_timeout
        )
        self.ends |= {queue: its.end for queue, its in bounds.items()}
        return await bounding.settle(self._cluster, place, bounds)

    def every_end(self, at: Positions) -> Positions:
        """How far the queues go; all brokers have to say."""
        return self._cluster.run(self._every_end(at))

    async def _every_end(self, at: Positions) -> Positions:
        begun = time.monotonic()
        while True:
            found = await self._go_on(at)
            if not self._since and not self._behind:
                return found
            if self._since and time.monotonic() - begun > self._source.broker_timeout:
                raise NoAddress(f"brokers {', '.join(sorted(self._since))} are away")
            await asyncio.sleep(0.2)

    def go_on(self, at: Positions) -> Positions:
        """How far a query at those positions can go, among them queues that are new."""
        return self._cluster.run(self._go_on(at))

    async def _go_on(self, at: Positions) -> Positions:
        layout = await self._current()
        known = [queue for queue in layout.queues if queue in at]
        new = [queue for queue in layout.queues if queue not in at]
        found: Positions = {}
        if gone := sorted(set(at) - set(layout.queues)):
            found |= await self._those_gone(gone, at, layout)
        answers = await self._cluster.ends(known)
        failures = answers.failures
        lost: list[Lost] = []
        for queue in known:
            end = answers.found.get(queue)
            if end is None or (end < at[queue] and queue.broker in answers.replicas):
                found[queue] = at[queue]  # it waits
                continue
            if self._may_catch_up(queue, behind=end < at[queue]):
                found[queue] = at[queue]
                continue
            found[queue] = self.ends[queue] = end
            if end < at[queue]:
                why = f"the query has read up to there, and the queue ends at {end:,}"
                lost.append((queue, end, at[queue], why))
        self._losses.note(lost)
        if new:
            begun = await self._cluster.bounds(new)
            failures = failures | begun.failures
            for queue, bounds in begun.found.items():
                found[queue], self.ends[queue] = bounds.least, bounds.end
        self._note_away(failures, {queue.broker for queue in answers.found})
        return found

    def _may_catch_up(self, queue: MessageQueue, *, behind: bool) -> bool:
        """Whether to wait for a queue that ends too early: its broker may have just started."""
        if not behind:
            self._behind.pop(queue, None)
            return False
        since = self._behind.setdefault(queue, time.monotonic())
        if time.monotonic() - since < min(_CATCH_UP, self._source.broker_timeout):
            return True
        del self._behind[queue]
        return False

    async def _those_gone(
        self, gone: Iterable[MessageQueue], at: Positions, layout: Layout
    ) -> Positions:
        """Queues that no route has: their brokers are away, or they were removed."""
        waiting: Positions = {}
        registered = await self._registered(layout)
        failures: dict[str, GantryError] = {}
        lost: list[Lost] = []
        for queue in gone:
            if queue.broker in registered:
                end = max(self.ends.pop(queue, at[queue]), at[queue] + 1)
                why = "the queue was removed, with all that it had from there on"
                lost.append((queue, at[queue], end, why))
            else:
                waiting[queue] = at[queue]
                why = f"broker {queue.broker} is not registered with the name server"
                failures[queue.broker] = NoAddress(why)
        self._note_away(failures, set())
        self._losses.note(lost)
        return waiting

    async def _registered(self, layout: Layout) -> frozenset[str]:
        try:
            return await self._cluster.registered()
        except GantryError as error:
            log.warning("name servers cannot be asked which brokers there are: %s", error)
            return frozenset(layout.addresses)

    def _note_away(self, failures: dict[str, GantryError], well: set[str]) -> None:
        """Remember since when brokers are away; fail when one is for too long."""
        now = time.monotonic()
        for broker in well:
            if self._since.pop(broker, None) is not None:
                log.warning("broker %s is back", broker)
        for broker, error in failures.items():
            if broker not in self._since:
                log.warning("broker %s is away, its queues wait: %s", broker, error)
                self._since[broker] = now
            elapsed = now - self._since[broker]
            if elapsed > self._source.broker_timeout or not error.retriable:
                raise away({broker: error}, elapsed)

    # --- which queues there are ------------------------------------------------------------------

    def know(self) -> None:
        """Look where brokers are, if that was not done yet."""
        if self._layout is None:
            self._cluster.run(self._look())

    async def _current(self) -> Layout:
        age = time.monotonic() - self._looked_at
        if self._layout is None or age >= self._source.topic_refresh or self._since:
            return await self._look()
        return self._layout

    async def _look(self) -> Layout:
        try:
            layout = await self._cluster.layout(self._wanted)
        except GantryError as error:
            if self._layout is None:
                raise
            log.warning("routes cannot be looked up, what is known stays: %s", error)
            layout = self._layout
        self._layout, self._looked_at = layout, time.monotonic()
        return layout

    # --- waiting ----------------------------------------------------------------------------------

    def wait(self, at: Positions, seconds: float) -> None:
        """Return when something arrives after those positions, or the time is over."""
        self._cluster.run(self._wait(at, seconds))

    def sleep(self, seconds: float) -> None:
        """Let that much time pass, and the connections go on meanwhile."""
        self._cluster.run(asyncio.sleep(seconds))

    async def _wait(self, at: Positions, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            tasks = self._poll(at)
            if not tasks:
                await asyncio.sleep(left)
                return
            done, _ = await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if any(_brought(task) for task in done):
                return
            if any(task.exception() for task in done):
                await asyncio.sleep(max(0.0, min(0.1, deadline - time.monotonic())))

    def _poll(self, at: Positions) -> list[asyncio.Task[PullReply]]:
        """Have a pull left with every queue, or with some of very many."""
        for queue, (offset, task) in tuple(self._polls.items()):
            if task.done() or at.get(queue) != offset:
                if task.done() and not task.cancelled():
                    task.exception()  # seen
                task.cancel()
                del self._polls[queue]
        for queue, offset in at.items():
            if len(self._polls) >= _POLLED:
                break
            if queue not in self._polls and queue.broker not in self._since:
                self._polls[queue] = offset, asyncio.create_task(self._held(queue, offset))
        return [task for _, task in self._polls.values()]

    async def _held(self, queue: MessageQueue, offset: int) -> PullReply:
        known = self._cluster.addresses(queue.broker)
        if not known:
            raise NoAddress(f"no route has an address of broker {queue.broker}")
        request = self._pull(queue, offset, 1, PullFlag.SUSPEND | PullFlag.SUBSCRIPTION)
        timeout = _HELD_MS / 1000 + 10
        return await self._cluster.runtime.call(known[min(known)], request, timeout=timeout)

    def _pull(self, queue: MessageQueue, offset: int, count: int, flags: int) -> PullMessage:
        wire = self._cluster.wire(queue)
        return PullMessage(
            group=self._group,
            topic=wire.topic,
            queue_id=wire.queue_id,
            offset=offset,
            max_messages=count,
            max_bytes=_SAMPLE_BYTES,
            flags=int(flags),
            wait_ms=_HELD_MS,
            subscription="*",
            expression_type="TAG",
        )

    async def _forget_polls(self) -> None:
        tasks = [task for _, task in self._polls.values()]
        self._polls.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- sizes ------------------------------------------------------------------------------------

    def message_size(self, starts: Positions) -> float | None:
        """How many bytes the next messages take, on the average of a few of them."""
        return self._cluster.run(self._message_size(starts))

    async def _message_size(self, starts: Positions) -> float | None:
        replies = await asyncio.gather(
            *(self._sample(queue, offset) for queue, offset in list(starts.items())[:_SAMPLED]),
            return_exceptions=True,
        )
        size = count = 0
        for reply in replies:
            if isinstance(reply, PullReply) and reply.status is PullStatus.FOUND:
                size += len(reply.body)
                count += len(decode(reply.body))
        return size / count if count else None

    async def _sample(self, queue: MessageQueue, offset: int) -> PullReply:
        known = self._cluster.addresses(queue.broker)
        request = self._pull(queue, offset, _SAMPLE, PullFlag.SUBSCRIPTION)
        return await self._cluster.runtime.call(known[min(known)], request, timeout=3.0)


def _brought(task: asyncio.Task[Any]) -> bool:
    """Whether a held pull was answered by anything but "nothing new"."""
    if task.cancelled() or task.exception() is not None:
        return False
    return task.result().status is not PullStatus.NOTHING_NEW
