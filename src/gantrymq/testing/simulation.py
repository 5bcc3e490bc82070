"""Handlers under everything that at-least-once delivery may do to them, thousands of times over.

```python
def booking_is_done_once(sim):
    ledger = {}

    def book(message):
        ledger[message.keys[0]] = json.loads(message.body)["amount"]

    for number in range(10):
        sim.publish("orders", b'{"amount": 1}', keys=f"order-{number}")
    sim.consume(book)
    assert sum(ledger.values()) == 10


simulate(booking_is_done_once, runs=500)
```

What is drawn from the seed of a run: which message comes next; whether one that was handled comes
again, since the consumer crashed before it said so, or since another member got it, too; how often
that happens; where a handler that awaits is cut off in the middle; how far the clocks jump. A
handler that raises gets its message again, with one retry more, until it is a dead letter. Messages
of one queue that are consumed in order stay in order.

Nothing here takes real time or a network. A run that fails says its seed, and
`simulate(scenario, seed=...)` or `GANTRY_SEED=...` repeats exactly that one.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any, Final, TypeAlias
from zlib import crc32

from gantrymq.model import ReceivedMessage
from gantrymq.testing.clock import run_virtual
from gantrymq.wire import properties as names
from gantrymq.wire.record import StoredMessage

Scenario: TypeAlias = "Callable[[Simulation], object]"
Handler: TypeAlias = Callable[[ReceivedMessage], object]

SEED: Final = "GANTRY_SEED"
_START_MS: Final = 1_800_000_000_000
_MOST_RETRIES: Final = 16
_LONGEST_STEP: Final = 20
"""Turns of the loop that a handler which awaits is given before it may be cut off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """How likely each thing is, each time that it could happen."""

    crash: float = 0.1
    """The process ends after a message was handled and before it was acknowledged."""
    cut_off: float = 0.1
    """The process ends while a handler that awaits is at work."""
    duplicate: float = 0.1
    """A message that was acknowledged comes once more."""
    clock_jump: float = 0.05
    """The clock goes ahead or back by up to an hour."""


USUAL: Final = Faults()
NONE: Final = Faults(crash=0, cut_off=0, duplicate=0, clock_jump=0)


class _CutOff(BaseException):
    """The process of a handler ended here."""


@dataclass(slots=True)
class _Delivery:
    message: StoredMessage
    retries: int = 0
    again: bool = False
    """Whether it was acknowledged before, so that nothing follows from this one."""


