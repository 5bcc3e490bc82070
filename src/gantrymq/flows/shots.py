"""Sends that need nothing but their call.

Nearly every message is plain, its route is known, nobody has hooked himself in, and the answer is
that it is stored. Such a send is a `Shot`: a header that is written but for three gaps, one call,
and a receipt. What sends it is no flow, since there is nothing to wait for but the one answer; as
soon as anything is otherwise, the flow that knows all of it goes on from where the send is then.

```
         plain, route known?      connection, room?         stored?
message ──────┬── yes ──▶ shot ──────┬── yes ──▶ call ──────┬── yes ──▶ receipt
              └── no: send           └── no: fire           └── no: go_on
```
"""

from __future__ import annotations

from collections.abc import Mapping

from gantrymq.flows import sending
from gantrymq.flows.drafting import Draft, MessageKind
from gantrymq.flows.sending import Aim, Choice, Sender
from gantrymq.model import Message, MessageQueue, SendReceipt, SendStatus
from gantrymq.protocol.forms import FilledForm
from gantrymq.protocol.names import unwrap
from gantrymq.protocol.sending import SendReply
from gantrymq.rules.retry import Mode
from gantrymq.runtime import Runtime
from gantrymq.wire import properties as names
from gantrymq.wire.command import Buffer


class Shot:
    """A plain message, ready to go to its queue."""

    __slots__ = (
        "_extra",
        "_kind",
        "_message",
        "_sender",
        "address",
        "form",
        "queue",
        "target",
        "unique_id",
    )

    def __init__(
        self,
        sender: Sender,
        message: Message,
        extra: Mapping[str, str],
        kind: MessageKind,
        target: Aim,
        unique_id: str,
        form: FilledForm | None,
        address: str | None,
    ) -> None:
        self.target = target
        self.queue = target.queue
        self.form = form
        """None if there is none that the message fits into: it has to be fired as a draft."""
        self.address = address
        """None if nobody knows; it has to be fired as well."""
        self.unique_id = unique_id
        self._sender = sender
        self._message = message
        self._extra = extra
        self._kind = kind

    @property
    def body(self) -> Buffer:
        """What goes out behind the form."""
        return self._message.body

    @property
    def deadline(self) -> float:
        """When the call has to have its answer."""
        return self.target.begun + self.target.left

    def receipt(self, reply: SendReply, now: float) -> SendReceipt:
        """Where it was stored."""
        queue, sender = self.queue, self._sender
        if reply.queue_id != queue.queue_id or sender.namespace:
            topic = unwrap(sender.namespace, queue.topic)
            queue = MessageQueue(topic, queue.broker, reply.queue_id)
        if sender.choice.send_latency_fault_enable and reply.status is SendStatus.OK:
            sending.went_well(sender, self.target, now)
        return SendReceipt(
            message_id=self.unique_id,
            queue=queue,
            offset=reply.offset,
            offset_id=reply.message_id,
            status=reply.status,
            transaction_id=reply.transaction_id,
            recall_handle=reply.recall_handle,
            region=reply.region,
            traced=reply.traced is not False,
        )

    async def fire(self, runtime: Runtime) -> SendReceipt:
        """Send it the long way, from the first attempt on."""
        target = self.target
        target.left = max(0.0, self.deadline - runtime.now())
        return await sending.fire(runtime, self._sender, self._draft(), target)

    async def go_on(
        self, runtime: Runtime, receipt: SendReceipt | None, failure: BaseException | None
    ) -> SendReceipt:
        """What becomes of it when the first attempt did not simply end well."""
        return await sending.go_on(
            runtime, self._sender, self._draft(), self.target, receipt, failure
        )

    def _draft(self) -> Draft:
        extra = {**self._extra, names.UNIQUE_KEY: self.unique_id}
        return self._sender.drafting.one(self._message, extra, kind=self._kind)


def make_shot(
    sender: Sender,
    message: Message,
    extra: Mapping[str, str],
    kind: MessageKind,
    choice: Choice | None,
    *,
    now: float,
    timeout: float,
    mode: Mode,
) -> Shot | None:
    """The message ready to go; None, with no turn taken, if it has to go the long way."""
    if sender.hooks is not None or message.delay is not None or message.deliver_at is not None:
        return None
    drafting, places = sender.drafting, sender.places
    queues = places.ready_to_publish(drafting.topic_of(message))
    plain = None if queues is None else drafting.plainly(message, extra)
    if queues is None or plain is None:
        return None
    target = sending.aim(
        sender, message, queues, choice, started=now, begun=now, timeout=timeout, mode=mode
    )
    form = drafting.form(target.queue)
    filled = None if form is None else form.fill(plain.made_ms, plain.properties)
    address = places.address_to_send(target.queue.broker)
    return Shot(sender, message, extra, kind, target, plain.unique_id, filled, address)
