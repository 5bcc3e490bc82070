"""Platforms that run inside this process, which clients reach by a host name of their own.

A test that starts a whole platform in memory gives programs under test a URL, as any platform has
one: `rmq://gantry-1.inside:9876`. Clients look here before they turn to TCP, so a program needs no
other code to be tested than to be run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gantrymq.client.config import ClientConfig
from gantrymq.net.addresses import split_address
from gantrymq.net.network import Network

if TYPE_CHECKING:
    from gantrymq.client.loop_thread import LoopThread


@dataclass(frozen=True, slots=True)
class Inside:
    """How clients reach one of them."""

    network: Network
    thread: LoopThread | None = None
    """Where it runs, if that is a thread of its own; else it shares the loop of its clients."""


_HOSTS: Final[dict[str, Inside]] = {}


@contextmanager
def hosting(host: str, inside: Inside) -> Iterator[None]:
    """Have clients of name servers at `host` find the platform, until the block ends."""
    if host in _HOSTS:
        raise ValueError(f"there is a platform at {host} already")
    _HOSTS[host] = inside
    try:
        yield
    finally:
        del _HOSTS[host]


def inside_of(config: ClientConfig) -> Inside | None:
    """The platform in this process that a client with such settings is meant for, if it is one."""
    if not _HOSTS or not config.name_servers:
        return None
    return _HOSTS.get(split_address(config.name_servers[0])[0])
