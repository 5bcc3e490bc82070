"""Receiving by POP: take messages that nobody else has, hide them for a while, acknowledge them.

Each broker of a topic is asked by itself, and while one is asked to wait for messages another may
have some. So `receive` first asks all of them without waiting, in the order in which they are
given, and only when nobody has anything does it wait: at the only one for as long as it may, at
several in turns that are short.

A broker leaves a question unanswered, as good as, that seems to have lain about for longer than it
may wait: it holds the time at which it was asked, by our clock, against its own. One that is not to
wait is therefore asked as if it were asked later, and one that comes back much too soon is asked
again after a pause, so that clocks which differ cost time and no messages.

RocketMQ: MQClientAPIImpl.processPopResponse, DefaultMQPushConsumerImpl.ackAsync.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from gantrymq.errors import GantryError, RemoteProtocolError
from gantrymq.protocol.names import pop_retry_topic
from gantrymq.protocol.pop_handles import (
    PopHandle,
    Source,
    read_offsets,
    read_start_offsets,
)
from gantrymq.protocol.popping import (
    AckMessage,
    ChangeInvisibleTime,
    PopMessages,
    PopReply,
)
from gantrymq.runtime import Runtime
from gantrymq.wire import record
from gantrymq.wire.properties import POP_HANDLE
from gantrymq.wire.record import StoredMessage

TIMEOUT: Final = 3.0
"""Seconds to acknowledge a message, or to hide it for longer."""
MOST: Final = 32
"""A broker gives no more at once."""

_TURN: Final = 2.0
"""Seconds to wait at one of several brokers before it is the next one's turn."""
_GRACE: Final = 10.0
"""Seconds that an answer may take beyond the waiting at the broker."""
_PAUSE: Final = 0.2
"""Seconds until a broker is asked again that did not wait."""
_LATE_MS: Final = 3_600_000
"""By how much a broker's clock may be ahead of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What to receive: for whom, of which topic, how much, and how long it stays hidden."""

    group: str
    topic: str
    expression: str
    expression_type: str
    most: int
    invisible: float
    from_end: bool
    """Where a new group begins: with what comes, or with all there is."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whom to ask for what: a broker's name and address."""

    wish: Wish
    broker: str
    address: str


@dataclass(slots=True, kw_only=True)
class Popped:
    """A message, the handle that stands for it, the broker that gave it, and what it was asked."""

    message: StoredMessage
    handle: PopHandle
    broker: str
    topic: str


async def receive(
    runtime: Runtime, asked: Sequence[Asked], *, now_ms: int, wait: float
) -> list[Popped]:
    """What the first has that has anything, within `wait` seconds; or nothing.

    `now_ms` is the time of day at the start. An error is raised only if nobody answered.
    """
    started = runtime.now()
    found = await _whoever_has(runtime, asked, now_ms)
    turn = 0
    while not found and (left := started + wait - runtime.now()) > 0:
        begun = runtime.now()
        born_ms = now_ms + round((begun - started) * 1000)
        slice_ = left if len(asked) == 1 else min(left, _TURN)
        try:
            found = await pop(runtime, asked[turn % len(asked)], born_ms=born_ms, wait=slice_)
        except GantryError:
            if len(asked) == 1:
                raise
        turn += 1
        if not found and runtime.now() - begun < slice_ / 2:
            await runtime.sleep(min(left, _PAUSE))
    return found


async def _whoever_has(runtime: Runtime, asked: Sequence[Asked], now_ms: int) -> list[Popped]:
    errors: list[GantryError] = []
    for one in asked:
        try:
            found = await pop(runtime, one, born_ms=now_ms + _LATE_MS, wait=0.0)
        except GantryError as error:
            errors.append(error)
            continue
        if found:
            return found
    if errors and len(errors) == len(asked):
        raise errors[0]
    return []


