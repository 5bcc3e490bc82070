"""Small files that are there as a whole, or as they were before, and changes that take turns.

A handler is cancelled when its connection ends. A change that writes a file must not be: the thread
that writes would go on while the next change begins. So changes run as tasks of their own, one at a
time, and who asked for one merely waits for it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path


def read(path: Path) -> bytes | None:
    """What is in the file; None if there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def replace(path: Path, data: bytes) -> None:
    """Put `data` in the place of the file; a crash leaves either the old or the new one.

    It blocks until the disk has it: call it from a thread.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with suppress(OSError):
            fresh.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Have the new name on disk, too; Windows has no way to ask for that, and no need."""
    if os.name == "nt":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Turns:
    """Runs changes one after the other, each to its end."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, change: Callable[[], Awaitable[None]]) -> None:
        """Have `change` done when those before it are; it goes on if the caller is cancelled."""
        task = asyncio.create_task(self._alone(change))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.shield(task)

    async def over(self) -> None:
        """Return when no change is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _alone(self, change: Callable[[], Awaitable[None]]) -> None:
        async with self._lock:
            await change()
