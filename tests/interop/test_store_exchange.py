"""One store, two brokers: what either wrote the other serves, and goes on with.

The brokers take turns on one directory, after a clean stop and after a crash. Each time everything
that the one says of the store is compared with what the other said, to the byte: records with their
places, bounds of queues, what is found by key, place and time, offsets, topics and groups.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from random import Random

import pytest
from apache import Cluster
from conftest import or_skip
from gantry import Gantry
from store_contents import (
    Broker,
    Picture,
    Writer,
    check_acknowledged,
    check_delivered,
    delivered,
    picture,
    wait_until,
)

from gantrymq.errors import RemoteProtocolError
from gantrymq.wire import fastjson

MANY = 100_000
SOME = 5_000
APACHE = {
    "maxTransferBytesOnMessageInMemory": 4 * 2**20,
    "maxTransferCountOnMessageInMemory": 4096,
    "maxTransferBytesOnMessageInDisk": 4 * 2**20,
    "maxTransferCountOnMessageInDisk": 4096,
    "flushDelayOffsetInterval": 500,
}
OURS = (
    "mappedFileSizeCommitLog=16777216",
    "mappedFileSizeConsumeQueue=200000",
    "maxHashSlotNum=10000",
    "maxIndexNum=40000",
    "flushDelayOffsetInterval=500",
)
"""The sizes of files that RocketMQ is started with, too."""


@pytest.fixture(scope="module")
def name_server() -> Iterator[str]:
    """One for all of RocketMQ's brokers here, since a JVM takes its time."""
    with Gantry(options=("--broker-name", "bystander")) as running:
        yield running.name_server


class Turns:
    """The brokers that take turns on one store."""

    def __init__(self, store: Path, name_server: str) -> None:
        self.store = store
        self._name_server = name_server

    @contextmanager
    def ours(self, *, killed: bool = False) -> Iterator[Broker]:
        """Our broker, ended in good order or not."""
        with Gantry(*OURS, options=("--data", str(self.store.parent))) as running:
            with Broker(running.broker) as broker:
                yield broker
                self._until_noted(broker)
            if killed:
                running.kill()

    @contextmanager
    def apaches(self, *, killed: bool = False) -> Iterator[Broker]:
        """RocketMQ's."""
        with or_skip(self._cluster) as cluster:
            with Broker(cluster.broker) as broker:
                yield broker
                self._until_noted(broker)
            if not killed:
                cluster.finish()

    def _until_noted(self, broker: Broker) -> None:
        """Wait until the disk knows what was delivered: after a crash the rest comes again."""
        path = self.store / "config" / "delayOffset.json"

        def is_noted() -> bool:
            try:
                noted = fastjson.loads(path.read_bytes())["offsetTable"]
            except (OSError, RemoteProtocolError):  # it is being written
                return False
            return noted == {str(level): at for level, at in delivered(broker).items()}

        wait_until(is_noted, "a note of what was delivered")

    def _cluster(self) -> Cluster:
        return Cluster("5.5.0", settings=APACHE, store=self.store, name_server=self._name_server)


@pytest.fixture
def turns(tmp_path: Path, name_server: str) -> Iterator[Turns]:
    yield Turns(tmp_path / Gantry.BROKER, name_server)
    shutil.rmtree(tmp_path / Gantry.BROKER, ignore_errors=True)


def same(one: Picture, other: Picture, *, but: str = "") -> None:
    """Two brokers say the same; a difference is named before it is shown."""
    for part in fields(Picture):
        if part.name == but:
            continue
        before, now = getattr(one, part.name), getattr(other, part.name)
        if isinstance(before, dict):
            differ = [key for key in before | now if before.get(key) != now.get(key)]
            assert not differ, [
                (part.name, key, before.get(key), now.get(key)) for key in differ[:3]
            ]
        assert before == now, part.name


def test_a_store_of_ours_at_rocketmqs_broker_and_back(turns: Turns, rng: Random) -> None:
    writer = Writer(rng=rng)
    with turns.ours() as broker:
        writer.begin(broker)
        writer.write(broker, MANY)
        before = picture(broker, writer)
        check_acknowledged(before, writer)
    with turns.apaches() as broker:
        same(before, picture(broker, writer))
        check_delivered(broker, writer)
        writer.write(broker, SOME)
        before = picture(broker, writer)
    with turns.ours() as broker:
        found = picture(broker, writer)
        same(before, found)
        check_acknowledged(found, writer)
        check_delivered(broker, writer)


def test_a_store_of_rocketmqs_at_our_broker_and_back_with_crashes(
    turns: Turns, rng: Random
) -> None:
    """Committed offsets are in files of their own, written every few seconds: a crash sets back."""
    writer = Writer(rng=rng, crashes=True)
    with turns.apaches(killed=True) as broker:
        writer.begin(broker)
        writer.write(broker, MANY)
        before = picture(broker, writer)
        check_acknowledged(before, writer)
    with turns.ours(killed=True) as broker:
        same(before, picture(broker, writer), but="offsets")
        check_delivered(broker, writer)
        writer.write(broker, SOME)
        before = picture(broker, writer)
    with turns.apaches(killed=True) as broker:
        found = picture(broker, writer)
        same(before, found, but="offsets")
        check_acknowledged(found, writer)
        check_delivered(broker, writer)
