"""What the parts of an SQL92 filter say of a message: terms, and how they are put together.

A term is a function from a message's properties to a value: text or a number, TRUE, FALSE, or NULL
where there is no such property. Every property is text, so what it is compared with decides what it
is read as:

| compared with | it is read as | if it cannot be |
|---|---|---|
| text | text, `=` and `<>` only | |
| `12` | a whole number of 32 bits | nothing matches |
| `12345678901`, `-2147483648` | a whole number of 64 bits | nothing matches |
| `1.5` | a double | nothing matches |
| `TRUE`, or a condition | TRUE if it says `true`, else FALSE | |
| another property | text for `=` and `<>`, else a double | nothing matches |

**Nothing matches** is stronger than NULL: NOT does not turn it round, and no OR after it is asked.
It is `Unfit`, raised.

**NULL** is as in SQL: neither AND nor OR can decide by it, NOT leaves it, and a message matches
where TRUE comes out. Three things are not as in SQL but as in RocketMQ. `a = b` is TRUE where both
are missing. Where only `b` is missing it is FALSE, and `a <> b` is TRUE. CONTAINS, STARTSWITH and
ENDSWITH are FALSE without a property or a text to look for, and so are they with NOT.

Properties are looked for in the bytes that are stored; nothing else of them is taken apart. Most
messages are not even asked that much: many a term can only be TRUE where certain bytes are there
(`marks`), and whether they are is seen at a glance.

RocketMQ: ComparisonExpression, LogicExpression, UnaryExpression.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from gantrymq.errors import InvalidInput
from gantrymq.rules.readings import (
    LONG_MAX,
    Unfit,
    comparable,
    double,
    int32,
    int64,
    order_of,
    truth,
)
from gantrymq.wire import properties
from gantrymq.wire.javahash import INT_MAX

Run: TypeAlias = Callable[[bytes], Any]
"""The value of a term for stored properties that have a 0x02 before them; None is NULL."""

DEEPEST: Final = 200
"""How deeply terms may stand within each other: each level is a call within a call."""

_END: Final = properties.VALUE_END.encode()
_NAME_END: Final = properties.NAME_END.encode()
_REPLACED: Final = "\ufffd".encode()
"""It may stand for other bytes in what is stored."""
_MOST_MARKS: Final = 8
"""Marks that are quicker to look for than the expression is to be run."""


class Kind(Enum):
    """What the value of a term is, where it is not NULL."""

    TRUTH = "TRUE or FALSE"
    INT32 = "a whole number"
    INT64 = "a large whole number"
    DOUBLE = "a decimal number"
    TEXT = "a text"
    PROPERTY = "a property"
    NULL = "NULL"


_NUMBERS: Final = frozenset((Kind.INT32, Kind.INT64, Kind.DOUBLE))
_WORDS: Final = frozenset((Kind.TEXT, Kind.PROPERTY))


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Part of an expression, ready to run."""

    kind: Kind
    run: Run
    at: int
    """Where it begins in the expression."""
    text: str
    """It, or how it begins."""
    value: Any = None
    """Of a literal."""
    is_literal: bool = False
    depth: int = 0
    marks: tuple[bytes, ...] = ()
    """One of them is among the properties wherever the term is TRUE; none says nothing."""

    @property
    def called(self) -> str:
        """It, for people."""
        is_whole = self.is_literal or self.kind is Kind.PROPERTY
        return self.text if is_whole else f"what begins with {self.text}"


def mistake(at: int, what: str) -> InvalidInput:
    """An expression that cannot be, with the place counted from 1."""
    return InvalidInput(f"the expression is wrong at character {at + 1}: {what}")


def _around(
    first: Term, kind: Kind, run: Run, *others: Term, marks: tuple[bytes, ...] = ()
) -> Term:
    """A term made of others."""
    depth = 1 + max(term.depth for term in (first, *others))
    if depth > DEEPEST:
        raise mistake(first.at, f"terms stand more than {DEEPEST} deep within each other")
    return Term(kind=kind, run=run, at=first.at, text=first.text, depth=depth, marks=marks)


