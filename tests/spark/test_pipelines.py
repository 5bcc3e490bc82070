"""Pipelines as their users run them: each by a `gantry pipeline run` of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import gantrymq
import gantrymq as gantry
from gantrymq.spark.pipelines import making, shelf
from gantrymq.spark.pipelines.latencies import STAGES
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


class Pipelines:
    """Pipelines that run in one Spark, a process of its own."""

    def __init__(self, name_server: str, home: Path) -> None:
        self.home = home
        script = str(Path(__file__).with_name("pipeline_runs.py"))
        self._process = subprocess.Popen(
            [sys.executable, script, name_server, str(home)], text=True, cwd=home,
            env=os.environ | {"PYTHONPATH": str(Path(gantrymq.__file__).parent.parent)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, name: str, **told: object) -> dict[str, Any]:
        """What it did."""
        answer = self.ask(name, **told)
        assert "failed" not in answer, answer["failed"]
        return answer

    def ask(self, name: str, **told: object) -> dict[str, Any]:
        """What became of it, good or bad."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"name": name, "home": name, "told": {key: str(of) for key, of in told.items()}}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def table(self, name: str, which: str) -> list[dict[str, Any]]:
        """A table that a report is made of."""
        rows = ds.dataset(self.home / name / "tables" / which).to_table().to_pylist()
        return [dict(row) for row in rows]

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def pipelines(_started, tmp_path_factory) -> Iterator[Pipelines]:
    made = Pipelines(_started("ours").name_server, tmp_path_factory.mktemp("pipelines"))
    yield made
    made.close()


def test_a_replay_sends_what_fits_in_the_order_of_storing_and_goes_on(ours, pipelines):
    ours.make()
    again = ours.make(f"{ours.topic}-again", queues=1)
    told = {"topic": ours.topic, "target": again, "order": "key", "maxOffsetsPerTrigger": 150,
            "rate": 5000, "where": "cast(cast(body AS string) AS int) % 2 = 0"}  # fmt: skip
    for start in range(0, 400, 100):  # a frame each, which goes to one queue
        ours.send([b"%04d" % number for number in range(start, start + 100)])
    first = pipelines.run("replay", **told)
    assert (first["rows"], first["behind"]) == (400, 0)
    assert len(first["batches"]) > 2
    ours.send([b"%04d" % number for number in range(400, 410)])
    said = pipelines.ask("replay", where="1 / (length(body) - 4) = 1")["failed"]
    place = rf"{re.escape(ours.topic)}\[broker-a:\d\] \d+ to \d+"
    assert re.search(rf"flow replay_messages, batch \d+: offsets {place}", said), said
    assert "DIVIDE_BY_ZERO" in said
    assert (
        pipelines.run("replay", where="cast(body AS string) <> '0405'")["rows"] == 10
    )  # and the rest is known
    sent = direct.read(nameServer=ours.name_server, topic=again)
    wanted = [*range(0, 400, 2), *(number for number in range(400, 410) if number != 405)]
    assert [int(body) for body in sent["body"].to_pylist()] == wanted
    came_from = [dict(row)[REPLAYED_FROM] for row in sent["properties"].to_pylist()]
    assert len(set(came_from)) == len(wanted)
    assert all(place.startswith(f"{ours.topic}[broker-a:") for place in came_from)


def test_traces_become_latencies_and_a_page(ours, pipelines):
    ours.make()
    trace_topic, handled = ours.make(f"{ours.topic}-traces", queues=1), threading.Semaphore(0)
    settings = {"name_servers": ours.name_server, "trace": True, "trace_topic": trace_topic}

    def handle(message: gantry.ReceivedMessage) -> None:
        handled.release()
        if message.body == b"7":
            raise ValueError("no such order")

    with gantry.Consumer(
        group="desk", start="earliest", topics=ours.topic, handler=handle, **settings
    ):
        with gantry.Producer(group="shop", **settings) as shop:
            for number in range(40):
                shop.send(gantry.Message(ours.topic, b"%d" % number, keys=(f"order-{number}",)))
        assert all(handled.acquire(timeout=30) for _ in range(40))
    told = pipelines.run("traces", traceTopic=trace_topic, topics=ours.topic)
    page = pipelines.home / "traces" / "report.html"
    assert told["page"] == str(page)
    found = pipelines.table("traces", "latencies")
    rows = {(row["stage"], row["by"], row["name"]): row for row in found}
    whole = {stage: rows[stage, "all", ""] for stage in STAGES}
    assert {row["count"] for row in whole.values()} == {40}
    for by, name in (("topic", ours.topic), ("group", "shop")):
        assert rows["send", by, name]["count"] == 40
    assert rows["consume", "topic", ours.topic]["failed"] == whole["consume"]["failed"] == 1
    assert sum(row["count"] for key, row in rows.items() if key[:2] == ("send", "client")) == 40
    assert 0 <= whole["send"]["ms"][0] <= whole["send"]["longest"]
    (failed,) = pipelines.table("traces", "failed")
    assert (failed["stage"], failed["group"], failed["count"]) == ("consume", "desk", 1)
    assert failed["why"] == "the handler raised an error"
    slow = [row for row in pipelines.table("traces", "slow") if row["stage"] == "send"]
    assert [row["rank"] for row in slow] == list(range(1, 21))
    assert "the handler raised an error" in page.read_text()


def test_lag_and_skew_are_seen_and_shown(ours, pipelines):
    ours.make(queues=2)
    ours.send([b"x"] * 30)
    handled = threading.Semaphore(0)
    with gantry.Consumer(
        name_servers=ours.name_server, group="slow-desk", topics=ours.topic, start="earliest",
        handler=lambda _: handled.release(),
    ):  # fmt: skip
        assert all(handled.acquire(timeout=30) for _ in range(30))
    told = {"topics": f"{ours.topic},nowhere", "groups": "slow-desk", "every": "100ms"}
    assert pipelines.run("lag", samples=2, **told)["page"]
    ours.send([b"x"] * 20)
    pipelines.run("lag", samples=1)  # it goes on with the looks of the first
    seen = ds.dataset(pipelines.home / "lag" / "samples", format="parquet").to_table().to_pylist()
    assert {row["sample"] for row in seen} == {1, 2, 3}
    assert {row["held"] for row in pipelines.table("lag", "sizes")} <= {30, 50}
    assert sum(row["grown"] for row in pipelines.table("lag", "queues")) == 20
    of_topic = [row for row in pipelines.table("lag", "groups") if row["topic"] == ours.topic]
    assert [row["group"] for row in of_topic] == ["slow-desk"] * 2
    assert sum(row["lag"] for row in of_topic) == 20
    (silent,) = pipelines.table("lag", "silent")
    assert (silent["what"], silent["times"]) == ("nowhere", 3)
    assert f"held in {ours.topic}" in (pipelines.home / "lag" / "report.html").read_text()


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
