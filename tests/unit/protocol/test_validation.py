from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gantrymq.errors import InvalidInput, LocalProtocolError
from gantrymq.model import Message
from gantrymq.protocol import validation
from gantrymq.protocol.names import UNSENDABLE_TOPICS
from gantrymq.wire.properties import RESERVED_PROPERTIES

MESSAGE = Message(
    topic="TopicTest",
    body=b"hello",
    tag="TagA",
    keys=("order-1", "user/2"),
    properties={"color": "red", "größe": "XL"},
    delay_level=3,
)


def complaint(check: Callable[..., None], *arguments: Any, **options: Any) -> str:
    with pytest.raises(InvalidInput) as refused:
        check(*arguments, **options)
    return str(refused.value)


def with_(**changes: Any) -> Message:
    return replace(MESSAGE, **changes)


# Names


@pytest.mark.parametrize("name", ["T", "a-Z_0|9%", "%RETRY%g", "x" * 120])
def test_good_names(name: str) -> None:
    validation.check_topic(name)
    validation.check_group(name)


@pytest.mark.parametrize(
    ("topic", "text"),
    [
        ("", "The specified topic is blank: ''"),
        (" \t", r"The specified topic is blank: ' \t'"),
        (
            "my topic",
            "The specified topic[my topic] contains illegal characters: ' ' at position 3;"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "größe",
            "The specified topic[größe] contains illegal characters: 'ö' at position 3;"
            " allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("a.b", "contains illegal characters: '.' at position 2"),
        ("line\n", r"contains illegal characters: '\n' at position 5"),
        (
            "x" * 128,
            f"The specified topic[{'x' * 60}…] is longer than topic max length 127:"
            " it has 128 characters",
        ),
        (None, "The specified topic has to be text, not NoneType"),
        (b"T", "The specified topic has to be text, not bytes"),
    ],
)
def test_bad_topics(topic: Any, text: str) -> None:
    assert text in complaint(validation.check_topic, topic)


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("", "The specified group is blank"),
        ("a b", "The specified group[a b] contains illegal characters: ' ' at position 2"),
        ("x" * 121, "is longer than group max length 120: it has 121 characters"),
    ],
)
def test_bad_groups(group: str, text: str) -> None:
    assert text in complaint(validation.check_group, group)


def test_limits_are_inclusive() -> None:
    validation.check_topic("x" * 127)
    validation.check_group("x" * 120)


def test_a_refusal_is_an_error_of_ours_and_a_value_error() -> None:
    assert issubclass(InvalidInput, LocalProtocolError)
    assert issubclass(InvalidInput, ValueError)


def test_a_producer_needs_a_group_of_its_own() -> None:
    validation.check_producer_group("orders")
    assert "can not equal DEFAULT_PRODUCER" in complaint(
        validation.check_producer_group, "DEFAULT_PRODUCER"
    )


def test_a_broker_may_have_longer_topics_that_are_made_from_groups() -> None:
    for prefix in ("%RETRY%", "%DLQ%"):
        validation.check_topic_at_broker(prefix + "g" * (255 - len(prefix)))
        assert "topic max length 255: it has 256" in complaint(
            validation.check_topic_at_broker, prefix + "g" * (256 - len(prefix))
        )
    assert "max length 127" in complaint(validation.check_topic_at_broker, "x" * 128)


@pytest.mark.parametrize("topic", ["TBW102", "rmq_sys_mine"])
def test_system_topics_are_not_for_administrators_to_create(topic: str) -> None:
    text = complaint(validation.check_topic_to_create, topic)
    assert f"The topic[{topic}] is conflict with system topic" in text
    validation.check_topic_to_create("mine")


@pytest.mark.parametrize("topic", sorted(UNSENDABLE_TOPICS))
def test_topics_that_only_brokers_write(topic: str) -> None:
    text = complaint(validation.check_message, with_(topic=topic))
    assert text == f"Sending message to topic[{topic}] is forbidden: only brokers write to it"


# Messages


def test_a_good_message() -> None:
    validation.check_message(MESSAGE)
    validation.check_message(Message(topic="T", body=b"x"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"topic": "a b"}, "The specified topic[a b] contains illegal characters"),
        ({"body": None}, "the message body is null"),
        ({"body": b""}, "the message body length is zero"),
        ({"body": "text"}, "the message body has to be bytes, not str; text has to be encoded"),
        ({"body": 5}, "the message body has to be bytes, not int"),
        ({"tag": ""}, "can not be null or blank string: the tag is ''"),
        ({"tag": "A||B"}, "the tag, 'A||B', contains '||' at position 2"),
        ({"tag": "A\x01"}, r"the tag, 'A\x01', contains '\x01' at position 2"),
        ({"tag": 7}, "the tag has to be text, not int"),
        ({"keys": "one"}, "keys have to be a sequence of texts, not one text: write ('one',)"),
        ({"keys": ("a", "b c")}, "key 2 of 2, 'b c', contains the blank ' ' at position 2"),
        ({"keys": ("a\tb",)}, r"key 1 of 1, 'a\tb', contains the blank '\t' at position 2"),
        ({"keys": ("a", "")}, "can not be null or blank string: a key is ''"),
        ({"keys": ("a\x02",)}, r"a key, 'a\x02', contains '\x02' at position 2"),
        ({"flag": 1 << 31}, "the message flag 2147483648 does not fit into 32 bits"),
        ({"delay_level": -1}, "delay level -1 does not exist: levels go from 0, none, to 18"),
        ({"delay_level": 19}, "delay level 19 does not exist"),
    ],
)
def test_bad_messages(changes: dict[str, Any], text: str) -> None:
    assert text in complaint(validation.check_message, with_(**changes))


