"""Cost against size: what a message costs a broker as anything there is grows in number.

Queues, topics, groups, connections, pending timers and a backlog each grow from a few to many, by
sizes that are measured in turns: for each there is a `gantry up` of its own, and who is not
measured is stopped. A cost is the processor time of the server, chores included, so it holds on a
busy machine. The slope is the exponent of the power of the size that fits the costs best: 0 is a
cost that size does not change, 1 one that grows as the size does, 0.1 one that a thousand times as
many double. Memory is told for each one more.

| row | the work |
|---|---|
| queues, connections, groups | as in `./dev bench growth` |
| topics, send | 1 KiB to one topic after the other, 32 under way on one connection |
| topics, route | the name server is asked where one topic after the other is |
| timers, send | 1 KiB to a topic, while so many messages wait for a time of their own |
| timers, release | messages that are due a second later, until they are delivered |
| backlog, send | 1 KiB to a topic with so many unread messages |
| backlog, oldest | the first messages of its queues are read, 32 at a time |
| backlog, newest | the last messages are read |

    ./dev bench scale                       all; 20 minutes
    ./dev bench scale --quick               fewer and smaller; under three minutes
    ./dev bench scale --rows timers,backlog
    ./dev bench scale --last                no measuring: what the last run found

What was measured is kept in results/scale, as JSON and as a page with a plot of each row.
"""

# needs: server spark

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import growth
from _driving import keep, note
from _scale_kinds import KINDS as MORE_KINDS
from growth import Cost

from gantrymq.spark.reports import Report

RESULTS: Final = Path(__file__).resolve().parent.parent / "results" / "scale"
KINDS: Final = growth.KINDS | MORE_KINDS
Sizes = dict[str, tuple[int, ...]]
SIZES: Final[Sizes] = {
    "queues": (1, 10, 100, 1_000, 10_000),
    "topics": (1, 10, 100, 1_000, 10_000),
    "groups": (1, 10, 100, 1_000),
    "connections": (1, 10, 100, 2_000),
    "timers": (1, 1_000, 30_000, 1_000_000),
    "backlog": (2_000, 20_000, 200_000, 1_000_000),
}
QUICK: Final[Sizes] = {
    "queues": (1, 30, 1_000),
    "topics": (1, 100, 3_000),
    "groups": (1, 20, 300),
    "connections": (1, 30, 500),
    "timers": (1, 1_000, 50_000),
    "backlog": (2_000, 20_000, 100_000),
}
GROWS: Final = 0.1
"""A slope above this is told as one."""


def rows_of(costs: Sequence[Cost]) -> dict[str, list[Cost]]:
    """The sizes of each row, in their order."""
    found: dict[str, list[Cost]] = {}
    for cost in costs:
        found.setdefault(cost.what, []).append(cost)
    return found


def slope(costs: Sequence[Cost]) -> float:
    """The exponent that fits best, by least squares of the logarithms."""
    points = [(math.log(cost.size), math.log(cost.median)) for cost in costs]
    middle_x = sum(x for x, _ in points) / len(points)
    middle_y = sum(y for _, y in points) / len(points)
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread


def memory_for_one(costs: Sequence[Cost]) -> float:
    """Bytes of the server's own memory that one more takes."""
    first, last = costs[0], costs[-1]
    return (last.memory - first.memory) / (last.size - first.size)


def said(what: str, costs: Sequence[Cost]) -> str:
    """A row in words."""
    exponent, times = slope(costs), costs[-1].median / costs[0].median
    grows = "grows" if exponent > GROWS else "does not grow"
    return (
        f"{what}: slope {exponent:+.3f}, so the cost {grows}: {costs[-1].size:,} cost"
        f" {times:.2f} times what {costs[0].size:,} do; {_bytes(memory_for_one(costs))} of memory"
        " for each one more"
    )


def _bytes(value: float) -> str:
    if abs(value) < 1024:
        return f"{round(value):,} B"
    return f"{value / 1024:,.1f} KiB"


