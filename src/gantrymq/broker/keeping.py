"""Tables of the broker in files, written behind its back and never in the way of a message.

A part that changed calls `keep` with the name of its file and a function that makes the tree to be
written. The tree is made on the loop, so that it is of one moment; a thread turns it into bytes and
waits for the disk. However often a table changes while a write is under way, one more write
follows. Who has to promise that a change lasts awaits `kept`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

log = logging.getLogger("gantrymq.broker")

Tree: TypeAlias = Any
"""A JSON value, as `wire.fastjson` has it."""


class Files(Protocol):
    """The JSON files of a store's `config` directory."""

    def load(self, name: str) -> Tree | None:
        """What the file says, or its backup where it cannot be read; None if neither is there."""
        ...

    def save(self, name: str, tree: Tree) -> None:
        """Put `tree` in the place of the file. Returns when the disk has it."""
        ...


class Keeper:
    """Writes tables to their files."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._changed: dict[str, Callable[[], Tree]] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}

    def load(self, name: str) -> Tree | None:
        """What the file says; None if there is none."""
        return self._files.load(name)

    def keep(self, name: str, tree: Callable[[], Tree]) -> None:
        """Have what `tree` gives written to the file, soon."""
        self._changed[name] = tree
        if name not in self._writing:
            self._begin(name)

    def is_behind(self, name: str) -> bool:
        """Whether there are changes that are not in the file yet."""
        return name in self._writing or name in self._changed

    async def kept(self, name: str) -> None:
        """Return when every change so far is in the file; `OSError` if it could not be written."""
        if name in self._changed and name not in self._writing:  # it failed before
            self._begin(name)
        task = self._writing.get(name)
        if task is not None:
            await asyncio.shield(task)

    async def close(self) -> None:
        """Return when everything is written, or has been tried once more."""
        for name in self._changed.keys() - self._writing.keys():
            self._begin(name)
        await asyncio.gather(*self._writing.values(), return_exceptions=True)

    def _begin(self, name: str) -> None:
        task = asyncio.get_running_loop().create_task(self._write(name))
        self._writing[name] = task
        task.add_done_callback(lambda done: _look(name, done))

    async def _write(self, name: str) -> None:
        try:
            while (tree := self._changed.pop(name, None)) is not None:
                try:
                    await asyncio.to_thread(self._files.save, name, tree())
                except BaseException:
                    self._changed.setdefault(name, tree)
                    raise
        finally:
            del self._writing[name]


def _look(name: str, done: asyncio.Task[None]) -> None:
    """Nobody has to wait for a write, so it is here that its failure is told."""
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("%s was not written; the next change tries again: %s", name, error)
