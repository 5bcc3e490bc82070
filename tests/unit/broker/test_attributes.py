"""Changes to the attributes of topics."""

import pytest

from gantrymq.broker.attributes import TOPIC_ATTRIBUTES, changed_attributes
from tests.unit.broker.rig import refusal


def test_attributes_are_set_and_dropped():
    made = changed_attributes(
        TOPIC_ATTRIBUTES, None, {"+message.type": "FIFO", "+queue.type": "SimpleCQ"}
    )
    assert made == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    after = changed_attributes(
        TOPIC_ATTRIBUTES, made, {"+message.type": "DELAY", "+reserve.time": "5000"}
    )
    assert after == {"message.type": "DELAY", "queue.type": "SimpleCQ", "reserve.time": "5000"}
    assert changed_attributes(TOPIC_ATTRIBUTES, after, {"-reserve.time": ""}) == {
        "message.type": "DELAY",
        "queue.type": "SimpleCQ",
    }
    assert made == {"message.type": "FIFO", "queue.type": "SimpleCQ"}


@pytest.mark.parametrize(
    ("current", "changes", "remark"),
    [
        (None, {"message.type": "FIFO"}, "format is wrong: message.type"),
        (None, {"+": "FIFO"}, r"format is wrong: \+"),
        (None, {"-message.type": ""}, "only add attribute is supported while creating topic"),
        ({}, {"+x": "1", "-x": ""}, "duplication key. key: x|unsupported key: x"),
        ({}, {"+message.type": "FIFO", "-message.type": ""}, "duplication key. key: message.type"),
        ({}, {"+colour": "red"}, "unsupported key: colour"),
        ({}, {"+queue.type": "BatchCQ"}, "unchangeable attribute. key: queue.type"),
        ({}, {"-reserve.time": ""}, "nonexistent key: reserve.time"),
        ({}, {"+message.type": "LOUD"}, "message.type=LOUD, it takes one of"),
        ({}, {"+reserve.time": "soon"}, "reserve.time=soon, it takes a whole number"),
        ({}, {"+lite.topic.expiration": "43201"}, "it takes -1 to 43200"),
    ],
)
def test_what_is_refused(current, changes, remark):
    code, said = refusal(lambda: changed_attributes(TOPIC_ATTRIBUTES, current, changes))
    assert code == 1
    assert any(part in said for part in remark.replace("\\", "").split("|"))
