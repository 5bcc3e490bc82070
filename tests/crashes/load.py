"""What clients do while a broker is killed under them, and what they remember of it.

Everything that a client was told goes into a journal, in the order in which it was told; nothing
else may be expected of the broker that comes back. Where the crash happened at a known moment of
that order, what was noted later is struck out.

The judge reads the files of the log by itself, not through the store that is judged.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from struct import Struct
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from gantrymq.errors import GantryError, GoingAway, RemoteProtocolError, ReplyError
from gantrymq.net.aio import Peer
from gantrymq.net.answering import NO_TABLE, Table
from gantrymq.protocol.base import Request
from gantrymq.wire import record
from gantrymq.wire.record import MAGIC_BLANK, StoredMessage

PATIENCE: Final = 20.0
"""Seconds that an answer may take."""

_HEAD: Final = Struct(">ii")
_PLACE: Final = Struct(">q")
_PLACE_AT: Final = 28


class Event(NamedTuple):
    """Something that a client was told of the message with that number."""

    what: str
    number: int
    told: Any = None


class Server(Protocol):
    """A broker that can die."""

    async def connect(self, table: Table = ..., owner: object = None) -> Peer:
        """A connection to it."""
        ...

    def log_files(self) -> Mapping[int, bytes | memoryview]:
        """The files of its commit log, by where they begin."""
        ...


class LogReader:
    """Reads a commit log, going on where it stopped."""

    def __init__(self) -> None:
        self.at = 0

    def news(self, files: Mapping[int, bytes | memoryview]) -> list[StoredMessage]:
        """The whole records that came since the last time."""
        found: list[StoredMessage] = []
        for base in sorted(files):
            data = files[base]
            while base <= self.at < base + len(data):
                message = self._record(data, self.at - base)
                if message is None:
                    return found
                if message == MAGIC_BLANK:
                    self.at = base + len(data)
                elif isinstance(message, StoredMessage):
                    found.append(message)
                    self.at += message.size
        return found

    def _record(self, data: bytes | memoryview, at: int) -> StoredMessage | int | None:
        if len(data) - at < _HEAD.size:
            return MAGIC_BLANK
        size, magic = _HEAD.unpack_from(data, at)
        if magic == MAGIC_BLANK:
            return MAGIC_BLANK
        if size <= 0 or at + size > len(data):
            return None
        try:
            message = record.decode(data, at)
            message.check_crc()
        except RemoteProtocolError:
            return None
        torn = message.property_bytes[-1:] == b"\0"
        return None if torn or message.log_offset != self.at else message


class Load(ABC):
    """Clients, their journal, and what has to hold of what is found after a crash."""

    name: ClassVar[str]
    settings: ClassVar[Mapping[str, Any]] = {}
    """What the broker is set to."""

    def __init__(self, random: Random, *, clients: int = 4, at_once: int = 8) -> None:
        self.random = random
        self.clients = clients
        self.at_once = at_once
        self.journal: list[Event] = []
        self.round = 0
        self.table: Table = NO_TABLE
        """From which clients answer what they are asked."""
        self.reader = LogReader()
        self._numbers = 0

    # --- working --------------------------------------------------------------------------------

    async def work(self, server: Server) -> None:
        """Send and send, until every connection has ended."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self.clients):
                group.create_task(self._connection(server))

    async def _connection(self, server: Server) -> None:
        with suppress(GantryError):
            peer = await server.connect(self.table, self)
            try:
                await self.greet(peer)
                async with asyncio.TaskGroup() as group:
                    for _ in range(self.at_once):
                        group.create_task(self._one_by_one(peer))
            finally:
                peer.close()

    async def _one_by_one(self, peer: Peer) -> None:
        with suppress(GantryError):
            while peer.is_open:
                try:
                    await self.one(peer)
                except GoingAway:  # it is a machine without power, and only seems to live
                    return
                except ReplyError as refused:
                    self.refused(refused)

    def number(self) -> int:
        """A number that no message had."""
        self._numbers += 1
        return self._numbers

    def note(self, what: str, number: int, told: Any = None) -> None:
        """A client was told something."""
        self.journal.append(Event(what, number, told))

    async def ask(self, peer: Peer, request: Request[Any]) -> Any:
        """What the broker answers."""
        return await peer.call(request, timeout=PATIENCE)

    async def greet(self, peer: Peer) -> None:  # noqa: B027 (most have nothing to say)
        """What a client does first."""

    def refused(self, refused: ReplyError) -> None:
        """A request was refused; most loads ask for nothing that could be."""
        raise AssertionError(f"{self.name}: {refused}") from refused

    @abstractmethod
    async def one(self, peer: Peer) -> None:
        """One message, and what belongs to it."""

    # --- judging --------------------------------------------------------------------------------

    def crashed(self, sure: int | None = None) -> None:
        """The broker is dead; what was noted after the first `sure` events counts for nothing."""
        del self.journal[len(self.journal) if sure is None else sure :]
        self.round += 1

    @abstractmethod
    async def judge(self, server: Server) -> None:
        """Raise `AssertionError` if what came back is not what was promised."""

    async def settle(self, server: Server) -> None:
        """The same, once everything that was under way has come to its end."""
        await self.judge(server)

    @abstractmethod
    def counts(self) -> dict[str, int]:
        """What was done and seen so far."""


def number_of(message: StoredMessage) -> int:
    """The number under which a message was sent."""
    return int(message.body.partition(b":")[0])
