"""The source of a replay from topics: its methods are called as Spark calls them."""

from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import gantrymq as gantry
from gantrymq.spark.pipelines.replaying import ReplayDataSource
from tests.spark import direct

QUEUES = 4


class Replay:
    """A query that replays a topic, batch by batch."""

    def __init__(self, place: Any, at: Any = None, **options: Any) -> None:
        texts = {name: str(value) for name, value in (place.options | options).items()}
        found = ReplayDataSource(CaseInsensitiveDict({"startingOffsets": "earliest"} | texts))
        made: Any = found.streamReader(found.schema())
        self.tasks, self.driver = pickle.loads(pickle.dumps(made)), made
        self.driver.prepareForTriggerAvailableNow()
        self.at = self.driver.initialOffset() if at is None else at

    def step(self) -> list[list[bytes]]:
        """The bodies that each task of the next batch reads; nothing when all is through."""
        limit = self.driver.getDefaultReadLimit()
        end = json.loads(json.dumps(self.driver.latestOffset(self.at, limit)))
        if end == self.at:
            return []
        parts = pickle.loads(pickle.dumps(self.driver.partitions(self.at, end)))
        self.at = end
        return [
            [body for batch in self.tasks.read(part) for body in batch["body"].to_pylist()]
            for part in parts
        ]

    def all(self) -> list[list[bytes]]:
        """Every task, one after the other."""
        found = []
        while step := self.step():
            found += step
        self.driver.stop()
        return found


def send_in_turn(place: Any, numbers: range, pause: float = 0.0) -> list[bytes]:
    """Single messages, one after the other, to the queues in turn."""
    bodies = [b"%05d" % number for number in numbers]
    with gantry.Producer(group="turns", name_servers=place.name_server) as producer:
        for body in bodies:
            producer.send(gantry.Message(place.topic, body))
            time.sleep(pause)  # so that milliseconds differ
    return bodies


@pytest.fixture
def filled(ours: Any) -> tuple[Any, list[bytes]]:
    """A topic of several queues, and the bodies in the order of storing."""
    ours.make(queues=QUEUES)
    ours.send([])
    return ours, send_in_turn(ours, range(120), 0.002)


def test_by_key_the_order_of_storing_is_kept_across_queues(filled: Any) -> None:
    place, bodies = filled
    tasks = Replay(place, order="key", maxOffsetsPerTrigger=25).all()
    assert [body for task in tasks for body in task] == bodies
    assert all(len(task) <= 25 for task in tasks)


def test_by_queue_each_is_whole_and_goes_on_after_a_restart(filled: Any) -> None:
    place, bodies = filled
    first = Replay(place, tasks=3, maxOffsetsPerTrigger=50)
    found = first.step()
    first.driver.stop()
    assert len(found) == 3
    found += Replay(place, first.at, tasks=3, maxOffsetsPerTrigger=50).all()
    assert sorted(body for task in found for body in task) == bodies
    for task in found:  # the queues of a task one after the other, each in its order
        assert sum(b < a for a, b in pairwise(task)) < QUEUES


@pytest.mark.parametrize("order", ["queue", "key"])
def test_it_ends_where_the_time_range_does(filled: Any, order: str) -> None:
    place, bodies = filled
    until = datetime.now(UTC)
    time.sleep(0.01)
    send_in_turn(place, range(200, 220))
    replay = Replay(place, order=order, endingTimestamp=until.isoformat())
    assert sorted(body for task in replay.all() for body in task) == bodies
    assert replay.driver.reportLatestOffset() == replay.at  # so that nothing seems to be left


def test_many_messages_of_one_millisecond_are_taken_together(ours: Any) -> None:
    ours.make(queues=1)
    ours.send([b"%05d" % number for number in range(300)])  # one frame, one time
    tasks = Replay(ours, order="key", maxOffsetsPerTrigger=10).all()
    assert [body for task in tasks for body in task] == [b"%05d" % n for n in range(300)]


def test_the_sink_takes_a_place_of_a_queue(ours: Any) -> None:
    ours.make(queues=QUEUES)
    rows = pa.table({"body": [b"%d" % n for n in range(40)], "queue": [n % 6 for n in range(40)]})
    direct.write(rows, **ours.options)
    found = direct.read(**ours.options)
    by_queue: dict[int, list[int]] = {}
    for queue, body in zip(*(found[n].to_pylist() for n in ("queue_id", "body")), strict=True):
        by_queue.setdefault(queue, []).append(int(body))
    assert by_queue == {q: [n for n in range(40) if n % 6 % QUEUES == q] for q in range(QUEUES)}
