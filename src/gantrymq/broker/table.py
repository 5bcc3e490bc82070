"""Which handler answers which request."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gantrymq.broker import (
    assignments,
    clients,
    configs,
    delays,
    groups,
    locks,
    offsets,
    popping,
    pulling,
    queries,
    replicas,
    replying,
    resets,
    retries,
    running,
    runtime_info,
    sending,
    statistics,
    timers,
    topics,
    transactions,
)
from gantrymq.protocol.assignments import GetAllRequestModes, QueryAssignment, SetRequestMode
from gantrymq.protocol.base import table
from gantrymq.protocol.brokers import (
    CleanConsumeQueues,
    DeleteExpiredLog,
    GetRuntimeInfo,
    SwitchTimerEngine,
)
from gantrymq.protocol.configs import GetBrokerConfig, UpdateBrokerConfig
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
from gantrymq.protocol.lite import GetBrokerLiteInfo
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
from gantrymq.protocol.popping import (
    AckBatch,
    AckMessage,
    AwaitMessages,
    ChangeInvisibleTime,
    GetPollingInfo,
    PeekMessages,
    PopMessages,
)
from gantrymq.protocol.pulling import LitePullMessage, PullMessage, QueryMessages, ViewMessage
from gantrymq.protocol.replicas import GetReplicationStatus, ResetMasterFlushOffset
from gantrymq.protocol.resets import CloneGroupOffsets, GetClientOffsets, ResetOffsets
from gantrymq.protocol.running import ConsumeDirectly, GetRunningInfo
from gantrymq.protocol.sending import (
    RecallMessage,
    SendBack,
    SendBatch,
    SendMessage,
    SendReplyMessage,
)
from gantrymq.protocol.statistics import (
    GetBrokerConsumeStats,
    GetBrokerStats,
    GetConsumeStats,
    GetGroupsOfTopic,
    GetSubscription,
    GetTimeSpans,
    GetTopicsOfGroup,
    GetTopicStats,
    QueryConsumeQueue,
)
from gantrymq.protocol.topics import (
    CleanUnusedTopics,
    DeleteTopic,
    GetBrokerSystemTopics,
    GetTopic,
    GetTopics,
    PutTopic,
    PutTopics,
)
from gantrymq.protocol.transactions import EndTransaction, ResumeHalfMessage

HANDLERS: Final = table(
    # messages
    SendMessage.answered_by(sending.send_message),
    SendBatch.answered_by(sending.send_message),
    SendReplyMessage.answered_by(replying.send_reply),
    PullMessage.answered_by(pulling.pull_message),
    LitePullMessage.answered_by(pulling.pull_message),
    PopMessages.answered_by(popping.pop_messages),
    PeekMessages.answered_by(popping.peek_messages),
    AwaitMessages.answered_by(popping.await_messages),
    GetPollingInfo.answered_by(popping.get_polling_info),
    AckMessage.answered_by(popping.ack_message),
    AckBatch.answered_by(popping.ack_batch),
    ChangeInvisibleTime.answered_by(popping.change_invisible_time),
    SendBack.answered_by(retries.send_back),
    RecallMessage.answered_by(timers.recall_message),
    EndTransaction.answered_by(transactions.end_transaction),
    ResumeHalfMessage.answered_by(transactions.resume_half_message),
    QueryMessages.answered_by(queries.query_messages),
    ViewMessage.answered_by(queries.view_message),
    QueryConsumeQueue.answered_by(queries.query_consume_queue),
    # clients
    Heartbeat.answered_by(clients.heartbeat),
    UnregisterClient.answered_by(clients.unregister_client),
    CheckClientConfig.answered_by(clients.check_client_config),
    GetConsumerList.answered_by(clients.get_consumer_list),
    GetConsumerConnections.answered_by(clients.get_consumer_connections),
    GetProducerConnections.answered_by(clients.get_producer_connections),
    GetAllProducers.answered_by(clients.get_all_producers),
    GetRunningInfo.answered_by(running.get_running_info),
    ConsumeDirectly.answered_by(running.consume_directly),
    QueryAssignment.answered_by(assignments.query_assignment),
    SetRequestMode.answered_by(assignments.set_request_mode),
    GetAllRequestModes.answered_by(assignments.get_all_request_modes),
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
    # the broker itself, and what it counts
    GetBrokerConfig.answered_by(configs.get_config),
    UpdateBrokerConfig.answered_by(configs.update_config),
    SwitchTimerEngine.answered_by(configs.switch_timer_engine),
    GetRuntimeInfo.answered_by(runtime_info.get_runtime_info),
    GetReplicationStatus.answered_by(replicas.get_replication_status),
    ResetMasterFlushOffset.answered_by(replicas.reset_master_flush_offset),
    GetBrokerLiteInfo.answered_by(statistics.get_broker_lite_info),
    GetTopicStats.answered_by(statistics.get_topic_stats),
    GetConsumeStats.answered_by(statistics.get_consume_stats),
    GetBrokerConsumeStats.answered_by(statistics.get_broker_consume_stats),
    GetTimeSpans.answered_by(statistics.get_time_spans),
    GetGroupsOfTopic.answered_by(statistics.get_groups_of_topic),
    GetTopicsOfGroup.answered_by(statistics.get_topics_of_group),
    GetSubscription.answered_by(statistics.get_subscription),
    GetBrokerStats.answered_by(statistics.get_broker_stats),
    CleanConsumeQueues.answered_by(statistics.clean_consume_queues),
    DeleteExpiredLog.answered_by(statistics.delete_expired_log),
)
"""Everything that a broker answers."""

WITHOUT_WAITING: Final = MappingProxyType(
    {
        code: entry
        for code, entry in HANDLERS.items()
        if entry.request
        not in (
            PullMessage,
            LitePullMessage,
            PopMessages,
            PeekMessages,
            AwaitMessages,
            GetPollingInfo,
        )
    }
)
"""The same for the VIP port, whose clients never wait behind somebody's pull."""
