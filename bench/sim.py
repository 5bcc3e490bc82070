"""A cluster under thousands of seeds: what must hold is looked at after each, and told if not.

Each seed is a run of `tests/simulation/world.py`: two brokers, a name server, producers, consumers
of two groups and transactions, in virtual time, with brokers that are killed, connections that
break, members that leave, crash and join. A run that breaks a promise is named with its seed, which
repeats it. With `--planted` a mistake is put into the code first, and has to be found.

    ./dev bench sim [--seeds N] [--from N] [--jobs N] [--planted NAME|all]
"""

# needs: server, test

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.simulation.planted import PLANTED
from tests.simulation.world import Broken, run

PLANTED_SEEDS: Final = 2_000
AT_ONCE: Final = 4
"""Seeds for which a process is sent off at a time."""


def one(seed: int, planted: str | None) -> tuple[int, str | None, Counter[str]]:
    """What came of a seed: what broke, if anything, and what was counted."""
    try:
        if planted is None:
            facts = run(seed)
        else:
            with PLANTED[planted](Random(seed)):
                facts = run(seed)
    except Broken as broken:
        return seed, "; ".join([str(broken), *broken.__notes__]), Counter()
    counted = Counter(
        acknowledged=len(facts.acknowledged),
        handled=sum(map(len, facts.handled.values())),
        transactions=len(facts.decided),
        faults=len(facts.events),
    )
    return seed, None, counted


def several(seeds: list[int], planted: str | None) -> list[tuple[int, str | None, Counter[str]]]:
    """The same for some seeds, in one go."""
    return [one(seed, planted) for seed in seeds]


def outcomes(
    seeds: Iterable[int], jobs: int, planted: str | None
) -> Iterator[tuple[int, str | None, Counter[str]]]:
    """What comes of all of them, in their order."""
    lots = _lots(list(seeds))
    with ProcessPoolExecutor(jobs) as pool:
        try:
            for found in pool.map(several, lots, itertools.repeat(planted)):
                yield from found
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _lots(seeds: list[int]) -> list[list[int]]:
    return [seeds[start : start + AT_ONCE] for start in range(0, len(seeds), AT_ONCE)]


def look_for(planted: str, jobs: int, first: int) -> bool:
    """Whether a planted mistake is found, and by which seed."""
    begun = time.monotonic()
    for seed, broken, _ in outcomes(range(first, first + PLANTED_SEEDS), jobs, planted):
        if broken is not None:
            took = time.monotonic() - begun
            print(f"{planted}: found by seed {seed} after {took:.0f} s: {broken.split(';')[0]}")
            return True
    print(f"{planted}: NOT FOUND by {PLANTED_SEEDS} seeds")
    return False


def look_at_all(seeds: range, jobs: int) -> bool:
    """Whether everything held for every seed."""
    begun, failed, total = time.monotonic(), [], Counter[str]()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("seeds", total=len(seeds))
        for seed, broken, counted in outcomes(seeds, jobs, None):
            total += counted
            progress.advance(task)
            if broken is not None:
                failed.append(seed)
                progress.console.print(f"seed {seed}: {broken}")
    took = time.monotonic() - begun
    print(
        f"{len(seeds):,} seeds in {took:.0f} s with {jobs} processes:"
        f" {len(failed)} broke a promise; {total['faults']:,} faults,"
        f" {total['acknowledged']:,} messages acknowledged, {total['handled']:,} handled,"
        f" {total['transactions']:,} transactions"
    )
    return not failed


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--planted", choices=[*PLANTED, "all"])
    options = parser.parse_args()
    if options.planted is None:
        held = look_at_all(range(options.first, options.first + options.seeds), options.jobs)
    else:
        names = list(PLANTED) if options.planted == "all" else [options.planted]
        found = [look_for(name, options.jobs, options.first) for name in names]  # look for each
        held = all(found)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
