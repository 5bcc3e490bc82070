"""The rules that names, messages and batches have to keep, checked before anything is sent.

A broker would refuse most of what is refused here, but with less to say. Some of it nobody would
refuse: it would be stored, and then be found by no one. Each text keeps RocketMQ's wording up to
the point where that ends, and goes on with which character, which property or how many bytes it
was. Positions count from 1.

Limits are in characters for names, which have to be ASCII anyway, and in bytes of UTF-8 for
properties. A topic may have 127 characters so that its length fits one signed byte of the stored
message; a group 120, so that the names of its retry topic and dead-letter topic still do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from gantrymq.errors import InvalidInput
from gantrymq.model import Message
from gantrymq.protocol.names import (
    DEFAULT_CONSUMER_GROUP,
    DEFAULT_PRODUCER_GROUP,
    PREDEFINED_GROUPS,
    UNSENDABLE_TOPICS,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
)
from gantrymq.wire import properties as names

TOPIC_MAX_LENGTH: Final = 127
DERIVED_TOPIC_MAX_LENGTH: Final = 255
GROUP_MAX_LENGTH: Final = 120
MAX_BODY: Final = 4 * 1024 * 1024
HIGHEST_DELAY_LEVEL: Final = 18

_ALLOWED: Final = "^[%|a-zA-Z0-9_-]+$"
_FORBIDDEN: Final = re.compile(r"[^%|a-zA-Z0-9_-]")
_UNSTORABLE: Final = re.compile("[\x01\x02\ud800-\udfff]")
_BLANK: Final = re.compile(r"\s")
_TRIMMED: Final = "".join(map(chr, range(0x21)))  # what Java's String.trim takes off
_SHOWN: Final = 60
_ATTRIBUTES: Final = {
    names.KEYS: "keys",
    names.TAGS: "tag",
    names.WAIT: "wait_stored",
    names.DELAY: "delay_level",
    names.TIMER_DELAY_SECONDS: "delay",
    names.TIMER_DELAY_MS: "delay",
    names.TIMER_DELIVER_MS: "deliver_at",
}


def check_topic(topic: str) -> None:
    """A topic that a client may name.

    RocketMQ: Validators.checkTopic.
    """
    _check_name("topic", topic, TOPIC_MAX_LENGTH)


def check_topic_at_broker(topic: str) -> None:
    """A topic that a broker may have; those made from a group's name may be longer.

    RocketMQ: TopicValidator.validateTopic.
    """
    derived = is_retry_topic(topic) or is_dead_letter_topic(topic)
    _check_name("topic", topic, DERIVED_TOPIC_MAX_LENGTH if derived else TOPIC_MAX_LENGTH)


def check_topic_to_create(topic: str) -> None:
    """A topic that an administrator may create."""
    check_topic_at_broker(topic)
    if is_system_topic(topic):
        raise InvalidInput(
            f"The topic[{topic}] is conflict with system topic: RocketMQ keeps this name for itself"
        )


def check_topic_to_send(topic: str) -> None:
    """A topic that a client may send to.

    RocketMQ: Validators.isNotAllowedSendTopic.
    """
    if topic in UNSENDABLE_TOPICS:
        raise InvalidInput(
            f"Sending message to topic[{topic}] is forbidden: only brokers write to it"
        )
    check_topic(topic)


def check_group(group: str) -> None:
    """A group of producers or consumers.

    RocketMQ: Validators.checkGroup.
    """
    _check_name("group", group, GROUP_MAX_LENGTH)


def check_producer_group(group: str) -> None:
    """A group that a producer may start with."""
    check_group(group)
    if group == DEFAULT_PRODUCER_GROUP:
        raise InvalidInput(
            f"producerGroup can not equal {DEFAULT_PRODUCER_GROUP}, please specify another one:"
            f" producers of one group answer for each other's transactions"
        )


def check_consumer_group(group: str) -> None:
    """A group that a consumer may start with."""
    check_group(group)
    if group == DEFAULT_CONSUMER_GROUP:
        raise InvalidInput(
            f"consumerGroup can not equal {DEFAULT_CONSUMER_GROUP}, please specify another one:"
            f" consumers of one group share its messages"
        )
    if group in PREDEFINED_GROUPS or is_system_group(group):
        raise InvalidInput(
            f"consumerGroup can not equal {group}, please specify another one: RocketMQ has uses of"
            f" its own for it"
        )


@lru_cache(maxsize=4096)  # a sender names the same few topics again and again
def _check_name(kind: str, name: str, longest: int) -> None:
    if not isinstance(name, str):
        raise InvalidInput(f"The specified {kind} has to be text, not {type(name).__name__}")
    if not name.strip():
        raise InvalidInput(f"The specified {kind} is blank: {_shown(name)!r}")
    if len(name) > longest:
        raise InvalidInput(
            f"The specified {kind}[{_shown(name)}] is longer than {kind} max length {longest}:"
            f" it has {len(name)} characters"
        )
    found = _FORBIDDEN.search(name)
    if found:
        raise InvalidInput(
            f"The specified {kind}[{_shown(name)}] contains illegal characters:"
            f" {found[0]!r} at position {found.start() + 1}; allowing only {_ALLOWED}"
        )


def check_message(
    message: Message, *, max_body: int = MAX_BODY, highest_delay_level: int = HIGHEST_DELAY_LEVEL
) -> None:
    """A message as a user hands it in.

    RocketMQ: Validators.checkMessage.
    """
    check_topic_to_send(message.topic)
    check_body(message.body, max_body=max_body)
    check_tag(message.tag)
    check_keys(message.keys)
    check_user_properties(message.properties)
    check_flag(message.flag)
    check_delay_level(message.delay_level, highest=highest_delay_level)
    check_light_queues(message.light_queues)
    if message.priority is not None and message.priority < 0:
        raise InvalidInput(f"a priority is a number from 0 up, not {message.priority}")
    if _may_be_too_large(message):
        check_properties_size(_as_stored(message))


def check_light_queues(queues: Sequence[str]) -> None:
    """Names of light queues, which become directories and parts of a list."""
    for name in queues:
        if not name or set(name) & {",", "/", "\\", "\0"}:
            raise InvalidInput(
                f"{name!r} cannot be the name of a light queue: it is not empty, and has no comma,"
                f" slash or backslash"
            )


def check_body(body: bytes | bytearray | memoryview, *, max_body: int = MAX_BODY) -> None:
    """A body: bytes, at least one and not too many."""
    if body is None:
        raise InvalidInput("the message body is null")
    if not isinstance(body, bytes | bytearray | memoryview):
        hint = "; text has to be encoded first" if isinstance(body, str) else ""
        raise InvalidInput(f"the message body has to be bytes, not {type(body).__name__}{hint}")
    size = len(body) if isinstance(body, bytes) else memoryview(body).nbytes
    if size == 0:
        raise InvalidInput("the message body length is zero; RocketMQ takes no empty messages")
    if size > max_body:
        raise InvalidInput(
            f"the message body size over max value, MAX: {max_body} bytes, this one has {size}"
        )


def check_tag(tag: str | None) -> None:
    """A tag, or none. A message has a single one: `||` is for those who subscribe."""
    if tag is None:
        return
    _check_text("the tag", tag)
    if "||" in tag:
        raise InvalidInput(
            f"the tag, {_shown(tag)!r}, contains '||' at position {tag.index('||') + 1};"
            f" that separates tags in a subscription, and a message has one tag"
        )


def check_keys(keys: Sequence[str]) -> None:
    """The keys that a message can be found by. They are stored with a blank between them."""
    if isinstance(keys, str):
        raise InvalidInput(f"keys have to be a sequence of texts, not one text: write ({keys!r},)")
    for number, key in enumerate(keys, 1):
        _check_text("a key", key)
        blank = _BLANK.search(key)
        if blank:
            raise InvalidInput(
                f"key {number} of {len(keys)}, {_shown(key)!r}, contains the blank {blank[0]!r}"
                f" at position {blank.start() + 1}; it would be stored as several keys"
            )


def check_user_properties(properties: Mapping[str, str]) -> None:
    """Properties of the user's own: no name of RocketMQ's, nothing blank, no separator.

    RocketMQ: Message.putUserProperty.
    """
    for name, value in properties.items():
        if name in names.RESERVED_PROPERTIES:
            attribute = _ATTRIBUTES.get(name)
            hint = f"; it is what Message.{attribute} is for" if attribute else ""
            raise InvalidInput(
                f"The Property<{name}> is used by system, input another please{hint}"
            )
        _check_text("the name of a property", name)
        _check_text(f"the value of property {_shown(name)!r}", value)
        if name == names.MULTI_DISPATCH and "/" in value:
            raise InvalidInput(
                f"{name} {_shown(value)} can not contains / character:"
                f" there is one at position {value.index('/') + 1}"
            )


def _check_text(what: str, text: str) -> None:
    if not isinstance(text, str):
        raise InvalidInput(f"{what} has to be text, not {type(text).__name__}")
    if not text.strip(_TRIMMED):
        raise InvalidInput(
            f"The name or value of property can not be null or blank string:"
            f" {what} is {_shown(text)!r}"
        )
    found = _UNSTORABLE.search(text)
    if found:
        raise InvalidInput(
            f"{what}, {_shown(text)!r}, contains {found[0]!r} at position {found.start() + 1};"
            f" RocketMQ has no way to store that in a property"
        )


def check_properties_size(properties: Mapping[str, str]) -> None:
    """All properties of a message together, as they are stored."""
    sizes = {name: _stored_size(name, value) for name, value in properties.items()}
    size = sum(sizes.values())
    if size > names.MAX_SIZE:
        largest = max(sizes, key=sizes.__getitem__)
        raise InvalidInput(
            f"the message properties take {size} bytes, MAX: {names.MAX_SIZE};"
            f" the largest, {_shown(largest)!r}, takes {sizes[largest]}"
        )


def check_flag(flag: int) -> None:
    """A user's flag, which is stored in 32 bits."""
    if not -(2**31) <= flag < 2**31:
        raise InvalidInput(f"the message flag {flag} does not fit into 32 bits")


