"""The source of a replay from an archive, without Spark: which messages, and in which order."""

from __future__ import annotations

import json
import pickle
import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from gantrymq.errors import ConfigError, StoreError
from gantrymq.flows.reading import Stretch
from gantrymq.model import MessageQueue
from gantrymq.spark import planning
from gantrymq.spark.pipelines.archive_log import LOG, STAGING, ArchiveLog
from gantrymq.spark.pipelines.archiving import TaskFiles
from gantrymq.spark.pipelines.compacting import compact
from gantrymq.spark.pipelines.replay_terms import Terms
from gantrymq.spark.pipelines.replaying import ReplayDataSource

AT = datetime(2026, 11, 19, 22, tzinfo=UTC)
FAR = timedelta(days=2)


class Archive:
    """An archive of a few queues, whose messages are stored a second apart."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.batches = 0
        self.stored: list[tuple[str, str, int, int]] = []

    def add(self, messages: list[tuple[str, int, int, int]], topic: str = "orders") -> None:
        """Broker, queue, offset and second of each; a batch of the archive."""
        broker, queue, offset, second = zip(*messages, strict=True)
        record = pa.RecordBatch.from_pydict({
            "topic": [topic] * len(messages),
            "broker": broker,
            "queue_id": pa.array(queue, pa.int32()),
            "queue_offset": pa.array(offset, pa.int64()),
            "body": [b"%d" % at for at in second],
            "store_timestamp": pa.array(
                [AT + timedelta(seconds=at) for at in second], pa.timestamp("us", tz="UTC")
            ),
            "commit_log_offset": pa.array(
                range(len(self.stored), len(self.stored) + len(messages)), pa.int64()
            ),
        })  # fmt: skip
        number, self.batches = self.batches, self.batches + 1
        files = TaskFiles(self.root, f"{STAGING}/q", f"q-{number}-0", 1 << 20)
        files.add(record)
        ArchiveLog(self.root).batch("q", number, files.close(), files.ranges())
        self.stored += [(topic, *one[:3]) for one in messages]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """Four queues of two brokers over three hours, in batches of the archive."""
    made = Archive(tmp_path / "archive")
    chance, offsets = random.Random(4), dict.fromkeys([("a", 0), ("a", 1), ("b", 0), ("b", 7)], 3)
    for at in range(0, 9000, 1500):
        messages = []
        for second in range(at, at + 1500, 15):
            broker, queue = chance.choice(list(offsets))
            messages.append((broker, queue, offsets[broker, queue], second))
            offsets[broker, queue] += 1
        made.add(messages)
    return made


class Replay:
    """A query that reads an archive, batch by batch."""

    def __init__(self, root: Path, at: object = None, **options: object) -> None:
        texts = {"archive": str(root)} | {name: str(text) for name, text in options.items()}
        found = ReplayDataSource(CaseInsensitiveDict(texts))
        made = found.streamReader(found.schema())
        self.tasks, self.driver = pickle.loads(pickle.dumps(made)), made
        self.driver.prepareForTriggerAvailableNow()
        self.at = self.driver.initialOffset() if at is None else at

    def step(self) -> list[list[dict]]:
        """What each task of the next batch reads; nothing when all is through."""
        limit = self.driver.getDefaultReadLimit()
        end = json.loads(json.dumps(self.driver.latestOffset(self.at, limit)))
        if end == self.at:
            return []
        found = self.read(self.at, end)
        self.at = end
        return found

    def read(self, start: object, end: object) -> list[list[dict]]:
        """That batch."""
        parts = self.driver.partitions(start, end)
        return [
            [row for batch in self.tasks.read(pickle.loads(pickle.dumps(part))) for row in
             batch.to_pylist()]
            for part in parts
        ]  # fmt: skip

    def all(self) -> list[dict]:
        """Everything, task by task."""
        found = []
        while step := self.step():
            found += [row for rows in step for row in rows]
        return found


def places(rows: list[dict]) -> list[tuple[str, str, int, int]]:
    return [(r["topic"], r["broker"], r["queue_id"], r["queue_offset"]) for r in rows]


@pytest.mark.parametrize("most", [7, 100, 100_000])
def test_everything_comes_once_and_in_the_order_of_storing(archive: Archive, most: int) -> None:
    found = Replay(archive.root, order="key", maxOffsetsPerTrigger=most).all()
    assert places(found) == archive.stored  # which is in that order
    assert found[0]["body"] == b"0"
    assert found[0]["tags"] is None  # the archive has no such column


def test_tasks_have_whole_queues_in_order(archive: Archive) -> None:
    replay = Replay(archive.root, maxOffsetsPerTrigger=200, tasks=3)
    found = []
    while step := replay.step():
        queues = [{place[:3] for place in places(rows)} for rows in step]
        assert len(queues) <= 3
        assert sum(map(len, queues)) == len(set().union(*queues))
        found += [place for rows in step for place in places(rows)]
    assert sorted(found) == sorted(archive.stored)
    for queue in {place[:3] for place in found}:
        offsets = [place[3] for place in found if place[:3] == queue]
        assert offsets == sorted(offsets)


def test_it_goes_on_where_it_was_whatever_became_of_the_files(archive: Archive) -> None:
    first = Replay(archive.root, order="key", maxOffsetsPerTrigger=130)
    found = places(first.step()[0])
    begun = first.at
    found += places(first.step()[0])
    assert list(compact(archive.root, before=AT + FAR))
    again = Replay(archive.root, begun, order="key", maxOffsetsPerTrigger=130)
    assert places(again.read(begun, first.at)[0]) == found[130:]  # the batch that was not ended
    archive.add([("a", 0, 10_000, 9_500), ("c", 0, 0, 9_501)])
    again = Replay(archive.root, first.at, order="key", maxOffsetsPerTrigger=130)
    assert found + places(again.all()) == archive.stored


def test_a_time_range_of_some_topics(archive: Archive) -> None:
    archive.add([("a", 0, at, 15 * at) for at in range(500)], topic="mails")
    start, end = AT + timedelta(seconds=3590), AT + timedelta(seconds=7260)
    ranged = {"startingTimestamp": start.isoformat(), "endingTimestamp": end.isoformat()}
    replay = Replay(archive.root, topic="orders", order="key", **ranged)
    found = replay.all()
    assert places(found) == archive.stored[240:484]
    assert all(start <= row["store_timestamp"] < end for row in found)
    assert replay.at == replay.driver.reportLatestOffset()  # nothing is left behind
    of_mails = Replay(archive.root, topicPattern="ma.*", order="key", **ranged).all()
    assert {row["topic"] for row in of_mails} == {"mails"}


def test_a_clock_that_was_set_back_changes_no_order(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    seconds = [3000, 3601, 3602, 3500, 3501, 3700, 100, 7300]  # the hour of some is before
    archive.add([("a", 0, offset, second) for offset, second in enumerate(seconds)])
    for most in (1, 2, 3, 100):
        found = Replay(tmp_path, order="key", maxOffsetsPerTrigger=most).all()
        assert [row["queue_offset"] for row in found] == list(range(len(seconds))), most


def test_what_is_gone_is_no_silence(archive: Archive, monkeypatch) -> None:
    replay = Replay(archive.root, order="key", maxOffsetsPerTrigger=50)
    end = replay.driver.latestOffset(replay.at, replay.driver.getDefaultReadLimit())
    parts = replay.driver.partitions(replay.at, end)
    shutil.rmtree(next(archive.root.glob("topic=*/date=*/hour=22")))
    with pytest.raises(StoreError, match=r"has 0 of \d+ messages of orders"):
        list(replay.tasks.read(parts[0]))
    shutil.rmtree(archive.root / LOG)
    with pytest.raises(ConfigError, match="is no archive: there is no _log"):
        Replay(archive.root)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"order": "time"}, "order: 'time' is not one of queue, key"),
        ({"tasks": "0"}, "tasks: '0' is no number"),
        ({"tags": "a"}, "option tags is for topics"),
        ({"startingTimestamp": "now"}, "option startingTimestamp: 'now'"),
        ({"endingTimestamp": "2026-11-19T20:00:00"}, "has no time zone"),
        ({"topc": "a"}, "no option 'topc'; did you mean topic"),
    ],
)
def test_options_are_checked(archive: Archive, options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Replay(archive.root, **options)


def test_whole_queues_are_shared_evenly() -> None:
    sizes = [50, 40, 30, 20, 10, 0]
    queues = [Stretch(MessageQueue("t", "b", n), 5, 5 + size) for n, size in enumerate(sizes)]
    groups = planning.whole(queues, 2)
    assert sorted(one for group in groups for one in group) == queues
    assert [sum(one.end - one.start for one in group) for group in groups] == [80, 70]
    assert planning.whole([], 4) == []


class Conf(dict):
    """The settings of a session."""

    def __init__(self, **told: str) -> None:
        super().__init__({f"spark.gantry.{name}": text for name, text in told.items()})
        self.conf = self


def test_what_is_sent_follows_from_what_was_told() -> None:
    terms = Terms(Conf(nameServer="n:1", topic="a", target="b", rate="50"))
    assert terms.sink == {"nameServer": "n:1", "topic": "b", "maxRowsPerSecond": "50"}
    assert terms.source["maxOffsetsPerTrigger"] == "500"  # ten seconds' worth
    assert terms.source["startingOffsets"] == "earliest"
    of_archive = Terms(Conf(nameServer="n:1", archive="/a"))
    assert "startingOffsets" not in of_archive.source
    assert of_archive.sink == {"nameServer": "n:1"}  # into the topic of each message


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "what is to be replayed"),
        ({"topic": "a"}, "into itself never ends"),
        ({"topics": "b, a", "target": "a"}, "into itself never ends"),
        ({"topicPattern": "a.*", "target": "ab"}, "into itself never ends"),
        ({"topic": "a", "target": "b", "rate": "quick"}, "rate: 'quick' is no number"),
    ],
)
def test_terms_that_make_no_sense_are_refused(told: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Terms(Conf(nameServer="n:1", **told))
    Terms(Conf(nameServer="n:1", topic="a", endingTimestamp="2026-11-19T00:00:00Z"))
