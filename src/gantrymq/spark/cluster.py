"""What the driver asks name servers and brokers: which queues there are, and where they end.

It asks all brokers at the same time, on an event loop that turns only while something is asked.
Topics have their users' names here; on the wire they carry the namespace.

A broker that cannot be asked does not keep the others from answering: answers come with what went
wrong, by broker, and it is for the caller to wait, to go on without, or to fail.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeVar

from gantrymq.client.config import ClientConfig
from gantrymq.errors import GantryError, NoAddress, NoRoute, TransportError
from gantrymq.flows import offsets, routing
from gantrymq.flows.offsets import Bounds
from gantrymq.flows.routing import MASTER, NameServers
from gantrymq.flows.topic_changes import permission_text
from gantrymq.model import MessageQueue
from gantrymq.net.link import Terms
from gantrymq.net.pool import AsyncRuntime, Pool
from gantrymq.net.tcp import Tcp
from gantrymq.protocol import names
from gantrymq.protocol.routing import GetAllTopics, GetClusterInfo, TopicRoute
from gantrymq.protocol.statistics import GetTopicStats

T = TypeVar("T")

MANY: Final = 32
"""Queues of a topic at a broker from which on one question about all of them is cheaper."""
_AT_A_TIME: Final = 64
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0


class Layout(NamedTuple):
    """Where things are."""

    queues: tuple[MessageQueue, ...]
    addresses: Mapping[str, Mapping[int, str]]
    """By broker and id; the master's is 0."""

    @property
    def topics(self) -> frozenset[str]:
        """The topics that have queues."""
        return frozenset(queue.topic for queue in self.queues)


class Answers(NamedTuple):
    """What brokers said, and why others did not."""

    found: dict[MessageQueue, Any]
    failures: dict[str, GantryError]
    replicas: set[str]
    """The brokers for which a replica answered, which may not have everything yet."""