def _marks(term: Term, texts: Sequence[bytes]) -> tuple[bytes, ...]:
    """What is stored where the property `term` begins with one of these texts."""
    if len(texts) > _MOST_MARKS or not all(texts) or any(_REPLACED in text for text in texts):
        return ()
    return tuple(term.text.encode() + _NAME_END + text for text in texts)


# --- the smallest terms ---------------------------------------------------------------------------


def literal(kind: Kind, value: object, *, at: int, text: str) -> Term:
    """A value that is written out."""
    return Term(
        kind=kind, run=lambda _entries: value, at=at, text=text, value=value, is_literal=True
    )


def whole(text: str, at: int) -> Term:
    """A whole number; its size decides what properties are read as that it is compared with."""
    number = int(text.rstrip("lL")) if len(text) <= len(str(LONG_MAX)) + 1 else LONG_MAX + 1
    if number > LONG_MAX:
        raise mistake(at, f"{text} is larger than {LONG_MAX}")
    kind = Kind.INT32 if number <= INT_MAX else Kind.INT64
    return literal(kind, number, at=at, text=text)


def decimal(text: str, at: int) -> Term:
    """A decimal number. RocketMQ takes none that is zero."""
    number = float(text)
    if not 0 < number < math.inf:
        raise mistake(at, f"{text} is not between 4.9E-324 and 1.7976931348623157E308")
    return literal(Kind.DOUBLE, number, at=at, text=text)


def quoted(text: str, at: int) -> Term:
    """A text, with its quotes; two within it stand for one."""
    return literal(Kind.TEXT, unquoted(text), at=at, text=text)


def unquoted(text: str) -> bytes:
    """The text between the quotes, as properties hold it."""
    return text[1:-1].replace("''", "'").encode("utf-8", "surrogatepass")


def named(name: str, at: int) -> Term:
    """A property."""
    return Term(kind=Kind.PROPERTY, run=_finder(name), at=at, text=name)


def _finder(name: str) -> Run:
    return _tested(name, _itself, None)


def _itself(found: bytes, _value: object) -> Any:
    return found


def _tested(name: str, test: Callable[[Any, Any], Any], value: object) -> Run:
    """What `test` says of a property and `value`; NULL where there is no such property.

    All in one function: this is what is done most, for every message that is looked at.
    """
    key = f"{properties.VALUE_END}{name}{properties.NAME_END}".encode()
    size = len(key)

    def run(entries: bytes) -> Any:
        at = entries.rfind(key)
        if at < 0:
            return None
        start = at + size
        end = entries.find(_END, start)
        found = entries[start:end] if end >= 0 else entries[start:]
        if not found:
            last = _not_empty(entries, name)
            return None if last is None else test(last, value)
        return test(found, value)

    return run


def _not_empty(entries: bytes, name: str) -> bytes | None:
    """The last value that is not empty: entries without one do not count."""
    found = properties.find(entries, name)
    return None if found is None else found.encode()


# --- truth ----------------------------------------------------------------------------------------


def condition(term: Term) -> Term:
    """`term` where TRUE or FALSE is asked for; a property is never TRUE there, since it is text."""
    if term.kind is Kind.TRUTH:
        return term
    if term.kind is not Kind.PROPERTY:
        raise mistake(term.at, f"{term.called} is {term.kind.value}, neither TRUE nor FALSE")
    run = term.run
    return _around(term, Kind.TRUTH, lambda entries: None if run(entries) is None else False)


def all_of(terms: Sequence[Term]) -> Term:
    """AND. What comes after a FALSE is not asked."""
    runs = tuple(condition(term).run for term in terms)

    def run(entries: bytes) -> bool | None:
        verdict: bool | None = True
        for one in runs:
            said = one(entries)
            if said is False:
                return False
            if said is None:
                verdict = None
        return verdict

    known = [term.marks for term in terms if term.marks]
    return _around(terms[0], Kind.TRUTH, run, *terms, marks=min(known, key=len, default=()))


