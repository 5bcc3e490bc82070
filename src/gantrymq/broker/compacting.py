"""Compacting topics, now and then: a queue at a time, without keeping others from their turn.

Choosing what stays goes a stretch at a time on the loop, because queues are read there; the new
file is written by a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from gantrymq.broker.attributes import CLEANUP_POLICY, COMPACTION
from gantrymq.broker.config import CompactionConfig
from gantrymq.errors import StoreError
from gantrymq.store.steps import Steps

if TYPE_CHECKING:
    from gantrymq.broker.topics import Topics
    from gantrymq.store.compaction import Plan
    from gantrymq.store.queue_table import Slot
    from gantrymq.store.store import Store

log = logging.getLogger("gantrymq.broker")

COMPACTION_TICK: Final = 1.0


class Compacting:
    """Has compacted topics become smaller. RocketMQ: CompactionService."""

    def __init__(
        self,
        settings: CompactionConfig,
        *,
        store: Store,
        topics: Topics,
        clock_ms: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self.settings = settings
        self._store = store
        self._topics = topics
        self._clock_ms = clock_ms
        self._now = now
        self._next = now() + settings.interval
        self._task: asyncio.Task[int] | None = None
        self._closing = False
        topics.watch(self._changed)

    def load(self) -> None:
        """See which topics are to be compacted."""
        self._changed(self._topics.table)

    def tick(self) -> None:
        """Begin a round if it is time, and none is under way; on the running loop."""
        if self._task is None and self._now() >= self._next:
            self._task = asyncio.create_task(self.round(), name="compaction")
            self._task.add_done_callback(self._ended)

    async def close(self) -> None:
        """Return when nothing is under way any more: a file that is being written is finished."""
        self._closing = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def round(self) -> int:
        """Compact what is worth it; how many messages went."""
        gone = 0
        for slot in self._store.compaction.due(self._store.flushed_to):
            try:
                gone += await self._compact(slot)
            except (OSError, StoreError) as error:
                log.warning("%r cannot be compacted now: %s", slot, error)
        return gone

    async def _compact(self, slot: Slot) -> int:
        compaction = self._store.compaction
        before = len(compaction.queues.get((slot.topic, slot.queue_id), ()))
        oldest_ms = self._clock_ms() - round(1000 * self.settings.tombstones_kept)
        steps = compaction.plan(slot, self._store.flushed_to, oldest_ms)
        plan = await self._in_turns(steps)
        if plan is None:
            return 0
        made = await asyncio.to_thread(compaction.write, plan)
        if not compaction.install(plan, made):
            return 0
        gone = before + plan.looked_at - len(plan.survivors)
        log.info("%r is compacted up to %d: %d messages went", slot, plan.end, gone)
        return gone

    async def _in_turns(self, steps: Steps[Plan | None]) -> Plan | None:
        while not self._closing:
            try:
                next(steps)
            except StopIteration as done:
                found: Plan | None = done.value
                return found
            await asyncio.sleep(0)
        return None

    def _ended(self, task: asyncio.Task[int]) -> None:
        self._task = None
        self._next = self._now() + self.settings.interval
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("compaction failed", exc_info=error)

    def _changed(self, _names: Collection[str]) -> None:
        table = self._topics.table
        self._store.compaction.topics = frozenset(
            name
            for name, settings in table.items()
            if settings.attributes and settings.attributes.get(CLEANUP_POLICY) == COMPACTION
        )
