"""Refusing messages at once when they would have to wait for too long.

Two things are looked at, many times a second:

- **The loop.** A look that comes late says how long everything else has waited, too. One or two
  late ones are a hiccup, of the machine perhaps; three in a row mean that more is asked of the
  broker than it can do.
- **The disk.** Where producers wait for it: how many of them, and for how long the disk has not
  finished anything.

While either is over its limit `refusal` says so, with the numbers, and sends are answered with it
right away. A producer can then go to another broker, where a time-out would leave it in doubt.

RocketMQ: BrokerFastFailure.
"""

from __future__ import annotations

from typing import Final, Protocol

from gantrymq.broker.config import FlowConfig

INTERVAL: Final = 0.05
"""Seconds between looks."""
LATE_LOOKS: Final = 3
"""So many in a row are no hiccup any more."""


class Progress(Protocol):
    """What is asked of the store."""

    @property
    def waiting(self) -> int:
        """How many wait for the disk."""
        ...

    @property
    def flushed_to(self) -> int:
        """How far the disk has come."""
        ...


class FlowControl:
    """Whether messages are taken now."""

    __slots__ = (
        "_due",
        "_flushed_to",
        "_late_looks",
        "_store",
        "_stuck_since",
        "refusal",
        "settings",
    )

    def __init__(self, settings: FlowConfig, *, store: Progress) -> None:
        self.settings = settings
        self.refusal: str | None = None
        """Why no message is taken now, or None if messages are."""
        self._store = store
        self._due: float | None = None
        self._late_looks = 0
        self._flushed_to = 0
        self._stuck_since: float | None = None

    def look(self, now: float) -> None:
        """See how things are; to be called every `INTERVAL` seconds of a clock that reads `now`."""
        late = self._late(now)
        stuck = self._stuck(now)
        self.refusal = (late or stuck) if self.settings.enabled else None

    def _late(self, now: float) -> str | None:
        lag = 0.0 if self._due is None else now - self._due
        self._due = now + INTERVAL
        self._late_looks = self._late_looks + 1 if lag > self.settings.loop_lag else 0
        if self._late_looks < LATE_LOOKS:
            return None
        most = self.settings.loop_lag * 1000
        return f"requests wait for {lag * 1000:.0f}ms, {most:.0f} are the most"

    def _stuck(self, now: float) -> str | None:
        store, settings = self._store, self.settings
        waiting, flushed_to = store.waiting, store.flushed_to
        if not waiting or flushed_to != self._flushed_to or self._stuck_since is None:
            self._flushed_to = flushed_to
            self._stuck_since = now if waiting else None
        if waiting > settings.waiting_sends:
            return f"{waiting} messages wait for the disk, {settings.waiting_sends} are the most"
        if self._stuck_since is not None and now - self._stuck_since > settings.disk_lag:
            seconds = now - self._stuck_since
            return (
                f"the disk has finished nothing for {seconds:.1f}s, {waiting} messages wait for it"
            )
        return None
