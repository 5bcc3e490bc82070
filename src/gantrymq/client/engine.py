"""What producers and consumers of one client share: connections, routes, heartbeats, an identity.

There is one engine for each loop and configuration. The first member that joins starts it, the last
that leaves closes it.

**Heartbeats** say which groups a client belongs to. They go to every broker of a known route, to
masters alone if the client only produces: at once when somebody joins or changes what he wants,
every 30 s, and whenever a connection to a broker is made, since a broker forgets a client with its
connection. Who asks for one while one is on its way gets another, as that one may have been written
before he joined. Answers bring the brokers' versions.

**Connections that end** are made anew at once, with growing pauses, for as long as the broker is in
a route; and routes are looked at every few seconds until it is there again, or two minutes are
over, because a route may stop naming a broker that is gone, and name it again later. So a client is
known again to a broker that was restarted within seconds, and not half a minute later.

RocketMQ: MQClientInstance.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from gantrymq.client.config import DEFAULT_INSTANCE, ClientConfig
from gantrymq.client.identity import Origin, client_id, own_ip, unique_ids
from gantrymq.client.inside import inside_of
from gantrymq.client.members import Kind, Member
from gantrymq.client.routes import Routes
from gantrymq.client.table import ANSWERS
from gantrymq.client.ways import network_for
from gantrymq.errors import ClosedError, GantryError, NoNameServers, NoRoute, StateError
from gantrymq.flows.limits import longest_delay
from gantrymq.flows.routing import MASTER, NameServers
from gantrymq.net.aio import AsyncRuntime, Peer, Pool, Terms
from gantrymq.net.network import Network
from gantrymq.protocol.groups import Heartbeat, UnregisterClient
from gantrymq.protocol.names import AUTO_CREATE_TOPIC
from gantrymq.wire.message_id import UniqueIds

log = logging.getLogger("gantrymq.client")

_RECONNECT_FIRST: Final = 0.2
_RECONNECT_LONGEST: Final = 5.0
_LOOK_AFTER_LOSS: Final = 1.0
_LIMITS_FOR: Final = 60.0
"""Seconds after which routes are looked at again when a broker's connection has ended."""
_LOOK_LONGEST: Final = 5.0
_LOOK_FOR: Final = 120.0
"""And for how long, while that broker is away."""


