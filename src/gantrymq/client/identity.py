"""Who a client is: its id, the unique ids of its messages, and the process it belongs to.

A client id is `ip@instance`, or `ip@instance@unit`. The instance is the process id and a number
that no other client of the machine has, unless the user gave it a name: brokers tell the members of
a group apart by it. The address is the one that the name server is reached from.

A client belongs to the process that made it. Its sockets and tasks are of no use to a child that
is forked from it, and the child must not touch them: a client asks its `Origin` first.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from ipaddress import ip_address
from typing import Final

from gantrymq.client.config import DEFAULT_INSTANCE, ClientConfig
from gantrymq.errors import ClosedError, ConfigError
from gantrymq.net.addresses import split_address
from gantrymq.wire.message_id import UniqueIds

_LOCALHOST: Final = "127.0.0.1"


def client_id(config: ClientConfig, ip: str) -> str:
    """The id of a client with this configuration, another one each time unless it has a name."""
    instance = config.instance_name
    if instance == DEFAULT_INSTANCE:
        instance = f"{os.getpid()}#{time.monotonic_ns()}"
    unit = f"@{config.unit_name}" if config.unit_name else ""
    return f"{ip}@{instance}{unit}"


def own_ip(config: ClientConfig, local: str) -> str:
    """Our address: the one that was configured, or that of a connection's own end."""
    if config.client_ip:
        return config.client_ip
    try:
        return str(ip_address(split_address(local)[0].partition("%")[0]))
    except (ConfigError, ValueError):  # a network without addresses, such as one in memory
        return _LOCALHOST


def now_ms() -> int:
    """The wall clock, in ms since 1970."""
    return _wall() // 1_000_000


@contextmanager
def other_time(wall_ns: Callable[[], int]) -> Iterator[None]:
    """Have all clients of this process go by another clock, until the block ends."""
    global _wall
    before, _wall = _wall, wall_ns
    try:
        yield
    finally:
        _wall = before


_wall: Callable[[], int] = time.time_ns


def month_start(at_ms: int) -> int:
    """When the month of a time began, by local time."""
    local = datetime.fromtimestamp(at_ms / 1000).astimezone()
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    return int(first.timestamp() * 1000)


class _Ids:
    """The makers of unique ids in this process, one for each address: they count together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_ip: dict[bytes, UniqueIds] = {}
        self._pid = 0

    def of(self, ip: str) -> UniqueIds:
        with self._lock:
            if self._pid != os.getpid():  # a fork would otherwise go on with its parent's numbers
                self._by_ip.clear()
                self._pid = os.getpid()
            packed = _packed(ip)
            made = self._by_ip.get(packed)
            if made is None:
                loader = secrets.randbits(32)
                made = UniqueIds(packed, self._pid, loader, now_ms, month_start)
                self._by_ip[packed] = made
            return made


_IDS: Final = _Ids()
unique_ids: Final[Callable[[str], UniqueIds]] = _IDS.of
"""The maker of unique ids of messages that are sent from an address."""


def _packed(ip: str) -> bytes:
    try:
        return ip_address(ip).packed
    except ValueError:  # a host's name, which a user may give as `client_ip`
        return ip_address(_LOCALHOST).packed


class Origin:
    """The process that something was made in."""

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.pid: Final = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether that is still the process we are in."""
        return self.pid == os.getpid()

    def check(self, what: str) -> None:
        """Refuse to go on in a forked process."""
        if not self.is_here:
            raise ClosedError(
                f"{what} was made in process {self.pid} and cannot be used in process"
                f" {os.getpid()}, which was forked from it: make a new one after the fork"
            )
