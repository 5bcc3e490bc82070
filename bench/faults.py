"""Sixty scripted faults between clients and servers: what is lost, what is late?

A name server and two brokers of ours, each a process of its own, behind relays that cut, reset,
stall, split, slow down and reorder what goes through them; or they are killed and started again.
Fifteen faults, each during four kinds of work: sends one by one, order keys with an ordered group,
a blocking producer with a consumer that polls, gathered sends with a handler of lists. Every
acknowledged message has to come, order keys have to keep their order, every call has to end by its
deadline, and half a minute after the fault every queue has to be sent to and read again.

    ./dev bench faults [--only WORDS] [--at-once N] [--slack SECONDS]

The short form, with all servers in one process, is `tests/cluster/test_faults.py`.
"""

# needs: server, test

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

_HERE: Final = Path(__file__).resolve().parent
for _place in (_HERE, _HERE.parent, _HERE.parent / "tests" / "interop"):
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))

import _fault_cases as cases  # noqa: E402
import apache  # noqa: E402

import gantrymq as gantry  # noqa: E402
from tests.rows.platforms import Process  # noqa: E402

_SETTINGS: Final = ("registering.interval=1s", "flow.enabled=false")


class Processes:
    """A name server and brokers, a process each, on ports that they keep."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="gantry-faults-"))
        self._ports = {name: apache.free_port() for name in (cases.NAMES, *cases.BROKERS)}
        self._running: dict[str, Process] = {}
        self.addresses: Mapping[str, str] = {
            name: f"127.0.0.1:{port}" for name, port in self._ports.items()
        }

    async def stop(self, who: str) -> None:
        """Kill it."""
        await asyncio.to_thread(self._running.pop(who).kill)

    async def start(self, who: str) -> None:
        """Start it on the same port and files."""
        self._running[who] = await asyncio.to_thread(self._process, who)

    def _process(self, who: str) -> Process:
        ready = self._home / f"{who}.json"
        ready.unlink(missing_ok=True)  # a killed one leaves it behind
        what: tuple[str, ...] = ("namesrv", "--set", "routes.order=true")
        if who != cases.NAMES:
            what = ("broker", "--name", f"broker-{who}", "--namesrv", self.addresses[cases.NAMES])
            what += ("--set", "listen.vip=false")
            what += tuple(word for one in _SETTINGS for word in ("--set", one))
        where = ("--port", str(self._ports[who]), "--data", str(self._home / who))
        return Process(self._home / f"{who}.log", ready, *what, *where)

    async def __aenter__(self) -> Self:
        try:
            for who in (cases.NAMES, *cases.BROKERS):
                await self.start(who)
            async with gantry.AsyncAdmin(name_servers=self.addresses[cases.NAMES]) as admin:
                await admin.create_topic(cases.TOPIC, queues=cases.QUEUES)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything."""
        for process in self._running.values():
            await asyncio.to_thread(process.kill)
        await asyncio.to_thread(shutil.rmtree, self._home, ignore_errors=True)


async def play(case: cases.Case, slack: float) -> cases.Ledger:
    """One case, on servers of its own."""
    async with Processes() as servers:
        if case.work.ordered:
            async with gantry.AsyncAdmin(name_servers=servers.addresses[cases.NAMES]) as admin:
                order = cases.fixed_order()
                await admin.put_key(order.namespace, order.key, order.value)
        return await cases.play(case, servers, slack=slack, before=30)


async def play_all(chosen: list[cases.Case], at_once: int, slack: float) -> int:
    """How many cases did not go as they have to."""
    turns = asyncio.Semaphore(at_once)
    wrong = 0
    print(f"{'fault / work':<38}{'acked':>7}{'failed':>7}{'again':>7}{'slowest':>9}{'all in':>8}")

    async def one(case: cases.Case) -> None:
        nonlocal wrong
        async with turns:
            began = time.monotonic()
            ledger = await play(case, slack)
            took = time.monotonic() - began
        slowest = max(ledger.slowest.values(), default=0.0)
        print(
            f"{case!s:<38}{len(ledger.acknowledged):>7}{ledger.failed:>7}{ledger.repeats:>7}"
            f"{slowest:>8.2f}s{took:>7.1f}s",
            flush=True,
        )
        for line in ledger.wrong:
            print(f"  WRONG: {line}", flush=True)
        wrong += bool(ledger.wrong)

    await asyncio.gather(*map(one, chosen))
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench faults", description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--at-once", type=int, default=3, help="cases side by side")
    parser.add_argument("--slack", type=float, default=1.0, help="seconds a call may be late")
    asked = parser.parse_args()
    chosen = [case for case in cases.CASES if asked.only in str(case)]
    began = time.monotonic()
    wrong = asyncio.run(play_all(chosen, asked.at_once, asked.slack))
    print(f"{len(chosen)} cases in {time.monotonic() - began:.0f}s, {wrong} of them wrong")
    sys.exit(1 if wrong or not chosen else 0)


if __name__ == "__main__":
    main()
