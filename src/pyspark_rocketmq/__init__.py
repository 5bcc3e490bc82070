"""Where Spark finds `format("rocketmq")` by its name; everything else is in `gantrymq.spark`."""

from gantrymq.spark.source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
