"""The archive without Spark: files of tasks, and a log that survives the death of its writer."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from gantrymq.errors import ConfigError, StateError, StoreError
from gantrymq.model import MessageQueue
from gantrymq.spark.pipelines import making, shelf
from gantrymq.spark.pipelines.archive_log import LOG, STAGING, ArchiveLog
from gantrymq.spark.pipelines.archiving import ArchiveDataSource, TaskFiles
from gantrymq.spark.pipelines.checkpoints import unfinished
from gantrymq.spark.pipelines.compacting import compact
from gantrymq.spark.pipelines.running import told

AT = datetime(2026, 11, 19, 22, 30, tzinfo=UTC)
QUEUE = MessageQueue("orders", "broker-a", 0)


def rows(start: int, end: int, topic: str = "orders", at: datetime = AT) -> pa.RecordBatch:
    """Messages of a queue, a second apart."""
    offsets = range(start, end)
    return pa.RecordBatch.from_pydict(
        {
            "topic": [topic] * len(offsets),
            "broker": ["broker-a"] * len(offsets),
            "queue_id": pa.array([0] * len(offsets), pa.int32()),
            "queue_offset": pa.array(offsets, pa.int64()),
            "body": [b"%d" % offset for offset in offsets],
            "store_timestamp": pa.array(
                [at + timedelta(seconds=offset) for offset in offsets], pa.timestamp("us", tz="UTC")
            ),
        }
    )


def stage(root: Path, query: str, batch: int, *records: pa.RecordBatch, size: int = 1 << 20):
    files = TaskFiles(root, f"{STAGING}/{query}", f"{query}-{batch}-0", size)
    for record in records:
        files.add(record)
    return files.close(), files.ranges()


def held(root: Path) -> list[tuple[str, int]]:
    """What a reader that knows nothing of us finds."""
    if not any(root.glob("topic=*")):
        return []
    table = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    return sorted(zip(table["topic"].to_pylist(), table["queue_offset"].to_pylist(), strict=True))


def test_rows_go_where_their_topic_and_hour_say(tmp_path: Path) -> None:
    files, ranges = stage(tmp_path, "q", 0, rows(1790, 1810), rows(0, 3, "%RETRY%shop"))
    assert held(tmp_path) == []  # until the log has them
    ArchiveLog(tmp_path).batch("q", 0, files, ranges)
    places = sorted(
        str(path.parent.relative_to(tmp_path)) for path in tmp_path.glob("topic=*/*/*/*")
    )
    assert places == [
        "topic=%25RETRY%25shop/date=2026-11-19/hour=22",
        "topic=orders/date=2026-11-19/hour=22",
        "topic=orders/date=2026-11-19/hour=23",
    ]
    assert held(tmp_path) == [("%RETRY%shop", n) for n in range(3)] + [
        ("orders", n) for n in range(1790, 1810)
    ]


def test_a_full_file_is_followed_by_another(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("gantrymq.spark.pipelines.archiving._HELD", 1)  # write each record
    files, ranges = stage(tmp_path, "q", 0, *(rows(n, n + 5) for n in range(0, 30, 5)), size=1)
    ArchiveLog(tmp_path).batch("q", 0, files, ranges)
    assert [file.rows for file in files] == [5] * 6
    assert len({file.path for file in files}) == 6
    assert held(tmp_path) == [("orders", n) for n in range(30)]


def test_a_batch_that_is_written_again_is_there_once(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    assert log.batch("q", 0, *stage(tmp_path, "q", 0, rows(0, 5))) is not None
    assert log.batch("q", 0, *stage(tmp_path, "q", 0, rows(0, 5))) is None
    assert log.batch("q", 1, *stage(tmp_path, "q", 1, rows(5, 9))) is not None
    assert held(tmp_path) == [("orders", n) for n in range(9)]
    assert not list((tmp_path / STAGING).iterdir())
    assert log.head().next == {"orders": {"broker-a": {"0": 9}}}


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_an_entry_is_carried_out_by_who_comes_next(tmp_path: Path, monkeypatch, moved: int) -> None:
    log = ArchiveLog(tmp_path)
    files, ranges = stage(tmp_path, "q", 0, rows(1795, 1805))  # two hours, two files
    assert len(files) == 2

    def dies(self: ArchiveLog, entry) -> None:
        for file in entry.add[:moved]:
            target = tmp_path / file.path
            target.parent.mkdir(parents=True)
            (tmp_path / file.staged).rename(target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ArchiveLog, "append", _append_and(dies))
        log.batch("q", 0, files, ranges)
    assert len(held(tmp_path)) == 5 * moved
    again = stage(tmp_path, "q", 0, rows(1795, 1805))  # Spark runs the batch again
    assert ArchiveLog(tmp_path).batch("q", 0, *again) is None
    assert held(tmp_path) == [("orders", n) for n in range(1795, 1805)]


def _append_and(then):
    """`append`, whose process dies where files are moved."""
    real = ArchiveLog.append

    def append(self, head, entry):
        carry_out, self._carry_out = self._carry_out, lambda one: then(self, one)
        try:
            return real(self, head, entry)
        finally:
            self._carry_out = carry_out

    return append


def test_a_query_that_begins_anew_is_refused_with_the_way_on(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    log.batch("q", 0, *stage(tmp_path, "q", 0, rows(0, 5)))
    with pytest.raises(StateError, match=r"archive twice orders\[broker-a:0\] 0 to 7") as no:
        log.batch("other", 0, *stage(tmp_path, "other", 0, rows(0, 7)))
    assert json.dumps({"orders": {"broker-a": {"0": 5}}}) in str(no.value)
    log.batch("other", 0, *stage(tmp_path, "other", 0, rows(5, 7)))
    assert held(tmp_path) == [("orders", n) for n in range(7)]


def test_a_file_that_is_gone_is_told_of(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    log.batch("q", 0, *stage(tmp_path, "q", 0, rows(0, 5)))
    shutil.rmtree(tmp_path / "topic=orders")  # by its owner, who has had enough of it
    log.batch("q", 1, *stage(tmp_path, "q", 1, rows(5, 6)))
    assert held(tmp_path) == [("orders", 5)]
    shutil.rmtree(tmp_path / "topic=orders")
    (tmp_path / LOG / "00000002.done").unlink()  # whose writer died, then
    with pytest.raises(StoreError, match="with 1 rows, is gone: entry 2"), log.changing():
        pass
    (tmp_path / LOG / "00000003.json").write_text("{}")
    with pytest.raises(StoreError, match=r"00000003\.json is no entry"):
        log.head()


def test_options_of_the_sink_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs the option path"):
        ArchiveDataSource({})
    with pytest.raises(ConfigError, match="fileBytes: 'many' is no number"):
        ArchiveDataSource({"path": str(tmp_path), "fileBytes": "many"})


def test_a_project_remembers_what_it_was_told(tmp_path: Path) -> None:
    archive = shelf.project("archive")
    making.make(archive, tmp_path, {"topics": "a,b", "nameServer": "mq:9876"})
    making.make(archive, tmp_path, {"nameServer": "mq2:9876"})
    told = making.read_spec(tmp_path)["configuration"]
    assert told["spark.gantry.topics"] == "a,b"
    assert told["spark.gantry.nameServer"] == "mq2:9876"
    assert told["spark.gantry.path"] == str(tmp_path / "archive")
    assert (tmp_path / "transformations" / "archive.py").is_file()
    replay = making.make(shelf.project("replay"), tmp_path / "again", {"archive": "some/where"})
    told = making.read_spec(replay.parent)["configuration"]
    assert told["spark.gantry.archive"] == str(Path("some/where").absolute())
    with pytest.raises(ConfigError, match="no setting 'topcs'; did you mean topics"):
        making.make(archive, tmp_path, {"topcs": "a"})
    with pytest.raises(ConfigError, match="no pipeline is called 'archiv'; did you mean archive"):
        shelf.project("archiv")
    with pytest.raises(ConfigError, match="has no pipeline"):
        making.read_spec(tmp_path / "elsewhere")


def test_an_unfinished_batch_is_named_with_its_offsets(tmp_path: Path) -> None:
    flow = tmp_path / "_checkpoints" / "archive" / "archive_messages" / "0"
    for name, numbers in (("offsets", (0, 1, 2)), ("commits", (0, 1))):
        (flow / name).mkdir(parents=True)
        for number in numbers:
            ends = json.dumps({"orders": {"broker-a": {"0": 100 * number, "1": 7}}})
            (flow / name / str(number)).write_text(f"v1\n{{}}\n{ends}")
    assert [str(one) for one in unfinished(tmp_path)] == [
        "flow archive_messages, batch 2: offsets orders[broker-a:0] 100 to 200"
    ]
    shutil.copy(flow / "offsets" / "2", flow / "commits" / "2")
    assert not list(unfinished(tmp_path))


def test_an_hour_that_is_over_is_compacted(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    for batch, (start, end) in enumerate([(5, 9), (0, 5), (1900, 1905)]):
        log.batch(f"q{batch}", 0, *stage(tmp_path, f"q{batch}", 0, rows(start, end)))
    all_of_it = [("orders", n) for n in [*range(9), *range(1900, 1905)]]
    assert not list(compact(tmp_path, before=AT))  # which is within the first of the two hours
    (done,) = compact(tmp_path, before=AT + timedelta(hours=9))
    assert (done.hour[-7:], done.rows, done.before, done.after) == ("hour=22", 9, 2, 1)
    assert held(tmp_path) == all_of_it
    (one,) = (tmp_path / done.hour).iterdir()
    assert pq.ParquetFile(one).read()["queue_offset"].to_pylist() == list(range(9))
    assert not list(compact(tmp_path, before=AT + timedelta(hours=9)))
    log.batch("q1", 1, *stage(tmp_path, "q1", 1, rows(1905, 1906)))  # the archive goes on
    assert held(tmp_path) == [*all_of_it, ("orders", 1905)]


def test_of_what_spark_says_the_cause_is_told() -> None:
    ours = "[STREAM_FAILED] Query\nTraceback:\n  x\ngantrymq.errors.ConfigError: no topic\n=== x"
    assert told(ours) == "no topic"
    sparks = "[NO_TABLE] gone\n  at java.lang.Thread\n\n=== Streaming Query ===\nmore"
    assert told(sparks) == "[NO_TABLE] gone"
