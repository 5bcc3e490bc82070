"""What brokers ask of a client, and who in it answers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gantrymq.client.members import Member
from gantrymq.errors import BrokerFailure, RemoteProtocolError
from gantrymq.model import ReceivedMessage
from gantrymq.net.aio import Peer
from gantrymq.protocol.base import Done, table
from gantrymq.protocol.groups import NotifyConsumersChanged
from gantrymq.protocol.resets import ClientOffsets, GetOffsetsFromClient, ResetClientOffsets
from gantrymq.protocol.running import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    GetRunningInfo,
    RunningInfo,
)
from gantrymq.protocol.sending import PushReplyMessage
from gantrymq.protocol.transactions import CheckTransactionState
from gantrymq.wire import properties, record
from gantrymq.wire.compression import decompress
from gantrymq.wire.flags import compression_of

if TYPE_CHECKING:
    from gantrymq.client.engine import Engine

log = logging.getLogger("gantrymq.client")


def _consumer(engine: Engine, group: str) -> Member:
    member = engine.find("consumer", group)
    if member is None:
        raise BrokerFailure.because(f"The Consumer Group <{group}> not exist in this consumer")
    return member


def members_changed(request: NotifyConsumersChanged, engine: Engine, _peer: Peer) -> Done:
    """40: share the queues anew."""
    member = engine.find("consumer", request.group)
    if member is not None:
        member.members_changed()
    return Done()


def reset_offsets(request: ResetClientOffsets, engine: Engine, _peer: Peer) -> Done:
    """220: go on elsewhere."""
    member = engine.find("consumer", request.group)
    if member is not None:
        member.reset_offsets(request.topic, request.table.offsets)
    return Done()


def offsets(request: GetOffsetsFromClient, engine: Engine, _peer: Peer) -> ClientOffsets:
    """221: where the client stands."""
    member = engine.find("consumer", request.group)
    return ClientOffsets(of_client={} if member is None else member.offsets(request.topic))


def running_info(request: GetRunningInfo, engine: Engine, _peer: Peer) -> RunningInfo:
    """307: what it is doing."""
    return _consumer(engine, request.group).running_info(stacks=bool(request.stacks))


async def consume_directly(
    request: ConsumeDirectly, engine: Engine, peer: Peer
) -> ConsumeDirectlyReply:
    """309: consume one message now."""
    member = _consumer(engine, request.group)
    stored = record.decode(request.body)
    return await member.consume_directly(ReceivedMessage(stored, request.broker_name or str(peer)))


def check_transaction(request: CheckTransactionState, engine: Engine, peer: Peer) -> Done:
    """39: how shall a transaction end?"""
    message = ReceivedMessage(record.decode(request.body), request.broker or str(peer))
    group = message.find(properties.PRODUCER_GROUP)
    member = None if group is None else engine.find("producer", group)
    if member is None:
        log.warning("%s asks after a transaction of group %s, which is not here", peer, group)
    else:
        member.check_transaction(request, message, str(peer))
    return Done()


def push_reply(request: PushReplyMessage, engine: Engine, _peer: Peer) -> Done:
    """326: the answer to a request message has come."""
    found = properties.split(request.properties or "")
    future = engine.requests.pop(found.get(properties.CORRELATION_ID, ""), None)
    if future is None or future.done():
        log.info("an answer came that nobody waits for: %s", found)
        return Done()
    _resolve(future, request, found)
    return Done()


def _resolve(
    future: asyncio.Future[ReceivedMessage], request: PushReplyMessage, found: dict[str, str]
) -> None:
    kind = compression_of(request.flags)
    try:
        body = bytes(request.body) if kind is None else decompress(request.body, kind)
    except RemoteProtocolError as damaged:
        future.set_exception(damaged)
        return
    stored = record.StoredMessage(
        topic=request.topic,
        body=body,
        property_bytes=properties.encode(found),
        queue_id=request.queue_id,
        flag=request.flag,
        born_ms=request.born_ms,
        store_ms=request.store_ms,
        reconsume_times=request.reconsume_times or 0,
    )
    future.set_result(ReceivedMessage(stored, request.broker or ""))


ANSWERS: Final = table(
    NotifyConsumersChanged.answered_by(members_changed),
    ResetClientOffsets.answered_by(reset_offsets),
    GetOffsetsFromClient.answered_by(offsets),
    GetRunningInfo.answered_by(running_info),
    ConsumeDirectly.answered_by(consume_directly),
    CheckTransactionState.answered_by(check_transaction),
    PushReplyMessage.answered_by(push_reply),
)
