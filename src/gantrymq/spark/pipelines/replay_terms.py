"""What a replay was told: what to read, what of it to send, and how.

A message goes out with its body, keys, tags and the properties of its sender, and with the
property `REPLAYED_FROM`, which says where it was stored: `orders[broker-a:0]@42`. It is sent at
once, whether or not it was once sent for later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gantrymq.errors import ConfigError
from gantrymq.spark.pipelines.given import client_options, given, reading_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REPLAYED_FROM: Final = "REPLAYED_FROM"
_READ: Final = (
    "topic", "topics", "topicPattern", "startingTimestamp", "failOnDataLoss", "endingTimestamp",
    "archive", "order",
)  # fmt: skip
_NAMED: Final = ("topic", "topics", "topicPattern")
_AT_ONCE: Final = 10
"""Seconds of a replay at a rate that are one batch, and sent again if it dies."""
_KEY: Final = (
    "coalesce(properties['__SHARDINGKEY'], split(keys, ' ')[0], concat(broker, ':', queue_id))"
)
_PROPERTIES: Final = (
    "map_concat(map_filter(coalesce(properties, cast(map() AS map<string, string>)),"
    f" (name, _) -> name != '{REPLAYED_FROM}'), map('{REPLAYED_FROM}',"
    " concat(topic, '[', broker, ':', queue_id, ']@', queue_offset)))"
)


class Terms:
    """The settings of a replay, if they do not contradict each other."""

    def __init__(self, spark: SparkSession) -> None:
        self.target = given(spark, "target")
        self.order = given(spark, "order", "queue")
        self.where = given(spark, "where", "true")
        rate = _number("rate", given(spark, "rate"))
        most = _number("maxOffsetsPerTrigger", given(spark, "maxOffsetsPerTrigger", "100000"))
        self.source = reading_options(spark, _READ)
        self.sink = client_options(spark) | ({"topic": self.target} if self.target else {})
        if rate is not None:
            most = min(most or rate, rate * _AT_ONCE)
            self.source["tasks"] = "1"
            self.sink["maxRowsPerSecond"] = str(rate)
        self.source["maxOffsetsPerTrigger"] = str(most)
        self._check(spark)

    def _check(self, spark: SparkSession) -> None:
        archive = "archive" in self.source
        if archive:
            self.source.pop("startingOffsets", None)
        elif not any(given(spark, name) for name in _NAMED):
            raise ConfigError(
                "what is to be replayed? Say archive=DIR, or topic=..., with startingTimestamp"
                " and endingTimestamp if it is not all of it"
            )
        own = not self.target or _reads(spark, self.target)
        if own and not archive and "endingTimestamp" not in self.source:
            raise ConfigError(
                "a topic that is replayed into itself never ends: say target=..., or an"
                " endingTimestamp"
            )


def _reads(spark: SparkSession, target: str) -> bool:
    """Whether the target is among what is read."""
    named = [given(spark, "topic"), *given(spark, "topics").split(",")]
    pattern = given(spark, "topicPattern")
    return target in map(str.strip, named) or bool(pattern and re.fullmatch(pattern, target))


def _number(name: str, text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"{name}: {text!r} is no number of messages")
    return int(text)


def as_sent(stored: DataFrame, terms: Terms) -> DataFrame:
    """Stored messages as what the sink takes."""
    if terms.order == "key":
        way = f"{_KEY} AS sharding_key"
    else:
        way = "crc32(cast(broker AS binary)) + queue_id AS queue"
    topic = () if terms.target else ("topic",)
    return stored.selectExpr(*topic, "body", "keys", "tags", f"{_PROPERTIES} AS properties", way)
