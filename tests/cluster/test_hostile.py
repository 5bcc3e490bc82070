"""The short form of `./dev bench hostile`: hostile frames beside a client that works."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from random import Random

import pytest

from bench import hostile
from gantrymq.observe import metrics
from tests.cluster.brokers import Client, broker, client
from tests.cluster.naming import name_server
from tests.support import World, world

SEED = int(os.environ.get("GANTRY_SEED", "20260"))
FRAMES = 2_000
CONNECTIONS = 8


@pytest.fixture(scope="module")
def frames() -> hostile.kinds.Frames:
    return hostile.kinds.Frames(Random(SEED), sorts=20)


async def work(one: Client, attack: hostile.Attack) -> int:
    """Send and take messages, each as it should be, for as long as the attack lasts."""
    sent = 0
    while not attack.done or not sent:
        body = b"%d" % sent
        assert (await one.send("work", body)).offset == sent
        (taken,) = await one.taken("work", sent)
        assert taken.body == body
        sent += 1
    return sent


@pytest.mark.parametrize("where", ["tcp on asyncio", "tcp on uvloop"])
def test_nobody_notices_hostile_frames(
    where: str, tmp_path: Path, frames: hostile.kinds.Frames, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(there: World) -> None:
        async with (
            name_server(there, tmp_path / "names") as names,
            broker(there, tmp_path / "store", flow__enabled=False) as server,
            client(there, server) as one,
        ):
            targets = [server.address] * 2 + [names.address]
            attack = hostile.Attack(targets, frames, Random(SEED), count=FRAMES)
            working = asyncio.create_task(work(one, attack))
            await attack.run(CONNECTIONS)
            assert await working
            outcome = attack.outcome
            assert outcome.frames >= FRAMES
            assert outcome.ended_by_peer
            assert len(outcome.answers) > 5
            refused = [sample for sample in server._measure() if sample.metric is metrics.REFUSALS]
            assert refused

    there = world(where)
    with caplog.at_level(logging.WARNING, "gantrymq"):
        there.run(main(there))
    failed = [one.getMessage() for one in caplog.records if one.exc_info or "chore" in one.msg]
    assert not failed


def test_each_kind_of_hostile_frame_is_made(frames: hostile.kinds.Frames) -> None:
    for kind in hostile.kinds.KINDS:
        shots = [kind(frames) for _ in range(3)]
        assert all(shot.data and shot.frames for shot in shots), kind.__name__