async def pop(runtime: Runtime, asked: Asked, *, born_ms: int, wait: float) -> list[Popped]:
    """What one broker has, or gets while it is waited there."""
    wish, broker = asked.wish, asked.broker
    request = PopMessages(
        group=wish.group,
        topic=wish.topic,
        max_messages=min(wish.most, MOST),
        invisible_ms=round(wish.invisible * 1000),
        poll_ms=round(wait * 1000),
        born_ms=born_ms,
        init_mode=int(wish.from_end),
        expression=wish.expression,
        expression_type=wish.expression_type,
        broker=broker,
    )
    reply = await runtime.call(asked.address, request, timeout=wait + _GRACE)
    return with_handles(reply, broker, wish.topic)


def with_handles(reply: PopReply, broker: str, topic: str) -> list[Popped]:
    """The messages of an answer, each with its handle: its own, or one made from the infos."""
    messages = list(record.iterate(reply.body)) if len(reply.body) else []
    if not messages:
        return []
    starts, offsets = read_start_offsets(reply.start_offsets), read_offsets(reply.offsets)
    taken: dict[Source, list[int]] = {}
    for message in messages:  # those of retry topics have theirs, and look as if of this one
        if message.find(POP_HANDLE) is None:
            taken.setdefault(_source(message, topic), []).append(message.queue_offset)
    found = []
    for message in messages:
        text = message.find(POP_HANDLE)
        if text is not None:
            handle = PopHandle.read(text)
        else:
            handle = _made(message, reply, broker, topic, starts, offsets, taken)
        found.append(Popped(message=message, handle=handle, broker=broker, topic=topic))
    return found


def _source(message: StoredMessage, topic: str) -> Source:
    if message.topic == topic:
        return 0, message.queue_id
    return (2 if f"+{topic}" in message.topic else 1), message.queue_id


def _made(
    message: StoredMessage,
    reply: PopReply,
    broker: str,
    topic: str,
    starts: dict[Source, int],
    offsets: dict[Source, list[int]],
    taken: dict[Source, list[int]],
) -> PopHandle:
    source = _source(message, topic)
    of_queue = sorted(taken[source])
    place = of_queue.index(message.queue_offset)
    own = offsets.get(source, of_queue)
    if place >= len(own):
        raise RemoteProtocolError(
            f"{broker} popped {len(own)} messages of queue {source[1]} and sent {len(of_queue)}"
        )
    return PopHandle(
        start_offset=starts.get(source, of_queue[0]),
        pop_ms=reply.pop_ms,
        invisible_ms=reply.invisible_ms,
        revive_queue_id=reply.revive_queue_id,
        retry=source[0],
        broker=broker,
        queue_id=message.queue_id,
        offset=own[place],
    )


def topic_of(handle: PopHandle, group: str, topic: str) -> str:
    """The topic that the message was really popped from: `topic` itself or its retry topic."""
    if handle.retry == 0:
        return topic
    return pop_retry_topic(group, topic, newer=handle.retry == 2)


async def acknowledge(
    runtime: Runtime,
    address: str,
    group: str,
    topic: str,
    handle: PopHandle,
    *,
    timeout: float = TIMEOUT,
) -> None:
    """Say that a message was consumed."""
    request = AckMessage(
        group=group,
        topic=topic_of(handle, group, topic),
        queue_id=handle.queue_id,
        handle=str(handle),
        offset=handle.offset,
        broker=handle.broker,
    )
    await runtime.call(address, request, timeout=timeout)


async def change_invisibility(
    runtime: Runtime,
    address: str,
    group: str,
    topic: str,
    handle: PopHandle,
    invisible: float,
    *,
    timeout: float = TIMEOUT,
) -> PopHandle:
    """Hide a message for `invisible` seconds from now; the handle that stands for it after that."""
    request = ChangeInvisibleTime(
        group=group,
        topic=topic_of(handle, group, topic),
        queue_id=handle.queue_id,
        handle=str(handle),
        offset=handle.offset,
        invisible_ms=round(invisible * 1000),
        broker=handle.broker,
    )
    reply = await runtime.call(address, request, timeout=timeout)
    return replace(
        handle,
        pop_ms=reply.pop_ms,
        invisible_ms=reply.invisible_ms,
        revive_queue_id=reply.revive_queue_id,
    )
