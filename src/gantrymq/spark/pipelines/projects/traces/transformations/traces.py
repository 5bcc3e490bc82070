"""What clients told of their messages, record by record, once each; and when those were stored."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from gantrymq.spark.pipelines.archiving import NAME as ARCHIVE
from gantrymq.spark.pipelines.archiving import ArchiveDataSource
from gantrymq.spark.pipelines.given import given, needed, reading_options
from gantrymq.spark.pipelines.tracing import NAME, TraceDataSource

HOW = ("startingOffsets", "startingTimestamp", "maxOffsetsPerTrigger", "failOnDataLoss")
STAMPS = "topic,broker,queue_id,queue_offset,unique_id,born_timestamp,store_timestamp"

spark = SparkSession.active()
spark.dataSource.register(ArchiveDataSource)
spark.dataSource.register(TraceDataSource)
path = needed(spark, "path")
trace_topic = given(spark, "traceTopic", "RMQ_SYS_TRACE_TOPIC")
told = reading_options(spark, HOW)

dp.create_sink("records", ARCHIVE, {"path": f"{path}/records"})


@dp.append_flow(target="records", name="trace_records")
def trace_records() -> DataFrame:
    """A row for each record of each trace message."""
    return spark.readStream.format(NAME).options(**told, topic=trace_topic).load()


if given(spark, "topics"):
    dp.create_sink("stored", ARCHIVE, {"path": f"{path}/stored"})

    @dp.append_flow(target="stored", name="stored_messages")
    def stored_messages() -> DataFrame:
        """When messages of these topics were made, and when a broker had stored them."""
        source = spark.readStream.format("rocketmq").options(**told, columns=STAMPS)
        return source.option("topics", given(spark, "topics")).load()
