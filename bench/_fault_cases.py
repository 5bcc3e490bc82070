"""What can go wrong between a client and its servers, and what must hold all the same.

A case is a *fault* that happens during a kind of *work*; every pair of them is a case. Clients
reach a name server and two brokers through relays, never directly, and send and take messages
before the fault, while it lasts and after it. Then:

- every message that was acknowledged has come to the group;
- what was sent with one order key, and acknowledged, came in that order where the group is ordered;
- every call ended by its deadline, with a receipt or with an error;
- when the fault was over, every queue could be sent to and was read again within half a minute.

Messages may come more than once: that is what is promised, and what is counted.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import gantrymq as gantry
from gantrymq.client.consumer import AsyncConsumer
from gantrymq.errors import GantryError, SendFailed
from gantrymq.model import MessageQueue, ReceivedMessage
from gantrymq.protocol.configs import PutKey
from gantrymq.testing.chaos import Relay, Weather

TOPIC: Final = "orders"
GROUP: Final = "billing"
BROKERS: Final = ("a", "b")
NAMES: Final = "names"
QUEUES: Final = 2
"""Of the topic, at each broker."""
DEADLINE: Final = 1.5
"""Seconds that a send may take, its further attempts included."""
POLL: Final = 0.5
LONG: Final = 2.5
"""Seconds of a fault that sends do not survive."""
AGAIN: Final = 30.0
"""Seconds after which everything must go on by itself."""


class Servers(Protocol):
    """A name server and brokers of those names, which keep their addresses and what they stored."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where they really are."""
        ...

    async def stop(self, who: str) -> None:
        """End one, the harder the better."""
        ...

    async def start(self, who: str) -> None:
        """Start one again; return when it takes connections."""
        ...


@dataclass
class Scene:
    """Servers behind relays."""

    servers: Servers
    relays: dict[str, Relay]

    @property
    def brokers(self) -> list[Relay]:
        """The way to the brokers."""
        return [self.relays[name] for name in BROKERS]

    @property
    def all(self) -> list[Relay]:
        """Every way there is."""
        return [*self.relays.values()]

    def where(self) -> dict[str, Any]:
        """What leads clients through the relays."""
        real = self.servers.addresses
        return {
            "name_servers": self.relays[NAMES].address,
            "address_map": {real[name]: self.relays[name].address for name in BROKERS},
            "client_ip": "127.0.0.1",
        }

    async def down(self, *names: str, seconds: float = 1.0) -> None:
        """End some servers, and start them again after a while."""
        for name in names:
            self.relays[name].refuse()
            await self.servers.stop(name)
            self.relays[name].reset()
        await asyncio.sleep(seconds)
        await asyncio.gather(*map(self._up, names))

    async def _up(self, name: str) -> None:
        await self.servers.start(name)
        await self.relays[name].admit()


# --- faults ---------------------------------------------------------------------------------------


async def cut_brokers(scene: Scene) -> None:
    """Connections to brokers end in good order, again and again."""
    for _ in range(3):
        for relay in scene.brokers:
            relay.cut()
        await asyncio.sleep(0.3)


async def cut_name_server(scene: Scene) -> None:
    """Connections to the name server end, and for a while it takes no others."""
    names = scene.relays[NAMES]
    names.refuse()
    names.cut()
    await asyncio.sleep(LONG)
    await names.admit()


async def reset_brokers(scene: Scene) -> None:
    """Connections to brokers end at once, and what was on its way is lost."""
    for _ in range(3):
        for relay in scene.brokers:
            relay.reset()
        await asyncio.sleep(0.3)


async def reset_everything(scene: Scene) -> None:
    """The same, with the name server's."""
    for _ in range(3):
        for relay in scene.all:
            relay.reset()
        await asyncio.sleep(0.3)


async def reset_in_a_request(scene: Scene) -> None:
    """A connection ends in the middle of a request."""
    await _reset_within(scene, "in")


async def reset_in_an_answer(scene: Scene) -> None:
    """A connection ends in the middle of an answer: what was asked for has been done."""
    await _reset_within(scene, "out")


async def _reset_within(scene: Scene, way: Any) -> None:
    for size in (700, 1, 333):
        for relay in scene.brokers:
            relay.reset_after(way, size)
        await soon(lambda: not any(relay.is_armed for relay in scene.brokers), "a reset")


