"""What a topic's attributes say of the messages that it takes.

| attribute | |
|---|---|
| `cleanup.policy` of COMPACTION | only the newest message of each key is kept, so each has a key |
| `message.type` | others are refused, and told how it is done (`rules.message_types`) |

**Priorities** are queues: in a topic of type PRIORITY a message of priority 5 goes to queue 5, or
to the last one if there are fewer. In another topic the priority means nothing, and is dropped.

RocketMQ lets its proxy ask about types, and who sends without it may send anything anywhere. Here
the broker asks, unless it is told not to (`topics.check_types`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from gantrymq.broker.attributes import CLEANUP_POLICY, COMPACTION, MESSAGE_TYPE
from gantrymq.errors import MessageIllegal
from gantrymq.rules.message_types import PRIORITY, mismatch, type_of
from gantrymq.wire import properties
from gantrymq.wire.codes import Language
from gantrymq.wire.properties import NAME_END

if TYPE_CHECKING:
    from gantrymq.protocol.sending import SendMessage
    from gantrymq.protocol.topics import TopicSettings
    from gantrymq.wire.record import StoredMessage

PRIORITY_MARK: Final = f"{properties.PRIORITY}{NAME_END}"
"""What is in the properties of every message that has a priority."""


def check(settings: TopicSettings, text: str, request: SendMessage, *, types: bool = True) -> None:
    """Refuse a message that the topic does not take; `types` is whether its type matters."""
    find = partial(properties.find_text, text)
    if settings.attributes.get(CLEANUP_POLICY) == COMPACTION:
        _check_key(find(properties.KEYS))
    if types and (wanted := settings.attributes.get(MESSAGE_TYPE)):
        says_order = request.language == Language.PYTHON
        _refuse(mismatch(request.topic, wanted, type_of(find), says_order=says_order))


def check_batch(
    settings: TopicSettings, messages: Sequence[StoredMessage], *, types: bool = True
) -> None:
    """The same for each message of a batch, which go to one queue in any case."""
    wanted = settings.attributes.get(MESSAGE_TYPE) if types else None
    for message in messages:
        if settings.attributes.get(CLEANUP_POLICY) == COMPACTION:
            _check_key(message.find(properties.KEYS))
        if wanted:
            given = type_of(message.find)
            _refuse(mismatch(message.topic, wanted, given, says_order=False))


def _check_key(keys: str | None) -> None:
    if not (keys or "").strip():
        raise MessageIllegal.because("Required message key is missing")


def _refuse(why: str | None) -> None:
    if why is not None:
        raise MessageIllegal.because(why)


def prioritized(settings: TopicSettings, text: str, queue_id: int) -> tuple[str, int]:
    """The properties and the queue of a message that has a priority."""
    priority = properties.find_text(text, properties.PRIORITY) or ""
    if settings.attributes.get(MESSAGE_TYPE) == PRIORITY and priority.isdecimal():
        return text, min(int(priority), max(0, settings.write_queues - 1))
    found = properties.split(text)
    found.pop(properties.PRIORITY, None)
    return properties.join(found), queue_id
