"""The life of a producer or consumer, and what may be done when.

```
created ──start()──▶ start_failed ──everything is there──▶ running ──close()──▶ shutdown
                          └── start() raised: it stays so; make a new one
```

A service counts as failed until it has started: whoever looks in between must not use it.

RocketMQ: ServiceState.
"""

from __future__ import annotations

from enum import StrEnum
from os import getpid
from typing import Final

from gantrymq.client.identity import Origin
from gantrymq.errors import ClosedError, StateError


class ServiceState(StrEnum):
    """Where a service is in its life."""

    CREATED = "created"
    START_FAILED = "start_failed"
    RUNNING = "running"
    SHUTDOWN = "shutdown"


class Life:
    """The life of one service, which belongs to the process that made it."""

    __slots__ = ("_origin", "_what", "running", "state")

    def __init__(self, what: str) -> None:
        self._what: Final = what
        self._origin: Final = Origin()
        self.state = ServiceState.CREATED
        self.running = False
        """The same as `state`, for those who look at it with every message."""

    def begin(self) -> None:
        """It is being started."""
        self._origin.check(self._what)
        if self.state is ServiceState.SHUTDOWN:
            raise ClosedError(
                f"{self._what} was closed and cannot be started again; make a new one"
            )
        if self.state is not ServiceState.CREATED:
            raise StateError(
                f"{self._what} cannot be started: its service state is not OK, maybe it was"
                f" started once, {self.state}"
            )
        self.state = ServiceState.START_FAILED

    def began(self) -> None:
        """Everything is there."""
        self.state = ServiceState.RUNNING
        self.running = True

    def end(self) -> bool:
        """It is being closed; whether it was running."""
        running, self.running = self.running, False
        self.state = ServiceState.SHUTDOWN
        return running and self._origin.is_here

    def check(self) -> None:
        """Refuse to be used in another state than running, or another process."""
        if not self.running:
            raise self._unusable()
        if self._origin.pid != getpid():
            self._origin.check(self._what)

    def _unusable(self) -> Exception:
        if self.state is ServiceState.SHUTDOWN:
            return ClosedError(f"{self._what} was closed; make a new one to go on")
        if self.state is ServiceState.START_FAILED:
            return StateError(f"{self._what} is not running: its start is under way, or failed")
        return StateError(
            f"{self._what} has not been started: use it in a `with` block, or call start() first"
        )
