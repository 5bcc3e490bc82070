from __future__ import annotations

import pytest

from gantrymq.wire.javahash import INT_MAX, INT_MIN, int32, java_hash, java_remainder


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("*", 42),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("TAG-0", 79581853),
        ("hello", 99162322),
        ("a" * 20, 1542361408),
        ("TopicTest#KEY1", -1656969516),
        ("order#20240101", -2137161129),
        # printed by a JDK 17
        ("é", 233),
        ("日本語", 25921943),
        ("😀", 1772899),
        ("x" * 200, 359357440),
    ],
)
def test_hash_code_is_javas(text: str, code: int) -> None:
    assert java_hash(text) == code


def test_surrogates_that_stand_alone_count_as_their_unit() -> None:
    assert java_hash("\ud83d") == 0xD83D


@pytest.mark.parametrize(
    ("value", "held"),
    [(0, 0), (INT_MAX, INT_MAX), (INT_MAX + 1, INT_MIN), (-1, -1), (2**32 + 5, 5)],
)
def test_int32_wraps(value: int, held: int) -> None:
    assert int32(value) == held


@pytest.mark.parametrize(
    ("dividend", "divisor", "remainder"), [(7, 3, 1), (-7, 3, -1), (7, -3, 1), (-6, 3, 0)]
)
def test_remainder_has_the_sign_of_the_dividend(
    dividend: int, divisor: int, remainder: int
) -> None:
    assert java_remainder(dividend, divisor) == remainder
