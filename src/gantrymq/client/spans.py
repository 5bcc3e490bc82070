"""OpenTelemetry spans of messages: one for each that is sent, one for each time it is handled.

```
send orders  (producer) ──── traceparent, among the message's properties ────▶ process orders
create orders (producer), one for each message of a batch  ◀┄┄ links ┄┄  send orders  (client)
                        └──────────────────────────────────▶ process orders, linked to each of them
```

The context travels as whatever propagator is set up writes it; that is W3C's `traceparent` and
`tracestate` unless somebody chose another. A handler of single messages works inside the trace of
the message; one that takes lists has a trace of its own, linked to those of its messages.

Names are those of OpenTelemetry's conventions for messaging and RocketMQ. Only this module imports
OpenTelemetry, and it is imported only where that is installed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from opentelemetry import context, propagate, trace
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from gantrymq import __version__
from gantrymq.client.hooks import ConsumeHook, Handling
from gantrymq.client.messages import How
from gantrymq.flows.drafting import MessageKind
from gantrymq.model import Message, ReceivedMessage, SendReceipt
from gantrymq.wire import properties as names

_TYPES: Final = {
    MessageKind.HALF: "transaction",
    MessageKind.DELAYED: "delay",
    MessageKind.ORDERED: "fifo",
}
_DELAYS: Final = (names.DELAY, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


class _Spans:
    """What the spans of one member have in common."""

    def __init__(self, client_id: str, namespace: str | None) -> None:
        self._tracer: Final = trace.get_tracer("gantrymq", __version__)
        self._own: Final[dict[str, AttributeValue]] = {
            "messaging.system": "rocketmq",
            "messaging.client.id": client_id,
        }
        if namespace:
            self._own["messaging.rocketmq.namespace"] = namespace
        # It makes the provider that the environment names, and reads the environment every time.
        self._active = not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)

    @property
    def idle(self) -> bool:
        """Whether nobody has set up anything that would record a span, or pass one on."""
        if self._active:
            return False
        self._active = trace._TRACER_PROVIDER is not None  # once there is one it stays
        return not self._active and not context.get_current()

    def _about(
        self, operation: str, topic: str, kind: str | None = None
    ) -> dict[str, AttributeValue]:
        return self._own | {
            "messaging.operation.name": operation,
            "messaging.operation.type": kind or operation,
            "messaging.destination.name": topic,
        }


class SendSpan:
    """The span of one message that is being sent."""

    def __init__(self, span: Span, how: How, carrier: Mapping[str, str]) -> None:
        self._span: Final = span
        self.carrier: Final = carrier
        """The properties by which the span's context travels."""
        self.how: Final = how._replace(extra={**how.extra, **carrier}) if carrier else how
        """How the message is sent, these included."""

    def stored(self, receipt: SendReceipt) -> None:
        """The broker has it."""
        span = self._span
        span.set_attribute("messaging.message.id", receipt.message_id)
        span.set_attribute("messaging.destination.partition.id", str(receipt.queue.queue_id))
        span.set_attribute("messaging.rocketmq.broker", receipt.queue.broker)
        if not receipt.stored_safely:
            span.set_attribute("messaging.rocketmq.send_status", receipt.status.name)


class BatchSpan:
    """The span of a batch that is being sent."""

    def __init__(self, span: Span, extras: Sequence[Mapping[str, str]]) -> None:
        self._span: Final = span
        self.extras: Final = extras
        """For each message, the properties by which its own context travels."""

    def stored(self, receipt: SendReceipt) -> None:
        """The broker has it, beginning with this message."""
        span = self._span
        span.set_attribute("messaging.destination.partition.id", str(receipt.queue.queue_id))
        span.set_attribute("messaging.rocketmq.broker", receipt.queue.broker)


class SendSpans(_Spans):
    """Spans of what a producer sends."""

    @contextmanager
    def sending(self, message: Message, how: How) -> Iterator[SendSpan]:
        """From the first attempt to the receipt."""
        found = self._about("send", message.topic) | _of_message(message, how)
        with _span(self._tracer, f"send {message.topic}", SpanKind.PRODUCER, found) as span:
            yield SendSpan(span, how, _carrier(span))

    @contextmanager
    def sending_batch(self, messages: Sequence[Message]) -> Iterator[BatchSpan]:
        """The same for a list: a span for each message, and one linked to them all."""
        topic = messages[0].topic
        created = [self._create(message) for message in messages]
        found = self._about("send", topic) | {"messaging.batch.message_count": len(messages)}
        links = [Link(span.get_span_context()) for span in created]
        with _span(self._tracer, f"send {topic}", SpanKind.CLIENT, found, links) as span:
            yield BatchSpan(span, [_carrier(one) for one in created])

    def _create(self, message: Message) -> Span:
        found = self._about("create", message.topic) | _of_message(message, How())
        span = self._tracer.start_span(
            f"create {message.topic}", kind=SpanKind.PRODUCER, attributes=found
        )
        span.end()
        return span


