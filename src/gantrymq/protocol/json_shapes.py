"""JSON values and the Python values that declarations make of them.

A `Shape` reads and writes one type. Reading takes what Java's fastjson takes: numbers as text, text
as numbers, enumerations in any case or by position, unknown members, absent members where there is
a default. Null elements of arrays and maps are passed over. How deep reading goes is bounded by the
declarations, not by what the peer sends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from enum import Enum, IntEnum
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

from gantrymq.errors import RemoteProtocolError
from gantrymq.model import MessageQueue
from gantrymq.protocol import scalars
from gantrymq.protocol.declaring import Form, Part, Where, Width, parts
from gantrymq.protocol.scalars import Unreadable, kind, missing
from gantrymq.protocol.sources import Source
from gantrymq.wire import fastjson
from gantrymq.wire.fastjson import ObjectKey


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Shape:
    """How one type is read and written. `quick` is a test on `v` that makes reading needless."""

    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = _same
    quick: str = ""

    def reading(self, source: Source) -> str:
        """The expression that reads `v`."""
        if self.read is _same:
            return "v"
        call = f"{source.give(self.read)}(v)"
        return f"v if {self.quick} else {call}" if self.quick else call

    def writing(self, source: Source) -> str:
        """The expression that writes `v`."""
        return "v" if self.write is _same else f"{source.give(self.write)}(v)"


def _checked(width: Width) -> Callable[[int], int]:
    least, most = width.least, width.most

    def check(number: int) -> int:
        if type(number) is int and least <= number <= most:
            return number
        return int(scalars.within(number, least, most))

    return check


def _whole(width: Width) -> Shape:
    read = scalars.json_int32 if width.bits == 32 else scalars.json_int64
    return Shape(read, _checked(width), f"type(v) is int and {width.least} <= v <= {width.most}")


def _enum(cls: type[Enum]) -> Shape:
    if issubclass(cls, IntEnum):
        return Shape(lambda v: cls(scalars.json_int32(v)), int)
    order = tuple(cls)

    def read(value: Any) -> Enum:
        if type(value) is int and 0 <= value < len(order):
            return order[value]
        if type(value) is not str:
            raise Unreadable(f"has to be the name of a {cls.__name__}, not {kind(value)}")
        return cls(value)

    return Shape(read, str)


def read_queue(tree: Any) -> MessageQueue:
    """A queue from its JSON object."""
    if type(tree) is not dict:
        raise Unreadable(f"has to be a queue, not {kind(tree)}")
    topic, broker, queue_id = (tree.get(name) for name in ("topic", "brokerName", "queueId"))
    if topic is None or broker is None:
        raise missing().under("brokerName" if broker is None else "topic")
    number = 0 if queue_id is None else scalars.json_int32(queue_id)
    return MessageQueue(scalars.json_text(topic), scalars.json_text(broker), number)


def write_queue(queue: MessageQueue) -> dict[str, Any]:
    """The JSON object that stands for a queue."""
    number = scalars.within(queue.queue_id, scalars.INT32_LEAST, scalars.INT32_MOST)
    return {"brokerName": queue.broker, "queueId": number, "topic": queue.topic}


def _read_queue_key(key: Any) -> MessageQueue:
    """A queue that is the key of a map: an object, or with old peers an object's text."""
    if isinstance(key, ObjectKey):
        return read_queue(key.members())
    try:
        return read_queue(fastjson.loads(str(key).encode("utf-8", "replace")))
    except RemoteProtocolError as error:
        raise Unreadable(f"a key has to be a queue, not {key!r:.60}") from error


def _write_queue_key(queue: MessageQueue) -> ObjectKey:
    return ObjectKey.of(write_queue(queue))


def _read_text_key(key: Any) -> str:
    if type(key) is str:
        return key
    raise Unreadable(f"a key has to be text, not the object {dict(key)!r:.60}")


def _key(hint: Any) -> Shape:
    if hint is MessageQueue:
        return Shape(_read_queue_key, _write_queue_key)
    if hint is str:
        return Shape(_read_text_key)
    return shape(hint)


def _items(container: Callable[[Any], Any], item: Shape, *, ordered: bool) -> Shape:
    read_item, write_item = item.read, item.write

    def read(tree: Any) -> Any:
        if type(tree) is not list:
            raise Unreadable(f"has to be an array, not {kind(tree)}")
        found: list[Any] = []
        try:
            for value in tree:
                if value is not None:
                    found.append(read_item(value))  # noqa: PERF401 - counts how far it came
        except ValueError as error:
            raise _unreadable(error).under(f"[{len(found)}]") from None
        return container(found)

    def write(values: Any) -> list[Any]:
        return [write_item(value) for value in (values if ordered else sorted(values))]

    return Shape(read, write)


