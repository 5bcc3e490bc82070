from __future__ import annotations

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.protocol.pop_handles import (
    PopHandle,
    RecallHandle,
    read_offsets,
    read_order_counts,
    read_start_offsets,
)


@pytest.mark.parametrize(
    "text",
    ["", "1 2 3 4 5 b 7", "1 2 3 4 x b 7 8", "1 2 3 4 5  7 8", "1 2 99999999999 4 5 b x 8"],
)
def test_handles_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="handle"):
        PopHandle.read(text)


def test_items_that_follow_are_passed_over() -> None:
    assert PopHandle.read("1 2 3 4 0 b 7 8 more").offset == 8


def test_a_broker_name_with_a_blank_makes_no_handle() -> None:
    handle = PopHandle(
        start_offset=0, pop_ms=0, invisible_ms=0, revive_queue_id=0, retry=0, broker="a b",
        queue_id=0, offset=0,
    )  # fmt: skip
    with pytest.raises(LocalProtocolError, match="broker name 'a b'"):
        str(handle)


@pytest.mark.parametrize("text", [None, "", ";"])
def test_no_info_is_nothing(text: str | None) -> None:
    assert read_start_offsets(text) == read_offsets(text) == {}
    assert read_order_counts(text).of((0, 1), 2) is None


@pytest.mark.parametrize("text", ["0 1", "0 1 x", "3 1 2", "0 x 2", "0 1 2 3", "0 1 2,", "0 qo1 2"])
def test_infos_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="offsets"):
        read_start_offsets(text)
    if "," in text or "qo" not in text:
        with pytest.raises(RemoteProtocolError, match="offsets"):
            read_offsets(text)
    with pytest.raises(RemoteProtocolError, match="order counts"):
        read_order_counts(text)


def test_one_queue_may_come_twice() -> None:
    assert read_offsets("0 1 5;0 1 6,7") == {(0, 1): [5, 6, 7]}


@pytest.mark.parametrize("text", ["", "djE", "djI=", "ä", "djEgYSBiIGMgZA==", "djIgYSBiIDEgZA=="])
def test_recall_handles_that_cannot_be_read(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="recall handle"):
        RecallHandle.read(text)


def test_recall_handles_hold_no_blanks() -> None:
    with pytest.raises(LocalProtocolError, match="recall handle"):
        str(RecallHandle(topic="a b", broker="b", deliver_ms=1, message_id="0A"))
