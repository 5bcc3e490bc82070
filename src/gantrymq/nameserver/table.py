"""Which handler answers which request."""

from __future__ import annotations

from typing import Final

from gantrymq.nameserver import brokers, configs, keys, routing, topics
from gantrymq.protocol.base import table
from gantrymq.protocol.configs import (
    DeleteKey,
    GetKey,
    GetKeys,
    GetNameServerConfig,
    PutKey,
    UpdateNameServerConfig,
)
from gantrymq.protocol.registration import (
    AddWritePermission,
    BrokerHeartbeat,
    QueryDataVersion,
    RegisterBroker,
    UnregisterBroker,
    WipeWritePermission,
)
from gantrymq.protocol.routing import (
    DeleteRoute,
    GetAllTopics,
    GetBrokerMembers,
    GetClusterInfo,
    GetRoute,
    GetSystemTopics,
    GetTopicsOfCluster,
    GetUnitSubscribedPlainTopics,
    GetUnitSubscribedTopics,
    GetUnitTopics,
    RegisterTopic,
)

HANDLERS: Final = table(
    # routes
    GetRoute.answered_by(routing.get_route),
    GetClusterInfo.answered_by(routing.get_cluster_info),
    GetBrokerMembers.answered_by(routing.get_members),
    # brokers
    RegisterBroker.answered_by(brokers.register_broker),
    UnregisterBroker.answered_by(brokers.unregister_broker),
    QueryDataVersion.answered_by(brokers.query_data_version),
    BrokerHeartbeat.answered_by(brokers.broker_heartbeat),
    # topics
    GetAllTopics.answered_by(topics.get_all),
    GetTopicsOfCluster.answered_by(topics.get_of_cluster),
    GetSystemTopics.answered_by(topics.get_system),
    GetUnitTopics.answered_by(topics.get_unit),
    GetUnitSubscribedTopics.answered_by(topics.get_unit_subscribed),
    GetUnitSubscribedPlainTopics.answered_by(topics.get_unit_subscribed_plain),
    RegisterTopic.answered_by(topics.register_topic),
    DeleteRoute.answered_by(topics.delete_route),
    WipeWritePermission.answered_by(topics.wipe_write),
    AddWritePermission.answered_by(topics.add_write),
    # keys and settings
    PutKey.answered_by(keys.put_key),
    GetKey.answered_by(keys.get_key),
    DeleteKey.answered_by(keys.delete_key),
    GetKeys.answered_by(keys.get_keys),
    GetNameServerConfig.answered_by(configs.get_config),
    UpdateNameServerConfig.answered_by(configs.update_config),
)
"""Everything that a name server answers."""
