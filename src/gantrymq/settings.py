"""How a setting is declared, once, and loaded from wherever a user puts it.

A group of settings is a frozen dataclass whose fields are made with `setting`; groups nest with
`group`. From that one declaration come the key in a TOML file (`flush.mode`), the environment
variable (`GANTRY_BROKER_FLUSH_MODE`), the flag (`--flush-mode`), the alias under which RocketMQ's
own properties files know it, and the row in the reference.

Later sources win: default, TOML file, properties file, environment, flags. A key that no group has
is an error that names the nearest known one; in a RocketMQ properties file, which holds many keys
that mean nothing here, such keys are collected for a warning instead.

Inside, times are seconds and sizes are bytes. At the edge `"500ms"`, `"2 min"`, `"64 MiB"` are
understood, and RocketMQ's milliseconds are converted by their alias.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from gantrymq.errors import ConfigError

T = TypeVar("T")
_HINTS: Final[dict[Any, Mapping[str, Any]]] = {}

_KEY: Final = "gantrymq.setting"


@dataclass(frozen=True, slots=True, eq=False)  # by identity, so that it can stand in a union
class Unit:
    """The unit a number is kept in, and what may stand behind it in text."""

    name: str
    factors: Mapping[str, float]


_TIMES: Final = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0,
    "d": 86400.0,
}  # fmt: skip
_SIZES: Final = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "k": 2**10, "kib": 2**10, "m": 2**20,
    "mib": 2**20, "g": 2**30, "gib": 2**30,
}  # fmt: skip

Seconds: TypeAlias = Annotated[float, Unit("seconds", _TIMES)]
"""A time span: a number of seconds, or text such as `500ms`."""

Bytes: TypeAlias = Annotated[int, Unit("bytes", _SIZES)]
"""A size: a number of bytes, or text such as `64 MiB`."""


@dataclass(frozen=True, slots=True)
class Alias:
    """The key of a setting in RocketMQ's properties files, and how its text becomes ours."""

    key: str
    convert: Callable[[str], str] = str.strip


def millis(key: str) -> Alias:
    """A RocketMQ key that holds milliseconds."""
    return Alias(key, lambda text: f"{text.strip()}ms")


def choice(key: str, **meaning: str) -> Alias:
    """A RocketMQ key that holds one of the words named here, with ours for each."""

    def convert(text: str) -> str:
        word = text.strip()
        if word not in meaning:
            raise ConfigError(f"{key} = {word!r}: it takes one of {', '.join(meaning)}")
        return meaning[word]

    return Alias(key, convert)


@dataclass(frozen=True, slots=True)
class _Declared:
    doc: str
    alias: Alias | None
    check: Callable[[Any], str | None] | None


def setting(
    default: T,
    doc: str,
    *,
    rocketmq: Alias | str | None = None,
    check: Callable[[T], str | None] | None = None,
) -> T:
    """Declare one setting; `check` gives the complaint about a value, or None."""
    alias = Alias(rocketmq) if isinstance(rocketmq, str) else rocketmq
    made: T = field(default=default, metadata={_KEY: _Declared(doc, alias, check)})
    return made


def group(kind: type[T], doc: str) -> T:
    """Declare a nested group of settings."""
    made: T = field(default_factory=kind, metadata={_KEY: _Declared(doc, None, None)})
    return made


def at_least(least: float) -> Callable[[float], str | None]:
    """Complain about anything smaller."""
    return lambda value: None if value >= least else f"the least is {least}"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting as the reference, the flags and the loaders see it."""

    path: str
    type: Any
    default: Any
    doc: str
    alias: Alias | None
    check: Callable[[Any], str | None] | None

    @property
    def flag(self) -> str:
        """The command line's spelling."""
        return "--" + self.path.replace(".", "-").replace("_", "-")

    def variable(self, prefix: str) -> str:
        """The environment's spelling under `prefix`."""
        return f"{prefix}_{self.path.replace('.', '_')}".upper()


def _hints(kind: type[Any]) -> Mapping[str, Any]:
    """The types of its settings; working them out takes longer than all else that loading does."""
    if kind not in _HINTS:
        _HINTS[kind] = get_type_hints(kind, include_extras=True)
    return _HINTS[kind]


def rows(kind: type[Any], prefix: str = "") -> Iterator[Row]:
    """Every setting of `kind` and its nested groups, in the order of declaration."""
    hints = _hints(kind)
    for declared in dataclasses.fields(kind):
        about: _Declared | None = declared.metadata.get(_KEY)
        if about is None:
            raise TypeError(
                f"{kind.__name__}.{declared.name} is not declared with setting or group"
            )
        path, hint = prefix + declared.name, hints[declared.name]
        if dataclasses.is_dataclass(hint):
            yield from rows(declared.default_factory, f"{path}.")  # type: ignore[arg-type]
        else:
            yield Row(path, hint, declared.default, about.doc, about.alias, about.check)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[T]):
    """A loaded group: its value, where each setting came from, and the keys nobody knew."""

    value: T
    origins: Mapping[str, str]
    unknown: tuple[str, ...]


