"""Who sent a message and who stored it, as records hold it: an address in bytes and a port.

A message's store host is where its producer reached this broker, unless an address to tell clients
was set; RocketMQ's tools ask that address when they look the message up by its id. What is found
out about a connection is kept with it.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.errors import ConfigError
from gantrymq.net.addresses import split_address

if TYPE_CHECKING:
    from gantrymq.net.peer import Peer

_KEY: Final = "broker.hosts"
_NOWHERE: Final = b"\x7f\0\0\1"


class Hosts(NamedTuple):
    """Both ends of a connection."""

    born_ip: bytes
    born_port: int
    store_ip: bytes
    store_port: int


def hosts_of(peer: Peer, advertised: tuple[bytes, int] | None) -> Hosts:
    """The hosts of messages that come from `peer`."""
    known = peer.state.get(_KEY)
    if isinstance(known, Hosts):
        return known
    found = Hosts(*host_bytes(peer.remote), *(advertised or host_bytes(peer.local)))
    peer.state[_KEY] = found
    return found


def host_bytes(address: str) -> tuple[bytes, int]:
    """An address as records hold it; what is not a number is this machine."""
    try:
        host, port = split_address(address)
        return ip_address(host.partition("%")[0]).packed, port
    except (ConfigError, ValueError):
        return _NOWHERE, 0
