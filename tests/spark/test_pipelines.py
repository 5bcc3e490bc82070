"""Pipelines as their users run them: each by a `gantry pipeline run` of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds

import gantrymq
from gantrymq.spark.pipelines import making, shelf
from gantrymq.spark.pipelines.replay_terms import REPLAYED_FROM
from tests.spark import direct

COMMAND = [sys.executable, "-c", "from gantrymq.cli import main; main()", "pipeline", "run"]


def run(place, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, to its end."""
    told = subprocess.run(
        [*COMMAND, name, "--data", str(place.tmp_path / name), "--namesrv", place.name_server,
         "--master", "local[2]", *words],
        env=os.environ | {"PYTHONPATH": str(Path(gantrymq.__file__).parent.parent)},
        cwd=place.tmp_path, capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert told.returncode == 0, (told.stdout, told.stderr[-5000:])
    return told


def identities(table) -> list[tuple[str, int, int, bytes]]:
    """Which messages, row by row."""
    names = ("broker", "queue_id", "queue_offset", "body")
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def test_the_archive_goes_on_and_has_every_message_once(ours):
    ours.make()
    ours.send([b"%d" % number for number in range(2500)])
    first = run(
        ours, "archive", "--set", f"topics={ours.topic}", "--set", "maxOffsetsPerTrigger=1000"
    )
    assert "2,500 rows in 3 batches, 0 behind" in first.stdout
    assert "batch 2: 500 rows in" in first.stderr
    ours.send([b"more %d" % number for number in range(300)])
    second = run(ours, "archive")  # what it was told is remembered
    assert "300 rows in 1 batches, 0 behind" in second.stdout
    root = ours.tmp_path / "archive" / "archive"
    archived = ds.dataset(root, format="parquet", partitioning="hive").to_table()
    stored = direct.read(nameServer=ours.name_server, topic=ours.topic)
    assert identities(archived) == identities(stored)
    assert set(archived.column("topic").to_pylist()) == {ours.topic}


def test_a_replay_sends_what_fits_in_the_order_of_storing_and_goes_on(ours):
    ours.make()
    ours.make("again", queues=1)
    settings = (f"topic={ours.topic}", "target=again", "order=key", "maxOffsetsPerTrigger=150",
                "rate=5000", "where=cast(cast(body AS string) AS int) % 2 = 0")  # fmt: skip
    told = [word for setting in settings for word in ("--set", setting)]
    for start in range(0, 400, 100):  # a frame each, which goes to one queue
        ours.send([b"%04d" % number for number in range(start, start + 100)])
    first = run(ours, "replay", *told)
    assert "400 rows in " in first.stdout
    assert " batches, 0 behind" in first.stdout
    ours.send([b"%04d" % number for number in range(400, 410)])
    assert "10 rows in 1 batches, 0 behind" in run(ours, "replay").stdout
    sent = direct.read(nameServer=ours.name_server, topic="again")
    assert [int(body) for body in sent["body"].to_pylist()] == list(range(0, 410, 2))
    came_from = [dict(row)[REPLAYED_FROM] for row in sent["properties"].to_pylist()]
    assert len(set(came_from)) == 205
    assert all(place.startswith(f"{ours.topic}[broker-a:") for place in came_from)


def test_the_template_passes_its_own_test(tmp_path):
    made = tmp_path / "mine"
    making.make(shelf.template("mine"), made, {"nameServer": "localhost:9876"})
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(made)],
        env=os.environ | {"PYTHONPATH": str(Path(gantrymq.__file__).parent.parent)},
        cwd=made, capture_output=True, text=True, timeout=500, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert told.returncode == 0, told.stdout[-5000:]
    assert "1 passed" in told.stdout
