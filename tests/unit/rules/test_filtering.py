from __future__ import annotations

import pytest

from gantrymq.errors import InvalidInput
from gantrymq.rules.filtering import parse_tags, tag_code


@pytest.mark.parametrize("expression", ["*", "", None])
def test_everything(expression: str | None) -> None:
    everything = parse_tags(expression)
    assert everything.expression == "*"
    assert everything.tags == everything.codes == frozenset()
    assert everything.matches(None)
    assert everything.matches("TagA")
    assert everything.matches_code(0)


@pytest.mark.parametrize(
    ("expression", "tags"),
    [
        ("TagA", {"TagA"}),
        ("TagA||TagB", {"TagA", "TagB"}),
        ("  TagA  ||\tTag B || TagA ||", {"TagA", "Tag B"}),
        ("TagA|TagB", {"TagA|TagB"}),
        ("TagA|||TagB", {"TagA", "|TagB"}),
        ("* || TagA", {"*", "TagA"}),  # only a lone asterisk means everything
        ("\u00a0TagA", {"\u00a0TagA"}),  # Java's trim leaves this blank where it is
    ],
)
def test_expressions(expression: str, tags: set[str]) -> None:
    parsed = parse_tags(expression)
    assert parsed.expression == expression
    assert parsed.tags == tags
    assert parsed.codes == {tag_code(tag) for tag in tags}


@pytest.mark.parametrize("expression", ["||", " ", " || ||"])
def test_an_expression_without_a_tag_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match=r"subString split error: .* names no tag"):
        parse_tags(expression)


def test_tag_codes() -> None:
    assert [tag_code(tag) for tag in ("TagA", "TagB", "*", "", None)] == [
        2598919,
        2598920,
        42,
        0,
        0,
    ]


def test_codes_let_through_what_the_text_then_stops() -> None:
    wanted = parse_tags("Aa")
    assert wanted.matches_code(tag_code("BB"))
    assert not wanted.matches("BB")
    assert wanted.matches("Aa")
    assert not wanted.matches_code(tag_code("AB"))


def test_a_message_without_a_tag_matches_no_tag() -> None:
    assert not parse_tags("TagA").matches(None)
    assert not parse_tags("TagA").matches_code(tag_code(None))


def test_an_unknown_code_is_let_through() -> None:
    assert parse_tags("TagA").matches_code(None)


def test_only_the_low_half_of_a_stored_code_counts() -> None:
    assert parse_tags("TagA").matches_code(2598919 + (7 << 32))
    assert parse_tags("order#20240101").matches_code(0xFFFF_FFFF & -2137161129)
