"""Reading on and on: limits, restarts, growth, and what is not there any more."""

from __future__ import annotations

import time

import pytest

from tests.spark.direct import away


def bodies_in(place, where):
    rows = place.spark.read.parquet(str(where)).select("body").collect()
    return sorted(bytes(row.body) for row in rows)


def run_to_the_end(place, *, name="out", **options):
    """Read what is there into Parquet and stop; the sizes of its micro-batches."""
    out, check = place.tmp_path / name, place.tmp_path / f"{name}-check"
    query = (
        place.stream(startingOffsets="earliest", columns="body,queue_id,queue_offset", **options)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(check))
        .option("path", str(out))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    return [one.numInputRows for one in query.recentProgress if one.numInputRows]


def numbers(start, end):
    return [b"%06d" % number for number in range(start, end)]


def test_available_now_keeps_the_limit_and_goes_on_from_the_checkpoint(place):
    place.make()
    place.send(numbers(0, 1_000))
    sizes = run_to_the_end(place, maxOffsetsPerTrigger=300)
    assert sizes == [300, 300, 300, 100]
    place.send(numbers(1_000, 1_500))
    assert run_to_the_end(place, maxOffsetsPerTrigger=300) == [300, 200]
    assert bodies_in(place, place.tmp_path / "out") == numbers(0, 1_500)
    assert run_to_the_end(place) == []


def test_queues_and_topics_that_appear_are_read_from_their_beginning(place):
    first, second = place.make(f"{place.topic}-x1", queues=1), f"{place.topic}-x2"
    place.send(numbers(0, 10), first)
    pattern = {"topicPattern": f"{place.topic}-x[0-9]", "topicRefresh": "100ms"}
    assert sum(run_to_the_end(place, **pattern)) == 10
    with place.admin() as admin:
        admin.alter_topic(first, queues=8)
    place.make(second, queues=2)
    place.send(numbers(10, 20), second)
    for at in range(20, 60):
        place.send(numbers(at, at + 1), first)
    assert sum(run_to_the_end(place, **pattern)) == 50
    assert bodies_in(place, place.tmp_path / "out") == numbers(0, 60)


def test_a_running_query_waits_without_spinning_and_sees_what_comes_at_once(ours):
    ours.make(queues=2)
    query = (
        ours.stream(startingOffsets="earliest", columns="body")
        .load()
        .writeStream.format("memory")
        .queryName("waiting")
        .option("checkpointLocation", str(ours.tmp_path / "check"))
        .start()
    )
    try:
        ours.send(numbers(0, 10))
        until(lambda: ours.spark.table("waiting").count() == 10)
        progress = len(query.recentProgress)
        time.sleep(2)  # nothing is to happen
        assert len(query.recentProgress) <= progress + 3
        ours.send(numbers(10, 11))
        until(lambda: ours.spark.table("waiting").count() == 11)
        latest = query.lastProgress.sources[0].latestOffset
        assert ours.topic in latest
    finally:
        query.stop()


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def test_a_micro_batch_of_so_many_bytes(ours):
    ours.make(queues=2)
    ours.send([b"x" * 1_000] * 400)
    sizes = run_to_the_end(ours, maxBytesPerTrigger="120 KiB")
    assert sum(sizes) == 400
    assert 3 <= len(sizes) <= 6, sizes


def test_a_topic_that_was_removed_is_a_loss(ours):
    ours.make(queues=1)
    ours.send(numbers(0, 10))
    assert run_to_the_end(ours) == [10]
    with ours.admin() as admin:
        admin.delete_topic(ours.topic)
    ours.make(queues=1)
    ours.send(numbers(0, 3))
    with pytest.raises(Exception, match=r"7 messages of .* are lost, offsets 3 to 9"):
        run_to_the_end(ours)
    assert run_to_the_end(ours, failOnDataLoss=False) == []


def test_a_query_lives_through_the_death_and_return_of_its_broker(place):
    place.make(queues=2)
    place.send(numbers(0, 20_000))
    out = place.tmp_path / "out"
    query = (
        place.stream(startingOffsets="earliest", columns="body", maxOffsetsPerTrigger=4_000)
        .load()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(place.tmp_path / "check"))
        .option("path", str(out))
        .start()
    )
    try:
        until(lambda: query.lastProgress is not None and query.lastProgress.numInputRows)
        with away(place.server):
            time.sleep(0.5)  # let it notice
        place.send(numbers(20_000, 21_000))
        until(lambda: len(bodies_in(place, out)) >= 21_000)
    finally:
        query.stop()
    assert query.exception() is None
    assert bodies_in(place, out) == numbers(0, 21_000)
