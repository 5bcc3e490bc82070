"""The table of keys: namespace, key, value, for whoever has something to tell everybody.

RocketMQ itself keeps one thing there: how the queues of order topics are spread, in the namespace
`ORDER_TOPIC_CONFIG`, under the topic's name. The file is RocketMQ's own (`kvConfig.json`), so that
either name server starts with what the other one left:

    {"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:8;broker-b:8"}}}

A change is on disk before it holds, and before it is answered: if the disk refuses, nothing has
changed, and the caller hears why. Readers see the table as it was before a change or after it.

RocketMQ: KVConfigManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from gantrymq.errors import BrokerFailure, ConfigError, NotFound, RemoteProtocolError
from gantrymq.nameserver import files
from gantrymq.nameserver.files import Turns
from gantrymq.protocol.base import Done
from gantrymq.protocol.configs import (
    DeleteKey,
    GetKey,
    GetKeys,
    KeyReply,
    KeyTable,
    KeyTables,
    PutKey,
)
from gantrymq.protocol.json_shapes import shape
from gantrymq.wire import fastjson

if TYPE_CHECKING:
    from gantrymq.nameserver.app import NameServer
    from gantrymq.net.peer import Peer

log = logging.getLogger("gantrymq.nameserver")

ORDER_TOPICS: Final = "ORDER_TOPIC_CONFIG"

Namespaces: TypeAlias = Mapping[str, Mapping[str, str]]


def with_key(tables: Namespaces, namespace: str, key: str, value: str) -> Namespaces:
    """The same tables, and the key in its namespace."""
    return {**tables, namespace: {**tables.get(namespace, {}), key: value}}


def without_key(tables: Namespaces, namespace: str, key: str) -> Namespaces:
    """The same tables without the key; its namespace stays, if only empty."""
    if key not in tables.get(namespace, {}):
        return tables
    left = {name: value for name, value in tables[namespace].items() if name != key}
    return {**tables, namespace: left}


def read_tables(data: bytes, path: Path) -> Namespaces:
    """The tables that the file at `path` holds; an empty file holds none."""
    if not data.strip():
        return {}
    try:
        found: KeyTables = shape(KeyTables).read(fastjson.loads(data))
    except (RemoteProtocolError, ValueError) as error:
        raise ConfigError(
            f"the table of keys {path} cannot be read: {error}; mend it, or move it away to start "
            "with an empty one"
        ) from error
    return found.tables


def write_tables(tables: Namespaces) -> bytes:
    """The file for such tables."""
    return fastjson.dumps({"configTable": tables})


class Keys:
    """The tables and their file."""

    def __init__(self, path: Path, tables: Namespaces, turns: Turns) -> None:
        self.path = path
        self.tables = tables
        self._turns = turns

    @classmethod
    def load(cls, path: Path, turns: Turns) -> Keys:
        """What is in the file at `path`; nothing, if there is no file yet."""
        data = files.read(path)
        return cls(path, {} if data is None else read_tables(data, path), turns)

    def get(self, namespace: str, key: str) -> str | None:
        """The value of a key."""
        return self.tables.get(namespace, {}).get(key)

    def namespace(self, name: str) -> dict[str, str] | None:
        """Every key of a namespace; None if there never was one."""
        found = self.tables.get(name)
        return None if found is None else dict(found)

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a key."""
        await self._turns.run(lambda: self._save(with_key(self.tables, namespace, key, value)))

    async def delete(self, namespace: str, key: str) -> None:
        """Drop a key."""
        await self._turns.run(lambda: self._save(without_key(self.tables, namespace, key)))

    async def _save(self, tables: Namespaces) -> None:
        if tables is self.tables:
            return
        try:
            await asyncio.to_thread(files.replace, self.path, write_tables(tables))
        except OSError as error:
            raise BrokerFailure.because(f"nothing changed, {self.path}: {error}") from error
        self.tables = tables


# --- answers --------------------------------------------------------------------------------------


async def put_key(request: PutKey, server: NameServer, peer: Peer) -> Done:
    """Set a key."""
    await server.keys.put(request.namespace, request.key, request.value)
    _changed(server, request.namespace)
    log.info("%s set key %s in %s", peer, request.key, request.namespace)
    return Done()


async def delete_key(request: DeleteKey, server: NameServer, peer: Peer) -> Done:
    """Drop a key, or find that it is gone."""
    await server.keys.delete(request.namespace, request.key)
    _changed(server, request.namespace)
    log.info("%s dropped key %s in %s", peer, request.key, request.namespace)
    return Done()


def _changed(server: NameServer, namespace: str) -> None:
    if namespace == ORDER_TOPICS:
        server.tables.changed()


def get_key(request: GetKey, server: NameServer, _peer: Peer) -> KeyReply:
    """The value of a key."""
    value = server.keys.get(request.namespace, request.key)
    if value is None:
        where = f"Namespace: {request.namespace} Key: {request.key}"
        raise NotFound.because(f"No config item, {where}")
    return KeyReply(value=value)


def get_keys(request: GetKeys, server: NameServer, _peer: Peer) -> KeyTable:
    """Every key of a namespace."""
    table = server.keys.namespace(request.namespace)
    if table is None:
        raise NotFound.because(f"No config item, Namespace: {request.namespace}")
    return KeyTable(table=table)
