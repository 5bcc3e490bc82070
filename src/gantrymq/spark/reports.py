"""Reports: one HTML file with words, tables and plots, which opens anywhere without a network.

```python
report = Report("Queues", "what is in them")
report.table(("queue", "messages"), [("orders[broker-a:0]", 1200)])
with report.plot("Messages over time") as axes:
    axes.plot(seconds, messages)
report.write(path)
```

Plots are drawn by matplotlib as SVG and put into the page itself. Everything that comes from data
is escaped; numbers are written for people.
"""

from __future__ import annotations

import io
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS: Final = ("#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#a463f2", "#97bbf5", "#9c6b4e")
Lines: TypeAlias = Mapping[str, tuple[Sequence[float], Sequence[float]]]
"""Lines by name: where their points are, and how high."""
_SIZE: Final = (8.4, 3.4)
_POINTS: Final = 90
"""About how many points a line over time has."""
_AROUND: Final = 30
"""Seconds to both sides of a single point in time."""
_FEW: Final = 40
"""Points of a line that are seen one by one."""

_HEAD: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  :root {{ color-scheme: light; }}
  body {{ font: 16px/1.5 system-ui, sans-serif; color: #1b1e23; background: #fff;
         max-width: 60rem; margin: 2.5rem auto; padding: 0 1.25rem; }}
  h1 {{ font-size: 1.7rem; margin-bottom: 0; }}
  h2 {{ font-size: 1.2rem; margin-top: 2.25rem; }}
  p.lead {{ color: #5b6470; margin-top: .25rem; }}
  table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
  div.wide {{ overflow-x: auto; }}
  th, td {{ padding: .3rem .8rem; border-bottom: 1px solid #e3e6ea; text-align: right; }}
  th {{ border-bottom-color: #9aa3ae; font-weight: 600; }}
  th:first-child, td:first-child {{ text-align: left; padding-left: 0; }}
  figure {{ margin: 1rem 0; }}
  figure svg {{ max-width: 100%; height: auto; }}
  figcaption {{ color: #5b6470; font-size: .9rem; }}
</style>
</head>
<body>
"""


class Report:
    """A page that grows from top to bottom."""

    def __init__(self, title: str, lead: str = "") -> None:
        self._parts = [_HEAD.format(title=escape(title)), f"<h1>{escape(title)}</h1>\n"]
        if lead:
            self._parts.append(f'<p class="lead">{escape(lead)}</p>\n')

    def heading(self, text: str) -> None:
        """Begin a part of the page."""
        self._parts.append(f"<h2>{escape(text)}</h2>\n")

    def text(self, text: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{escape(text)}</p>\n")

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """A table; the first column is what its rows are about."""
        cells = "".join(f"<th>{escape(name)}</th>" for name in head)
        lines = [f"<tr>{cells}</tr>"]
        for row in rows:
            cells = "".join(f"<td>{escape(number(value))}</td>" for value in row)
            lines.append(f"<tr>{cells}</tr>")
        table = "\n".join(lines)
        self._parts.append(f'<div class="wide"><table>\n{table}\n</table></div>\n')

    @contextmanager
    def plot(self, caption: str, *, size: tuple[float, float] = _SIZE) -> Iterator[Axes]:
        """Axes to draw on; the picture is taken at the end of the block."""
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        style: dict[Any, Any] = {
            "axes.prop_cycle": cycler(color=COLOURS),
            "axes.spines.top": False,
            "axes.spines.right": False,
            "font.family": ["DejaVu Sans"],
            "legend.frameon": False,
            "svg.fonttype": "path",
            "svg.hashsalt": caption,
        }
        with rc_context(style):
            figure = Figure(figsize=size, layout="constrained")
            axes = figure.add_subplot()
            yield axes
            picture = io.StringIO()
            figure.savefig(picture, format="svg", metadata={"Date": None})
        _, _, svg = picture.getvalue().partition("<svg")
        self._parts.append(
            f"<figure>\n<svg{svg}<figcaption>{escape(caption)}</figcaption>\n</figure>\n"
        )

    def bars(self, caption: str, counts: Mapping[str, float], unit: str) -> None:
        """Bars side by side, the first at the top."""
        with self.plot(caption, size=(_SIZE[0], 1.0 + 0.22 * len(counts))) as axes:
            axes.barh(list(counts), list(counts.values()))
            axes.set_xlabel(unit)
            axes.invert_yaxis()
            axes.margins(y=0.02)

    def html(self) -> str:
        """The whole page."""
        return "".join((*self._parts, "</body>\n</html>\n"))

    def write(self, path: Path) -> None:
        """Put it there; who looks meanwhile sees the page before it, or all of this one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}.new")
        beside.write_text(self.html(), encoding="utf-8")
        beside.replace(path)


def over_seconds(axes: Axes, unit: str) -> None:
    """Finish axes whose lines go over seconds from the beginning."""
    axes.set_xlabel("seconds")
    axes.set_ylabel(unit)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def over_clock(axes: Axes, lines: Lines, unit: str) -> None:
    """Lines over the time of day, UTC: seconds since 1970 and values of each, by name."""
    import matplotlib.dates

    for name, (seconds, values) in lines.items():
        times: Any = [datetime.fromtimestamp(second, UTC) for second in seconds]
        axes.plot(times, values, label=name, marker="." if len(times) < _FEW else None)
    dates: Any = matplotlib.dates  # which has no types
    if len(moments := {second for seconds, _ in lines.values() for second in seconds}) == 1:
        at = moments.pop()  # which would else stand in the middle of years
        ends: Any = [datetime.fromtimestamp(at + by, UTC) for by in (-_AROUND, _AROUND)]
        axes.set_xlim(*ends)
    locator = dates.AutoDateLocator(tz=UTC)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=UTC))
    axes.set_ylabel(unit)
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def step_of(span: int) -> int:
    """Seconds between points of lines over that many, such as people like."""
    likes = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600)
    return next((step for step in likes if span / step <= _POINTS), 86_400)


def rates(times: Sequence[float], counts: Sequence[float]) -> list[float]:
    """How much a second was added from each time to the next."""
    return [
        (count - before) / max(1e-3, time - at)
        for (at, before), (time, count) in pairwise(zip(times, counts, strict=True))
    ]


def fullest(counts: Collection[float]) -> float:
    """How many times the mean the largest is: 1 where all are the same, 0 where nothing is."""
    total = sum(counts)
    return max(counts) * len(counts) / total if total else 0.0


def percent(part: float) -> str:
    """A part of the whole, with more digits where it is small."""
    value = part * 100
    digits = 4 if 0 < value < 0.1 else 2 if value < 10 else 1
    return f"{value:.{digits}f} %"


def number(value: object) -> str:
    """A value as people like to read it: 1 234 567, 0.0123."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (value.is_integer() and abs(value) >= 1000):
        return f"{int(value):,}".replace(",", "\N{THIN SPACE}")
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace(",", "\N{THIN SPACE}")
    return f"{value:.3g}"
