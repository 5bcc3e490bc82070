"""What is asked of a master about its replicas, by a broker that has none.

RocketMQ: AdminBrokerProcessor.getBrokerHaStatus, resetMasterFlushOffset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantrymq.protocol.base import Done
from gantrymq.protocol.replicas import (
    GetReplicationStatus,
    ReplicationStatus,
    ResetMasterFlushOffset,
)

if TYPE_CHECKING:
    from gantrymq.broker.state import Broker
    from gantrymq.net.peer import Peer


def get_replication_status(
    _request: GetReplicationStatus, broker: Broker, _peer: Peer
) -> ReplicationStatus:
    """A master that nobody follows."""
    return ReplicationStatus(master=True, log_max_offset=broker.store.log_end)


def reset_master_flush_offset(
    _request: ResetMasterFlushOffset, _broker: Broker, _peer: Peer
) -> Done:
    """A master knows how far it has flushed; only a replica would have something to reset."""
    return Done()
