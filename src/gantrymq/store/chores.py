"""What a store does beside its work: checkpoints now and then, and removing files.

Both can take long, so they have a thread of their own; without it (`start` was not called) they run
where they are asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias

Chore: TypeAlias = Callable[[], object]

_JOIN_TIMEOUT: Final = 30.0


class Chores:
    """A thread that does what it is given, and one thing regularly."""

    def __init__(self, regular: Chore, interval: float) -> None:
        self._regular = regular
        self._interval = interval
        self._next = 0.0
        self._given: SimpleQueue[Chore | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="gantry-chores", daemon=True)
        self._thread.start()

    def do(self, chore: Chore) -> None:
        """Do this soon."""
        if self._thread is None:
            chore()
        else:
            self._given.put(chore)

    def tick(self, now: float) -> None:
        """Without a thread: do the regular thing if it is time."""
        if self._thread is None and now >= self._next:
            self._next = now + self._interval
            self._regular()

    def stop(self) -> None:
        """Finish what was given, and stop the thread."""
        if self._thread is not None:
            self._given.put(None)
            self._thread.join(_JOIN_TIMEOUT)
            self._thread = None

    def _run(self) -> None:
        while True:
            try:
                chore = self._given.get(timeout=self._interval)
            except Empty:
                chore = self._regular
            if chore is None:
                return
            chore()
