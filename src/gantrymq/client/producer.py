"""The producer that is awaited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Final, Self, Unpack

from gantrymq.client.batching import Batcher
from gantrymq.client.buffering import Outbox, Room
from gantrymq.client.express import Express, Sending
from gantrymq.client.hooks import SendHook
from gantrymq.client.messages import How, SendOptions, make_how, make_message
from gantrymq.client.producer_config import ProducerArguments, load_producer
from gantrymq.client.producing import Channel, Checker, Producing, decision_of
from gantrymq.client.requesting import reply, request
from gantrymq.client.states import ServiceState
from gantrymq.errors import GantryError, SendFailed, StateError
from gantrymq.flows.transactions import Half
from gantrymq.model import Message, ReceivedMessage, SendReceipt
from gantrymq.net.network import Network
from gantrymq.protocol.transactions import Decision, EndTransaction
from gantrymq.rules.retry import Mode


class AsyncProducer:
    """Sends messages.

    ```python
    async with AsyncProducer("rmq://localhost:9876", group="shop") as producer:
        receipt = await producer.send("orders", b"one beer", tag="drinks", keys="order-1")
    ```

    One producer serves any number of tasks of its loop. `send` waits for the broker's answer;
    `send_soon` waits for room at most, and gives a future; `send_nowait` waits for nothing.
    Everything that goes wrong ends in `SendFailed`, before the time-out is over.

    RocketMQ: DefaultMQProducer, TransactionMQProducer.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        checker: Checker | None = None,
        hooks: Iterable[SendHook] = (),
        network: Network | None = None,
        **settings: Unpack[ProducerArguments],
    ) -> None:
        """`checker` says what became of a transaction that was left open.

        `network` carries connections by something else than TCP, in tests.
        """
        client, config = load_producer(url, settings)
        self.producing: Final = Producing(
            client, config, checker=checker, hooks=hooks, network=network
        )
        self._life: Final = self.producing.life
        self.room: Final = Room(config.buffer_messages, config.buffer_bytes)
        self._batcher: Batcher | None = None
        self._failures: list[SendFailed] = []
        self._looking: set[asyncio.Future[SendReceipt]] = set()
        """Sends that have to find their topic first; nobody overtakes them."""
        self._channel: Channel
        self._express: Express
        self.outbox: Outbox

    # --- life -----------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """Where the producer is in its life."""
        return self._life.state

    @property
    def group(self) -> str:
        """The group that it belongs to."""
        return self.producing.config.group

    @property
    def client_id(self) -> str:
        """By which brokers know it."""
        return self.producing.engine.client_id

    @property
    def send_latency_fault_enable(self) -> bool:
        """Whether slow and failed brokers are left alone for a while; may be changed any time."""
        return self.producing.choice.send_latency_fault_enable

    @send_latency_fault_enable.setter
    def send_latency_fault_enable(self, value: bool) -> None:
        self.producing.choice.send_latency_fault_enable = value

    @property
    def traces_dropped(self) -> int:
        """How many traces could not be sent, or had no room to wait for it."""
        traces = self.producing.traces
        return 0 if traces is None else traces.dropped

    async def start(self) -> None:
        """Connect; the brokers know the producer when this returns."""
        await self.producing.start()
        self._channel = self.producing.channel
        self._express = Express(self._channel, self.producing.engine)
        self.outbox = Outbox(self.producing.engine.loop, self._begin)
        config = self.producing.config
        if config.auto_batch:
            self._batcher = Batcher(
                self._channel,
                linger=config.batch_linger,
                size=config.batch_bytes,
                timeout=config.send_timeout,
                ended=self._settled,
            )

    async def close(self) -> None:
        """Send what is still to be sent, for a while, and leave."""
        if self._life.running:
            with contextlib.suppress(TimeoutError):
                await self.flush(self.producing.config.close_timeout)
        await self.producing.close()

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

    # --- sending --------------------------------------------------------------------------------

    async def send(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> SendReceipt:
        """Store a message, and say where; `SendFailed` if that could not be done in time."""
        self._life.check()
        return await self._send(make_message(message, body, options), make_how(options), "sync")

    async def send_oneway(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message and wait for nothing: nobody says whether it arrived."""
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        await self.producing.send_oneway(self._channel, made, how)

    async def send_soon(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> asyncio.Future[SendReceipt]:
        """Wait for room, have the message sent, and give a future of its receipt.

        `BufferFull` if there is no room before the time-out. Failures of messages whose futures
        nobody looks at are what `flush` returns.
        """
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        size = len(made.body)
        if not self.room.take(size):
            await self.room.wait(size, self.producing.timeout_of(how))
        return self._begin(made, how)

    def send_nowait(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> asyncio.Future[SendReceipt]:
        """The same without waiting: `BufferFull` if there is no room now."""
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        self.room.take_or_refuse(len(made.body))
        return self._begin(made, how)

    async def send_batch(
        self, messages: Iterable[Message], /, **options: Unpack[SendOptions]
    ) -> list[SendReceipt]:
        """Store messages of one topic, in as few frames as they fit into; a receipt for each."""
        self._life.check()
        return await self.producing.send_batch(self._channel, messages, make_how(options))

    async def flush(self, timeout: float | None = None) -> list[SendFailed]:
        """Return when nothing is under way; what failed since the last time, of `send_soon`."""
        async with asyncio.timeout(timeout):
            self.outbox.begin()
            if self._batcher is not None:
                await self._batcher.flush()
            empty = asyncio.Event()
            loop = asyncio.get_running_loop()
            self.room.when_empty(lambda: loop.call_soon_threadsafe(empty.set))
            await empty.wait()
        failures, self._failures = self._failures, []
        return failures

    async def recall(self, which: SendReceipt | str, /, *, timeout: float | None = None) -> str:
        """Take a delayed message back, by its receipt or that one's `recall_handle`; its id."""
        self._life.check()
        return await self.producing.recall(self._channel, which, timeout)

    # --- conversations --------------------------------------------------------------------------

    async def request(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> ReceivedMessage:
        """Send a message to whoever consumes its topic, and return what he replies.

        `RequestTimeout` if it was sent and no reply came in time.
        """
        made, how = make_message(message, body, options), make_how(options)
        return await request(self.producing, made, how)

    async def reply(
        self,
        to: ReceivedMessage,
        body: bytes | bytearray | memoryview,
        /,
        **options: Unpack[SendOptions],
    ) -> SendReceipt:
        """Answer a message that was sent with `request`."""
        self._life.check()
        return await reply(self.producing, self._channel, to, body, options)

    async def tell_end(self, ending: EndTransaction) -> GantryError | None:
        """Tell a broker how a transaction ended that was written down; the error if it could not.

        For relays: whoever sent it need not be this producer, only one of the same group.
        """
        return await self.producing.tell_end(self._channel, ending)

    def transaction(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> AsyncTransaction:
        """A message that is delivered only if the block ends well.

        ```python
        async with producer.transaction("orders", b"one beer") as tx:
            await book(order, tx.transaction_id)
        ```

        The message is stored before the block, committed after it, rolled back if it raises.
        """
        made, how = make_message(message, body, options), make_how(options)
        return AsyncTransaction(self.producing, made, how)

    # --- inside ---------------------------------------------------------------------------------

    async def _send(self, message: Message, how: How, mode: Mode) -> SendReceipt:
        producing = self.producing
        spans = producing.spans
        batcher = self._batcher
        if batcher is not None and how.timeout is None and batcher.takes(message):
            if spans is None:
                return await batcher.send(message, how)
            with spans.sending(message, how) as span:
                receipt = await batcher.send(message, span.how)
                span.stored(receipt)
                return receipt
        if spans is None:
            shot = self._express.prepare(message, how, producing.timeout_of(how), mode)
            if shot is not None:
                return await self._express.send(shot)
        return await producing.send(self._channel, message, how, mode=mode)

    def _begin(self, message: Message, how: How) -> asyncio.Future[SendReceipt]:
        size = len(message.body)
        try:
            future = self._begin_quickly(message, how, size)
            if future is not None:
                return future
            future = self._begin_slowly(message, how)
        except Exception as error:
            future = self._express.loop.create_future()
            future.set_exception(error)
        future.add_done_callback(partial(self._done, size, None))
        return future

    def _begin_quickly(
        self, message: Message, how: How, size: int
    ) -> asyncio.Future[SendReceipt] | None:
        """Begin to send without a task, if that is all it takes."""
        if self.producing.spans is not None or self._looking:
            return None
        batcher = self._batcher
        if batcher is not None and how.timeout is None and batcher.takes(message):
            return batcher.begin(message, how)
        express = self._express
        shot = express.prepare(message, how, self.producing.timeout_of(how), "async")
        if shot is None:
            return None
        begun = express.begin(shot)
        future = express.fire(shot) if begun is None else begun.future
        future.add_done_callback(partial(self._done, size, begun))
        return future

    def _begin_slowly(self, message: Message, how: How) -> asyncio.Task[SendReceipt]:
        loop, work = self._express.loop, self._send(message, how, "async")
        task = loop.create_task(work, name="gantrymq send")
        topic = self._channel.sender.drafting.topic_of(message)
        if self._channel.sender.places.ready_to_publish(topic) is None:
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)
        return task

    def _done(self, size: int, sending: Sending | None, done: asyncio.Future[SendReceipt]) -> None:
        if not done.cancelled():
            self._settled(1, size, done.exception())
            return
        self._settled(1, size, None)
        if sending is not None:
            sending.forget()

    def _settled(self, messages: int, size: int, error: BaseException | None) -> None:
        """Messages that were begun are stored, or will not be."""
        self.room.give_back(size, messages)
        if isinstance(error, SendFailed):
            kept = max(0, min(messages, _KEPT - len(self._failures)))
            self._failures += [error] * kept


class AsyncTransaction:
    """One transaction: a half message, and how it ends."""

    def __init__(
        self,
        producing: Producing,
        message: Message,
        how: How,
    ) -> None:
        self._producing = producing
        self._given = (message, how)
        self._half: Half | None = None
        self.decision: Decision | None = None
        """How it ended; None while it is open."""
        self.told = False
        """Whether the broker knows; if not, it will ask."""

    @property
    def receipt(self) -> SendReceipt:
        """Where the half message is."""
        return self._begun().receipt

    @property
    def half(self) -> Half:
        """The half message, and what its broker has to be told of it."""
        return self._begun()

    @property
    def transaction_id(self) -> str:
        """The id to remember it by."""
        return self._begun().transaction_id

    async def commit(self) -> None:
        """Have the message delivered."""
        await self._end(Decision.COMMIT)

    async def rollback(self, reason: str | None = None) -> None:
        """Have it forgotten."""
        await self._end(Decision.ROLLBACK, reason)

    async def leave_open(self) -> None:
        """Say nothing yet: the broker will ask the checker."""
        await self._end(Decision.UNDECIDED)

    async def __aenter__(self) -> Self:
        self._half = await self._producing.begin_transaction(self._producing.channel, *self._given)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.decision is None:
            await self._end(decision_of(error is None), None if error is None else repr(error))

    async def _end(self, decision: Decision, remark: str | None = None) -> None:
        half = self._begun()
        producing = self._producing
        self.decision = decision
        self.told = await producing.end_transaction(producing.channel, half, decision, remark)

    def _begun(self) -> Half:
        if self._half is None:
            raise StateError("the transaction has not begun: use it in an `async with` block")
        return self._half


_KEPT: Final = 1000
"""Failures that wait for `flush` to be called."""
