"""The routes that a client knows: looked up when first needed, kept fresh, and watched.

However many ask for a topic at the same time, the name server is asked once. What is known is
replaced whole, never changed, so that threads may read it while the engine's loop brings it up to
date. A name server that does not know a topic any more, because it has just been started say, does
not make us forget it: what we know may still be right, and brokers say so if it is not.

RocketMQ: MQClientInstance (topicRouteTable, brokerAddrTable).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from gantrymq.errors import CallTimeout, ClosedError, GantryError, NoRoute
from gantrymq.flows import routing
from gantrymq.flows.routing import MASTER, NameServers
from gantrymq.model import MessageQueue
from gantrymq.protocol.names import AUTO_CREATE_TOPIC
from gantrymq.protocol.routing import TopicRoute
from gantrymq.rules.given import Chance
from gantrymq.rules.queue_choice import TopicQueues
from gantrymq.rules.turns import PerContext, Turns
from gantrymq.runtime import Runtime

log = logging.getLogger("gantrymq.client")

LOOK_UP: Final = 3.0
"""Seconds that somebody waits for a route, whoever is asking for it."""

Borrowing: TypeAlias = tuple[str, int]
"""The topic whose route a new topic takes, and how many queues it will have."""
_USUAL: Final[Borrowing] = (AUTO_CREATE_TOPIC, routing.DEFAULT_TOPIC_QUEUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a topic."""

    route: TopicRoute
    borrowed: Borrowing | None = None
    """From where, if it is not the topic's own route but that which it will have once it exists."""
    to_publish: TopicQueues | None
    """None where no queue can be written to."""
    to_subscribe: tuple[MessageQueue, ...] = ()

    @property
    def own(self) -> bool:
        """Whether it is the topic's own route."""
        return self.borrowed is None


