"""Answers to request messages: handed to the client that asked, over the connection that it has.

Who asks puts its client id into the message, as `REPLY_TO_CLIENT`; who answers sends that back with
the answer. So the broker of the answer has to be one that the asking client is connected to, which
it is by its heartbeats as a producer. The answer is also stored, in the cluster's reply topic,
whether it was handed over or not; that can be switched off.

| what happens | code | remark |
|---|---|---|
| it was handed over | 0 | |
| the answer does not say to whom | 1 | `reply message properties[REPLY_TO_CLIENT] is null` |
| nobody has that id | 1 | `push reply message fail, channel of <…> not found.` |
| the client is silent, or refuses | 1 | `push reply message to …fail.` |

RocketMQ: ReplyMessageProcessor.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gantrymq.broker import sending
from gantrymq.broker.hosts import Hosts, hosts_of
from gantrymq.errors import BrokerFailure, GantryError, ReplyError
from gantrymq.protocol.sending import PushReplyMessage, SendReply, SendReplyMessage
from gantrymq.wire import properties
from gantrymq.wire.record import StoredMessage, host_text

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer

log = logging.getLogger("gantrymq.broker")

_PUSH_TIMEOUT: Final = 10.0
"""Seconds that the asking client has to take the answer. RocketMQ: Broker2Client.callClient."""


async def send_reply(request: SendReplyMessage, broker: Broker, peer: Peer) -> SendReply:
    """Hand an answer to who asked, and store it."""
    try:
        return await _send(request, broker, peer)
    except ReplyError as refusal:
        refusal.fields = broker.marks.fields
        raise


async def _send(request: SendReplyMessage, broker: Broker, peer: Peer) -> SendReply:
    settings = sending.check(request, broker.topics.table.get(request.topic), broker, peer)
    if request.queue_id < 0:
        request.queue_id = sending.any_queue(settings, broker.random)
    hosts = hosts_of(peer, broker.advertised)
    try:
        await _push(request, broker, hosts)
    finally:
        stored = _store(request, broker, hosts) if broker.config.sends.store_replies else None
    return SendReply(
        message_id="0" if stored is None else stored.offset_id,
        queue_id=request.queue_id,
        offset=0 if stored is None else stored.queue_offset,
        region=broker.marks.region,
        traced=broker.marks.traced,
    )


async def _push(request: SendReplyMessage, broker: Broker, hosts: Hosts) -> None:
    """Hand the answer over, or say why that cannot be."""
    found = properties.split(request.properties or "")
    client_id = found.get(properties.REPLY_TO_CLIENT)
    if client_id is None:
        name = properties.REPLY_TO_CLIENT
        raise BrokerFailure.because(f"reply message properties[{name}] is null")
    client = broker.producers.members.find(client_id)
    if client is None or not client.peer.is_open:
        raise BrokerFailure.because(f"push reply message fail, channel of <{client_id}> not found.")
    now_ms = broker.clock_ms()
    found[properties.PUSH_REPLY_TIME] = str(now_ms)
    push = PushReplyMessage(
        group=request.group,
        topic=request.topic,
        default_topic=request.default_topic,
        default_topic_queues=request.default_topic_queues,
        queue_id=request.queue_id,
        flags=request.flags,
        born_ms=request.born_ms,
        flag=request.flag,
        properties=properties.join(found),
        reconsume_times=request.reconsume_times,
        unit_mode=request.unit_mode,
        born_host=f"/{host_text(hosts.born_ip, hosts.born_port)}",
        store_host=f"/{host_text(hosts.store_ip, hosts.store_port)}",
        store_ms=now_ms,
        body=request.body,
    )
    try:
        await client.peer.call(push, timeout=_PUSH_TIMEOUT)
    except GantryError as error:
        log.warning("%s did not take the answer to its request: %s", client_id, error)
        raise BrokerFailure.because(f"push reply message to {client_id}fail.") from error


def _store(request: SendReplyMessage, broker: Broker, hosts: Hosts) -> StoredMessage | None:
    """The answer, stored; None if that could not be, which does not make it less of an answer."""
    message = StoredMessage(
        topic=request.topic,
        body=bytes(request.body),
        property_bytes=(request.properties or "").encode("utf-8", "replace"),
        queue_id=request.queue_id,
        flag=request.flag,
        sys_flag=request.flags,
        born_ms=request.born_ms,
        born_ip=hosts.born_ip,
        born_port=hosts.born_port,
        store_ip=hosts.store_ip,
        store_port=hosts.store_port,
        reconsume_times=request.reconsume_times,
    )
    try:
        broker.storing.put(message)
    except ReplyError as error:
        log.warning("an answer in %s was not stored: %s", request.topic, error)
        return None
    return message
