"""Brokers of this machine that do not say by which host they are reached.

A machine has several hosts, and clients come by different ones: by the loopback, by a name in a
container's network, from elsewhere. A broker beside us can register with the host `0.0.0.0` (or
`[::]`), and leave it to us: every client is told the host by which it reached us, with the broker's
port. `gantry up` does so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from gantrymq.errors import ConfigError
from gantrymq.net.addresses import join_address, split_address
from gantrymq.protocol.routing import BrokerData

if TYPE_CHECKING:
    from gantrymq.net.peer import Peer

_ANY: Final = ("0.0.0.0:", "[::]:")


def is_open(address: str) -> bool:
    """Whether it leaves its host to us."""
    return address.startswith(_ANY)


def any_open(brokers: Iterable[BrokerData]) -> bool:
    """Whether some broker does."""
    return any(is_open(address) for data in brokers for address in data.addresses.values())


def dialled_host(peer: Peer) -> str:
    """The host by which a client reached us."""
    try:
        return split_address(peer.local)[0]
    except ConfigError:  # of a network that has no hosts
        return peer.local


def with_host(data: BrokerData, host: str) -> BrokerData:
    """The same for somebody who reached us by `host`."""
    if not host or not any_open((data,)):
        return data
    return BrokerData(
        cluster=data.cluster,
        name=data.name,
        addresses=addresses_with_host(data.addresses, host),
        acting_master=data.acting_master,
        zone=data.zone,
    )


def addresses_with_host(addresses: dict[int, str], host: str) -> dict[int, str]:
    """The same addresses for somebody who reached us by `host`."""
    return {
        broker_id: join_address(host, split_address(address)[1]) if is_open(address) else address
        for broker_id, address in addresses.items()
    }