class HandlingSpans(_Spans, ConsumeHook):
    """Spans of what a consumer handles."""

    def __init__(self, client_id: str, namespace: str | None, *, everything: bool) -> None:
        super().__init__(client_id, namespace)
        self._own["messaging.rocketmq.consumption_model"] = (
            "broadcasting" if everything else "clustering"
        )

    def before(self, handling: Handling) -> None:
        """Begin a span, inside which the handler works if there is one."""
        messages = handling.messages
        contexts = [propagate.extract(message.all_properties) for message in messages]
        links = [Link(at) for each in contexts if (at := _origin(each)).is_valid]
        if self.idle and not links:
            return
        parent = contexts[0] if len(messages) == 1 and links else None
        topic = messages[0].topic
        span = self._tracer.start_span(
            f"process {topic}",
            context=parent,
            kind=SpanKind.CONSUMER,
            links=links,
            attributes=self._about("process", topic) | _of_handling(handling),
        )
        token = None
        if handling.called:
            token = context.attach(trace.set_span_in_context(span, parent))
        handling.notes[self] = (span, token)

    def after(self, handling: Handling) -> None:
        """End it."""
        if self not in handling.notes:
            return
        span, token = handling.notes[self]
        if token is not None:
            context.detach(token)
        if handling.error is not None:
            _failed(span, handling.error)
        span.end()


@contextmanager
def _span(
    tracer: trace.Tracer,
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, AttributeValue],
    links: Sequence[Link] = (),
) -> Iterator[Span]:
    span = tracer.start_span(name, kind=kind, attributes=attributes, links=links)
    try:
        yield span
    except BaseException as error:
        _failed(span, error)
        raise
    finally:
        span.end()


def _failed(span: Span, error: BaseException) -> None:
    kind = type(error)
    own = kind.__module__ in ("builtins", "gantrymq.errors")
    span.set_attribute(
        "error.type", kind.__name__ if own else f"{kind.__module__}.{kind.__qualname__}"
    )
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, str(error)))


def _carrier(span: Span) -> dict[str, str]:
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=trace.set_span_in_context(span))
    return carrier


def _origin(at: context.Context) -> trace.SpanContext:
    return trace.get_current_span(at).get_span_context()


def _of_message(message: Message, how: How) -> dict[str, AttributeValue]:
    delayed = message.delay_level or message.delay is not None or message.deliver_at is not None
    kind = MessageKind.DELAYED if delayed else how.kind
    found: dict[str, AttributeValue] = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": _TYPES.get(kind, "normal"),
    }
    if message.tag is not None:
        found["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.keys
    if (order_key := how.extra.get(names.SHARDING_KEY)) is not None:
        found["messaging.rocketmq.message.group"] = order_key
    if message.delay_level:
        found["messaging.rocketmq.message.delay_time_level"] = message.delay_level
    if message.deliver_at is not None and message.deliver_at.tzinfo is not None:
        at = round(message.deliver_at.timestamp() * 1000)
        found["messaging.rocketmq.message.delivery_timestamp"] = at
    return found


def _of_handling(handling: Handling) -> dict[str, AttributeValue]:
    messages = handling.messages
    found: dict[str, AttributeValue] = {
        "messaging.consumer.group.name": handling.group,
        "messaging.destination.partition.id": str(handling.queue.queue_id),
        "messaging.rocketmq.broker": handling.queue.broker,
    }
    if len(messages) > 1:
        return found | {"messaging.batch.message_count": len(messages)}
    return found | _of_received(messages[0])


def _of_received(message: ReceivedMessage) -> dict[str, AttributeValue]:
    found: dict[str, AttributeValue] = {
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.stored.body),
        "messaging.rocketmq.message.type": _type_of(message),
        "messaging.rocketmq.message.retries": message.retries,
    }
    if message.tag is not None:
        found["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        found["messaging.rocketmq.message.keys"] = message.keys
    if (order_key := message.find(names.SHARDING_KEY)) is not None:
        found["messaging.rocketmq.message.group"] = order_key
    return found


def _type_of(message: ReceivedMessage) -> str:
    if message.find(names.HALF_MESSAGE) == "true":
        return "transaction"
    if any(message.find(name) is not None for name in _DELAYS):
        return "delay"
    return "fifo" if message.find(names.SHARDING_KEY) is not None else "normal"
