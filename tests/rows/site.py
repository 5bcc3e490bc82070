"""A platform as one row uses it: a topic of its own, clients that end with the test, and taps."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import gantrymq as gantry
from gantrymq.client.hooks import SendHook
from gantrymq.flows.sending import Attempt
from gantrymq.model import Message, MessageQueue, ReceivedMessage, SendReceipt
from gantrymq.net import aio
from gantrymq.net.blocking import BlockingPeer
from gantrymq.protocol.base import Reply, Request
from tests.rows.platforms import BROKERS, NORTH, SOUTH, Platform
from tests.rows.tap import Tap

T = TypeVar("T")
R = TypeVar("R", bound=Reply)

QUEUES: Final = 4
PATIENCE: Final = 60.0
"""Seconds that something may take on a busy machine; nothing that holds takes that long."""
TIMEOUT: Final = 20.0
"""For sends that are not about time."""


class Site:
    """What a row has to do with."""

    def __init__(self, platform: Platform, admin: gantry.Admin, number: int) -> None:
        self.platform = platform
        self.admin = admin
        self.number = number
        self.topic = f"row-{number}"
        self.group = f"rows-{number}"
        self._stack = ExitStack()
        self._taps: dict[str, Tap] = {}
        self._names: Tap | None = None
        self._made = 0

    def __enter__(self) -> Self:
        self.admin.create_topic(self.topic, queues=QUEUES)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    # --- topics and queues ----------------------------------------------------------------------

    def another_topic(self, **how: Any) -> str:
        """One more topic."""
        self._made += 1
        topic = f"{self.topic}-{self._made}"
        self.admin.create_topic(topic, **({"queues": QUEUES} | how))
        return topic

    def queues(
        self, topic: str | None = None, brokers: Sequence[str] = BROKERS, count: int = QUEUES
    ) -> list[MessageQueue]:
        """The queues of a topic, in the order in which they are taken."""
        name = self.topic if topic is None else topic
        return [MessageQueue(name, broker, number) for broker in brokers for number in range(count)]

    # --- servers --------------------------------------------------------------------------------

    def tap(self, broker: str) -> Tap:
        """What clients that are made from now on reach a broker through."""
        if broker not in self._taps:
            self._taps[broker] = self._stack.enter_context(Tap(self.platform.brokers[broker]))
        return self._taps[broker]

    def taps(self) -> tuple[Tap, Tap]:
        """Those of both brokers."""
        return self.tap(NORTH), self.tap(SOUTH)

    def tap_names(self) -> Tap:
        """What clients that are made from now on reach the name server through."""
        if self._names is None:
            self._names = self._stack.enter_context(Tap(self.platform.name_server))
        return self._names

    def ask(self, broker: str, request: Request[R]) -> R:
        """What a broker answers."""
        with BlockingPeer.connect(self.platform.brokers[broker]) as peer:
            return peer.call(request, timeout=TIMEOUT)

    # --- clients --------------------------------------------------------------------------------

    def where(self) -> dict[str, Any]:
        """Settings that lead clients here, through the taps that were made."""
        names = self.platform.name_server if self._names is None else self._names.address
        brokers = self.platform.brokers
        through = {brokers[name]: tap.address for name, tap in self._taps.items()}
        return {"name_servers": names, "address_map": through}

    def producer(self, **how: Any) -> gantry.Producer:
        """A producer that blocks; it is running."""
        settings = {"group": self.group, "send_timeout": TIMEOUT} | self.where() | how
        return self._stack.enter_context(gantry.Producer(**settings))

    def async_producer(self, **how: Any) -> gantry.AsyncProducer:
        """A producer to be started."""
        settings = {"group": self.group, "send_timeout": TIMEOUT} | self.where() | how
        return gantry.AsyncProducer(**settings)

    def consumer(self, handler: Any = None, **how: Any) -> gantry.AsyncConsumer:
        """A consumer to be started."""
        asked = {
            "group": self.group,
            "start": "earliest",
            "topics": self.topic,
            "handler": handler,
            "close_timeout": 5.0,
        }
        return gantry.AsyncConsumer(**(asked | self.where() | how))

    def pull_consumer(self, **how: Any) -> gantry.AsyncPullConsumer:
        """One that is asked for messages, to be started."""
        asked = {"group": self.group, "start": "earliest"}
        return gantry.AsyncPullConsumer(**(asked | self.where() | how))

    def stored(self, receipt: SendReceipt) -> ReceivedMessage:
        """The message that a receipt is of, as the broker keeps it."""
        assert receipt.offset_id is not None
        return self.admin.message_by_offset_id(receipt.offset_id)

    def on_exit(self, close: Callable[[], object]) -> None:
        """Have something closed with the test."""
        self._stack.callback(close)


class Noting(SendHook):
    """Notes every attempt."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self.errors: list[BaseException | None] = []

    def before(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)

    def after(self, attempt: Attempt) -> None:
        self.errors.append(attempt.error)

    @property
    def queues(self) -> list[MessageQueue]:
        return [attempt.queue for attempt in self.attempts]

    @property
    def brokers(self) -> list[str]:
        return [queue.broker for queue in self.queues]


class Seen:
    """What consumers were given, and by whom."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.by: dict[str, list[ReceivedMessage]] = {}

    def by_name(self, name: str) -> Callable[[ReceivedMessage], Awaitable[None]]:
        """A handler that notes what it gets."""
        mine = self.by.setdefault(name, [])

        async def handle(message: ReceivedMessage) -> None:
            mine.append(message)
            self.messages.append(message)

        return handle

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def has(self, bodies: Iterable[bytes]) -> bool:
        """Whether these have come, each of them once."""
        return sorted(self.bodies) == sorted(bodies)


def follows(ring: Sequence[T], found: Sequence[T]) -> bool:
    """Whether `found` is the ring, from wherever, round and round."""
    at = ring.index(found[0])
    return all(one == ring[(at + step) % len(ring)] for step, one in enumerate(found))


def run(main: Coroutine[Any, Any, T], seconds: float = 2 * PATIENCE) -> T:
    """What `main` returns."""
    return aio.run(asyncio.wait_for(main, seconds))


async def soon(condition: Callable[[], object], what: str = "it", limit: float = PATIENCE) -> None:
    """Wait until `condition` holds."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {limit:.0f}s"
        await asyncio.sleep(0.02)


def until(condition: Callable[[], object], what: str = "it", limit: float = PATIENCE) -> None:
    """The same where there is no loop."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen in {limit:.0f}s"
        time.sleep(0.02)


def in_a_thread(work: Callable[[], T]) -> T:
    """What `work` returns, done on a thread of its own."""
    found: list[T] = []
    thread = threading.Thread(target=lambda: found.append(work()), name="row")
    thread.start()
    thread.join(PATIENCE)
    assert found, "the thread did not come to an end, or failed"
    return found[0]


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Bodies that differ."""
    return [b"%d" % number for number in range(start, start + count)]


def to(queue: MessageQueue, body: bytes, **more: Any) -> tuple[Message, Mapping[str, Any]]:
    """A message, and the options that send it to a certain queue."""
    return Message(queue.topic, body, **more), {"queue": queue}
