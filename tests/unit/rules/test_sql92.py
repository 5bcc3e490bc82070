"""SQL92 filters: what they say of messages, and what is wrong with those that are none."""

from __future__ import annotations

import pytest

from gantrymq.errors import InvalidInput
from gantrymq.rules.conditions import DEEPEST
from gantrymq.rules.sql92 import LONGEST, parse_sql
from gantrymq.wire import properties

ORDER = {"amount": "17", "price": "9.50", "region": "north", "vip": "true", "big": "3000000000"}


def verdict(expression: str, **named: str) -> bool:
    return parse_sql(expression).matches(named or ORDER)


@pytest.mark.parametrize(
    "expression",
    [
        "amount = 17",
        "amount <> 18",
        "amount > 16 AND amount >= 17 AND amount < 18 AND amount <= 17",
        "17 = amount",
        "16 < amount",
        "amount = +17",
        "-amount IS NULL",
        "- -17 = amount",
        "price = 9.5",
        "price > 9.4 AND price < 951e-2",
        "price BETWEEN 9.0 AND 10.0",
        "amount BETWEEN 17 AND 17",
        "amount NOT BETWEEN 20 AND 10",
        "price < amount",
        "amount BETWEEN price AND big",
        "region = 'north'",
        "'north' = region",
        "region IN ('south', 'north')",
        "region NOT IN ('south', 'east')",
        "region IS NOT NULL AND nothing IS NULL",
        "region CONTAINS 'ort' AND region STARTSWITH 'no' AND region ENDSWITH 'th'",
        "region NOT CONTAINS 'x' AND region NOT STARTSWITH 'x' AND region NOT ENDSWITH 'x'",
        "vip = TRUE",
        "region = false",
        "(amount = 17) = TRUE",
        "amount = 17 = TRUE",
        "nothing = 1 OR amount = 17",
        "NOT (amount = 18)",
        "NOT (nothing CONTAINS 'x')",
        "nothing = naught",
        "big = 3000000000",
        "big > 2147483648L",
        "TRUE",
        "1 = 1.0",
        "'5' = 5",
        "amount = 17 -- a remark\n",
        "/* a remark **/ amount = 17",
        "Amount IS NULL",
        "aMoUnT iS nUlL oR FALSE",
        "amount = --17",
    ],
)
def test_what_matches(expression: str) -> None:
    assert verdict(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "amount = 18",
        "nothing = 1",
        "nothing <> 1",
        "NOT (nothing = 1)",
        "nothing IN ('a')",
        "nothing NOT IN ('a')",
        "nothing CONTAINS 'x'",
        "nothing NOT CONTAINS 'x'",
        "region CONTAINS ''",
        "region NOT CONTAINS ''",
        "region > 5",
        "NOT (region > 5)",
        "region > 5 OR region = 'north'",
        "price = 9",
        "big > 5",  # 5 asks for 32 bits
        "amount BETWEEN 18 AND 20",
        "amount > -region",
        "TRUE = vip",
        "TRUE <> vip",
        "vip",
        "NOT amount = 17",
        "NULL",
        "NOT NULL",
        "nothing = 1 AND amount = 17",
        "amount = nothing",
        "amount < region",
        "(amount = 17) = 1",
    ],
)
def test_what_does_not(expression: str) -> None:
    assert not verdict(expression)


def test_what_comes_first_decides_whether_a_misfit_is_found() -> None:
    assert verdict("region = 'north' OR region > 5")
    assert not verdict("NOT (region = 'south' AND region > 5)", region="south")
    assert verdict("NOT (region = 'south' AND region > 5)")


def test_a_property_that_is_missing_on_one_side() -> None:
    assert not verdict("a = b", a="1")
    assert verdict("a <> b", a="1")
    assert not verdict("a <> b", b="1")


@pytest.mark.parametrize(
    ("text", "number", "fits"),
    [
        ("+5", "5", True), ("-5", "-5", True), ("005", "5", True), ("٥", "5", True),
        (" 5", "5", False), ("1_0", "10", False), ("5.0", "5", False), ("", "5", False),
        ("2147483647", "2147483647", True), ("2147483648", "2147483648", True),
        ("-2147483648", "-2147483648", True), ("9223372036854775807", "9223372036854775807", True),
        ("9" * 5000, "5", False),
        (" 5.5\t", "5.5", True), ("0x1.6p2", "5.5", True), ("5.5d", "5.5", True),
        ("5,5", "5.5", False), ("5.5e0f", "5.5", True), ("inf", "5.5", False),
        ("55e-1", "5.5", True),
    ],
)  # fmt: skip
def test_texts_that_are_numbers(text: str, number: str, fits: bool) -> None:
    assert verdict(f"a = {number}", a=text, b="1") == fits


