"""Settings read and changed while the server runs, as `mqadmin` does it.

Both ways they are RocketMQ's properties: its names, its units. Of what is asked for, either all is
taken or nothing. Most settings hold at once; those of `listen` and `files` hold at the next start,
which the log says. Names that mean nothing here are passed over, as RocketMQ does it, and named in
the log.

RocketMQ: Configuration, DefaultRequestProcessor.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from gantrymq.errors import BrokerFailure, ConfigError, NoPermission
from gantrymq.nameserver import files
from gantrymq.nameserver.config import NameServerConfig, aliases, read_kept
from gantrymq.net.addresses import split_address
from gantrymq.protocol.base import Done
from gantrymq.protocol.configs import ConfigReply, GetNameServerConfig, UpdateNameServerConfig
from gantrymq.settings import Row, format_properties, load, rows

if TYPE_CHECKING:
    from gantrymq.nameserver.app import NameServer
    from gantrymq.net.peer import Peer

log = logging.getLogger("gantrymq.nameserver")

ALWAYS_LOCKED: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
AT_START_ONLY: Final = ("listen.", "files.", "metrics.")
"""Settings that begin so are looked at when the server starts."""


def as_properties(config: NameServerConfig) -> dict[str, str]:
    """What is set, under RocketMQ's names and in its units."""
    return {name: _text(row, _value(config, row.path)) for name, row in aliases().items()}


def _value(config: NameServerConfig, path: str) -> Any:
    return reduce(getattr, path.split("."), config)


def _text(row: Row, value: Any) -> str:
    """The text that the setting's alias would read as `value`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) and row.alias is not None:
        in_millis = row.alias.convert("1") == "1ms"
        return f"{value * (1000 if in_millis else 1):.0f}"
    return str(value)


def changed(config: NameServerConfig, properties: Mapping[str, str]) -> NameServerConfig:
    """The settings after such a change; `ConfigError` for a value that will not do."""
    before = {row.path: _value(config, row.path) for row in rows(NameServerConfig)}
    return load(NameServerConfig, file=before, properties=properties).value


def check_allowed(config: NameServerConfig, names: Iterable[str]) -> None:
    """Refuse the whole change if it touches what is locked."""
    if ALWAYS_LOCKED.union(config.locked.split(";")).intersection(names):
        raise NoPermission.because("Can not update config in black list.")


# --- answers --------------------------------------------------------------------------------------


def get_config(_request: GetNameServerConfig, server: NameServer, _peer: Peer) -> ConfigReply:
    """Every setting that RocketMQ has a name for, with the port and the files that are in use."""
    config = server.config
    in_use = {
        "listenPort": str(split_address(server.address)[1]),
        "kvConfigPath": str(config.files.keys_path),
        "configStorePath": str(config.files.settings_path),
    }
    return ConfigReply(properties=as_properties(config) | in_use)


async def update_config(request: UpdateNameServerConfig, server: NameServer, peer: Peer) -> Done:
    """Change some of them, and keep the change."""
    check_allowed(server.config, request.properties)
    known = {name: text for name, text in request.properties.items() if name in aliases()}
    unknown = sorted(request.properties.keys() - known.keys())
    if unknown:
        log.warning("%s sets what means nothing here: %s", peer, ", ".join(unknown))
    if known:
        await server.turns.run(lambda: _change(server, known, str(peer)))
    return Done()


async def _change(server: NameServer, properties: Mapping[str, str], who: str) -> None:
    try:
        config = changed(server.config, properties)
        path = server.config.files.settings_path
        kept = {**read_kept(path), **properties}
        await asyncio.to_thread(files.replace, path, format_properties(kept).encode())
    except (ConfigError, OSError) as error:
        raise BrokerFailure.because(f"nothing changed, {error}") from error
    server.apply(config)
    for name in properties:
        late = aliases()[name].path.startswith(AT_START_ONLY)
        log.info("%s set %s%s", who, name, ", which holds from the next start on" if late else "")
