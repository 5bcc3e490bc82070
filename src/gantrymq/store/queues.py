"""The consume queues of a store: how they are opened, and what they share."""

from __future__ import annotations

from pathlib import Path

from gantrymq.store.consume_queue import FILE_SIZE, ConsumeQueue, StoreTime
from gantrymq.store.disk import Disk
from gantrymq.store.queue_files import HOLD_BACK, OPEN_AT_ONCE, OpenFiles


class QueueOpener:
    """Opens the queues of one store; called with a directory it is a `MakeQueue`.

    All of them together keep at most `open_at_once` files open, and each of them holds about
    `hold_back` bytes in memory before it writes them.
    """

    __slots__ = ("_files", "_store_time")

    def __init__(
        self,
        disk: Disk,
        store_time: StoreTime,
        *,
        file_size: int = FILE_SIZE,
        open_at_once: int = OPEN_AT_ONCE,
        hold_back: int = HOLD_BACK,
    ) -> None:
        self._files = OpenFiles(disk, file_size, limit=open_at_once, hold_back=hold_back)
        self._store_time = store_time

    def __call__(self, directory: Path) -> ConsumeQueue:
        """The queue whose files are in `directory`, or a new one; files come with the entries."""
        return ConsumeQueue(self._files, directory, self._store_time)

    @property
    def open_files(self) -> int:
        """How many files are open now."""
        return len(self._files)