class Wanted(NamedTuple):
    """Which queues somebody wants to read."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[tuple[str, int]] = frozenset()
    """If any, only these, by broker and number."""


class Cluster:
    """The name servers and brokers, as the driver sees them. It belongs to one thread."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._space = config.namespace or ""
        self._name_servers = NameServers(config.name_servers)
        self._timeout = config.call_timeout
        self._addresses: dict[str, Mapping[int, str]] = {}
        self._runner = asyncio.Runner()
        self._pool: Pool | None = None

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """What `main` returns."""
        return self._runner.run(main)

    def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            self.run(self._pool.close())
            self._pool = None
        self._runner.close()

    @property
    def runtime(self) -> AsyncRuntime:
        """What flows run on; to be used inside of `run`."""
        if self._pool is None:
            self._pool = Pool(
                terms=Terms(options=self._config.peer_options),
                network=Tcp(tls=self._config.client_tls),
                connect_timeout=self._config.connect_timeout,
            )
        return AsyncRuntime(self._pool)

    def wire(self, queue: MessageQueue) -> MessageQueue:
        """The queue as brokers know it."""
        return queue._replace(topic=names.wrap(self._space, queue.topic)) if self._space else queue

    def addresses(self, broker: str) -> Mapping[int, str]:
        """Where a broker was last known to be."""
        return self._addresses.get(broker, {})

    # --- which queues there are -----------------------------------------------------------------

    async def layout(self, wanted: Wanted) -> Layout:
        """The queues that are wanted and there, and where their brokers are."""
        topics: Collection[str] = wanted.topics
        if wanted.pattern is not None:
            topics = await self.topics(wanted.pattern)
        routes = await _some_at_a_time(self._route, topics)
        found: list[MessageQueue] = []
        addresses: dict[str, Mapping[int, str]] = {}
        for topic, route in zip(topics, routes, strict=True):
            if route is None and wanted.pattern is None:
                raise await self._absent(topic)
            if route is not None:
                addresses |= self._reachable(route)
                queues = routing.subscribe_queues(topic, route)
                if not queues and wanted.pattern is None:
                    raise _unreadable(topic, route)
                found += queues
        if wanted.queues:
            found = [one for one in found if (one.broker, one.queue_id) in wanted.queues]
        self._addresses |= addresses
        return Layout(tuple(sorted(found)), addresses)

    async def topics(self, pattern: str) -> list[str]:
        """The topics that a pattern means; hidden ones only if it names their kind."""
        reply = await routing.ask_name_servers(
            self.runtime, self._name_servers, GetAllTopics(), timeout=self._timeout
        )
        matches = re.compile(pattern).fullmatch
        plain = (names.unwrap(self._space, topic) for topic in self._ours(reply.topics))
        return sorted(topic for topic in plain if matches(topic) and not _hidden(topic, pattern))

    def _ours(self, topics: Iterable[str]) -> Iterable[str]:
        if not self._space:
            return topics
        return (topic for topic in topics if names.namespace_of(topic) == self._space)

    async def _route(self, topic: str) -> TopicRoute | None:
        wire = names.wrap(self._space, topic)
        try:
            return await routing.fetch_route(
                self.runtime, self._name_servers, wire, timeout=self._timeout
            )
        except NoRoute:
            return None

    async def _absent(self, topic: str) -> NoRoute:
        wire = names.wrap(self._space, topic)
        why = await routing.explain_no_route(
            self.runtime, self._name_servers, wire, timeout=self._timeout
        )
        return NoRoute(f"no route info of this topic: {topic}; {why}")

    def _reachable(self, route: TopicRoute) -> dict[str, Mapping[int, str]]:
        known = self._config.reachable
        return {
            broker: {number: known.get(address, address) for number, address in by_id.items()}
            for broker, by_id in routing.addresses(route).items()
        }

    # --- where they begin and end ---------------------------------------------------------------

    async def ends(self, queues: Iterable[MessageQueue]) -> Answers:
        """The offset that the next message of each queue will have."""
        return await self._each(queues, self._ends_at)

    async def bounds(self, queues: Iterable[MessageQueue]) -> Answers:
        """The `Bounds` of each queue."""
        return await self._each(queues, self._bounds_at)

    async def at_times(self, times: Mapping[MessageQueue, datetime]) -> Answers:
        """The first offset of each queue that was stored at a time or later."""

        async def at(address: str, queues: list[MessageQueue]) -> list[Any]:
            return await asyncio.gather(
                *(
                    offsets.at_time(
                        self.runtime, address, self.wire(queue), times[queue], timeout=self._timeout
                    )
                    for queue in queues
                )
            )

        return await self._each(times, at)

    async def _ends_at(self, address: str, queues: list[MessageQueue]) -> list[Any]:
        if len(queues) > MANY:
            return [bounds.end for bounds in await self._bounds_at(address, queues)]
        ask = offsets.end
        return await asyncio.gather(
            *(ask(self.runtime, address, self.wire(q), timeout=self._timeout) for q in queues)
        )

    async def _bounds_at(self, address: str, queues: list[MessageQueue]) -> list[Any]:
        if len(queues) > MANY:
            return await self._from_stats(address, queues)
        ask = offsets.bounds
        return await asyncio.gather(
            *(ask(self.runtime, address, self.wire(q), timeout=self._timeout) for q in queues)
        )

    async def _from_stats(self, address: str, queues: list[MessageQueue]) -> list[Bounds]:
        found: dict[MessageQueue, Bounds] = {}
        for topic in {queue.topic for queue in queues}:
            question = GetTopicStats(topic=names.wrap(self._space, topic))
            stats = await self.runtime.call(address, question, timeout=10 * self._timeout)
            for queue, said in stats.queues.items():
                bounds = Bounds(max(0, said.min_offset), max(0, said.max_offset))
                found[queue._replace(topic=topic)] = bounds
        return [found.get(queue, Bounds(0, 0)) for queue in queues]

    async def _each(
        self,
        queues: Iterable[MessageQueue],
        ask: Callable[[str, list[MessageQueue]], Awaitable[list[Any]]],
    ) -> Answers:
        """Ask each broker about its queues, all at once."""
        by_broker: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault(queue.broker, []).append(queue)
        answers = Answers({}, {}, set())

        async def one(broker: str, its: list[MessageQueue]) -> None:
            try:
                said = await self._ask(broker, its, ask, answers.replicas)
                answers.found.update(zip(its, said, strict=True))
            except GantryError as error:
                answers.failures[broker] = error

        await asyncio.gather(*(one(broker, its) for broker, its in by_broker.items()))
        return answers

    async def _ask(
        self,
        broker: str,
        queues: list[MessageQueue],
        ask: Callable[[str, list[MessageQueue]], Awaitable[list[Any]]],
        replicas: set[str],
    ) -> list[Any]:
        """The answer of the master, or while it cannot be reached of a replica."""
        known = self.addresses(broker)
        failure: GantryError = NoAddress(f"no route has an address of broker {broker}")
        for number in sorted(known, key=lambda each: (each != MASTER, each)):
            try:
                said = await ask(known[number], queues)
            except TransportError as error:
                failure = error
            else:
                if number != MASTER:
                    replicas.add(broker)
                return said
        raise failure

    async def registered(self) -> frozenset[str]:
        """The brokers that the name server knows, whatever topics they have."""
        info = await routing.ask_name_servers(
            self.runtime, self._name_servers, GetClusterInfo(), timeout=self._timeout
        )
        return frozenset(info.brokers)

    async def insist(
        self,
        ask: Callable[[], Awaitable[Answers]],
        look: Callable[[], Awaitable[Any]],
        limit: float,
    ) -> dict[MessageQueue, Any]:
        """What all brokers answer; those that are away are asked again until `limit` seconds."""
        begun, pause = time.monotonic(), _FIRST_PAUSE
        while (answers := await ask()).failures:
            left = begun + limit - time.monotonic()
            if left <= 0 or not all(error.retriable for error in answers.failures.values()):
                raise away(answers.failures, time.monotonic() - begun)
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)
            await look()
        return answers.found


def _unreadable(topic: str, route: TopicRoute) -> NoAddress:
    said = ", ".join(
        f"{data.broker}: {data.read_queues} queues, permission {permission_text(data.perm)}"
        for data in route.queues
    )
    return NoAddress(f"topic {topic} has no queue that may be read ({said})")


def away(failures: Mapping[str, GantryError], seconds: float) -> GantryError:
    """The error that says which brokers could not be asked."""
    broker, error = next(iter(sorted(failures.items())))
    more = f" (and {len(failures) - 1} more brokers)" if len(failures) > 1 else ""
    failed: GantryError = NoAddress(
        f"broker {broker}{more} could not be asked for its offsets in {seconds:.1f}s: {error}"
    )
    failed.__cause__ = error
    return failed


async def _some_at_a_time(ask: Callable[[str], Awaitable[T]], items: Collection[str]) -> list[T]:
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(item: str) -> T:
        async with gate:
            return await ask(item)

    return await asyncio.gather(*(one(item) for item in items))


def _hidden(topic: str, pattern: str) -> bool:
    if names.is_retry_topic(topic):
        return names.RETRY_PREFIX not in pattern
    if names.is_dead_letter_topic(topic):
        return names.DEAD_LETTER_PREFIX not in pattern
    return names.is_system_topic(topic) and topic != pattern
