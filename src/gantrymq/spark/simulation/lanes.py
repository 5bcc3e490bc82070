"""Many producers at once, each choosing queues by the rules of `gantrymq.rules`, as columns.

A *lane* is one thread of control of one producer. All lanes of a `Lanes` send to topics of one
shape, that is so many brokers with so many queues each, and every step chooses one queue for each
lane. What `rules.queue_choice` and `rules.fault_avoidance` do for one producer with a loop over
queues and a table of faults, is here a handful of operations on arrays with a row for each lane
and a column for each broker; a test holds the two equal, choice by choice.

Two facts make it short. A topic's queues lie broker by broker, so the first queue of a usable
broker, from some queue on, is either that very queue or the first one of the next usable broker.
And whether a broker is usable never depends on the queue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gantrymq.rules.fault_avoidance import BACK_OFF, BackOff, FaultVersion
from gantrymq.wire.javahash import INT_MAX, INT_MIN

Whole: TypeAlias = NDArray[np.int64]
Real: TypeAlias = NDArray[np.float64]
Truth: TypeAlias = NDArray[np.bool_]

NONE: Final = -1
"""No broker, where a broker's number is wanted."""
_NEVER: Final = -np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A way of choosing queues, and what goes with it."""

    name: str
    version: FaultVersion
    skips_failed: bool = True
    """Whether an attempt keeps off the broker of the attempt before it."""
    keeps_away: bool = False
    """Whether slow and faulty brokers are left alone: RocketMQ's sendLatencyFaultEnable."""
    probes: bool = False
    """Whether brokers that did not answer are asked again: RocketMQ's startDetectorEnable."""


STRATEGIES: Final = (
    Strategy(name="round robin", version="5.x", skips_failed=False),
    Strategy(name="skip the last", version="5.x"),
    Strategy(name="latency fault of 4.x", version="4.x", keeps_away=True),
    Strategy(name="latency fault of 5.x", version="5.x", keeps_away=True),
    Strategy(name="5.x with detector", version="5.x", keeps_away=True, probes=True),
)


def positions(turns: Whole, size: int | Whole) -> Whole:
    """The places in lists of `size` that these turns take. The plain form: `turns.position`."""
    found: Whole = np.where(turns > INT_MIN, np.abs(turns) % size, 0)
    return found


