"""Who has the store, and whether the one before left it in good order.

Two files of RocketMQ's in the store's directory. `lock` is locked while a broker runs, ours or
theirs, so a second one is refused. `abort` holds the number of the process that runs; it goes when
the store is closed properly, so if it is there at the start, the last run ended in a crash.
"""

from __future__ import annotations

import os
from pathlib import Path

from gantrymq.errors import StoreError
from gantrymq.store.disk import Disk, Held


class StoreInUse(StoreError):
    """Another process has the store."""


class StoreLock:
    """The held lock of a store."""

    __slots__ = ("_abort", "_disk", "_held", "after_crash")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._abort = directory / "abort"
        held = disk.lock(directory / "lock")
        if held is None:
            raise StoreInUse(f"the store in {directory} is in use by {_holder(disk, self._abort)}")
        self._held: Held = held
        self.after_crash = disk.exists(self._abort)
        """Whether the last run did not end properly."""
        disk.write(self._abort, str(os.getpid()).encode())
        disk.sync_directory(directory)

    def release(self, *, in_order: bool) -> None:
        """Give up the store; `in_order` says that the next start need not look for damage."""
        try:
            if in_order:
                self._disk.remove(self._abort)
                self._disk.sync_directory(self._abort.parent)
        finally:
            self._held.release()


def _holder(disk: Disk, abort: Path) -> str:
    try:
        text = disk.read(abort).decode("ascii", "replace").strip()
    except FileNotFoundError:
        text = ""
    return f"process {text}" if text.isdecimal() else "another process"