def any_of(terms: Sequence[Term]) -> Term:
    """OR. What comes after a TRUE is not asked."""
    runs = tuple(condition(term).run for term in terms)

    def run(entries: bytes) -> bool | None:
        verdict: bool | None = False
        for one in runs:
            said = one(entries)
            if said is True:
                return True
            if said is None:
                verdict = None
        return verdict

    every = tuple(mark for term in terms for mark in term.marks)
    if len(every) > _MOST_MARKS or not all(term.marks for term in terms):
        every = ()
    return _around(terms[0], Kind.TRUTH, run, *terms, marks=every)


def negation(term: Term) -> Term:
    """NOT."""
    return _inverted(condition(term))


def _inverted(term: Term) -> Term:
    run = term.run

    def inverted(entries: bytes) -> bool | None:
        said = run(entries)
        return None if said is None else not said

    return _around(term, Kind.TRUTH, inverted)


def null_test(term: Term, *, wanted: bool) -> Term:
    """IS NULL; IS NOT NULL where `wanted` is false."""
    run = term.run
    return _around(term, Kind.TRUTH, lambda entries: (run(entries) is None) is wanted)


# --- comparing ------------------------------------------------------------------------------------


def minus(term: Term) -> Term:
    """`-` before a term; of anything but a number it makes NULL."""
    run, kind = term.run, term.kind
    if kind not in _NUMBERS:

        def nothing(entries: bytes) -> None:
            run(entries)  # which may find that the message does not match

        return _around(term, Kind.NULL, nothing)
    value = -run(b"")
    return _around(term, kind, lambda _entries: value)


def equal(left: Term, right: Term) -> Term:
    """`=`."""
    for term in (left, right):
        if term.is_literal and term.value is None:
            raise mistake(term.at, "nothing is equal to NULL; write IS NULL")
    if (
        left.is_literal and right.is_literal
        and left.kind is Kind.TRUTH and right.kind is not Kind.TRUTH
    ):  # fmt: skip
        raise mistake(right.at, f"{left.text} cannot be compared with {right.kind.value}")
    marks: tuple[bytes, ...] = ()
    if left.kind is Kind.PROPERTY and right.kind is Kind.TEXT:
        marks = _marks(left, [right.value])
    return _around(left, Kind.TRUTH, _equality(left, right), right, marks=marks)


def unequal(left: Term, right: Term) -> Term:
    """`<>`."""
    return _inverted(equal(left, right))


def _equality(left: Term, right: Term) -> Run:
    first, second = left.run, right.run
    if (left.kind in _WORDS and right.kind in _WORDS) or left.kind is right.kind:
        same: Callable[[Any, Any], bool] = operator.eq
    else:
        same = _comparison(left.kind, right.kind, operator.eq)
    if left.kind is Kind.PROPERTY and right.is_literal:
        return _tested(left.text, same, right.value)

    def run(entries: bytes) -> bool | None:
        one, other = first(entries), second(entries)
        if one is None:
            return True if other is None else None
        return other is not None and same(one, other)

    return run


def ordered(left: Term, right: Term, test: Callable[[Any, Any], bool]) -> Term:
    """`>`, `>=`, `<` or `<=`, of numbers and properties."""
    for term in (left, right):
        if term.kind is Kind.TRUTH or (term.is_literal and term.kind not in _NUMBERS):
            raise mistake(
                term.at,
                f"{term.called} is {term.kind.value}; only numbers and properties have an order",
            )
    return _around(left, Kind.TRUTH, _order(left, right, test), right)


def _order(left: Term, right: Term, test: Callable[[Any, Any], bool]) -> Run:
    first, second = left.run, right.run
    if left.kind is right.kind is Kind.PROPERTY:
        compare: Callable[[Any, Any], bool] = _by_doubles(test)
    elif Kind.NULL in (left.kind, right.kind):
        compare = _never
    else:
        compare = _comparison(left.kind, right.kind, test)
    if left.kind is Kind.PROPERTY and right.is_literal:
        return _tested(left.text, compare, right.value)

    def run(entries: bytes) -> bool | None:
        one = first(entries)
        if one is None:
            return None
        other = second(entries)
        return None if other is None else compare(one, other)

    return run


