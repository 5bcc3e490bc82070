"""Our catalogue of requests, replies and body values, by the RocketMQ classes that they stand for.

The classes say it themselves, in the `RocketMQ:` line of their docstrings, with the request code
where they have one: `RocketMQ: SendMessageRequestHeaderV2, code 310, and …`.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any, Final

import gantrymq.protocol
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.declaring import Form, Part, Where, Width, parts
from gantrymq.protocol.json_shapes import annotation, shape, without_none
from gantrymq.wire import fastjson
from gantrymq.wire.command import Command

_LINE: Final = re.compile(r"RocketMQ: (.*?)\.\s*(?:\n\s*\n|$)", re.DOTALL)
_NAME: Final = re.compile(r"\b([A-Z]\w+(?:[.$]\w+)?)(?:, code (\d+))?")

_SAMPLES: Final = (
    "a", "a,b,c", "a;b", "+message.type=FIFO,-x", "a\x01b\x02",
    '{"counter":3,"stateVersion":0,"timestamp":1700000000000}',
)  # fmt: skip
"""Texts for header fields that have a form of their own; each takes those that it can read."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """One of our classes in the place of one Java class, under one code where it has one."""

    ours: Any  # a class of the catalogue
    java: str
    code: int | None

    def label(self) -> str:
        """Both names, for messages."""
        return f"{self.ours.__name__} for {self.java}"

    @property
    def short(self) -> bool:
        """Whether names have their short spelling under this code."""
        long_code = getattr(self.ours, "LONG_CODE", None)
        return self.code is None or long_code is None or self.code != long_code

    def header(self) -> dict[str, Part]:
        """The fields that stand in the header, by their names on the wire."""
        near = [part for part in parts(self.ours) if part.where is Where.NEAR]
        return {part.short if self.short else part.wire: part for part in near}

    def body(self) -> list[Part]:
        """The fields that stand in the body."""
        places = (Where.BODY_MEMBER, Where.WHOLE_BODY)
        return [part for part in parts(self.ours) if part.where in places]

    def reread(self, body: bytes) -> bytes:
        """A JSON body, read into our class and written again."""
        return self.write(self.read(body))

    def read(self, body: bytes) -> Any:
        if not issubclass(self.ours, Request | Reply):
            return shape(self.ours).read(fastjson.loads(body))
        fields = {name: _least(part) for name, part in self.header().items() if part.required}
        return self.ours.from_command(Command(self.code or 0, fields=fields, body=body))

    def write(self, value: Any) -> bytes:
        if not isinstance(value, Request | Reply):
            return fastjson.dumps(shape(self.ours).write(value))
        return bytes(value.command().body)


@cache
def stands() -> tuple[Stand, ...]:
    """Everything that the catalogue says it stands for."""
    return tuple(stand for cls in _classes() for stand in _stands_of(cls))


def _classes() -> Iterator[Any]:
    for info in pkgutil.iter_modules(gantrymq.protocol.__path__):
        module = importlib.import_module(f"gantrymq.protocol.{info.name}")
        for value in vars(module).values():
            own = isinstance(value, type) and value.__module__ == module.__name__
            if own and dataclasses.is_dataclass(value):
                yield value


def _stands_of(cls: Any) -> Iterator[Stand]:
    line = _LINE.search(inspect.cleandoc(cls.__doc__ or ""))
    for name, code in _NAME.findall(line[1]) if line else ():
        yield Stand(ours=cls, java=name, code=int(code) if code else None)


def requests() -> dict[int, type[Request[Any]]]:
    """The requests of the catalogue, by code."""
    found: dict[int, type[Request[Any]]] = {}
    for cls in _classes():
        if issubclass(cls, Request) and hasattr(cls, "CODE"):
            found |= dict.fromkeys(map(int, cls.codes()), cls)
    return found


def java_types(part: Part) -> set[str]:
    """The Java types that a field may have on the other side."""
    hint = without_none(part.hint)
    if (width := annotation(hint, Width)) is not None:
        return {"int", "Integer"} if width.bits == 32 else {"long", "Long"}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"int", "Integer"} if issubclass(hint, int) else {"String", "BoundaryType"}
    if annotation(hint, Form) is not None:
        return {"String"}
    return {bool: {"boolean", "Boolean"}, float: {"double", "Double"}, str: {"String"}}[hint]


def choices(part: Part) -> list[Any] | None:
    """The values that a field is limited to; None where any value of its type will do."""
    hint = without_none(part.hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return [member.value for member in hint]
    if (form := annotation(hint, Form)) is not None:
        return [text for text in _SAMPLES if _comes_back(form, text)]
    return None


def _comes_back(form: Form, text: str) -> bool:
    try:
        return bool(form.write(form.read(text)) == text)
    except ValueError:
        return False


def _least(part: Part) -> str:
    """A text that a required header field can be read from."""
    if allowed := choices(part):
        return str(allowed[0])
    return "0"
