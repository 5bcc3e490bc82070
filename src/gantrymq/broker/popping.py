"""Answers to consumers that pop: give messages that nobody else has, take acknowledgements.

A pop looks at the topic's queues, beginning at any of them, and at the group's retry topic for it:
one time in five first, else last, so that neither starves the other. What it finds is hidden for as
long as was asked (`popping_records`). If there is nothing and it may wait, it is parked at all of
these queues, and looks again when something has come.

Only one pop at a time takes from a queue, because between finding out where to read and noting what
was taken nothing else happens: messages that have to be fetched from the disk are fetched first,
and then it is looked again where to read.

An *orderly* pop, which is given nothing while anything of the queue is out, is refused: groups that
need an order read by pulling, which locks queues.

RocketMQ: PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor,
NotificationProcessor, PollingInfoProcessor, PeekMessageProcessor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.broker import filters
from gantrymq.broker.filters import ANYTHING, Wanted
from gantrymq.broker.offsets import end_offset, first_offset
from gantrymq.broker.popping_records import Out
from gantrymq.errors import (
    GroupNotFound,
    InvalidParameter,
    MessageIllegal,
    NoPermission,
    NotSupported,
    RemoteProtocolError,
    ReplyError,
    TopicNotFound,
)
from gantrymq.protocol.base import Done
from gantrymq.protocol.names import is_retry_topic, pop_retry_topic
from gantrymq.protocol.pop_handles import PopHandle, Source, write_offsets, write_start_offsets
from gantrymq.protocol.popping import (
    AckBatch,
    AckedRange,
    AckMessage,
    AwaitMessages,
    AwaitMessagesReply,
    ChangeInvisibleTime,
    ChangeInvisibleTimeReply,
    GetPollingInfo,
    PeekMessages,
    PollingInfoReply,
    PopMessages,
    PopReply,
    PopStatus,
)
from gantrymq.protocol.topics import READ, TopicSettings
from gantrymq.rules.filtering import EVERYTHING
from gantrymq.store.reading import MAX_PULL_BYTES, Found
from gantrymq.wire import properties, record
from gantrymq.wire.codes import ResponseCode
from gantrymq.wire.record import StoredMessage

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

MOST: Final = 32
"""Messages of one pop, as RocketMQ has it."""
REVIVE_QUEUE: Final = 0
"""What handles name; RocketMQ has several queues of checkpoints, here there are none."""
_LONGEST_MS: Final = 3 * 24 * 3600 * 1000
"""For which a message can be hidden."""
_RETRY_FIRST: Final = 0.2
_FROM_END: Final = 1
_ORIGINAL, _RETRY = 0, 1


class _Place(NamedTuple):
    """A queue to look at, and which kind of topic it is of."""

    kind: int
    topic: str
    queue_id: int


@dataclass(slots=True)
class _Catch:
    """What a pop has found so far."""

    room: int
    out: Out
    bodies: list[bytes] = field(default_factory=list)
    taken: dict[Source, list[int]] = field(default_factory=dict)
    end: int = 0
    """Where the log ends that says so."""


async def pop_messages(request: PopMessages, broker: Broker, peer: Peer) -> PopReply:
    """Messages that nobody else has, now or as soon as there are some."""
    topic, wanted = _check_pop(request, broker, peer)
    loop = asyncio.get_running_loop()
    until = loop.time() + broker.waiting.seconds(request.poll_ms) if request.poll_ms > 0 else 0.0
    while True:
        places = _places(request.group, request.queue_id, topic, broker)
        ends = _ends(places, broker)
        catch = await _look(request, broker, places, wanted)
        if catch.bodies:
            if broker.storing.waits:
                await broker.storing.safety(catch.end)
            return _found(request, broker, places, catch)
        left = until - loop.time()
        if left <= 0 or not peer.is_open:
            return _nothing(broker, PopStatus.POLLING_TIMEOUT)
        if broker.waiting.full:
            return _nothing(broker, PopStatus.POLLING_FULL)
        if _ends(places, broker) == ends:  # nothing came while it was looked
            await _wait(request, broker, places, wanted, left)
            topic, wanted = _check_pop(request, broker, peer)
            if not peer.is_open:
                return _nothing(broker, PopStatus.POLLING_TIMEOUT)


async def await_messages(request: AwaitMessages, broker: Broker, peer: Peer) -> AwaitMessagesReply:
    """Whether there is something to pop, now or before the time is over."""
    topic, wanted = _check(request, broker, peer)
    loop = asyncio.get_running_loop()
    until = loop.time() + broker.waiting.seconds(request.poll_ms) if request.poll_ms > 0 else 0.0
    while True:
        places = _places(request.group, request.queue_id, topic, broker)
        if _has_any(request.group, broker, places):
            return AwaitMessagesReply(has_messages=True)
        left = until - loop.time()
        if left <= 0 or not peer.is_open:
            return AwaitMessagesReply()
        if broker.waiting.full:
            return AwaitMessagesReply(polling_full=True)
        await _wait(request, broker, places, wanted, left)


def peek_messages(request: PeekMessages, broker: Broker, peer: Peer) -> PopReply:
    """What a pop would give, which stays there."""
    topic = _topic(request.topic, request.queue_id, broker, peer)
    _group(request.group, request.topic, broker)
    room, bodies, rest = min(max(1, request.max_messages), MOST), list[bytes](), 0
    for place in _places(request.group, request.queue_id, topic, broker):
        offset = broker.pops.peek(place.topic, request.group, place.queue_id)
        found = broker.store.read(
            place.topic, place.queue_id, offset,
            max_messages=max(1, room), max_bytes=MAX_PULL_BYTES, matches=None, accepts=None,
            warmed=True,
        )  # fmt: skip
        if room > 0 and found.count:
            bodies += map(bytes, found.pieces)
            room -= found.count
        rest += max(0, found.max_offset - offset - found.count)
    status = PopStatus.FOUND if bodies else PopStatus.NOTHING_THERE
    return PopReply(
        status=status, pop_ms=broker.clock_ms(), revive_queue_id=REVIVE_QUEUE, rest=rest,
        body=b"".join(bodies),
    )  # fmt: skip


def get_polling_info(request: GetPollingInfo, broker: Broker, peer: Peer) -> PollingInfoReply:
    """How many pops of a group wait at a queue."""
    _topic(request.topic, request.queue_id, broker, peer)
    _group(request.group, request.topic, broker)
    return PollingInfoReply(
        polling=broker.pops.polling[request.topic, request.group, request.queue_id]
    )


async def ack_message(request: AckMessage, broker: Broker, _peer: Peer) -> Done:
    """A message is dealt with; said too late, it comes again all the same."""
    handle = _handle(request.handle, request.queue_id, request.offset)
    _check_offset(request.topic, request.queue_id, request.offset, broker)
    end = broker.pops.ack(
        request.topic, request.group, request.queue_id, (request.offset,), handle.pop_ms
    )
    if end and broker.storing.waits:
        await broker.storing.safety(end)
    return Done()


async def ack_batch(request: AckBatch, broker: Broker, _peer: Peer) -> Done:
    """Many messages are dealt with; queues and offsets that are not there are passed over."""
    if not request.acks:
        raise ReplyError.for_code(ResponseCode.NO_MESSAGE, "the batch acknowledges nothing")
    end = max(_ack_range(one, broker) for one in request.acks)
    if end and broker.storing.waits:
        await broker.storing.safety(end)
    return Done()


def _ack_range(one: AckedRange, broker: Broker) -> int:
    topic = one.topic
    if one.retry != str(_ORIGINAL):
        topic = pop_retry_topic(one.group, one.topic, newer=one.retry == "2")
    return broker.pops.ack(topic, one.group, one.queue_id, one.offsets(), one.pop_ms)


async def change_invisible_time(
    request: ChangeInvisibleTime, broker: Broker, _peer: Peer
) -> ChangeInvisibleTimeReply:
    """Hide a message for another time, from now on."""
    handle = _handle(request.handle, request.queue_id, request.offset)
    topic, group, queue_id, offset = request.topic, request.group, request.queue_id, request.offset
    _check_offset(topic, queue_id, offset, broker)
    _check_time(request.invisible_ms, least=0)
    held = broker.pops.out(topic, group, queue_id, offset)
    if held is None or held.pop_ms != handle.pop_ms:
        raise ReplyError.for_code(
            ResponseCode.NO_MESSAGE,
            f"{topic}[{queue_id}] @ {offset} is not hidden for {group} any more by this handle: it"
            f" was acknowledged, its time was over, or it has another handle",
        )
    out = Out(max(broker.clock_ms(), held.pop_ms + 1), request.invisible_ms)
    end = broker.pops.hide(topic, group, queue_id, offset, out)
    if broker.storing.waits:
        await broker.storing.safety(end)
    return ChangeInvisibleTimeReply(
        pop_ms=out.pop_ms, invisible_ms=out.invisible_ms, revive_queue_id=REVIVE_QUEUE
    )


# --- looking --------------------------------------------------------------------------------------


def _places(group: str, queue_id: int, topic: TopicSettings, broker: Broker) -> list[_Place]:
    """The queues to look at, in order."""
    name = str(topic.topic)
    ids: Sequence[int] = (queue_id,)
    if queue_id < 0:
        first = broker.random.randrange(max(1, topic.read_queues))
        ids = [(first + n) % topic.read_queues for n in range(topic.read_queues)]
    places = [_Place(_ORIGINAL, name, each) for each in ids]
    if is_retry_topic(name):
        return places
    again = _Place(_RETRY, pop_retry_topic(group, name), 0)
    return [again, *places] if broker.random.random() < _RETRY_FIRST else [*places, again]


def _ends(places: Sequence[_Place], broker: Broker) -> dict[_Place, int]:
    return {place: end_offset(broker.store, place.topic, place.queue_id) for place in places}


def _has_any(group: str, broker: Broker, places: Sequence[_Place]) -> bool:
    return any(
        broker.pops.peek(place.topic, group, place.queue_id) < end
        for place, end in _ends(places, broker).items()
    )


async def _wait(
    request: PopMessages | AwaitMessages,
    broker: Broker,
    places: Sequence[_Place],
    wanted: Wanted,
    seconds: float,
) -> None:
    """Return when something came that is wanted, or when the time is over."""
    key = request.topic, request.group, request.queue_id
    polling = broker.pops.polling
    polling[key] += 1
    try:
        at = [(place.topic, place.queue_id) for place in places]
        await broker.waiting.park_at(at, seconds, wanted)
    finally:
        polling[key] -= 1
        if not polling[key]:
            del polling[key]


async def _look(
    request: PopMessages, broker: Broker, places: Sequence[_Place], wanted: Wanted
) -> _Catch:
    most = min(max(1, request.max_messages), MOST)
    catch = _Catch(most, Out(broker.clock_ms(), request.invisible_ms))
    for place in places:
        if catch.room <= 0:
            break
        await _take(request, broker, place, wanted if place.kind == _ORIGINAL else ANYTHING, catch)
    return catch


async def _take(
    request: PopMessages, broker: Broker, place: _Place, wanted: Wanted, catch: _Catch
) -> None:
    """Take what a queue has, and go past what is not wanted."""
    if place.kind == _RETRY:
        if broker.store.queue(place.topic, place.queue_id) is None:
            return
        broker.topics.make(place.topic, queues=1)  # which a crash may have forgotten
    topic, queue_id = place.topic, place.queue_id
    warmed = False
    while not broker.pops.is_full(topic, request.group, queue_id):
        offset = broker.pops.position(
            topic, request.group, queue_id, from_end=request.init_mode == _FROM_END
        )
        found = _read(broker, place, offset, wanted, catch.room, warmed=warmed)
        if found.cold:
            found = await asyncio.to_thread(broker.store.warm, found)
            warmed = found.again
            if warmed or broker.pops.peek(topic, request.group, queue_id) != offset:
                continue
        if found.count:
            _hand_out(request, broker, place, found, catch)
            return
        if found.next_offset == offset:
            return
        broker.pops.skip(topic, request.group, queue_id, found.next_offset)
        await asyncio.sleep(0)
        warmed = False


def _read(
    broker: Broker, place: _Place, offset: int, wanted: Wanted, room: int, *, warmed: bool
) -> Found:
    return broker.store.read(
        place.topic,
        place.queue_id,
        offset,
        max_messages=room,
        max_bytes=MAX_PULL_BYTES,
        matches=wanted.code,
        accepts=wanted.properties,
        mark=wanted.mark,
        warmed=warmed,
    )


def _hand_out(
    request: PopMessages, broker: Broker, place: _Place, found: Found, catch: _Catch
) -> None:
    data = b"".join(found.pieces)
    messages = list(record.iterate(data))
    offsets = [message.queue_offset for message in messages]
    if not catch.bodies:  # it may have been waited for the disk
        catch.out = Out(broker.clock_ms(), request.invisible_ms)
    catch.end = broker.pops.take(
        place.topic, request.group, place.queue_id, offsets, found.next_offset, catch.out
    )
    catch.taken[place.kind, place.queue_id] = offsets
    catch.room -= len(messages)
    if place.kind == _RETRY:
        data = b"".join(_as_sent(one, request, broker, offsets[0], catch.out) for one in messages)
    catch.bodies.append(data)
    broker.counts.handed_out(request.group, place.topic, place.queue_id, found.count, found.size)


def _as_sent(
    message: StoredMessage, request: PopMessages, broker: Broker, start: int, out: Out
) -> bytes:
    """A message of a retry topic as one of the topic that was asked for, with its handle."""
    handle = PopHandle(
        start_offset=start,
        pop_ms=out.pop_ms,
        invisible_ms=out.invisible_ms,
        revive_queue_id=REVIVE_QUEUE,
        retry=_RETRY,
        broker=broker.config.identity.name,
        queue_id=message.queue_id,
        offset=message.queue_offset,
    )
    found = message.properties
    found[properties.POP_HANDLE] = str(handle)
    message.property_bytes = properties.encode(found)
    message.topic = request.topic
    return message.encode()


def _found(
    request: PopMessages, broker: Broker, places: Sequence[_Place], catch: _Catch
) -> PopReply:
    ends = _ends(places, broker)
    rest = sum(
        max(0, end - broker.pops.peek(place.topic, request.group, place.queue_id))
        for place, end in ends.items()
    )
    return PopReply(
        status=PopStatus.FOUND,
        remark="FOUND",
        pop_ms=catch.out.pop_ms,
        invisible_ms=catch.out.invisible_ms,
        revive_queue_id=REVIVE_QUEUE,
        rest=rest,
        start_offsets=write_start_offsets({at: taken[0] for at, taken in catch.taken.items()}),
        offsets=write_offsets(catch.taken),
        body=b"".join(catch.bodies),
    )


def _nothing(broker: Broker, status: PopStatus) -> PopReply:
    broker.counts.missed += 1
    return PopReply(status=status, remark="NO_MESSAGE_IN_QUEUE", revive_queue_id=REVIVE_QUEUE)


# --- checks ---------------------------------------------------------------------------------------


def _check_pop(request: PopMessages, broker: Broker, peer: Peer) -> tuple[TopicSettings, Wanted]:
    if request.max_messages > MOST:
        raise InvalidParameter.because(
            f"a pop gives {MOST} messages at most, not {request.max_messages}"
        )
    _check_time(request.invisible_ms, least=1)
    return _check(request, broker, peer)


def _check(
    request: PopMessages | AwaitMessages, broker: Broker, peer: Peer
) -> tuple[TopicSettings, Wanted]:
    """What is popped from and what is wanted of it, or why it is not answered."""
    if request.ordered:
        raise NotSupported.because(
            f"{request.group} asks for {request.topic} in order: this broker gives messages in"
            f" order to consumers that pull, not to those that pop"
        )
    topic = _topic(request.topic, request.queue_id, broker, peer)
    _group(request.group, request.topic, broker)
    expression, kind = request.expression, request.expression_type
    wanted = filters.asked_for(broker, request.group, request.topic, expression, kind)
    broker.consumers.learn(
        request.group,
        request.topic,
        expression or EVERYTHING,
        broker.now(),
        kind=kind or filters.TAG,
    )
    return topic, wanted


def _topic(name: str, queue_id: int, broker: Broker, peer: Peer) -> TopicSettings:
    if not broker.config.permission & READ:
        raise NoPermission.because(
            f"the broker[{broker.config.identity.name}] pop message is forbidden"
        )
    topic = broker.topics.find(name)
    if topic is None:
        raise TopicNotFound.because(f"topic[{name}] not exist, apply first please!")
    if not topic.perm & READ:
        raise NoPermission.because(f"the topic[{name}] peeking message is forbidden")
    if queue_id >= topic.read_queues:
        raise InvalidParameter.because(
            f"queueId[{queue_id}] is illegal, topic:[{name}]"
            f" topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{peer}]"
        )
    return topic


def _group(name: str, topic: str, broker: Broker) -> None:
    group = broker.groups.settings(name)
    if group is None:
        raise GroupNotFound.because(f"subscription group [{name}] does not exist")
    if not group.enabled:
        raise NoPermission.because(f"subscription group no permission, {name}")
    if not broker.groups.may_read(name, topic):
        raise NoPermission.because(f"the consumer group[{name}] is forbidden for topic[{topic}]")


def _check_time(invisible_ms: int, *, least: int) -> None:
    if not least <= invisible_ms <= _LONGEST_MS:
        raise InvalidParameter.because(
            f"messages are hidden for {least} to {_LONGEST_MS} ms, not {invisible_ms}"
        )


def _check_offset(topic: str, queue_id: int, offset: int, broker: Broker) -> None:
    settings = broker.topics.find(topic)
    if settings is None:
        raise TopicNotFound.because(f"the topic {topic} not exist, apply first please!")
    if not 0 <= queue_id < settings.read_queues:
        raise MessageIllegal.because(
            f"queueId[{queue_id}] is illegal, topic:[{topic}]"
            f" topicConfig.readQueueNums:[{settings.read_queues}]"
        )
    least, end = (
        first_offset(broker.store, topic, queue_id),
        end_offset(broker.store, topic, queue_id),
    )
    if not least <= offset <= end:
        raise ReplyError.for_code(
            ResponseCode.NO_MESSAGE,
            f"{topic}[{queue_id}] has offsets {least} to {end}, not {offset}",
        )


def _handle(text: str, queue_id: int, offset: int) -> PopHandle:
    try:
        handle = PopHandle.read(text)
    except RemoteProtocolError as error:
        raise InvalidParameter.because(str(error)) from error
    if (handle.queue_id, handle.offset) != (queue_id, offset):
        raise InvalidParameter.because(
            f"the handle is that of queue {handle.queue_id} @ {handle.offset}, the request that of"
            f" queue {queue_id} @ {offset}"
        )
    return handle
