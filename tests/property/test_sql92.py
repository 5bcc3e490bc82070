"""SQL92 filters against a small evaluator that works on texts and knows nothing of speed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import InvalidInput
from gantrymq.rules.sql92 import parse_sql
from gantrymq.wire import properties

Verdict = bool | None


class Misfit(Exception):
    pass


@dataclass
class Case:
    """A condition, written out, and what it says of properties."""

    text: str
    says: Callable[[dict[str, str]], Verdict]


names = st.sampled_from(["a", "b", "c", "$d_1"])
texts = st.sampled_from(
    ["x", "xy", "it's", "5", "-7", "1.5", "true", "ü", "2147483648", "NaN", " 5"]
)
messages = st.dictionaries(names, texts)
numbers = st.sampled_from(["5", "0", "-7", "2147483648", "-2147483648", "1.5", "7e-1"])
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda x, y: x > y, ">=": lambda x, y: x >= y, "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y, "=": lambda x, y: x == y, "<>": lambda x, y: x != y,
}  # fmt: skip


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def number_of(text: str, like: str) -> float:
    """`text` as the type of the literal `like`."""
    if "." in like or "e" in like:
        if text == "NaN":
            return float("inf")
        if not re.fullmatch(r"\s*-?[0-9]+(\.[0-9]*)?\s*", text):
            raise Misfit
        return float(text)
    if not re.fullmatch(r"-?[0-9]+", text):
        raise Misfit
    bits = 31 if abs(int(like)) < 2**31 else 63
    if not -(2**bits) <= int(text) < 2**bits:
        raise Misfit
    return int(text)


@st.composite
def comparisons(draw: st.DrawFn) -> Case:
    name, sign, number = draw(names), draw(st.sampled_from(sorted(SIGNS))), draw(numbers)

    def says(message: dict[str, str]) -> Verdict:
        if name not in message:
            return None
        literal = float(number) if "." in number or "e" in number else int(number)
        return SIGNS[sign](number_of(message[name], number), literal)

    return Case(f"{name} {sign} {number}", says)


@st.composite
def equalities(draw: st.DrawFn) -> Case:
    name, text, wanted = draw(names), draw(texts), draw(st.booleans())
    sign = "=" if wanted else "<>"
    return Case(
        f"{name} {sign} {quote(text)}",
        lambda message: (message[name] == text) is wanted if name in message else None,
    )


@st.composite
def lists(draw: st.DrawFn) -> Case:
    name, among, wanted = draw(names), draw(st.lists(texts, min_size=1)), draw(st.booleans())
    word = "IN" if wanted else "NOT IN"
    return Case(
        f"{name} {word} ({', '.join(map(quote, among))})",
        lambda message: (message[name] in among) is wanted if name in message else None,
    )


@st.composite
def null_tests(draw: st.DrawFn) -> Case:
    name, wanted = draw(names), draw(st.booleans())
    return Case(
        f"{name} IS {'' if wanted else 'NOT '}NULL", lambda message: (name not in message) is wanted
    )


@st.composite
def text_tests(draw: st.DrawFn) -> Case:
    name, part, wanted = draw(names), draw(texts | st.just("")), draw(st.booleans())
    word = draw(st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]))
    test = {"CONTAINS": str.__contains__, "STARTSWITH": str.startswith, "ENDSWITH": str.endswith}[
        word
    ]

    def says(message: dict[str, str]) -> Verdict:
        return bool(part) and name in message and test(message[name], part) is wanted

    return Case(f"{name} {'' if wanted else 'NOT '}{word} {quote(part)}", says)


def both(one: Case, other: Case, word: str) -> Case:
    decisive = word == "OR"

    def says(message: dict[str, str]) -> Verdict:
        first = one.says(message)
        if first is decisive:
            return decisive
        second = other.says(message)
        if second is decisive:
            return decisive
        return None if first is None or second is None else not decisive

    return Case(f"({one.text}) {word} ({other.text})", says)


def inverted(case: Case) -> Case:
    def says(message: dict[str, str]) -> Verdict:
        said = case.says(message)
        return None if said is None else not said

    return Case(f"NOT ({case.text})", says)


simple = comparisons() | equalities() | lists() | null_tests() | text_tests()
cases = st.recursive(
    simple,
    lambda inner: (
        st.builds(both, inner, inner, st.sampled_from(["AND", "OR"])) | inner.map(inverted)
    ),
    max_leaves=6,
)


@given(cases, messages)
def test_a_filter_says_what_the_words_say(case: Case, message: dict[str, str]) -> None:
    try:
        expected = case.says(message) is True
    except Misfit:
        expected = False
    assert parse_sql(case.text).matches(message) is expected


@given(st.text() | st.text(alphabet="ab1.' ()=<>NOTANDRIS-+/*,\n"), st.binary(max_size=40))
def test_anything_is_a_filter_or_a_mistake(expression: str, raw: bytes) -> None:
    try:
        found = parse_sql(expression)
    except InvalidInput:
        return
    assert found.accepts(raw) in (True, False)


@given(cases, st.binary(max_size=60))
def test_any_bytes_match_or_do_not(case: Case, raw: bytes) -> None:
    found = parse_sql(case.text)
    assert found.accepts(raw) in (True, False)
    named = properties.decode(raw)
    if "\ufffd" not in "".join([*named, *named.values()]):
        assert found.accepts(raw) == found.accepts(raw + b"\x02")
