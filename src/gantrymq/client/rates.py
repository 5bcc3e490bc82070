"""How much a consumer reads and handles, by topic: totals, and rates over the last minute.

RocketMQ: ConsumerStatsManager.
"""

from __future__ import annotations

from collections import deque
from dataclasses import astuple, dataclass, field
from typing import Final

from gantrymq.protocol.running import ConsumeStatus

WINDOW: Final = 60.0


@dataclass(slots=True)
class Totals:
    """What has come together since the start."""

    pulls: int = 0
    pull_seconds: float = 0.0
    pulled: int = 0
    handled: int = 0
    failed: int = 0
    seconds: float = 0.0
    """Time that handlers took."""


@dataclass(slots=True)
class Rates:
    """The totals of one topic, and what they were at times within the last minute."""

    now: Totals = field(default_factory=Totals)
    _samples: deque[tuple[float, Totals]] = field(default_factory=deque)

    @classmethod
    def since(cls, at: float) -> Rates:
        """Nothing yet."""
        return cls(_samples=deque([(at, Totals())]))

    def sample(self, at: float) -> None:
        """Remember the totals as they are."""
        self._samples.append((at, Totals(*astuple(self.now))))
        while len(self._samples) > 1 and self._samples[1][0] <= at - WINDOW:
            self._samples.popleft()

    def status(self, at: float) -> ConsumeStatus:
        """Rates over the time since the oldest sample."""
        began, old = self._samples[0]
        seconds, now = max(at - began, 1.0), self.now
        pulls, handled = now.pulls - old.pulls, now.handled - old.handled
        failed = now.failed - old.failed
        return ConsumeStatus(
            pull_ms=1000 * (now.pull_seconds - old.pull_seconds) / max(pulls, 1),
            pull_tps=(now.pulled - old.pulled) / seconds,
            consume_ms=1000 * (now.seconds - old.seconds) / max(handled + failed, 1),
            consumed_tps=handled / seconds,
            failed_tps=failed / seconds,
            failed=failed,
        )