async def stall_for_a_moment(scene: Scene) -> None:
    """Nothing moves, for less than a deadline."""
    await _stall(scene.all, 0.6)


async def stall_one_broker(scene: Scene) -> None:
    """Nothing moves to or from one broker, for longer than a deadline."""
    await _stall(scene.brokers[:1], LONG)


async def stall_everything(scene: Scene) -> None:
    """Nothing moves anywhere, for longer than a deadline."""
    await _stall(scene.all, LONG)


async def _stall(relays: Sequence[Relay], seconds: float) -> None:
    for relay in relays:
        relay.stall()
    await asyncio.sleep(seconds)
    for relay in relays:
        relay.resume()


async def split(scene: Scene) -> None:
    """Bytes come in pieces of a few."""
    await _weather(scene, Weather(piece=7), 1.0)


async def slow(scene: Scene) -> None:
    """Bytes come slowly."""
    await _weather(scene, Weather(rate=20_000, delay=0.02), 1.5)


async def reorder(scene: Scene) -> None:
    """Connections overtake each other."""
    await _weather(scene, Weather(jitter=0.2), 1.5)


async def _weather(scene: Scene, weather: Weather, seconds: float) -> None:
    for relay in scene.all:
        relay.weather = weather
    await asyncio.sleep(seconds)
    for relay in scene.all:
        relay.weather = Weather()


async def restart_broker(scene: Scene) -> None:
    """A broker ends, and comes back with what it stored."""
    await scene.down("a")


async def restart_name_server(scene: Scene) -> None:
    """The name server ends, and comes back knowing no broker."""
    await scene.down(NAMES)


async def restart_both(scene: Scene) -> None:
    """A broker and the name server end, and come back."""
    await scene.down("a", NAMES)


Fault = Callable[[Scene], Awaitable[None]]
FAULTS: Final[tuple[Fault, ...]] = (
    cut_brokers,
    cut_name_server,
    reset_brokers,
    reset_everything,
    reset_in_a_request,
    reset_in_an_answer,
    stall_for_a_moment,
    stall_one_broker,
    stall_everything,
    split,
    slow,
    reorder,
    restart_broker,
    restart_name_server,
    restart_both,
)


# --- what is written down -------------------------------------------------------------------------


@dataclass
class Ledger:
    """What was acknowledged, what came, and how long calls took. Bodies are `key number`."""

    slack: float
    """Seconds by which a busy machine may be late."""
    acknowledged: set[bytes] = field(default_factory=set)
    taken: list[bytes] = field(default_factory=list)
    failed: int = 0
    slowest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    wrong: list[str] = field(default_factory=list)
    """What should not have been."""
    last_failure: str = ""
    over: bool = False
    """Whether enough has been sent."""

    @contextmanager
    def call(self, name: str, deadline: float) -> Iterator[None]:
        """Around a call that has to end by its deadline, however it ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            took = time.monotonic() - began
            self.slowest[name] = max(self.slowest[name], took)
            if took > deadline + self.slack:
                self.wrong.append(f"{name} took {took:.2f}s, {deadline:.2f} was its deadline")

    def take(self, messages: Sequence[ReceivedMessage]) -> None:
        """These came."""
        self.taken += [message.body for message in messages]

    @property
    def missing(self) -> set[bytes]:
        """What was acknowledged and has not come."""
        return self.acknowledged - set(self.taken)

    @property
    def repeats(self) -> int:
        """How many came that had come before."""
        return len(self.taken) - len(set(self.taken))

    def out_of_order(self) -> list[str]:
        """Keys whose acknowledged messages did not come in the order of their numbers."""
        firsts: dict[bytes, list[int]] = defaultdict(list)
        for body in dict.fromkeys(self.taken):
            key, _, number = body.partition(b" ")
            if body in self.acknowledged:
                firsts[key].append(int(number))
        return [f"{key!r}: {found}" for key, found in firsts.items() if found != sorted(found)]


async def soon(condition: Callable[[], object], what: str, limit: float = AGAIN) -> None:
    """Wait until `condition` holds."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} did not happen within {limit:.0f}s")
        await asyncio.sleep(0.02)


# --- kinds of work --------------------------------------------------------------------------------


