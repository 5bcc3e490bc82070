"""`gantry namesrv`: a server as a process of its own, from its settings to its last line.

What every server's command does is here once: settings from file, environment and flags, one line
on stdout and the ready file when connections are taken, nothing of either before; a clean stop at
SIGINT or SIGTERM, and a quick one at the second of them. Logs go to stderr, one line each.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import click

from gantrymq.errors import ConfigError
from gantrymq.observe import logs

if TYPE_CHECKING:
    from gantrymq.settings import Loaded

log = logging.getLogger("gantrymq.cli")

_SWITCH_SECONDS: Final = 0.0005
"""So long may a thread of the store keep the loop waiting; Python lets it ten times as long."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)

F = TypeVar("F", bound=Callable[..., object])


class Service(Protocol):
    """What can be served."""

    async def start(self) -> None:
        """Return when connections are taken."""
        ...

    async def close(self, *, grace: float | None = None) -> None:
        """End; requests under way have `grace` seconds."""
        ...


class Ready(NamedTuple):
    """What is said when connections are taken."""

    line: str
    facts: Mapping[str, object]


def logging_options(command: F) -> F:
    """Give a command `--log-format` and `--log-level`, which hold from its very beginning."""

    def set_format(_ctx: click.Context, _option: click.Parameter, form: logs.Form) -> None:
        logs.to_stderr(form)

    def set_level(_ctx: click.Context, _option: click.Parameter, level: str) -> None:
        logging.getLogger().setLevel(level.upper())

    return click.option(
        "--log-format",
        type=click.Choice(logs.FORMS),
        default="text",
        show_default=True,
        envvar="GANTRY_LOG_FORMAT",
        is_eager=True,
        expose_value=False,
        callback=set_format,
        help="One line for each record, on stderr.",
    )(
        click.option(
            "--log-level",
            type=click.Choice(logs.LEVELS),
            default="info",
            show_default=True,
            envvar="GANTRY_LOG_LEVEL",
            expose_value=False,
            callback=set_level,
            help="The least that is told.",
        )(command)
    )


@click.command(name="namesrv", short_help="Run a name server.")
@click.option("--port", type=int, help="Port to listen on; 0 for any free one.  [9876]")
@click.option("--bind", help="Address to listen on.  [0.0.0.0]")
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A TOML file, or RocketMQ's namesrv.conf.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="One setting more.")
@click.option("--data", help="Directory for what is kept.  [~/namesrv]")
@click.option(
    "--ready-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Written, as JSON, when connections are taken; removed at the end.",
)
@logging_options
def namesrv(
    port: int | None,
    bind: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    data: str | None,
    ready_file: Path | None,
) -> None:
    """Run a name server until SIGINT or SIGTERM.

    Brokers register with it, clients ask it where topics are. KEY is the name of a setting, ours
    (routes.order) or RocketMQ's (orderMessageEnable).
    """
    from gantrymq.nameserver.app import NameServer
    from gantrymq.nameserver.config import load_config
    from gantrymq.net import aio

    given = {"listen.port": port, "listen.bind": bind, "files.data": data}
    flags = assignments(settings) | {
        key: value for key, value in given.items() if value is not None
    }
    loaded = load_config(file, environ=os.environ, flags=flags)
    warn_of_unknown(loaded, file)
    server = NameServer(loaded.value)

    def ready() -> Ready:
        facts = {"namesrv": server.address, "brokers": [], "pid": os.getpid()}
        facts |= {"metrics": server.metrics and server.metrics.url}
        return Ready(f"name server ready on {', '.join(server.addresses)}", facts)

    aio.run(serve(server, ready, ready_file))


def assignments(texts: tuple[str, ...]) -> dict[str, Any]:
    """The settings that `--set key=value` options make."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set takes KEY=VALUE, not {text!r}")
        found[key.strip()] = value.strip()
    return found


async def serve(service: Service, ready: Callable[[], Ready], ready_file: Path | None) -> None:
    """Start `service`, say so when it is ready, and stop at a signal."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    with signals() as stop, announcing(ready_file) as announce:
        if not await _started(service, stop):
            log.info("stopped before it was ready")
            return
        try:
            announce(ready())
            gc.collect()
            gc.freeze()  # what is there now stays, so nobody need look at it again
            await stop.first.wait()
        except BaseException:
            await service.close(grace=0)
            raise
        log.info("stopping")
        closing = asyncio.create_task(service.close())
        second = asyncio.create_task(stop.second.wait())
        await asyncio.wait((closing, second), return_when=asyncio.FIRST_COMPLETED)
        second.cancel()
        if not closing.done():
            log.warning("stopping at once")
            closing.cancel()
            await asyncio.wait((closing,))
            await service.close(grace=0)
        elif (error := closing.exception()) is not None:
            raise error


async def _started(service: Service, stop: Stop) -> bool:
    """Start `service`; whether it came to that before somebody asked to stop."""
    starting = asyncio.ensure_future(service.start())
    asked = asyncio.create_task(stop.first.wait())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()  # what it had begun it gives up by itself
    await asyncio.wait((starting,))
    return False


class Stop:
    """The first request to stop, and the one that does not want to wait any longer."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()

    def ask(self) -> None:
        """Somebody asks."""
        (self.second if self.first.is_set() else self.first).set()


@contextlib.contextmanager
def signals() -> Iterator[Stop]:
    """Take SIGINT and SIGTERM as requests to stop."""
    loop, stop = asyncio.get_running_loop(), Stop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.ask)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def announcing(ready_file: Path | None) -> Iterator[Callable[[Ready], None]]:
    """Gives what says that a server is ready; the ready file is there only as long as that holds.

    Who looks for the file finds all of it or nothing.
    """

    def announce(ready: Ready) -> None:
        if ready_file is not None:
            ready_file.parent.mkdir(parents=True, exist_ok=True)
            fresh = ready_file.with_name(f".{ready_file.name}.{os.getpid()}")
            fresh.write_text(json.dumps(ready.facts) + "\n", "utf-8")
            fresh.replace(ready_file)
        click.echo(ready.line)

    if ready_file is None:
        yield announce
        return
    ready_file.unlink(missing_ok=True)
    try:
        yield announce
    finally:
        ready_file.unlink(missing_ok=True)


def warn_of_unknown(loaded: Loaded[Any], file: Path | None) -> None:
    """Name the keys of a properties file that mean nothing here."""
    if loaded.unknown:
        log.warning("%s has keys that mean nothing here: %s", file, ", ".join(loaded.unknown))
