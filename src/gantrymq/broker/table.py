"""Which handler answers which request."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gantrymq.broker import (
    clients,
    delays,
    groups,
    locks,
    offsets,
    pulling,
    resets,
    sending,
    topics,
)
from gantrymq.protocol.base import table
from gantrymq.protocol.group_settings import (
    DeleteGroup,
    ForbidGroup,
    GetGroup,
    GetGroups,
    PutGroup,
    PutGroups,
)
from gantrymq.protocol.groups import (
    CheckClientConfig,
    GetAllProducers,
    GetConsumerConnections,
    GetConsumerList,
    GetProducerConnections,
    Heartbeat,
    UnregisterClient,
)
from gantrymq.protocol.locks import LockQueues, UnlockQueues
from gantrymq.protocol.offsets import (
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    QueryCorrectionOffsets,
    SearchOffset,
    UpdateConsumerOffset,
)
from gantrymq.protocol.pulling import LitePullMessage, PullMessage
from gantrymq.protocol.resets import CloneGroupOffsets, GetClientOffsets, ResetOffsets
from gantrymq.protocol.sending import SendBatch, SendMessage
from gantrymq.protocol.topics import (
    CleanUnusedTopics,
    DeleteTopic,
    GetBrokerSystemTopics,
    GetTopic,
    GetTopics,
    PutTopic,
    PutTopics,
)

HANDLERS: Final = table(
    # messages
    SendMessage.answered_by(sending.send_message),
    SendBatch.answered_by(sending.send_message),
    PullMessage.answered_by(pulling.pull_message),
    LitePullMessage.answered_by(pulling.pull_message),
    # clients
    Heartbeat.answered_by(clients.heartbeat),
    UnregisterClient.answered_by(clients.unregister_client),
    CheckClientConfig.answered_by(clients.check_client_config),
    GetConsumerList.answered_by(clients.get_consumer_list),
    GetConsumerConnections.answered_by(clients.get_consumer_connections),
    GetProducerConnections.answered_by(clients.get_producer_connections),
    GetAllProducers.answered_by(clients.get_all_producers),
    # groups
    PutGroup.answered_by(groups.put_group),
    PutGroups.answered_by(groups.put_groups),
    GetGroups.answered_by(groups.get_groups),
    GetGroup.answered_by(groups.get_group),
    DeleteGroup.answered_by(groups.delete_group),
    ForbidGroup.answered_by(groups.forbid_group),
    # offsets and locks
    QueryConsumerOffset.answered_by(offsets.query_consumer_offset),
    UpdateConsumerOffset.answered_by(offsets.update_consumer_offset),
    SearchOffset.answered_by(offsets.search_offset),
    GetMaxOffset.answered_by(offsets.get_max_offset),
    GetMinOffset.answered_by(offsets.get_min_offset),
    GetEarliestStoreTime.answered_by(offsets.get_earliest_store_time),
    QueryCorrectionOffsets.answered_by(offsets.query_correction_offsets),
    GetAllConsumerOffsets.answered_by(offsets.get_all_consumer_offsets),
    GetAllDelayOffsets.answered_by(delays.get_all_delay_offsets),
    ResetOffsets.answered_by(resets.reset_offsets),
    GetClientOffsets.answered_by(resets.get_client_offsets),
    CloneGroupOffsets.answered_by(resets.clone_group_offsets),
    LockQueues.answered_by(locks.lock_queues),
    UnlockQueues.answered_by(locks.unlock_queues),
    # topics
    PutTopic.answered_by(topics.put_topic),
    PutTopics.answered_by(topics.put_topics),
    DeleteTopic.answered_by(topics.delete_topic),
    GetTopics.answered_by(topics.get_topics),
    GetTopic.answered_by(topics.get_topic),
    GetBrokerSystemTopics.answered_by(topics.get_system_topics),
    CleanUnusedTopics.answered_by(topics.clean_unused_topics),
)
"""Everything that a broker answers."""

WITHOUT_WAITING: Final = MappingProxyType(
    {
        code: entry
        for code, entry in HANDLERS.items()
        if entry.request not in (PullMessage, LitePullMessage)
    }
)
"""The same for the VIP port, whose clients never wait behind somebody's pull."""
