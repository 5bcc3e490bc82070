"""The producer that blocks."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Final, Self, Unpack

from gantrymq.client import loop_thread
from gantrymq.client.express import send_blocking, written_plainly
from gantrymq.client.hooks import SendHook
from gantrymq.client.loop_thread import LoopThread
from gantrymq.client.messages import How, SendOptions, make_how, make_message
from gantrymq.client.places import EnginePlaces, ThreadPlaces
from gantrymq.client.producer import AsyncProducer
from gantrymq.client.producer_config import ProducerArguments
from gantrymq.client.producing import Channel, Checker, Producing, decision_of
from gantrymq.client.requesting import reply, request
from gantrymq.client.states import ServiceState
from gantrymq.client.ways import Blocking, blocking_for
from gantrymq.errors import GantryError, SendFailed, StateError
from gantrymq.flows.shots import make_shot
from gantrymq.flows.transactions import Half
from gantrymq.model import Message, ReceivedMessage, SendReceipt
from gantrymq.net.lending import BlockingRuntime
from gantrymq.net.network import Network
from gantrymq.protocol.transactions import Decision, EndTransaction
from gantrymq.runtime import run_blocking


class Producer:
    """Sends messages.

    ```python
    with Producer("rmq://localhost:9876", group="shop") as producer:
        receipt = producer.send("orders", b"one beer", tag="drinks", keys="order-1")
    ```

    One producer serves any number of threads. `send` works on the thread that calls it and returns
    with the broker's answer; `send_soon` waits for room at most, and gives a future; `send_nowait`
    waits for nothing. Everything that goes wrong ends in `SendFailed`, before the time-out is over.

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

        `network` carries the connections that are not used to send by something else than TCP.
        """
        self._inner: Final = AsyncProducer(
            url, checker=checker, hooks=hooks, network=network, **settings
        )
        self._producing: Final[Producing] = self._inner.producing
        self._life: Final = self._producing.life
        self._batches: Final = self._producing.config.auto_batch
        self._thread: LoopThread
        self._blocking: Blocking
        self._sockets: BlockingRuntime | None = None
        """What calls go over, where that is what they go over and requests are written plainly."""
        self._channel: Channel

    # --- life -----------------------------------------------------------------------------------

    @property
    def state(self) -> ServiceState:
        """Where the producer is in its life."""
        return self._life.state

    @property
    def group(self) -> str:
        """The group that it belongs to."""
        return self._inner.group

    @property
    def client_id(self) -> str:
        """By which brokers know it."""
        return self._inner.client_id

    @property
    def send_latency_fault_enable(self) -> bool:
        """Whether slow and failed brokers are left alone for a while; may be changed any time."""
        return self._inner.send_latency_fault_enable

    @send_latency_fault_enable.setter
    def send_latency_fault_enable(self, value: bool) -> None:
        self._inner.send_latency_fault_enable = value

    @property
    def traces_dropped(self) -> int:
        """How many traces could not be sent, or had no room to wait for it."""
        return self._inner.traces_dropped

    def start(self) -> None:
        """Connect; the brokers know the producer when this returns."""
        thread = loop_thread.borrow(self._producing.client)
        try:
            thread.call(self._inner.start())
        except BaseException:
            loop_thread.give_back(thread)
            raise
        self._thread = thread
        self._blocking = blocking_for(self._producing.client)
        sender = self._producing.channel.sender
        assert isinstance(sender.places, EnginePlaces)
        places = ThreadPlaces(sender.places, thread)
        runtime = self._blocking.runtime
        options = self._producing.client.peer_options
        if isinstance(runtime, BlockingRuntime) and written_plainly(options):
            self._sockets = runtime
        self._channel = Channel(runtime, replace(sender, places=places))

    def close(self) -> None:
        """Send what is still to be sent, for a while, and leave."""
        if not self._life.running:
            self._life.end()
            return
        self._life.check()
        try:
            self._thread.call(self._inner.close())
        finally:
            self._blocking.close()
            loop_thread.give_back(self._thread)

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

    # --- sending --------------------------------------------------------------------------------

    def send(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> SendReceipt:
        """Store a message, and say where; `SendFailed` if that could not be done in time."""
        self._life.check()
        if self._batches:
            return self._thread.call(self._inner.send(message, body, **options))
        made, how = make_message(message, body, options), make_how(options)
        producing = self._producing
        sockets = self._sockets
        if sockets is not None and producing.spans is None:
            shot = make_shot(
                self._channel.sender,
                made,
                how.extra,
                how.kind,
                how.choice,
                now=sockets.now(),
                timeout=producing.timeout_of(how),
                mode="sync",
            )
            if shot is not None:
                return send_blocking(sockets, shot)
        return run_blocking(producing.send(self._channel, made, how))

    def send_oneway(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> None:
        """Send a message and wait for nothing: nobody says whether it arrived."""
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        run_blocking(self._producing.send_oneway(self._channel, made, how))

    def send_soon(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> concurrent.futures.Future[SendReceipt]:
        """Wait for room, have the message sent, and give a future of its receipt.

        `BufferFull` if there is no room before the time-out. Failures of messages whose futures
        nobody looks at are what `flush` returns.
        """
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        self._inner.room.block(len(made.body), self._producing.timeout_of(how))
        return self._inner.outbox.put(made, how)

    def send_nowait(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> concurrent.futures.Future[SendReceipt]:
        """The same without waiting: `BufferFull` if there is no room now."""
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        self._inner.room.take_or_refuse(len(made.body))
        return self._inner.outbox.put(made, how)

    def send_batch(
        self, messages: Iterable[Message], /, **options: Unpack[SendOptions]
    ) -> list[SendReceipt]:
        """Store messages of one topic, in as few frames as they fit into; a receipt for each."""
        self._life.check()
        how = make_how(options)
        return run_blocking(self._producing.send_batch(self._channel, messages, how))

    def flush(self, timeout: float | None = None) -> list[SendFailed]:
        """Return when nothing is under way; what failed since the last time, of `send_soon`."""
        self._life.check()
        return self._thread.call(self._inner.flush(timeout))

    def recall(self, which: SendReceipt | str, /, *, timeout: float | None = None) -> str:
        """Take a delayed message back, by its receipt or that one's `recall_handle`; its id."""
        self._life.check()
        return run_blocking(self._producing.recall(self._channel, which, timeout))

    # --- conversations --------------------------------------------------------------------------

    def request(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> ReceivedMessage:
        """Send a message to whoever consumes its topic, and return what he replies.

        `RequestTimeout` if it was sent and no reply came in time.
        """
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        return self._thread.call(request(self._producing, made, how))

    def reply(
        self,
        to: ReceivedMessage,
        body: bytes | bytearray | memoryview,
        /,
        **options: Unpack[SendOptions],
    ) -> SendReceipt:
        """Answer a message that was sent with `request`."""
        self._life.check()
        return run_blocking(reply(self._producing, self._channel, to, body, options))

    def tell_end(self, ending: EndTransaction) -> GantryError | None:
        """Tell a broker how a transaction ended that was written down; the error if it could not.

        For relays: whoever sent it need not be this producer, only one of the same group.
        """
        return run_blocking(self._producing.tell_end(self._channel, ending))

    def transaction(
        self,
        message: Message | str,
        body: bytes | bytearray | memoryview | None = None,
        /,
        **options: Unpack[SendOptions],
    ) -> Transaction:
        """A message that is delivered only if the block ends well.

        ```python
        with producer.transaction("orders", b"one beer") as tx:
            book(order, tx.transaction_id)
        ```

        The message is stored before the block, committed after it, rolled back if it raises.
        """
        self._life.check()
        made, how = make_message(message, body, options), make_how(options)
        return Transaction(self._producing, self._channel, made, how)


class Transaction:
    """One transaction: a half message, and how it ends."""

    def __init__(self, producing: Producing, channel: Channel, message: Message, how: How) -> None:
        self._producing = producing
        self._channel = channel
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

    def commit(self) -> None:
        """Have the message delivered."""
        self._end(Decision.COMMIT)

    def rollback(self, reason: str | None = None) -> None:
        """Have it forgotten."""
        self._end(Decision.ROLLBACK, reason)

    def leave_open(self) -> None:
        """Say nothing yet: the broker will ask the checker."""
        self._end(Decision.UNDECIDED)

    def __enter__(self) -> Self:
        self._half = run_blocking(self._producing.begin_transaction(self._channel, *self._given))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.decision is None:
            self._end(decision_of(error is None), None if error is None else repr(error))

    def _end(self, decision: Decision, remark: str | None = None) -> None:
        half = self._begun()
        self.decision = decision
        self.told = run_blocking(
            self._producing.end_transaction(self._channel, half, decision, remark)
        )

    def _begun(self) -> Half:
        if self._half is None:
            raise StateError("the transaction has not begun: use it in a `with` block")
        return self._half