def _mapping(key: Shape, item: Shape) -> Shape:
    read_key, read_item, write_key, write_item = key.read, item.read, key.write, item.write

    def read(tree: Any) -> dict[Any, Any]:
        if type(tree) is not dict:
            raise Unreadable(f"has to be an object, not {kind(tree)}")
        found: dict[Any, Any] = {}
        name: Any = ""
        try:
            for name, value in tree.items():
                if value is not None:
                    found[read_key(name)] = read_item(value)
        except ValueError as error:
            raise _unreadable(error).under(f"{{{name!s:.60}}}") from None
        return found

    def write(values: dict[Any, Any]) -> dict[Any, Any]:
        return {write_key(name): write_item(value) for name, value in values.items()}

    return Shape(read, write)


def _unreadable(error: ValueError) -> Unreadable:
    return error if isinstance(error, Unreadable) else Unreadable(str(error))


def _optional(inner: Shape) -> Shape:
    read, write = inner.read, inner.write
    return Shape(
        lambda value: None if value is None else read(value),
        lambda value: None if value is None else write(value),
    )


_SIMPLE: Final[dict[Any, Shape]] = {
    str: Shape(scalars.json_text, _same, "type(v) is str"),
    bool: Shape(scalars.json_bool, _same, "type(v) is bool"),
    float: Shape(scalars.json_float, float, "type(v) is float"),
    MessageQueue: Shape(read_queue, write_queue),
    Any: Shape(_same),
}


def without_none(hint: Any) -> Any:
    """`X` for `X | None`, and any other hint unchanged."""
    if get_origin(hint) in (Union, UnionType):
        rest = [arm for arm in get_args(hint) if arm is not type(None)]
        if len(rest) == 1:
            return rest[0]
    return hint


def annotation(hint: Any, wanted: type) -> Any:
    """What of type `wanted` is put beside the hint with `Annotated`, or None."""
    if get_origin(hint) is Annotated:
        return next((extra for extra in hint.__metadata__ if isinstance(extra, wanted)), None)
    return None


@cache
def shape(hint: Any) -> Shape:
    """The shape of a type, made once."""
    if hint in _SIMPLE:
        return _SIMPLE[hint]
    if (form := annotation(hint, Form)) is not None:
        return Shape(form.read, form.write)
    if (width := annotation(hint, Width)) is not None:
        return _whole(width)
    if (inner := without_none(hint)) is not hint:
        return _optional(shape(inner))
    arguments = get_args(hint)
    match get_origin(hint):
        case container if container in (list, tuple):
            return _items(container, shape(arguments[0]), ordered=True)
        case container if container in (set, frozenset):
            return _items(container, shape(arguments[0]), ordered=False)
        case container if container is dict:
            return _mapping(_key(arguments[0]), shape(arguments[1]))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    if is_dataclass(hint) and isinstance(hint, type):
        return _object(hint)
    raise TypeError(f"{hint!r} has no form in JSON; whole numbers have to be Int or Long")


def _object(cls: type) -> Shape:
    members = [part for part in parts(cls) if part.where is Where.NEAR]
    return Shape(_reader(cls, members), _writer(cls, members))


def _reader(cls: type, members: list[Part]) -> Callable[[Any], Any]:
    source = Source(cls, "def read(tree):")
    source.names |= {"Unreadable": Unreadable, "kind": kind, "missing": missing}
    source.add(" if type(tree) is not dict:")
    source.add(f"  raise Unreadable('has to be an object ({cls.__name__}), not ' + kind(tree))")
    source.add(" get = tree.get")
    source.add(" self = new(owner)")
    source.add(" try:")
    source.add("  pass")
    for part in members:
        read_member(source, part)
    source.add(" except ValueError as error:")
    source.add("  raise blame(error) from None")
    source.add(" return self")
    return source.function()


def read_member(source: Source, part: Part, *, indent: str = "  ") -> None:
    """The lines that set one field of `self` from the members that `get` looks up."""
    reading = shape(without_none(part.hint)).reading(source)
    source.add(f"{indent}v = get({part.wire!r})", part.wire)
    if part.required:
        source.add(f"{indent}if v is None: raise missing()", part.wire)
        source.add(f"{indent}self.{part.name} = {reading}", part.wire)
    else:
        default = absent(source, part)
        source.add(f"{indent}self.{part.name} = {default} if v is None else {reading}", part.wire)


def absent(source: Source, part: Part) -> str:
    """The expression for what a field is when the peer left it out."""
    if part.factory is not None:
        return f"{source.give(part.factory)}()"
    return source.give(part.default)


def _writer(cls: type, members: list[Part]) -> Callable[[Any], Any]:
    source = Source(cls, "def write(self):")
    source.add(" tree = {}")
    source.add(" try:")
    source.add("  pass")
    for part in members:
        write_member(source, part)
    source.add(" except (ValueError, TypeError, AttributeError) as error:")
    source.add("  raise blame(error) from None")
    source.add(" return tree")
    return source.function()


def write_member(source: Source, part: Part, *, indent: str = "  ") -> None:
    """The lines that put one field of `self` into `tree`."""
    writing = shape(without_none(part.hint)).writing(source)
    source.add(f"{indent}v = self.{part.name}", part.wire)
    absent_when_none = "if v is not None: " if without_none(part.hint) is not part.hint else ""
    source.add(f"{indent}{absent_when_none}tree[{part.wire!r}] = {writing}", part.wire)
