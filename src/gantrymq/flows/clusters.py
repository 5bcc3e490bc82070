"""Clusters and their brokers: who is there, which of them a command is for, how they are.

RocketMQ: MQAdminImpl, ClusterListSubCommand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from gantrymq.errors import BrokerFailure, GantryError, InvalidInput
from gantrymq.flows.reaching import Reach
from gantrymq.protocol.brokers import GetRuntimeInfo
from gantrymq.protocol.groups import Heartbeat
from gantrymq.protocol.registration import AddWritePermission, WipeWritePermission
from gantrymq.protocol.routing import ClusterInfo, GetClusterInfo

MASTER: Final = 0
_FIRST_SECOND: Final = 1.0
_NOBODY: Final = "gantry-admin"
_VERSION: Final = re.compile(r"V?(\d+)[._](\d+)[._](\d+)")


@dataclass(frozen=True, slots=True, order=True)
class BrokerPlace:
    """One broker process: a master (id 0) or a replica of it."""

    cluster: str
    name: str
    id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it takes messages."""
        return self.id == MASTER


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """How a broker is doing; what it did not say is None, and why is in `error`."""

    place: BrokerPlace
    version: str | None = None
    is_active: bool | None = None
    put_tps: float | None = None
    """Messages stored a second, over the last ten."""
    get_tps: float | None = None
    puts_today: int | None = None
    gets_today: int | None = None
    disk_ratio: float | None = None
    """How full the disk of the commit log is, from 0 to 1."""
    booted_ms: int | None = None
    oldest_ms: int | None = None
    """When the oldest message was stored."""
    waiting_sends: int | None = None
    facts: Mapping[str, str] | None = None
    """Everything it said, as it said it."""
    error: GantryError | None = None


# --- who is there ---------------------------------------------------------------------------------


async def cluster_info(reach: Reach) -> ClusterInfo:
    """The brokers by name, and their names by cluster."""
    return await reach.ask_name_server(GetClusterInfo())


async def list_brokers(reach: Reach, *, cluster: str | None = None) -> list[BrokerPlace]:
    """Every broker that is registered, masters and replicas, in the order of their names."""
    return places(await cluster_info(reach), cluster)


def places(info: ClusterInfo, cluster: str | None = None) -> list[BrokerPlace]:
    """The same out of what a name server said."""
    found: list[BrokerPlace] = []
    for name, data in info.brokers.items():
        home = data.cluster or _cluster_of(info, name)
        if cluster in (None, home):
            found += (BrokerPlace(home, name, id, at) for id, at in data.addresses.items())
    return sorted(found)


async def masters(
    reach: Reach, *, cluster: str | None = None, brokers: Collection[str] | None = None
) -> dict[str, str]:
    """The masters that a command is for, by name: those named, those of the cluster, or all.

    Where there are several clusters and nothing says which, that is an error: a topic made in the
    wrong one is worse than a question.
    """
    info = await cluster_info(reach)
    if brokers is not None:
        return {name: _master(info, name) for name in dict.fromkeys(brokers)}
    names = info.brokers
    if cluster is None and len(info.clusters) > 1:
        known = ", ".join(sorted(info.clusters))
        raise InvalidInput(f"there are {len(info.clusters)} clusters here: say which of {known}")
    if cluster is not None and cluster not in info.clusters:
        known = ", ".join(sorted(info.clusters)) or "none"
        raise InvalidInput(f"no cluster is called {cluster!r}; there is: {known}")
    if not names:
        raise InvalidInput(_NO_BROKERS)
    return {
        name: _master(info, name)
        for name in sorted(names)
        if cluster is None or cluster in (names[name].cluster, _cluster_of(info, name))
    }


async def every_master(reach: Reach) -> dict[str, str]:
    """The masters of all clusters, by name; brokers without one are left out."""
    info = await cluster_info(reach)
    return {place.name: place.address for place in places(info) if place.is_master}


async def place_of(reach: Reach, broker: str) -> BrokerPlace:
    """The broker of that name (its master) or at that address."""
    found = await list_brokers(reach)
    for place in found:
        if broker == place.address or (broker == place.name and place.is_master):
            return place
    known = ", ".join(f"{place.name} ({place.address})" for place in found) or "none"
    raise InvalidInput(f"no broker is called {broker!r}, or is at that address; there is: {known}")


_NO_BROKERS: Final = (
    "no broker has registered with this name server: is one running, and is its name server list "
    "(namesrvAddr) the one you asked?"
)


