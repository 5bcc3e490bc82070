"""Starts the Spark side in a process of its own, hears from it, and ends it.

It has a session of its own, so that the Ctrl-C of a terminal ends the shop in order, and not
Spark's workers in the middle of something. What Spark has to say is in `spark.log`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

QUERIES: Final = ("archive", "revenue", "health")
LOG: Final = "spark.log"
_LONGEST_LINE: Final = 1 << 20
_START: Final = 5.0
"""Seconds that Spark takes to start, or more."""
_GRACE: Final = 2.0
"""Seconds that it has to stop by itself."""


@dataclass(slots=True)
class Progress:
    """One query."""

    rows: int = 0
    batches: list[tuple[float, int, float]] = field(default_factory=list)
    """Micro-batches: when, how many rows, how many seconds."""


class Pipelines:
    """The Spark side as it is seen from the shop."""

    def __init__(self, name_server: str, directory: Path) -> None:
        self.name_server = name_server
        self.directory = directory
        self.state = "starting"
        self.queries = {name: Progress() for name in QUERIES}
        self.minutes: list[tuple[str, int, int]] = []
        self.ages: list[tuple[float, dict[str, list[int]]]] = []
        self.by_queue: dict[str, int] = {}
        self.archived: dict[str, int] | None = None
        self.repeated = 0
        self.failure: str | None = None
        self._late = False
        self._heard_all: asyncio.Task[None] | None = None
        self._done = asyncio.Event()

    @property
    def session_id(self) -> int | None:
        """The session of its processes, while they are there."""
        return self._process.pid if self._heard_all is not None else None

    async def start(self) -> None:
        """Start it; what it reads begins with the first message, so nobody has to wait for it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        script = str(Path(__file__).with_name("queries.py"))
        with (self.directory / LOG).open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", script, self.name_server, str(self.directory),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                limit=_LONGEST_LINE,
            )  # fmt: skip
        self._heard_all = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            try:
                facts = json.loads(line)
            except ValueError:
                continue  # Spark's launcher has a word of its own now and then
            self._note(facts)
        if self.state not in ("done", "stopped"):
            self._fail(f"Spark's process ended with exit code {await self._process.wait()}")
        self._done.set()

    def _note(self, facts: dict[str, Any]) -> None:
        match facts["event"]:
            case "ready":
                self.state = "running"
            case "batch":
                query = self.queries[facts["query"]]
                query.rows += facts["rows"]
                query.batches.append((time.monotonic(), facts["rows"], facts["seconds"]))
            case "revenue":
                self.minutes = [
                    (minute, orders, cents) for minute, orders, cents in facts["minutes"]
                ]
            case "health":
                self.ages.append((time.monotonic(), facts["ages"]))
                self.by_queue = facts["queues"]
            case "failed":
                self._fail(facts["why"])
            case "done":
                self.archived, self.repeated = facts["rows"], facts["repeated"]
                self.state = "done"
                self._done.set()

    def _fail(self, why: str) -> None:
        self.state = "failed"
        self.failure = self.failure or f"{why} (see {self.directory / LOG})"
        self._done.set()

    async def finish(self, expected: int, patience: float) -> None:
        """Have it bring everything up to what is stored, and count; `archived` has the result."""
        if self.state == "failed" or (self.state == "starting" and patience < _START):
            return
        self._tell(f"finish {expected}")
        try:
            async with asyncio.timeout(patience):
                await self._done.wait()
        except TimeoutError:
            self._late = True

    async def close(self) -> None:
        """End it, with force if it does not end by itself."""
        heard_all, self._heard_all = self._heard_all, None
        if heard_all is None:
            return
        if self.state in ("starting", "running"):
            self.state = "stopped"
        self._tell("stop")
        try:
            # one that did not finish in time would not read this, and its archive is whole anyhow:
            # a micro-batch is in it, or not
            async with asyncio.timeout(0.0 if self._late else _GRACE):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        await heard_all

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(f"{line}\n".encode())
