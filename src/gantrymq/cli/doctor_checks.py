"""What `gantry doctor` looks at, apart from groups: name servers, brokers and what they say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gantrymq.cli import group_findings, times
from gantrymq.cli.findings import Finding, Level
from gantrymq.cli.topic_findings import dial, is_loopback, unreachable
from gantrymq.errors import GantryError

if TYPE_CHECKING:
    from gantrymq.cli.verbs import Session
    from gantrymq.flows.clusters import BrokerState

_SKEW: Final = 3.0
"""Seconds that clocks may differ; brokers tell their time in whole seconds."""
_RUNTIME: Final = re.compile(r"(\d+) days?, (\d+) hours?, (\d+) minutes?, (\d+) seconds?")
_FULL, _FILLING, _EARLY = 0.90, 0.85, 0.75
_FEATURES: Final = {
    "enablePropertyFilter": ("true", "consumers that filter by SQL92 are refused"),
    "traceTopicEnable": ("true", "brokers make no topic for message traces"),
    "recallMessageEnable": ("true", "delayed messages cannot be taken back"),
    "timerWheelEnable": ("true", "messages can be delayed by levels alone, not to any time"),
    "rejectTransactionMessage": ("false", "transaction messages are refused"),
    "messageIndexEnable": ("true", "messages cannot be found by key or unique id"),
}
"""Settings, the value with which a feature works, and what does not work otherwise."""
_RISKS: Final = {
    "autoCreateTopicEnable": ("true", "a topic that is misspelled is made, and nobody reads it"),
    "flushDiskType": ("ASYNC_FLUSH", "a send is acknowledged before it is on the disk: when the "
                      "machine dies, the last moments are lost"),
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Scene:
    """A cluster as it is now."""

    session: Session
    states: list[BrokerState]
    configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)


def look(session: Session) -> Scene:
    """See how a cluster is now."""
    admin = session.admin
    scene = Scene(session=session, states=admin.describe_cluster())
    for state in scene.states:
        if state.error is None and state.place.is_master:
            try:
                scene.configs[state.place.name] = admin.broker_config(state.place.address)
            except GantryError:
                continue  # that it does not say is told by the checks that need it
    held = admin.list_groups()
    scene.groups = sorted({group for by_group in held.answers.values() for group in by_group})
    return scene


def _finding(level: Level, check: str, subject: str, text: str, remedy: str = "") -> Finding:
    return Finding(level=level, check=check, subject=subject, text=text, remedy=remedy)


# --- the cluster ----------------------------------------------------------------------------------


def name_servers(scene: Scene) -> Iterator[Finding]:
    """Each has to answer, and to know the same brokers."""
    from gantrymq.protocol.routing import GetClusterInfo
    from gantrymq.runtime import run_blocking

    reach = scene.session.admin.reach
    known: dict[str, frozenset[tuple[str, int, str]]] = {}
    for address in reach.name_servers:
        try:
            info = run_blocking(reach.ask(address, GetClusterInfo()))
        except GantryError as error:
            yield _finding(
                Level.ERROR,
                "namesrv",
                address,
                f"it does not answer: {error}",
                "start it, or take it out of the list of name servers",
            )
            continue
        known[address] = frozenset(
            (name, number, at)
            for name, data in info.brokers.items()
            for number, at in data.addresses.items()
        )
    if len(set(known.values())) > 1:
        every = frozenset().union(*known.values())
        for address, brokers in known.items():
            missing = ", ".join(sorted({name for name, _, _ in every - brokers}))
            if missing:
                yield _finding(
                    Level.ERROR,
                    "namesrv",
                    address,
                    f"it does not know {missing}, which another name server knows",
                    "let every broker register with every name server (namesrvAddr)",
                )
    elif known:
        brokers = next(iter(known.values()))
        text = f"{len(known)} answer, and know {len(brokers)} brokers"
        yield _finding(Level.OK, "namesrv", ";".join(known), text)


def versions(scene: Scene) -> Iterator[Finding]:
    """Brokers of one cluster should be of one release."""
    found: dict[str, list[str]] = {}
    for state in scene.states:
        if state.version is not None:
            found.setdefault(state.version, []).append(state.place.name)
    if len(found) > 1:
        each = "; ".join(f"{version}: {', '.join(names)}" for version, names in found.items())
        yield _finding(
            Level.WARNING,
            "versions",
            "cluster",
            f"brokers are of different releases ({each})",
            "finish the upgrade: what a message can do depends on which broker it meets",
        )
    for version, names in found.items():
        if version.startswith("4."):
            yield _finding(
                Level.INFO,
                "versions",
                ", ".join(names),
                f"release {version} has no message types, no delays to any time, no POP",
                "upgrade to 5.x when one of these is wanted",
            )
        elif len(found) == 1:
            yield _finding(Level.OK, "versions", "cluster", f"all brokers are {version}")


# --- each broker ----------------------------------------------------------------------------------


def answering(_scene: Scene, state: BrokerState) -> Iterator[Finding]:
    """A broker that is registered has to answer, and to be active."""
    if state.error is not None:
        yield _finding(
            Level.ERROR,
            "broker",
            state.place.name,
            f"it is registered, but does not answer: {state.error}",
            "does it run? A broker that died is forgotten by name servers after two minutes",
        )
    elif state.is_active is False:
        yield _finding(
            Level.ERROR,
            "broker",
            state.place.name,
            "it runs, but takes no part (brokerActive=false)",
            "look at its log: it may be waiting for a controller or for its master",
        )


def ports(scene: Scene, state: BrokerState) -> Iterator[Finding]:
    """What a broker tells clients to connect to has to be reached from here."""
    place = state.place
    why = dial(scene.session, place.address)
    if why is not None:
        yield unreachable(place.name, place.address, why)
        return
    servers = scene.session.admin.reach.name_servers
    if is_loopback(place.address) and not all(map(is_loopback, servers)):
        yield _finding(
            Level.ERROR,
            "address",
            place.name,
            f"it tells clients to connect to {place.address}: only its own machine reaches that",
            "have it advertise the address of a network (brokerIP1, --advertise)",
        )
    host, _, port = place.address.rpartition(":")
    if (why := dial(scene.session, f"{host}:{int(port) - 2}")) is not None:
        yield _finding(
            Level.INFO,
            "ports",
            place.name,
            f"its fast port {int(port) - 2} is not reached: {why}",
            "needed only by clients with vipChannelEnabled=true",
        )


def clocks(_scene: Scene, state: BrokerState) -> Iterator[Finding]:
    """Delays, time ranges and retention go by the brokers' clocks."""
    theirs = clock_of(state.facts or {})
    if theirs is None:
        if state.error is None:
            yield _finding(Level.UNKNOWN, "clock", state.place.name, "it does not tell its time")
        return
    skew = (theirs - times.now_ms()) / 1000
    if abs(skew) > _SKEW:
        where = "ahead of" if skew > 0 else "behind"
        yield _finding(
            Level.WARNING,
            "clock",
            state.place.name,
            f"its clock is about {times.span_text(abs(skew))} {where} the one here",
            "let both machines follow a time server (NTP): delays and time ranges are off by it",
        )
    else:
        yield _finding(Level.OK, "clock", state.place.name, "its clock and the one here agree")