def load(
    kind: type[T],
    *,
    file: Mapping[str, Any] | None = None,
    properties: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    prefix: str = "GANTRY",
    flags: Mapping[str, Any] | None = None,
) -> Loaded[T]:
    """Make a `kind` from all sources; the later ones in the order of the parameters win."""
    known = {row.path: row for row in rows(kind)}
    found: dict[str, tuple[Any, str]] = {}
    unknown: list[str] = []
    for path, value in _flatten(file or {}, known):
        found[_expect(path, known, "setting")] = (value, f"file key {path}")
    by_alias = {row.alias.key: row for row in known.values() if row.alias}
    for key, text in (properties or {}).items():
        if key not in by_alias:
            unknown.append(key)
            continue
        row = by_alias[key]
        assert row.alias is not None
        found[row.path] = (row.alias.convert(text), f"property {key}")
    by_variable = {row.variable(prefix): row.path for row in known.values()}
    for name, text in (environ or {}).items():
        if name.startswith(prefix + "_"):
            path = by_variable[_expect(name, by_variable, "environment variable")]
            found[path] = (text, f"environment variable {name}")
    for path, value in (flags or {}).items():
        found[_expect(path, known, "setting")] = (value, f"flag {path}")
    values = {path: _checked(known[path], value, where) for path, (value, where) in found.items()}
    origins = {path: found[path][1] if path in found else "default" for path in known}
    return Loaded(_build(kind, values, ""), origins, tuple(unknown))


def parse_properties(text: str) -> dict[str, str]:
    """The keys and values of a Java properties file, as RocketMQ's configs use them."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        key, mark, value = line.partition("=")
        if not mark:
            raise ConfigError(f"line {number} of the properties has no '=': {line!r:.80}")
        found[key.strip()] = value.strip()
    return found


def format_properties(values: Mapping[str, str]) -> str:
    """The text of a properties file, sorted by key."""
    return "".join(f"{key}={values[key]}\n" for key in sorted(values))


def seconds(span: str | float | timedelta) -> float:
    """A time span in seconds, from text such as `16 min`, a number of them, or a `timedelta`."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    try:
        return float(_measure(float, Unit("seconds", _TIMES), span))
    except ValueError as error:
        raise ConfigError(str(error)) from error


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the known word closest to `name`, or nothing."""
    close = difflib.get_close_matches(name, list(known), 1, 0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _expect(name: str, known: Mapping[str, Any], what: str) -> str:
    if name in known:
        return name
    raise ConfigError(f"there is no {what} {name}{nearest(name, known)}")


def _flatten(
    tree: Mapping[str, Any], known: Mapping[str, Row], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        path = f"{prefix}{key}".replace("-", "_")
        if isinstance(value, Mapping) and path not in known:
            yield from _flatten(value, known, f"{path}.")
        else:
            yield path, value


def _build(kind: type[T], values: Mapping[str, Any], prefix: str) -> T:
    arguments: dict[str, Any] = {}
    hints = _hints(kind)
    for declared in dataclasses.fields(kind):  # type: ignore[arg-type]
        path = prefix + declared.name
        if dataclasses.is_dataclass(hints[declared.name]):
            nested: Any = declared.default_factory
            arguments[declared.name] = _build(nested, values, f"{path}.")
        elif path in values:
            arguments[declared.name] = values[path]
    return kind(**arguments)


def _checked(row: Row, value: Any, where: str) -> Any:
    try:
        converted = _convert(row.type, value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{row.path} ({where}): {error}") from error
    complaint = row.check(converted) if row.check else None
    if complaint:
        raise ConfigError(f"{row.path} ({where}): {value!r} will not do, {complaint}")
    return converted


def _convert(hint: Any, value: Any) -> Any:
    """`value`, text or already typed, as the declared type wants it."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _measure(arguments[0], arguments[1], value)
    if origin is Literal:
        return _one_of(arguments, value)
    if origin in (Union, UnionType):
        if value is None or value == "":
            return None
        return _convert(next(a for a in arguments if a is not NoneType), value)
    if origin is tuple:
        items = re.split(r"[,;]", value) if isinstance(value, str) else value
        return tuple(_convert(arguments[0], item) for item in items if str(item).strip())
    if hint is bool:
        return _truth(value)
    if hint is str:
        return value.strip() if isinstance(value, str) else str(value)
    if hint in (int, float) and not isinstance(value, bool):
        return _number(hint, value)
    raise ValueError(f"{value!r} is no {getattr(hint, '__name__', hint)}")


def _number(kind: type[int] | type[float], value: Any) -> int | float:
    try:
        return kind(value.replace("_", "").strip() if isinstance(value, str) else value)
    except ValueError:
        raise ValueError(f"{value!r} is no {'whole ' if kind is int else ''}number") from None


_MEASURE: Final = re.compile(r"\s*([-+]?[0-9._]+)\s*([A-Za-z]*)\s*")


def _measure(kind: type[int] | type[float], unit: Unit, value: Any) -> int | float:
    if not isinstance(value, str):
        return _number(kind, value)
    match = _MEASURE.fullmatch(value)
    factor = unit.factors.get(match[2].lower()) if match and match[2] else 1
    if not match or factor is None:
        raise ValueError(
            f"{value!r} is no amount of {unit.name}; a number may be followed by "
            f"{', '.join(unit.factors)}"
        )
    return kind(_number(float, match[1]) * factor)


def _one_of(words: tuple[Any, ...], value: Any) -> Any:
    for word in words:
        if value == word or str(value).strip().lower() == str(word).lower():
            return word
    raise ValueError(f"{value!r} is none of {', '.join(map(str, words))}")


_TRUTH: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def _truth(value: Any) -> bool:
    truth = _TRUTH.get(str(value).strip().lower())
    if truth is None:
        raise ValueError(f"{value!r} is neither true nor false")
    return truth
