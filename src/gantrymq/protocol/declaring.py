"""How a value that travels is declared: one dataclass, with the wire's spelling beside each field.

A declared class has fields in our own words. Where RocketMQ's name is not simply the camelCase of
ours, the field says so with `named`. A field stands in one of four places:

- in the header, declared with nothing or with `named("wireName")`; a class that is neither request
  nor reply is a JSON object, and its fields are members of that;
- as a member of the one JSON object that is the body, declared with `in_body("wireName")`;
- as the body itself, one value, declared with `whole_body()` or `raw_body()`;
- as a member of the command (remark, version, language, code, more), declared with
  `of_frame("remark")`.

A field without a default has to be there. A field with a default takes it when the peer leaves the
field out, as Java's own classes do. `X | None` with the default `None` is left out when it is None.

Plain `int` is refused: a number is an `Int` or a `Long`, since the peer has only so many bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from inspect import get_annotations
from typing import (
    Annotated,
    Any,
    Final,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

from gantrymq.protocol.sources import Source

T = TypeVar("T")

_PLACE: Final = "gantrymq.place"


@dataclass(frozen=True, slots=True)
class Width:
    """How many bits a whole number has on the wire, sign included."""

    bits: int

    @property
    def least(self) -> int:
        """The smallest number that fits."""
        return -(1 << self.bits - 1)

    @property
    def most(self) -> int:
        """The largest number that fits."""
        return (1 << self.bits - 1) - 1


Int: TypeAlias = Annotated[int, Width(32)]
"""A whole number that Java keeps in an `int`."""
Long: TypeAlias = Annotated[int, Width(64)]
"""A whole number that Java keeps in a `long`."""


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Another form for a type, put beside it with `Annotated`: how to read it and to write it.

    What `read` gets and `write` gives depends on where the field stands: text in the header, a JSON
    value in a JSON object, bytes as a whole body. Both raise `ValueError` for what they cannot do.
    """

    read: Callable[[Any], Any]
    write: Callable[[Any], Any]


