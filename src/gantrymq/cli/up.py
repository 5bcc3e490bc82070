"""`gantry up` and `gantry broker`: brokers as processes, with a name server or without.

`gantry up` is one process with one event loop: a name server, and a broker that registers with it.
Asked for several brokers, it starts each as a process of its own (`gantry broker`), so that each
has a core, and keeps the name server itself. A child stops when its parent asks it to, and also
when its parent is gone in whatever way: then the pipe that it has as stdin ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from gantrymq.cli.serve import (
    Ready,
    assignments,
    logging_options,
    serve,
    warn_of_unknown,
)
from gantrymq.errors import ConfigError
from gantrymq.observe import logs

if TYPE_CHECKING:
    from gantrymq.broker.app import BrokerServer
    from gantrymq.broker.config import BrokerConfig
    from gantrymq.nameserver.app import NameServer
    from gantrymq.nameserver.config import NameServerConfig
    from gantrymq.settings import Loaded

log = logging.getLogger("gantrymq.cli")

DATA: Final = "~/.gantry"
NAME_SERVER: Final = "namesrv"
"""The name server's directory, its table in a TOML file, and what its settings begin with."""
SEGMENT: Final = 64 * 1024 * 1024
"""Bytes of each commit log file: a laptop has no gigabyte to spare for an empty store."""
PORT_STEP: Final = 10
"""Between the ports of brokers side by side; each also has those two below and one above."""
_MOST: Final = 26
_CHILD: Final = "from gantrymq.cli import main; main()"
_OWN_HOST: Final = "0.0.0.0"

_file = click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML file, or RocketMQ's broker.conf.",
)
_set = click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE", help="One setting more."
)
_ready_file = click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Written, as JSON, when connections are taken; removed at the end.",
)
_bind = click.option("--bind", help="Address to listen on.  [0.0.0.0]")
_cluster = click.option("--cluster", help="Cluster of the brokers.  [DefaultCluster]")


@click.command(name="broker", short_help="Run a broker.")
@click.option("--namesrv", help="Name servers to register with, as host:port;host:port.")
@click.option("--port", type=int, help="Port to listen on; 0 for any free one.  [10911]")
@_bind
@click.option("--advertise", help="Host that clients are told to connect to.")
@click.option("--data", help="Directory of the store.  [~/store]")
@click.option("--name", help="Name of the broker.  [broker-a]")
@_cluster
@_file
@_set
@_ready_file
@click.option("--tethered", is_flag=True, hidden=True, help="Stop when stdin ends.")
@logging_options
def broker(
    namesrv: str | None,
    port: int | None,
    bind: str | None,
    advertise: str | None,
    data: str | None,
    name: str | None,
    cluster: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    ready_file: Path | None,
    tethered: bool,
) -> None:
    """Run a broker until SIGINT or SIGTERM.

    KEY is the name of a setting, ours (flush.mode) or RocketMQ's (flushDiskType).
    """
    from gantrymq.broker.app import BrokerServer
    from gantrymq.net import aio

    given = {
        "registering.name_servers": namesrv,
        "listen.port": port,
        "listen.bind": bind,
        "listen.advertise": advertise,
        "data": data,
        "identity.name": name,
        "identity.cluster": cluster,
    }
    loaded = load_broker(file, settings, given)
    warn_of_unknown(loaded, file)
    server = BrokerServer(loaded.value)

    def ready() -> Ready:
        facts = {"namesrv": loaded.value.registering.name_servers, "pid": os.getpid()}
        listening = ", ".join(server.addresses)
        line = f"broker {loaded.value.identity.name} ready on {listening}"
        if tethered:
            line = json.dumps(_facts(server))
        return Ready(line, facts | {"brokers": [_facts(server)]})

    aio.run(serve(_Tethered(server) if tethered else server, ready, ready_file))


