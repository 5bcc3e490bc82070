"""Cuts and flipped bits in a store's files: what is before the damage is served, the rest is not.

Each case damages a copy of a store that a crash left, at a random place: mostly the newest part of
the log, also older parts, queues, index and the small files. Then the store is opened and all of it
is read: it ends at the last whole record before the damage, or says what it leaves out.

    ./dev bench torn [--cases N] [--seed N] [--directory DIR]
"""

# needs: server

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path
from random import Random

from tests.crashes.torn import torn_rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--directory", type=Path, help="where the stores are made")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    print(f"cuts and flipped bits (seed {given.seed})", flush=True)
    with tempfile.TemporaryDirectory(dir=given.directory) as home:
        counts = torn_rounds(
            Path(home), given.cases, Random(given.seed),
            report=lambda line: print(f"  {line}", file=sys.stderr, flush=True),
        )  # fmt: skip
    for name, count in sorted(counts.items()):
        print(f"    {name:<28}{count:>12,}")


if __name__ == "__main__":
    main()
