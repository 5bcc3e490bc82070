"""Values for property tests, made from what requests, replies and bodies declare."""

from __future__ import annotations

from dataclasses import is_dataclass
from enum import Enum, IntEnum
from types import UnionType
from typing import Any, Union, get_args, get_origin

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gantrymq.model import MessageQueue
from gantrymq.protocol import data_version, enums, registration, replicas, resets, text_forms
from gantrymq.protocol.base import Reply, Request
from gantrymq.protocol.declaring import Form, OpenStrEnum, Part, Where, Width, parts
from gantrymq.protocol.json_shapes import annotation, without_none
from gantrymq.wire.codes import Language
from gantrymq.wire.command import Buffer

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(max_size=20)
doubles = st.floats(allow_nan=False, allow_infinity=False)
names = st.text("abcXYZ-_%|09", min_size=1, max_size=12)
"""Names of topics, groups and brokers: what stands in texts that have separators of their own."""
queues = st.builds(MessageQueue, texts, texts, int32s)

_words = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=10)
_keys = names.filter(lambda key: key[0] not in "#!")
_values = _words.filter(lambda value: value == value.strip())


def _form(alias: Any) -> Form:
    form = annotation(alias, Form)
    assert isinstance(form, Form)
    return form


def _strategies_of_forms() -> dict[Form, SearchStrategy[Any]]:
    """What a field may hold whose text or bytes have a form of their own."""
    signed = st.dictionaries(names.map("+{}".format), names, max_size=3)
    dropped = st.dictionaries(names.map("-{}".format), st.just(""), max_size=3)
    tables = st.dictionaries(queues, int64s, max_size=3)
    return {
        _form(text_forms.PropertiesText): st.dictionaries(_keys, _values, max_size=5),
        _form(text_forms.AttributeChanges): st.builds(lambda a, b: a | b, signed, dropped),
        _form(text_forms.CommaJoined): st.lists(names, max_size=4).map(tuple),
        _form(text_forms.SemicolonJoined): st.lists(names, max_size=4).map(tuple),
        _form(text_forms.BitSet): st.integers(0, 1 << 100),
        _form(data_version.DataVersionText): instances(data_version.DataVersion),
        _form(enums.LanguageName): st.sampled_from(Language),
        _form(replicas.CheckpointBytes): instances(replicas.TimerCheckpoint),
        _form(resets.TableBytes): st.builds(resets.OffsetTable, tables, st.booleans()),
        _form(registration.OrderTopics): st.dictionaries(texts, texts, max_size=4),
    }


_of_forms: dict[Form, SearchStrategy[Any]] = {}


def values(hint: Any) -> SearchStrategy[Any]:
    """Values of a type, as far as the declarations use it."""
    if get_origin(hint) in (Union, UnionType) and without_none(hint) is not hint:
        return st.none() | values(without_none(hint))
    if (form := annotation(hint, Form)) is not None:
        if not _of_forms:
            _of_forms.update(_strategies_of_forms())
        return _of_forms[form]
    if (width := annotation(hint, Width)) is not None:
        return int32s if width.bits == 32 else int64s
    simple = {
        str: texts, bool: st.booleans(), float: doubles, MessageQueue: queues, Any: int32s,
        Buffer: st.binary(max_size=40),
    }  # fmt: skip
    if hint in simple:
        return simple[hint]
    return _containers(hint) if get_origin(hint) else _classes(hint)


def _containers(hint: Any) -> SearchStrategy[Any]:
    arguments = [values(argument) for argument in get_args(hint)]
    match get_origin(hint):
        case container if container is list:
            return st.lists(arguments[0], max_size=3)
        case container if container is set:
            return st.sets(arguments[0], max_size=3)
        case container if container is dict:
            return st.dictionaries(*arguments, max_size=3)
    raise TypeError(f"no strategy for {hint!r}")


def _classes(hint: Any) -> SearchStrategy[Any]:
    if issubclass(hint, OpenStrEnum):
        return st.sampled_from(hint) | names.map(hint)
    if issubclass(hint, IntEnum) and hasattr(hint, "known"):
        return st.sampled_from(hint) | int32s.map(hint)
    if issubclass(hint, Enum):
        return st.sampled_from(hint)
    return instances(hint)


def instances(cls: Any) -> SearchStrategy[Any]:
    """Objects of a declared class; what is left out takes its default."""
    required = {part.name: _of_part(cls, part) for part in parts(cls) if part.required}
    optional = {
        part.name: _of_part(cls, part)
        for part in parts(cls)
        if not part.required and part.name not in ("refusal", "more")
    }
    given = st.fixed_dictionaries(required, optional=optional)
    return given.map(lambda arguments: cls(**arguments))


def _of_part(cls: Any, part: Part) -> SearchStrategy[Any]:
    if part.where is Where.FRAME and part.wire == "code" and issubclass(cls, Request):
        return st.sampled_from(cls.codes())
    return values(part.hint)


def wire_names(cls: Any) -> list[str]:
    """Every name that the class looks for in a header."""
    near = [part for part in parts(cls) if part.where is Where.NEAR]
    return [part.wire for part in near] + [part.short for part in near]


def junk_fields(cls: Any) -> SearchStrategy[dict[str, str]]:
    """Header fields that a confused peer could send to the class."""
    values_seen = texts | int64s.map(str) | st.sampled_from(["true", "1" * 50, "-", "{}", "[]"])
    return st.dictionaries(st.sampled_from([*wire_names(cls), "other"]), values_seen, max_size=20)


def json_trees(keys: SearchStrategy[str] = texts) -> SearchStrategy[Any]:
    """Any JSON value."""
    leaves = st.none() | st.booleans() | int64s | doubles | texts
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


def is_reply(cls: Any) -> bool:
    """Whether the class is a reply, not a request."""
    return issubclass(cls, Reply)


def declared_parts(hint: Any) -> list[Part]:
    """The parts of every declared class that a type is made of, one level deep."""
    if is_dataclass(hint) and isinstance(hint, type):
        return list(parts(hint))
    return [part for argument in get_args(hint) for part in declared_parts(argument)]