@click.command(name="up", short_help="Run a name server and brokers.")
@click.option("--data", help=f"Directory for what is kept.  [{DATA}]")
@click.option("--namesrv-port", type=int, help="Port of the name server; 0 for any.  [9876]")
@click.option("--broker-port", type=int, help="Port of the first broker; 0 for any.  [10911]")
@click.option("--brokers", "count", type=click.IntRange(1, _MOST), help="How many brokers.  [1]")
@click.option("--broker-name", "names", multiple=True, help="Name of a broker.  [broker-a]")
@_cluster
@_bind
@_ready_file
@_file
@click.option(
    "--namesrv-config",
    "namesrv_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML file, or RocketMQ's namesrv.conf, for the name server alone.",
)
@_set
@logging_options
def up(
    data: str | None,
    namesrv_port: int | None,
    broker_port: int | None,
    count: int | None,
    names: tuple[str, ...],
    cluster: str | None,
    bind: str | None,
    ready_file: Path | None,
    file: Path | None,
    namesrv_file: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Run a name server and brokers until SIGINT or SIGTERM.

    KEY is the name of a broker's setting, ours (flush.mode) or RocketMQ's (flushDiskType); behind
    "namesrv." it is one of the name server. In a TOML file those are in the table "namesrv".
    """
    from gantrymq.net import aio

    directory = Path(data or DATA).expanduser()
    of_name_server, of_broker = _split(settings)
    name_server = load_name_server(
        file,
        of_name_server,
        {
            "listen.port": namesrv_port,
            "listen.bind": bind,
            "files.data": str(directory / NAME_SERVER),
        },
        namesrv_file,
    )
    shared = {"listen.port": broker_port, "listen.bind": bind, "identity.cluster": cluster}
    own = {"store.log.segment_size": SEGMENT, "topics.trace": True}
    loaded = load_broker(file, of_broker, shared, own)
    all_names = broker_names(names, count, loaded.value.identity.name)
    plan = Plan(
        name_server=name_server.value,
        broker=loaded.value,
        directory=directory,
        names=all_names,
        store=own_store(loaded, data, len(all_names)),
    )
    warn_of_unknown(loaded, file)
    warn_of_unknown(name_server, namesrv_file)
    fleet: Fleet = InOneProcess(plan)
    if len(plan.names) > 1:
        fleet = InProcesses(plan, _passed_on(file, of_broker, cluster=cluster))
    together = Together(plan, fleet)

    def ready() -> Ready:
        address, facts = together.name_server.address, together.brokers.facts
        there = ", ".join(f"broker {one['name']} on {one['address']}" for one in facts)
        line = f"gantry is ready: name server on {address}, {there}"
        known = {"namesrv": address, "brokers": facts, "pid": os.getpid()}
        return Ready(line, known | {"metrics": together.metrics})

    aio.run(serve(together, ready, ready_file))


# --- settings -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What `gantry up` is to run."""

    name_server: NameServerConfig
    broker: BrokerConfig
    """What all brokers have in common."""
    directory: Path
    names: Sequence[str]
    store: str | None = None
    """Where the store of the one broker is, if that is not below `directory`."""

    @property
    def one_page(self) -> bool:
        """Whether name server and broker are measured on one page: that of the broker."""
        from gantrymq.net.scraping import MetricsConfig

        return len(self.names) == 1 and self.name_server.metrics == MetricsConfig()

    def config(self, number: int, name_server: str) -> BrokerConfig:
        """The settings of one of the brokers."""
        common, name = self.broker, self.names[number]
        port = common.listen.port and common.listen.port + number * PORT_STEP
        page = common.metrics.port and common.metrics.port + number
        others = common.registering.name_servers
        all_of_them = f"{name_server};{others}" if others else name_server
        return replace(
            common,
            data=self.store or str(self.directory / name),
            metrics=replace(common.metrics, port=page),
            identity=replace(common.identity, name=name),
            listen=replace(
                common.listen, port=port, advertise=common.listen.advertise or self._own_host()
            ),
            registering=replace(common.registering, name_servers=all_of_them),
        )

    def _own_host(self) -> str:
        return "" if self.broker.registering.name_servers else _OWN_HOST


def load_broker(
    file: Path | None,
    settings: Sequence[str],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Loaded[BrokerConfig]:
    """A broker's settings from all sources; `defaults` are used where none of them says more."""
    from gantrymq.broker.config import VARIABLES, BrokerConfig
    from gantrymq.nameserver.config import read_file
    from gantrymq.settings import load

    tree, properties = ({}, {}) if file is None else read_file(file)
    tree = {key: value for key, value in tree.items() if key != NAME_SERVER}
    flags = own_names(BrokerConfig, assignments(tuple(settings))) | _given(given)
    return load(
        BrokerConfig,
        file={**(defaults or {}), **tree},
        properties=properties,
        environ=os.environ,
        prefix=VARIABLES,
        flags=flags,
    )


def load_name_server(
    file: Path | None,
    settings: Sequence[str],
    given: Mapping[str, Any],
    own_file: Path | None = None,
) -> Loaded[NameServerConfig]:
    """The settings of the name server of `gantry up`; of a broker.conf it reads nothing."""
    from gantrymq.nameserver.config import VARIABLES, NameServerConfig, read_file
    from gantrymq.settings import load

    tree = {} if file is None else read_file(file)[0].get(NAME_SERVER, {})
    own_tree, properties = ({}, {}) if own_file is None else read_file(own_file)
    flags = own_names(NameServerConfig, assignments(tuple(settings))) | _given(given)
    return load(
        NameServerConfig,
        file={**tree, **own_tree},
        properties=properties,
        environ=os.environ,
        prefix=VARIABLES,
        flags=flags,
    )


def own_store(loaded: Loaded[BrokerConfig], data: str | None, brokers: int) -> str | None:
    """The store that a broker.conf or a setting names, where `--data` does not name another."""
    if data is not None or loaded.origins["data"] == "default":
        return None
    if brokers > 1:
        raise ConfigError(f"{brokers} brokers cannot share {loaded.value.data}; give --data")
    return loaded.value.data


def own_names(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The same values under our names, where they are under RocketMQ's."""
    from gantrymq.settings import rows

    by_alias = {row.alias.key: row for row in rows(kind) if row.alias is not None}
    found: dict[str, Any] = {}
    for name, value in values.items():
        row = by_alias.get(name)
        if row is None or row.alias is None:
            found[name] = value
        else:
            found[row.path] = row.alias.convert(str(value))
    return found


def broker_names(names: Sequence[str], count: int | None, first: str) -> list[str]:
    """The names of that many brokers, those that were given before those that are made up."""
    made_up = [first, *(f"broker-{chr(ord('a') + number)}" for number in range(_MOST))]
    free = [name for name in dict.fromkeys(made_up) if name not in names]
    wanted = max(1, len(names)) if count is None else count
    if len(names) > wanted:
        raise ConfigError(f"--broker-name was given {len(names)} times for {wanted} brokers")
    if len(set(names)) < len(names):
        raise ConfigError(f"two brokers cannot have one name: {', '.join(names)}")
    return [*names, *free][:wanted]


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _split(settings: Sequence[str]) -> tuple[list[str], list[str]]:
    """The settings of the name server, and those of brokers."""
    prefix = f"{NAME_SERVER}."
    of_name_server = [one.removeprefix(prefix) for one in settings if one.startswith(prefix)]
    return of_name_server, [one for one in settings if not one.startswith(prefix)]


def _passed_on(file: Path | None, settings: Sequence[str], *, cluster: str | None) -> list[str]:
    """The options that every child gets as they came."""
    level = logging.getLevelName(logging.getLogger().level).lower()
    options = ["--log-format", "json" if logs.in_json() else "text", "--log-level", level]
    options += [] if file is None else ["--config", str(file)]
    for one in settings:
        options += ["--set", one]
    return options if cluster is None else [*options, "--cluster", cluster]


# --- what is served -------------------------------------------------------------------------------


def _facts(server: BrokerServer) -> dict[str, object]:
    ours = server.config.identity
    return {
        "name": ours.name,
        "id": ours.id,
        "address": server.address,
        "metrics": server.metrics and server.metrics.url,
    }


class Fleet(Protocol):
    """Brokers that come and go together."""

    facts: list[dict[str, object]]
    """What the ready file says of each, when they have started."""

    async def start(self, name_server: NameServer) -> None:
        """Return when they are ready."""
        ...

    async def close(self, grace: float | None) -> None:
        """Return when they have ended."""
        ...


class Together:
    """A name server, and the brokers that register with it."""

    def __init__(self, plan: Plan, brokers: Fleet) -> None:
        from gantrymq.nameserver.app import NameServer

        config = plan.name_server
        if plan.one_page:
            config = replace(config, metrics=replace(config.metrics, enabled=False))
        self.name_server: NameServer = NameServer(config)
        self.brokers = brokers
        self._one_page = plan.one_page

    @property
    def metrics(self) -> object:
        """Where the name server is measured."""
        if self._one_page:
            return self.brokers.facts[0]["metrics"]
        return self.name_server.metrics and self.name_server.metrics.url

    async def start(self) -> None:
        """Return when all of them are ready."""
        await self.name_server.start()
        try:
            await self.brokers.start(self.name_server)
        except BaseException:
            await self.close(grace=0)
            raise

    async def close(self, *, grace: float | None = None) -> None:
        """End the brokers, and then the name server, which brokers say goodbye to."""
        try:
            await self.brokers.close(grace)
        finally:
            await self.name_server.close(grace=grace)


class InOneProcess:
    """One broker, on the same loop."""

    def __init__(self, plan: Plan) -> None:
        self.facts: list[dict[str, object]] = []
        self._plan = plan
        self._server: BrokerServer | None = None

    async def start(self, name_server: NameServer) -> None:
        """Return when the broker is ready."""
        from gantrymq.broker.app import BrokerServer

        neighbours = [name_server.measured()] if self._plan.one_page else []
        config = self._plan.config(0, name_server.address)
        server = BrokerServer(config, neighbours=neighbours)
        await server.start()
        self._server = server
        self.facts = [_facts(server)]

    async def close(self, grace: float | None) -> None:
        """End the broker, if it began."""
        if self._server is not None:
            await self._server.close(grace=grace)


class InProcesses:
    """Several brokers, each a process."""

    def __init__(self, plan: Plan, options: Sequence[str]) -> None:
        """`options` are for every one of them."""
        self.facts: list[dict[str, object]] = []
        self._plan = plan
        self._options = options
        self._children: list[asyncio.subprocess.Process] = []
        self._watches: list[asyncio.Task[None]] = []

    async def start(self, name_server: NameServer) -> None:
        """Start all, then wait for each to say that it is ready."""
        plan = self._plan
        configs = [plan.config(n, name_server.address) for n in range(len(plan.names))]
        for config in configs:
            self._children.append(await self._spawn(config))
        for config, child in zip(configs, self._children, strict=True):
            self.facts.append(await _said(child, config.identity.name))
            watch = self._watch(child, config.identity.name)
            self._watches.append(asyncio.create_task(watch))

    async def close(self, grace: float | None) -> None:
        """Ask all to stop, and wait until they have; where there is no time, ask twice."""
        for task in self._watches:
            task.cancel()
        for child in self._children:
            for _ in range(2 if grace == 0 else 1):
                if child.returncode is None:
                    child.send_signal(signal.SIGTERM)
        await asyncio.gather(*(child.wait() for child in self._children))

    async def _watch(self, child: asyncio.subprocess.Process, name: str) -> None:
        code = await child.wait()
        log.error("%s ended by itself with exit code %d; the others go on", name, code)

    async def _spawn(self, config: BrokerConfig) -> asyncio.subprocess.Process:
        own = {
            "--namesrv": config.registering.name_servers,
            "--port": str(config.listen.port),
            "--bind": config.listen.bind,
            "--advertise": config.listen.advertise,
            "--data": config.data,
            "--name": config.identity.name,
        }
        options = [item for pair in own.items() for item in pair]
        options += ["--set", f"store.log.segment_size={config.store.log.segment_size}"]
        if config.metrics.port is not None:
            options += ["--set", f"metrics.port={config.metrics.port}"]
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _CHILD, "broker", "--tethered", *self._options, *options),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C in the terminal is for the parent to pass on, once
        )


async def _said(child: asyncio.subprocess.Process, name: str) -> dict[str, object]:
    """What a child says of itself when it is ready."""
    assert child.stdout is not None
    line = await child.stdout.readline()
    if not line:
        raise ConfigError(f"broker {name} ended with exit code {await child.wait()}, see above")
    found: dict[str, object] = json.loads(line)
    return found


class _Tethered:
    """A broker whose parent reads its first line, and holds its stdin for as long as it lives."""

    def __init__(self, server: BrokerServer) -> None:
        self._server = server
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when it is ready."""
        await self._server.start()
        self._watch = asyncio.create_task(self._hold())

    async def close(self, *, grace: float | None = None) -> None:
        """End it."""
        if self._watch is not None:
            self._watch.cancel()
        await self._server.close(grace=grace)

    async def _hold(self) -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await reader.read()
        os.kill(os.getpid(), signal.SIGTERM)
