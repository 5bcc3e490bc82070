"""Questions of administrators that a client has to answer, passed on to it and back.

RocketMQ: AdminBrokerProcessor.callConsumer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from gantrymq.broker.queries import record_at
from gantrymq.errors import (
    BrokerFailure,
    CallTimeout,
    ClosedError,
    InvalidInput,
    ReplyError,
    TransportError,
)
from gantrymq.protocol.running import (
    ConsumeDirectly,
    ConsumeDirectlyReply,
    GetRunningInfo,
    RunningInfo,
)
from gantrymq.wire.codes import ResponseCode
from gantrymq.wire.message_id import parse_offset_id
from gantrymq.wire.versions import V3_1_8_SNAPSHOT, describe

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer
    from gantrymq.protocol.base import Reply, Request

R = TypeVar("R", bound="Reply")

_TIMEOUT: Final = 10.0


async def get_running_info(request: GetRunningInfo, broker: Broker, _peer: Peer) -> RunningInfo:
    """What a client is doing."""
    return await _ask(request, request.group, request.client_id, broker)


async def consume_directly(
    request: ConsumeDirectly, broker: Broker, _peer: Peer
) -> ConsumeDirectlyReply:
    """Have a client consume one message now, which is read here."""
    try:
        place = parse_offset_id(request.message_id or "")
    except InvalidInput as error:
        raise BrokerFailure.because(str(error)) from error
    topic = broker.topics.table.get(request.topic or "")
    group = broker.groups.table.get(request.group)
    order = replace(
        request,
        broker_name=broker.config.identity.name,
        topic_flags=0 if topic is None else topic.flags,
        group_flags=0 if group is None else group.flags,
        body=record_at(broker.store, place.log_offset),
    )
    return await _ask(order, request.group, request.client_id or "", broker)


async def _ask(request: Request[R], group: str, client_id: str, broker: Broker) -> R:
    client = broker.consumers.find(group, client_id)
    if client is None:
        raise BrokerFailure.because(f"The Consumer <{group}> <{client_id}> not online")
    if client.version < V3_1_8_SNAPSHOT:
        raise BrokerFailure.because(
            f"The Consumer <{client_id}> Version <{describe(client.version)}> too low to finish,"
            " please upgrade it to V3_1_8_SNAPSHOT"
        )
    try:
        return await client.peer.call(request, timeout=_TIMEOUT)
    except CallTimeout as error:
        raise ReplyError.for_code(
            ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout: {error}"
        ) from error
    except (TransportError, ClosedError) as error:
        raise BrokerFailure.because(
            f"invoke consumer <{group}> <{client_id}> Exception: {error}"
        ) from error
