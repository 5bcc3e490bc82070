"""Topics to Parquet: every message once, in the file of its topic and hour."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from gantrymq.spark.pipelines.archiving import NAME, ArchiveDataSource
from gantrymq.spark.pipelines.given import given, needed, reading_options

spark = SparkSession.active()
spark.dataSource.register(ArchiveDataSource)
where = {"path": needed(spark, "path"), "fileBytes": given(spark, "fileBytes", "268435456")}
messages = reading_options(spark)

dp.create_sink("archive", NAME, where)


@dp.append_flow(target="archive", name="archive_messages")
def archive_messages() -> DataFrame:
    """What the topics have and the archive has not."""
    return spark.readStream.format("rocketmq").options(**messages).load()
