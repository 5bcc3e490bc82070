"""Whole queries, from a topic to a topic, and what they leave behind at a crash."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from pyspark import cloudpickle
from pyspark.sql import functions as f

import gantrymq.spark
from tests.spark import direct


def numbers(start, end):
    return [b"%06d" % number for number in range(start, end)]


def copy(place, target, **sink):
    """Read the topic and write it to another, up to its end; the query."""
    query = (
        place.stream(startingOffsets="earliest", columns="body,keys", maxOffsetsPerTrigger=400)
        .load()
        .writeStream.format("rocketmq")
        .options(nameServer=place.name_server, topic=target, **sink)
        .option("checkpointLocation", str(place.tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    return query


@pytest.mark.parametrize("sink", [{}, {"exactlyOnce": True}])
def test_a_topic_copied_by_a_query_that_lost_its_last_commit(place, sink):
    """The driver died after the batch was written, and before Spark noted that."""
    place.make()
    target = place.make(f"{place.topic}-copy")
    if sink:
        with place.admin() as admin:
            if "GANTRY_SPARK_COMMITS" not in admin.list_topics():
                admin.create_topic("GANTRY_SPARK_COMMITS", queues=2)
    place.send(numbers(0, 1_000))
    copy(place, target, **sink)
    commits = sorted(
        (place.tmp_path / "check" / "commits").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink()
    place.send(numbers(1_000, 1_100))
    copy(place, target, **sink)
    where = {"nameServer": place.name_server, "topic": target, "columns": "body"}
    once = direct.bodies(direct.read(**where, dropDuplicates=not sink))
    assert once == numbers(0, 1_100)
    if not sink:
        assert len(direct.bodies(direct.read(**where))) == 1_300


def test_the_listener_tells_the_lag_and_keeps_the_group_up_to_the_last_batch(place):
    place.make(queues=2)
    place.send(numbers(0, 1_000))
    lags = []
    listener = gantrymq.spark.ProgressListener(
        nameServer=place.name_server, group=f"g-{place.topic}", on_lag=lags.append
    )
    place.spark.streams.addListener(listener)
    try:
        query = (
            place.stream(startingOffsets="earliest", columns="body", maxOffsetsPerTrigger=600)
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(place.tmp_path / "check"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        last = query.lastProgress.batchId
        assert listener.wait_for_batch(query.id, last)
    finally:
        place.spark.streams.removeListener(listener)
        listener.close()
    first = lags[0]
    assert first.messages == 400
    assert first.most_messages >= 200
    assert first.average_messages == 200
    assert 0 < first.most_seconds < 300
    assert lags[-1].messages == 0
    with place.admin() as admin:
        lag = admin.group_lag(f"g-{place.topic}")
    assert sum(listener.committed.values()) == 1_000
    assert lag.messages == 0


class Dying(gantrymq.spark.RocketMQDataSource):
    """Its first task dies as if its machine had, after some of its rows."""

    flag = ""
    """The file that says that this was; it travels with the class, which is pickled by value."""

    @classmethod
    def name(cls):
        return "dying"

    def reader(self, schema):
        reader = super().reader(schema)
        flag = self.flag
        read = reader._tasks.read

        def dies(partition):
            for number, batch in enumerate(read(partition)):
                yield batch
                if number == 1 and not os.path.exists(flag):  # noqa: PTH110
                    open(flag, "w").close()  # noqa: PTH123
                    os.kill(os.getpid(), signal.SIGKILL)

        reader._tasks.read = dies
        return reader


def test_a_worker_that_is_killed_is_made_good_for(ours):
    ours.make(queues=2)
    ours.send(numbers(0, 30_000))
    Dying.flag = str(ours.tmp_path / "died")
    cloudpickle.register_pickle_by_value(sys.modules[Dying.__module__])
    try:
        ours.spark.dataSource.register(Dying)
        reader = ours.spark.read.format("dying").options(**ours.options, pullBytes="64k")
        frame = reader.option("columns", "body").load()
        row = frame.agg(f.count("*"), f.countDistinct("body")).first()
        assert tuple(row) == (30_000, 30_000)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[Dying.__module__])


def test_a_rate_is_kept(ours):
    ours.make(queues=1)
    begun = time.monotonic()
    frame = ours.spark.range(0, 600, 1, 1).selectExpr("cast(id AS string) AS body")
    frame.write.format("rocketmq").mode("append").options(
        **ours.options, maxRowsPerSecond=300
    ).save()
    assert time.monotonic() - begun >= 2.0
    assert direct.read(**ours.options).num_rows == 600


def test_a_query_cannot_replace_a_topic(ours):
    ours.make(queues=1)
    counts = ours.stream(columns="body").load().groupBy("body").count()
    query = (
        counts.selectExpr("body")
        .writeStream.format("rocketmq")
        .options(**ours.options, startingOffsets="earliest")
        .outputMode("complete")
        .option("checkpointLocation", str(ours.tmp_path / "check"))
        .trigger(availableNow=True)
    )
    with pytest.raises(Exception, match="topics cannot be overwritten"):
        query.start().awaitTermination(60)
