"""A name server and brokers on a loop in a thread of their own, for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gantrymq.broker.app import BrokerServer
from gantrymq.net.aio import connect
from gantrymq.protocol.sending import SendMessage
from gantrymq.protocol.topics import PutTopic
from gantrymq.wire import properties
from tests.cluster import brokers, naming
from tests.support import LIMIT, run_on, world

T = TypeVar("T")


class Platform:
    """A name server and a broker, or several, on real sockets."""

    def __init__(self, data: Path, settings: dict[str, Any], count: int) -> None:
        self.name_server = ""
        self.brokers: list[BrokerServer] = []
        self.ready = threading.Event()
        self._data = data
        self._settings = settings
        self._count = count
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    @property
    def url(self) -> str:
        """What clients are told."""
        return f"rmq://{self.name_server}"

    def run(self) -> None:
        run_on("asyncio", self._main(), limit=10 * LIMIT)

    def do(self, work: Callable[[], Awaitable[T]]) -> T:
        """What a coroutine returns, on the platform's loop."""

        async def there() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(there(), self._loop).result(LIMIT)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)

    async def _main(self) -> None:
        where = world("tcp on asyncio")
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with AsyncExitStack() as stack:
            names = await stack.enter_async_context(
                naming.name_server(where, self._data / "namesrv")
            )
            self.name_server = names.address
            for number in range(self._count):
                settings = {
                    "registering__name_servers": names.address,
                    "flow__enabled": False,  # the machine may be busy with other tests
                    **self._settings,
                }
                settings["identity__name"] = f"broker-{chr(97 + number)}"
                self.brokers.append(
                    await stack.enter_async_context(
                        brokers.broker(where, self._data / f"broker-{number}", **settings)
                    )
                )
            self.ready.set()
            await self._stop.wait()

    # --- what tests put in ----------------------------------------------------------------------

    def topic(self, topic: str, queues: int) -> None:
        """Make a topic of so many queues at each broker, and wait until it can be found."""

        async def make() -> None:
            for broker in self.brokers:
                async with _call(broker) as call:
                    await call(
                        PutTopic(topic=topic, read_queues=queues, write_queues=queues, perm=6)
                    )

        self.do(make)

    def send(
        self, topic: str, queue_id: int, bodies: list[bytes], *, to: int = 0, **found: str
    ) -> None:
        """Store messages in one queue; `flags` may be among the properties, for the system flag."""
        flags = int(found.pop("flags", 0))

        async def put() -> None:
            async with _call(self.brokers[to]) as call:
                for body in bodies:
                    await call(
                        SendMessage(
                            group="tests", topic=topic, queue_id=queue_id, born_ms=brokers.now_ms(),
                            flags=flags, properties=properties.join(found), body=body,
                        )
                    )  # fmt: skip

        self.do(put)


@asynccontextmanager
async def _call(broker: BrokerServer) -> AsyncIterator[Callable[[Any], Awaitable[Any]]]:
    peer = await connect(broker.address)

    async def call(request: Any) -> Any:
        return await peer.call(request, timeout=5.0)

    try:
        yield call
    finally:
        peer.close()
        await peer.wait_closed()


def ask(here: Platform, request: Any, of: int = 0) -> Any:
    """What a broker of the platform answers."""

    async def there() -> Any:
        async with _call(here.brokers[of]) as call:
            return await call(request)

    return here.do(there)


@contextmanager
def platform(data: Path, count: int = 1, **settings: Any) -> Iterator[Platform]:
    """Such a platform, for as long as the block lasts."""
    one = Platform(data, settings, count)
    thread = threading.Thread(target=one.run, name="platform under test")
    thread.start()
    try:
        assert one.ready.wait(LIMIT)
        yield one
    finally:
        one.stop()
        thread.join(LIMIT)