def _master(info: ClusterInfo, name: str) -> str:
    data = info.brokers.get(name)
    if data is None:
        known = ", ".join(sorted(info.brokers))
        raise InvalidInput(
            f"no broker is called {name!r}; there is: {known}" if known else _NO_BROKERS
        )
    if MASTER not in data.addresses:
        replicas = ", ".join(data.addresses.values()) or "nobody"
        raise InvalidInput(
            f"broker {name} has no master now, only replicas ({replicas}); changes need the master"
        )
    return data.addresses[MASTER]


def _cluster_of(info: ClusterInfo, broker: str) -> str:
    return next((name for name, members in info.clusters.items() if broker in members), "")


# --- how they are ---------------------------------------------------------------------------------


async def describe_cluster(reach: Reach, *, cluster: str | None = None) -> list[BrokerState]:
    """How every broker is doing; one that does not answer is there with the reason."""
    found = await list_brokers(reach, cluster=cluster)
    return [await _state(reach, place) for place in found]


async def describe_broker(reach: Reach, broker: str) -> BrokerState:
    """How one broker is doing, by its name or address."""
    place = await place_of(reach, broker)
    return state_of(place, await runtime_info(reach, place.address))


async def runtime_info(reach: Reach, address: str) -> dict[str, str]:
    """What a broker says of itself, as a table of texts.

    In its first second a broker of 4.x trips over its own empty statistics: then once more.
    """
    try:
        return (await reach.ask(address, GetRuntimeInfo())).table
    except BrokerFailure:
        await reach.runtime.sleep(_FIRST_SECOND)
        return (await reach.ask(address, GetRuntimeInfo())).table


async def _state(reach: Reach, place: BrokerPlace) -> BrokerState:
    try:
        return state_of(place, await runtime_info(reach, place.address))
    except GantryError as error:
        return BrokerState(place=place, error=error)


def state_of(place: BrokerPlace, facts: Mapping[str, str]) -> BrokerState:
    """What those texts mean."""
    return BrokerState(
        place=place,
        version=version_text(facts.get("brokerVersionDesc")),
        is_active=None if (active := facts.get("brokerActive")) is None else active == "true",
        put_tps=_first_number(facts.get("putTps")),
        get_tps=_first_number(facts.get("getTransferredTps")),
        puts_today=_difference(facts, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        gets_today=_difference(facts, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        disk_ratio=_first_number(facts.get("commitLogDiskRatio")),
        booted_ms=_whole(facts.get("bootTimestamp")),
        oldest_ms=_whole(facts.get("earliestMessageTimeStamp")),
        waiting_sends=_whole(facts.get("sendThreadPoolQueueSize")),
        facts=dict(facts),
    )


def version_text(said: str | None) -> str | None:
    """`V5_5_0` as `5.5.0`; anything else as it is."""
    found = _VERSION.fullmatch(said or "")
    return ".".join(found.groups()) if found else said


async def broker_version(reach: Reach, address: str) -> int:
    """Which release a broker is, as frames have it (see `gantrymq.wire.versions`).

    Asked by a heartbeat that says nothing: its answer is the one whose version every release sets.
    """
    return (await reach.ask(address, Heartbeat(client_id=_NOBODY))).version


def _first_number(text: str | None) -> float | None:
    try:
        return float((text or "").split()[0])
    except (ValueError, IndexError):
        return None


def _whole(text: str | None) -> int | None:
    try:
        number = int(text or "")
    except ValueError:
        return None
    return None if number < 0 else number


def _difference(facts: Mapping[str, str], now: str, before: str) -> int | None:
    later, earlier = _whole(facts.get(now)), _whole(facts.get(before))
    return None if later is None or earlier is None else max(0, later - earlier)


# --- taking a broker out of service ---------------------------------------------------------------


async def wipe_write_permission(reach: Reach, broker: str) -> dict[str, int]:
    """Have producers send no more to a broker; how many topics each name server changed.

    Consumers go on reading. It holds until `add_write_permission`, or until the broker starts
    again.
    """
    name = (await place_of(reach, broker)).name
    said = await reach.tell_name_servers(lambda: WipeWritePermission(broker=name))
    return {address: reply.count for address, reply in said.items()}


async def add_write_permission(reach: Reach, broker: str) -> dict[str, int]:
    """Have producers send to a broker again; every topic there becomes readable and writable."""
    name = (await place_of(reach, broker)).name
    said = await reach.tell_name_servers(lambda: AddWritePermission(broker=name))
    return {address: reply.count for address, reply in said.items()}
