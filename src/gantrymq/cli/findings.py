"""What a look at a cluster finds: each with how bad it is, what was seen, and what helps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import click

from gantrymq.cli.views import Column


class Level(IntEnum):
    """How bad it is."""

    OK = 0
    INFO = 1
    WARNING = 2
    ERROR = 3
    UNKNOWN = 4
    """It could not be looked at; that is not the same as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was looked at."""

    level: Level
    check: str
    """What was looked for."""
    subject: str
    """At what."""
    text: str
    """What was seen, with the numbers."""
    remedy: str = ""
    """What helps."""


COLUMNS: Final = (
    Column("level"),
    Column("check"),
    Column("subject"),
    Column("text", title="finding", short=True),
    Column("remedy", short=True),
)
_MARGIN: Final = 21
_COLORS: Final = {
    Level.OK: "green",
    Level.INFO: "blue",
    Level.WARNING: "yellow",
    Level.ERROR: "red",
    Level.UNKNOWN: "magenta",
}


def row_of(one: Finding) -> dict[str, Any]:
    """One finding as data."""
    return {
        "level": one.level.name.lower(),
        "check": one.check,
        "subject": one.subject,
        "text": one.text,
        "remedy": one.remedy,
    }


def report(found: Iterable[Finding], width: int | None = None) -> str:
    """Findings for people, the worst first, each with its remedy below; as wide as the terminal."""
    lines: list[str] = []
    for one in sorted(found, key=lambda one: (-_weight(one.level), one.check)):
        mark = click.style(f"{one.level.name:<8}", fg=_COLORS[one.level], bold=True)
        first, *more = _wrapped(f"{one.subject}: {one.text}", width)
        lines.append(f"{mark}{one.check:<13}{first}")
        lines += [" " * _MARGIN + line for line in more]
        if one.remedy:
            arrow, *more = _wrapped(f"→ {one.remedy}", width)
            lines += [" " * _MARGIN + arrow, *(" " * (_MARGIN + 2) + line for line in more)]
    return "\n".join(lines)


def _wrapped(text: str, width: int | None) -> list[str]:
    import textwrap

    room = 10_000 if width is None else max(30, width - _MARGIN - 2)
    return textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]


def _weight(level: Level) -> float:
    return 1.5 if level is Level.UNKNOWN else float(level)
