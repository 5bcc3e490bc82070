"""A whole cluster under a seed: what happens to it is drawn, what must hold is looked at after.

Two brokers and a name server, producers that send in order and in transactions, members of two
groups that share queues, one of them in order: all in one process, in virtual time. For a while
brokers are killed and come back, connections break, members leave, crash and join, handlers fail.
Then all faults end, and it has to come to rest:

- every message that was acknowledged is in the log, and every group has handled it;
- an ordered group handled the messages of each queue in their order;
- a transaction that was decided on is delivered once or not at all, as it was decided;
- every queue has exactly one owner in each group, and a member that leaves hands its queues over
  at once.

A run that breaks one of these raises `Broken`, with the seed and what happened before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeVar, TypeVarTuple
from unittest.mock import patch

from gantrymq.broker import app, flow_control, state
from gantrymq.client import engine, identity
from gantrymq.client.admin import AsyncAdmin
from gantrymq.client.consumer import AsyncConsumer
from gantrymq.client.producer import AsyncProducer
from gantrymq.client.reader import AsyncReader
from gantrymq.errors import ConnectFailed, GantryError
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.net.network import Gate, Listener, MakeProtocol, Network
from gantrymq.protocol.transactions import Decision
from gantrymq.rules.redelivery import RetryPolicy
from gantrymq.testing.clock import VirtualLoop
from gantrymq.testing.embedded import Embedded

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BROKERS: Final = ("broker-a", "broker-b")
TOPIC: Final = "orders"
DEALS: Final = "deals"
ORDERED: Final = "billing"
LOOSE: Final = "mailing"
QUEUES: Final = [MessageQueue(TOPIC, broker, number) for broker in BROKERS for number in range(2)]

BEGINNING: Final = 1_800_000_000 * 10**9
CHAOS: Final = 30.0
"""Virtual seconds of faults."""
REST: Final = 75.0
"""Then so many until it has to be at rest: longer than a broker keeps a lock of a dead client."""
ASKING: Final = 30.0
"""In which brokers ask about every open transaction: there are ten rounds of questions in it."""
_PID: Final = 4711
HAND_OVER: Final = 15.0
"""In which the queues of a member that leaves have to go on."""

BROKER: Final[dict[str, Any]] = {
    "topics.auto_create": False,
    "topics.trace": False,
    "registering.interval": 3.0,
    "transactions.immunity": 2.0,
    "transactions.interval": 3.0,
    "store.log.segment_size": 1 << 20,
    "store.queues.file_size": 20 * 500,
}
CLIENT: Final[dict[str, Any]] = {"route_interval": 3.0, "heartbeat_interval": 3.0}
CONSUMER: Final[dict[str, Any]] = {
    **CLIENT,
    "rebalance_interval": 2.0,
    "commit_interval": 0.5,
    "lock_interval": 3.0,
    "pull_wait": 3.0,
    "close_timeout": 1.0,
    "telemetry": False,
}


SOON: Final = RetryPolicy(delays=(timedelta(seconds=1),), pause=timedelta(seconds=0.1))


class Broken(AssertionError):
    """Something did not hold."""


class OwnNetwork:
    """The network as one process sees it: when the process dies, its connections end with it."""

    def __init__(self, network: Network) -> None:
        self.dead = False
        self._network = network
        self._protocols: list[Any] = []

    async def connect(self, address: str, make: MakeProtocol, *, timeout: float) -> None:
        if self.dead:
            raise ConnectFailed(f"connecting to {address} failed: this process is dead")
        protocol = make()
        await self._network.connect(address, lambda: protocol, timeout=timeout)
        self._protocols.append(protocol)

    async def listen(self, address: str, gate: Gate) -> Listener:
        return await self._network.listen(address, gate)

    def die(self) -> None:
        self.dead = True
        for protocol in self._protocols:
            protocol.close()


@dataclass(eq=False)
class Member:
    """A member of a group, and the process that it is in."""

    name: str
    group: str
    consumer: AsyncConsumer
    network: OwnNetwork


@dataclass
class Facts:
    """What was seen."""

    acknowledged: dict[bytes, MessageQueue] = field(default_factory=dict)
    handled: dict[str, list[tuple[bytes, MessageQueue, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By group: body, queue and offset, in the order in which handlers were done."""
    decided: dict[bytes, Decision] = field(default_factory=dict)
    """Transactions whose half message was acknowledged, and how they are to end."""
    events: list[str] = field(default_factory=list)