def check_delay_level(level: int, *, highest: int = HIGHEST_DELAY_LEVEL) -> None:
    """A delay level: 0 for none, else one that the broker has."""
    if not 0 <= level <= highest:
        raise InvalidInput(
            f"delay level {level} does not exist: levels go from 0, none, to {highest}"
        )


def check_batch(messages: Sequence[Message], *, max_body: int = MAX_BODY) -> None:
    """Messages that may travel in one frame.

    RocketMQ: MessageBatch.generateFromList.
    """
    if not messages:
        raise InvalidInput("a batch needs at least one message")
    first = messages[0]
    for number, message in enumerate(messages, 1):
        where = f"message {number} of {len(messages)}"
        try:
            check_message(message, max_body=max_body)
        except InvalidInput as refused:
            raise InvalidInput(f"{where}: {refused}") from refused
        if message.delay_level or message.delay is not None or message.deliver_at is not None:
            wish = message.delay_level or message.delay or message.deliver_at
            raise InvalidInput(f"TimeDelayLevel is not supported for batching: {where} has {wish}")
        if message.priority is not None:
            raise InvalidInput(
                f"a batch goes to one queue, and priorities are queues: {where} has priority"
                f" {message.priority}"
            )
        if message.light_queues:
            raise InvalidInput(
                f"the messages of a batch are in no light queues: {where} names"
                f" {', '.join(message.light_queues)}"
            )
        if is_retry_topic(message.topic):
            raise InvalidInput(
                f"Retry Group is not supported for batching: {where} is for {message.topic}"
            )
        if message.topic != first.topic:
            raise InvalidInput(
                f"The topic of the messages in one batch should be the same:"
                f" {where} is for {message.topic}, the first for {first.topic}"
            )
        if message.wait_stored != first.wait_stored:
            raise InvalidInput(
                f"The waitStoreMsgOK of the messages in one batch should the same:"
                f" {where} has {message.wait_stored}, the first {first.wait_stored}"
            )


def _may_be_too_large(message: Message) -> bool:
    """A quick look that spares nearly all messages the exact count.

    A character takes 4 bytes at most, and a property 2 more, so 6000 characters always fit.
    """
    properties = message.properties
    texts = (message.tag or "", *message.keys, *properties, *properties.values())
    return sum(map(len, texts)) > 6000


def _as_stored(message: Message) -> dict[str, str]:
    stored = dict(message.properties) | {names.WAIT: str(message.wait_stored).lower()}
    if message.tag is not None:
        stored[names.TAGS] = message.tag
    if message.keys:
        stored[names.KEYS] = " ".join(message.keys)
    if message.delay_level:
        stored[names.DELAY] = str(message.delay_level)
    return stored


def _stored_size(name: str, value: str) -> int:
    return len(name.encode()) + len(value.encode()) + 2


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
