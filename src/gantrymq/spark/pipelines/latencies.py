"""From trace records to latencies: how long messages took, stage by stage.

| stage | from | to | clocks |
|---|---|---|---|
| send | the producer begins to send | the broker's answer is there | the producer's |
| store | the message was made | the broker had stored it | the producer's, the broker's |
| wait | it was stored, or if nobody knows that, acknowledged | its first handling begins | two |
| consume | the handler is called | it has ended | the consumer's |

Where two clocks are involved a latency is as good as they agree; less than nothing counts as 0.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from gantrymq.spark.reports import step_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGES: Final = ("send", "store", "wait", "consume")
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
SLOWEST: Final = 20
BINS_PER_DECADE: Final = 10

_SENDS: Final = """
    SELECT traced_topic AS topic, `group`, client, message_id, keys, at, cost_ms, success
    FROM {records} WHERE kind = 'sent'
"""
_MESSAGES: Final = """
    SELECT message_id, first(topic) AS topic, min(unix_millis(at)) AS sent_ms,
           min(unix_millis(at) + cost_ms) AS answered_ms, first(`group`) AS `group`,
           first(client) AS client
    FROM {sends} WHERE success GROUP BY message_id
"""
_DELIVERIES: Final = """
    SELECT coalesce(b.`group`, e.`group`) AS `group`, coalesce(b.client, e.client) AS client,
           coalesce(b.message_id, e.message_id) AS message_id, coalesce(b.keys, e.keys) AS keys,
           b.at AS begun, coalesce(b.at, timestamp_millis(unix_millis(e.at) - e.cost_ms)) AS at,
           b.retries, e.cost_ms, e.success, e.context_code
    FROM (SELECT * FROM {records} WHERE kind = 'begun') AS b
    FULL OUTER JOIN (SELECT * FROM {records} WHERE kind = 'ended') AS e
      ON b.request_id = e.request_id AND b.message_id = e.message_id
"""
_NO_STORE: Final = (
    "SELECT '' AS message_id, '' AS topic, 0L AS born_ms, 0L AS stored_ms WHERE false"
)
_STORE: Final = """
    SELECT unique_id AS message_id, first(topic) AS topic,
           min(unix_millis(born_timestamp)) AS born_ms,
           min(unix_millis(store_timestamp)) AS stored_ms
    FROM {stored} GROUP BY unique_id
"""
_EVENTS: Final = """
    SELECT 'send' AS stage, at, topic, `group`, client, message_id, keys, cost_ms AS ms, success,
           CASE WHEN NOT success THEN 'the send failed' END AS why
    FROM {sends}
    UNION ALL
    SELECT 'store', timestamp_millis(s.born_ms), s.topic, m.`group`, m.client, s.message_id, NULL,
           greatest(0, s.stored_ms - s.born_ms), true, NULL
    FROM {store} AS s LEFT JOIN {messages} AS m ON s.message_id = m.message_id
    UNION ALL
    SELECT 'wait', d.begun, coalesce(m.topic, s.topic), d.`group`, d.client, d.message_id, d.keys,
           greatest(0, unix_millis(d.begun) - coalesce(s.stored_ms, m.answered_ms)), true, NULL
    FROM {deliveries} AS d
    LEFT JOIN {messages} AS m ON d.message_id = m.message_id
    LEFT JOIN {store} AS s ON d.message_id = s.message_id
    WHERE d.retries = 0 AND coalesce(s.stored_ms, m.answered_ms) IS NOT NULL
    UNION ALL
    SELECT 'consume', d.at, m.topic, d.`group`, d.client, d.message_id, d.keys, d.cost_ms,
           d.success,
           CASE WHEN d.success THEN NULL WHEN d.context_code = 1 THEN 'it took too long'
                WHEN d.context_code = 2 THEN 'the handler raised an error'
                WHEN d.context_code = 3 THEN 'the handler gave null'
                ELSE 'the handler failed' END
    FROM {deliveries} AS d LEFT JOIN {messages} AS m ON d.message_id = m.message_id
    WHERE d.cost_ms IS NOT NULL
"""
_NUMBERS: Final = """
    count(*) AS count, count_if(NOT success) AS failed,
    percentile_approx(ms, array({quantiles}), 10000) AS ms, max(ms) AS longest
"""


def events(spark: SparkSession, root: Path) -> DataFrame:
    """One row for each latency that the records below `root` tell of."""
    records = spark.read.parquet(str(root / "records"))
    sends = spark.sql(_SENDS, records=records)
    messages = spark.sql(_MESSAGES, sends=sends)
    deliveries = spark.sql(_DELIVERIES, records=records)
    store = spark.sql(_NO_STORE)
    if any((root / "stored").glob("topic=*")):
        store = spark.sql(_STORE, stored=spark.read.parquet(str(root / "stored")))
    return spark.sql(_EVENTS, sends=sends, messages=messages, deliveries=deliveries, store=store)


def percentiles(spark: SparkSession, found: DataFrame) -> DataFrame:
    """By stage; and in it by topic, by group, and by client."""
    return spark.sql(
        f"""
        SELECT stage, CASE grouping_id() WHEN 7 THEN 'all' WHEN 3 THEN 'topic'
                      WHEN 5 THEN 'group' ELSE 'client' END AS by,
               coalesce(topic, `group`, client, '') AS name, {_numbers()}
        FROM {{events}}
        GROUP BY GROUPING SETS ((stage), (stage, topic), (stage, `group`), (stage, client))
        """,
        events=found,
    )


def course(spark: SparkSession, found: DataFrame) -> DataFrame:
    """By stage and time, in steps of `seconds` that make a page's width of points."""
    span = spark.sql(
        "SELECT unix_seconds(max(at)) - unix_seconds(min(at)) AS s FROM {events}", events=found
    ).collect()[0]["s"]
    step = step_of(span or 0)
    return spark.sql(
        f"""
        SELECT stage, {step} AS seconds, floor(unix_millis(at) / {step * 1000}) * {step} AS second,
               {_numbers()}
        FROM {{events}} WHERE at IS NOT NULL GROUP BY stage, second ORDER BY stage, second
        """,
        events=found,
    )


def distribution(spark: SparkSession, found: DataFrame) -> DataFrame:
    """How many latencies of each stage fall into each bin; a decade has so many of them."""
    return spark.sql(
        f"""
        SELECT stage, cast(ceil(log10(greatest(ms, 1)) * {BINS_PER_DECADE}) AS int) AS bin,
               count(*) AS count
        FROM {{events}} GROUP BY stage, bin ORDER BY stage, bin
        """,
        events=found,
    )


def slow(spark: SparkSession, found: DataFrame) -> DataFrame:
    """The slowest of each stage."""
    return spark.sql(
        f"""
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY stage ORDER BY ms DESC, at) AS rank
            FROM {{events}}
        ) WHERE rank <= {SLOWEST} ORDER BY stage, rank
        """,
        events=found,
    )


def failed(spark: SparkSession, found: DataFrame) -> DataFrame:
    """What failed, where, how often, and the last of it."""
    return spark.sql(
        """
        SELECT stage, coalesce(topic, '') AS topic, `group`, client, why, count(*) AS count,
               max(at) AS last, max_by(message_id, at) AS message_id
        FROM {events} WHERE NOT success GROUP BY ALL ORDER BY count DESC, last DESC
        """,
        events=found,
    )


def _numbers() -> str:
    return _NUMBERS.format(quantiles=", ".join(map(str, QUANTILES)))
