from __future__ import annotations

import pytest

from gantrymq.protocol.scalars import Unreadable
from gantrymq.protocol.text_forms import (
    read_attributes,
    read_bits,
    read_properties,
    write_attributes,
    write_bits,
)


def test_attributes() -> None:
    assert read_attributes("") == read_attributes(" , ") == {}
    assert read_attributes(" +a=1 ,-b") == {"+a": "1", "-b": ""}
    assert read_attributes("+a=x=y") == {"+a": "x=y"}
    assert write_attributes({"+a": "1", "-b": ""}) == "+a=1,-b"


@pytest.mark.parametrize(
    ("bits", "text"), [(0, ""), (1, "AQ=="), (0b1000001001, "CQI="), (1 << 64, "AAAAAAAAAAAB")]
)
def test_bits(bits: int, text: str) -> None:
    assert write_bits(bits) == text
    assert read_bits(text) == bits


@pytest.mark.parametrize("value", ["*", "AQ", 5, None, "ä"])
def test_bits_that_cannot_be_read(value: object) -> None:
    with pytest.raises(Unreadable, match="bit set in base64"):
        read_bits(value)


def test_properties_keep_what_follows_the_first_equals_sign() -> None:
    assert read_properties(b"a=b=c\\n\n!x\n") == {"a": "b=c\\n"}


def test_bits_are_never_negative() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        write_bits(-1)
