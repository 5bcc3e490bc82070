"""What bench/broker.py found: the table, and the files that it keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from _broker_rows import ROWS, SIZES, Row
from _broker_servers import APACHE, GANTRY, NAMES
from _driving import Measured, median

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "broker"


def lines(row: Row, size: str, rounds: dict[str, list[Measured]]) -> Iterator[str]:
    """What the table says of a row."""
    for number in row.numbers:
        values = {side: median(rounds[side], number) for side in NAMES if rounds.get(side)}
        name = row.name if number == "rate" else f"{row.name} {number.replace('p999', 'p99.9')}"
        text = f"{name:<14}{size:>6}"
        for side in NAMES:
            value = values.get(side)
            text += f"{'-' if value is None else f'{value:,.0f}':>12}"
        text += f" {row.unit:<3}"
        if len(values) == len(NAMES):
            ours, theirs = values[GANTRY], values[APACHE]
            text += f"{ours / theirs if row.more_is_better else theirs / ours:>7.2f}"
        for side in NAMES:
            if side in values:
                text += f"   {median(rounds[side], 'cpu_us'):>7.1f}"
        yield text


FOOTPRINT: Final = {
    "start": (("seconds", "start, empty store", "s", 2), ("mib", "  memory then", "MiB", 0)),
    "memory": (("mib", "memory, filled", "MiB", 0), ("most", "  most, with files", "MiB", 0)),
}


def footprint_lines(what: str, rounds: dict[str, list[Measured]]) -> Iterator[str]:
    """What the table says of `start` or `memory`."""
    for name, title, unit, digits in FOOTPRINT[what]:
        values = {side: median(rounds[side], name) for side in NAMES if rounds.get(side)}
        text = f"{title:<20}"
        for side in NAMES:
            text += f"{values[side]:>12,.{digits}f}" if side in values else f"{'-':>12}"
        text += f" {unit:<3}"
        if len(values) == len(NAMES):
            text += f"{values[APACHE] / values[GANTRY]:>7.2f}"
        yield text


HEAD: Final = (
    f"{'row':<14}{'body':>6}{APACHE:>12}{GANTRY:>12}{'ratio':>11}   processor µs a message"
)


def newest(directory: Path) -> dict[tuple[str, str], dict[str, list[Measured]]]:
    """The newest result of each row and size that both sides have."""
    found: dict[tuple[str, str], dict[str, list[Measured]]] = {}
    for path in sorted(directory.glob("*.json")):
        for one in json.loads(path.read_text())["found"]:
            if set(NAMES) <= one["rounds"].keys():
                found[one["row"], one.get("size", "")] = one["rounds"]
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
