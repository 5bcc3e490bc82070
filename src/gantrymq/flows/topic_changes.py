"""Topics made, changed and dropped, at all their brokers, and known to all name servers.

RocketMQ: UpdateTopicSubCommand, DeleteTopicSubCommand.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from gantrymq.errors import (
    AlreadyExists,
    CallTimeout,
    InvalidInput,
    TopicNotFound,
    TransportError,
)
from gantrymq.flows import clusters, configs
from gantrymq.flows.configs import Change
from gantrymq.flows.reaching import Reach, gather
from gantrymq.flows.topics import (
    MESSAGE_TYPE,
    brokers_of,
    check_topic_name,
    no_route,
    settings_of,
)
from gantrymq.protocol.routing import DeleteRoute, GetRoute
from gantrymq.protocol.topics import (
    INHERIT,
    READ,
    WRITE,
    DeleteTopic,
    PutTopic,
    TopicSettings,
)
from gantrymq.protocol.validation import check_topic_to_create
from gantrymq.wire import versions

MessageType = Literal["NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"]

QUEUES: Final = 8
_POLL: Final = 0.05
_ROUTE_WAIT: Final = 10.0
_LETTERS: Final = {"r": READ, "w": WRITE, "i": INHERIT}


async def create_topic(
    reach: Reach,
    topic: str,
    *,
    queues: int = QUEUES,
    read_queues: int | None = None,
    write_queues: int | None = None,
    permission: str = "rw",
    message_type: MessageType | None = None,
    ordered: bool = False,
    attributes: Mapping[str, str] | None = None,
    cluster: str | None = None,
    brokers: Collection[str] | None = None,
) -> dict[str, TopicSettings]:
    """Make a topic at every broker of the cluster, or at those named; its settings by broker.

    `AlreadyExists` if one of them has it. It can be sent to when this returns: the name servers
    know it by then.
    """
    check_topic_to_create(topic)
    wanted = dict(attributes or {})
    if message_type is not None:
        wanted[MESSAGE_TYPE] = message_type
    at = await clusters.masters(reach, cluster=cluster, brokers=brokers)
    held = (await settings_of(reach, topic, at)).whole(f"look whether {topic} exists")
    _refuse_existing(topic, at, held)
    if wanted:
        await _check_attributes(reach, at)
    asked = TopicSettings(
        topic=topic,
        read_queues=_count(queues if read_queues is None else read_queues),
        write_queues=_count(queues if write_queues is None else write_queues),
        perm=permission_bits(permission),
        ordered=ordered,
        attributes={f"+{key}": value for key, value in wanted.items()},
    )
    await _put(reach, topic, dict.fromkeys(at, asked), at, "create")
    if ordered:
        await _put_order(reach, topic, dict.fromkeys(at, asked.write_queues))
    await _until_known(reach, topic, at)
    return (await settings_of(reach, topic, at)).whole(f"look at {topic}")


async def alter_topic(
    reach: Reach,
    topic: str,
    *,
    queues: int | None = None,
    read_queues: int | None = None,
    write_queues: int | None = None,
    permission: str | None = None,
    message_type: MessageType | None = None,
    ordered: bool | None = None,
    attributes: Mapping[str, str | None] | None = None,
    brokers: Collection[str] | None = None,
    dry_run: bool = False,
) -> list[Change]:
    """Change what is given, at every broker that has the topic or at those named; what changed.

    An attribute of None is dropped. Fewer queues to read than to write hides messages, and is
    refused.
    """
    at = await brokers_of(reach, topic)
    if brokers is not None:
        at = {name: _named(at, name, topic) for name in brokers}
    held = (await settings_of(reach, topic, at)).whole(f"look at {topic}")
    signed = _signed(attributes or {}, message_type)
    if signed:
        await _check_attributes(reach, at)
    asked = {
        name: TopicSettings(
            topic=topic,
            read_queues=_count(_given(read_queues, queues, found.read_queues)),
            write_queues=_count(_given(write_queues, queues, found.write_queues)),
            perm=found.perm if permission is None else permission_bits(permission),
            filter_type=found.filter_type,
            flags=found.flags,
            ordered=found.ordered if ordered is None else ordered,
            attributes=signed,
        )
        for name, found in held.items()
    }
    for name, settings in asked.items():
        _check_readable(name, settings)
    changes = [change for name in held for change in _changes(name, held[name], asked[name])]
    changed = {change.place for change in changes}
    if not dry_run and changed:
        await _put(reach, topic, {name: asked[name] for name in changed}, at, "change")
        if ordered:
            await _put_order(reach, topic, {name: one.write_queues for name, one in asked.items()})
        elif ordered is False:
            await configs.delete_key(reach, configs.ORDER_NAMESPACE, topic)
    return changes


def _refuse_existing(topic: str, at: Mapping[str, str], held: Mapping[str, TopicSettings]) -> None:
    if not held:
        return
    where = ", ".join(
        f"{name} ({one.write_queues} queues, {permission_text(one.perm)})"
        for name, one in held.items()
    )
    missing = ", ".join(name for name in at if name not in held)
    rest = f"; {missing} has it not: name that broker to make it there" if missing else ""
    raise AlreadyExists(
        f"topic {topic} exists at {where}{rest}. To change it: gantry topic alter {topic}"
    )


async def _put(
    reach: Reach,
    topic: str,
    asked: Mapping[str, TopicSettings],
    at: Mapping[str, str],
    what: str,
) -> None:
    def request(name: str) -> PutTopic:
        one = asked[name]
        return PutTopic(
            topic=topic,
            read_queues=one.read_queues,
            write_queues=one.write_queues,
            perm=one.perm,
            filter_type=one.filter_type,
            flags=one.flags,
            ordered=one.ordered,
            attributes=dict(one.attributes) or None,
        )

    done = await gather(asked, lambda name: reach.ask(at[name], request(name)))
    done.whole(f"{what} topic {topic}")


async def _put_order(reach: Reach, topic: str, queues: Mapping[str, int]) -> None:
    table = ";".join(f"{name}:{count}" for name, count in sorted(queues.items()))
    await configs.put_key(reach, configs.ORDER_NAMESPACE, topic, table)


async def _until_known(reach: Reach, topic: str, brokers: Collection[str]) -> None:
    """Return when every name server that answers has the topic at all these brokers."""
    deadline = reach.runtime.now() + _ROUTE_WAIT
    waiting = list(reach.name_servers)
    while waiting:
        waiting = [at for at in waiting if not await _knows(reach, at, topic, brokers)]
        if waiting and reach.runtime.now() > deadline:
            raise CallTimeout(
                f"topic {topic} was made at {', '.join(brokers)}, but {_ROUTE_WAIT:.0f}s later "
                f"name server {', '.join(waiting)} has no route to it: look whether these brokers "
                f"register there (their setting namesrvAddr)"
            )
        if waiting:
            await reach.runtime.sleep(_POLL)


async def _knows(reach: Reach, address: str, topic: str, brokers: Collection[str]) -> bool:
    try:
        route = (await reach.ask(address, GetRoute(topic=topic))).route
    except TopicNotFound:
        return False
    except TransportError:
        return True  # it will hear of it when it is back
    return {data.broker for data in route.queues}.issuperset(brokers)


async def _check_attributes(reach: Reach, at: Mapping[str, str]) -> None:
    """Attributes are passed over in silence by brokers that have none: better to say so."""
    for name, address in at.items():
        version = await clusters.broker_version(reach, address)
        if version < versions.V5_0_0:
            raise InvalidInput(
                f"broker {name} is RocketMQ {versions.describe(version)}, and attributes of topics "
                f"(message types too) need 5.0: leave them out, every topic there takes every kind "
                f"of message"
            )


def _signed(
    attributes: Mapping[str, str | None], message_type: MessageType | None
) -> dict[str, str]:
    changes = dict(attributes)
    if message_type is not None:
        changes[MESSAGE_TYPE] = message_type
    return {
        f"-{key}" if value is None else f"+{key}": value or "" for key, value in changes.items()
    }


def _changes(name: str, held: TopicSettings, asked: TopicSettings) -> list[Change]:
    found: list[Change] = []
    for what in ("read_queues", "write_queues", "perm", "ordered"):
        before, after = getattr(held, what), getattr(asked, what)
        if before != after:
            text = permission_text if what == "perm" else str
            label = "permission" if what == "perm" else what
            found.append(Change(name, label, text(before), text(after)))
    for key, value in asked.attributes.items():
        after = value if key.startswith("+") else None
        if held.attributes.get(key[1:]) != after:
            found.append(Change(name, key[1:], held.attributes.get(key[1:]), after))
    return found


def _check_readable(name: str, settings: TopicSettings) -> None:
    if settings.read_queues < settings.write_queues:
        raise InvalidInput(
            f"{settings.read_queues} queues to read and {settings.write_queues} to write at {name}:"
            f" what is sent to the last of them nobody could read. To have fewer queues, lower "
            f"write_queues first, and read_queues when the rest is consumed"
        )


def _named(at: Mapping[str, str], name: str, topic: str) -> str:
    if name not in at:
        raise InvalidInput(f"broker {name!r} has no topic {topic}; {', '.join(at)} has")
    return at[name]


def _given(own: int | None, both: int | None, before: int) -> int:
    return own if own is not None else before if both is None else both


def _count(queues: int) -> int:
    if not 1 <= queues <= 65_536:
        raise InvalidInput(f"a topic has from 1 to 65536 queues at a broker, not {queues}")
    return queues


def permission_bits(text: str) -> int:
    """`rw` as the number on the wire; a number is taken as it is."""
    if text.isdigit() and int(text) <= READ | WRITE | INHERIT:
        return int(text)
    if text in ("", "-", "none"):
        return 0
    if not set(text) <= set(_LETTERS):
        raise InvalidInput(f"a permission is r, w, rw or none, not {text!r}")
    return sum(_LETTERS[letter] for letter in set(text))


def permission_text(bits: int) -> str:
    """The number as `rw`."""
    return "".join(letter for letter, bit in _LETTERS.items() if bits & bit) or "none"


# --- dropping -------------------------------------------------------------------------------------


async def delete_topic(reach: Reach, topic: str, *, cluster: str | None = None) -> list[str]:
    """Drop a topic with its messages, everywhere or in one cluster; the brokers that had it.

    Groups keep their offsets; see `preview_topic_deletion` for who would notice.
    """
    at = await owners(reach, topic, cluster=cluster)
    done = await gather(at, lambda name: reach.ask(at[name], DeleteTopic(topic=topic)))
    done.whole(f"delete topic {topic}")
    await reach.tell_name_servers(lambda: DeleteRoute(topic=topic, cluster=cluster))
    if cluster is None and await configs.get_key(reach, configs.ORDER_NAMESPACE, topic):
        await configs.delete_key(reach, configs.ORDER_NAMESPACE, topic)
    return list(at)


async def owners(reach: Reach, topic: str, *, cluster: str | None = None) -> dict[str, str]:
    """The masters that have a topic, by name: by its route, and where there is none by asking."""
    check_topic_name(topic)
    info = await clusters.cluster_info(reach)
    masters = {
        place.name: place.address for place in clusters.places(info, cluster) if place.is_master
    }
    try:
        route = (await reach.ask_name_server(GetRoute(topic=topic))).route
        found = {data.broker for data in route.queues}
    except TopicNotFound as absent:
        found = set((await settings_of(reach, topic, masters)).some(f"look for {topic}"))
        if not found:
            raise await no_route(reach, topic, absent) from absent
    missing = found - masters.keys() if cluster is None else set()
    if missing:
        raise InvalidInput(
            f"topic {topic} is at {', '.join(sorted(missing))}, too, which has no master now: "
            f"start it first, or name the cluster to leave it out"
        )
    return {name: masters[name] for name in sorted(found) if name in masters}