class Work(Protocol):
    """A producer and those who consume."""

    ordered: bool

    def running(self, scene: Scene, ledger: Ledger) -> Any:
        """A context that sends and takes until the ledger says that it is over."""
        ...


Send = Callable[..., Awaitable[Any]]


async def keep_sending(ledger: Ledger, send: Send, key: bytes, *, again: bool, **how: Any) -> None:
    """Numbers of one key, one after the other; `again` has each sent until it is acknowledged."""
    for number in itertools.count():
        body = b"%s %d" % (key, number)
        while not ledger.over or not number:
            if await try_to_send(ledger, send, body, **how) or not again:
                break
        if ledger.over:
            return
        await asyncio.sleep(0.03)


async def try_to_send(ledger: Ledger, send: Send, body: bytes, **how: Any) -> bool:
    """Whether it was acknowledged."""
    try:
        with ledger.call("send", DEADLINE):
            await send(TOPIC, body, **how)
    except SendFailed as failure:
        ledger.failed += 1
        ledger.last_failure = str(failure)
        await asyncio.sleep(0.05)  # a refused connection fails at once
        return False
    ledger.acknowledged.add(body)
    return True


async def reach_every_queue(ledger: Ledger, send: Send) -> None:
    """Send one message to each queue; it may take a while until that is possible again."""
    end = time.monotonic() + AGAIN
    for broker in BROKERS:
        for number in range(QUEUES):
            queue = MessageQueue(TOPIC, f"broker-{broker}", number)
            body = f"last-{queue} 0".encode()
            while not await try_to_send(ledger, send, body, queue=queue):
                if time.monotonic() > end:
                    raise TimeoutError(
                        f"{queue} could not be sent to for {AGAIN:.0f}s: {ledger.last_failure}"
                    )


@asynccontextmanager
async def sending(
    ledger: Ledger, send: Send, keys: Sequence[bytes], options: Callable[[bytes], dict[str, Any]]
) -> AsyncIterator[None]:
    """Senders of so many keys; at the end, every queue is reached."""
    again = any("order_key" in options(key) for key in keys)
    tasks = [
        asyncio.create_task(keep_sending(ledger, send, key, again=again, **options(key)))
        for key in keys
    ]
    try:
        yield
        ledger.over = True
        await asyncio.gather(*tasks)
        await reach_every_queue(ledger, send)
    finally:
        ledger.over = True
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _producer(scene: Scene, **how: Any) -> gantry.AsyncProducer:
    settings: dict[str, Any] = {"group": "shop", "send_timeout": DEADLINE}
    return gantry.AsyncProducer(**settings | scene.where() | how)


def _consumers(scene: Scene, handler: Any, count: int, **how: Any) -> list[AsyncConsumer]:
    settings: dict[str, Any] = {
        "group": GROUP,
        "start": "earliest",
        "topics": TOPIC,
        "close_timeout": 5.0,
    }
    return [
        AsyncConsumer(**settings | scene.where() | {"instance_name": f"member-{one}"} | how,
                      handler=handler)
        for one in range(count)
    ]  # fmt: skip


class Singly:
    """One message after the other from two tasks, and a consumer that handles many at once."""

    ordered = False

    @asynccontextmanager
    async def running(self, scene: Scene, ledger: Ledger) -> AsyncIterator[None]:
        async def handle(message: ReceivedMessage) -> None:
            ledger.take([message])

        async with AsyncExitStack() as stack:
            for consumer in _consumers(scene, handle, 1):
                await stack.enter_async_context(consumer)
            producer = await stack.enter_async_context(_producer(scene))
            yielding = sending(ledger, producer.send, [b"x", b"y"], lambda _: {})
            async with yielding:
                yield
            await soon(lambda: not ledger.missing, "that everything came")


class InOrder:
    """Three order keys, and two ordered members of a group."""

    ordered = True

    @asynccontextmanager
    async def running(self, scene: Scene, ledger: Ledger) -> AsyncIterator[None]:
        async def handle(message: ReceivedMessage) -> None:
            ledger.take([message])

        async with AsyncExitStack() as stack:
            for consumer in _consumers(scene, handle, 2, ordered=True):
                await stack.enter_async_context(consumer)
            producer = await stack.enter_async_context(_producer(scene))
            keys = [b"red", b"green", b"blue"]
            async with sending(
                ledger, producer.send, keys, lambda key: {"order_key": key.decode()}
            ):
                yield
            await soon(lambda: not ledger.missing, "that everything came")


