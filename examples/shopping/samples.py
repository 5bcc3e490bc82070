"""How things stand, second by second: for the page while it goes on, for the report at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gantrymq as gantry
from shopping.books import DEAD, RETRIED, Stored
from shopping.pipelines import Pipelines
from shopping.servers import take_stock
from shopping.trade import MEMBERS, Shop

_RATE_OVER: Final = 5.0
_PAGE: Final = 4096
_SESSION: Final = 3
_RSS: Final = 21
"""Where a process's session and its resident pages are in /proc/PID/stat, after its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One moment."""

    at: float
    """Seconds since the beginning."""
    sent: Mapping[str, int]
    consumed: Mapping[str, int]
    waiting: Mapping[str, int]
    stored: int
    """Messages in the brokers' topics, those that were given up among them."""
    retried: int
    dead: int
    owned: Mapping[str, list[str] | None]
    files: int
    file_bytes: int
    memory: int
    """Bytes of this process, which is the brokers, the name server and all clients."""
    spark_memory: int


class History:
    """Takes samples and keeps them."""

    def __init__(self, shop: Shop, pipelines: Pipelines | None, data: Path) -> None:
        self.shop = shop
        self.pipelines = pipelines
        self.data = data
        self.began = time.monotonic()
        self.samples: list[Sample] = []

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self.began

    async def take(self, admin: gantry.AsyncAdmin) -> Sample:
        """One more."""
        stored = await take_stock(admin)
        sample = self._look(stored)
        self.samples.append(sample)
        return sample

    def _look(self, stored: Stored) -> Sample:
        books = self.shop.books
        session = self.pipelines.session_id if self.pipelines else None
        sizes = [
            path.stat().st_size for path in self.data.glob("spark/archive/topic=*/**/*.parquet")
        ]
        return Sample(
            at=self.seconds,
            sent=books.sent,
            consumed=books.consumed,
            waiting=stored.waiting,
            stored=stored.archivable,
            retried=stored.messages[RETRIED],
            dead=stored.messages[DEAD],
            owned={name: self.shop.owned(name) for name in MEMBERS},
            files=len(sizes),
            file_bytes=sum(sizes),
            memory=own_memory(),
            spark_memory=memory_of_session(session) if session else 0,
        )

    def rates(self, now: Sample) -> dict[str, tuple[float, float]]:
        """Sent and consumed a second lately, by topic."""
        before = next((one for one in self.samples if now.at - one.at <= _RATE_OVER), now)
        span = now.at - before.at
        if span <= 0:
            return dict.fromkeys(now.sent, (0.0, 0.0))
        return {
            topic: (
                (now.sent[topic] - before.sent[topic]) / span,
                (now.consumed[topic] - before.consumed[topic]) / span,
            )
            for topic in now.sent
        }


def own_memory() -> int:
    """Resident bytes of this process; the most there ever were where the system has no /proc."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def memory_of_session(session: int) -> int:
    """Resident bytes of all processes of a session; 0 where the system has no /proc."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(words[_SESSION]) == session:
            total += int(words[_RSS]) * _PAGE
    return total
