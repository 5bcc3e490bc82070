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


def report(found: Iterable[Finding]) -> str:
    """Findings for people, the worst first, each with its remedy below."""
    lines = []
    for one in sorted(found, key=lambda one: (-_weight(one.level), one.check)):
        mark = click.style(f"{one.level.name:<8}", fg=_COLORS[one.level], bold=True)
        lines.append(f"{mark}{one.check:<12} {one.subject}: {one.text}")
        if one.remedy:
            lines.append(f"{'':<21}→ {one.remedy}")
    return "\n".join(lines)


def _weight(level: Level) -> float:
    return 1.5 if level is Level.UNKNOWN else float(level)
