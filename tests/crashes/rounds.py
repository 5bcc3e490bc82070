"""Crash after crash, each at a random moment, and a verdict after each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random

from tests.crashes.load import Load
from tests.crashes.victims import Machine, Process

Report = Callable[[str], object]
SETTLE_EVERY = 10
"""Rounds after which everything that is under way is waited for."""


async def kill_rounds(
    load: Load, rounds: int, random: Random, *, report: Report = str, longest: float = 1.2
) -> dict[str, float]:
    """Kill a `gantry up` under `load` that many times; what was counted."""
    victim, kills, began = Process(load.settings), 0, time.monotonic()
    try:
        for number in range(1, rounds + 1):
            victim.flush = random.choice(("sync", "async"))
            await victim.begin()
            if random.random() < 0.15:  # it may die while it recovers, too
                await asyncio.sleep(random.random() * 0.6)
                await victim.kill()
                kills += 1
                await victim.begin()
            await victim.ready()
            await load.judge(victim)
            working = asyncio.create_task(load.work(victim))
            await asyncio.sleep(random.random() * longest)
            if working.done():
                await working
            await victim.kill()
            kills += 1
            await working
            load.crashed()
            if number % SETTLE_EVERY == 0 or number == rounds:
                await _settle(load, victim)
                report(f"{number} rounds: {load.counts()}")
        slowest = max(victim.starts)
    except BaseException:
        report(f"what it said last:\n{victim.said()}")
        raise
    finally:
        await victim.close()
    taken = time.monotonic() - began
    return {**load.counts(), "rounds": rounds, "kills": kills, "slowest start s": round(slowest, 2),
            "seconds": round(taken, 1)}  # fmt: skip


async def _settle(load: Load, victim: Process) -> None:
    await victim.begin()
    await victim.ready()
    await load.settle(victim)
    await victim.stop()


async def power_rounds(
    make: Callable[[Random], Load], rounds: int, random: Random, *, report: Report = str,
    per_disk: int = 10,
) -> dict[str, float]:  # fmt: skip
    """Cut the power under a load that many times, with a new disk now and then."""
    counts: dict[str, float] = {}
    began, done = time.monotonic(), 0
    for first in range(0, rounds, per_disk):
        load = make(random)
        machine = Machine(random, load.settings)
        last = min(first + per_disk, rounds)
        for _ in range(first, last):
            await machine.start()
            await load.judge(machine)
            working = asyncio.create_task(load.work(machine))
            operations = 1 + int(random.random() ** 2 * 3000)
            sure = await machine.cut(operations, 2.0, load.journal.__len__)
            await working
            load.crashed(sure)
        await machine.start()
        await load.settle(machine)
        await machine.close()
        done += machine.operations
        for name, count in load.counts().items():
            counts[name] = counts.get(name, 0) + count
        report(f"{last} rounds: {counts}")
    taken = time.monotonic() - began
    return {**counts, "rounds": rounds, "disk operations": done, "seconds": round(taken, 1)}
