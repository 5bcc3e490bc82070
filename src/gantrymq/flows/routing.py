"""Where a topic's queues are: asking name servers, and what follows from their answer.

Name servers know the same, or nearly: one is asked, and the next only when that one cannot be
reached. Whichever answered is asked first the next time.

A producer may send to a topic that does not exist yet. It then gets the route of the auto-create
topic (`TBW102`), with no more queues than the new topic will have; the first broker that is sent to
makes the topic.

**Who publishes where.** A producer writes to masters only: brokers without one in the route, or
without the permission to write, are left out. Queues go by the brokers' names, unless the topic is
an *order topic*, whose route spells out the brokers and how many queues each has. Consumers read
whatever may be read, from replicas too.

RocketMQ: MQClientInstance.updateTopicRouteInfoFromNameServer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from gantrymq.errors import (
    CallTimeout,
    ConfigError,
    ConnectFailed,
    GantryError,
    NoNameServers,
    NoRoute,
    NotSupported,
    ReplyError,
    TopicNotFound,
    TransportError,
)
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.names import AUTO_CREATE_TOPIC, is_light_queue
from gantrymq.protocol.routing import (
    BrokerData,
    GetClusterInfo,
    GetRoute,
    QueueData,
    TopicRoute,
)
from gantrymq.protocol.topics import READ, WRITE
from gantrymq.runtime import Runtime

R = TypeVar("R", bound=Reply)

MASTER: Final = 0
CALL_TIMEOUT: Final = 3.0
DEFAULT_TOPIC_QUEUES: Final = 4

SILENT: Final = (
    "is one running there, and can it be reached from here? Where it is looked for is what the URL"
    " says, or else GANTRY_URL or NAMESRV_ADDR"
)
_NO_NAME_SERVER: Final = (
    "{} does not know what a route is; is it a name server? These listen on port 9876 as a rule,"
    " and brokers on 10911"
)


class NameServers:
    """The addresses of name servers, the one that answered last in front."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = tuple(addresses)

    def __iter__(self) -> Iterator[str]:
        return iter(self.addresses)

    def answered(self, address: str) -> None:
        """Ask this one first from now on."""
        addresses = self.addresses
        if addresses and addresses[0] != address and address in addresses:
            at = addresses.index(address)
            self.addresses = addresses[at:] + addresses[:at]

    def __str__(self) -> str:
        return ";".join(self.addresses)


async def ask_name_servers(
    runtime: Runtime,
    name_servers: NameServers | Sequence[str],
    request: Request[R],
    *,
    timeout: float = CALL_TIMEOUT,
) -> R:
    """The answer of the first name server that can be reached; a refusal is an answer, too."""
    addresses = tuple(name_servers)
    if not addresses:
        raise NoNameServers(
            f"no name server was given, so nobody can be asked for {request}; pass a URL such as"
            f" rmq://localhost:9876, or set GANTRY_URL or NAMESRV_ADDR"
        )
    deadline = runtime.now() + timeout
    failures: list[str] = []
    last: TransportError | None = None
    for number, address in enumerate(addresses):
        left = deadline - runtime.now()
        if left <= 0:
            break
        share = left / (len(addresses) - number)  # a silent one must not use up what others need
        try:
            reply = await runtime.call(address, request, timeout=share)
        except ReplyError as refusal:
            _note(name_servers, address)
            if isinstance(refusal, NotSupported) and isinstance(request, GetRoute):
                raise NotSupported.because(_NO_NAME_SERVER.format(address)) from refusal
            raise
        except TransportError as error:
            failures.append(str(error))
            last = error
        else:
            _note(name_servers, address)
            return reply
    text = f"no name server answered {request} in {timeout:.1f}s: {', '.join(failures)}; {SILENT}"
    raise (CallTimeout if isinstance(last, CallTimeout) else ConnectFailed)(text) from last


def _note(name_servers: NameServers | Sequence[str], address: str) -> None:
    if isinstance(name_servers, NameServers):
        name_servers.answered(address)


async def fetch_route(
    runtime: Runtime,
    name_servers: NameServers | Sequence[str],
    topic: str,
    *,
    timeout: float = CALL_TIMEOUT,
) -> TopicRoute:
    """The route of `topic`; `NoRoute` if the name server knows nobody who has it."""
    if is_light_queue(topic):
        return await _light_route(runtime, name_servers, timeout)
    request = GetRoute(topic=topic, strict_json=True)
    started = runtime.now()
    try:
        return (await ask_name_servers(runtime, name_servers, request, timeout=timeout)).route
    except TopicNotFound as refusal:
        left = max(0.1, timeout - (runtime.now() - started))
        why = await explain_no_route(runtime, name_servers, topic, timeout=left)
        raise _no_route(topic, why) from refusal


async def _light_route(
    runtime: Runtime, name_servers: NameServers | Sequence[str], timeout: float
) -> TopicRoute:
    """The route of a light queue, which is told to nobody: every broker may have queue 0 of it."""
    info = await ask_name_servers(runtime, name_servers, GetClusterInfo(), timeout=timeout)
    queues = [
        QueueData(broker=name, read_queues=1, write_queues=0, perm=READ, flags=0)
        for name in info.brokers
    ]
    return TopicRoute(queues=queues, brokers=list(info.brokers.values()))