class Simulation:
    """One run: the messages that there are, and how they reach a handler."""

    def __init__(self, seed: int, faults: Faults = USUAL) -> None:
        self.seed: Final = seed
        self.random: Final = Random(seed)
        """For what the scenario itself wants to draw."""
        self.dead_letters: list[ReceivedMessage] = []
        """What failed too often."""
        self.deliveries = 0
        """How often a handler was called."""
        self.crashes = 0
        self._faults = faults
        self._now_ms = _START_MS
        self._queues: dict[tuple[str, int], list[StoredMessage]] = defaultdict(list)
        self._done: dict[str, set[tuple[str, int, int]]] = defaultdict(set)

    def now(self) -> datetime:
        """What time it is there; it may go back."""
        return datetime.fromtimestamp(self._now_ms / 1000, UTC)

    def publish(
        self, topic: str, body: bytes, *, keys: str | tuple[str, ...] = (), tag: str | None = None,
        order_key: str | None = None, queues: int = 4, **properties: str,
    ) -> None:  # fmt: skip
        """Store a message; those with one order key are in one queue."""
        found = dict(properties)
        found[names.UNIQUE_KEY] = f"{self.random.getrandbits(128):032X}"
        if keys:
            found[names.KEYS] = keys if isinstance(keys, str) else " ".join(keys)
        if tag is not None:
            found[names.TAGS] = tag
        number = self.random.randrange(queues)
        if order_key is not None:
            number = crc32(order_key.encode()) % queues
        queue = self._queues[topic, number]
        stored = StoredMessage(
            topic=topic, body=body, property_bytes=names.join(found).encode(), queue_id=number,
            queue_offset=len(queue), born_ms=self._now_ms, store_ms=self._now_ms,
        )  # fmt: skip
        queue.append(stored)
        self._now_ms += self.random.randrange(1000)

    def consume(
        self,
        handler: Handler,
        *topics: str,
        group: str = "group",
        ordered: bool = False,
        max_retries: int = _MOST_RETRIES,
        restart: Callable[[], Handler] | None = None,
    ) -> None:
        """Have a group deal with all messages of some topics (all, if none is named).

        After each crash `restart` is called, for what a new process has to do, and gives the
        handler of that process. It returns when every message is acknowledged or a dead letter.
        """
        given = _Given(handler, restart, max_retries, self._done[group])
        rows = self._rows(topics, given.done, ordered=ordered)
        run_virtual(self._deliver(rows, given, ordered=ordered))

    # --- inside ---------------------------------------------------------------------------------

    def _rows(
        self, topics: tuple[str, ...], done: set[tuple[str, int, int]], *, ordered: bool
    ) -> list[deque[_Delivery]]:
        """What is to be delivered: a row for each queue in order, or for each message."""
        rows: list[deque[_Delivery]] = []
        for (topic, number), queue in sorted(self._queues.items()):
            if topics and topic not in topics:
                continue
            left = [
                _Delivery(one) for one in queue if (topic, number, one.queue_offset) not in done
            ]
            rows += [deque(left)] if ordered else [deque([one]) for one in left]
        return [row for row in rows if row]

    async def _deliver(self, rows: list[deque[_Delivery]], given: _Given, *, ordered: bool) -> None:
        while rows:
            row = self.random.choice(rows)
            await self._deliver_one(row, given, ordered=ordered)
            if not row:
                rows.remove(row)
            self._let_time_pass()

    async def _deliver_one(self, row: deque[_Delivery], given: _Given, *, ordered: bool) -> None:
        delivery = row[0]
        try:
            await self._hand_over(delivery, given)
        except _CutOff:
            self._crash(given)
            return
        except Exception:
            self._failed(row, given)
            return
        if self._happens(self._faults.crash):
            self._crash(given)
            return
        row.popleft()
        stored = delivery.message
        given.done.add((stored.topic, stored.queue_id, stored.queue_offset))
        if not ordered and self._happens(self._faults.duplicate):
            row.append(_Delivery(stored, delivery.retries, again=True))

    def _failed(self, row: deque[_Delivery], given: _Given) -> None:
        delivery = row[0]
        delivery.retries += 1
        if delivery.again or delivery.retries > given.max_retries:
            row.popleft()
            stored = delivery.message
            if not delivery.again:
                self.dead_letters.append(self._received(delivery))
                given.done.add((stored.topic, stored.queue_id, stored.queue_offset))

    def _crash(self, given: _Given) -> None:
        self.crashes += 1
        if given.restart is not None:
            given.handler = given.restart()

    async def _hand_over(self, delivery: _Delivery, given: _Given) -> None:
        self.deliveries += 1
        outcome = given.handler(self._received(delivery))
        if inspect.isawaitable(outcome):
            await self._await(outcome)

    async def _await(self, work: Awaitable[object]) -> None:
        """Let a handler await, and cut it off in the middle if that is drawn."""
        task = asyncio.ensure_future(_awaited(work))
        if self._happens(self._faults.cut_off):
            for _ in range(self.random.randrange(_LONGEST_STEP)):
                await asyncio.sleep(0)
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                raise _CutOff
        await task

    def _received(self, delivery: _Delivery) -> ReceivedMessage:
        stored = delivery.message
        stored.reconsume_times = delivery.retries
        return ReceivedMessage(stored, "broker-a")

    def _let_time_pass(self) -> None:
        self._now_ms += self.random.randrange(100)
        if self._happens(self._faults.clock_jump):
            self._now_ms += self.random.randint(-3_600_000, 3_600_000)

    def _happens(self, chance: float) -> bool:
        return self.random.random() < chance


@dataclass(slots=True)
class _Given:
    """Who consumes, and what he has done."""

    handler: Handler
    restart: Callable[[], Handler] | None
    max_retries: int
    done: set[tuple[str, int, int]] = field(repr=False)


async def _awaited(work: Awaitable[object]) -> object:
    return await work


def simulate(
    scenario: Scenario,
    *,
    runs: int = 200,
    seed: int | None = None,
    faults: Faults = USUAL,
) -> None:
    """Run `scenario` with so many seeds, or with one; a failure says which one it was."""
    for one in _seeds(runs, seed):
        try:
            scenario(Simulation(one, faults))
        except Exception as error:
            error.add_note(
                f"with seed {one}: simulate({_name(scenario)}, seed={one}) repeats it, and so does"
                f" {SEED}={one}"
            )
            raise


def _seeds(runs: int, seed: int | None) -> Iterator[int]:
    if seed is not None:
        return iter((seed,))
    if text := os.environ.get(SEED, ""):
        return iter((int(text),))
    return iter(range(runs))


def _name(scenario: Any) -> str:
    return getattr(scenario, "__name__", repr(scenario))