@pytest.mark.parametrize("body", [bytearray(b"x"), memoryview(b"xyz")[1:2]])
def test_a_body_may_be_any_kind_of_bytes(body: Any) -> None:
    validation.check_body(body)


def test_the_body_may_have_4_mib() -> None:
    validation.check_body(bytes(4 * 1024 * 1024))
    text = complaint(validation.check_body, bytes(4 * 1024 * 1024 + 1))
    assert text == (
        "the message body size over max value, MAX: 4194304 bytes, this one has 4194305"
    )


def test_limits_that_a_user_sets() -> None:
    assert "MAX: 4 bytes, this one has 5" in complaint(
        validation.check_message, MESSAGE, max_body=4
    )
    validation.check_message(with_(delay_level=30), highest_delay_level=30)


# Properties


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_reserved_properties(name: str) -> None:
    text = complaint(validation.check_user_properties, {name: "x"})
    assert text.startswith(f"The Property<{name}> is used by system, input another please")


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("KEYS", "keys"), ("TAGS", "tag"), ("WAIT", "wait_stored"), ("DELAY", "delay_level")],
)
def test_a_reserved_property_that_has_an_attribute_says_so(name: str, attribute: str) -> None:
    text = complaint(validation.check_user_properties, {name: "x"})
    assert text.endswith(f"it is what Message.{attribute} is for")
    assert hasattr(MESSAGE, attribute)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"": "x"}, "can not be null or blank string: the name of a property is ''"),
        ({" ": "x"}, "can not be null or blank string: the name of a property is ' '"),
        ({"a": ""}, "can not be null or blank string: the value of property 'a' is ''"),
        ({"a": "\t"}, r"can not be null or blank string: the value of property 'a' is '\t'"),
        ({"a": None}, "the value of property 'a' has to be text, not NoneType"),
        ({5: "x"}, "the name of a property has to be text, not int"),
        ({"a\x01": "x"}, r"the name of a property, 'a\x01', contains '\x01' at position 2"),
        ({"a": "xy\x02"}, r"the value of property 'a', 'xy\x02', contains '\x02' at position 3"),
        ({"a": "\ud800"}, r"contains '\ud800' at position 1; RocketMQ has no way to store that"),
        ({"INNER_MULTI_DISPATCH": "a,b/c"}, "can not contains / character: there is one at"),
    ],
)
def test_bad_properties(properties: dict[Any, Any], text: str) -> None:
    assert text in complaint(validation.check_message, with_(properties=properties))


def test_properties_may_have_32767_bytes_in_all() -> None:
    validation.check_properties_size({"a": "x" * (32767 - 3)})
    text = complaint(validation.check_properties_size, {"a": "x" * (32767 - 2), "b": "y"})
    assert text == (
        "the message properties take 32772 bytes, MAX: 32767; the largest, 'a', takes 32768"
    )


def test_the_size_of_a_messages_properties_is_that_of_all_that_is_stored() -> None:
    """WAIT true (10), TAGS t (7), KEYS k1 k2 (11), DELAY 3 (8), p ä (6) and filler."""
    message = Message(topic="T", body=b"x", tag="t", keys=("k1", "k2"), delay_level=3)
    fixed = 10 + 7 + 11 + 8 + 5
    message.properties = {"p": "ä", "fill": "x" * (32767 - fixed - 6)}
    validation.check_message(message)
    message.properties["fill"] += "x"
    assert "take 32768 bytes" in complaint(validation.check_message, message)


def test_the_quick_look_never_misses_properties_that_are_too_large() -> None:
    """The worst case for it: names and values as short, and characters as wide, as can be."""
    astral = [chr(0x10000 + number) for number in range(3300)]
    message = with_(properties=dict.fromkeys(astral, "😀"))
    assert 3300 * (4 + 4 + 2) > 32767
    assert "MAX: 32767" in complaint(validation.check_message, message)


# Batches


def test_a_good_batch() -> None:
    validation.check_batch([with_(delay_level=0), with_(delay_level=0, tag=None)])


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ({"topic": "Other"}, "should be the same: message 2 of 2 is for Other, the first for T"),
        ({"wait_stored": False}, "should the same: message 2 of 2 has False, the first True"),
        ({"delay_level": 2}, "TimeDelayLevel is not supported for batching: message 2 of 2 has 2"),
        ({"topic": "%RETRY%g"}, "Retry Group is not supported for batching: message 2 of 2 is for"),
        ({"body": b""}, "message 2 of 2: the message body length is zero"),
    ],
)
def test_bad_batches(second: dict[str, Any], text: str) -> None:
    first = Message(topic="T", body=b"x")
    assert text in complaint(validation.check_batch, [first, replace(first, **second)])


def test_a_batch_has_a_first_message() -> None:
    assert complaint(validation.check_batch, []) == "a batch needs at least one message"


def test_no_text_is_longer_than_a_line_or_two() -> None:
    long = "x" * 100_000
    for check, argument in (
        (validation.check_topic, long),
        (validation.check_keys, (long + " ",)),
        (validation.check_tag, long + "||"),
        (validation.check_user_properties, {"p": long + "\x01"}),
        (validation.check_user_properties, {long: "\x01x"}),
        (validation.check_user_properties, {"p": " " * 100_000}),
        (validation.check_group, " " * 100_000),
    ):
        assert len(complaint(check, argument)) < 300
    assert re.fullmatch(r".*…'.*", complaint(validation.check_tag, long + "||"))
