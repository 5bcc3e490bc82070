"""What bench/broker.py found: the table, and the files that it keeps."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from _broker_rows import ROWS, SIZES, Row
from _broker_servers import GANTRY, NAMES
from _driving import Measured, median

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "broker"


def lines(row: Row, size: str, rounds: dict[str, list[Measured]]) -> Iterator[str]:
    """What the table says of a row; `rounds` has all sides that the table has."""
    for number in row.numbers:
        values = {side: median(rounds[side], number) for side in rounds if rounds[side]}
        name = row.name if number == "rate" else f"{row.name} {number.replace('p999', 'p99.9')}"
        text = f"{name:<14}{size:>6}"
        for side in rounds:
            value = values.get(side)
            text += f"{'-' if value is None else f'{value:,.0f}':>12}"
        text += f" {row.unit:<3}"
        for theirs in others(rounds):
            text += _ratio(values, theirs, more_is_better=row.more_is_better)
        for side in values:
            text += f"   {median(rounds[side], 'cpu_us'):>7.1f}"
        yield text


def others(sides: Iterable[str]) -> list[str]:
    """Those that Gantry is held against."""
    return [side for side in sides if side != GANTRY]


def _ratio(values: dict[str, float], theirs: str, *, more_is_better: bool) -> str:
    if GANTRY not in values or theirs not in values:
        return f"{'':>7}"
    ratio = values[GANTRY] / values[theirs]
    return f"{ratio if more_is_better else 1 / ratio:>7.2f}"


FOOTPRINT: Final = {
    "start": (("seconds", "start, empty store", "s", 2), ("mib", "  memory then", "MiB", 0)),
    "memory": (("mib", "memory, filled", "MiB", 0), ("most", "  most, with files", "MiB", 0)),
}


def footprint_lines(what: str, rounds: dict[str, list[Measured]]) -> Iterator[str]:
    """What the table says of `start` or `memory`."""
    for name, title, unit, digits in FOOTPRINT[what]:
        values = {side: median(rounds[side], name) for side in rounds if rounds[side]}
        text = f"{title:<20}"
        for side in rounds:
            text += f"{values[side]:>12,.{digits}f}" if side in values else f"{'-':>12}"
        text += f" {unit:<3}"
        for theirs in others(rounds):
            text += _ratio(values, theirs, more_is_better=False)
        yield text


def head(sides: Sequence[str]) -> str:
    """The line above the others."""
    columns = "".join(f"{side:>12}" for side in sides)
    ratios = "".join(f"{f'/{side[:5]}':>7}" for side in others(sides))
    return f"{'row':<14}{'body':>6}{columns}    {ratios}   processor µs a message"


HEAD: Final = head(NAMES)


def newest(directory: Path) -> dict[tuple[str, str], dict[str, list[Measured]]]:
    """The newest result of each row and size that both of `NAMES` have."""
    found: dict[tuple[str, str], dict[str, list[Measured]]] = {}
    for path in sorted(directory.glob("*.json")):
        for one in json.loads(path.read_text())["found"]:
            if set(NAMES) <= one["rounds"].keys():
                both = {side: one["rounds"][side] for side in NAMES}
                found[one["row"], one.get("size", "")] = both
    return found


def table() -> None:
    """Print what was measured last."""
    newest_of = newest(RESULTS)
    print(HEAD)
    for what in FOOTPRINT:
        if (what, "") in newest_of:
            print(*footprint_lines(what, newest_of[what, ""]), sep="\n")
    for size in SIZES:
        for row in ROWS:
            if (row.name, size) in newest_of:
                print(*lines(row, size, newest_of[row.name, size]), sep="\n")
