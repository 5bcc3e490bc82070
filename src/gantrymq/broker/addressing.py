"""Which address the broker tells others to come to.

Unless it is set, its host is the one by which they reach us:

- for a name server elsewhere, our end of the connection to it;
- where that is the loopback, the machine's own address: clients elsewhere could do nothing with the
  other. Only a broker that listens on the loopback alone says so;
- `0.0.0.0`, where it is set, leaves the host to the name server. Ours, on the same machine, then
  tells every client the host by which that client reached it.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final

from gantrymq.errors import ConfigError
from gantrymq.net.addresses import join_address, split_address

ANY: Final = "0.0.0.0"
LOOPBACK: Final = "127.0.0.1"
_WILDCARDS: Final = ("", ANY, "::")
_FAR_AWAY: Final = ("192.0.2.1", 9)
"""An address that is nobody's. Nothing is sent there."""


def is_wildcard(host: str) -> bool:
    """Whether this stands for every address of the machine."""
    return host in _WILDCARDS


def local_address(listening: str) -> str:
    """Where programs on this machine reach what listens there."""
    host, port = split_address(listening)
    return join_address(LOOPBACK if is_wildcard(host) else host, port)


def set_address(advertise: str, port: int) -> str:
    """The address that was set, with our port unless one was set, too."""
    try:
        return join_address(*split_address(advertise))
    except ConfigError:
        return join_address(advertise, port)


def found_address(bind: str, port: int, local: str) -> str:
    """The address for somebody whose connection ends at `local` here."""
    if not is_wildcard(bind):
        return join_address(bind, port)
    host = _host(local)
    return join_address(_own_host() if host is None or _is_loopback(host) else host, port)


def _host(address: str) -> str | None:
    try:
        return split_address(address)[0]
    except ConfigError:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _own_host() -> str:
    """The address by which this machine would go out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_FAR_AWAY)  # of a datagram socket: nothing is sent
        except OSError:
            return LOOPBACK
        return str(probe.getsockname()[0])


def resolve(address: str) -> tuple[bytes, int] | None:
    """The same in bytes, as stored messages hold it; None if it stands for every address."""
    host, port = split_address(address)
    if is_wildcard(host):
        return None
    try:
        return ip_address(host).packed, port
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise ConfigError(f"listen.advertise: {host} is not known: {error}") from error
    return ip_address(found).packed, port
