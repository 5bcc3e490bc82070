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
from typing import Final

from gantrymq.errors import CallTimeout, GantryError, NoRoute
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a topic."""

    route: TopicRoute
    own: bool
    """Whether it is the topic's own route, not that of the auto-create topic."""
    to_publish: TopicQueues | None
    """None where no queue can be written to."""
    to_subscribe: tuple[MessageQueue, ...]


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
        self.default_topic = AUTO_CREATE_TOPIC
        self.default_topic_queues = routing.DEFAULT_TOPIC_QUEUES
        self._runtime = runtime
        self._chance = chance
        self._address_map = dict(address_map or {})
        self._timeout = timeout
        self._known: dict[str, Known] = {}
        self._turns: dict[str, Turns] = {}
        self._addresses: dict[str, Mapping[int, str]] = {}
        self._looking: dict[tuple[str, bool], asyncio.Task[Known]] = {}
        self._watchers: list[Callable[[str], None]] = []

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

    # --- looking up -----------------------------------------------------------------------------

    async def of(self, topic: str) -> TopicRoute:
        """The topic's own route, looked up if need be."""
        known = self._known.get(topic)
        if known is None or not known.own:
            known = await self._look_up(topic, borrow=False)
        return known.route

    async def queues_to_publish(self, topic: str) -> TopicQueues:
        """Where a producer may send; for a topic that does not exist yet, where it would."""
        known = self._known.get(topic)
        if known is None or known.to_publish is None:
            known = await self._look_up(topic, borrow=True)
        if known.to_publish is None:
            raise NoRoute(
                f"topic {topic} has no queue that can be written to: {_unwritable(known.route)}"
            )
        return known.to_publish

    async def queues_to_subscribe(self, topic: str) -> tuple[MessageQueue, ...]:
        """What consumers read."""
        known = self._known.get(topic)
        if known is None or not known.own:
            known = await self._look_up(topic, borrow=False)
        return known.to_subscribe

    async def refresh(self, topics: Collection[str] = ()) -> None:
        """Look again at everything known and at `topics`; failures leave things as they are."""
        wanted = {*self._known, *topics}
        await asyncio.gather(*(self._refresh(topic) for topic in sorted(wanted)))

    async def renew(self, topic: str) -> None:
        """Look again at one topic: a broker has said that what we know is not so."""
        known = self._known.get(topic)
        try:
            await self._look_up(topic, borrow=known is not None and not known.own)
        except GantryError as error:
            log.debug("the route of %s could not be renewed: %s", topic, error)

    async def _refresh(self, topic: str) -> None:
        try:
            await self._look_up(topic, borrow=False)
        except NoRoute:
            pass  # not there yet, or not at this name server any more
        except GantryError as error:
            log.warning("the route of %s could not be refreshed: %s", topic, error)

    async def _look_up(self, topic: str, *, borrow: bool) -> Known:
        key = (topic, borrow)
        task = self._looking.get(key)
        if task is None:
            task = self._looking[key] = asyncio.create_task(self._fetch(topic, borrow))
            task.add_done_callback(lambda done: self._looked(key, done))
        try:
            async with asyncio.timeout(self._timeout + 0.5):
                return await asyncio.shield(task)
        except TimeoutError as error:
            if isinstance(error, GantryError):
                raise
            raise CallTimeout(
                f"no route of {topic} in {self._timeout:.1f}s from {self.name_servers}"
            ) from error

    def _looked(self, key: tuple[str, bool], task: asyncio.Task[Known]) -> None:
        del self._looking[key]
        if not task.cancelled():
            task.exception()  # seen, also when nobody waits any more

    async def _fetch(self, topic: str, borrow: bool) -> Known:
        servers = self.name_servers
        if borrow:
            route, own = await routing.fetch_route_to_publish(
                self._runtime,
                servers,
                topic,
                default_topic=self.default_topic,
                default_topic_queues=self.default_topic_queues,
                timeout=self._timeout,
            )
        else:
            route = await routing.fetch_route(self._runtime, servers, topic, timeout=self._timeout)
            own = True
        return self._take(topic, route, own=own)

    # --- taking note ----------------------------------------------------------------------------

    def _take(self, topic: str, route: TopicRoute, *, own: bool) -> Known:
        before = self._known.get(topic)
        if before is not None and before.own == own and routing.same_route(before.route, route):
            return before
        queues = routing.publish_queues(topic, route)
        turns = self._turns.setdefault(topic, PerContext(self._chance))
        known = Known(
            route=route,
            own=own,
            to_publish=TopicQueues.of(queues, turns) if queues else None,
            to_subscribe=routing.subscribe_queues(topic, route) if own else (),
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
