"""Names that stand for choices on the wire; one that nobody here knows is carried through."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, TypeAlias

from gantrymq.protocol.declaring import Form, OpenStrEnum
from gantrymq.protocol.scalars import Unreadable, kind
from gantrymq.wire.codes import Language


class ConsumeType(OpenStrEnum):
    """How a consumer gets its messages. RocketMQ: ConsumeType."""

    PULL = "CONSUME_ACTIVELY"
    PUSH = "CONSUME_PASSIVELY"
    POP = "CONSUME_POP"


class MessageModel(OpenStrEnum):
    """Whether a group's members share the messages or each get all. RocketMQ: MessageModel."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(OpenStrEnum):
    """Where a group begins that has no offset yet. RocketMQ: ConsumeFromWhere."""

    LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    LAST_OFFSET_OR_MIN_AT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageRequestMode(OpenStrEnum):
    """Whether a group pulls from queues or pops from the broker. RocketMQ: MessageRequestMode."""

    PULL = "PULL"
    POP = "POP"


class TopicFilterType(OpenStrEnum):
    """Whether a topic's messages have one tag or several. RocketMQ: TopicFilterType."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class ConsumeResult(OpenStrEnum):
    """What a consumer's listener did with a message handed to it directly. RocketMQ: CMResult."""

    SUCCESS = "CR_SUCCESS"
    LATER = "CR_LATER"
    ROLLBACK = "CR_ROLLBACK"
    COMMIT = "CR_COMMIT"
    THREW = "CR_THROW_EXCEPTION"
    RETURNED_NULL = "CR_RETURN_NULL"


class RetryPolicyType(OpenStrEnum):
    """How the delays between retries grow. RocketMQ: GroupRetryPolicyType."""

    EXPONENTIAL = "EXPONENTIAL"
    CUSTOMIZED = "CUSTOMIZED"


class Boundary(StrEnum):
    """Which end of a run of equal timestamps is meant. RocketMQ: BoundaryType."""

    LOWER = "LOWER"
    UPPER = "UPPER"

    @classmethod
    def _missing_(cls, value: object) -> Boundary:
        return cls.UPPER if str(value).upper() == "UPPER" else cls.LOWER


_LANGUAGES: Final = {language.name: language for language in Language}


def _read_language(value: Any) -> Language | None:
    if isinstance(value, str):
        return _LANGUAGES.get(value.upper())
    if type(value) is int:
        return Language(value)
    raise Unreadable(f"has to be the name of a language, not {kind(value)}")


LanguageName: TypeAlias = Annotated[
    Language, Form(_read_language, lambda language: Language(language).name)
]
"""A language that JSON has by name; one that nobody knows reads as None."""
