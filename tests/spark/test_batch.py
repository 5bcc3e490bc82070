"""Reading and writing once: what is written comes out again, whatever it is."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import gantrymq as gantry
from gantrymq.client.arrow import TYPES
from gantrymq.errors import ConfigError, GantryError, SendFailed
from tests.spark import direct

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
    with pytest.raises(GantryError, match=complaint):
        direct.read(**ours.options | options)


def test_an_error_reaches_the_user_of_spark(ours, free_port):
    with pytest.raises(Exception, match=r"no option 'topik'; did you mean topic\?"):
        ours.read(topik="x")
    wrong = f"127.0.0.1:{free_port}"
    with pytest.raises(Exception, match=f"no name server answered.*{wrong}"):
        ours.spark.read.format("rocketmq").options(nameServer=wrong, topic="x").load().count()


def test_without_a_name_server_it_is_said_where_to_name_one():
    with pytest.raises(ConfigError, match="set the option nameServer"):
        direct.read(topic="x")


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ("value string", "the sink rocketmq has no column 'value'"),
        ("body int", "column body is int; it has to be binary or string"),
        ("keys string", "needs a column body"),
    ],
)
def test_columns_that_cannot_be_written_are_named(ours, columns, complaint):
    name, kind = columns.split()
    schema = StructType([StructField(name, {"string": StringType(), "int": IntegerType()}[kind])])
    with pytest.raises(ConfigError, match=complaint):
        direct.source(ours.options).writer(schema, overwrite=False)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"body": pa.array([None], pa.binary())}, "partition 0 of .*: row 0: its body is null"),
        ({"body": [b"x"], "topic": ["no topic!"]}, "row 0: .*contains illegal characters"),
        ({"body": [b"x"], "keys": ["a\x01b"]}, r"row 0: the value of property 'KEYS' holds"),
        ({"body": [b"x"], "tags": ["t" * 40_000]}, "row 0: it has 40,0.* bytes of properties"),
    ],
)
def test_rows_that_cannot_be_written_are_named(ours, row, complaint):
    ours.make(queues=1)
    with pytest.raises(SendFailed, match=complaint):
        direct.write(pa.table(row), **ours.options)


def test_a_bad_row_fails_the_job_and_says_which(ours):
    ours.make(queues=1)
    frame = ours.spark.range(1).selectExpr("cast(null AS binary) AS body")
    with pytest.raises(Exception, match="row 0: its body is null"):
        frame.write.format("rocketmq").mode("append").options(**ours.options).save()


def test_rows_of_every_kind(place):
    """Many topics, keys that keep an order, and deliveries that come later."""
    one, two = place.make(queues=4), place.make(f"{place.topic}-two", queues=4)
    numbers = range(300)
    rows = pa.table(
        {
            "topic": [one if number % 2 else two for number in numbers],
            "body": [b"%03d" % number for number in numbers],
            "keys": [["a", f"k{number}"] for number in numbers],
            "sharding_key": [f"s{number % 5}" if number % 3 else None for number in numbers],
            "properties": pa.array(
                [[("mine", str(number)), ("UNIQ_KEY", "not mine")] for number in numbers],
                pa.map_(pa.string(), pa.string()),
            ),
            "delay_level": pa.array([1 if number == 7 else None for number in numbers], pa.int32()),
        }
    )
    direct.write(rows, nameServer=place.name_server, batchBytes="1k")

    def found():
        return direct.read(nameServer=place.name_server, topics=f"{one},{two}")

    until(lambda: found().num_rows == 300)  # one of them a second later
    messages = found().to_pylist()
    assert sorted(m["body"] for m in messages) == rows["body"].to_pylist()
    by_key: dict[str, list[bytes]] = {}
    queues: dict[tuple[str, str], set[int]] = {}
    for message in messages:
        properties = dict(message["properties"])
        assert properties["mine"] == str(int(message["body"]))
        assert message["keys"] == f"a k{int(message['body'])}"
        assert message["topic"] == (one if int(message["body"]) % 2 else two)
        if key := properties.get("__SHARDINGKEY"):
            if message["body"] != b"007":
                by_key.setdefault((message["topic"], key), []).append(message["body"])
            queues.setdefault((message["topic"], key), set()).add(message["queue_id"])
    assert all(len(found) == 1 for found in queues.values())
    assert all(bodies == sorted(bodies) for bodies in by_key.values())


def until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.1)


def test_topics_cannot_be_overwritten(ours):
    frame = ours.spark.range(1).selectExpr("'x' AS body")
    writer = frame.write.format("rocketmq").mode("overwrite")
    with pytest.raises(Exception, match=r'write with .mode\("append"\)'):
        writer.options(nameServer=ours.name_server, topic=ours.topic).save()
