"""What goes through the broker, counted: per topic, queue and group, over a minute, an hour, a day.

**Counting** has to cost next to nothing, so a message is counted in one place only: with its queue
(and its group, when it is read). Once a second what is new there is added to the sums that are made
of it: of the topic, of the group, of the broker.

**Windows.** Every sum is sampled at three paces, and a window is the difference between its last
sample and its first:

```
 minute   every 10 s      7 samples at most
 hour     every 10 min    7
 day      every hour     25
```

A window in which nothing happened keeps one sample. What nothing happened to for a day is
forgotten.

RocketMQ: BrokerStatsManager, StatsItem, StoreStatsService, BrokerStats.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from gantrymq.protocol.names import is_system_topic
from gantrymq.protocol.statistics import StatsItem
from gantrymq.wire.record import StoredMessage

MESSAGES: Final = 2
SIZE: Final = 3
"""Which number of a sample a statistic is about."""
_TIMES: Final = 1
_WIDTH: Final = 4
"""Numbers of a sample: ms, times, messages, size."""

_MINUTE: Final = (10_000, 7)
_HOUR: Final = (600_000, 7)
_DAY: Final = (3_600_000, 25)
COUNT_INTERVAL: Final = 1.0
_SECONDS: Final = 601
_FORGET: Final = 1
"""Hours."""

Samples: TypeAlias = "array[int]"


class Sum:
    """Numbers that only grow, with their windows."""

    __slots__ = ("day", "hour", "idle", "messages", "minute", "size", "times")

    def __init__(self) -> None:
        self.times = 0
        self.messages = 0
        self.size = 0
        self.idle = 0
        """Hours in which nothing happened."""
        self.minute: Samples = array("q")
        self.hour: Samples = array("q")
        self.day: Samples = array("q")

    def add(self, times: int, messages: int, size: int) -> None:
        """Count."""
        self.times += times
        self.messages += messages
        self.size += size

    def sample(self, samples: Samples, pace: tuple[int, int], now: int) -> None:
        """Note the numbers as they are, in one of the windows."""
        step, most = pace
        if not samples:
            samples.extend((now - step, 0, 0, 0))
        if samples[-_WIDTH + _TIMES] == self.times and len(samples) == _WIDTH:
            return
        if len(samples) == _WIDTH:
            samples[0] = now - step
        samples.extend((now, self.times, self.messages, self.size))
        del samples[: -most * _WIDTH]
        if samples[_TIMES] == self.times:
            del samples[:-_WIDTH]

    def sample_minute(self, now: int) -> None:
        """To be called every ten seconds."""
        self.sample(self.minute, _MINUTE, now)

    def sample_hour(self, now: int) -> None:
        """To be called every ten minutes."""
        self.sample(self.hour, _HOUR, now)

    def sample_day(self, now: int) -> None:
        """To be called every hour."""
        self.sample(self.day, _DAY, now)
        self.idle = self.idle + 1 if len(self.day) == _WIDTH else 0


def item(samples: Samples, column: int) -> StatsItem:
    """What happened in a window. RocketMQ: StatsSnapshot."""
    if len(samples) <= _WIDTH:
        return StatsItem()
    total = samples[column - _WIDTH] - samples[column]
    times = samples[_TIMES - _WIDTH] - samples[_TIMES]
    elapsed = samples[-_WIDTH] - samples[0]
    return StatsItem(
        sum=total,
        tps=total * 1000 / elapsed if elapsed > 0 else 0.0,
        average=total / times if times else 0.0,
    )


class Tally(Sum):
    """What is counted where it happens, and how much of it was added to other sums."""

    __slots__ = ("added_messages", "added_size", "added_times")

    def __init__(self) -> None:
        super().__init__()
        self.added_times = self.added_messages = self.added_size = 0

    def fresh(self) -> tuple[int, int, int]:
        """What has to be added now: times, messages, size."""
        found = (
            self.times - self.added_times,
            self.messages - self.added_messages,
            self.size - self.added_size,
        )
        self.added_times, self.added_messages = self.times, self.messages
        self.added_size = self.size
        return found


class Totals(NamedTuple):
    """The broker's own sums at some time."""

    at: float
    puts: int
    """Messages that were stored."""
    put_size: int
    gets: int
    """Messages that were handed out."""
    user_puts: int
    user_gets: int
    """The same without the topics that are the system's own."""
    found: int
    """Pulls that found something."""
    missed: int
    """Pulls that found nothing."""

    @property
    def pulls(self) -> int:
        """All pulls."""
        return self.found + self.missed