class Lanes:
    """Producers whose topics have one shape: `brokers` brokers with `queues` queues each."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        brokers: int,
        queues: int,
        turns: Whole,
        picks: Whole,
        chance: np.random.Generator,
        probe_interval: float = 2.0,
    ) -> None:
        """`turns` and `picks` are the counters to begin with, one of each for every lane."""
        lanes = len(turns)
        self.strategy: Final = strategy
        self.brokers: Final = brokers
        self.queues: Final = queues
        self.size: Final = brokers * queues
        self.turns = turns.astype(np.int64)
        self.picks = picks.astype(np.int64)
        self.reported: Truth = np.zeros((lanes, brokers), bool)
        self.latency: Real = np.zeros((lanes, brokers))
        self.available_from: Real = np.full((lanes, brokers), _NEVER)
        self.reachable: Truth = np.ones((lanes, brokers), bool)
        self.probe_from: Real = np.full((lanes, brokers), _NEVER)
        self._rows: Whole = np.arange(lanes)
        self._columns: Whole = np.arange(brokers)
        self._chance = chance
        self._back_off: Final = BACK_OFF[strategy.version]
        self._probe_interval = probe_interval

    def __len__(self) -> int:
        return len(self.turns)

    # --- choosing -------------------------------------------------------------------------------

    def choose(
        self, now: Real, rows: Whole | None = None, *, failed: Whole | None = None
    ) -> tuple[Whole, Whole]:
        """Broker and queue id for an attempt of each of `rows`, of all lanes if not said.

        `failed` holds the brokers of the attempts before; without it these are first attempts.
        """
        rows = self._rows if rows is None else rows
        strategy = self.strategy
        if not strategy.keeps_away:
            if failed is None or not strategy.skips_failed:
                return self._split(self._next(rows))
            return self._split(self._elsewhere(rows, failed))
        if strategy.version == "4.x":
            return self._as_4x(now, rows, failed)
        return self._split(self._as_5x(now, rows, failed))

    def _split(self, places: Whole) -> tuple[Whole, Whole]:
        return places // self.queues, places % self.queues

    def _take_turns(self, rows: Whole, count: int | Whole = 1) -> Whole:
        """The turns that begin now; the next ones come `count` later, as a Java int does."""
        turns = self.turns[rows]
        later = turns + count
        self.turns[rows] = np.where(later > INT_MAX, later - (1 << 32), later)
        return turns

    def _next(self, rows: Whole) -> Whole:
        return positions(self._take_turns(rows), self.size)

    def _walk(self, first: Whole, usable: Truth) -> tuple[Truth, Whole, Whole]:
        """The first queue of a usable broker from `first` on: is there one, where, how far.

        RocketMQ: the loops of MQFaultStrategy and TopicPublishInfo.
        """
        at = first // self.queues
        ahead = (self._columns - at[:, None]) % self.brokers
        ahead[~usable] = self.brokers
        nearest = ahead.argmin(axis=1)
        steps = ahead[np.arange(len(at)), nearest]
        places = np.where(steps == 0, first, nearest * self.queues)
        return steps < self.brokers, places, (places - first) % self.size

    def _elsewhere(self, rows: Whole, failed: Whole) -> Whole:
        usable = self._columns != failed[:, None]
        if self.strategy.version == "4.x":
            first = positions(self._take_turns(rows), self.size)
            found, places, _ = self._walk(first, usable)
        else:
            found, places = self._walk_by_turns(rows, usable)
        return self._or_next(rows, found, places)

    def _walk_by_turns(self, rows: Whole, usable: Truth) -> tuple[Truth, Whole]:
        """The same walk, where each queue that is looked at takes a turn."""
        first = positions(self.turns[rows], self.size)
        found, places, steps = self._walk(first, usable)
        self._take_turns(rows, np.where(found, steps + 1, self.size))
        return found, places

    def _or_next(self, rows: Whole, found: Truth, places: Whole) -> Whole:
        """Round robin where nothing was found."""
        missing = np.flatnonzero(~found)
        if len(missing):
            places[missing] = self._next(rows[missing])
        return places

    def _as_5x(self, now: Real, rows: Whole, failed: Whole | None) -> Whole:
        allowed = np.ones((len(rows), self.brokers), bool)
        if failed is not None:
            self.turns[rows] = self._chance.integers(INT_MAX, size=len(rows))
            allowed = self._columns != failed[:, None]
        available = now[:, None] >= self.available_from[rows]
        found, places = self._walk_by_turns(rows, available & allowed)
        missing = np.flatnonzero(~found)
        if len(missing):
            usable = self.reachable[rows[missing]] & allowed[missing]
            found[missing], places[missing] = self._walk_by_turns(rows[missing], usable)
        return self._or_next(rows, found, places)

    def _as_4x(self, now: Real, rows: Whole, failed: Whole | None) -> tuple[Whole, Whole]:
        usable = now[:, None] >= self.available_from[rows]
        if failed is not None:
            usable &= self._columns == failed[:, None]
        first = positions(self._take_turns(rows), self.size)
        found, places, _ = self._walk(first, usable)
        brokers, ids = self._split(places)
        missing = np.flatnonzero(~found)
        if len(missing):
            brokers[missing], ids[missing] = self._least_bad(now[missing], rows[missing])
        return brokers, ids

    def _least_bad(self, now: Real, rows: Whole) -> tuple[Whole, Whole]:
        """The plain form: `FaultAvoidance.pick_one_at_least` and what follows it."""
        reported = self.reported[rows]
        counts = reported.sum(axis=1)
        order = np.lexsort(
            (
                self._chance.random(reported.shape),
                self.available_from[rows],
                self.latency[rows],
                now[:, None] < self.available_from[rows],
                ~reported,
            ),
            axis=1,
        )
        several = counts > 1
        picks = self.picks[rows]
        self.picks[rows] = picks + several
        rank = np.where(several, positions(picks, np.maximum(counts // 2, 1)), 0)
        brokers = order[np.arange(len(rows)), rank]
        places = self._next(rows)
        known = counts > 0
        ids = places % self.queues
        if known.any():
            ids[known] = positions(self._take_turns(rows[known]), self.queues)
        return np.where(known, brokers, places // self.queues), ids

    # --- what became of it ----------------------------------------------------------------------

    def report(
        self, now: Real, rows: Whole, brokers: Whole, elapsed: Real, *, silent: Truth
    ) -> None:
        """Attempts of `rows` ended at `now`; those that are `silent` were never answered."""
        if not self.strategy.keeps_away:
            return
        back_off = self._back_off
        counted = np.where(silent, back_off.failure_latency, elapsed)
        pause = pauses(back_off, counted)
        before = self.available_from[rows, brokers]
        until = now + pause
        if back_off.only_longer:
            until = np.where((pause == 0) | (until < before), before, until)
        self.reported[rows, brokers] = True
        self.latency[rows, brokers] = elapsed
        self.available_from[rows, brokers] = until
        self.reachable[rows, brokers] = ~silent if self.strategy.probes else True

    def due_for_probe(self, now: Real, rows: Whole) -> tuple[Whole, Whole]:
        """Rows and brokers to probe in a round of the detector of `rows`."""
        due = self.reported[rows] & (now[:, None] >= self.probe_from[rows])
        which, brokers = np.nonzero(due)
        found = rows[which]
        self.probe_from[found, brokers] = now[which] + self._probe_interval
        return found, brokers

    def found_reachable(self, rows: Whole, brokers: Whole) -> None:
        """Those probes were answered."""
        self.reachable[rows, brokers] = True


def pauses(back_off: BackOff, latencies: Real) -> Real:
    """How long brokers that took so long are left alone. The plain form: `BackOff.pause`."""
    table = np.array((0.0, *back_off.pauses))
    found: Real = table[np.searchsorted(back_off.latencies, latencies, side="right")]
    return found
