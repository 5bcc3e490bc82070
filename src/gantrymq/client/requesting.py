"""Questions and answers through topics.

```
asker ── message with CORRELATION_ID, REPLY_TO_CLIENT, TTL ──▶ broker ──▶ consumer
  ▲                                                                          │
  └── pushed down the asker's connection (326) ── broker ◀── reply (325) ────┘
```

The broker that gets the reply hands it to the asker, whom it knows by his heartbeats. A reply goes
to the broker that the question came from, because the asker has certainly talked to that one; only
if that fails to any other.

RocketMQ: DefaultMQProducerImpl.request, MessageUtil.createReplyMessage.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from gantrymq.client.messages import How, SendOptions, make_how, make_message
from gantrymq.client.producing import Channel, Producing
from gantrymq.errors import InvalidInput, RequestTimeout, SendFailed
from gantrymq.flows import sending
from gantrymq.flows.drafting import MessageKind
from gantrymq.flows.sending import Choice
from gantrymq.model import Message, MessageQueue, ReceivedMessage, SendReceipt
from gantrymq.protocol.names import reply_topic
from gantrymq.protocol.sending import SendReplyMessage
from gantrymq.wire import properties as names

_REPLY: Final = "reply"
CREATE_REPLY: Final = 10007


async def request(
    producing: Producing,
    message: Message,
    how: How,
) -> ReceivedMessage:
    """Send a question, and wait for its answer; on the engine's loop."""
    producing.life.check()
    spans = producing.spans
    if spans is None:
        return await _request(producing, message, how)
    with spans.sending(message, how) as span:
        return await _request(producing, message, span.how)


async def _request(producing: Producing, message: Message, how: How) -> ReceivedMessage:
    engine, channel = producing.engine, producing.channel
    timeout = producing.timeout_of(how)
    correlation_id = str(uuid.uuid4())
    extra = {
        names.CORRELATION_ID: correlation_id,
        names.REPLY_TO_CLIENT: engine.client_id,
        names.TTL: str(round(timeout * 1000)),
    }
    future: asyncio.Future[ReceivedMessage] = engine.loop.create_future()
    deadline = engine.loop.time() + timeout
    engine.requests[correlation_id] = future
    try:
        draft = await producing.draft(channel, message, how, extra)
        if channel.sender.places.ready_to_publish(draft.topic) is None:
            await sending.find_queues(channel.runtime, channel.sender, draft.topic, timeout=timeout)
        await engine.introduce()
        left = max(0.001, deadline - engine.loop.time())
        receipt = await sending.send(
            channel.runtime, channel.sender, draft, timeout=left, choice=how.choice
        )
        async with asyncio.timeout_at(deadline):
            return await future
    except TimeoutError as late:
        if isinstance(late, SendFailed):
            raise
        raise RequestTimeout(
            f"send request message to <{message.topic}> OK, but wait reply message timeout,"
            f" {timeout * 1000:.0f} ms: the message is {receipt.message_id} at {receipt.queue}"
            f" @ {receipt.offset}; nobody consumes it, or whoever does never replies"
        ) from late
    finally:
        engine.requests.pop(correlation_id, None)


async def reply(
    producing: Producing,
    channel: Channel,
    to: ReceivedMessage,
    body: bytes | bytearray | memoryview,
    options: SendOptions,
) -> SendReceipt:
    """Answer a question; a flow."""
    producing.life.check()
    cluster = _property(to, names.CLUSTER)
    extra = {
        names.MESSAGE_TYPE: _REPLY,
        names.CORRELATION_ID: _property(to, names.CORRELATION_ID),
        names.REPLY_TO_CLIENT: _property(to, names.REPLY_TO_CLIENT),
        names.TTL: _property(to, names.TTL),
    }
    answer = make_message(reply_topic(cluster), body, options)
    how = make_how(options)
    spans = producing.spans
    if spans is None:
        return await _reply(producing, channel, to, answer, how, extra)
    with spans.sending(answer, how) as span:
        receipt = await _reply(producing, channel, to, answer, how, {**extra, **span.carrier})
        span.stored(receipt)
        return receipt


async def _reply(
    producing: Producing,
    channel: Channel,
    to: ReceivedMessage,
    answer: Message,
    how: How,
    extra: dict[str, str],
) -> SendReceipt:
    draft = channel.sender.drafting.one(
        answer, extra, kind=MessageKind.REPLY, request_type=SendReplyMessage
    )
    timeout = producing.timeout_of(how)
    there = await _queue_at(channel, draft.topic, to.broker, timeout)
    if there is not None:
        try:
            return await sending.send(
                channel.runtime,
                channel.sender,
                draft,
                timeout=timeout,
                choice=Choice(queue=there),
            )
        except SendFailed:
            pass  # the asker may be known elsewhere
    return await sending.send(channel.runtime, channel.sender, draft, timeout=timeout)


async def _queue_at(
    channel: Channel, topic: str, broker: str, timeout: float
) -> MessageQueue | None:
    queues = channel.sender.places.ready_to_publish(topic)
    if queues is None:
        queues = await sending.find_queues(channel.runtime, channel.sender, topic, timeout=timeout)
    return next((queue for queue in queues.queues if queue.broker == broker), None)


def _property(message: ReceivedMessage, name: str) -> str:
    value = message.find(name)
    if value is None:
        raise InvalidInput(
            f"create reply message fail, requestMessage error, property[{name}] is null: {message}"
            f" was not sent with request(), so there is nobody to reply to (code {CREATE_REPLY})"
        )
    return value
