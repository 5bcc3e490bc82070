"""Which handler answers which request."""

from __future__ import annotations

from typing import Final

from gantrymq.broker import topics
from gantrymq.protocol.base import table
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
