"""What was stored once more into a topic, in its original order."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from gantrymq.spark.pipelines.replay_terms import Terms, as_sent
from gantrymq.spark.pipelines.replaying import NAME, ReplayDataSource

spark = SparkSession.active()
spark.dataSource.register(ReplayDataSource)
terms = Terms(spark)

dp.create_sink("replayed", "rocketmq", terms.sink)


@dp.append_flow(target="replayed", name="replay_messages")
def replay_messages() -> DataFrame:
    """All that fits, as it was sent."""
    stored = spark.readStream.format(NAME).options(**terms.source).load()
    return as_sent(stored.where(terms.where), terms)
