"""Views of topics that keep the newest message of each key."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gantrymq as gantry
from gantrymq.errors import ClosedError
from gantrymq.net import aio
from tests.cluster.threads import Platform, platform

COMPACTED: dict[str, Any] = {"cleanup.policy": "COMPACTION"}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Platform]:
    settings = {"compaction__interval": "0.1s", "compaction__tombstones_kept": "0s"}
    with platform(tmp_path, count=2, **settings) as running:
        with gantry.Admin(running.url) as admin:
            admin.create_topic("profiles", queues=2, attributes=COMPACTED)
        yield running


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def compacted(here: Platform) -> int:
    """How many messages are left in the compacted parts of all queues."""
    return sum(
        len(one)
        for broker in here.brokers
        for one in broker.broker.store.compaction.queues.values()
    )


def covered(here: Platform) -> int:
    """For how many messages these stand."""
    return sum(
        one.end for broker in here.brokers for one in broker.broker.store.compaction.queues.values()
    )


def test_a_view_has_the_newest_value_of_each_key(here: Platform) -> None:
    with gantry.TableView("profiles", here.url) as profiles:
        assert dict(profiles) == {}
        for n in range(40):
            profiles.put(f"k{n % 4}", b"%d" % n)
        assert dict(profiles) == {"k0": b"36", "k1": b"37", "k2": b"38", "k3": b"39"}
        assert profiles.message("k0").keys == ("k0",)
        profiles.delete("k1")
        assert "k1" not in profiles
        with pytest.raises(KeyError):
            profiles["k1"]
        until(lambda: covered(here) == 41 and compacted(here) == 3)
        with gantry.TableView("profiles", here.url) as other:
            assert dict(other) == {"k0": b"36", "k2": b"38", "k3": b"39"}
            other.put("k1", b"again")
            until(lambda: profiles.get("k1") == b"again")
            for key in list(other):
                other.delete(key)
        until(lambda: len(profiles) == 0)
        until(lambda: covered(here) == 46 and compacted(here) == 0)
        with gantry.TableView("profiles", here.url) as empty:
            assert list(empty) == []
    with pytest.raises(ClosedError):
        profiles.put("k0", b"x")


def test_a_view_for_those_who_await_tells_of_changes(here: Platform) -> None:
    async def main() -> None:
        told: list[tuple[str, bytes | None]] = []
        async with (
            gantry.AsyncTableView("profiles", here.url) as one,
            gantry.AsyncTableView("profiles", here.url) as other,
        ):

            async def listen() -> None:
                async for change in other.changes():
                    told.append(change)
                    if len(told) == 3:
                        return

            listening = asyncio.create_task(listen())
            await asyncio.sleep(0)
            await one.put("anna", b"1")
            await asyncio.to_thread(until, lambda: len(told) == 1)
            await one.put("anna", b"2")
            await asyncio.to_thread(until, lambda: len(told) == 2)
            await one.delete("anna")
            async with asyncio.timeout(20):
                await listening
        assert told == [("anna", b"1"), ("anna", b"2"), ("anna", None)]

    aio.run(main())


def test_consumers_and_readers_pass_over_what_is_gone(here: Platform) -> None:
    with gantry.Producer(here.url) as producer:
        for n in range(30):
            producer.send("profiles", b"%d" % n, keys=f"k{n % 3}", order_key=f"k{n % 3}")
    until(lambda: covered(here) == 30 and compacted(here) == 3)
    got: list[bytes] = []
    with gantry.Consumer(
        here.url, group="late", topics="profiles", start="earliest",
        handler=lambda message: got.append(message.body),
    ):  # fmt: skip
        until(lambda: len(got) == 3)
    assert sorted(got) == [b"27", b"28", b"29"]
    with gantry.Reader(here.url) as reader:
        found = sorted(message.body for message in reader.messages("profiles", start=0))
        assert found == [b"27", b"28", b"29"]
        rows = [row for batch in reader.batches("profiles") for row in batch.to_pylist()]
        assert sorted(row["body"] for row in rows) == found
        assert len(b"".join(reader.chunks("profiles"))) > 0
