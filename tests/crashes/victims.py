"""Brokers that can be killed: a process of its own, and one in this process on a disk in memory."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from gantrymq.broker.app import BrokerServer
from gantrymq.broker.config import BrokerConfig
from gantrymq.net.aio import Peer, connect
from gantrymq.net.answering import NO_TABLE, Table
from gantrymq.net.memory import MemoryNetwork
from gantrymq.settings import load
from gantrymq.testing.faulty_disk import FaultyDisk

_TOP: Final = Path(__file__).parents[2]
_UP: Final = (sys.executable, "-c", "from gantrymq.cli import main; main()", "up")
_ENOUGH: Final = 60.0
_QUIET: Final = {"listen.vip": False, "metrics.enabled": False}


class Process:
    """`gantry up` on a directory of its own, which outlives it."""

    def __init__(
        self, settings: Mapping[str, Any], *, flush: str = "async", directory: Path | None = None
    ) -> None:
        self.flush = flush
        self.home = Path(tempfile.mkdtemp(prefix="gantry-crash-", dir=directory))
        self.store = self.home / "data" / "broker-a"
        self.log = self.home / "gantry.log"
        self.starts: list[float] = []
        """How long each start took, in seconds."""
        self._settings = {"store.log.segment_size": 1 << 20, **_QUIET, **settings}
        self._running: asyncio.subprocess.Process | None = None
        self._broker = ""

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._running is not None
        return self._running.pid

    async def begin(self) -> None:
        """Start it, without waiting until it is ready."""
        sets = {**self._settings, "store.flush.mode": self.flush}
        options = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
        with self.log.open("ab") as log:
            self._running = await asyncio.create_subprocess_exec(
                *_UP, "--namesrv-port", "0", "--broker-port", "0", "--bind", "127.0.0.1",
                "--data", str(self.home / "data"), "--ready-file", str(self.home / "ready.json"),
                *options,
                env=os.environ | {"PYTHONPATH": str(_TOP / "src")},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    async def ready(self) -> None:
        """Return when it takes connections."""
        assert self._running is not None
        assert self._running.stdout is not None
        began = asyncio.get_running_loop().time()
        line = await asyncio.wait_for(self._running.stdout.readline(), _ENOUGH)
        assert b"gantry is ready" in line, self.said()
        self.starts.append(asyncio.get_running_loop().time() - began)
        facts = json.loads((self.home / "ready.json").read_text())
        self._broker = facts["brokers"][0]["address"]

    async def kill(self) -> None:
        """End it as kill -9 does."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """End it in good order."""
        running = self._running
        await self._end(signal.SIGTERM)
        assert running is None or running.returncode == 0, self.said()

    async def _end(self, number: int) -> None:
        if self._running is not None:
            self._running.send_signal(number)
            await asyncio.wait_for(self._running.communicate(), _ENOUGH)
            self._running = None

    async def connect(self, table: Table = NO_TABLE, owner: object = None) -> Peer:
        """See `Server`."""
        return await connect(self._broker, table, owner)

    def log_files(self) -> Mapping[int, bytes]:
        """See `Server`."""
        files = (self.store / "commitlog").glob("0*")
        return {int(path.name): path.read_bytes() for path in files}

    def said(self) -> str:
        """The end of what it logged."""
        return self.log.read_text(errors="replace")[-5000:]

    async def close(self) -> None:
        """Kill it and remove its files."""
        await self.kill()
        shutil.rmtree(self.home, ignore_errors=True)


class Machine:
    """A broker on a disk that loses what was not synced when the power goes."""

    def __init__(self, random: Random, settings: Mapping[str, Any], *, flush: str = "sync") -> None:
        self.flush = flush
        self.disk = FaultyDisk()
        self.operations = 0
        """What the disk was asked to do while the power was on."""
        self._random = random
        self._settings = {
            "store.log.segment_size": 1 << 18, "store.queues.file_size": 20 * 2000,
            "store.index.slots": 100, "store.index.entries": 2000, "timers.file_size": 1 << 16,
            "data": "/store", "listen.port": 0, "listen.bind": "127.0.0.1", **_QUIET, **settings,
        }  # fmt: skip
        self._network = MemoryNetwork()
        self._server: BrokerServer | None = None

    async def start(self) -> None:
        """Switch it on."""
        config = load(BrokerConfig, flags={**self._settings, "store.flush.mode": self.flush}).value
        self._server = BrokerServer(config, network=self._network, disk=self.disk)
        await self._server.start()

    async def cut(self, operations: int, seconds: float, sure: Callable[[], int]) -> int:
        """Cut the power after so many of the disk's operations, or so many seconds.

        What `sure` gave right before that.
        """
        loop, dark = asyncio.get_running_loop(), asyncio.Event()
        disk, last = self.disk, self.disk.operations + operations
        left: list[tuple[int, FaultyDisk]] = []

        def look(_: str) -> None:
            if disk.operations >= last and not left:
                known = sure()
                left.append((known, disk.after_power_cut(self._random)))
                loop.call_soon_threadsafe(dark.set)

        disk.watch = look
        try:
            async with asyncio.timeout(seconds):
                await dark.wait()
        except TimeoutError:
            last = 0
            with disk.alone:
                look("")
        disk.watch = str
        self.operations += disk.operations
        assert self._server is not None
        self.disk = left[0][1]
        await self._server.close(grace=0)
        return left[0][0]

    async def connect(self, table: Table = NO_TABLE, owner: object = None) -> Peer:
        """See `Server`."""
        assert self._server is not None
        return await connect(self._server.address, table, owner, network=self._network)

    def log_files(self) -> Mapping[int, bytes]:
        """See `Server`. What is not on the disk may be taken back yet."""
        tree = self.disk.tree(lasting=True)
        return {
            int(path.name): data for path, data in tree.items() if path.parent.name == "commitlog"
        }

    async def close(self) -> None:
        """Switch it off in good order."""
        if self._server is not None:
            await self._server.close(grace=0)
