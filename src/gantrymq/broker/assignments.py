"""Sharing out queues for clients that have the broker do it.

Which of a topic's queues, of all brokers, belong to a client is worked out by the same rules as in
clients (`rules.allocation`), from the group's members as this broker sees them and the topic's
queues as the name servers tell them. What a name server said is used for some seconds.

A group pulls, unless somebody set that it pops. Then no queue belongs to anybody: each member may
ask each broker for messages of any queue, or, where only some of the queues are to be shared, it
has its own and those of so many members after it.

RocketMQ: QueryAssignmentProcessor, MessageRequestModeManager, TopicRouteInfoManager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gantrymq.broker.keeping import Keeper, Tree
from gantrymq.errors import (
    GantryError,
    GroupNotFound,
    InvalidInput,
    NoPermission,
    NotSupported,
    TopicNotFound,
)
from gantrymq.model import MessageQueue
from gantrymq.protocol.assignments import (
    AllRequestModes,
    GetAllRequestModes,
    QueryAssignment,
    QueryAssignmentReply,
    QueueAssignment,
    RequestMode,
    SetRequestMode,
)
from gantrymq.protocol.base import Done, declared, named
from gantrymq.protocol.enums import MessageModel, MessageRequestMode
from gantrymq.protocol.json_shapes import shape
from gantrymq.protocol.names import is_light_queue, is_retry_topic
from gantrymq.protocol.routing import GetRoute
from gantrymq.protocol.topics import READ
from gantrymq.rules.allocation import Allocate, allocate_evenly, allocate_in_turn
from gantrymq.runtime import Runtime

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.broker.topics import Topics
    from gantrymq.net.peer import Peer

FILE: Final = "messageRequestMode.json"
STRATEGIES: Final[dict[str, Allocate]] = {
    "AVG": allocate_evenly,
    "AVG_BY_CIRCLE": allocate_in_turn,
}
ANY_QUEUE: Final = -1
"""Stands for all queues of a broker."""
_FRESH: Final = 5.0
"""Seconds for which a route is used again."""
_MOST_ROUTES: Final = 1_000
_TIMEOUT: Final = 3.0


@declared
class KeptModes:
    """What is in the file. RocketMQ: MessageRequestModeSerializeWrapper."""

    modes: dict[str, dict[str, RequestMode]] = named("messageRequestModeMap", default_factory=dict)


class RequestModes:
    """How groups read topics, where somebody set it."""

    __slots__ = ("_keeper", "table")

    def __init__(self, *, keeper: Keeper) -> None:
        self.table: dict[str, dict[str, RequestMode]] = {}
        """By topic and group."""
        self._keeper = keeper

    def load(self) -> None:
        """Take in what was kept."""
        tree = self._keeper.load(FILE)
        if tree is not None:
            kept: KeptModes = shape(KeptModes).read(tree)
            self.table.update(kept.modes)

    def put(self, mode: RequestMode) -> None:
        """Have a group read a topic so."""
        self.table.setdefault(mode.topic, {})[mode.group] = mode
        self._keeper.keep(FILE, self._tree)

    async def kept(self) -> None:
        """Return when every change so far is on disk."""
        await self._keeper.kept(FILE)

    def _tree(self) -> Tree:
        return shape(KeptModes).write(KeptModes(modes=self.table))


class Routes:
    """The queues of topics, at all brokers that the name servers know."""

    __slots__ = ("_broker", "_known", "_name_servers", "_now", "_runtime", "_topics")

    def __init__(
        self,
        *,
        broker: str,
        topics: Topics,
        runtime: Runtime,
        name_servers: Callable[[], Sequence[str]],
        now: Callable[[], float],
    ) -> None:
        """`broker` is the name of this one; `name_servers` are those that can be asked."""
        self._broker = broker
        self._topics = topics
        self._runtime = runtime
        self._name_servers = name_servers
        self._now = now
        self._known: dict[str, tuple[float, list[MessageQueue]]] = {}

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues that can be read, sorted; this broker's own if no name server can be asked."""
        found = self._known.get(topic)
        if found is not None and self._now() - found[0] <= _FRESH:
            return found[1]
        for name_server in self._name_servers():
            try:
                route = (
                    await self._runtime.call(
                        name_server, GetRoute(topic=topic, strict_json=True), timeout=_TIMEOUT
                    )
                ).route
            except GantryError:
                continue
            queues = [
                MessageQueue(topic, there.broker, queue_id)
                for there in route.queues
                if there.perm & READ
                for queue_id in range(there.read_queues)
            ]
            return self._remember(topic, queues)
        return self._own(topic)

    def _own(self, topic: str) -> list[MessageQueue]:
        settings = self._topics.table.get(topic)
        if settings is None or not settings.perm & READ:
            return []
        return [MessageQueue(topic, self._broker, number) for number in range(settings.read_queues)]

    def _remember(self, topic: str, queues: list[MessageQueue]) -> list[MessageQueue]:
        if len(self._known) >= _MOST_ROUTES:
            self._known.clear()
        self._known[topic] = self._now(), sorted(queues)
        return self._known[topic][1]