class OpenStrEnum(StrEnum):
    """Names on the wire; one that nobody here knows is carried through as a member of its own."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        for member in cls:
            if member.value.lower() == value.lower():
                return member
        stranger = str.__new__(cls, value)
        stranger._name_ = "UNKNOWN"
        stranger._value_ = value
        return stranger


class Where(Enum):
    """The place a field stands in."""

    NEAR = auto()
    """In the header of a request or reply, in the object that any other class is."""
    BODY_MEMBER = auto()
    WHOLE_BODY = auto()
    FRAME = auto()


@dataclass(frozen=True, slots=True)
class _Place:
    where: Where
    wire: str | None = None
    short: str | None = None


@overload
def named(wire: str, *, short: str | None = None, default: T) -> T: ...
@overload
def named(wire: str, *, short: str | None = None, default_factory: Callable[[], T]) -> T: ...
@overload
def named(wire: str, *, short: str | None = None) -> Any: ...
def named(wire: str, *, short: str | None = None, **how: Any) -> Any:
    """A field whose name on the wire is `wire`, and `short` in the short spelling of its class."""
    return field(metadata={_PLACE: _Place(Where.NEAR, wire, short)}, **how)


@overload
def in_body(wire: str | None = None, *, default: T) -> T: ...
@overload
def in_body(wire: str | None = None, *, default_factory: Callable[[], T]) -> T: ...
@overload
def in_body(wire: str | None = None) -> Any: ...
def in_body(wire: str | None = None, **how: Any) -> Any:
    """A field that is a member of the JSON object in the body."""
    return field(metadata={_PLACE: _Place(Where.BODY_MEMBER, wire)}, **how)


@overload
def whole_body(*, default: T) -> T: ...
@overload
def whole_body(*, default_factory: Callable[[], T]) -> T: ...
@overload
def whole_body() -> Any: ...
def whole_body(**how: Any) -> Any:
    """The field that is the body: bytes, plain text, a JSON value, or what its `Form` says."""
    return field(metadata={_PLACE: _Place(Where.WHOLE_BODY)}, **how)


@overload
def raw_body(*, default: T) -> T: ...
@overload
def raw_body() -> Any: ...
def raw_body(**how: Any) -> Any:
    """A body of bytes as they are; not shown in the `repr`."""
    return field(metadata={_PLACE: _Place(Where.WHOLE_BODY)}, repr=False, **how)


@overload
def of_frame(member: str, *, default: T) -> T: ...
@overload
def of_frame(member: str) -> Any: ...
def of_frame(member: str, **how: Any) -> Any:
    """A field that is a member of the command itself.

    That is remark, version, language or code, or `more`: buffers that go out after the body.
    """
    return field(metadata={_PLACE: _Place(Where.FRAME, member)}, **how)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(field, named, in_body, whole_body, raw_body, of_frame),
)
def declared(cls: type[T]) -> type[T]:
    """Make `cls` a dataclass with slots and keyword-only fields, known to the codecs.

    There are hundreds of them, and a process uses a few: what `dataclass` would compile for each at
    import is shared, or waits for the first instance.
    """
    bare = dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
    made = bare(cls)
    shared = {"__init__": _first_init, "__repr__": _repr, "__eq__": _eq, "__hash__": None}
    for name, method in shared.items():
        setattr(made, name, method)
    return made


def _first_init(self: Any, **given: Any) -> None:
    """Stands in for `__init__` until the first instance is made."""
    cls: Any = type(self)
    source = Source(cls, "")
    absent = source.give(dataclasses.MISSING)
    arguments = ["self", *("*" for _ in parts(cls)[:1])]
    for part in parts(cls):
        name = part.name
        if part.factory is not None:
            arguments.append(f"{name}={absent}")
            made = source.give(part.factory)
            source.add(f" self.{name} = {made}() if {name} is {absent} else {name}")
        else:
            arguments.append(name if part.required else f"{name}={source.give(part.default)}")
            source.add(f" self.{name} = {name}")
    source.lines[0] = f"def __init__({', '.join(arguments)}):"
    source.add(" return None")
    init = source.function()
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    cls.__init__ = init
    init(self, **given)


def _repr(self: Any) -> str:
    shown = (f.name for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


def _eq(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, f.name) == getattr(other, f.name) for f in dataclasses.fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One field of a declared class, as the codecs see it."""

    name: str
    hint: Any
    where: Where
    wire: str
    short: str
    default: Any
    factory: Callable[[], Any] | None

    @property
    def required(self) -> bool:
        """Whether a peer may not leave it out."""
        return self.default is dataclasses.MISSING and self.factory is None


_PARTS: Final[dict[type, tuple[Part, ...]]] = {}


def parts(cls: type) -> tuple[Part, ...]:
    """The fields of `cls` in the order in which they are written: its own before inherited ones."""
    if cls not in _PARTS:
        found: Any = dataclasses.fields(cls)  # mypy cannot know that every class here is declared
        hints = get_type_hints(cls, include_extras=True)
        order = sorted(found, key=lambda f: cls.__mro__.index(_origin(cls, f.name)))
        _PARTS[cls] = tuple(_part(f, hints[f.name]) for f in order)
    return _PARTS[cls]


def _origin(cls: type, name: str) -> type:
    """The class in which a field was first declared."""
    return next(c for c in reversed(cls.__mro__) if name in get_annotations(c))


def _part(f: dataclasses.Field[Any], hint: Any) -> Part:
    if type(None) in get_args(hint) and f.default is not None:
        raise TypeError(f"{f.name} may be None, which says it is absent, so its default is None")
    metadata: Mapping[str, Any] = f.metadata
    place: _Place = metadata.get(_PLACE, _Place(Where.NEAR))
    wire = place.wire or camel_case(f.name)
    return Part(
        name=f.name,
        hint=hint,
        where=place.where,
        wire=wire,
        short=place.short or wire,
        default=f.default,
        factory=None if f.default_factory is dataclasses.MISSING else f.default_factory,
    )


def zero(hint: Any) -> Any:
    """What Java has in a field of this type before anything is put there, or None."""
    if hint in (bool, float, str):
        return hint()
    return 0 if get_origin(hint) is Annotated and int in get_args(hint) else None


def camel_case(name: str) -> str:
    """`queue_id` as `queueId`."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
