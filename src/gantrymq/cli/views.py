"""What commands show: tables and pages, as text for people and as data for programs.

A command makes a `Table` (rows of plain values under named columns) or a `Page` (facts, and tables
below them). How a value is written depends on its column's kind and on who reads it: a time is
local for people and ISO 8601 in UTC for programs; what nobody knows is a dash or `null`, never 0.

`table` shortens what does not fit a terminal, `wide` shows every column; into a pipe nothing is
shortened. `json` is one document, `jsonl` a line for each row, `yaml` and `csv` what they are
called; the csv of a page is its main table, or its facts as names and values.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final, Literal, TextIO, TypeAlias

import click

from gantrymq.cli import times

Form: TypeAlias = Literal["table", "wide", "json", "jsonl", "yaml", "csv"]
FORMS: Final[tuple[Form, ...]] = ("table", "wide", "json", "jsonl", "yaml", "csv")
Kind: TypeAlias = Literal[
    "text", "count", "rate", "time", "span", "size", "ratio", "list", "yes", "json"
]
Row: TypeAlias = Mapping[str, Any]

UNKNOWN: Final = "–"
_NUMBERS: Final = frozenset({"count", "rate", "span", "size", "ratio"})


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its key in the data, its kind, and its title where that is not the key."""

    key: str
    kind: Kind = "text"
    title: str = ""
    wide: bool = False
    """Whether only `-o wide` shows it."""
    short: bool = False
    """Whether it may be shortened where there is little room."""

    @property
    def head(self) -> str:
        """What stands above it."""
        return (self.title or self.key.replace("_", " ")).upper()