# --- answers --------------------------------------------------------------------------------------


async def query_assignment(
    request: QueryAssignment, broker: Broker, _peer: Peer
) -> QueryAssignmentReply:
    """The queues of a topic that are a client's."""
    if is_light_queue(request.topic):
        queues = [MessageQueue(request.topic, broker.config.identity.name, 0)]
    else:
        queues = await broker.routes.queues(request.topic)
    if request.message_model is not MessageModel.BROADCASTING:
        allocate = STRATEGIES.get(request.strategy)
        if allocate is None:
            return QueryAssignmentReply(assignments=None)
        clients = sorted(broker.consumers.ids(request.group))
        if not clients or not queues:
            return QueryAssignmentReply(assignments=None)
        mode = broker.modes.table.get(request.topic, {}).get(request.group)
        if mode is not None and mode.mode is MessageRequestMode.POP:
            return _popped(request.client_id, queues, clients, allocate, mode.shared_queues)
        queues = _own_share(request.client_id, queues, clients, allocate)
    return QueryAssignmentReply(assignments=[QueueAssignment(queue=queue) for queue in queues])


def _own_share(
    client_id: str, queues: list[MessageQueue], clients: list[str], allocate: Allocate
) -> list[MessageQueue]:
    try:
        return allocate(client_id, queues, clients)
    except InvalidInput:
        return []


def _popped(
    client_id: str,
    queues: list[MessageQueue],
    clients: list[str],
    allocate: Allocate,
    shared: int,
) -> QueryAssignmentReply:
    """What a member pops from: any queue of each broker, or its own and those of some others.

    RocketMQ: QueryAssignmentProcessor.allocate4Pop.
    """
    if shared <= 0 or shared >= len(clients) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker) for queue in queues)
        mine = [MessageQueue(topic, broker, ANY_QUEUE) for topic, broker in brokers]
    elif client_id not in clients:
        mine = []
    elif len(clients) <= len(queues):
        at = clients.index(client_id)
        members = [clients[(at + n) % len(clients)] for n in range(shared + 1)]
        mine = [q for one in members for q in _own_share(one, queues, clients, allocate)]
    else:
        mine = [queues[clients.index(client_id) % len(queues)]]
    assignments = [QueueAssignment(queue=queue, mode=MessageRequestMode.POP) for queue in mine]
    return QueryAssignmentReply(assignments=assignments)


async def set_request_mode(request: SetRequestMode, broker: Broker, _peer: Peer) -> Done:
    """Have a group read a topic so; it lasts when this is answered."""
    setting = request.setting
    if is_retry_topic(setting.topic):
        raise NoPermission.because("retry topic is not allowed to set mode")
    if setting.topic not in broker.topics.table:
        raise TopicNotFound.because(f"topic[{setting.topic}] not exist")
    if broker.groups.settings(setting.group) is None:
        raise GroupNotFound.because(f"subscription group[{setting.group}] does not exist")
    if setting.mode not in (MessageRequestMode.PULL, MessageRequestMode.POP):
        raise NotSupported.because(f"message request mode {setting.mode} is not supported")
    broker.modes.put(setting)
    await broker.modes.kept()
    return Done()


def get_all_request_modes(
    _request: GetAllRequestModes, broker: Broker, _peer: Peer
) -> AllRequestModes:
    """Every mode that somebody set."""
    return AllRequestModes(modes=broker.modes.table)
