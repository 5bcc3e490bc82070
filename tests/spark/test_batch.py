"""Reading and writing once: what is written comes out again, whatever it is."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as f

import gantrymq as gantry
from gantrymq.client.arrow import TYPES

N = 3_000


def test_what_a_data_frame_held_comes_out_of_the_topic_again(place):
    place.make()
    sent = place.spark.range(N).selectExpr(
        "encode(concat('body-', id), 'UTF-8') AS body",
        "concat('k', id) AS keys",
        "concat('t', id % 3) AS tags",
        "map('number', cast(id AS string)) AS properties",
    )
    sent.write.format("rocketmq").mode("append").options(
        nameServer=place.name_server, topic=place.topic
    ).save()

    found = place.read()
    assert found.columns == list(TYPES)
    again = found.select("body", "keys", "tags", f.expr("properties['number'] AS number"))
    want = sent.select("body", "keys", "tags", f.expr("properties['number'] AS number"))
    assert checksum(again) == checksum(want)
    assert again.count() == N
    assert found.filter("crc_ok AND message_id = unique_id").count() == N
    assert found.select("queue_id").distinct().count() >= 2
    rows = found.select(f.expr("properties['SPARK_ROW'] AS row")).distinct().count()
    assert rows == N
    times = found.agg(f.min("store_timestamp"), f.max("store_timestamp")).first()
    assert abs(times[1].replace(tzinfo=UTC).timestamp() - datetime.now(UTC).timestamp()) < 300


def checksum(frame):
    """The same for the same rows in whatever order."""
    row = frame.agg(f.count("*"), f.sum(f.xxhash64(*frame.columns).cast("decimal(38,0)"))).first()
    return tuple(row)


def test_a_schema_is_the_projection(place):
    place.make(queues=1)
    place.send([b"one", b"two"], tag="a", keys=("x", "y"))
    schema = "body binary, queue_offset bigint, tags string"
    rows = place.reader().schema(schema).load().orderBy("queue_offset").collect()
    assert [tuple(row) for row in rows] == [(b"one", 0, "a"), (b"two", 1, "a")]
    assert place.read(columns="keys,topic").first() == ("x y", place.topic)
    assert "properties" not in place.read(includeProperties=False).columns


def test_ranges_by_offset_and_by_time(place):
    place.make(queues=1)
    place.send([b"%d" % number for number in range(100)])
    broker = place.read(columns="broker").first().broker
    between = {
        "startingOffsets": f'{{"{place.topic}": {{"{broker}": {{"0": 10}}}}}}',
        "endingOffsets": f'{{"{place.topic}": {{"{broker}": {{"0": 20}}}}}}',
    }
    assert place.bodies(**between) == sorted(b"%d" % number for number in range(10, 20))
    assert place.bodies(startingOffsets="latest") == []
    assert len(place.bodies(startingTimestamp="2020-01-01T00:00:00+00:00")) == 100
    assert place.bodies(endingTimestamp="1577836800000") == []
    assert len(place.bodies(minPartitions=7)) == 100
    assert place.read(maxRecordsPerPartition=30).rdd.getNumPartitions() == 4


def test_filters_are_the_brokers(place):
    place.make()
    for tag in "abc":
        place.send([f"{tag}{number}".encode() for number in range(50)], tag=tag)
    assert len(place.bodies(tags="a || b")) == 100
    assert place.bodies(sql="TAGS = 'c'") == sorted(f"c{n}".encode() for n in range(50))
    assert place.bodies(tags="none") == []


def test_bodies_of_every_size(ours):
    ours.make(queues=2)
    sizes = [0, 1, 4 << 20, 100_000]
    frame = ours.spark.createDataFrame([(bytes(size),) for size in sizes], "body binary")
    ours_options = {"nameServer": ours.name_server, "topic": ours.topic}
    frame.write.format("rocketmq").mode("append").options(**ours_options).save()
    with gantry.Producer(name_servers=ours.name_server, group="large") as producer:
        producer.send(ours.topic, b"compressed" * 10_000)
    assert sorted(map(len, ours.bodies())) == sorted([*sizes, 100_000])
    too_large = ours.spark.createDataFrame([(bytes((4 << 20) + 1),)], "body binary")
    with pytest.raises(Exception, match=r"row 0: its body has 4,194,305 bytes"):
        too_large.write.format("rocketmq").mode("append").options(**ours_options).save()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"topik": "x"}, r"no option 'topik'; did you mean topic\?"),
        ({"topics": "x"}, "give one of the options topic, topics and topicPattern, not"),
        ({"maxRecordsPerPartition": "many"}, "option maxRecordsPerPartition: 'many' is no whole"),
        ({"startingOffsets": "newest"}, "option startingOffsets: 'newest' is neither"),
        ({"startingOffsets": "latest", "startingTimestamp": "0"}, "contradict each other"),
        ({"maxOffsetsPerTrigger": "1"}, "option maxOffsetsPerTrigger means nothing to a batch"),
        ({"tags": "a", "sql": "a = 1"}, "tags and sql contradict each other"),
        ({"columns": "bodi"}, r"no column 'bodi'; did you mean body\?"),
        ({"topic": "absent"}, "no route info of this topic: absent"),
        ({"queues": "broker-a"}, "option queues: 'broker-a' is not broker:queue"),
    ],
)
def test_an_option_that_is_wrong_is_named(ours, options, complaint):
    ours.make(queues=1)
    told = {"topic": ours.topic, "nameServer": ours.name_server} | options
    with pytest.raises(Exception, match=complaint):
        ours.spark.read.format("rocketmq").options(**told).load().count()


def test_a_name_server_that_is_none(ours, free_port):
    wrong = f"127.0.0.1:{free_port}"
    with pytest.raises(Exception, match=f"no name server answered.*{wrong}"):
        ours.spark.read.format("rocketmq").options(nameServer=wrong, topic="x").load().count()
    with pytest.raises(Exception, match="set the option nameServer"):
        ours.spark.read.format("rocketmq").options(topic="x").load().count()


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (["'x' AS value"], "the sink rocketmq has no column 'value'"),
        (["1 AS body"], "column body is int; it has to be binary or string"),
        (["'x' AS keys"], "needs a column body"),
        (["cast(null AS binary) AS body"], "row 0: its body is null"),
        (["'x' AS body", "'no topic!' AS topic"], "row 0: .*contains illegal characters"),
    ],
)
def test_rows_that_cannot_be_written_are_named(ours, columns, complaint):
    ours.make(queues=1)
    frame = ours.spark.range(1).selectExpr(*columns)
    writer = frame.write.format("rocketmq").mode("append")
    with pytest.raises(Exception, match=complaint):
        writer.options(nameServer=ours.name_server, topic=ours.topic).save()


def test_topics_cannot_be_overwritten(ours):
    frame = ours.spark.range(1).selectExpr("'x' AS body")
    writer = frame.write.format("rocketmq").mode("overwrite")
    with pytest.raises(Exception, match=r'write with .mode\("append"\)'):
        writer.options(nameServer=ours.name_server, topic=ours.topic).save()
