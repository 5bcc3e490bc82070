"""A shop on one machine: a platform of its own, a stream of orders, and Spark that looks at them.

A name server and two brokers run in this process. Customers order, mails and reminders follow, a
group of three shares the orders while its members come and go, and some mails can never be sent.
Beside it Spark archives all of it to Parquet, adds up revenue, and watches latency and skew.
`examples/shopping` has the parts.

    ./dev run [--seconds N] [--rate N] [--data DIR] [--no-spark]

On a terminal one page shows how it goes; Ctrl-C ends it. Ends with what was sent and what became of
it, and with exit code 0 only if the two agree: sent = consumed + dead-lettered + in flight, and
Parquet has a row for every stored message.
"""

# needs: server spark

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shopping import report
from shopping.books import Verdict, accounts, judge
from shopping.page import showing
from shopping.pipelines import Pipelines
from shopping.samples import History
from shopping.servers import platform, take_stock
from shopping.trade import Shop

import gantrymq as gantry
from gantrymq.net import aio

log = logging.getLogger("shop")

RUNS: Final = Path(__file__).resolve().parent.parent / ".cache" / "run"
KEPT: Final = 3
"""So many runs are kept in there, this one included."""
SETTLING: Final = 60.0
FINISHING: Final = 180.0
"""Seconds that the last messages, and Spark's last micro-batches, may take."""
SETTLING_IF_STOPPED: Final = 1.5
FINISHING_IF_STOPPED: Final = 2.5


class Run:
    """One run, from the first order to the verdict."""

    def __init__(self, address: str, options: argparse.Namespace, data: Path) -> None:
        self.seconds: float = options.seconds
        self.shop = Shop(address, options.rate)
        self.pipelines = None if options.no_spark else Pipelines(address, data / "spark")
        self.history = History(self.shop, self.pipelines, data)

    @property
    def stopped(self) -> bool:
        """Whether somebody ended it."""
        return self.shop.stopping.is_set()

    async def go(self) -> Verdict:
        """All of it."""
        every = max(2.0, min(30.0, self.seconds / 5 or 30.0))
        async with contextlib.AsyncExitStack() as stack:
            admin = await stack.enter_async_context(gantry.AsyncAdmin(self.shop.url))
            if self.pipelines is not None:
                await self.pipelines.start()
            await asyncio.to_thread(report.warm_up)
            await stack.enter_async_context(showing(self.history, admin))
            async with asyncio.TaskGroup() as beside:
                async with self.shop.open(every):
                    await self.shop.sell(self.seconds)
                    log.info("no more orders")
                    if self.stopped and self.pipelines is not None:  # there is no time to lose
                        beside.create_task(self.pipelines.finish(0, FINISHING_IF_STOPPED))
                    await self.shop.settle(SETTLING_IF_STOPPED if self.stopped else SETTLING)
                log.info("nobody is at work any more")
            return await self.conclude(admin)

    async def close(self) -> None:
        """End what runs beside this process."""
        if self.pipelines is not None:
            await self.pipelines.close()

    async def conclude(self, admin: gantry.AsyncAdmin) -> Verdict:
        """Nobody works any more: compare what there is."""
        stored = await take_stock(admin)
        archived: dict[str, int] | None = None
        repeated, failure = 0, None
        if self.pipelines is not None:
            if not self.stopped:
                await self.pipelines.finish(stored.archivable, FINISHING)
            await self.history.take(admin)
            log.info("Spark: %s", self.pipelines.state)
            archived, repeated = self.pipelines.archived, self.pipelines.repeated
            failure = self.pipelines.failure
            if archived is None and not self.stopped:
                failure = failure or f"Spark did not finish in {FINISHING:.0f} s"
        lines = accounts(self.shop.books, stored, archived)
        verdict = judge(self.shop.books, lines, ended=not self.stopped, repeated_rows=repeated)
        if failure:
            verdict.faults.append(failure)
        return verdict


@contextlib.contextmanager
def ending_at_signals(shop: Shop) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the run in good order; a second one at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def end() -> None:
        if shop.stopping.is_set():
            task.cancel()
        shop.stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def trade(options: argparse.Namespace, data: Path) -> int:
    """A platform and a shop on it; the exit code."""
    page = data / "report.html"
    async with platform(data) as address:
        run = Run(address, options, data)
        with ending_at_signals(run.shop):
            try:
                verdict = await run.go()
                writing = asyncio.to_thread(report.write, run.history, verdict, page)
                await asyncio.gather(writing, run.close())
            finally:
                await run.close()
        log.info("the report is written")
    log.info("the platform is closed")
    print(report.summary(run.history, verdict))
    print(f"data       {data}\nreport     {page}")
    if verdict.faults:
        return 1
    return 128 + signal.SIGINT if run.stopped else 0


def directory(given: Path | None) -> Path:
    """Where to put it all; of runs without a place of their own only the last few are kept."""
    if given is not None:
        given.mkdir(parents=True, exist_ok=True)
        return given.resolve()
    RUNS.mkdir(parents=True, exist_ok=True)
    for old in sorted(path for path in RUNS.iterdir() if path.is_dir())[: 1 - KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    data = RUNS / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{os.getpid()}"
    data.mkdir()
    return data


def main() -> int:
    """Read the options, run, report."""
    parser = argparse.ArgumentParser(description="A shop on a platform of its own.")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="how long; without it until Ctrl-C"
    )
    parser.add_argument("--rate", type=float, default=200.0, help="orders a second (200)")
    parser.add_argument(
        "--data", type=Path, help=f"a directory for all that is stored (.cache/run/…, {KEPT} kept)"
    )
    parser.add_argument("--no-spark", action="store_true", help="leave the Spark pipelines out")
    options = parser.parse_args()
    if options.seconds < 0 or options.rate <= 0:
        parser.error("--seconds must not be negative, and --rate has to be positive")
    if options.data and options.data.exists() and any(options.data.iterdir()):
        parser.error(f"--data: {options.data} is not empty, and counts would not agree with it")
    data = directory(options.data)
    # every failed mail is told of in the log, with its traceback
    logging.basicConfig(
        filename=data / "shop.log", level=logging.INFO, format="%(asctime)s %(name)s: %(message)s"
    )
    return aio.run(trade(options, data))


if __name__ == "__main__":
    sys.exit(main())
