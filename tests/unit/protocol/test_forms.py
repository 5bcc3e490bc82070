"""A form that is filled in is what the encoder writes, to the byte."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import LocalProtocolError
from gantrymq.protocol.forms import SendForm
from gantrymq.protocol.sending import SendMessage
from gantrymq.wire.connection import Connection

WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


def request(topic: str = "orders", group: str = "shop", **more: object) -> SendMessage:
    made: dict[str, object] = {
        "group": group,
        "topic": topic,
        "queue_id": 3,
        "broker": "broker-a",
        "born_ms": 0,
        "body": b"",
    }
    return SendMessage(**(made | more))  # type: ignore[arg-type]


@given(WORDS, WORDS, WORDS, st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.binary(max_size=9))
def test_it_is_what_the_encoder_writes(
    topic: str, group: str, properties: str, made_ms: int, number: int, body: bytes
) -> None:
    form = SendForm.of(request(topic, group))
    assert form is not None
    filled = form.fill(made_ms, properties)
    assert filled is not None
    written = request(topic, group, born_ms=made_ms, properties=properties, body=body).command()
    written.opaque = number
    connection = Connection()
    found = b"".join(connection.frame(filled.header(number), body))
    assert found == b"".join(connection.encode(written))


def test_names_that_hold_the_marks_have_no_form() -> None:
    assert SendForm.of(request("orders-1234567890987654321")) is None
    assert SendForm.of(request(group="shop-1234567890987654321")) is None
    assert SendForm.of(request(broker="broker-1987654321")) is None


def test_what_json_cannot_hold_is_not_filled_in() -> None:
    form = SendForm.of(request())
    assert form is not None
    assert form.fill(1, "half a pair: \ud800") is None
    assert str(form.fill(1, "")) == "SendMessage orders[3]"


def test_a_frame_that_is_too_long_is_refused() -> None:
    header = orjson.dumps({"code": 310})
    with pytest.raises(LocalProtocolError, match="makes a frame of"):
        Connection(limit=100).frame(header, bytes(100))
