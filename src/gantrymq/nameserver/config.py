"""The settings of a name server, and the files, variables and flags that they come from.

Besides our own TOML files, RocketMQ's `namesrv.conf` is read as it is: keys that mean something
here are taken over, the others are named in a warning. What is changed while the server runs
(`mqadmin updateNamesrvConfig`) is kept in a properties file of its own, and holds after a restart,
too: it goes over what other files say, and environment and flags go over it.

RocketMQ: NamesrvConfig, NettyServerConfig.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from gantrymq.errors import ConfigError
from gantrymq.nameserver import files
from gantrymq.net.scraping import MetricsConfig
from gantrymq.settings import (
    Bytes,
    Loaded,
    Row,
    Seconds,
    at_least,
    group,
    load,
    millis,
    parse_properties,
    rows,
    setting,
)

VARIABLES: Final = "GANTRY_NAMESRV"
"""What environment variables begin with."""


def _port(number: int) -> str | None:
    return None if 0 <= number <= 65_535 else "ports go from 0 to 65535"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where connections are taken, and how many."""

    bind: str = setting(
        "0.0.0.0",
        "address or host name to listen on; empty for every interface, v6 too",
        rocketmq="bindAddress",
    )
    port: int = setting(
        9876, "port to listen on; 0 for any free one", rocketmq="listenPort", check=_port
    )
    connections: int = setting(
        10_000, "connections over which new ones are refused", check=at_least(1)
    )
    idle_timeout: Seconds = setting(
        120.0,
        "silence after which a connection is closed",
        rocketmq="serverChannelMaxIdleTimeSeconds",
        check=at_least(0.1),
    )
    frame_limit: Bytes = setting(
        16 * 1024 * 1024, "longest frame; a registration is one frame", check=at_least(1024)
    )
    backlog: int = setting(
        1024, "connections that may wait to be taken", rocketmq="serverSocketBacklog"
    )
    tls: str = setting("", "a tls.properties file; empty for no TLS")
    proxy_header: Literal["off", "optional", "required"] = setting(
        "off", "whether connections may, or have to, begin with a PROXY header"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokersConfig:
    """How brokers come and go."""

    timeout: Seconds = setting(
        120.0, "silence after which a broker is dropped that named no time of its own"
    )
    scan_interval: Seconds = setting(
        5.0,
        "time between looks for silent brokers",
        rocketmq=millis("scanNotActiveBrokerInterval"),
        check=at_least(0.01),
    )
    delete_missing: bool = setting(
        False,
        "drop topics that a broker had and does not register any more",
        rocketmq="deleteTopicWithBrokerRegistration",
    )
    return_order: bool = setting(
        True,
        "tell brokers at registration which topics are ordered",
        rocketmq="returnOrderTopicConfigToBroker",
    )
    notify_least: bool = setting(
        False,
        "tell brokers of a name when another one of them has the smallest id",
        rocketmq="notifyMinBrokerIdChanged",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutesConfig:
    """What clients are told."""

    acting_masters: bool = setting(
        False,
        "show the replica with the smallest id as master where there is none",
        rocketmq="supportActingMaster",
    )
    order: bool = setting(
        False, "add to a route how its ordered queues are spread", rocketmq="orderMessageEnable"
    )
    wait: bool = setting(
        False, "refuse routes for a while after the start", rocketmq="needWaitForService"
    )
    wait_time: Seconds = setting(
        45.0, "how long, so that every broker has registered", rocketmq="waitSecondsForService"
    )
    list_all_topics: bool = setting(
        True, "answer requests for the list of all topics", rocketmq="enableAllTopicList"
    )
    list_topics: bool = setting(
        True, "answer requests for lists of some topics", rocketmq="enableTopicList"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesConfig:
    """What is kept, and where; `~` is the home directory."""

    data: str = setting("~/namesrv", "directory for what is kept")
    keys: str = setting(
        "", "file of the table of keys; empty: kvConfig.json in `data`", rocketmq="kvConfigPath"
    )
    settings: str = setting(
        "",
        "file of settings that were changed while running; empty: namesrv.properties in `data`",
        rocketmq="configStorePath",
    )

    @property
    def keys_path(self) -> Path:
        """The file of the table of keys."""
        return _path(self.keys) if self.keys else _path(self.data) / "kvConfig.json"

    @property
    def settings_path(self) -> Path:
        """The file of settings that were changed while running."""
        return _path(self.settings) if self.settings else _path(self.data) / "namesrv.properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig:
    """Everything that can be set about a name server."""

    listen: ListenConfig = group(ListenConfig, "where connections are taken, and how many")
    brokers: BrokersConfig = group(BrokersConfig, "how brokers come and go")
    routes: RoutesConfig = group(RoutesConfig, "what clients are told")
    files: FilesConfig = group(FilesConfig, "what is kept, and where")
    metrics: MetricsConfig = group(MetricsConfig, "where metrics can be read")
    locked: str = setting(
        "configBlackList;configStorePath;kvConfigPath",
        "RocketMQ's names of settings that nobody may change while the server runs",
        rocketmq="configBlackList",
    )

    @property
    def address(self) -> str:
        """Where to listen."""
        host = f"[{self.listen.bind}]" if ":" in self.listen.bind else self.listen.bind
        return f"{host}:{self.listen.port}"


def _path(text: str) -> Path:
    return Path(text).expanduser()


def load_config(
    file: Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Loaded[NameServerConfig]:
    """The settings from all sources; `flags` may have RocketMQ's names, too."""
    tree, properties = ({}, {}) if file is None else read_file(file)
    chosen = own_names(flags or {})

    def loaded(texts: Mapping[str, str]) -> Loaded[NameServerConfig]:
        return load(
            NameServerConfig,
            file=tree,
            properties=texts,
            environ=environ,
            prefix=VARIABLES,
            flags=chosen,
        )

    kept = read_kept(loaded(properties).value.files.settings_path)
    return loaded(properties | kept)


def read_file(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """What a file of settings says: the tree of a TOML file, or the properties of any other."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the settings {path} cannot be read: {error}") from error
    try:
        return (tomllib.loads(text), {}) if path.suffix == ".toml" else ({}, parse_properties(text))
    except ValueError as error:  # TOMLDecodeError and ConfigError are ValueErrors
        raise ConfigError(f"the settings {path} cannot be read: {error}") from error


def read_kept(path: Path) -> dict[str, str]:
    """The properties that were changed while a server ran; none, if there is no file."""
    data = files.read(path)
    try:
        return {} if data is None else parse_properties(str(data, "utf-8"))
    except ValueError as error:
        raise ConfigError(f"the settings {path} cannot be read: {error}") from error


def own_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values under our names, where they are under RocketMQ's."""
    by_alias = aliases()
    found: dict[str, Any] = {}
    for name, value in values.items():
        row = by_alias.get(name)
        if row is None or row.alias is None:
            found[name] = value
        else:
            found[row.path] = row.alias.convert(str(value))
    return found


def aliases() -> dict[str, Row]:
    """The settings that RocketMQ knows, by its names."""
    return {row.alias.key: row for row in rows(NameServerConfig) if row.alias is not None}
