"""Rows that were sent more than once, and what the source makes of them."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from gantrymq.spark.repeats import Numbers
from tests.spark import direct


def test_numbers_are_what_a_set_is():
    chance = random.Random(7)
    numbers, plain = Numbers(), set()
    for _ in range(3_000):
        number = chance.randrange(400)
        assert numbers.add(number) == (number not in plain)
        plain.add(number)
        assert len(numbers) == len(plain)


@pytest.fixture
def options(ours):
    ours.make()
    return {"nameServer": ours.name_server, "topic": ours.topic}


def rows_of(start, end):
    return pa.table({"body": [b"%06d" % number for number in range(start, end)]})


def test_a_task_that_is_run_again_is_read_once(options):
    rows = rows_of(0, 5_000)
    direct.write(rows, "query:7", 0, **options)
    direct.write(rows, "query:7", 0, **options)  # the same task, the same rows
    direct.write(rows_of(5_000, 6_000), "query:7", 1, **options)
    direct.write(rows_of(6_000, 7_000), "query:8", 0, **options)
    assert direct.read(**options).num_rows == 12_000
    found = direct.read(**options, dropDuplicates=True, columns="body", minPartitions=5)
    assert direct.bodies(found) == rows_of(0, 7_000)["body"].to_pylist()


def test_repeats_are_found_across_micro_batches_as_far_back_as_the_window(options):
    rows = rows_of(0, 4_000)
    how = options | {"startingOffsets": "earliest", "columns": "body"}
    with (
        direct.Stream(**how, dropDuplicates=True) as stream,
        direct.Stream(**how, dropDuplicates=True, duplicatesWindow=100) as short,
    ):
        direct.write(rows, "query:0", **options)
        assert stream.step().num_rows == short.step().num_rows == 4_000
        direct.write(rows, "query:0", **options)
        assert stream.step().num_rows == 0
        assert short.step().num_rows > 0


def test_messages_of_others_are_never_dropped(ours, options):
    ours.send([b"same", b"same"], properties={"SPARK_ROW": "not ours"})
    ours.send([b"plain"])
    assert direct.read(**options, dropDuplicates=True).num_rows == 3
    direct.write(rows_of(0, 10), **options, rowKeys=False)
    direct.write(rows_of(0, 10), **options, rowKeys=False)
    assert direct.read(**options, dropDuplicates=True).num_rows == 23
