"""What brokers ask: to be registered, kept and taken out.

RocketMQ: DefaultRequestProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantrymq.nameserver.keys import ORDER_TOPICS
from gantrymq.nameserver.registration import refresh, register, unregister
from gantrymq.nameserver.state import Place
from gantrymq.protocol.base import Done
from gantrymq.protocol.registration import (
    BrokerHeartbeat,
    DataVersionReply,
    QueryDataVersion,
    RegisterBroker,
    RegisterBrokerReply,
    UnregisterBroker,
)

if TYPE_CHECKING:
    from gantrymq.nameserver.app import NameServer
    from gantrymq.net.peer import Peer


def register_broker(request: RegisterBroker, server: NameServer, peer: Peer) -> RegisterBrokerReply:
    """Take a broker in, and tell it where its master is and which topics are ordered."""
    settings = server.config.brokers
    registered = register(
        server.tables,
        request,
        now=server.now(),
        connection=peer,
        timeout=settings.timeout,
        delete_missing=settings.delete_missing,
    )
    server.tell(registered.notices)
    return RegisterBrokerReply(
        ha_address=registered.ha_address,
        master_address=registered.master_address,
        order_topics=server.keys.namespace(ORDER_TOPICS) if settings.return_order else None,
    )


def unregister_broker(request: UnregisterBroker, server: NameServer, _peer: Peer) -> Done:
    """Take a broker out."""
    place = Place(request.cluster, request.address)
    server.tell(unregister(server.tables, place, request.broker, request.broker_id))
    server.say_gone(place, "it unregistered")
    return Done()


def query_data_version(
    request: QueryDataVersion, server: NameServer, _peer: Peer
) -> DataVersionReply:
    """Say which version of a broker's topics is held; a sign of life."""
    live = refresh(server.tables, Place(request.cluster, request.address), server.now())
    held = None if live is None else live.version
    return DataVersionReply(changed=held != request.version, held=held)


def broker_heartbeat(request: BrokerHeartbeat, server: NameServer, _peer: Peer) -> Done:
    """A sign of life."""
    refresh(server.tables, Place(request.cluster, request.address), server.now())
    return Done()
