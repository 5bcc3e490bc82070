"""Moving groups to other offsets, and asking their clients where they stand.

There are two ways to move a group. The broker does it by itself: that holds for groups without
members, too. Or it works the offsets out and pushes them to every member, as RocketMQ's brokers did
before version 5, where `useServerSideResetOffset` is off.

RocketMQ: AdminBrokerProcessor.resetOffset, Broker2Client.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gantrymq.broker.clients import Client
from gantrymq.broker.offsets import end_offset, first_offset, offset_at
from gantrymq.errors import (
    BrokerFailure,
    ConsumerOffline,
    GantryError,
    GroupNotFound,
    TopicNotFound,
)
from gantrymq.model import MessageQueue
from gantrymq.protocol.base import Done
from gantrymq.protocol.resets import (
    ClientOffsets,
    CloneGroupOffsets,
    GetClientOffsets,
    GetOffsetsFromClient,
    OffsetTable,
    ResetClientOffsets,
    ResetOffsets,
    ResetOffsetsReply,
)
from gantrymq.wire.codes import Language
from gantrymq.wire.versions import V3_0_7_SNAPSHOT

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.protocol.topics import TopicSettings

_ASK_TIMEOUT: Final = 5.0
_UNSET: Final = -1


def reset_offsets(request: ResetOffsets, broker: Broker, peer: Peer) -> ResetOffsetsReply:
    """Move a group to a time, or one of its queues to an offset."""
    settings = broker.topics.table.get(request.topic)
    if settings is None:
        raise TopicNotFound.because(f"Topic {request.topic} does not exist")
    if request.group not in broker.groups.table:
        raise GroupNotFound.because(f"Group {request.group} does not exist")
    if broker.config.groups.server_side_reset:
        return _reset_here(request, settings, broker)
    return _push(request, settings, broker, as_list=peer.language == Language.CPP)


def _reset_here(
    request: ResetOffsets, settings: TopicSettings, broker: Broker
) -> ResetOffsetsReply:
    topic, group, queue_id = request.topic, request.group, request.queue_id
    if queue_id >= 0:
        wanted = {queue_id: _asked(request, broker)}
    else:
        wanted = {
            number: _at_time(broker, topic, number, request.timestamp_ms)
            for number in range(settings.read_queues)
        }
    if not wanted:
        raise BrokerFailure.because("No queues to reset.")
    for number, offset in wanted.items():
        broker.offsets.reset(group, topic, number, offset)
    return ResetOffsetsReply(offsets=_by_queue(broker, topic, wanted))


def _asked(request: ResetOffsets, broker: Broker) -> int:
    """The offset that is asked for one queue, by itself or by time."""
    topic, queue_id = request.topic, request.queue_id
    if broker.store.queue(topic, queue_id) is None:
        settings = broker.topics.table[topic]
        if queue_id >= max(settings.read_queues, settings.write_queues):
            raise BrokerFailure.because(f"Topic {topic} has no queue {queue_id}")
    if request.offset is None or request.offset == _UNSET:
        return _at_time(broker, topic, queue_id, request.timestamp_ms)
    low = first_offset(broker.store, topic, queue_id)
    high = end_offset(broker.store, topic, queue_id)
    if not low <= request.offset <= high + 1:
        raise BrokerFailure.because(
            f"Target offset {request.offset} not in consume queue range [{low}-{high}]"
        )
    return request.offset


def _at_time(broker: Broker, topic: str, queue_id: int, time_ms: int) -> int:
    if time_ms < 0:
        return end_offset(broker.store, topic, queue_id)
    return max(0, offset_at(broker.store, topic, queue_id, time_ms))


def _push(
    request: ResetOffsets, settings: TopicSettings, broker: Broker, *, as_list: bool
) -> ResetOffsetsReply:
    """Work the offsets out, and have the members of the group go on there."""
    topic, group = request.topic, request.group
    wanted: dict[int, int] = {}
    for queue_id in range(settings.write_queues):
        held = broker.offsets.query(group, topic, queue_id)
        if held is None:
            raise BrokerFailure.because(f"THe consumer group <{group}> not exist")
        target = _at_time(broker, topic, queue_id, request.timestamp_ms)
        wanted[queue_id] = target if request.force else min(target, held)
    members = broker.consumers.clients(group)
    if not members:
        raise ConsumerOffline.because(
            f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic}"
            f" Timestamp: {request.timestamp_ms}"
        )
    offsets = _by_queue(broker, topic, wanted)
    order = ResetClientOffsets(
        topic=topic,
        group=group,
        timestamp_ms=request.timestamp_ms,
        table=OffsetTable(offsets, as_list=as_list),
    )
    for member in members:
        _check_able(member)
    for member in members:
        if member.peer.is_open:
            member.peer.notify(order)
    return ResetOffsetsReply(offsets=offsets)


async def get_client_offsets(
    request: GetClientOffsets, broker: Broker, _peer: Peer
) -> ClientOffsets:
    """Ask the members of a group where they stand, or the one that is named."""
    members = broker.consumers.clients(request.group)
    if not members:
        raise BrokerFailure.because(
            f"No Any Consumer online in the consumer group: [{request.group}]"
        )
    if request.client_id:
        members = [one for one in members if one.client_id == request.client_id]
    for member in members:
        _check_able(member)
    question = GetOffsetsFromClient(topic=request.topic, group=request.group)
    answers = await asyncio.gather(*(_ask(member, question) for member in members))
    found = zip((member.client_id for member in members), answers, strict=True)
    return ClientOffsets(
        by_client={name: offsets for name, offsets in found if offsets is not None}
    )


async def _ask(member: Client, question: GetOffsetsFromClient) -> dict[MessageQueue, int] | None:
    """Where a client stands; None if it does not say."""
    try:
        return (await member.peer.call(question, timeout=_ASK_TIMEOUT)).of_client
    except GantryError:
        return None


def _check_able(member: Client) -> None:
    if member.version < V3_0_7_SNAPSHOT:
        raise BrokerFailure.because(
            f"the client does not support this feature. version={member.version}"
        )


def clone_group_offsets(request: CloneGroupOffsets, broker: Broker, _peer: Peer) -> Done:
    """Give a group the offsets of another, in one topic or in all that it consumes."""
    source = request.source_group
    topics = [request.topic] if request.topic else broker.offsets.topics_of(source)
    for topic in topics:
        is_left = not request.offline and broker.consumers.is_unwanted(source, topic)
        if topic in broker.topics.table and not is_left:
            broker.offsets.clone(source, request.target_group, topic)
    return Done()


def _by_queue(broker: Broker, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
    name = broker.config.identity.name
    return {MessageQueue(topic, name, queue_id): offset for queue_id, offset in offsets.items()}
