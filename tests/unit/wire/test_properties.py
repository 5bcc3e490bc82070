"""Properties: what Java's reader drops, looking one up, and what cannot be written."""

from __future__ import annotations

import pytest

from gantrymq.errors import LocalProtocolError
from gantrymq.wire import properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02\x02c\x01d\x02", {"a": "b", "c": "d"}),
        ("a\x01\x02c\x01d\x02", {"c": "d"}),
        ("\x01b\x02c\x01d", {"c": "d"}),
        ("nothing\x02c\x01d", {"c": "d"}),
        ("a\x01b\x01c\x02", {"a": "b\x01c"}),
        ("a\x01\x01\x02", {"a": "\x01"}),
        ("a\x01old\x02a\x01new\x02", {"a": "new"}),
        ("a\x01old\x02a\x01\x02", {"a": "old"}),
        ("\x02\x02\x02", {}),
        ("\x01\x02\x01", {}),
    ],
)
def test_reading_drops_what_java_drops(text: str, expected: dict[str, str]) -> None:
    assert properties.split(text) == expected
    assert properties.decode(text.encode()) == expected
    for name in ("a", "c", "b", "nothing", ""):
        assert properties.find_text(text, name) == expected.get(name)
        assert properties.find(text.encode(), name) == expected.get(name)


def test_a_name_is_not_found_within_another() -> None:
    raw = properties.encode({"MYKEYS": "1", "KEYS2": "2", "X": "KEYS"})
    assert properties.find(raw, "KEYS") is None
    assert properties.find(raw + b"KEYS\x013", "KEYS") == "3"


def test_bytes_that_are_not_utf8_do_not_stop_the_reader() -> None:
    raw = b"a\x01\xff\x02TAGS\x01T\xc3\xa4g\x02"
    assert properties.decode(raw) == {"a": "\N{REPLACEMENT CHARACTER}", "TAGS": "Täg"}
    assert properties.find(raw, "a") == "\N{REPLACEMENT CHARACTER}"


def test_writing_leaves_out_nothing_but_none() -> None:
    assert properties.join({"a": "1", "b": None, "c": ""}) == "a\x011\x02c\x01\x02"
    assert properties.encode({}) == b""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"ok": "1", "a\x01b": "1"}, r"name of property 'a\\x01b' holds '\\x01' at character 1"),
        ({"a": "b\x02"}, r"value of property 'a' holds '\\x02' at character 1"),
        ({"a": None, "b": "\x01"}, r"value of property 'b' holds '\\x01' at character 0"),
        ({"a": "\ud800"}, "half of a surrogate pair"),
    ],
)
def test_what_cannot_be_written_is_refused(wrong: dict[str, str | None], said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        properties.encode(wrong)


def test_reserved_names_are_those_that_java_refuses() -> None:
    reserved = properties.RESERVED_PROPERTIES
    assert len(reserved) == 54
    assert {"KEYS", "UNIQ_KEY", "1ST_POP_TIME", "__CRC32#", "_SYS_MSG_PRIORITY_"} <= reserved
    assert not {"__SHARDINGKEY", "TRANS_OFFSET", "INNER_NUM", "__transactionId__"} & reserved