class Routes:
    """Routes by topic, and brokers' addresses by name."""

    def __init__(
        self,
        runtime: Runtime,
        name_servers: NameServers,
        chance: Chance,
        *,
        address_map: Mapping[str, str] | None = None,
        timeout: float = LOOK_UP,
    ) -> None:
        self.name_servers: Final = name_servers
        self._runtime = runtime
        self._chance = chance
        self._address_map = dict(address_map or {})
        self._timeout = timeout
        self._known: dict[str, Known] = {}
        self._turns: dict[str, Turns] = {}
        self._addresses: dict[str, Mapping[int, str]] = {}
        self._looking: dict[tuple[str, Borrowing | None], asyncio.Task[Known]] = {}
        self._watchers: list[Callable[[str], None]] = []
        self._in_the_dark = False
        """Whether no name server answered the last time, so that it is told once."""

    # --- what is known --------------------------------------------------------------------------

    def known(self, topic: str) -> Known | None:
        """What is known of a topic now; for any thread."""
        return self._known.get(topic)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that something is known of."""
        return tuple(self._known)

    @property
    def brokers(self) -> Mapping[str, Mapping[int, str]]:
        """Every broker in a known route, with its addresses by id."""
        return self._addresses

    def address(
        self, broker: str, broker_id: int = MASTER, *, strictly: bool = False
    ) -> str | None:
        """Where `broker` is reached; for reading another of its ids may do, unless `strictly`."""
        found = self._addresses.get(broker)
        if found is None:
            return None
        return routing.choose_address(found, broker_id, strictly=strictly)

    def master(self, broker: str) -> str | None:
        """Where to write to `broker`."""
        found = self._addresses.get(broker)
        return None if found is None else found.get(MASTER)

    def topic_at(self, broker: str) -> str | None:
        """A topic that `broker` has."""
        for topic, known in self._known.items():
            if known.own and any(queue.broker == broker for queue in known.to_subscribe):
                return topic
        return None

    # --- looking up -----------------------------------------------------------------------------

    async def of(self, topic: str) -> TopicRoute:
        """The topic's own route, looked up if need be."""
        known = self._known.get(topic)
        if known is None or not known.own:
            known = await self._look_up(topic)
        return known.route

    async def queues_to_publish(
        self, topic: str, *, timeout: float | None = None, default: Borrowing = _USUAL
    ) -> TopicQueues:
        """Where a producer may send; for a topic that does not exist yet, where it would."""
        known = self._known.get(topic)
        if known is None or known.to_publish is None:
            known = await self._look_up(topic, default, timeout)
        if known.to_publish is None:
            hint = (
                "permission 4 is for reading alone. `mqadmin updateTopicPerm` opens a topic,"
                " brokerPermission=6 a broker"
            )
            error = NoRoute(
                f"topic {topic} has no queue that can be written to: {_unwritable(known.route)};"
                f" {hint}"
            )
            error.hint = hint
            raise error
        return known.to_publish

    async def queues_to_subscribe(self, topic: str) -> tuple[MessageQueue, ...]:
        """What consumers read."""
        known = self._known.get(topic)
        if known is None or not known.own:
            known = await self._look_up(topic)
        return known.to_subscribe

    async def refresh(self, topics: Collection[str] = ()) -> None:
        """Look again at everything known and at `topics`; failures leave things as they are."""
        wanted = {*self._known, *topics}
        await asyncio.gather(*(self._refresh(topic) for topic in sorted(wanted)))

    async def renew(self, topic: str) -> None:
        """Look again at one topic: a broker has said that what we know is not so."""
        known = self._known.get(topic)
        try:
            await self._look_up(topic, None if known is None else known.borrowed)
        except GantryError as error:
            log.debug("the route of %s could not be renewed: %s", topic, error)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._look_up(topic)
        except NoRoute:
            self._in_the_dark = False  # not there yet, or not at this name server any more
        except GantryError as error:
            level = logging.DEBUG if self._in_the_dark else logging.WARNING
            self._in_the_dark = True
            log.log(level, "the route of %s could not be refreshed: %s", topic, error)
        else:
            self._in_the_dark = False

    async def _look_up(
        self, topic: str, borrow: Borrowing | None = None, timeout: float | None = None
    ) -> Known:
        """Ask, or wait for the answer to somebody else who asks the same."""
        key = (topic, borrow)
        task = self._looking.get(key)
        if task is None:
            task = self._looking[key] = asyncio.create_task(self._fetch(topic, borrow))
            task.add_done_callback(lambda done: self._looked(key, done))
        limit = self._timeout + 0.5 if timeout is None else min(timeout, self._timeout + 0.5)
        done, _ = await asyncio.wait((task,), timeout=limit)
        if not done:
            servers = self.name_servers
            raise CallTimeout(f"no route of {topic} from name server {servers} in {limit:.1f}s")
        if task.cancelled():
            raise ClosedError("the client was closed")
        return task.result()

    def _looked(self, key: tuple[str, Borrowing | None], task: asyncio.Task[Known]) -> None:
        del self._looking[key]
        if not task.cancelled():
            task.exception()  # seen, also when nobody waits any more

    async def _fetch(self, topic: str, borrow: Borrowing | None) -> Known:
        servers, timeout = self.name_servers, self._timeout
        if borrow is None:
            route = await routing.fetch_route(self._runtime, servers, topic, timeout=timeout)
            return self._take(topic, route)
        default_topic, queues = borrow
        route, own = await routing.fetch_route_to_publish(
            self._runtime,
            servers,
            topic,
            default_topic=default_topic,
            default_topic_queues=queues,
            timeout=timeout,
        )
        return self._take(topic, route, None if own else borrow)

    # --- taking note ----------------------------------------------------------------------------

    def _take(self, topic: str, route: TopicRoute, borrowed: Borrowing | None = None) -> Known:
        before = self._known.get(topic)
        same = before is not None and before.borrowed == borrowed
        if before is not None and same and routing.same_route(before.route, route):
            return before
        queues = routing.publish_queues(topic, route)
        turns = self._turns.setdefault(topic, PerContext(self._chance))
        known = Known(
            route=route,
            borrowed=borrowed,
            to_publish=TopicQueues.of(queues, turns) if queues else None,
            to_subscribe=() if borrowed else routing.subscribe_queues(topic, route),
        )
        self._known = {**self._known, topic: known}
        self._addresses = self._all_addresses()
        log.info("the route of %s is now %s", topic, _shown(known))
        for watcher in tuple(self._watchers):
            watcher(topic)
        return known

    def watch(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed` with each topic whose route is another; call the result to end that."""
        self._watchers.append(changed)
        return lambda: self._watchers.remove(changed)

    def close(self) -> None:
        """Ask nobody any more."""
        for task in tuple(self._looking.values()):
            task.cancel()

    def _all_addresses(self) -> dict[str, Mapping[int, str]]:
        found: dict[str, dict[int, str]] = {}
        real = self._address_map
        for known in self._known.values():
            for broker, by_id in routing.addresses(known.route).items():
                mapped = {number: real.get(address, address) for number, address in by_id.items()}
                found.setdefault(broker, {}).update(mapped)
        return dict(found)


def _unwritable(route: TopicRoute) -> str:
    brokers = routing.addresses(route)
    reasons = [
        f"{data.broker} has no master"
        if MASTER not in brokers.get(data.broker, {})
        else f"{data.broker} has {data.write_queues} write queues and permission {data.perm}"
        for data in route.queues
    ]
    return "; ".join(reasons) or "its route names no queues at all"


def _shown(known: Known) -> str:
    queues = known.to_publish.write_queues if known.to_publish is not None else {}
    brokers = ", ".join(f"{broker} ({count} queues)" for broker, count in queues.items())
    return (brokers or "without a queue to write to") + ("" if known.own else ", if it is created")