def page(costs: Sequence[Cost], lead: str) -> Report:
    """Every row with its plot and its slope."""
    report = Report("Cost against size", lead)
    report.text(
        "The cost of a message is the processor time of the server's process, chores included; the"
        " slope is the exponent of the power of the size that fits best."
    )
    rows = rows_of(costs)
    report.table(
        ("row", "from", "to", "µs at first", "µs at last", "slope", "memory for one more"),
        [
            (what, all_[0].size, all_[-1].size, round(all_[0].median, 1), round(all_[-1].median, 1),
             f"{slope(all_):+.3f}", _bytes(memory_for_one(all_)))
            for what, all_ in rows.items()
        ],
    )  # fmt: skip
    for kind in dict.fromkeys(what.partition(",")[0] for what in rows):
        report.heading(kind)
        _plot(report, kind, {what: all_ for what, all_ in rows.items() if what.startswith(kind)})
        for what, all_ in rows.items():
            if what.startswith(kind):
                report.text(f"{said(what, all_)}.")
    return report


def _plot(report: Report, kind: str, rows: dict[str, list[Cost]]) -> None:
    with report.plot(f"Processor time of the server for a message, against {kind}") as axes:
        for what, costs in rows.items():
            sizes = [cost.size for cost in costs]
            medians = [cost.median for cost in costs]
            spread = (
                [cost.median - min(cost.rounds) for cost in costs],
                [max(cost.rounds) - cost.median for cost in costs],
            )
            work = what.partition(", ")[2]
            axes.errorbar(
                sizes, medians, yerr=spread, marker="o", capsize=3,
                label=f"{work}, slope {slope(costs):+.3f}",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(kind)
        axes.set_ylabel("µs a message")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


# --- the run --------------------------------------------------------------------------------------


def measure(
    rows: Sequence[str], sizes: Sizes, rounds: int, messages: int, *, into: list[Cost]
) -> None:
    """Everything, row by row, with its slope as soon as it is known."""
    print(f"{'row':<20}{'size':>8}{'a message':>13}{'ratio':>8}{'its memory':>14}", flush=True)
    for number, kind in enumerate(rows, 1):
        note(f"{number} of {len(rows)}: {kind}, {', '.join(f'{size:,}' for size in sizes[kind])}")
        costs = growth.measure(kind, rounds, messages, made=KINDS[kind], sizes=sizes[kind])
        for what, all_ in rows_of(costs).items():
            print(f"  {said(what, all_)}", flush=True)
        into += costs


def kept(costs: Sequence[Cost], messages: int) -> Path:
    """As JSON, and the page beside it."""
    found = [
        {
            "what": what, "slope": slope(all_), "memory_for_one": memory_for_one(all_),
            "sizes": [{"size": one.size, "us": one.rounds, "memory": one.memory} for one in all_],
        }
        for what, all_ in rows_of(costs).items()
    ]  # fmt: skip
    path = keep(RESULTS, found, messages=messages)
    write_page(path)
    return path


def write_page(path: Path) -> None:
    """From what was kept."""
    whole: dict[str, Any] = json.loads(path.read_text("utf-8"))
    costs = [
        Cost(what=row["what"], size=one["size"], rounds=one["us"], memory=one["memory"])
        for row in whole["found"]
        for one in row["sizes"]
    ]
    about = whole["about"]
    machine = f"{about['cores']} processors, {platform.system()} {about['system']}"
    lead = f"{machine}, Python {about['python']}; {path.stem}."
    page(costs, lead).write(path.with_suffix(".html"))
    print(*(said(what, all_) for what, all_ in rows_of(costs).items()), sep="\n")
    note(f"the page is {path.with_suffix('.html')}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(SIZES), help=f"of {','.join(SIZES)}")
    parser.add_argument("--rounds", type=int, help="that are measured of each size")
    parser.add_argument("--messages", type=int, help="messages of a round")
    parser.add_argument("--quick", action="store_true", help="under three minutes")
    parser.add_argument("--last", action="store_true", help="what the last run found")
    asked = parser.parse_args()
    rows = asked.rows.split(",")
    if unknown := set(rows) - set(SIZES):
        parser.error(f"there is no {min(unknown)}; there are {', '.join(SIZES)}")
    if asked.last:
        write_page(max(RESULTS.glob("*.json")))
        return 0
    growth.allow_many_connections()
    rounds = asked.rounds or (2 if asked.quick else 5)
    messages = asked.messages or (8_000 if asked.quick else 40_000)
    costs: list[Cost] = []
    try:
        measure(rows, QUICK if asked.quick else SIZES, rounds, messages, into=costs)
    except KeyboardInterrupt:
        note("interrupted")
    if costs:
        kept(costs, messages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
