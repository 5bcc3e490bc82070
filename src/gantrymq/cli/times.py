"""Times, spans of time and rates as people write them, and as tables show them.

A time is an instant (`2026-11-19T10:00Z`, `10:00`, `yesterday 18:30`, milliseconds or seconds since
1970) or relative to now (`15m ago`, `-2h`, `in 5m`, `+5m`, `now`). What has no time zone is local.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    Instants = click.ParamType[datetime]
    Numbers = click.ParamType[float]
else:  # older releases of click do not say of what a type is
    Instants = Numbers = click.ParamType

UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LONG_UNITS: Final = {
    "sec": "s", "secs": "s", "second": "s", "seconds": "s", "min": "m", "mins": "m", "minute": "m",
    "minutes": "m", "hour": "h", "hours": "h", "hr": "h", "hrs": "h", "day": "d", "days": "d",
    "week": "w", "weeks": "w", "milliseconds": "ms", "millis": "ms",
}  # fmt: skip
FORMS: Final = "15m ago, -2h, in 5m, 10:00, yesterday 18:30, 2026-11-19T10:00Z, 1795082400000"

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_CLOCK: Final = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_FIRST_MS: Final = 100_000_000_000
"""Smaller whole numbers are seconds since 1970: the line is in 1973 and in the year 5138."""


def seconds_of(text: str) -> float:
    """The seconds of `1h30m`, `200ms`, `2 days`; a plain number is seconds."""
    wanted = text.strip().lower()
    try:
        return float(wanted)
    except ValueError:
        pass
    parts = _PART.findall(wanted)
    rest = _PART.sub("", wanted).replace(",", "").replace("and", "").strip()
    units = [LONG_UNITS.get(unit, unit) for _, unit in parts]
    if not parts or rest or not all(unit in UNITS for unit in units):
        raise ValueError(f"{text!r} is no span of time: write it as 90s, 15m, 1h30m, 2d, 200ms")
    return sum(float(number) * UNITS[unit] for (number, _), unit in zip(parts, units, strict=True))


def time_of(text: str, now: datetime | None = None) -> datetime:
    """The instant that `text` means, as seen at `now`, which has a time zone: that of the user."""
    here = datetime.now().astimezone() if now is None else now
    wanted = " ".join(text.strip().split())
    found = _relative(wanted.lower(), here) or _by_word(wanted.lower(), here) or _instant(wanted)
    if found is None:
        raise ValueError(f"{text!r} is no time: write it as one of {FORMS}")
    return found if found.tzinfo else found.replace(tzinfo=here.tzinfo)


def _relative(text: str, now: datetime) -> datetime | None:
    if text == "now":
        return now
    if text.endswith(" ago"):
        return now - timedelta(seconds=seconds_of(text.removesuffix(" ago")))
    if text.startswith("in "):
        return now + timedelta(seconds=seconds_of(text.removeprefix("in ")))
    if text[:1] in ("-", "+") and len(text) > 1:
        try:
            span = timedelta(seconds=seconds_of(text[1:]))
        except ValueError:
            return None
        return now - span if text[0] == "-" else now + span
    return None


def _by_word(text: str, now: datetime) -> datetime | None:
    """`10:00`, `today`, `yesterday 18:30`: by the calendar of the user."""
    day, _, clock = text.partition(" ")
    if _CLOCK.fullmatch(text):
        day, clock = "today", text
    back = {"today": 0, "yesterday": 1, "tomorrow": -1}.get(day)
    if back is None or (clock and not _CLOCK.fullmatch(clock)):
        return None
    start = (now - timedelta(days=back)).replace(hour=0, minute=0, second=0, microsecond=0)
    if not clock:
        return start
    hour, minute, *rest = clock.split(":")
    try:
        found = start.replace(hour=int(hour), minute=int(minute))
    except ValueError:
        return None
    return found + timedelta(seconds=float(rest[0]) if rest else 0)


def _instant(text: str) -> datetime | None:
    if text.isdigit():
        number = int(text)
        if len(text) == 8 and text[:2] in ("19", "20"):  # 20261119, as ISO 8601 also has it
            return _iso(text)
        try:
            return datetime.fromtimestamp(number / 1000 if number >= _FIRST_MS else number, UTC)
        except (ValueError, OverflowError, OSError):
            return None
    return _iso(text)


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


# --- as options -----------------------------------------------------------------------------------


class Time(Instants):
    """An instant, with a time zone."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        """Read it."""
        if isinstance(value, datetime):
            return value
        try:
            return time_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Span(Numbers):
    """A span of time, in seconds."""

    name = "span"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        try:
            found = float(value) if isinstance(value, int | float) else seconds_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if found < 0:
            self.fail(f"{value!r} is less than nothing", param, ctx)
        return found


class Rate(Numbers):
    """So many a second: `200`, `200/s`, `1000/m`; 0 for as fast as it goes."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        if isinstance(value, int | float):
            return float(value)
        number, _, unit = str(value).replace("_", "").partition("/")
        try:
            found = float(number) / UNITS[LONG_UNITS.get(unit.strip(), unit.strip()) or "s"]
        except (ValueError, KeyError):
            self.fail(f"{value!r} is no rate: write it as 200/s or 1000/m", param, ctx)
        if found < 0:
            self.fail(f"{value!r} is less than nothing", param, ctx)
        return found


TIME: Final = Time()
SPAN: Final = Span()
RATE: Final = Rate()


# --- as texts -------------------------------------------------------------------------------------


def local(ms: int) -> str:
    """An instant for people, in their own time."""
    return datetime.fromtimestamp(ms / 1000).strftime("%Y-%m-%d %H:%M:%S")


def iso(ms: int) -> str:
    """An instant for programs, in UTC."""
    text = datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def ms_of(when: datetime) -> int:
    """An instant as servers count it."""
    return round(when.timestamp() * 1000)


def now_ms() -> int:
    """The time of day here."""
    return time.time_ns() // 1_000_000


def span_text(seconds: float) -> str:
    """A span of time in its two largest units: `3m 12s`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole, parts = round(seconds), list[str]()
    for unit in ("w", "d", "h", "m", "s"):
        count, whole = divmod(whole, int(UNITS[unit]))
        if count:
            parts.append(f"{count}{unit}")
        if len(parts) == 2 or (parts and unit == "s"):
            break
    return " ".join(parts)
