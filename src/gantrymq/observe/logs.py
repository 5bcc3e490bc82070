"""Logs on stderr, one line for each record, as text for people or as JSON for programs.

The library logs to `logging.getLogger("gantrymq.…")` and sets nothing up. `to_stderr` is for
programs: it says where all of that goes, and in which form.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final, Literal, TextIO, TypeAlias

Form: TypeAlias = Literal["text", "json"]
FORMS: Final[tuple[Form, ...]] = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")

_TEXT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_BREAKS: Final = str.maketrans({"\n": "\\n", "\r": "\\r"})


class TextLine(logging.Formatter):
    """One line for each record, whatever is in it: names come from strangers."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return super().format(record).translate(_BREAKS)


class JsonLine(logging.Formatter):
    """One JSON object for each record; its time is that of the world, not of a time zone."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        when = datetime.fromtimestamp(record.created, UTC)
        found = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)  # of the standard library: it takes broken text, too


def to_stderr(form: Form = "text", *, level: str = "info", stream: TextIO | None = None) -> None:
    """Have everything that is logged from `level` on go to stderr, or to `stream`."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(TextLine(_TEXT) if form == "text" else JsonLine())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.captureWarnings(True)


def in_json() -> bool:
    """Whether somebody asked for JSON, so that last words have to be JSON as well."""
    return any(isinstance(one.formatter, JsonLine) for one in logging.getLogger().handlers)
