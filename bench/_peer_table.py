"""The table of bench/peers.py: its rows, and how they become JSON, Markdown and a page with plots.

A row has a number of each side that has one. A ratio says how many times as fast Gantry is, or how
many times as little it takes: above 1 is better, whatever the unit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gantrymq.spark.reports import COLOURS, Report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS: Final = "gantry"
SIDES: Final = {"gantry": "Gantry", "rocketmq": "RocketMQ", "kafka": "Kafka"}
BEGIN: Final = "<!-- peers: from here on ./dev bench peers --readme writes -->"
END: Final = "<!-- peers: up to here -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One thing that was measured, beside each other."""

    section: str
    name: str
    unit: str
    values: dict[str, float]
    more_is_better: bool = True

    def ratio(self, theirs: str) -> float | None:
        """How many times as good ours is."""
        mine, other = self.values.get(OURS), self.values.get(theirs)
        if not mine or not other:
            return None
        return mine / other if self.more_is_better else other / mine


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A benchmark that was run for the table."""

    command: str
    seconds: float
    exit_code: int


@dataclass(slots=True, kw_only=True)
class Table:
    """Everything that a run found."""

    date: str
    command: str
    machine: str
    versions: dict[str, str]
    legends: dict[str, str]
    """What the columns of a section are, by its title."""
    rows: list[Row] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    """What could not be measured, and why."""

    def sections(self) -> Iterator[tuple[str, list[Row]]]:
        """The rows under their titles."""
        for title in self.legends:
            if rows := [row for row in self.rows if row.section == title]:
                yield title, rows


def as_json(table: Table) -> str:
    """With the ratios, which others then need not work out."""
    found = asdict(table)
    for row, told in zip(table.rows, found["rows"], strict=True):
        told["ratios"] = {side: row.ratio(side) for side in SIDES if side != OURS}
    return json.dumps(found, indent=1) + "\n"


def from_json(text: str) -> Table:
    """What `as_json` wrote."""
    found: dict[str, Any] = json.loads(text)
    for told in found["rows"]:
        del told["ratios"]
    rows = [Row(**told) for told in found.pop("rows")]
    parts = [Part(**told) for told in found.pop("parts")]
    return Table(**found, rows=rows, parts=parts)


# --- words ----------------------------------------------------------------------------------------


def text_of(value: float | None) -> str:
    """A number as people read it; three digits are enough for what a machine measures."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}"


def cells(row: Row) -> list[str]:
    """The row as texts: name, sides, ratios."""
    measured = [text_of(row.values.get(side)) for side in SIDES]
    ratios = [row.ratio(side) for side in SIDES if side != OURS]
    return [
        f"{row.name}, {row.unit}",
        *measured,
        *("–" if ratio is None else f"{ratio:.2f}" for ratio in ratios),
    ]


HEAD: Final = ("", *SIDES.values(), *(f"to {name}" for side, name in SIDES.items() if side != OURS))


def markdown(table: Table) -> str:
    """For the README."""
    versions = ", ".join(f"{name} {version}" for name, version in table.versions.items())
    lines = [
        f"Measured on {table.date} by `{table.command}`, all in one run on one machine:"
        f" {table.machine}. {versions}. A ratio above 1 says that Gantry is ahead.",
        "",
        f"| {' | '.join(HEAD)} |",
        f"|---|{'--:|' * (len(HEAD) - 1)}",
    ]
    for title, rows in table.sections():
        lines.append(f"| **{title}** |{' |' * (len(HEAD) - 1)}")
        lines += [f"| {' | '.join(_bold(cells(row)))} |" for row in rows]
    lines += ["", *(f"- {title}: {legend}." for title, legend in _legends(table))]
    lines += [f"- Not measured: {why}." for why in table.absent]
    return "\n".join(lines) + "\n"


def _legends(table: Table) -> Iterator[tuple[str, str]]:
    for title, _ in table.sections():
        yield title, table.legends[title]


def _bold(texts: Sequence[str]) -> Iterator[str]:
    for at, text in enumerate(texts):
        ahead = at > len(SIDES) and text != "–" and float(text) >= 1
        yield f"**{text}**" if ahead else text