class Engine:
    """One client."""

    def __init__(self, config: ClientConfig, *, network: Network | None = None) -> None:
        self.config: Final = config
        self.origin: Final = Origin()
        self.loop: Final = asyncio.get_running_loop()
        self.client_id = ""
        """Known when the first member has joined."""
        self.unique_ids: UniqueIds
        self.versions: dict[str, int] = {}
        """Brokers' addresses with the versions that their heartbeat answers named."""
        self._delays: dict[str, tuple[float, float | None]] = {}
        """What brokers said of how long messages may wait, and when."""
        self.requests: dict[str, asyncio.Future[Any]] = {}
        """Request messages by their correlation id, waiting for an answer."""
        self.chance: Final = random.Random()
        self.name_servers: Final = NameServers(_shuffled(config.name_servers, self.chance))
        self.in_memory: Final = network is not None or inside_of(config) is not None
        terms = Terms(
            table=ANSWERS,
            owner=self,
            options=config.peer_options,
            on_open=self._opened,
            on_end=self._ended,
        )
        self.pool: Final = Pool(
            terms=terms,
            network=network_for(config, network),
            connect_timeout=config.connect_timeout,
        )
        self.runtime: Final = AsyncRuntime(self.pool)
        self.routes: Final = Routes(
            self.runtime,
            self.name_servers,
            self.chance,
            address_map=config.reachable,
            timeout=config.call_timeout,
        )
        self.closed = False
        self._members: dict[tuple[Kind, str], list[Member]] = {}
        self._starting: asyncio.Task[None] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ended in the order of their beginning
        self._restoring: dict[str, asyncio.Task[Any]] = {}
        self._lost: set[str] = set()
        """Brokers' addresses whose connections have ended, until there are others."""
        self._looking: asyncio.Task[None] | None = None
        self._doubted: set[str] = set()
        self._beating = asyncio.Lock()
        self._next_beat: asyncio.Task[None] | None = None
        self._beaten: set[str] = set()
        self._connected: dict[str, float] = {}

    def __str__(self) -> str:
        return self.client_id or "a client that has not started"

    # --- members --------------------------------------------------------------------------------

    @property
    def members(self) -> list[Member]:
        """Everybody who has joined."""
        return [member for group in self._members.values() for member in group]

    def find(self, kind: Kind, group: str) -> Member | None:
        """The member of that kind and group; the first one, if several share it."""
        found = self._members.get((kind, group))
        return found[0] if found else None

    async def join(self, member: Member) -> None:
        """Take `member` in, and let the brokers know; the first to join starts the engine."""
        self.origin.check("this client")
        if self.closed:
            raise ClosedError(f"client {self} was closed")
        beside = self._members.setdefault((member.kind, member.group), [])
        if beside and not member.shared:
            raise StateError(
                f"a {member.kind} of group {member.group} is already in client {self}: use that"
                f" one, or give this one another group or an instance_name of its own"
            )
        beside.append(member)
        try:
            await self._start()
            await self.routes.refresh(member.topics())
            await self.beat()
        except BaseException:
            await self._drop(member)
            raise

    async def leave(self, member: Member) -> None:
        """Let `member` go, and tell the brokers; the last to leave closes the engine."""
        if member not in self.members:
            return
        try:
            await self._unregister(member)
        finally:
            await self._drop(member)

    async def _drop(self, member: Member) -> None:
        key = (member.kind, member.group)
        if member in (group := self._members.get(key, [])):
            group.remove(member)
        if not group:
            self._members.pop(key, None)
        if not self._members:
            await self.close()

    async def _unregister(self, member: Member) -> None:
        producer, consumer = member.producer_data(), member.consumer_data()
        others = [m for m in self.members if m is not member and m.kind == member.kind]
        if (producer is None and consumer is None) or any(m.group == member.group for m in others):
            return
        request = UnregisterClient(
            client_id=self.client_id,
            producer_group=None if producer is None else producer.group,
            consumer_group=None if consumer is None else consumer.group,
        )
        known = sorted(self._beaten)
        ready = [address for address in known if self.pool.ready(address) is not None]
        calls = (self.runtime.call(a, request, timeout=self.config.call_timeout) for a in ready)
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(outcome, GantryError):
                log.info("%s could not be unregistered: %s", member.group, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    # --- life -----------------------------------------------------------------------------------

    async def _start(self) -> None:
        if self._starting is None:
            self._starting = asyncio.create_task(self._first_steps())
        await asyncio.shield(self._starting)

    async def _first_steps(self) -> None:
        if not self.config.name_servers:
            raise NoNameServers(
                "no name server is set: pass a URL such as rmq://localhost:9876, or set GANTRY_URL"
                " or NAMESRV_ADDR"
            )
        await self._look_around()
        first = self.pool.ready(next(iter(self.name_servers)))
        ip = own_ip(self.config, first.local if first is not None else "")
        self.client_id = client_id(self.config, ip)
        self.unique_ids = unique_ids(ip)
        _claim(self)
        self.spawn(self._every(self.config.route_interval, self._refresh_routes), "routes")
        self.spawn(self._every(self.config.heartbeat_interval, self.beat), "heartbeats")

    async def _look_around(self) -> None:
        """Ask for the route that new topics would take: it names the brokers there are."""
        try:
            await self.routes.of(AUTO_CREATE_TOPIC)
        except NoRoute as absent:
            log.debug("no topic can be made by sending to it: %s", absent)

    async def close(self) -> None:
        """End everything; members that are left find it closed."""
        if self.closed:
            return
        self.closed = True
        _forget(self)
        self.routes.close()
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for future in self.requests.values():
            future.cancel()
        await self.pool.close()

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run `work` until the engine closes; what it raises is logged."""
        task = self.loop.create_task(work, name=f"gantrymq {name}")
        self._tasks[task] = None
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s of client %s failed", task.get_name(), self, exc_info=error)

    async def _every(self, interval: float, do: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                await do()
            except GantryError as error:
                log.warning("%s: %s", self, error)

    async def _refresh_routes(self) -> None:
        topics = {topic for member in self.members for topic in member.topics()}
        await self.routes.refresh(topics)

    def doubt(self, topic: str) -> None:
        """What is known of `topic` may be wrong: look again, once for all who say so meanwhile."""
        if topic not in self._doubted and not self.closed:
            self._doubted.add(topic)
            self.spawn(self._clear_up(topic), "routes")

    async def _clear_up(self, topic: str) -> None:
        try:
            await self.routes.renew(topic)
        finally:
            self._doubted.discard(topic)

    # --- heartbeats -----------------------------------------------------------------------------

    async def beat(self) -> None:
        """Let every broker know who the members are, as they are now."""
        if self._next_beat is None:
            self._next_beat = self.spawn(self._beat_in_turn(), "heartbeat")
        await asyncio.shield(self._next_beat)

    async def introduce(self) -> None:
        """Make sure that every broker of a known route has heard of the members."""
        if not self._places() <= self._beaten:
            await self.beat()

    async def version_at(self, address: str) -> int:
        """The version of the broker at `address`; asked for if no heartbeat has gone there yet."""
        if address not in self.versions:
            await self._beat_at(address)
        return self.versions[address]

    async def longest_delay_at(self, address: str) -> float | None:
        """How many seconds ahead the broker at `address` takes messages; None if it does not say.

        What it said is believed for a minute: an administrator may change it.
        """
        now = self.runtime.now()
        known = self._delays.get(address)
        if known is None or now - known[0] > _LIMITS_FOR:
            limit = await longest_delay(self.runtime, address, timeout=self.config.call_timeout)
            known = self._delays[address] = (now, limit)
        return known[1]

    async def _beat_in_turn(self) -> None:
        async with self._beating:
            self._next_beat = None
            await asyncio.gather(*(self._try_to_beat_at(place) for place in sorted(self._places())))

    def _places(self) -> set[str]:
        """Where heartbeats go."""
        consumes = any(member.consumer_data() is not None for member in self.members)
        return {
            address
            for by_id in self.routes.brokers.values()
            for number, address in by_id.items()
            if consumes or number == MASTER
        }

    async def _try_to_beat_at(self, address: str) -> None:
        try:
            await self._beat_at(address)
        except GantryError as error:
            known = address in self._beaten
            self._beaten.discard(address)
            log.log(logging.WARNING if known else logging.INFO, "no heartbeat: %s", error)

    async def _beat_at(self, address: str) -> None:
        members = self.members
        producers = (member.producer_data() for member in members)
        consumers = (member.consumer_data() for member in members)
        beat = Heartbeat(
            client_id=self.client_id,
            producers=list({data.group: data for data in producers if data is not None}.values()),
            consumers=[data for data in consumers if data is not None],
        )
        reply = await self.runtime.call(address, beat, timeout=self.config.call_timeout)
        self._beaten.add(address)
        self.versions[address] = reply.version

    # --- connections ----------------------------------------------------------------------------

    def connected_since(self, address: str) -> float:
        """When the connection to `address` was made, by the runtime's clock."""
        return self._connected.get(address, self.runtime.now())

    def _opened(self, peer: Peer) -> None:
        address = str(peer)
        self._connected[address] = self.runtime.now()
        self._lost.discard(address)
        if address in self._places() and not self.closed and self.client_id:
            self.spawn(self._try_to_beat_at(address), "heartbeat")

    def _ended(self, peer: Peer) -> None:
        address = str(peer)
        if self.closed or address in self._restoring or address not in self._places():
            return
        self._beaten.discard(address)
        task = self._restoring[address] = self.spawn(self._restore(address), "reconnecting")
        task.add_done_callback(lambda _: self._restoring.pop(address, None))
        self._lost.add(address)
        if self._looking is not None:
            self._looking.cancel()
        self._looking = self.spawn(self._look_for_lost(), "routes")

    async def _restore(self, address: str) -> None:
        """Connect again; the heartbeat follows by itself."""
        pause = _RECONNECT_FIRST
        while address in self._places():
            try:
                await self.pool.peer(address)
            except GantryError as error:
                log.debug("broker %s is away: %s", address, error)
            else:
                return
            await asyncio.sleep(pause * (1 - self.chance.random() / 4))
            pause = min(2 * pause, _RECONNECT_LONGEST)

    async def _look_for_lost(self) -> None:
        """Look at routes until whoever was lost is connected again, or is given up."""
        pause, end = _LOOK_AFTER_LOSS, self.runtime.now() + _LOOK_FOR
        while self._lost and self.runtime.now() < end:
            await asyncio.sleep(pause * (1 - self.chance.random() / 4))
            await self._refresh_routes()
            pause = min(2 * pause, _LOOK_LONGEST)
        self._lost.clear()


# --- sharing --------------------------------------------------------------------------------------

_ENGINES: Final[list[Engine]] = []
"""Every engine that is open in this process."""


def shared(config: ClientConfig, *, network: Network | None = None) -> Engine:
    """The engine of this loop with this configuration, made if need be; for its members to join."""
    loop = asyncio.get_running_loop()
    for engine in tuple(_ENGINES):
        if engine.loop is loop and engine.config == config and engine.origin.is_here:
            return engine
    engine = Engine(config, network=network)
    _ENGINES.append(engine)
    return engine


def _claim(engine: Engine) -> None:
    """Two clients of one id, of one cluster, would be one to its brokers."""
    if engine.config.instance_name == DEFAULT_INSTANCE:
        return
    for other in _ENGINES:
        same = other.client_id == engine.client_id and other.origin.is_here
        if other is not engine and same and set(other.name_servers) & set(engine.name_servers):
            raise StateError(
                f"client id {engine.client_id} is already in use in this process, by a client with"
                f" other settings or on another loop: give one of them another instance_name"
            )


def _forget(engine: Engine) -> None:
    if engine in _ENGINES:
        _ENGINES.remove(engine)


def _shuffled(addresses: tuple[str, ...], chance: random.Random) -> list[str]:
    return chance.sample(addresses, len(addresses))