def clock_of(facts: Mapping[str, str]) -> int | None:
    """The time of a broker in ms: when it began, and how long that is ago, by its own word."""
    spent = _RUNTIME.search(facts.get("runtime", ""))
    began = facts.get("bootTimestamp", "")
    if spent is None or not began.isdigit():
        return None
    days, hours, minutes, seconds = map(int, spent.groups())
    return int(began) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + 500


def disks(scene: Scene, state: BrokerState) -> Iterator[Finding]:
    """A broker whose disk fills up removes messages early, and then takes none."""
    ratio, name = state.disk_ratio, state.place.name
    if ratio is None or ratio < 0:
        if state.error is None:
            yield _finding(Level.UNKNOWN, "disk", name, "it does not tell how full its disk is")
        return
    room = (state.facts or {}).get("commitLogDirCapacity", "").strip(" .")
    text = f"its disk is {100 * ratio:.0f} % full ({room})" if room else f"{100 * ratio:.0f} % full"
    remedy = (
        "gantry topic top and gantry storage du tell what takes it; free or add disk, or keep "
        f"messages shorter: gantry broker config set {name} fileReservedTime=24"
    )
    limit = _limit(scene.configs.get(name, {}))
    if ratio >= _FULL:
        yield _finding(Level.ERROR, "disk", name, f"{text}: from 90 % on it takes no more", remedy)
    elif ratio >= _FILLING:
        text += ": from 85 % on it removes the oldest messages, whatever their age"
        yield _finding(Level.ERROR, "disk", name, text, remedy)
    elif ratio >= limit:
        text += (
            f": from {100 * limit:.0f} % on it removes messages that are past their time at once"
        )
        yield _finding(Level.WARNING, "disk", name, text, remedy)
    else:
        yield _finding(Level.OK, "disk", name, text)


def _limit(config: Mapping[str, str]) -> float:
    text = config.get("diskMaxUsedSpaceRatio", "")
    return int(text) / 100 if text.isdigit() else _EARLY


def features(scene: Scene, state: BrokerState) -> Iterator[Finding]:
    """What is switched off fails late: when somebody needs it."""
    name = state.place.name
    config = scene.configs.get(name)
    if config is None:
        if state.error is None and state.place.is_master:
            yield _finding(Level.UNKNOWN, "features", name, "it does not tell its settings")
        return
    for key, (wanted, otherwise) in _FEATURES.items():
        if config.get(key, wanted).lower() != wanted:
            remedy = f"gantry broker config set {name} {key}={wanted} (some need a restart)"
            text = f"{key}={config[key]}: {otherwise}"
            yield _finding(Level.INFO, "features", name, text, remedy)
    for key, (value, means) in _RISKS.items():
        if config.get(key) == value:
            yield _finding(Level.INFO, "features", name, f"{key}={value}: {means}")
    if config.get("brokerPermission", "6") != "6":
        text = f"brokerPermission={config['brokerPermission']}: it is not read and written as usual"
        yield _finding(Level.WARNING, "features", name, text, f"gantry broker undrain {name}")


CLUSTER_CHECKS: Final[Mapping[str, Callable[[Scene], Iterator[Finding]]]] = {
    "namesrv": name_servers,
    "versions": versions,
}
BROKER_CHECKS: Final[Mapping[str, Callable[[Scene, BrokerState], Iterator[Finding]]]] = {
    "broker": answering,
    "ports": ports,
    "clock": clocks,
    "disk": disks,
    "features": features,
}
GROUP_CHECKS: Final[
    Mapping[str, tuple[Callable[[group_findings.Scene], Iterator[Finding]], ...]]
] = {
    "members": (group_findings.let_in, group_findings.somebody),
    "divergence": (group_findings.agreed,),
    "unowned": (group_findings.owned,),
    "lag": (group_findings.getting_on, group_findings.behind, group_findings.given_up),
}
