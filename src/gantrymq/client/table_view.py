"""A topic seen as a table: the newest value of each key, kept up to date.

```python
with gantry.TableView("profiles", "rmq://localhost:9876") as profiles:
    profiles.put("anna", b"likes beer")
    print(profiles["anna"], len(profiles))
```

The topic is one that keeps the newest message of each key (`cleanup.policy` of COMPACTION), so it
is small however often values change. A view reads all of it when it starts and then goes on with
what comes. It is a mapping of keys to values; every program that has a view of a topic sees the
same, a moment later.

Messages of one key are in one queue, which is what makes the last of them the newest: `put` sees to
that by the key's hash, and whoever sends without it has to do the same. `delete` sends a tombstone,
which the broker removes in its turn a day later. A view that was away for longer reads anew anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import count
from types import TracebackType
from typing import Final, Self, Unpack

from gantrymq.client import loop_thread
from gantrymq.client.config import ClientArguments
from gantrymq.client.loop_thread import LoopThread
from gantrymq.client.producer import AsyncProducer
from gantrymq.client.pull_consumer import AsyncPullConsumer
from gantrymq.errors import ClosedError, GantryError
from gantrymq.model import MessageQueue, ReceivedMessage, SendReceipt
from gantrymq.wire.properties import TOMBSTONE

GROUP: Final = "GANTRY_VIEWS"
"""What the groups that views read as are called. They have no offsets, because each view reads
everything, so views of several processes can be in one; those of one process are not."""
PATIENCE: Final = 30.0
_AT_ONCE: Final = 1000
_LOOK_AGAIN: Final = 30.0
"""Seconds after which is looked whether the topic has further queues."""
_GONE: Final = b"\0"
_TAKEN: Final[set[int]] = set()


class _Values(Mapping[str, bytes]):
    """The newest values, by key."""

    def __init__(self) -> None:
        self.messages: dict[str, ReceivedMessage] = {}
        self.places: dict[tuple[str, int], int] = {}
        """How far each queue was taken in, by broker and number: topics have two names where there
        is a namespace."""

    def __getitem__(self, key: str) -> bytes:
        return self.messages[key].body

    def __iter__(self) -> Iterator[str]:
        return iter(list(self.messages))

    def __len__(self) -> int:
        return len(self.messages)

    def __contains__(self, key: object) -> bool:
        return key in self.messages

    def take(self, message: ReceivedMessage) -> None:
        """Take in the next message of a queue."""
        self.places[message.queue[1:]] = message.offset + 1
        key = " ".join(message.keys)
        if not message.body or message.find(TOMBSTONE) is not None:
            self.messages.pop(key, None)
        elif key:
            self.messages[key] = message

    def has_seen(self, receipt: SendReceipt) -> bool:
        """Whether that message, or one after it in its queue, was taken in."""
        return self.places.get(receipt.queue[1:], 0) > receipt.offset


class AsyncTableView(_Values):
    """The newest value of each key of a topic; for programs with a loop."""

    def __init__(
        self,
        topic: str,
        url: str | None = None,
        *,
        patience: float = PATIENCE,
        **client: Unpack[ClientArguments],
    ) -> None:
        """`patience` is how many seconds reading everything, or a change, may take."""
        super().__init__()
        self.topic = topic
        self._patience = patience
        self._number = next(number for number in count() if number not in _TAKEN)
        _TAKEN.add(self._number)
        self._reader = AsyncPullConsumer(
            url, group=f"{GROUP}_{self._number}", start="earliest", auto_commit=False, **client
        )
        self._writer = AsyncProducer(url, **client)
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what is there; the view is complete when this returns."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._reader)
            await stack.enter_async_context(self._writer)
            async with asyncio.timeout(self._patience):
                await self._read_all()
            self._stack = stack.pop_all()
        self._task = asyncio.create_task(self._follow(), name="gantrymq table view")

    async def close(self) -> None:
        """Follow no longer; what was read stays."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._stack.aclose()
            _TAKEN.discard(self._number)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- reading --------------------------------------------------------------------------------

    def message(self, key: str) -> ReceivedMessage:
        """The message that a key's value came with; `KeyError` if there is none."""
        return self.messages[key]

    async def changes(self) -> AsyncIterator[tuple[str, bytes | None]]:
        """Every change that comes from now on, as it is seen here: a key, and its value or None."""
        seen = dict(self.messages)
        while True:
            async with self._changed:
                await self._changed.wait()
                now = dict(self.messages)
            for key in now.keys() | seen.keys():
                if now.get(key) is not seen.get(key):
                    yield key, None if key not in now else now[key].body
            seen = now

    # --- writing --------------------------------------------------------------------------------

    async def put(self, key: str, value: bytes) -> SendReceipt:
        """Give a key a value; this view has it when this returns."""
        return await self._seen(await self._writer.send(self.topic, value, keys=key, order_key=key))

    async def delete(self, key: str) -> SendReceipt:
        """Take a key away; this view is without it when this returns."""
        sent = await self._writer.send(
            self.topic, _GONE, keys=key, order_key=key, properties={TOMBSTONE: "true"}
        )
        return await self._seen(sent)

    async def _seen(self, receipt: SendReceipt) -> SendReceipt:
        if self._task is None:
            raise ClosedError(f"the view of {self.topic} was closed")
        async with asyncio.timeout(self._patience), self._changed:
            await self._changed.wait_for(lambda: self.has_seen(receipt))
        return receipt

    # --- inside ---------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        queues = await self._assign()
        ends = {queue: (await self._reader.bounds(queue)).end for queue in queues}
        while not self._is_at(ends):
            await self._take(timeout=0.1)

    async def _assign(self) -> frozenset[MessageQueue]:
        queues = frozenset(await self._reader.queues_of(self.topic))
        if queues != self._reader.queues:
            await self._reader.assign(queues)
        return queues

    def _is_at(self, ends: Mapping[MessageQueue, int]) -> bool:
        places = self._reader.positions()
        return all(places.get(queue, 0) >= end for queue, end in ends.items())

    async def _take(self, timeout: float) -> None:
        for message in await self._reader.poll(_AT_ONCE, timeout):
            self.take(message)
        async with self._changed:
            self._changed.notify_all()

    async def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        look = loop.time() + _LOOK_AGAIN
        while True:
            await self._take(timeout=max(0.1, look - loop.time()))
            if loop.time() >= look:
                look = loop.time() + _LOOK_AGAIN
                with contextlib.suppress(GantryError):  # the name server may be away for a while
                    await self._assign()