class Polling:
    """A producer that blocks, in threads, and a consumer that asks and commits."""

    ordered = False

    @asynccontextmanager
    async def running(self, scene: Scene, ledger: Ledger) -> AsyncIterator[None]:
        settings: dict[str, Any] = {"group": "shop", "send_timeout": DEADLINE} | scene.where()
        producer = gantry.Producer(**settings)

        async def send(*arguments: Any, **how: Any) -> None:
            await asyncio.to_thread(producer.send, *arguments, **how)

        asked: dict[str, Any] = {"group": GROUP, "start": "earliest", "topics": TOPIC}
        asked["call_timeout"] = 2.0
        async with gantry.AsyncPullConsumer(**asked | scene.where()) as consumer:
            polling = asyncio.create_task(self._poll(consumer, ledger))
            await asyncio.to_thread(producer.start)
            try:
                async with sending(ledger, send, [b"x", b"y"], lambda _: {}):
                    yield
                await soon(lambda: polling.done() or not ledger.missing, "that everything came")
            finally:
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
                await asyncio.to_thread(producer.close)

    async def _poll(self, consumer: gantry.AsyncPullConsumer, ledger: Ledger) -> None:
        while True:
            with ledger.call("poll", POLL):
                messages = await consumer.poll(timeout=POLL)
            ledger.take(messages)
            try:
                with ledger.call("commit", 4.0):  # two calls at most, one after the other
                    await consumer.commit()
            except GantryError:
                ledger.failed += 1


class Gathered:
    """Messages that the producer gathers, and a consumer that is given lists."""

    ordered = False

    @asynccontextmanager
    async def running(self, scene: Scene, ledger: Ledger) -> AsyncIterator[None]:
        async def handle(messages: list[ReceivedMessage]) -> None:
            ledger.take(messages)

        async with AsyncExitStack() as stack:
            for consumer in _consumers(scene, handle, 2, batch=8):
                await stack.enter_async_context(consumer)
            producer = await stack.enter_async_context(_producer(scene, auto_batch=True))
            keys = [b"v", b"w", b"x", b"y", b"z"]
            async with sending(ledger, producer.send, keys, lambda _: {}):
                yield
            with ledger.call("flush", DEADLINE):
                await producer.flush()
            await soon(lambda: not ledger.missing, "that everything came")


WORKS: Final[tuple[Work, ...]] = (Singly(), InOrder(), Polling(), Gathered())


def fixed_order() -> PutKey:
    """What tells the name server that the topic keeps its queues when a broker is away.

    Without it, order keys go to other queues meanwhile.
    """
    queues = ";".join(f"broker-{name}:{QUEUES}" for name in BROKERS)
    return PutKey(namespace="ORDER_TOPIC_CONFIG", key=TOPIC, value=queues)


# --- cases ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A fault during some work."""

    fault: Fault
    work: Work

    def __str__(self) -> str:
        return f"{getattr(self.fault, '__name__', '?')} / {type(self.work).__name__}"


CASES: Final = tuple(Case(fault, work) for work in WORKS for fault in FAULTS)


async def play(case: Case, servers: Servers, *, slack: float, before: int = 10) -> Ledger:
    """Run one case from begin to end; what it came to."""
    ledger = Ledger(slack=slack)
    async with AsyncExitStack() as stack:
        relays = {
            name: await stack.enter_async_context(Relay(address))
            for name, address in servers.addresses.items()
        }
        scene = Scene(servers, relays)
        try:
            async with case.work.running(scene, ledger):
                await soon(lambda: len(ledger.taken) >= before, "that messages came at first")
                await case.fault(scene)
        except (TimeoutError, GantryError) as failure:
            ledger.wrong.append(f"{type(failure).__name__}: {failure}")
    if ledger.missing:
        ledger.wrong.append(f"acknowledged and never came: {sorted(ledger.missing)[:10]}")
    if case.work.ordered:
        ledger.wrong += [f"out of order: {one}" for one in ledger.out_of_order()]
    return ledger
