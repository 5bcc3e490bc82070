"""Which handler answers which request."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gantrymq.broker import pulling, sending, topics
from gantrymq.protocol.base import table
from gantrymq.protocol.pulling import LitePullMessage, PullMessage
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
