"""Kill -9 and power cuts at random moments under load: what was promised is there, once.

`gantry up` is killed while clients send (and, sometimes, while it starts), and started again on the
same files. Power cuts are those of a disk in memory that forgets what was not synced; there the
broker flushes synchronously and runs in this process. After each crash every answer that a client
had is compared with what the broker has: its log, read by a reader of our own, and what it serves.

    messages      each that was answered is where the answer said, none is twice in the log, queues
                  have no gaps, consumers get the same
    transactions  each decision that was answered lasts and counts once; what is open is asked about
    timers        each timed message comes, once, not before its time, unless it was taken back
    levels        the same for messages that wait for a delay level

    ./dev bench crash [messages|transactions|timers|levels …] [--kills N] [--power N] [--seed N]

By default 200 kills of messages, 100 of transactions and timers, 50 of levels; as many power cuts.
"""

# needs: server

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from random import Random

from gantrymq.net import aio
from tests.crashes.decided import Decided
from tests.crashes.load import Load
from tests.crashes.plain import Plain
from tests.crashes.rounds import kill_rounds, power_rounds
from tests.crashes.timed import Delayed, Timed

LOADS: dict[str, tuple[Callable[[Random], Load], int]] = {
    "messages": (Plain, 200),
    "transactions": (Decided, 100),
    "timers": (Timed, 100),
    "levels": (Delayed, 50),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="*", choices=[*LOADS, []], default=[])
    parser.add_argument("--kills", type=int, help="rounds of kill -9")
    parser.add_argument("--power", type=int, help="rounds of power cuts")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    logging.disable(logging.ERROR)  # of recovery there is much to tell, again and again
    for name in given.what or LOADS:
        make, rounds = LOADS[name]
        kills = rounds if given.kills is None else given.kills
        cuts = rounds if given.power is None else given.power
        if kills:
            tell(f"{name}, kill -9", given.seed)
            load, random = make(Random(given.seed)), Random(given.seed)
            result(aio.run(kill_rounds(load, kills, random, report=progress)))
        if cuts:
            tell(f"{name}, power cut", given.seed)
            result(aio.run(power_rounds(make, cuts, Random(given.seed), report=progress)))


def tell(what: str, seed: int) -> None:
    print(f"{what} (seed {seed})", flush=True)


def progress(line: str) -> None:
    print(f"  {line}", file=sys.stderr, flush=True)


def result(counts: dict[str, float]) -> None:
    for name, count in counts.items():
        print(f"    {name:<28}{count:>12,}", flush=True)


if __name__ == "__main__":
    main()
