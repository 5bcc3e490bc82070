"""How large queues are and how far groups are behind, look by look."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from gantrymq.spark.pipelines.given import client_options, given, needed
from gantrymq.spark.pipelines.sampling import NAME, SamplesDataSource

spark = SparkSession.active()
spark.dataSource.register(SamplesDataSource)
told = {name: given(spark, name) for name in ("topics", "groups", "samples", "every")}

dp.create_sink("samples", "parquet", {"path": needed(spark, "path")})


@dp.append_flow(target="samples", name="look")
def look() -> DataFrame:
    """A row for each queue of each topic and group, at each look."""
    options = client_options(spark) | {name: text for name, text in told.items() if text}
    return spark.readStream.format(NAME).options(**options).load()
