"""Orders from one topic; those that are large go into another. Change it into what you need."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from gantrymq.spark.pipelines.given import client_options, given, needed, reading_options

spark = SparkSession.active()
source = reading_options(spark) | {"bodyFormat": "json"}
least = int(given(spark, "least", "1000"))

dp.create_sink("large", "rocketmq", client_options(spark) | {"topic": needed(spark, "target")})


@dp.append_flow(target="large", name="large_orders")
def large_orders() -> DataFrame:
    """Orders of at least so much, as JSON; the order's number is the key."""
    orders = spark.readStream.format("rocketmq").schema("id string, amount long")
    large = orders.options(**source).load().where(sql.col("amount") >= least)
    body = sql.to_json(sql.struct("id", "amount"))
    return large.select(body.alias("body"), sql.col("id").alias("keys"))