@pytest.mark.parametrize(
    ("expression", "a", "b", "expected"),
    [
        ("a > 5.5", "NaN", "1", True),
        ("a < 5.5", "NaN", "1", False),
        ("a > b", "NaN", "Infinity", True),
        ("a >= b", "NaN", "NaN", True),
        ("a < b", "-0.0", "0.0", True),
        ("a < b", "-Infinity", "-1e308", True),
        ("a > b", "0x1p5000", "1e308", True),
        ("a < b", "-0x1p5000", "-1e308", True),
        ("a >= b", "2", "0x", False),
    ],
)
def test_doubles_have_java_s_order(expression: str, a: str, b: str, expected: bool) -> None:
    assert verdict(expression, a=a, b=b) == expected


def test_properties_are_found_in_what_is_stored() -> None:
    found = parse_sql("a = 'x'")
    assert found.accepts(b"a\x01x\x02")
    assert found.accepts(b"a\x01x")  # 4.9 leaves the last one out
    assert found.accepts(b"b\x01a\x01x\x02a\x01x\x02")
    assert not found.accepts(b"b\x01a\x01x\x02")
    assert not found.accepts(b"aa\x01x\x02")
    assert found.accepts(b"a\x01y\x02a\x01x\x02")  # the last one counts
    assert found.accepts(b"a\x01x\x02a\x01\x02")  # but not if it is empty
    assert not found.accepts(b"a\x01\x02")
    assert not found.accepts(b"\xff\xfe\x01\x02\x02")
    assert parse_sql("a = 'ü'").accepts(properties.encode({"a": "ü"}))


@pytest.mark.parametrize(
    ("expression", "character", "what"),
    [
        ("", None, "the expression is empty"),
        (" \t", None, "the expression is empty"),
        ("a > ", 5, "there is the end, expected (, +, -, FALSE, NOT, NULL, TRUE"),
        ("a = 1 b = 2", 7, "there is 'b = 2', expected <, <=, <>, =, >, >=, AND"),
        ("name LIKE 'x%'", 6, "there is \"LIKE 'x%'\""),
        ("a = or", 5, "there is 'or'"),
        ("a = 'x", 5, "the text that begins here has no end"),
        ("a ; b", 3, "there is '; b'"),
        ("(a = 1", 7, "there is the end, expected"),
        ("a = 007", 6, "there is '07'"),
        ("a IN (1)", 7, "there is '1)', expected a 'text'"),
        ("a IS 1", 6, "there is '1', expected NOT, NULL"),
        ("a > 'x'", 5, "'x' is a text; only numbers and properties have an order"),
        ("a > TRUE", 5, "TRUE is TRUE or FALSE; only numbers"),
        ("NOT a > 1", 5, "what begins with a is TRUE or FALSE; only"),
        ("a BETWEEN 10 AND 5", 11, "nothing lies between 10 and 5"),
        ("a BETWEEN NULL AND 5", 11, "nothing lies between NULL"),
        ("a BETWEEN 'x' AND 'y'", 11, "'x' is a text"),
        ("a = NULL", 5, "nothing is equal to NULL; write IS NULL"),
        ("TRUE = 1", 8, "TRUE cannot be compared with a whole number"),
        ("1", 1, "1 is a whole number, neither TRUE nor FALSE"),
        ("a = 1 AND 'x'", 11, "'x' is a text, neither"),
        ("'x' IN ('x')", 1, "before IN stands a property; 'x' is a text"),
        ("a = 0.0", 5, "0.0 is not between"),
        ("a = 1e400", 5, "1e400 is not between"),
        ("a = 9223372036854775808", 5, "is larger than 9223372036854775807"),
        ("a = -9223372036854775808", 6, "is larger than"),
        ("a = " + "9" * 5000, 5, "is larger than"),
    ],
)
def test_mistakes_are_told_with_their_place(
    expression: str, character: int | None, what: str
) -> None:
    for _ in range(2):  # the second time from memory
        with pytest.raises(InvalidInput) as caught:
            parse_sql(expression)
        assert what in str(caught.value)
        if character is not None:
            assert f"at character {character}: " in str(caught.value)


def test_letters_that_only_look_like_others_in_capitals() -> None:
    with pytest.raises(InvalidInput, match="at character 3"):
        parse_sql("a \u0131s NULL")
    with pytest.raises(InvalidInput, match="at character 1"):
        parse_sql("\u017fize = 1")


def test_there_is_an_end_to_length_and_depth() -> None:
    with pytest.raises(InvalidInput, match=f"more than {LONGEST}"):
        parse_sql("a = 1".ljust(LONGEST + 1))
    with pytest.raises(InvalidInput, match=f"more than {DEEPEST} deep"):
        parse_sql("NOT " * (DEEPEST + 1) + "TRUE")
    many = " OR ".join(f"a = {n}" for n in range(2000))
    assert verdict(many, a="1999")
    assert not verdict(many, a="2000")
    assert verdict("(" * 2000 + "a = 1" + ")" * 2000, a="1")


def test_nobody_parses_an_expression_twice() -> None:
    assert parse_sql("once = 1") is parse_sql("once = 1")