def _comparison(
    left: Kind, right: Kind, test: Callable[[Any, Any], bool]
) -> Callable[[Any, Any], bool]:
    """`test` for values of two kinds, the one read as the other."""
    if left in _WORDS and right in _READ:
        read = _READ[right]
        if right is Kind.INT32:
            return _by_whole(test)
        return lambda one, other: test(read(one), other)
    if right in _WORDS and left in _NUMBERS:
        read = _READ[left]
        return lambda one, other: test(one, read(other))
    if left is Kind.TRUTH and right in _WORDS:
        return _unfit
    if Kind.TRUTH in (left, right) or Kind.NULL in (left, right):
        return _never
    if Kind.DOUBLE in (left, right):
        return lambda one, other: test(float(one), float(other))
    return test


def _by_whole(test: Callable[[Any, Any], bool]) -> Callable[[bytes, int], bool]:
    def compare(one: bytes, other: int) -> bool:
        if one.isdigit() and len(one) < 10:  # as `int32` says, without a call more
            return test(int(one), other)
        return test(int32(one), other)

    return compare


def _by_doubles(test: Callable[[Any, Any], bool]) -> Callable[[bytes, bytes], bool]:
    def compare(one: bytes, other: bytes) -> bool:
        return test(order_of(double(one)), order_of(double(other)))

    return compare


def _never(_one: object, _other: object) -> bool:
    return False


def _unfit(one: object, other: object) -> bool:
    raise Unfit(f"{one!r} is on the left of {other!r}")


def between(term: Term, low: Term, high: Term) -> Term:
    """BETWEEN."""
    for bound in (low, high):
        if bound.is_literal and bound.value is None:
            raise mistake(bound.at, "nothing lies between NULL and anything")
    if (
        low.is_literal and high.is_literal
        and low.kind in _NUMBERS and high.kind in _NUMBERS
        and low.value > high.value
    ):  # fmt: skip
        raise mistake(
            low.at, f"nothing lies between {low.text} and {high.text}; the lesser is first"
        )
    return all_of([ordered(term, low, operator.ge), ordered(term, high, operator.le)])


def not_between(term: Term, low: Term, high: Term) -> Term:
    """NOT BETWEEN."""
    return any_of([ordered(term, low, operator.lt), ordered(term, high, operator.gt)])


# --- texts ----------------------------------------------------------------------------------------


def one_of(term: Term, texts: Sequence[bytes], *, wanted: bool) -> Term:
    """IN; NOT IN where `wanted` is false."""
    if term.kind is not Kind.PROPERTY:
        raise mistake(term.at, f"before IN stands a property; {term.called} is {term.kind.value}")
    find, among = term.run, frozenset(texts)

    def run(entries: bytes) -> bool | None:
        found = find(entries)
        return None if found is None else (found in among) is wanted

    return _around(term, Kind.TRUTH, run, marks=_marks(term, texts) if wanted else ())


def text_test(
    term: Term, part: bytes, test: Callable[[bytes, bytes], bool], *, wanted: bool
) -> Term:
    """CONTAINS, STARTSWITH or ENDSWITH; the same with NOT where `wanted` is false."""
    inner = term.run
    if not part:
        return _around(term, Kind.TRUTH, lambda _entries: False)
    if term.kind not in _WORDS:

        def number(entries: bytes) -> bool:
            inner(entries)  # which may find that the message does not match
            return False

        return _around(term, Kind.TRUTH, number)

    def run(entries: bytes) -> bool:
        found = inner(entries)
        return found is not None and test(found, part) is wanted

    return _around(term, Kind.TRUTH, run)


_READ: Final[dict[Kind, Callable[[bytes], Any]]] = {
    Kind.INT32: int32, Kind.INT64: int64, Kind.DOUBLE: comparable, Kind.TRUTH: truth,
}  # fmt: skip
