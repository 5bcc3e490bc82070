"""The short form of `./dev bench faults`: every case of it, with servers in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import _fault_cases as cases
from gantrymq.net.aio import connect
from tests.cluster.consumers import Site
from tests.support import world

SLACK = 4.0
"""Seconds that a call may be late on a machine that is busy with other tests."""
AT_ONCE = 8


class Servers:
    """Those of a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.addresses: Mapping[str, str] = {cases.NAMES: site.names.address} | {
            name: server.address for name, server in site.brokers.items()
        }

    async def stop(self, who: str) -> None:
        await (self._site.stop_names() if who == cases.NAMES else self._site.stop(who))

    async def start(self, who: str) -> None:
        if who == cases.NAMES:
            await self._site.start_names()
        else:
            await self._site.start(who)


async def play(case: cases.Case, directory: Path) -> str | None:
    async with Site(
        world("tcp on asyncio"),
        directory,
        cases.BROKERS,
        of_names={"routes__order": True},
        registering__interval="1s",
    ) as site:
        await site.topic(cases.TOPIC, cases.QUEUES)
        if case.work.ordered:
            async with asyncio.timeout(5):
                names = await connect(site.names.address)
                await names.call(cases.fixed_order(), timeout=5)
                names.close()
                await names.wait_closed()
        ledger = await cases.play(case, Servers(site), slack=SLACK)
        return f"{case}: {'; '.join(ledger.wrong)}" if ledger.wrong else None


@pytest.mark.parametrize("work", cases.WORKS, ids=lambda work: type(work).__name__)
def test_faults_lose_nothing_and_calls_end(work: cases.Work, tmp_path: Path) -> None:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(case: cases.Case) -> str | None:
        async with turns:
            return await play(case, tmp_path / getattr(case.fault, "__name__", ""))

    async def main() -> list[str | None]:
        mine = [case for case in cases.CASES if case.work is work]
        return await asyncio.gather(*map(one, mine))

    assert [wrong for wrong in asyncio.run(main()) if wrong] == []


def test_there_are_sixty_cases() -> None:
    assert len({str(case) for case in cases.CASES}) == 60
