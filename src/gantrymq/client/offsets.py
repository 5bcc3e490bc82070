"""Where a consumer's offsets are kept: in the broker, or in a file of this machine.

A group whose members share the messages keeps its offsets in the broker, where whoever takes over a
queue finds them. Where every member gets all messages each has offsets of its own, in a file: the
one that Java clients have, in the place where they have it, so that one can go on for the other.

The file is written whole: beside the old one, to the disk, and then put in its place, while the old
one becomes the backup. Wherever that is cut short, one of the two is whole.

RocketMQ: RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from gantrymq.errors import ConnectFailed, GantryError, NotWritable, RemoteProtocolError
from gantrymq.flows import offsets as flows
from gantrymq.flows.offsets import Start
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Long
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.scalars import Unreadable
from gantrymq.wire import fastjson

if TYPE_CHECKING:
    from gantrymq.client.engine import Engine

log = logging.getLogger("gantrymq.client")

_BY_QUEUE: Final = shape(dict[MessageQueue, Long])
_COMMITS_AT_ONCE: Final = 64


class OffsetStore(Protocol):
    """Where offsets are kept."""

    async def begin(self, queue: MessageQueue, start: Start) -> int:
        """Where to read `queue`; an error if that cannot be known."""
        ...

    async def stored(self, queue: MessageQueue) -> int | None:
        """What is kept of `queue`; None if it never was."""
        ...

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Keep these; those that were kept."""
        ...

    async def keep(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, GantryError]:
        """The same for those who want to know: what was not kept, and why."""
        ...


class BrokerOffsets:
    """Offsets of a group, each in the broker that has the queue."""

    def __init__(self, engine: Engine, group: str) -> None:
        self._engine = engine
        self._group = group
        self._room = asyncio.Semaphore(_COMMITS_AT_ONCE)

    async def begin(self, queue: MessageQueue, start: Start) -> int:
        """Where the group goes on, or begins."""
        address = self._address(queue)
        version = None if start == "earliest" else await self._engine.version_at(address)
        return await flows.where_to_begin(
            self._engine.runtime, address, queue, self._group, start, version=version
        )

    async def stored(self, queue: MessageQueue) -> int | None:
        """How far the group has come."""
        address = self._address(queue)
        version = await self._engine.version_at(address)
        return await flows.committed(
            self._engine.runtime, address, queue, self._group, version=version
        )

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Have the brokers keep these."""
        failed = await self.keep(offsets)
        for queue, error in failed.items():
            log.info(
                "offset %d of %s in %s is not kept: %s", offsets[queue], self._group, queue, error
            )
        return set(offsets) - failed.keys()

    async def keep(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, GantryError]:
        """The same; what was not kept, and why."""
        outcomes = await asyncio.gather(*(self._keep(*entry) for entry in offsets.items()))
        together = zip(offsets, outcomes, strict=True)
        return {queue: error for queue, error in together if error is not None}

    async def _keep(self, queue: MessageQueue, offset: int) -> GantryError | None:
        async with self._room:
            try:
                address = self._address(queue)
                await flows.commit(self._engine.runtime, address, queue, self._group, offset)
            except GantryError as error:
                return error
        return None

    def _address(self, queue: MessageQueue) -> str:
        address = self._engine.routes.address(queue.broker)
        if address is None:
            raise ConnectFailed(f"no route names broker {queue.broker}, where {queue} is")
        return address


class LocalOffsets:
    """Offsets of one client that gets every message, in a file of its own.

    In this process the table is what counts; the file is read once and written at each commit.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self._engine = engine
        self.path: Final = path
        self._kept: dict[MessageQueue, int] | None = None

    async def begin(self, queue: MessageQueue, start: Start) -> int:
        """Where this client goes on, or begins."""
        found = await self.stored(queue)
        if found is not None:
            return found
        address = self._engine.routes.address(queue.broker)
        if address is None:
            raise ConnectFailed(f"no route names broker {queue.broker}, where {queue} is")
        return await flows.beginning(self._engine.runtime, address, queue, start)

    async def stored(self, queue: MessageQueue) -> int | None:
        """How far this client has come."""
        if self._kept is None:
            self._kept = await asyncio.to_thread(read_offsets, self.path)
        return self._kept.get(queue)

    async def commit(self, offsets: Mapping[MessageQueue, int]) -> set[MessageQueue]:
        """Write these to the file, beside the others that are there."""
        failed = await self.keep(offsets)
        for error in set(failed.values()):
            log.warning("%s", error)
        return set(offsets) - failed.keys()

    async def keep(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, GantryError]:
        """The same; what was not kept, and why."""
        if self._kept is None:
            self._kept = await asyncio.to_thread(read_offsets, self.path)
        self._kept.update(offsets)
        try:
            await asyncio.to_thread(write_offsets, self.path, dict(self._kept))
        except OSError as error:
            refused = NotWritable(f"offsets cannot be written to {self.path}: {error}")
            return dict.fromkeys(offsets, refused)
        return {}


def local_path(directory: Path | None, client: str, group: str) -> Path:
    """The file of a client and group; `client` is the machine's address and the instance name.

    RocketMQ: LocalFileOffsetStore (rocketmq.client.localOffsetStoreDir).
    """
    base = Path.home() / ".rocketmq_offsets" if directory is None else directory
    return base / client / group / "offsets.json"


def read_offsets(path: Path) -> dict[MessageQueue, int]:
    """What the file says, or its backup; nothing if there is neither."""
    for place in (path, _backup(path)):
        try:
            found = _read_table(place.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, Unreadable, RemoteProtocolError) as error:
            log.warning("offsets cannot be read from %s: %s", place, error)
            continue
        return found
    return {}


def _read_table(data: bytes) -> dict[MessageQueue, int]:
    tree = fastjson.loads(data)
    if not isinstance(tree, dict):
        raise Unreadable("has to be an object")
    found: dict[MessageQueue, int] = _BY_QUEUE.read(tree.get("offsetTable") or {})
    return found


def write_offsets(path: Path, offsets: Mapping[MessageQueue, int]) -> None:
    """Replace the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = fastjson.dumps({"offsetTable": _BY_QUEUE.write(dict(offsets))})
    new = path.with_suffix(".json.tmp")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        path.replace(_backup(path))
    new.replace(path)
    _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    """Have the new name on the disk, too, where directories can be synced."""
    try:
        number = os.open(directory, os.O_RDONLY)
    except OSError:  # Windows opens no directories
        return
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _backup(path: Path) -> Path:
    return path.with_suffix(".json.bak")
