"""A broker without sockets and files: what handlers are given, and clients that only have names."""

from __future__ import annotations

import inspect
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from gantrymq.broker.config import BrokerConfig
from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.broker.pulling import pull_message
from gantrymq.broker.sending import send_message
from gantrymq.broker.state import Broker, assemble
from gantrymq.broker.table import HANDLERS
from gantrymq.errors import ReplyError
from gantrymq.net.answering import ask
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.pulling import PullFlag, PullMessage, PullReply
from gantrymq.protocol.sending import SendMessage
from gantrymq.settings import load
from gantrymq.store.store import Store
from gantrymq.testing.faulty_disk import FaultyDisk
from gantrymq.wire import record
from gantrymq.wire.command import Command
from gantrymq.wire.record import StoredMessage
from tests.support import run_on

START_MS = 1_700_000_000_000


class MemoryFiles:
    """JSON files in memory; `failing` has them fail."""

    def __init__(self) -> None:
        self.trees: dict[str, Tree] = {}
        self.saves: list[str] = []
        self.failing: str | None = None

    def load(self, name: str) -> Tree | None:
        return self.trees.get(name)

    def save(self, name: str, tree: Tree) -> None:
        if self.failing is not None:
            raise OSError(28, self.failing)
        self.saves.append(name)
        self.trees[name] = tree


class AtOnce(Keeper):
    """Writes tables as they change, so that nobody has to wait for it."""

    def __init__(self, files: MemoryFiles) -> None:
        super().__init__(files)
        self._failed: dict[str, OSError] = {}

    def keep(self, name: str, tree: Callable[[], Tree]) -> None:
        self._failed.pop(name, None)
        try:
            self._files.save(name, tree())
        except OSError as error:
            self._failed[name] = error

    async def kept(self, name: str) -> None:
        if (error := self._failed.get(name)) is not None:
            raise error


@dataclass(eq=False)
class Caller:
    """A client as handlers see it."""

    remote: str = "192.0.2.9:50123"
    local: str = "10.0.0.1:10911"
    state: dict[str, object] = field(default_factory=dict)
    is_open: bool = True
    heard: list[Request[Any]] = field(default_factory=list)

    def notify(self, request: Request[Any]) -> None:
        self.heard.append(request)

    def __str__(self) -> str:
        return self.remote


class SlowFiles(MemoryFiles):
    """Files of a disk that waits for a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()
        self.gate = threading.Event()

    def save(self, name: str, tree: Tree) -> None:
        self.begun.set()
        assert self.gate.wait(10)
        super().save(name, tree)


class Nobody:
    """A runtime that reaches nobody: unit tests of handlers have no name server."""

    async def call(self, address: str, request: Request[Any], *, timeout: float) -> Any:
        raise AssertionError(f"nobody is called, {address} neither: {request}")

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody sleeps")

    def now(self) -> float:
        return 0.0


class Rig:
    """A broker with such settings (`__` for the dot), and what tests do with it."""

    def __init__(
        self,
        *,
        files: MemoryFiles | None = None,
        disk: FaultyDisk | None = None,
        keeper: Keeper | None = None,
        **settings: Any,
    ) -> None:
        flags = {name.replace("__", "."): value for name, value in settings.items()}
        small = {"log.segment_size": 1 << 20, "index.slots": 100, "index.entries": 1000}
        flags = {"timers.file_size": 1 << 16} | flags
        flags = {f"store.{name}": value for name, value in small.items()} | flags
        self.config = load(BrokerConfig, flags=flags).value
        self.disk = disk or FaultyDisk()
        self.files = files or MemoryFiles()
        self.now_ms = START_MS
        self.seconds = 0.0
        self.aged = 0.0
        """Seconds that went by for the store's other clock, where a test moves `now_ms`."""
        self.caller: Any = Caller()
        self.store = Store.open(
            Path("/store"),
            self.config.store,
            disk=self.disk,
            clock_ms=lambda: self.now_ms,
            monotonic=lambda: self.seconds + self.aged,
            report=lambda text: None,
        )
        ids = count(1)
        self.broker: Broker = assemble(
            self.config,
            store=self.store,
            keeper=keeper or AtOnce(self.files),
            runtime=Nobody(),
            next_id=lambda: f"{next(ids):032X}",
            clock_ms=lambda: self.now_ms,
            now=lambda: self.seconds,
            random=random.Random(1),
        )

    def load(self) -> Rig:
        """Take in what was kept; inside a loop, because it may have to be kept anew."""
        self.broker.load()
        return self

    def answer(self, request: Request[Any]) -> Command | Awaitable[Reply]:
        """What goes on the wire for `request`, if it can be answered at once."""
        return ask(request.command(), HANDLERS, self.broker, self.caller)

    def send(self, topic: str = "orders", body: bytes = b"hello", **fields: Any) -> Any:
        request = {"group": "shop", "queue_id": 0, "born_ms": START_MS - 5} | fields
        return send_message(
            SendMessage(topic=topic, body=body, **request), self.broker, self.caller
        )

    def pull(self, topic: str = "orders", offset: int = 0, **fields: Any) -> Any:
        """What the handler gives: a reply, or something to await."""
        asked = {
            "group": "billing",
            "queue_id": 0,
            "flags": PullFlag.SUBSCRIPTION,
            "subscription": "*",
        } | fields
        request = PullMessage(topic=topic, offset=offset, **asked)
        return pull_message(request, self.broker, self.caller)

    def stored(self, topic: str = "orders", queue_id: int = 0) -> list[StoredMessage]:
        """Everything in a queue, straight from the store."""
        found = self.store.read(topic, queue_id, 0, max_messages=10_000)
        return list(record.iterate(b"".join(found.pieces)))


def with_rig(**settings: Any) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Runs a test that wants a `rig` inside a loop: tables that change are written behind it."""

    def decorate(test: Callable[..., Any]) -> Callable[..., None]:
        def run(**named: Any) -> None:
            async def main() -> None:
                rig = Rig(**settings).load()
                outcome = test(rig, **named)
                if outcome is not None:
                    await outcome
                await rig.broker.close()

            run_on("asyncio", main())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        wanted = inspect.signature(test).parameters.values()
        vars(run)["__signature__"] = inspect.Signature([one for one in wanted if one.name != "rig"])
        return run

    return decorate


on_loop = with_rig()


def refusal(attempt: Callable[[], object]) -> tuple[int, str]:
    """Code and remark of what `attempt` is refused with."""
    try:
        outcome = attempt()
    except ReplyError as error:
        return error.code, error.remark or ""
    raise AssertionError(f"not refused: {outcome}")


def bodies(reply: PullReply) -> list[bytes]:
    """The bodies of what was found."""
    return [message.body for message in record.iterate(b"".join(reply.more))]