class World:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.seed: Final = seed
        self.random: Final = Random(seed)
        self.facts: Final = Facts()
        self.site: Final = Embedded(
            BROKERS, settings=BROKER, random=Random(seed), began_ns=BEGINNING
        )
        self.members: list[Member] = []
        self._serial = 0
        self._calm = False

    async def run(self) -> Facts:
        """Everything from the start to the end; `Broken` if something does not hold."""
        self.site.announce()
        try:
            await self.site.start()
            await self._prepare()
            await self._live()
            await self._look()
        except Broken as error:
            error.add_note(f"seed {self.seed}; before: {'; '.join(self.facts.events)}")
            raise
        finally:
            for member in list(self.members):
                with suppress(GantryError):
                    await member.consumer.close(0)
            await self.site.close()
        return self.facts

    # --- living ---------------------------------------------------------------------------------

    async def _prepare(self) -> None:
        async with self._admin() as admin:
            await admin.create_topic(TOPIC, queues=2)
            await admin.create_topic(DEALS, queues=1)
        for group, members in ((ORDERED, 3), (LOOSE, 2)):
            for _ in range(members):
                await self._join(group)

    async def _live(self) -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for number in range(2):
                tasks.create_task(self._send(number, stop))
            tasks.create_task(self._deal(stop))
            await self._have_faults()
            stop.set()
        self._calm = True
        self._note("calm")

    async def _have_faults(self) -> None:
        faults: list[Callable[[], Awaitable[None]]] = [
            self._kill_a_broker, self._cut_a_broker_off, self._break_connections,
            self._leave, self._crash, self._come,
        ]  # fmt: skip
        loop = asyncio.get_running_loop()
        end = loop.time() + CHAOS
        while loop.time() < end:
            await asyncio.sleep(self.random.uniform(0.2, 5.0))
            await self.random.choice(faults)()

    async def _send(self, number: int, stop: asyncio.Event) -> None:
        async with AsyncProducer(
            self.site.url, group=f"shop-{number}", network=OwnNetwork(self.site.network),
            send_timeout=2.0, telemetry=False, **CLIENT,
        ) as producer:  # fmt: skip
            while not stop.is_set():
                await asyncio.sleep(self.random.uniform(0, 0.6))
                await self._send_one(producer, self.random.choice(QUEUES))

    async def _send_one(self, producer: AsyncProducer, queue: MessageQueue) -> None:
        self._serial += 1
        body = b"%d" % self._serial
        with suppress(GantryError):
            await producer.send(TOPIC, body, queue=queue)
            self.facts.acknowledged[body] = queue

    async def _deal(self, stop: asyncio.Event) -> None:
        decided = self.facts.decided

        async def check(message: ReceivedMessage) -> bool | None:
            found = decided.get(message.body)
            return None if found is None else found is Decision.COMMIT

        async with AsyncProducer(
            self.site.url, group="dealers", checker=check, network=OwnNetwork(self.site.network),
            send_timeout=2.0, telemetry=False, **CLIENT,
        ) as producer:  # fmt: skip
            while not stop.is_set():
                await asyncio.sleep(self.random.uniform(0, 2.0))
                with suppress(GantryError):
                    await self._deal_once(producer)
            await asyncio.sleep(ASKING)  # brokers may still ask

    async def _deal_once(self, producer: AsyncProducer) -> None:
        self._serial += 1
        body = b"deal %d" % self._serial
        how = self.random.choice((Decision.COMMIT, Decision.ROLLBACK))
        silent = self.random.random() < 0.3
        async with producer.transaction(DEALS, body) as transaction:
            self.facts.decided[body] = how
            if silent:
                await transaction.leave_open()
            elif how is Decision.ROLLBACK:
                await transaction.rollback()

    # --- members --------------------------------------------------------------------------------

    async def _join(self, group: str) -> None:
        self._serial += 1
        name = f"{group}-{self._serial}"
        network = OwnNetwork(self.site.network)
        consumer = AsyncConsumer(
            self.site.url, group=group, start="earliest", topics=TOPIC, network=network,
            handler=self._handler(group, network), ordered=group == ORDERED,
            instance_name=name, retry=SOON, **CONSUMER,
        )  # fmt: skip
        with suppress(GantryError):
            await consumer.start()
            self.members.append(Member(name, group, consumer, network))

    def _handler(self, group: str, process: OwnNetwork) -> Callable[[ReceivedMessage], Any]:
        async def handle(message: ReceivedMessage) -> None:
            if not self._calm:
                await asyncio.sleep(self.random.expovariate(10))
                if self.random.random() < 0.05:
                    raise ValueError("by chance")
            if not process.dead:
                seen = (message.body, message.queue, message.offset)
                self.facts.handled[group].append(seen)

        return handle

    async def _leave(self) -> None:
        if member := self._any_member():
            self._note(f"{member.name} leaves")
            self.members.remove(member)
            with suppress(GantryError):
                await member.consumer.close()

    async def _crash(self) -> None:
        if member := self._any_member():
            self._note(f"{member.name} crashes")
            self.members.remove(member)
            member.network.die()
            with suppress(GantryError):
                await member.consumer.close(0)

    async def _come(self) -> None:
        group = self.random.choice((ORDERED, LOOSE))
        if len(self._of(group)) < 4:
            self._note(f"somebody joins {group}")
            await self._join(group)

    def _of(self, group: str) -> list[Member]:
        return [member for member in self.members if member.group == group]

    def _any_member(self) -> Member | None:
        """One that its group can do without."""
        there = [one for one in self.members if len(self._of(one.group)) > 1]
        return self.random.choice(there) if there else None

    # --- brokers --------------------------------------------------------------------------------

    async def _kill_a_broker(self) -> None:
        name = self.random.choice(BROKERS)
        self._note(f"{name} is killed")
        await self.site.kill(name)
        await asyncio.sleep(self.random.uniform(0.1, 6.0))
        await self.site.restart(name)
        self._note(f"{name} is back")

    async def _cut_a_broker_off(self) -> None:
        name = self.random.choice(BROKERS)
        self._note(f"{name} is cut off")
        with self.site.partition(name):
            await asyncio.sleep(self.random.uniform(0.1, 5.0))
        self._note(f"{name} is in reach")

    async def _break_connections(self) -> None:
        name = self.random.choice(BROKERS)
        self._note(f"connections of {name} break")
        self.site.network.at(self.site.brokers[name].address).cut()

    # --- looking --------------------------------------------------------------------------------

    async def _look(self) -> None:
        await self._reach("one owner for each queue", self._sharing, REST)
        await self._stays("one owner for each queue", self._sharing, HAND_OVER)
        for group in (ORDERED, LOOSE):
            await self._reach(f"{group} is done", partial(self._behind, group), REST)
        await self._hand_over()
        self._look_at_order()
        await self._look_at_log()
        await self._look_at_deals()

    async def _hand_over(self) -> None:
        """A member leaves in peace; what comes then is handled soon, and by whoever is left."""
        for group in (ORDERED, LOOSE):
            if len(self._of(group)) < 2:
                await self._join(group)
                await self._reach("one owner for each queue", self._sharing, REST)
            member = self._of(group)[0]
            self.members.remove(member)
            await member.consumer.close()
        async with AsyncProducer(
            self.site.url, group="afterwards", network=OwnNetwork(self.site.network),
            telemetry=False,
        ) as producer:  # fmt: skip
            for queue in QUEUES:
                await self._send_one(producer, queue)
        for group in (ORDERED, LOOSE):
            await self._reach(f"{group} goes on", partial(self._behind, group), HAND_OVER)

    async def _reach(self, what: str, missing: Callable[[], str], within: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while lacks := missing():
            if loop.time() > end:
                raise Broken(f"not within {within:.0f} s: {what}: {lacks}")
            await asyncio.sleep(0.25)

    async def _stays(self, what: str, missing: Callable[[], str], during: float) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + during
        while loop.time() < end:
            if lacks := missing():
                raise Broken(f"not any more: {what}: {lacks}")
            await asyncio.sleep(0.25)

    def _sharing(self) -> str:
        """Queues that have no owner, or several."""
        for group in (ORDERED, LOOSE):
            members = self._of(group)
            owners = Counter(
                queue for one in members for queue in one.consumer.queues if queue.topic == TOPIC
            )
            if wrong := {str(queue): owners[queue] for queue in QUEUES if owners[queue] != 1}:
                return f"{group} has owners {wrong}"
        return ""

    def _behind(self, group: str) -> str:
        """What was acknowledged and not handled."""
        handled = {body for body, _, _ in self.facts.handled[group]}
        left = [body for body in self.facts.acknowledged if body not in handled]
        return f"{len(left)} messages, {left[:3]}" if left else ""

    def _look_at_order(self) -> None:
        newest: dict[MessageQueue, int] = {}
        seen: set[tuple[MessageQueue, int]] = set()
        for _, queue, offset in self.facts.handled[ORDERED]:
            if (queue, offset) in seen:
                continue
            seen.add((queue, offset))
            if offset < newest.get(queue, -1):
                raise Broken(f"{queue} @ {offset} was handled after {newest[queue]}")
            newest[queue] = offset

    async def _look_at_log(self) -> None:
        there = {message.body for message in await self._all_of(TOPIC)}
        if lost := [body for body in self.facts.acknowledged if body not in there]:
            raise Broken(f"{len(lost)} acknowledged messages are not in the log: {lost[:5]}")

    async def _look_at_deals(self) -> None:
        times = Counter(message.body for message in await self._all_of(DEALS))
        for body, how in self.facts.decided.items():
            wanted = 1 if how is Decision.COMMIT else 0
            if times[body] != wanted:
                raise Broken(f"{body!r} was to be delivered {wanted} times, and was {times[body]}")

    async def _all_of(self, topic: str) -> list[ReceivedMessage]:
        async with AsyncReader(self.site.url, network=self.site.network) as reader:
            return [message async for message in reader.messages(topic)]

    def _admin(self) -> AsyncAdmin:
        return AsyncAdmin(self.site.url, network=self.site.network)

    def _note(self, what: str) -> None:
        self.facts.events.append(f"{asyncio.get_running_loop().time():.1f} {what}")


def run(seed: int) -> Facts:
    """What came of the run with that seed: the same each time, in every process."""
    with _quiet(), _seeded(seed), asyncio.Runner(loop_factory=OneThread) as runner:
        return runner.run(World(seed).run())


class OneThread(VirtualLoop):
    """A loop without other threads, so that everything has one order."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """What comes by chance or from the process is from the seed here, or is always the same.

    A broker looks less often whether there is anything to do: in virtual time nothing is late.
    """
    random = Random(seed)
    made = SimpleNamespace(Random=lambda: Random(random.getrandbits(64)))
    with (
        patch.object(engine, "random", made),
        patch("os.getpid", lambda: _PID),
        patch("time.monotonic_ns", count(1).__next__),
        patch("secrets.randbits", random.getrandbits),
        patch.multiple(identity._IDS, _by_ip={}, _pid=_PID),
        patch.object(flow_control, "INTERVAL", 1.0),
        patch.multiple(app, INTERVAL=1.0, TICK=0.2),
        patch.multiple(state, TICK=0.5, POPS_TICK=1.0),
    ):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """Nobody wants to read of faults that are meant."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
