"""Addresses as text: `host:port`, `[v6]:port`, and the list forms of RocketMQ's name servers.

An address stays a string everywhere in Gantry, because that is what routes carry; it is taken apart
only where a socket needs its halves.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from gantrymq.errors import ConfigError

_FORM: Final = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%\w]+)\]|(?P<host>[^\[\]:\s/@]*)):(?P<port>\d+)"
)
_INSTANCE: Final = re.compile(r"(?P<namespace>MQ_INST_\w+_\w+)\.(?P<rest>.+)")
_VIP_DISTANCE: Final = 2
_MOST: Final = 65_535


def split_address(address: str) -> tuple[str, int]:
    """Host and port; a v6 host loses its brackets, and an empty host means every interface."""
    match = _FORM.fullmatch(address.strip())
    if match is None:
        raise ConfigError(f"address {address!r} is not host:port or [v6]:port{_hint(address)}")
    port = int(match["port"])
    if port > _MOST:
        raise ConfigError(f"address {address!r} has port {port}; the highest is {_MOST}")
    return match["v6"] or match["host"], port


def join_address(host: str, port: int) -> str:
    """The address of `port` at `host`, with brackets around a v6 host."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def vip_address(address: str) -> str:
    """The broker's fast ("VIP") port, two below its main one; it does not serve pulls."""
    host, port = split_address(address)
    if port <= _VIP_DISTANCE:
        raise ConfigError(f"address {address!r} has no VIP port: {port} - {_VIP_DISTANCE} is none")
    return join_address(host, port - _VIP_DISTANCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServers:
    """A parsed list of name servers, and the namespace that an endpoint's name may carry."""

    addresses: tuple[str, ...]
    namespace: str | None = None


def parse_name_servers(text: str) -> NameServers:
    """Read `a:1;b:2`, `http://a:1` or `[http://]MQ_INST_<a>_<b>.<host>:port`.

    The instance form sets the namespace; the host is used with the instance as its first label,
    since that is the name that such an endpoint is registered under.
    """
    entries = [_without_scheme(part) for part in re.split(r"[;,]", text) if part.strip()]
    if not entries:
        raise ConfigError(f"no name server in {text!r}; write host:port, several joined by ';'")
    for entry in entries:
        split_address(entry)
    instances = (_INSTANCE.fullmatch(entry) for entry in entries)
    namespaces = {instance["namespace"] for instance in instances if instance}
    if len(namespaces) > 1:
        raise ConfigError(f"name servers of several instances: {', '.join(sorted(namespaces))}")
    return NameServers(
        addresses=tuple(dict.fromkeys(entries)), namespace=next(iter(namespaces), None)
    )


def _without_scheme(entry: str) -> str:
    return entry.strip().removeprefix("http://").rstrip("/")


def _hint(address: str) -> str:
    if address.count(":") > 1:
        return "; a v6 host needs brackets, as in [::1]:10911"
    if ":" not in address:
        return "; the port is missing"
    return ""
