"""Settings of brokers and name servers read and changed, and the table of keys of name servers.

RocketMQ: MQAdminImpl, DefaultMQAdminExtImpl.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gantrymq.errors import InvalidInput, NotFound
from gantrymq.flows.clusters import place_of
from gantrymq.flows.reaching import Gathered, Reach, gather
from gantrymq.protocol.configs import (
    DeleteKey,
    GetBrokerConfig,
    GetKey,
    GetKeys,
    GetNameServerConfig,
    PutKey,
    UpdateBrokerConfig,
    UpdateNameServerConfig,
)

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""Where name servers keep which topics are ordered ones."""


@dataclass(frozen=True, slots=True)
class Change:
    """One setting at one place, before and after; None is "not set"."""

    place: str
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        return f"{self.place}: {self.name} {self.before} → {self.after}"


# --- brokers --------------------------------------------------------------------------------------


async def broker_config(reach: Reach, broker: str) -> dict[str, str]:
    """The settings of a broker, by its name or address."""
    place = await place_of(reach, broker)
    return (await reach.ask(place.address, GetBrokerConfig())).properties


async def alter_broker_config(
    reach: Reach, broker: str, changes: Mapping[str, str], *, dry_run: bool = False
) -> list[Change]:
    """Change settings of a running broker; what really changed, read back from it.

    A name that the broker does not have is refused here: brokers pass such names over in silence.
    """
    place = await place_of(reach, broker)
    before = (await reach.ask(place.address, GetBrokerConfig())).properties
    check_names(changes, before, f"broker {place.name}")
    if not dry_run:
        await reach.ask(place.address, UpdateBrokerConfig(properties=dict(changes)))
        after = (await reach.ask(place.address, GetBrokerConfig())).properties
        check_taken(changes, after, f"broker {place.name}")
    return differences(place.name, before, changes)


def differences(place: str, before: Mapping[str, str], changes: Mapping[str, str]) -> list[Change]:
    """What the changes change."""
    return [
        Change(place, name, before.get(name), value)
        for name, value in changes.items()
        if before.get(name) != value
    ]


def check_names(changes: Mapping[str, str], known: Mapping[str, str], whose: str) -> None:
    """Refuse settings that are not there, with the nearest that is."""
    for name in changes:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise InvalidInput(f"{whose} has no setting {name!r}{hint}")


def check_taken(changes: Mapping[str, str], after: Mapping[str, str], whose: str) -> None:
    """Refuse to say that it is done where the server's own word is another."""
    for name, value in changes.items():
        if after.get(name, "").strip().lower() != value.strip().lower():
            raise InvalidInput(
                f"{whose} took the change without an error, but {name} is {after.get(name)!r} "
                f"there, not {value!r}: it may not be changeable while the server runs, or not "
                f"understand the value"
            )


# --- name servers ---------------------------------------------------------------------------------


async def name_server_configs(reach: Reach) -> Gathered[dict[str, str]]:
    """The settings of each name server, by address."""

    async def one(address: str) -> dict[str, str]:
        return (await reach.ask(address, GetNameServerConfig())).properties

    return await gather(reach.name_servers, one)


async def alter_name_server_config(
    reach: Reach, changes: Mapping[str, str], *, dry_run: bool = False
) -> list[Change]:
    """Change settings of every name server; what changed."""
    before = (await name_server_configs(reach)).whole("read the settings", "name servers")
    for address, properties in before.items():
        check_names(changes, properties, f"name server {address}")
    if not dry_run:
        await reach.tell_name_servers(lambda: UpdateNameServerConfig(properties=dict(changes)))
        after = (await name_server_configs(reach)).whole("read the settings", "name servers")
        for address, properties in after.items():
            check_taken(changes, properties, f"name server {address}")
    return [
        change
        for address, properties in before.items()
        for change in differences(address, properties, changes)
    ]


async def put_key(reach: Reach, namespace: str, key: str, value: str) -> None:
    """Set a key in a namespace, at every name server."""
    await reach.tell_name_servers(lambda: PutKey(namespace=namespace, key=key, value=value))


async def get_key(reach: Reach, namespace: str, key: str) -> str | None:
    """The value of a key, None if there is none."""
    try:
        return (await reach.ask_name_server(GetKey(namespace=namespace, key=key))).value
    except NotFound:
        return None


async def delete_key(reach: Reach, namespace: str, key: str) -> None:
    """Drop a key at every name server."""
    await reach.tell_name_servers(lambda: DeleteKey(namespace=namespace, key=key))


async def list_keys(reach: Reach, namespace: str) -> dict[str, str]:
    """Every key of a namespace."""
    try:
        return (await reach.ask_name_server(GetKeys(namespace=namespace))).table
    except NotFound:
        return {}
