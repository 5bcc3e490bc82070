"""From the rows of a data frame to the requests that carry them.

| column | type | |
|---|---|---|
| `topic` | string | where it goes; not needed with the option `topic` |
| `body` | binary or string | the one column that is needed |
| `keys` | string, or array of strings | what it can be found by |
| `tags` | string | |
| `properties` | map of strings | the sender's own |
| `sharding_key` | string | rows with the same go to the same queue, in their order |
| `queue` | int | likewise, by the queue's place among those of the topic, counted around |
| `deliver_at` | timestamp | not before this time |
| `delay_level` | int | the same by one of RocketMQ's levels |

Rows become frames of many messages, except those that are delivered later, which brokers take one
by one alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from gantrymq.client.identity import now_ms, unique_ids
from gantrymq.errors import ConfigError, GantryError, InvalidInput
from gantrymq.protocol.sending import SendBatch, SendMessage
from gantrymq.protocol.validation import MAX_BODY, check_topic_to_send
from gantrymq.settings import nearest
from gantrymq.wire import batch, properties
from gantrymq.wire.batch import BatchMessage

SPARK_ROW: Final = "SPARK_ROW"
"""The property that tells a row from every other: query, batch, partition, row."""

_STRINGS: Final = frozenset(("string",))
TYPES: Final[Mapping[str, frozenset[str]]] = {
    "topic": _STRINGS,
    "body": frozenset(("binary", "string")),
    "keys": frozenset(("string", "array<string>")),
    "tags": _STRINGS,
    "properties": frozenset(("map<string,string>",)),
    "sharding_key": _STRINGS,
    "queue": frozenset(("int", "bigint")),
    "deliver_at": frozenset(("timestamp",)),
    "delay_level": frozenset(("int", "tinyint", "smallint", "bigint")),
}
_MOST_IN_A_FRAME: Final = 1_000


class Row(NamedTuple):
    """One row of the data frame, ready to be put into a frame."""

    number: int
    topic: str
    content: BatchMessage
    shard: str | int | None
    """A sharding key, or the place of a queue."""
    single: bool


def check_schema(schema: StructType, topic: str | None) -> None:
    """Refuse columns that a sink has no use for, of whatever type."""
    names = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in names.items():
        if name not in TYPES:
            raise ConfigError(
                f"the sink rocketmq has no column {name!r}{nearest(name, TYPES)}; it takes"
                f" {', '.join(TYPES)}"
            )
        if kind not in TYPES[name]:
            raise ConfigError(
                f"column {name} is {kind}; it has to be {' or '.join(sorted(TYPES[name]))}"
            )
    if "body" not in names:
        raise ConfigError("the sink rocketmq needs a column body, binary or string")
    if topic is None and "topic" not in names:
        raise ConfigError("where to write to? give the option topic, or a column topic")


class Rows:
    """Reads record batches as rows to send."""

    def __init__(self, topic: str | None, key: str | None, address: str, most: int) -> None:
        """`key` is what the row's number is put behind to tell it from all others."""
        self._topic = topic
        self._key = None if key is None else f"{SPARK_ROW}\x01{key}:"
        self._next_id = unique_ids(address).next
        self._most = most
        self._number = 0

    def of(self, record: pa.RecordBatch) -> Iterator[Row]:
        """The rows of one record batch."""
        columns = {name: record.column(name).to_pylist() for name in record.schema.names}
        bodies = columns["body"]
        nothing = [None] * len(bodies)
        topics = columns.get("topic", nothing)
        parts = [columns.get(name, nothing) for name in ("keys", "tags", "properties")]
        shards = columns.get("sharding_key", nothing)
        queues = columns.get("queue", nothing)
        later = [columns.get(name, nothing) for name in ("deliver_at", "delay_level")]
        for body, topic, keys, tags, own, shard, queue, at, level in zip(
            bodies, topics, *parts, shards, queues, *later, strict=True
        ):
            number = self._number
            self._number += 1
            try:
                row = self._row(number, body, topic, keys, tags, own, shard, at, level)
                yield row if queue is None else row._replace(shard=queue)
            except GantryError as error:
                raise InvalidInput(f"row {number:,}: {error}") from error

    def _row(
        self, number: int, body: Any, topic: Any, keys: Any, tags: Any, own: Any, shard: Any,
        at: datetime | None, level: int | None,
    ) -> Row:  # fmt: skip
        topic = self._topic if topic is None else topic
        if topic is None:
            raise InvalidInput("its topic is null, and there is no option topic")
        check_topic_to_send(topic)
        if body is None:
            raise InvalidInput("its body is null")
        if type(body) is str:
            body = body.encode()
        if len(body) > self._most:
            raise InvalidInput(f"its body has {len(body):,} bytes; the most is {self._most:,}")
        text = f"UNIQ_KEY\x01{self._next_id()}\x02WAIT\x01true\x02"
        if self._key is not None:
            text += f"{self._key}{number}\x02"
        if keys or tags or own or shard or at or level:
            text += properties.join(_named(keys, tags, own, shard, at, level))
        raw = text.encode()
        if len(raw) > properties.MAX_SIZE:
            raise InvalidInput(f"it has {len(raw):,} bytes of properties; the most is 32,767")
        return Row(number, topic, BatchMessage(body, raw), shard, bool(at or level))


def _named(
    keys: Any, tags: str | None, own: Any, shard: str | None, at: datetime | None, level: int | None
) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in own or ():
        if name in properties.RESERVED_PROPERTIES or name == SPARK_ROW:
            continue  # a message that was read has what its broker and sender wrote into it
        if value is not None:
            found[name] = value
    if keys:
        found[properties.KEYS] = keys if isinstance(keys, str) else " ".join(keys)
    if tags:
        found[properties.TAGS] = tags
    if shard:
        found[properties.SHARDING_KEY] = shard
    if at:
        found[properties.TIMER_DELIVER_MS] = str(round(at.timestamp() * 1000))
    if level:
        found[properties.DELAY] = str(level)
    return found


def request_of(rows: Sequence[Row], group: str, topic: str) -> SendMessage:
    """The request that carries these rows, all of the same topic; its queue is still open."""
    if len(rows) == 1:
        content = rows[0].content
        return SendMessage(
            group=group,
            topic=topic,
            queue_id=0,
            born_ms=now_ms(),
            properties=content.property_bytes.decode(),
            body=content.body,
        )
    return SendBatch(
        group=group,
        topic=topic,
        queue_id=0,
        born_ms=now_ms(),
        properties=properties.join({properties.WAIT: "true"}),
        body=batch.encode(row.content for row in rows),
    )


class Gathering:
    """Rows that go the same way, until they are worth a frame."""

    __slots__ = ("rows", "size")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.size = 0

    def take(self, row: Row, limit: int) -> list[Row]:
        """Put a row to the others; those before it, when it does not fit any more."""
        size = row.content.size
        full: list[Row] = []
        if self.rows and (self.size + size > limit or len(self.rows) >= _MOST_IN_A_FRAME):
            full = self.empty()
        self.rows.append(row)
        self.size += size
        return full

    def empty(self) -> list[Row]:
        """All of them."""
        rows, self.rows, self.size = self.rows, [], 0
        return rows


LIMIT: Final = MAX_BODY