class TableView(_Values):
    """The newest value of each key of a topic; for programs without a loop."""

    def __init__(
        self,
        topic: str,
        url: str | None = None,
        *,
        patience: float = PATIENCE,
        **client: Unpack[ClientArguments],
    ) -> None:
        """`patience` is how many seconds reading everything, or a change, may take."""
        super().__init__()
        self.topic = topic
        self._inner = AsyncTableView(topic, url, patience=patience, **client)
        self.messages, self.places = self._inner.messages, self._inner.places
        self._thread: LoopThread | None = None

    def start(self) -> None:
        """Read what is there; the view is complete when this returns."""
        thread = loop_thread.borrow(self._inner._reader._client)
        try:
            thread.call(self._inner.start())
        except BaseException:
            loop_thread.give_back(thread)
            raise
        self._thread = thread

    def close(self) -> None:
        """Follow no longer; what was read stays."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.call(self._inner.close())
            finally:
                loop_thread.give_back(thread)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def message(self, key: str) -> ReceivedMessage:
        """The message that a key's value came with; `KeyError` if there is none."""
        return self.messages[key]

    def put(self, key: str, value: bytes) -> SendReceipt:
        """Give a key a value; this view has it when this returns."""
        return self._here.call(self._inner.put(key, value))

    def delete(self, key: str) -> SendReceipt:
        """Take a key away; this view is without it when this returns."""
        return self._here.call(self._inner.delete(key))

    @property
    def _here(self) -> LoopThread:
        if self._thread is None:
            raise ClosedError(f"the view of {self.topic} was closed, or not started yet")
        return self._thread