def into_readme(path: Path, table: Table) -> None:
    """Put the table between its marks."""
    before, begin, rest = path.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks {BEGIN!r} or {END!r}")
    path.write_text(f"{before}{BEGIN}\n\n{markdown(table)}\n{END}{after}", "utf-8")


def plain(table: Table) -> Iterator[str]:
    """For the terminal."""
    yield f"{'':<48}" + "".join(f"{name:>13}" for name in HEAD[1:])
    for title, rows in table.sections():
        yield title
        for row in rows:
            name, *texts = cells(row)
            yield f"  {name:<46}" + "".join(f"{text:>13}" for text in texts)
    yield from (f"not measured: {why}" for why in table.absent)


# --- the page -------------------------------------------------------------------------------------


def page(table: Table) -> Report:
    """Everything, with plots."""
    report = Report("Gantry beside its peers", f"{table.date}, {table.machine}.")
    report.text(
        "A ratio says how many times as fast Gantry is, or how many times as little it takes:"
        " above 1, Gantry is ahead."
    )
    for title, rows in table.sections():
        report.heading(title)
        report.text(f"{table.legends[title]}.")
        report.table(HEAD, [cells(row) for row in rows])
        _ratios(report, title, rows)
        for unit in dict.fromkeys(row.unit for row in rows):
            _values(report, title, unit, [row for row in rows if row.unit == unit])
    if table.absent:
        report.heading("Not measured")
        for why in table.absent:
            report.text(why)
    report.heading("How it was measured")
    report.text(f"By {table.command}, which ran these one after the other:")
    report.table(
        ("command", "seconds", "exit code"),
        [(part.command, round(part.seconds), part.exit_code) for part in table.parts],
    )
    report.table(("of", "version"), list(table.versions.items()))
    return report


def _ratios(report: Report, title: str, rows: Sequence[Row]) -> None:
    others = [side for side in SIDES if side != OURS and any(row.ratio(side) for row in rows)]
    if not others:
        return
    size = (8.4, 1.2 + 0.24 * len(rows) * len(others))
    with report.plot(f"{title}: Gantry against its peers", size=size) as axes:
        for number, side in enumerate(others):
            shown = [(at, ratio) for at, row in enumerate(rows) if (ratio := row.ratio(side))]
            _bars(axes, shown, number, len(others), side, start=1.0)
        axes.set_xscale("log", base=2)
        axes.axvline(1.0, color="#1b1e23", linewidth=1)
        _decimal(axes)
        axes.set_xlabel("times; right of 1 Gantry is ahead")
        _finish(axes, rows)


def _values(report: Report, title: str, unit: str, rows: Sequence[Row]) -> None:
    sides = [side for side in SIDES if any(side in row.values for row in rows)]
    better = "more" if rows[0].more_is_better else "less"
    size = (8.4, 1.2 + 0.2 * len(rows) * len(sides))
    with report.plot(f"{title}: {unit}, {better} is better", size=size) as axes:
        for number, side in enumerate(sides):
            shown = [(at, row.values[side]) for at, row in enumerate(rows) if side in row.values]
            _bars(axes, shown, number, len(sides), side)
        axes.set_xscale("log")
        all_ = [value for row in rows for value in row.values.values() if value > 0]
        axes.set_xlim(10 ** math.floor(math.log10(min(all_))), 2 * max(all_))
        _decimal(axes)
        axes.set_xlabel(unit)
        _finish(axes, rows)


def _bars(
    axes: Axes,
    shown: Sequence[tuple[int, float]],
    number: int,
    of: int,
    side: str,
    *,
    start: float = 0.0,
) -> None:
    """Bars of one side, from `start` to their values."""
    height = 0.8 / of
    places = [at + (number - (of - 1) / 2) * height for at, _ in shown]
    colour = COLOURS[list(SIDES).index(side)]
    bars = axes.barh(
        places, [value - start for _, value in shown], height, left=start, label=SIDES[side],
        color=colour,
    )  # fmt: skip
    axes.bar_label(bars, [text_of(value) for _, value in shown], padding=3, fontsize=7)


def _decimal(axes: Axes) -> None:
    """Write the numbers of a logarithmic axis out, and only those of its main lines."""
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.xaxis.set_minor_formatter(lambda _value, _at: "")


def _finish(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