async def fetch_route_to_publish(
    runtime: Runtime,
    name_servers: NameServers | Sequence[str],
    topic: str,
    *,
    default_topic: str = AUTO_CREATE_TOPIC,
    default_topic_queues: int = DEFAULT_TOPIC_QUEUES,
    timeout: float = CALL_TIMEOUT,
) -> tuple[TopicRoute, bool]:
    """The route of `topic`, or else that of the auto-create topic; whether it is the topic's own.

    RocketMQ: the same method with isDefault.
    """
    deadline = runtime.now() + timeout
    request = GetRoute(topic=topic, strict_json=True)
    try:
        reply = await ask_name_servers(runtime, name_servers, request, timeout=timeout)
    except TopicNotFound as refusal:
        own = refusal
    else:
        return reply.route, True
    borrow = GetRoute(topic=default_topic, strict_json=True)
    left = max(0.1, deadline - runtime.now())
    try:
        reply = await ask_name_servers(runtime, name_servers, borrow, timeout=left)
    except TopicNotFound:
        why = await explain_no_route(runtime, name_servers, topic, timeout=left)
        raise _no_route(topic, why) from own
    return capped(reply.route, default_topic_queues), False


def _no_route(topic: str, why: str) -> NoRoute:
    error = NoRoute(f"no route info of this topic: {topic}; {why}")
    error.hint = why
    return error


async def explain_no_route(
    runtime: Runtime,
    name_servers: NameServers | Sequence[str],
    topic: str,
    *,
    timeout: float = CALL_TIMEOUT,
) -> str:
    """What is wrong, and what would help, when nobody has `topic`."""
    asked = ", ".join(name_servers)
    try:
        info = await ask_name_servers(runtime, name_servers, GetClusterInfo(), timeout=timeout)
    except GantryError as error:
        return f"name server {asked} does not have it, and says no more: {error}"
    if not info.brokers:
        return (
            f"no broker is registered with name server {asked}: start a broker that names it"
            f" (namesrvAddr), or give the name server that yours registers with"
        )
    brokers = ", ".join(sorted(info.brokers))
    clusters = " or ".join(sorted(info.clusters)) or "your cluster"
    return (
        f"name server {asked} knows the brokers {brokers}, and none of them has the topic or makes"
        f" it by itself (autoCreateTopicEnable): create it with"
        f" `mqadmin updateTopic -n {asked.replace(', ', ';')} -t {topic} -c {clusters}`,"
        f" or mend its name"
    )


def capped(route: TopicRoute, queues: int) -> TopicRoute:
    """The auto-create topic's route as that of a topic which will have `queues` queues at most."""
    return TopicRoute(
        queues=[
            QueueData(
                broker=data.broker,
                read_queues=min(queues, data.read_queues),
                write_queues=min(queues, data.read_queues),
                perm=data.perm,
                flags=data.flags,
            )
            for data in route.queues
        ],
        brokers=route.brokers,
        filter_servers=route.filter_servers,
        order=route.order,
        mappings=route.mappings,
    )


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues of `topic` that a producer sends to, in the order in which they take turns.

    RocketMQ: MQClientInstance.topicRouteData2TopicPublishInfo.
    """
    if route.order:
        return tuple(
            MessageQueue(topic, broker, queue_id)
            for broker, count in order_of(topic, route.order)
            for queue_id in range(count)
        )
    masters = {data.name for data in route.brokers if MASTER in data.addresses}
    return tuple(
        MessageQueue(topic, data.broker, queue_id)
        for data in sorted(route.queues, key=_by_broker)
        if data.perm & WRITE and data.broker in masters
        for queue_id in range(data.write_queues)
    )


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """The queues of `topic` that consumers read, sorted.

    RocketMQ: MQClientInstance.topicRouteData2TopicSubscribeInfo.
    """
    return tuple(
        MessageQueue(topic, data.broker, queue_id)
        for data in sorted(route.queues, key=_by_broker)
        if data.perm & READ
        for queue_id in range(data.read_queues)
    )


def order_of(topic: str, text: str) -> list[tuple[str, int]]:
    """The brokers of an order topic with their numbers of queues, from `broker:n;broker:n`."""
    found = []
    for part in filter(None, text.split(";")):
        broker, colon, count = part.rpartition(":")
        if not colon or not count.strip().isdecimal():
            raise ConfigError(
                f"the order configuration of topic {topic} holds {part!r}, not broker:number"
            )
        found.append((broker, int(count)))
    return found


def addresses(route: TopicRoute) -> dict[str, Mapping[int, str]]:
    """Broker names with their addresses by id; the master's is 0."""
    return {data.name: data.addresses for data in route.brokers if data.name is not None}


def choose_address(
    found: Mapping[int, str], broker_id: int = MASTER, *, strictly: bool = False
) -> str | None:
    """Where to read that broker's queues: the one asked for, or unless `strictly`, another.

    A replica that is away is stood in for by the next one, then by whichever there is.

    RocketMQ: MQClientInstance.findBrokerAddressInSubscribe.
    """
    address = found.get(broker_id)
    if address is None and broker_id != MASTER:
        address = found.get(broker_id + 1)
    if address is None and not strictly:
        address = next(iter(found.values()), None)
    return address


def same_route(one: TopicRoute | None, other: TopicRoute) -> bool:
    """Whether two answers say the same, in whatever order."""
    return one is not None and _sorted(one) == _sorted(other)


def _sorted(route: TopicRoute) -> tuple[Any, ...]:
    return (
        sorted(route.queues, key=_by_broker),
        sorted(route.brokers, key=_by_name),
        route.order,
        route.mappings,
    )


def _by_broker(data: QueueData) -> str:
    return data.broker


def _by_name(data: BrokerData) -> str:
    return data.name or ""
