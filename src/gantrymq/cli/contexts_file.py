"""The file of named clusters, and which cluster a command is for.

```toml
current = "prod"

[contexts.prod]
url = "rmq://mq1:9876;mq2:9876"
tls = true
```

A context holds what a client can be told (see the settings of clients), and a `url`. The first of
these that says something wins: `--namesrv`, `--context`, `GANTRY_CONTEXT`, `GANTRY_URL` or
`NAMESRV_ADDR`, the current context of the file, and last `localhost:9876`. The file is
`GANTRY_CONFIG`, or `gantry/config.toml` where the user's settings are. Only its owner can read it.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gantrymq.errors import ConfigError

HERE: Final = "localhost:9876"
SECRETS: Final = frozenset({"secret_key", "security_token", "tls_key_password"})


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that a command is for, and who said so."""

    url: str | None
    arguments: Mapping[str, Any]
    origin: str

    @property
    def known(self) -> str:
        """What to call it, without secrets."""
        from gantrymq.client.config import load_config

        config = load_config(self.url, arguments=self.arguments)
        return ";".join(config.name_servers)


@dataclass(slots=True)
class Contexts:
    """What the file has."""

    path: Path
    current: str | None = None
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)

    def get(self, name: str) -> dict[str, Any]:
        """One context."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise ConfigError(f"no context is called {name!r} in {self.path}; there is: {known}")
        return self.contexts[name]

    def save(self) -> None:
        """Write the file: whole or not at all, for its owner only."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(self.text())
        fresh.replace(self.path)

    def text(self) -> str:
        """The file's text."""
        lines = [f"current = {_toml(self.current)}\n"] if self.current is not None else []
        for name, settings in sorted(self.contexts.items()):
            lines.append(f"\n[contexts.{_toml(name)}]\n")
            lines += [f"{key} = {_toml(value)}\n" for key, value in settings.items()]
        return "".join(lines)


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the file is."""
    if given := environ.get("GANTRY_CONFIG"):
        return Path(given)
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "gantry" / "config.toml"


def load(path: Path) -> Contexts:
    """Read the file; without one there are no contexts."""
    try:
        with path.open("rb") as file:
            tree = tomllib.load(file)
    except FileNotFoundError:
        return Contexts(path)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is no TOML: {error}") from error
    contexts = tree.get("contexts", {})
    if not isinstance(contexts, dict) or not all(isinstance(c, dict) for c in contexts.values()):
        raise ConfigError(f"{path}: contexts has to hold tables, such as [contexts.prod]")
    current = tree.get("current")
    if current is not None and current not in contexts:
        raise ConfigError(f"{path}: the current context {current!r} is not there")
    return Contexts(path, current, contexts)


def target(
    namesrv: str | None, context: str | None, environ: Mapping[str, str] = os.environ
) -> Target:
    """The cluster that is meant."""
    if namesrv is not None:
        return _at(namesrv, "--namesrv")
    if context is not None:
        return _from_context(load(config_path(environ)), context, "--context")
    if name := environ.get("GANTRY_CONTEXT"):
        return _from_context(load(config_path(environ)), name, "GANTRY_CONTEXT")
    for variable in ("GANTRY_URL", "NAMESRV_ADDR", "GANTRY_CLIENT_NAME_SERVERS"):
        if environ.get(variable, "").strip():
            return Target(None, {}, variable)
    file = load(config_path(environ))
    if file.current is not None:
        return _from_context(file, file.current, f"current in {file.path}")
    return Target(None, {"name_servers": HERE}, "nobody said: this machine")


def _at(place: str, origin: str) -> Target:
    if "://" in place:
        return Target(place, {}, origin)
    hosts = [host.strip() for host in place.replace(",", ";").split(";") if host.strip()]
    return Target("rmq://" + ";".join(hosts), {}, origin)


def _from_context(file: Contexts, name: str, said: str) -> Target:
    settings = dict(file.get(name))
    url = settings.pop("url", None)
    if url is not None and "://" not in url:
        url = f"rmq://{url}"
    return Target(url, settings, f"context {name} ({said})")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