@dataclass(slots=True)
class Table:
    """Rows under columns."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str = "nothing"
    """What people are told where there is no row."""
    note: str = ""
    """A line below, for people."""
    failures: Mapping[str, BaseException] = field(default_factory=dict)
    """What is missing, and why."""


@dataclass(slots=True)
class Page:
    """Facts about one thing, and tables below them."""

    facts: Sequence[tuple[Column, Any]]
    tables: Mapping[str, Table] = field(default_factory=dict)
    main: str = ""
    """The table that `csv` writes."""
    note: str = ""
    text: str = ""
    """Text for people that stands below everything, as it is."""
    data: Any = None
    """What programs get, where that is not facts and tables."""
    failures: Mapping[str, BaseException] = field(default_factory=dict)


View: TypeAlias = Table | Page


# --- for programs ---------------------------------------------------------------------------------


def plain(value: Any, kind: Kind = "text") -> Any:
    """A value as JSON has it."""
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value.value, int) else str(value.value)
    if value is None or isinstance(value, bool | str):
        return value if not isinstance(value, str) else str(value)
    if isinstance(value, datetime):
        return times.iso(times.ms_of(value))
    if kind == "time":
        return times.iso(value)
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [plain(one) for one in value]
    return str(value)


def data_of(view: View) -> Any:
    """A view as JSON has it: a list of rows, or an object."""
    if isinstance(view, Table):
        return [row_data(view.columns, row) for row in view.rows]
    if view.data is not None:
        return plain(view.data)
    found = {column.key: plain(value, column.kind) for column, value in view.facts}
    return found | {name: data_of(table) for name, table in view.tables.items()}


def row_data(columns: Sequence[Column], row: Row) -> dict[str, Any]:
    """One row as JSON has it; what has no column is left out."""
    return {column.key: plain(row.get(column.key), column.kind) for column in columns}


def json_line(data: Any) -> str:
    """Data on one line."""
    return json.dumps(data, ensure_ascii=False, separators=(", ", ": "))


def write(view: View, form: Form, out: TextIO, *, width: int | None = None) -> None:
    """Write a view; `width` is that of a terminal, None where there is none."""
    if form in ("table", "wide"):
        color = _colored(out)
        text = text_of(view, wide=form == "wide", width=width, color=color)
        out.write(text if color else click.unstyle(text))
        return
    data = data_of(view)
    if form == "json":
        out.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")
    elif form == "jsonl":
        out.writelines(
            json_line(one) + "\n" for one in (data if isinstance(data, list) else [data])
        )
    elif form == "yaml":
        out.write(yaml_text(data))
    else:
        out.write(csv_text(view))


def yaml_text(data: Any) -> str:
    """Data as YAML."""
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=100)
    return text


def csv_text(view: View) -> str:
    """A table as CSV; of a page its main table, or its facts."""
    if isinstance(view, Page) and view.main:
        view = view.tables[view.main]
    if isinstance(view, Page):
        lines = [["name", "value"], *([key.key, plain(one, key.kind)] for key, one in view.facts)]
    else:
        head = [column.key for column in view.columns]
        lines = [head, *(list(row_data(view.columns, row).values()) for row in view.rows)]
    return "".join(csv_line(line) for line in lines)


def csv_line(cells: Iterable[Any]) -> str:
    """One line of CSV."""
    import csv

    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow([_csv_cell(cell) for cell in cells])
    return text.getvalue()


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json_line(value) if isinstance(value, list | dict) else str(value)


# --- for people -----------------------------------------------------------------------------------


def shown(value: Any, kind: Kind = "text") -> str:
    """A value as people read it."""
    if value is None:
        return UNKNOWN
    if kind == "yes" or isinstance(value, bool):
        return "yes" if value else "no"
    if kind == "time":
        return times.local(value)
    if kind == "count":
        return f"{value:,}"
    if kind == "rate":
        return f"{value:,.1f}"
    if kind == "span":
        return times.span_text(value)
    if kind == "size":
        return size_text(value)
    if kind == "ratio":
        return f"{100 * value:.0f} %"
    if kind == "json" and not isinstance(value, str):
        return json_line(value)
    return _words(value)


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_words(one)}" for key, one in value.items()) or "none"
    if isinstance(value, Enum):
        return str(plain(value))
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return ", ".join(map(_words, value)) or "none"
    return str(value)


def size_text(size: float) -> str:
    """Bytes with a unit."""
    if size < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024 or unit == "TiB":
            break
    return f"{size:.1f} {unit}"


def text_of(
    view: View, *, wide: bool = False, width: int | None = None, color: bool = False
) -> str:
    """A view as people read it."""
    if isinstance(view, Table):
        note = f"{view.note}\n" if view.note else ""
        return _table_text(view, wide=wide, width=width, color=color) + note
    parts = [_facts_text(view.facts, color=color)] if view.facts else []
    for name, table in view.tables.items():
        title = _styled(name.replace("_", " ").upper(), "bold", color)
        body = _table_text(table, wide=wide, width=width, color=color, title=False)
        parts.append(f"{title}\n{_indented(body)}{_indented(table.note) if table.note else ''}")
    if view.text:
        parts.append(view.text.strip("\n") + "\n")
    if view.note:
        parts.append(f"{view.note}\n")
    return "\n".join(parts)


def _facts_text(facts: Sequence[tuple[Column, Any]], *, color: bool) -> str:
    names = [(column.title or column.key.replace("_", " ")) for column, _ in facts]
    room = max(map(len, names)) + 2
    lines = []
    for name, (column, value) in zip(names, facts, strict=True):
        text = shown(value, column.kind).replace("\n", "\n" + " " * room)
        lines.append(f"{_styled(name.ljust(room), 'cyan', color)}{text}".rstrip() + "\n")
    return "".join(lines)


def _table_text(
    table: Table, *, wide: bool, width: int | None, color: bool, title: bool = True
) -> str:
    from rich.cells import cell_len

    if not table.rows:
        return f"{table.empty}\n"
    columns = [column for column in table.columns if wide or not column.wide]
    cells = [
        [shown(row.get(c.key), c.kind).replace("\n", " ") for c in columns] for row in table.rows
    ]
    heads = [column.head for column in columns]
    rooms = [
        max(cell_len(one) for one in (head, *column))
        for head, column in zip(heads, zip(*cells, strict=True), strict=True)
    ]
    if width is not None and not wide:
        rooms = _squeezed(columns, rooms, width - (0 if title else 2))
    lines = [_styled(_line(columns, rooms, heads), "bold", color)]
    lines += [_line(columns, rooms, line) for line in cells]
    return "".join(line + "\n" for line in lines)


def _squeezed(columns: Sequence[Column], rooms: list[int], width: int) -> list[int]:
    """Rooms that fit: those that may be shortened give what is too much, the widest first."""
    over = sum(rooms) + 2 * (len(rooms) - 1) - width
    rooms = list(rooms)
    may = [n for n, column in enumerate(columns) if column.short]
    while over > 0 and may:
        widest = max(may, key=lambda n: rooms[n])
        if rooms[widest] <= 8:
            break
        rooms[widest] -= 1
        over -= 1
    return rooms


def _line(columns: Sequence[Column], rooms: Sequence[int], cells: Sequence[str]) -> str:
    fitted = [
        _fit(cell, room, right=column.kind in _NUMBERS)
        for column, room, cell in zip(columns, rooms, cells, strict=True)
    ]
    return "  ".join(fitted).rstrip()


def _fit(text: str, room: int, *, right: bool) -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) > room:
        return set_cell_size(text, room - 1) + "…"
    gap = " " * (room - cell_len(text))
    return gap + text if right else text + gap


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def _styled(text: str, style: str, color: bool) -> str:
    if not color:
        return text
    return click.style(text, bold=True) if style == "bold" else click.style(text, fg=style)


def _colored(out: TextIO) -> bool:
    from gantrymq.cli.screen import is_colored

    return is_colored(out)


def stream(columns: Sequence[Column], rows: Iterable[Row], form: Form) -> Iterator[str]:
    """Rows as text, one after the other as they come; `table` and `wide` are somebody else's."""
    if form == "csv":
        yield csv_line(column.key for column in columns)
        for row in rows:
            yield csv_line(row_data(columns, row).values())
    elif form == "json":
        yield from _json_stream(columns, rows)
    else:
        for row in rows:
            data = row_data(columns, row)
            yield json_line(data) + "\n" if form == "jsonl" else yaml_text([data])


def _json_stream(columns: Sequence[Column], rows: Iterable[Row]) -> Iterator[str]:
    before = "["
    for row in rows:
        yield f"{before}\n  {json_line(row_data(columns, row))}"
        before = ","
    yield "[]\n" if before == "[" else "\n]\n"
