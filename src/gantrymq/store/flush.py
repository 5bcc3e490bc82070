"""Bringing the log to the disk: one sync for all who wait, in a thread of its own.

The thread that appends asks (`durable`), the flush thread syncs everything up to the end that the
log has at that moment, and the appending thread learns of it (`settle`, which `notify` has to bring
about). While one sync is under way, all further questions wait for the next: the slower the disk,
the more messages share a sync.

```
waiting ──synced──▶ STORED
   ├──────timeout──▶ TIMED_OUT    stored in memory, and perhaps on disk later
   └──sync failed──▶ FAILED       and so is everyone who asks from then on
```

**A sync that failed is final.** The system may have dropped the pages it could not write and call
the next sync a success. So nothing is synced again and nothing counts as stored any more; a restart
reads back what really is on the disk.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple, TypeAlias

from gantrymq.store.commit_log import CommitLog

_JOIN_TIMEOUT: Final = 30.0
_LEAST_ROOM: Final = 4 * 2**20
_MOST_ROOM: Final = 64 * 2**20
"""Room is set aside for twice what came since the last sync, within these bounds."""


class Outcome(Enum):
    """What came of waiting for the disk."""

    STORED = "stored"
    TIMED_OUT = "timed out"
    FAILED = "failed"


Waiter: TypeAlias = Callable[[Outcome], object]


class _Waiting(NamedTuple):
    end: int
    deadline: float
    tell: Waiter


class Flusher:
    """Syncs the log, and tells who waits for it.

    RocketMQ: GroupCommitService, FlushRealTimeService.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        interval: float,
        timeout: float,
        failed: Callable[[str], object] = str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._interval = interval
        self._timeout = timeout
        self._failed = failed
        self._notify: Callable[[], object] = str
        self._monotonic = monotonic
        self._waiting: deque[_Waiting] = deque()
        self._wishes: SimpleQueue[bool] = SimpleQueue()
        self._wished = self._inline = False
        self._next_sync = 0.0
        self._one_at_a_time = threading.Lock()
        self._named_to = log.end
        self._thread: threading.Thread | None = None
        self.flushed_to = log.end
        """Every record that ends here or before survives the machine."""
        self.failure: str | None = None
        """Why nothing is synced any more."""
        self.syncs = 0
        """How often the disk was asked."""

    # on the thread that appends

    def durable(self, end: int, tell: Waiter) -> None:
        """Call `tell` once the log is on the disk up to `end`, or that is known to fail.

        It is called from `settle` or `expire`, or at once, and must not raise.
        """
        if end <= self.flushed_to:
            tell(Outcome.STORED)
        elif self.failure is not None:
            tell(Outcome.FAILED)
        else:
            self._waiting.append(_Waiting(end, self._monotonic() + self._timeout, tell))
            self.wish()

    def wish(self) -> None:
        """Have the thread sync soon; without one it is done now."""
        if self._inline:
            self.flush()
            self._notify()
        elif not self._wished:
            self._wished = True
            self._wishes.put(True)

    def settle(self) -> None:
        """Tell everyone whose wait is over."""
        waiting, failed = self._waiting, self.failure is not None
        while waiting and waiting[0].end <= self.flushed_to:
            waiting.popleft().tell(Outcome.STORED)
        while failed and waiting:
            waiting.popleft().tell(Outcome.FAILED)

    def expire(self) -> None:
        """Tell everyone who waited for too long."""
        waiting = self._waiting
        now = self._monotonic() if waiting else 0.0
        while waiting and waiting[0].deadline <= now:
            waiting.popleft().tell(Outcome.TIMED_OUT)

    def tick(self) -> None:
        """Without a thread: sync if it is time."""
        if self._inline and self._monotonic() >= self._next_sync:
            self._next_sync = self._monotonic() + self._interval
            self.flush()
            self._notify()

    @property
    def waiting(self) -> int:
        """How many wait for the disk."""
        return len(self._waiting)

    @property
    def behind(self) -> int:
        """How many bytes of the log are not on the disk yet."""
        return self._log.end - self.flushed_to

    # on any thread

    def flush(self) -> None:
        """Sync the log up to its present end; what comes of it is in the attributes."""
        with self._one_at_a_time:
            target = self._log.end
            if self.failure is not None or target == self.flushed_to:
                return
            try:
                self._sync(self.flushed_to, target)
            except OSError as error:
                self.failure = f"syncing the commit log failed: {error}"
                self._failed(self.failure)
            else:
                self.flushed_to = target

    def start(self, notify: Callable[[], object], *, thread: bool = True) -> None:
        """Start the thread; it calls `notify` whenever there is something to settle.

        Without a thread, for disks that nobody has to wait for, a sync is made when it is wished
        for, and at each interval if somebody calls `tick`.
        """
        self._notify = notify
        self._inline = not thread
        if self._inline:
            return
        self._thread = threading.Thread(target=self._run, name="gantry-flush", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and flush once more."""
        if self._thread is not None:
            self._wishes.put(False)
            self._thread.join(_JOIN_TIMEOUT)
            self._thread = None
        self.flush()

    def _run(self) -> None:
        while self._next():
            self._wished = False
            before = self.flushed_to, self.failure
            self._log.make_room(min(max(_LEAST_ROOM, 2 * self.behind), _MOST_ROOM))
            self.flush()
            if (self.flushed_to, self.failure) != before:
                self._notify()

    def _next(self) -> bool:
        try:
            return self._wishes.get(timeout=self._interval)
        except Empty:
            return True

    def _sync(self, start: int, end: int) -> None:
        segments = self._log.segments
        for segment in segments.files:
            if segment.end > start and segment.base < end:
                segment.file.sync()
        if end > self._named_to:
            segments.sync_names()
            self._named_to = segments.end
        self.syncs += 1
