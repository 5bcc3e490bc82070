"""Which messages a consumer asked for, by an expression over their properties.

    amount > 100 AND (region IN ('north', 'east') OR vip IS NOT NULL)

The grammar is RocketMQ's, with what it makes of precedence: NOT binds closer than any comparison,
so `NOT a = 1` compares a truth with 1 and never matches; `NOT (a = 1)` is what was meant. Words may
be written in any case, names of properties as they are. What the parts mean, is told in
`conditions`.

Two things are refused that RocketMQ takes. Text after the end of an expression, as in `a = 1 b = 2`
or `name LIKE 'x%'`: RocketMQ does without it, and says nothing. And what has more than 32768
characters.

An expression is parsed once; what came of it, a mistake too, is kept for the next who asks.

RocketMQ: SqlFilter, SelectorParser.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final

from lark import Lark, Token, Transformer, UnexpectedInput, UnexpectedToken, v_args

from gantrymq.errors import InvalidInput
from gantrymq.rules import conditions
from gantrymq.rules.conditions import Kind, Run, Term, mistake
from gantrymq.rules.readings import Unfit
from gantrymq.wire import properties

SQL92: Final = "SQL92"
"""The type of such an expression."""
LONGEST: Final = 32_768
"""Characters of an expression."""

_GRAMMAR: Final = r"""
    start: any
    ?any: both | both (_OR both)+ -> any_of
    ?both: single | single (_AND single)+ -> all_of
    ?single: comparison
        | single _EQUAL comparison -> equal
        | single _UNEQUAL comparison -> unequal
        | single _IS NULL -> is_null
        | single _IS _NOT NULL -> is_not_null
    ?comparison: unary
        | comparison (GREATER | NOT_LESS | LESS | NOT_GREATER) unary -> ordered
        | comparison _BETWEEN unary _AND unary -> between
        | comparison _NOT _BETWEEN unary _AND unary -> not_between
        | comparison _IN _OPEN TEXT (_COMMA TEXT)* _CLOSE -> one_of
        | comparison _NOT _IN _OPEN TEXT (_COMMA TEXT)* _CLOSE -> none_of
        | comparison (CONTAINS | STARTSWITH | ENDSWITH) TEXT -> text_test
        | comparison _NOT (CONTAINS | STARTSWITH | ENDSWITH) TEXT -> not_text_test
    ?unary: _PLUS unary
        | _MINUS unary -> minus
        | _NOT unary -> negation
        | _OPEN any _CLOSE
        | TEXT -> text
        | WHOLE -> whole
        | DECIMAL -> decimal
        | TRUE -> true
        | FALSE -> false
        | NULL -> null
        | NAME -> name

    _NOT: "NOT"i
    _AND: "AND"i
    _OR: "OR"i
    _BETWEEN: "BETWEEN"i
    _IN: "IN"i
    _IS: "IS"i
    TRUE: "TRUE"i
    FALSE: "FALSE"i
    NULL: "NULL"i
    CONTAINS: "CONTAINS"i
    STARTSWITH: "STARTSWITH"i
    ENDSWITH: "ENDSWITH"i
    _EQUAL: "="
    _UNEQUAL: "<>"
    GREATER: ">"
    NOT_LESS: ">="
    LESS: "<"
    NOT_GREATER: "<="
    _PLUS: "+"
    _MINUS: "-"
    _OPEN: "("
    _CLOSE: ")"
    _COMMA: ","
    NAME: /[a-z_$][a-z0-9_$]*/i
    DECIMAL.2: /([0-9]+\.[0-9]*(e[+-]?[0-9]+)?|\.[0-9]+(e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+)/i
    WHOLE: /0|[1-9][0-9]*l?/i
    TEXT: /'([^']|'')*'/
    LINE.2: /--[^\n\r]*(\r\n|\n|\r)/
    BLOCK: /\/\*[^*]*\*(\*|[^*\/][^*]*\*)*\//
    BLANK: /[ \t\n\r\f]+/
    %ignore LINE
    %ignore BLOCK
    %ignore BLANK
