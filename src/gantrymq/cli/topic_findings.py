"""What is wrong with a topic, if anything: is it there, can it be reached, sent to and read."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from gantrymq.cli.findings import Finding, Level
from gantrymq.errors import GantryError, TopicNotFound

if TYPE_CHECKING:
    from gantrymq.cli.verbs import Session
    from gantrymq.protocol.routing import TopicRoute

_LOOPBACK: Final = ("127.", "localhost", "[::1]", "::1", "0.0.0.0")


def explain_topic(session: Session, topic: str) -> list[Finding]:
    """What there is to say of a topic."""

    def find(level: Level, check: str, text: str, remedy: str = "") -> Finding:
        return Finding(level=level, check=check, subject=topic, text=text, remedy=remedy)

    try:
        route = session.admin.topic_route(topic)
    except TopicNotFound as absent:
        return [_absent(session, topic, str(absent.remark))]
    found = [*_reachable(session, topic, route), *_permitted(topic, route)]
    found += _agreed(session, topic)
    if not found:
        queues = sum(one.read_queues for one in route.queues)
        brokers = ", ".join(sorted(one.broker or "?" for one in route.queues))
        text = f"{queues} queues at {brokers}, all of which answer"
        found.append(find(Level.OK, "topic", text))
    return found


def _absent(session: Session, topic: str, why: str) -> Finding:
    auto = []
    for place in session.admin.list_brokers():
        with contextlib.suppress(GantryError):
            config = session.admin.broker_config(place.address)
            if config.get("autoCreateTopicEnable") == "true":
                auto.append(place.name)
    more = f"; {', '.join(auto)} would make it at the first send" if auto else ""
    return Finding(
        level=Level.INFO if auto else Level.ERROR,
        check="route",
        subject=topic,
        text=f"{why}{more}",
        remedy=f"gantry topic create {topic}",
    )


def _reachable(session: Session, topic: str, route: TopicRoute) -> Iterator[Finding]:
    for broker in route.brokers:
        if 0 not in broker.addresses:
            yield Finding(
                level=Level.WARNING,
                check="master",
                subject=topic,
                text=f"broker {broker.name} has no master now: it can be read there, not sent to",
                remedy=f"start the master of {broker.name}",
            )
        for address in broker.addresses.values():
            if (why := dial(session, address)) is not None:
                yield unreachable(broker.name or "?", address, why)


def dial(session: Session, address: str, timeout: float = 2.0) -> str | None:
    """Why nobody can be reached there from here, None if somebody can."""
    address = session.admin.reach.reachable.get(address, address)
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout).close()
    except (OSError, ValueError) as error:
        return str(error)
    return None


def unreachable(broker: str, address: str, why: str) -> Finding:
    """A broker says of itself that it is where it cannot be reached."""
    return Finding(
        level=Level.ERROR,
        check="address",
        subject=broker,
        text=f"it tells clients to connect to {address}, which fails from here: {why}",
        remedy="if it runs: have it advertise an address that clients reach (brokerIP1, --advertise"
        '), or tell this client another way: address_map="advertised=reachable"',
    )


def is_loopback(address: str) -> bool:
    """Whether only clients of the same machine reach it."""
    return address.startswith(_LOOPBACK)


def _permitted(topic: str, route: TopicRoute) -> Iterator[Finding]:
    from gantrymq.flows.topic_changes import permission_text
    from gantrymq.protocol.topics import READ, WRITE

    for one in route.queues:
        missing = [word for word, bit in (("sent to", WRITE), ("read", READ)) if not one.perm & bit]
        if missing:
            yield Finding(
                level=Level.WARNING,
                check="permission",
                subject=topic,
                text=f"it cannot be {' or '.join(missing)} at {one.broker}: its permission there "
                f"is {permission_text(one.perm)}",
                remedy=f"gantry topic alter {topic} --perm rw, or if the broker was drained: "
                f"gantry broker undrain {one.broker}",
            )
        if one.read_queues < one.write_queues:
            yield Finding(
                level=Level.ERROR,
                check="queues",
                subject=topic,
                text=f"{one.broker} has {one.write_queues} queues to send to and only "
                f"{one.read_queues} to read: nobody reads the others",
                remedy=f"gantry topic alter {topic} --read-queues {one.write_queues}",
            )


def _agreed(session: Session, topic: str) -> Iterator[Finding]:
    """Name servers do not tell each other what they know."""
    from gantrymq.protocol.routing import GetRoute
    from gantrymq.runtime import run_blocking

    reach = session.admin.reach
    seen: dict[str, frozenset[str | None]] = {}
    for address in reach.name_servers:
        try:
            route = run_blocking(reach.ask(address, GetRoute(topic=topic))).route
        except TopicNotFound:
            seen[address] = frozenset()
        except GantryError as error:
            yield Finding(
                level=Level.ERROR,
                check="namesrv",
                subject=address,
                text=f"it does not answer: {error}",
                remedy="start it, or take it out of the list of name servers",
            )
        else:
            seen[address] = frozenset(one.broker for one in route.queues)
    if len(set(seen.values())) > 1:
        each = "; ".join(
            f"{at}: {', '.join(map(str, known)) or 'none'}" for at, known in seen.items()
        )
        yield Finding(
            level=Level.ERROR,
            check="namesrv",
            subject=topic,
            text=f"name servers know different brokers of it: {each}",
            remedy="let every broker register with every name server (namesrvAddr)",
        )
