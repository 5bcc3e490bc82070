"""Topics looked at: which there are, how they are set, where they are, how full, who reads them.

RocketMQ: DefaultMQAdminExtImpl.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gantrymq.errors import GantryError, NotSupported, TopicNotFound
from gantrymq.flows import clusters
from gantrymq.flows.reaching import Gathered, Reach, gather
from gantrymq.model import MessageQueue
from gantrymq.protocol import names
from gantrymq.protocol.routing import (
    GetAllTopics,
    GetRoute,
    GetSystemTopics,
    GetTopicsOfCluster,
    TopicRoute,
)
from gantrymq.protocol.statistics import GetGroupsOfTopic, GetTopicStats, TopicStats
from gantrymq.protocol.topics import GetBrokerSystemTopics, GetTopic, GetTopics, TopicSettings
from gantrymq.protocol.validation import check_topic

TopicKind = Literal["normal", "retry", "dead-letter", "system", "light"]

MESSAGE_TYPE: Final = "message.type"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """Where a queue begins and ends."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_ms: int | None
    """When its last message was stored; None where it never had one."""

    @property
    def messages(self) -> int:
        """How many messages it still has."""
        return self.max_offset - self.min_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """The queues of a topic; those of brokers that do not answer are missing, see `failures`."""

    topic: str
    queues: list[QueueState] = field(default_factory=list)
    put_tps: float | None = None
    failures: Mapping[str, GantryError] = field(default_factory=dict)

    @property
    def messages(self) -> int | None:
        """How many messages are stored; None where a broker did not say."""
        return None if self.failures else sum(state.messages for state in self.queues)

    @property
    def last_ms(self) -> int | None:
        """When the newest message was stored, as far as is known."""
        return max((state.last_ms for state in self.queues if state.last_ms), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """Everything about a topic, on one page."""

    topic: str
    kind: TopicKind
    settings: dict[str, TopicSettings]
    """By broker."""
    route: TopicRoute
    status: TopicStatus
    groups: list[str]
    failures: Mapping[str, GantryError] = field(default_factory=dict)

    @property
    def message_type(self) -> str | None:
        """What kind of messages it is for; None where no broker has that written down."""
        found = {one.attributes.get(MESSAGE_TYPE) for one in self.settings.values()}
        return found.pop() if len(found) == 1 else None


# --- looking --------------------------------------------------------------------------------------


async def list_topics(
    reach: Reach, *, cluster: str | None = None, hidden: bool = False
) -> list[str]:
    """The names of the topics; with `hidden` also retry, dead-letter and system topics."""
    request = GetAllTopics() if cluster is None else GetTopicsOfCluster(cluster=cluster)
    found = sorted((await reach.ask_name_server(request)).topics)
    if reach.namespace:
        space = reach.namespace
        found = [names.unwrap(space, one) for one in found if names.namespace_of(one) == space]
    if hidden:
        return found
    system = await system_topics(reach)
    return [topic for topic in found if kind_of(topic, system) == "normal"]


async def system_topics(reach: Reach) -> set[str]:
    """The topics that are RocketMQ's own: by the name servers, and by the brokers."""
    said = await reach.ask_name_server(GetSystemTopics())
    found = set(said.topics)
    brokers = [said.broker_address] if said.broker_address else []
    for address in brokers:
        try:
            found.update((await reach.ask(address, GetBrokerSystemTopics())).topics)
        except GantryError:
            continue  # the names that everybody has are known here
    return found


def kind_of(topic: str, system: Collection[str] = ()) -> TopicKind:
    """What a topic is for; `system` has the names that only the servers know."""
    if names.is_retry_topic(topic):
        return "retry"
    if names.is_dead_letter_topic(topic):
        return "dead-letter"
    if names.is_light_queue(topic):
        return "light"
    return "system" if topic in system or names.is_system_topic(topic) else "normal"


async def topic_route(reach: Reach, topic: str) -> TopicRoute:
    """Where the queues of a topic are."""
    check_topic_name(topic)
    try:
        return (await reach.ask_name_server(GetRoute(topic=topic))).route
    except TopicNotFound as absent:
        raise await no_route(reach, topic, absent) from absent


async def no_route(reach: Reach, topic: str, absent: TopicNotFound) -> TopicNotFound:
    """The same error with its cause, as far as it can be told from here."""
    info = await clusters.cluster_info(reach)
    if not info.brokers:
        text = (
            f"no broker has registered with name server {absent.peer}: nobody has topic {topic}. "
            f"Start a broker, or look whether its namesrvAddr is this name server"
        )
    else:
        text = (
            f"no broker of {', '.join(sorted(info.brokers))} has topic {topic}. Create it "
            f"(gantry topic create {topic}), or look whether this is the right name server "
            f"({', '.join(reach.name_servers)}) and the name is spelled right"
        )
    error = TopicNotFound.because(text)
    error.peer = absent.peer
    return error


async def brokers_of(reach: Reach, topic: str) -> dict[str, str]:
    """The brokers that have a topic: their names, and the address of the master or else a replica.

    A replica answers questions as well; orders it refuses.
    """
    route = await topic_route(reach, topic)
    return addresses_in(route)


def addresses_in(route: TopicRoute) -> dict[str, str]:
    """The same out of a route."""
    return {
        data.name: data.addresses[min(data.addresses)]
        for data in sorted(route.brokers, key=lambda data: data.name or "")
        if data.name and data.addresses
    }


async def settings_at(reach: Reach, address: str, topic: str) -> TopicSettings | None:
    """What a broker keeps about a topic, None if it has no such topic."""
    try:
        return (await reach.ask(address, GetTopic(topic=topic))).settings
    except TopicNotFound:
        return None
    except NotSupported:  # before 5.0
        table = (await reach.ask(address, GetTopics())).table
        return table.topics.get(topic)


async def topic_settings(reach: Reach, topic: str) -> Gathered[TopicSettings]:
    """What each broker that has a topic keeps about it, by broker."""
    return await settings_of(reach, topic, await brokers_of(reach, topic))


async def settings_of(
    reach: Reach, topic: str, brokers: Mapping[str, str]
) -> Gathered[TopicSettings]:
    """The same at these brokers; one that has no such topic is not in the answer."""
    found = await gather(brokers, lambda name: settings_at(reach, brokers[name], topic))
    have = {name: settings for name, settings in found.answers.items() if settings is not None}
    return Gathered(have, found.failures)


async def all_topic_settings(reach: Reach) -> Gathered[dict[str, TopicSettings]]:
    """What each broker keeps about each of its topics, by broker and topic."""
    brokers = await clusters.every_master(reach)

    async def one(name: str) -> dict[str, TopicSettings]:
        return (await reach.ask(brokers[name], GetTopics())).table.topics

    return await gather(brokers, one)


async def topic_status(reach: Reach, topic: str) -> TopicStatus:
    """How full a topic is: where each queue begins and ends, and when it was written last."""
    return await status_at(reach, topic, await brokers_of(reach, topic))


async def status_at(reach: Reach, topic: str, brokers: Mapping[str, str]) -> TopicStatus:
    """The same from these brokers."""
    said = await gather(brokers, lambda name: reach.ask(brokers[name], GetTopicStats(topic=topic)))
    answers = said.some(f"look at {topic}")
    queues = [_queue_state(queue, stats) for stats in answers.values() for queue in stats.queues]
    return TopicStatus(
        topic=topic,
        queues=sorted(queues, key=lambda state: state.queue),
        put_tps=sum(stats.put_tps for stats in answers.values()),
        failures=said.failures,
    )


def _queue_state(queue: MessageQueue, stats: TopicStats) -> QueueState:
    bounds = stats.queues[queue]
    low, high = max(0, bounds.min_offset), max(0, bounds.max_offset)
    return QueueState(
        queue=queue, min_offset=low, max_offset=high, last_ms=bounds.last_update_ms or None
    )


async def groups_of_topic(reach: Reach, topic: str) -> list[str]:
    """The groups that consume a topic now, or did and left their offsets."""
    return await _groups(reach, topic, await brokers_of(reach, topic))


async def _groups(reach: Reach, topic: str, brokers: Mapping[str, str]) -> list[str]:
    said = await gather(
        brokers, lambda name: reach.ask(brokers[name], GetGroupsOfTopic(topic=topic))
    )
    answers = said.some(f"ask who consumes {topic}").values()
    return sorted(set().union(*(reply.groups for reply in answers)))


async def describe_topic(reach: Reach, topic: str) -> TopicDescription:
    """Everything about a topic: settings at each broker, route, how full it is, who consumes it."""
    route = await topic_route(reach, topic)
    brokers = addresses_in(route)
    settings = await settings_of(reach, topic, brokers)
    return TopicDescription(
        topic=topic,
        kind=kind_of(topic, await system_topics(reach)),
        settings=settings.answers,
        route=route,
        status=await status_at(reach, topic, brokers),
        groups=await _groups(reach, topic, brokers),
        failures=settings.failures,
    )


def check_topic_name(topic: str) -> None:
    """A topic that may be asked for; names of retry topics may be longer than others."""
    if names.group_of_derived_topic(topic) is None:
        check_topic(topic)