"""
_WORDS: Final = {
    "_EQUAL": "=", "_UNEQUAL": "<>", "GREATER": ">", "NOT_LESS": ">=", "LESS": "<",
    "NOT_GREATER": "<=", "_PLUS": "+", "_MINUS": "-", "_OPEN": "(", "_CLOSE": ")", "_COMMA": ",",
    "NAME": "a property", "TEXT": "a 'text'", "WHOLE": "a number", "DECIMAL": "a number",
    "$END": "the end",
}  # fmt: skip
"""What people write for a terminal; the others are written as they are called."""
_ORDERS: Final = {
    "GREATER": operator.gt,
    "NOT_LESS": operator.ge,
    "LESS": operator.lt,
    "NOT_GREATER": operator.le,
}  # fmt: skip
_TEXT_TESTS: Final[dict[str, Callable[[bytes, bytes], bool]]] = {
    "CONTAINS": operator.contains, "STARTSWITH": bytes.startswith, "ENDSWITH": bytes.endswith,
}  # fmt: skip
_SHOWN: Final = 30


class SqlFilter:
    """An expression, ready to match."""

    __slots__ = ("accepts", "expression", "mark")

    def __init__(self, expression: str, run: Run, marks: tuple[bytes, ...] = ()) -> None:
        """Where none of the `marks` is, the expression is not TRUE."""
        self.expression = expression
        self.mark = marks[0] if len(marks) == 1 else b""
        """What is among the properties of every message that matches, if that is known."""
        self.accepts: Callable[[bytes], bool] = _accepting(run, marks)
        """Whether a message with these stored properties matches."""

    def matches(self, named: Mapping[str, str]) -> bool:
        """The same for properties that have been taken apart."""
        return self.accepts(properties.encode(named))


def _accepting(run: Run, marks: tuple[bytes, ...]) -> Callable[[bytes], bool]:
    def accepts(raw: bytes) -> bool:
        try:
            return run(b"\x02" + raw) is True
        except Unfit:
            return False

    def of_several(raw: bytes) -> bool:
        for mark in marks:
            if raw.rfind(mark) >= 0:  # quicker than `in`
                return accepts(raw)
        return False

    def of_one(raw: bytes) -> bool:
        return raw.rfind(only) >= 0 and accepts(raw)

    if len(marks) == 1:
        only = marks[0]
        return of_one
    return of_several if marks else accepts


def parse_sql(expression: str | None) -> SqlFilter:
    """The filter that an expression stands for, or what is wrong with it and where."""
    found = _parsed(expression or "")
    if isinstance(found, InvalidInput):
        raise InvalidInput(str(found))
    return found


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> SqlFilter | InvalidInput:
    if len(expression) > LONGEST:
        return InvalidInput(f"the expression has {len(expression)} characters, more than {LONGEST}")
    if not expression.strip():
        return InvalidInput("the expression is empty")
    try:
        term: Term = _parser().parse(expression)  # type: ignore[assignment]
    except UnexpectedInput as error:
        return _explained(expression, error)
    except InvalidInput as error:
        return error
    return SqlFilter(expression, term.run, term.marks)


@cache
def _parser() -> Lark:
    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="basic",
        g_regex_flags=re.ASCII,
        transformer=_Terms(),
    )


def _explained(expression: str, error: UnexpectedInput) -> InvalidInput:
    """What stands where something else should."""
    at = _place_of(error, len(expression))
    found = "the end" if at >= len(expression) else repr(expression[at : at + _SHOWN])
    if expression.startswith("'", at) and not isinstance(error, UnexpectedToken):
        return mistake(at, "the text that begins here has no end; a quote in it is written twice")
    parser = error.interactive_parser
    accepted: set[str] = parser.accepts()  # type: ignore[no-untyped-call]
    names = sorted({_WORDS.get(name, name.lstrip("_")) for name in accepted})
    return mistake(at, f"there is {found}, expected {', '.join(names)}")


def _place_of(error: UnexpectedInput, end: int) -> int:
    if isinstance(error, UnexpectedToken):
        return end if error.token.type == "$END" else _place(error.token)
    return error.pos_in_stream  # type: ignore[return-value]  # it is set by then


@v_args(inline=True)
class _Terms(Transformer[Token, Term]):
    """Makes terms of what the parser reads, as it reads it."""

    def start(self, term: Term) -> Term:
        return conditions.condition(term)

    def any_of(self, *terms: Term) -> Term:
        return conditions.any_of(terms)

    def all_of(self, *terms: Term) -> Term:
        return conditions.all_of(terms)

    def equal(self, left: Term, right: Term) -> Term:
        return conditions.equal(left, right)

    def unequal(self, left: Term, right: Term) -> Term:
        return conditions.unequal(left, right)

    def is_null(self, term: Term, _null: Token) -> Term:
        return conditions.null_test(term, wanted=True)

    def is_not_null(self, term: Term, _null: Token) -> Term:
        return conditions.null_test(term, wanted=False)

    def ordered(self, left: Term, sign: Token, right: Term) -> Term:
        return conditions.ordered(left, right, _ORDERS[sign.type])

    def between(self, term: Term, low: Term, high: Term) -> Term:
        return conditions.between(term, low, high)

    def not_between(self, term: Term, low: Term, high: Term) -> Term:
        return conditions.not_between(term, low, high)

    def one_of(self, term: Term, *texts: Token) -> Term:
        return conditions.one_of(term, [conditions.unquoted(one) for one in texts], wanted=True)

    def none_of(self, term: Term, *texts: Token) -> Term:
        return conditions.one_of(term, [conditions.unquoted(one) for one in texts], wanted=False)

    def text_test(self, term: Term, word: Token, part: Token) -> Term:
        test = _TEXT_TESTS[word.type]
        return conditions.text_test(term, conditions.unquoted(part), test, wanted=True)

    def not_text_test(self, term: Term, word: Token, part: Token) -> Term:
        test = _TEXT_TESTS[word.type]
        return conditions.text_test(term, conditions.unquoted(part), test, wanted=False)

    def minus(self, term: Term) -> Term:
        return conditions.minus(term)

    def negation(self, term: Term) -> Term:
        return conditions.negation(term)

    def text(self, token: Token) -> Term:
        return conditions.quoted(token, _place(token))

    def whole(self, token: Token) -> Term:
        return conditions.whole(token, _place(token))

    def decimal(self, token: Token) -> Term:
        return conditions.decimal(token, _place(token))

    def true(self, token: Token) -> Term:
        return conditions.literal(Kind.TRUTH, True, at=_place(token), text=token)

    def false(self, token: Token) -> Term:
        return conditions.literal(Kind.TRUTH, False, at=_place(token), text=token)

    def null(self, token: Token) -> Term:
        return conditions.literal(Kind.TRUTH, None, at=_place(token), text=token)

    def name(self, token: Token) -> Term:
        return conditions.named(token, _place(token))


def _place(token: Token) -> int:
    return token.start_pos or 0
