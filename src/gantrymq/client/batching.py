"""Gathering messages for a moment, so that many travel in one frame.

Messages are gathered by topic and by whether they wait to be stored. A batch goes out when it is
large enough, or when its first message has waited for the linger. Batches that are under way at the
same time may overtake each other, as single messages may.

Messages that share an order key share a queue, so they are gathered for that queue alone, and its
batches go out one after the other: none before the one in front of it has its answer.

What cannot travel in a batch (delayed messages, those of transactions, retries) goes by itself.

RocketMQ: ProduceAccumulator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from gantrymq.client.messages import How
from gantrymq.flows import sending
from gantrymq.flows.drafting import Entry
from gantrymq.flows.sending import Choice, split_receipt
from gantrymq.model import Message, MessageQueue, SendReceipt
from gantrymq.protocol.names import is_retry_topic
from gantrymq.rules.queue_choice import TopicQueues

if TYPE_CHECKING:
    from gantrymq.client.producing import Channel

_Key: TypeAlias = tuple[str, bool, MessageQueue | None]


@dataclass(slots=True)
class _Batch:
    """Messages that are being gathered."""

    key: _Key
    entries: list[Entry] = field(default_factory=list)
    receipts: list[asyncio.Future[SendReceipt]] = field(default_factory=list)
    size: int = 0
    timer: asyncio.TimerHandle | None = None
    begun: int = 0
    """How many of them nobody waits for, and the bytes of their bodies."""
    begun_size: int = 0


def _nothing(messages: int, size: int, error: BaseException | None) -> None:
    """For those who begin no messages that nobody waits for."""


class Batcher:
    """Gathers the messages of one producer, on its loop."""

    def __init__(
        self,
        channel: Channel,
        *,
        linger: float,
        size: int,
        timeout: float,
        ended: Callable[[int, int, BaseException | None], None] = _nothing,
    ) -> None:
        """`ended` is told of messages that were begun: how many, their size, how it ended."""
        self._ended: Final = ended
        self._channel: Final = channel
        self._loop: Final = asyncio.get_running_loop()
        self._linger: Final = linger
        self._size: Final = size
        self._timeout: Final = timeout
        self._gathering: dict[_Key, _Batch] = {}
        self._looking: dict[str, asyncio.Future[None]] = {}
        """Done when the last of those who wait for a topic's queues has them."""
        self._sending: set[asyncio.Task[None]] = set()
        self._last: dict[_Key, asyncio.Task[None]] = {}
        """The batch that went out last to a queue whose order is kept."""

    @staticmethod
    def takes(message: Message) -> bool:
        """Whether `message` can travel in a batch."""
        delayed = message.delay_level or message.delay is not None or message.deliver_at is not None
        return not delayed and not is_retry_topic(message.topic)

    async def send(self, message: Message, how: How) -> SendReceipt:
        """Where `message` was stored, once its batch was."""
        queue = None if how.choice is None else await self._queue(message, how.choice)
        return await self.add(message, queue, how.extra)

    def begin(self, message: Message, how: How) -> asyncio.Future[SendReceipt] | None:
        """The same without waiting: a future of it, or None if its queue has to be found first.

        Where there is one, `ended` is told.
        """
        queue: MessageQueue | None = None
        if how.choice is not None:
            topic = self._channel.sender.drafting.topic_of(message)
            queues = self._channel.sender.places.ready_to_publish(topic)
            if queues is None or topic in self._looking:
                return None
            queue = how.choice.queue_for(queues, topic, message)
        return self.add(message, queue, how.extra, begun=len(message.body))

    def add(
        self,
        message: Message,
        queue: MessageQueue | None,
        extra: Mapping[str, str],
        *,
        begun: int | None = None,
    ) -> asyncio.Future[SendReceipt]:
        """Gather `message`; `queue` is where it has to go, if it does."""
        entry = self._channel.sender.drafting.entry(message, extra)
        size = entry.content.size
        key = (message.topic, message.wait_stored, queue)
        gathering = self._gathering.get(key)
        if gathering is not None and gathering.size + size > self._size:
            self._go(gathering)
            gathering = None
        if gathering is None:
            gathering = self._gathering[key] = _Batch(key)
            gathering.timer = self._loop.call_later(self._linger, self._go, gathering)
        receipt: asyncio.Future[SendReceipt] = self._loop.create_future()
        gathering.entries.append(entry)
        gathering.receipts.append(receipt)
        gathering.size += size
        if begun is not None:
            gathering.begun += 1
            gathering.begun_size += begun
        if gathering.size >= self._size:
            self._go(gathering)
        return receipt

    async def flush(self) -> None:
        """Send what is being gathered, and return when everything has its answer."""
        for gathering in tuple(self._gathering.values()):
            self._go(gathering)
        while self._sending:
            await asyncio.wait(self._sending)

    async def _queue(self, message: Message, choice: Choice) -> MessageQueue:
        sender = self._channel.sender
        topic = sender.drafting.topic_of(message)
        queues = sender.places.ready_to_publish(topic)
        if queues is None or topic in self._looking:
            queues = await self._find_in_turn(topic)
        return choice.queue_for(queues, topic, message)

    async def _find_in_turn(self, topic: str) -> TopicQueues:
        """The queues of `topic`; who asks later is not answered before those who wait."""
        before, mine = self._looking.get(topic), self._loop.create_future()
        self._looking[topic] = mine
        channel = self._channel
        try:
            if before is not None:
                await asyncio.wait((before,))
            return await sending.find_queues(
                channel.runtime, channel.sender, topic, timeout=self._timeout
            )
        finally:
            if before is None or before.done():
                self._looked(topic, mine)
            else:
                before.add_done_callback(lambda _: self._looked(topic, mine))

    def _looked(self, topic: str, mine: asyncio.Future[None]) -> None:
        mine.set_result(None)
        if self._looking.get(topic) is mine:
            del self._looking[topic]

    def _go(self, gathering: _Batch) -> None:
        """Send what was gathered; nothing is added to it any more."""
        if self._gathering.get(gathering.key) is not gathering:
            return
        del self._gathering[gathering.key]
        if gathering.timer is not None:
            gathering.timer.cancel()
        in_order = gathering.key[2] is not None
        before = self._last.get(gathering.key) if in_order else None
        task = self._loop.create_task(self._send(gathering, before), name="gantrymq batch")
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        if in_order:
            self._last[gathering.key] = task
            task.add_done_callback(lambda done: self._passed(gathering.key, done))

    def _passed(self, key: _Key, task: asyncio.Task[None]) -> None:
        if self._last.get(key) is task:
            del self._last[key]

    async def _send(self, gathering: _Batch, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait((before,))
        queue = gathering.key[2]
        try:
            draft = self._channel.sender.drafting.batch(gathering.entries)
            receipt = await sending.send(
                self._channel.runtime,
                self._channel.sender,
                draft,
                timeout=self._timeout,
                mode="async",
                choice=None if queue is None else Choice(queue=queue),
            )
        except asyncio.CancelledError:
            for future in gathering.receipts:
                future.cancel()
            self._end(gathering, None)
            raise
        except Exception as error:
            for future in gathering.receipts:
                if not future.done():
                    future.set_exception(error)
                    future.exception()  # each sender looks at his own, or does not care
            self._end(gathering, error)
            return
        for future, one in zip(gathering.receipts, split_receipt(receipt, draft), strict=True):
            if not future.done():
                future.set_result(one)
        self._end(gathering, None)

    def _end(self, gathering: _Batch, error: BaseException | None) -> None:
        if gathering.begun:
            self._ended(gathering.begun, gathering.begun_size, error)
