"""Header fields: all of them text on the wire, and the snippets of code that convert them.

A snippet has one place, `{}`, where the text or the value is first needed; one that needs it again
finds it under the name `v`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final

from gantrymq.protocol import scalars
from gantrymq.protocol.declaring import Form, Part, Width
from gantrymq.protocol.json_shapes import absent, annotation, without_none
from gantrymq.protocol.sources import Source

NAMES: Final[dict[str, Any]] = {
    "number_of": scalars.NUMBER_OF,
    "text_of": scalars.TEXT_OF,
    "truth_of": scalars.TRUTH_OF,
    "int64": scalars.int64,
    "int64_text": scalars.int64_text,
    "double": scalars.double,
}
"""What the snippets refer to."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """An expression with a place in it."""

    text: str
    again: bool = False

    def of(self, expression: str) -> str:
        """The snippet with `expression` in its place."""
        keep = self.again and expression != "v"
        return self.text.format(f"(v := {expression})" if keep else expression)


READING: Final[dict[Any, Snippet]] = {
    str: Snippet("{}"),
    bool: Snippet("truth_of[{}]"),
    float: Snippet("double({})"),
    32: Snippet("number_of[{}]"),
    64: Snippet("int(v) if len({}) < 19 and v.isdecimal() else int64(v)", again=True),
}
"""Text to value, by type or by the width of a number."""

WRITING: Final[dict[Any, Snippet]] = {
    str: Snippet("{}"),
    bool: Snippet("'true' if {} else 'false'"),
    float: Snippet("repr(float({}))"),
    32: Snippet("text_of[{}]"),
    64: Snippet(
        "f'{{v}}' if type({}) is int and "
        f"{scalars.INT64_LEAST} <= v <= {scalars.INT64_MOST} else int64_text(v)",
        again=True,
    ),
}
"""Value to text."""


def reading(source: Source, hint: Any) -> Snippet:
    """What reads a value of type `hint`."""
    if (form := annotation(hint, Form)) is not None:
        return Snippet(source.give(form.read) + "({})")
    if (simple := _simple(READING, hint)) is not None:
        return simple
    if isinstance(hint, type) and issubclass(hint, Enum):
        text = "number_of[{}]" if issubclass(hint, IntEnum) else "{}"
        return Snippet(f"{source.give(hint)}({text})")
    raise TypeError(f"{hint!r} has no form in a header; whole numbers have to be Int or Long")


def writing(source: Source, hint: Any) -> Snippet:
    """What writes a value of type `hint`."""
    if (form := annotation(hint, Form)) is not None:
        return Snippet(source.give(form.write) + "({})")
    if (simple := _simple(WRITING, hint)) is not None:
        return simple
    return Snippet("text_of[{}]" if issubclass(hint, IntEnum) else "str({})")


def _simple(table: dict[Any, Snippet], hint: Any) -> Snippet | None:
    width = annotation(hint, Width)
    return table.get(hint if width is None else width.bits)


def read_headers(source: Source, parts: list[Part], *, short: bool, indent: str) -> None:
    """The lines that set the fields of `self` from `fields`, whose `get` is at hand."""
    for part in parts:
        wire = part.short if short else part.wire
        snippet = reading(source, without_none(part.hint))
        looked_up = f"get({wire!r})"
        if part.required:
            value = snippet.of(f"fields[{wire!r}]")
        elif (default := absent(source, part)) == "None" and snippet.text == "{}":
            value = looked_up
        else:
            value = f"{default} if (v := {looked_up}) is None else {snippet.of('v')}"
        step = part.name if wire == part.name else f"{part.name} ({wire})"
        source.add(f"{indent}self.{part.name} = {value}", step)


def write_headers(source: Source, parts: list[Part], *, short: bool, indent: str) -> None:
    """The lines that make `fields` of the fields of `self`, in the order of their declaration."""
    optional = [without_none(part.hint) is not part.hint for part in parts]
    leading = optional.index(True) if True in optional else len(parts)
    source.add(f"{indent}fields = {{")
    for position, part in enumerate(parts):
        wire = repr(part.short if short else part.wire)
        snippet = writing(source, without_none(part.hint))
        if position == leading:
            source.add(f"{indent}}}")
        if position < leading:
            source.add(f"{indent} {wire}: {snippet.of(f'self.{part.name}')},", part.name)
        elif optional[position]:
            source.add(f"{indent}v = self.{part.name}")
            source.add(f"{indent}if v is not None: fields[{wire}] = {snippet.of('v')}", part.name)
        else:
            source.add(f"{indent}fields[{wire}] = {snippet.of(f'self.{part.name}')}", part.name)
    if leading == len(parts):
        source.add(f"{indent}}}")
    source.add(f"{indent}command.fields = fields")
