"""Exactly once: what readers see after a crash at each place where one can come."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest

from gantrymq.errors import SendFailed
from gantrymq.net.lending import BlockingRuntime
from gantrymq.protocol.transactions import Decision
from gantrymq.runtime import run_blocking
from gantrymq.spark.halves import Commits
from gantrymq.spark.options import check_sink
from gantrymq.spark.reading import pool_of
from gantrymq.spark.writing import TaskWriter
from tests.spark import direct

ROWS = pa.table({"body": [b"%04d" % number for number in range(60)]})
ALL = ROWS["body"].to_pylist()


@pytest.fixture
def sink(place):
    place.make()
    with place.admin() as admin:
        if "GANTRY_SPARK_COMMITS" not in admin.list_topics():
            admin.create_topic("GANTRY_SPARK_COMMITS", queues=2)
    return place.options | {"exactlyOnce": True, "sendTimeout": "20s"}


def writer(sink):
    parsed = direct.source(sink)._parsed
    return TaskWriter(parsed, check_sink(parsed))


def commits(sink):
    options = direct.source(sink)._parsed
    runtime = BlockingRuntime(pool_of(options.client))
    return Commits(runtime, options.client, options.sink.commit_topic, options.sink.group, 20)


def seen(place, *, expected=0):
    """What readers see; brokers make their queues a moment after the log."""
    found: list[bytes] = []
    for _ in range(200):
        found = direct.bodies(direct.read(**place.options, columns="body"))
        if len(found) >= expected:
            break
        time.sleep(0.05)
    return found


def test_nobody_sees_a_row_before_the_commit_and_everybody_after_it(place, sink):
    one = direct.write(ROWS.slice(0, 30), f"{place.topic}:0", 0, **sink)
    two = direct.write(ROWS.slice(30), f"{place.topic}:0", 1, **sink)
    assert len(one.halves) == 30
    assert seen(place) == []
    writer(sink).commit(f"{place.topic}:0", [one, two, None])
    assert seen(place, expected=60) == ALL


@pytest.mark.parametrize("ended", [0, 25, 60])
def test_a_crash_in_the_commit_neither_loses_nor_doubles(place, sink, ended):
    run = f"{place.topic}:1"
    first = direct.write(ROWS, run, **sink)

    async def crash():
        begun = commits(sink)
        await begun.note(run, first.halves)
        await begun._end(first.halves[:ended], Decision.COMMIT, sure=True)
        await begun.close()

    run_blocking(crash())
    until_found(sink, run)
    again = direct.write(ROWS, run, **sink)  # Spark repeats the batch
    assert (again.rows, again.halves) == (0, ())
    writer(sink).commit(run, [again])
    assert seen(place, expected=60) == ALL
    writer(sink).abort(run, [first])  # as after a commit that failed once it had done its work
    writer(sink).commit(run, [again])
    assert seen(place, expected=60) == ALL


def until_found(sink, run):
    """Brokers make their index of keys a moment later."""
    found = commits(sink)
    for _ in range(200):
        if run_blocking(found.find(run)) is not None:
            return
        run_blocking(BlockingRuntime(pool_of(direct.source(sink)._parsed.client)).sleep(0.05))
    pytest.fail("the note was not found")


def test_a_batch_that_is_given_up_is_never_seen(place, sink):
    run = f"{place.topic}:2"
    one = direct.write(ROWS.slice(0, 30), run, 0, **sink)
    writer(sink).abort(run, [one, None])
    whole = direct.write(ROWS, run, 0, **sink)
    writer(sink).commit(run, [whole])
    assert seen(place, expected=60) == ALL


def test_what_cannot_be_both_is_refused(ours):
    ours.make(queues=1)
    rows = pa.table({"body": [b"x"], "delay_level": pa.array([3], pa.int32())})
    with pytest.raises(SendFailed, match="row 0: a message cannot be delivered later and exactly"):
        direct.write(rows, "query:0", **ours.options, exactlyOnce=True)
