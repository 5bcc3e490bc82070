"""Handing messages to consumers.

The checks come in RocketMQ's order (`semantics.md` 2.7). What then is in the queue decides:

| the store found | code | go on at |
|---|---|---|
| messages | 0 | after the last one looked at |
| none that is wanted, or removed ones | 20 | there |
| nothing after the offset | 19, or wait | the same offset |
| an empty queue | 19 at offset 0, else 21 | 0 |
| the offset out of bounds, or moved by order | 21 | the nearest that is in |

A pull that would be answered 19 and may wait is parked (`waiting`) and then done again, once. The
messages go out in the pieces in which they lie in the log; messages that are not in memory are
brought in by a thread first.

RocketMQ: PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from gantrymq.broker import filters
from gantrymq.broker.filters import Wanted
from gantrymq.errors import (
    GroupNotFound,
    InvalidParameter,
    NoPermission,
    SubscriptionMissing,
    SubscriptionStale,
    TopicNotFound,
)
from gantrymq.protocol.enums import MessageModel
from gantrymq.protocol.group_settings import GroupSettings
from gantrymq.protocol.pulling import (
    COMPACTED,
    LitePullMessage,
    PullFlag,
    PullMessage,
    PullReply,
    PullStatus,
)
from gantrymq.protocol.topics import READ, TopicSettings
from gantrymq.rules.filtering import EVERYTHING
from gantrymq.store.reading import MAX_PULL_BYTES, Found, Status

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

MASTER: Final = 0
BROKER, GROUP, TOPIC, BROADCASTING, SUBSCRIPTION = 1, 2, 3, 4, 5
"""What can forbid a pull. RocketMQ: ForbiddenType."""
_COMMIT: Final = int(PullFlag.COMMIT_OFFSET)
_SUSPEND: Final = int(PullFlag.SUSPEND)
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)

_STATUS: Final = {
    Status.FOUND: PullStatus.FOUND,
    Status.NO_MATCHED_MESSAGE: PullStatus.NOTHING_MATCHED,
    Status.MESSAGE_WAS_REMOVING: PullStatus.NOTHING_MATCHED,
    Status.NO_MATCHED_LOGIC_QUEUE: PullStatus.NOTHING_NEW,
    Status.NO_MESSAGE_IN_QUEUE: PullStatus.NOTHING_NEW,
    Status.OFFSET_FOUND_NULL: PullStatus.NOTHING_NEW,
    Status.OFFSET_OVERFLOW_ONE: PullStatus.NOTHING_NEW,
    Status.OFFSET_OVERFLOW_BADLY: PullStatus.OFFSET_MOVED,
    Status.OFFSET_TOO_SMALL: PullStatus.OFFSET_MOVED,
}
_EMPTY: Final = frozenset((Status.NO_MATCHED_LOGIC_QUEUE, Status.NO_MESSAGE_IN_QUEUE))


class _Terms(NamedTuple):
    """On what a pull is answered."""

    group: GroupSettings
    topic: TopicSettings
    wanted: Wanted


def pull_message(
    request: PullMessage, broker: Broker, peer: Peer
) -> PullReply | Awaitable[PullReply]:
    """What the queue has, now or as soon as it has something."""
    terms = _check(request, broker, peer)
    if (moved := _moved(request, broker, terms)) is not None:
        return moved
    found = _read(request, broker, terms)
    flags = request.flags
    if flags & _COMMIT:
        broker.offsets.commit(request.group, request.topic, request.queue_id, request.commit_offset)
    if found.cold:
        return _warmed(request, broker, terms, found)
    status = _status(request, found)
    if status is PullStatus.NOTHING_NEW and flags & _SUSPEND and not broker.waiting.full:
        waiting = broker.waiting
        seconds = waiting.seconds(request.wait_ms)
        bell = waiting.park(request.topic, request.queue_id, seconds, terms.wanted)
        return _later(request, broker, peer, bell)
    return _reply(request, broker, terms, found, status)


async def _later(
    request: PullMessage, broker: Broker, peer: Peer, bell: asyncio.Future[None]
) -> PullReply:
    """What the queue has when something came, or when the time is over."""
    await bell
    terms = _check(request, broker, peer)
    if (moved := _moved(request, broker, terms)) is not None:
        return moved
    found = _read(request, broker, terms)
    if found.cold:
        return await _warmed(request, broker, terms, found)
    return _reply(request, broker, terms, found, _status(request, found))


async def _warmed(request: PullMessage, broker: Broker, terms: _Terms, found: Found) -> PullReply:
    """The same with messages that have to be fetched from the disk first."""
    found = await asyncio.to_thread(broker.store.warm, found)
    if found.again:
        found = _read(request, broker, terms, warmed=True)
        if found.cold:
            found = await asyncio.to_thread(broker.store.warm, found)
    return _reply(request, broker, terms, found, _status(request, found))


def _read(request: PullMessage, broker: Broker, terms: _Terms, *, warmed: bool = False) -> Found:
    broker.offsets.pulled(request.group, request.topic, request.queue_id, request.offset)
    return broker.store.read(
        request.topic,
        request.queue_id,
        request.offset,
        max_messages=max(1, request.max_messages),
        max_bytes=request.max_bytes if request.max_bytes is not None else MAX_PULL_BYTES,
        matches=terms.wanted.code,
        accepts=terms.wanted.properties,
        mark=terms.wanted.mark,
        warmed=warmed,
    )


def _status(request: PullMessage, found: Found) -> PullStatus:
    if found.status in _EMPTY and request.offset != 0:
        return PullStatus.OFFSET_MOVED
    return _STATUS[found.status]


def _reply(
    request: PullMessage, broker: Broker, terms: _Terms, found: Found, status: PullStatus
) -> PullReply:
    if found.count:
        broker.counts.handed_out(
            request.group, request.topic, request.queue_id, found.count, found.size
        )
    else:
        broker.counts.missed += 1
    return PullReply(
        status=status,
        remark=found.status.value,
        suggested_broker=_suggestion(broker, terms.group, far_behind=found.far_behind),
        next_offset=found.next_offset,
        min_offset=found.min_offset,
        max_offset=found.max_offset,
        topic_flags=terms.topic.flags | (COMPACTED if found.compacted else 0),
        group_flags=terms.group.flags,
        more=found.pieces,
    )


def _suggestion(broker: Broker, group: GroupSettings, *, far_behind: bool) -> int:
    if not broker.config.pulls.from_replica:
        return MASTER
    return group.broker_id_when_slow if far_behind else group.broker_id


def _moved(request: PullMessage, broker: Broker, terms: _Terms) -> PullReply | None:
    """The answer for a group that was ordered to go on elsewhere."""
    offset = broker.offsets.take_reset(request.group, request.topic, request.queue_id)
    if offset is None:
        return None
    queue = broker.store.queue(request.topic, request.queue_id)
    return PullReply(
        status=PullStatus.OFFSET_MOVED,
        remark="OFFSET_RESET",
        suggested_broker=MASTER,
        next_offset=offset,
        min_offset=0 if queue is None else queue.min_offset,
        max_offset=0 if queue is None else queue.max_offset,
        topic_flags=terms.topic.flags,
        group_flags=terms.group.flags,
    )


# --- checks ---------------------------------------------------------------------------------------


def _check(request: PullMessage, broker: Broker, peer: Peer) -> _Terms:
    """The terms of a pull, or why it is not answered."""
    name = broker.config.identity.name
    if not broker.config.permission & READ:
        raise _forbidden(BROKER, f"the broker[{name}] pulling message is forbidden")
    if not broker.config.pulls.lite and isinstance(request, LitePullMessage):
        raise _forbidden(BROKER, f"the broker[{name}] for lite pull consumer is forbidden")
    group = broker.groups.settings(request.group)
    if group is None:
        raise GroupNotFound.because(f"subscription group [{request.group}] does not exist")
    if not group.enabled:
        raise _forbidden(GROUP, f"subscription group no permission, {request.group}")
    topic = broker.topics.find(request.topic)
    if topic is None:
        raise TopicNotFound.because(f"topic[{request.topic}] not exist, apply first please!")
    if not topic.perm & READ:
        raise _forbidden(TOPIC, f"the topic[{request.topic}] pulling message is forbidden")
    if not 0 <= request.queue_id < topic.read_queues:
        raise InvalidParameter.because(
            f"queueId[{request.queue_id}] is illegal, topic:[{request.topic}]"
            f" topicConfig.readQueueNums:[{topic.read_queues}] consumer:[{peer}]"
        )
    if request.flags & _SUBSCRIPTION:
        expression, kind = request.subscription, request.expression_type
        wanted = filters.asked_for(broker, request.group, request.topic, expression, kind)
        broker.consumers.learn(
            request.group,
            request.topic,
            expression or EVERYTHING,
            broker.now(),
            kind=kind or filters.TAG,
        )
    else:
        wanted = _subscribed(request, broker, group)
    return _Terms(group, topic, wanted)


def _subscribed(request: PullMessage, broker: Broker, group: GroupSettings) -> Wanted:
    """What a pull wants whose group said so in its heartbeats."""
    consumers = broker.groups.consumers(request.group)
    if consumers is None:
        raise SubscriptionMissing.because("the consumer's group info not exist")
    if not group.broadcast_enabled and consumers.message_model is MessageModel.BROADCASTING:
        raise _forbidden(
            BROADCASTING, f"the consumer group[{request.group}] can not consume by broadcast way"
        )
    if not broker.groups.may_read(request.group, request.topic):
        raise _forbidden(
            SUBSCRIPTION,
            f"the consumer group[{request.group}] is forbidden for topic[{request.topic}]",
        )
    subscription = consumers.subscriptions.get(request.topic)
    if subscription is None:
        raise SubscriptionMissing.because("the consumer's subscription not exist")
    if subscription.version < request.subscription_version:
        raise SubscriptionStale.because("the consumer's subscription not latest")
    return filters.subscribed(broker, request.group, subscription)


def _forbidden(by: int, remark: str) -> NoPermission:
    """The refusal, and what it is that forbids."""
    refusal = NoPermission.because(remark)
    refusal.fields = {"forbiddenType": str(by)}
    return refusal