class Counts:
    """All that is counted. The sums are by the names and keys that RocketMQ's tools ask for."""

    def __init__(
        self,
        *,
        cluster: str,
        now: Callable[[], float],
        clock_ms: Callable[[], int],
        day: Callable[[int], object] = lambda ms: time.localtime(ms / 1000)[:3],
    ) -> None:
        """`day` tells apart the days, local time, that wall clock times in ms are in."""
        self.cluster = cluster
        self.missed = 0
        """Pulls that found nothing."""
        self.failed_puts = 0
        """Messages that were to be stored and were not."""
        self._now = now
        self._clock_ms = clock_ms
        self._day = day
        self._today = day(clock_ms())
        self._puts: dict[tuple[str, int], Tally] = {}
        self._gets: dict[tuple[str, int, str], Tally] = {}
        self._sums: dict[tuple[str, str], Sum] = {}
        self._broker_puts = self._sum("BROKER_PUT", cluster)
        self._broker_gets = self._sum("BROKER_GET", cluster)
        self._user_puts = self._sum("BROKER_PUT_WITHOUT_SYSTEM_TOPIC", cluster)
        self._user_gets = self._sum("BROKER_GET_WITHOUT_SYSTEM_TOPIC", cluster)
        self._lasting: Final = (
            self._broker_puts,
            self._broker_gets,
            self._user_puts,
            self._user_gets,
        )
        """Sums that are kept however long nothing happens."""
        self._seconds: deque[Totals] = deque(maxlen=_SECONDS)
        self._ticks = 0
        start = self._totals()
        self.this_morning = self.yesterday_morning = start

    # --- where it happens -----------------------------------------------------------------------

    def stored(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        """Messages were stored, in one go."""
        tally = self._puts.get((topic, queue_id))
        if tally is None:
            tally = self._puts[topic, queue_id] = Tally()
        tally.times += 1
        tally.messages += messages
        tally.size += size

    def delivered(self, message: StoredMessage) -> None:
        """A delayed message went on to its own queue."""
        self.stored(message.topic, message.queue_id, 1, message.size)

    def released(self, topic: str, queue_id: int, size: int) -> None:
        """A timed message did."""
        self.stored(topic, queue_id, 1, size)
        self._sum("TIMER_DEQUEUE", self.cluster).add(1, 1, size)

    def handed_out(self, group: str, topic: str, queue_id: int, messages: int, size: int) -> None:
        """A pull found messages."""
        tally = self._gets.get((topic, queue_id, group))
        if tally is None:
            tally = self._gets[topic, queue_id, group] = Tally()
        tally.times += 1
        tally.messages += messages
        tally.size += size

    def sent_back(self, group: str, topic: str, *, gave_up: bool) -> None:
        """A consumer of `group` sent a message back that was first sent to `topic`."""
        self._sum("SNDBCK_PUT", f"{topic}@{group}").add(1, 1, 0)
        if gave_up:
            self._sum("DLQ_PUT", f"{topic}@{group}").add(1, 1, 0)

    # --- what others ask ------------------------------------------------------------------------

    def find(self, name: str, key: str) -> tuple[Sum, int] | None:
        """The sum that RocketMQ calls so, and which of its numbers is meant."""
        for ending, column in (("_NUMS", MESSAGES), ("_SIZE", SIZE)):
            if ending in name:
                found = self._find(name.replace(ending, "", 1), key)
                return None if found is None else (found, column)
        return None

    def sums(self, name: str) -> list[tuple[str, Sum]]:
        """The sums of that name, with their keys, as they are now."""
        self._gather()
        return [(key, found) for (kind, key), found in self._sums.items() if kind == name]

    def put_tps(self, topic: str) -> float:
        """Messages stored in a topic, per second over the last minute."""
        found = self._sums.get(("TOPIC_PUT", topic))
        return 0.0 if found is None else item(found.minute, MESSAGES).tps

    @property
    def release_tps(self) -> float:
        """Timed messages that went on, per second over the last minute."""
        found = self._sums.get(("TIMER_DEQUEUE", self.cluster))
        return 0.0 if found is None else item(found.minute, MESSAGES).tps

    def get_tps(self, group: str, topic: str) -> float:
        """Messages of a topic handed out to a group, per second over the last minute."""
        found = self._sums.get(("GROUP_GET", f"{topic}@{group}"))
        return 0.0 if found is None else item(found.minute, MESSAGES).tps

    def totals(self) -> Totals:
        """The broker's sums now."""
        self._gather()
        return self._totals()

    def tps(self, field: str) -> str:
        """The rates of one of the totals over 10, 60 and 600 s, as RocketMQ writes them."""
        seconds = self._seconds
        rates = []
        for back in (10, 60, 600):
            if len(seconds) > back:
                first, last = seconds[-1 - back], seconds[-1]
                elapsed = last.at - first.at
                grown = getattr(last, field) - getattr(first, field)
                rates.append(str(grown / elapsed if elapsed > 0 else 0.0))
            else:
                rates.append("")
        return " ".join(rates)

    # --- as time goes by ------------------------------------------------------------------------

    def tick(self) -> None:
        """To be called every second."""
        self._gather()
        self._seconds.append(self._totals())
        self._ticks += 1
        now = int(self._now() * 1000)
        if self._ticks % 10 == 0:
            self._sample(lambda one: one.sample_minute(now))
            self._look_at_the_calendar()
        if self._ticks % 600 == 0:
            self._sample(lambda one: one.sample_hour(now))
        if self._ticks % 3600 == 0:
            self._sample(lambda one: one.sample_day(now))
            self._forget(lambda one: one.idle >= _FORGET)

    def drop_topic(self, topic: str) -> None:
        """Forget what was counted of a topic."""
        self._gather()
        for key in [key for key in self._puts if key[0] == topic]:
            del self._puts[key]
        for get in [get for get in self._gets if get[0] == topic]:
            del self._gets[get]
        for name, text in list(self._sums):
            if text == topic or text.startswith(f"{topic}@"):
                del self._sums[name, text]

    def drop_group(self, group: str) -> None:
        """Forget what was counted of a group."""
        self._gather()
        for get in [get for get in self._gets if get[2] == group]:
            del self._gets[get]
        for name, text in [key for key in self._sums if key[1].endswith(f"@{group}")]:
            del self._sums[name, text]

    # --- inside ---------------------------------------------------------------------------------

    def _sum(self, name: str, key: str) -> Sum:
        found = self._sums.get((name, key))
        if found is None:
            found = self._sums[name, key] = Sum()
        return found

    def _find(self, name: str, key: str) -> Sum | None:
        parts = key.split("@")
        try:
            if name == "QUEUE_PUT" and len(parts) == 2:
                return self._puts.get((parts[0], int(parts[1])))
            if name == "QUEUE_GET" and len(parts) == 3:
                return self._gets.get((parts[0], int(parts[1]), parts[2]))
        except ValueError:
            return None
        return self._sums.get((name, key))

    def _gather(self) -> None:
        """Add what is new to the sums."""
        for (topic, _), tally in self._puts.items():
            if tally.times != tally.added_times:
                fresh = tally.fresh()
                self._sum("TOPIC_PUT", topic).add(*fresh)
                self._broker_puts.add(*fresh)
                if not is_system_topic(topic):
                    self._user_puts.add(*fresh)
        for (topic, _, group), tally in self._gets.items():
            if tally.times != tally.added_times:
                fresh = tally.fresh()
                self._sum("GROUP_GET", f"{topic}@{group}").add(*fresh)
                self._broker_gets.add(*fresh)
                if not is_system_topic(topic):
                    self._user_gets.add(*fresh)

    def _totals(self) -> Totals:
        puts, gets = self._broker_puts, self._broker_gets
        return Totals(
            at=self._now(),
            puts=puts.messages,
            put_size=puts.size,
            gets=gets.messages,
            user_puts=self._user_puts.messages,
            user_gets=self._user_gets.messages,
            found=gets.times,
            missed=self.missed,
        )

    def _everything(self) -> Iterator[Sum]:
        yield from self._puts.values()
        yield from self._gets.values()
        yield from self._sums.values()

    def _sample(self, take: Callable[[Sum], None]) -> None:
        for one in self._everything():
            take(one)

    def _forget(self, is_idle: Callable[[Sum], bool]) -> None:
        for key in [key for key, one in self._puts.items() if is_idle(one)]:
            del self._puts[key]
        for get in [get for get, one in self._gets.items() if is_idle(one)]:
            del self._gets[get]
        for name in [name for name, one in self._sums.items() if is_idle(one)]:
            if self._sums[name] not in self._lasting:
                del self._sums[name]

    def _look_at_the_calendar(self) -> None:
        today = self._day(self._clock_ms())
        if today != self._today:
            self._today = today
            self.yesterday_morning, self.this_morning = self.this_morning, self._totals()
