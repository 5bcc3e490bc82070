"""Spark Connect: the format is found by its name there as well, and works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gantrymq
from tests.spark import direct

JOB = """\
import sys
import gantrymq.spark

name_server, topic, place = sys.argv[1:]
conf = {"spark.ui.enabled": False, "spark.sql.warehouse.dir": place, "spark.log.level": "ERROR"}
spark = gantrymq.spark.session("connect", remote="local[2]", conf=conf)
assert type(spark).__module__.startswith("pyspark.sql.connect"), type(spark)
options = {"nameServer": name_server, "topic": topic}
rows = spark.range(100).selectExpr("cast(id AS string) AS body")
rows.write.format("rocketmq").mode("append").options(**options).save()
print(spark.read.format("rocketmq").options(**options).load().count())
query = (
    spark.readStream.format("rocketmq").options(**options, startingOffsets="earliest").load()
    .select("body").writeStream.format("rocketmq").options(**options | {"topic": topic + "-copy"})
    .option("checkpointLocation", place + "/check").trigger(availableNow=True).start()
)
query.awaitTermination()
print(query.exception())
spark.stop()
"""


def test_batches_and_streams_over_connect(ours):
    ours.make()
    copy = ours.make(f"{ours.topic}-copy")
    arguments = [ours.name_server, ours.topic, str(ours.tmp_path)]
    told = subprocess.run(
        [sys.executable, "-c", JOB, *arguments],
        env=os.environ | {"PYTHONPATH": str(Path(gantrymq.__file__).parent.parent)},
        cwd=ours.tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    assert told.returncode == 0, told.stderr[-5000:]
    assert told.stdout.split() == ["100", "None"]
    assert direct.read(nameServer=ours.name_server, topic=copy).num_rows == 100
