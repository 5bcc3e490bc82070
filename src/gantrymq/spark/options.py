"""The options of `format("rocketmq")`, for reading and for writing.

They are declared as settings are, and spelled as Spark's are: `max_offsets_per_trigger` is the
option `maxOffsetsPerTrigger`. What concerns the connection is declared by the client
(`gantrymq.client.config`) and is spelled the same way: `accessKey`, `tlsTrust`. Names are compared
without regard to case. One that nobody knows is an error which names the nearest known, and so are
two that contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from gantrymq.client.config import ClientConfig, load_config
from gantrymq.errors import ConfigError, InvalidInput
from gantrymq.flows.reading import SQL, TAG, ReadTerms
from gantrymq.protocol.names import TOOLS_GROUP
from gantrymq.rules.filtering import EVERYTHING, parse_tags
from gantrymq.settings import Bytes, Seconds, at_least, load, nearest, rows, setting

T = TypeVar("T")

SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "outputmode", "path"})
"""Options that Spark hands to every source or sink, and reads itself."""

Mode = Literal["permissive", "dropmalformed", "failfast"]
BodyFormat = Literal["binary", "text", "json", "avro", "protobuf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """How to read."""

    topic: str | None = setting(None, "the topic to read")
    topics: tuple[str, ...] = setting((), "several topics, with commas between them")
    topic_pattern: str | None = setting(
        None, "a regular expression that a topic's whole name has to match; new ones join while"
        " a query runs",
    )  # fmt: skip
    queues: tuple[str, ...] = setting(
        (), "only these queues of each topic: broker:queue, with commas between them"
    )
    group: str | None = setting(
        None, "the consumer group in whose name is read; streaming queries with a"
        " `ProgressListener` commit to it what they have finished",
    )  # fmt: skip
    tags: str = setting(EVERYTHING, "only messages with one of these tags: `a || b`")
    sql: str | None = setting(None, "only messages whose properties fit this SQL92 expression")
    starting_offsets: str = setting(
        "", "where to begin: earliest, latest, or JSON such as"
        ' `{"orders": {"broker-a": {"0": 42, "1": -2}}}`, where -2 is the earliest and -1 the'
        " latest; queues that are not named begin with the earliest",
    )  # fmt: skip
    ending_offsets: str = setting(
        "", "where to end, exclusively: latest, or JSON as above; queues that are not named end"
        " with the latest; not while streaming",
    )  # fmt: skip
    starting_timestamp: str | None = setting(
        None, "begin with the first message stored at this time: milliseconds since 1970, or"
        " 2026-11-19T20:00:00+00:00",
    )  # fmt: skip
    ending_timestamp: str | None = setting(
        None, "end before the first message stored at this time or later; not while streaming"
    )
    starting_offsets_by_timestamp: str | None = setting(
        None, "the same for single queues, as JSON with milliseconds"
    )
    ending_offsets_by_timestamp: str | None = setting(
        None, "the same for single queues, as JSON with milliseconds; not while streaming"
    )
    max_offsets_per_trigger: int | None = setting(
        None, "most messages of a micro-batch, shared among the queues by what they have"
    )
    max_bytes_per_trigger: Bytes | None = setting(
        None, "most bytes of a micro-batch, as far as the size of recent messages foretells"
    )
    min_offsets_per_trigger: int | None = setting(
        None, "fewest messages of a micro-batch: wait for so many, but not forever"
    )
    max_trigger_delay: Seconds = setting(
        900.0, "how long minOffsetsPerTrigger may hold a micro-batch back", check=at_least(0)
    )
    min_partitions: int | None = setting(
        None, "Spark partitions at least, where there is so much to read; else as many as cores"
    )
    max_records_per_partition: int | None = setting(None, "most messages of a Spark partition")
    fail_on_data_loss: bool = setting(
        True, "fail when messages that were to be read are gone; else log which, and go on"
    )
    columns: str = setting("", "columns to read, with commas between them; all of them if none")
    include_properties: bool = setting(True, "have the column `properties`, a map")
    body_format: BodyFormat = setting(
        "binary", "what bodies hold; their fields become columns of the schema that is given"
    )
    mode: Mode = setting("permissive", "what to do with bodies that are not of that format")
    column_name_of_corrupt_record: str = setting(
        "_corrupt_record", "the column that keeps such a body, if the schema has it"
    )
    avro_schema: str | None = setting(None, "the schema that bodies were written with, as JSON")
    protobuf_descriptor: str | None = setting(
        None, "a descriptor set of protoc (`--descriptor_set_out`): a file, or base64 of it"
    )
    protobuf_message: str | None = setting(None, "the full name of the message type")
    drop_duplicates: bool = setting(
        False, "leave out what this package's sink has written more than once"
    )
    duplicates_window: int = setting(
        20_000, "how many messages of a queue before a range are looked at for that",
        check=at_least(0),
    )  # fmt: skip
    broker_timeout: Seconds = setting(
        60.0, "how long a broker may be away before reading fails", check=at_least(0)
    )
    topic_refresh: Seconds = setting(
        5.0, "between looks for new topics, brokers and queues", check=at_least(0)
    )
    idle_wait: Seconds = setting(
        1.0, "how long an idle query waits for messages before it turns to Spark again",
        check=at_least(0),
    )  # fmt: skip
    pull_bytes: Bytes = setting(4 << 20, "most bytes that one pull asks for", check=at_least(1))

    @property
    def terms(self) -> ReadTerms:
        """How ranges are read."""
        sql = self.sql
        return ReadTerms(
            group=self.group or TOOLS_GROUP,
            expression=parse_tags(self.tags).expression if sql is None else sql,
            expression_type=TAG if sql is None else SQL,
            max_bytes=self.pull_bytes,
            patience=self.broker_timeout,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """How to write."""

    topic: str | None = setting(None, "where rows without a column `topic` go")
    group: str = setting("gantry-spark", "the producer group in whose name is written")
    row_keys: bool = setting(
        True, "give every message the property SPARK_ROW, by which a repeat can be told"
    )
    exactly_once: bool = setting(
        False, "send half messages, and commit them when all of the batch are stored"
    )
    commit_topic: str = setting(
        "GANTRY_SPARK_COMMITS", "where exactlyOnce notes which batches it has decided to commit"
    )
    max_rows_per_second: int | None = setting(None, "most rows that one writing task sends")
    batch_bytes: Bytes = setting(512 << 10, "most bytes of one send", check=at_least(1))
    send_timeout: Seconds = setting(
        60.0, "how long one send may take, all attempts together", check=at_least(0.001)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """All options of a source or a sink, as they were given."""

    client: ClientConfig = field(repr=False)
    source: SourceOptions
    sink: SinkOptions
    given: frozenset[str]
    """The names of those that were given."""


def spelled(name: str) -> str:
    """How Spark's users write it."""
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _names(kind: type[Any]) -> dict[str, str]:
    return {spelled(row.path).lower(): row.path for row in rows(kind)}


_SOURCE: Final = _names(SourceOptions)
_SINK: Final = _names(SinkOptions)
_CLIENT: Final = _names(ClientConfig) | {"nameserver": "name_servers"}
_KNOWN: Final = {
    key: "nameServer" if key == "nameserver" else spelled(name)
    for key, name in (_SOURCE | _SINK | _CLIENT | {"url": "url"}).items()
    if key != "nameservers"
}


def parse(given: Mapping[str, str]) -> Options:
    """The options out of what Spark hands over."""
    texts = {key.lower(): str(text) for key, text in given.items()}
    for key in texts:
        if key not in _KNOWN and key != "nameservers" and key not in SPARKS_OWN:
            raise _unknown(key)
    return Options(
        client=load_config(texts.get("url"), arguments=client_arguments(given)),
        source=_load(SourceOptions, _SOURCE, texts),
        sink=_load(SinkOptions, _SINK, texts),
        given=frozenset(texts),
    )


def client_arguments(given: Mapping[str, str]) -> dict[str, str]:
    """What of it concerns the connection, as clients are told it."""
    texts = {key.lower(): str(text) for key, text in given.items()}
    return {name: texts[key] for key, name in _CLIENT.items() if key in texts}


def _unknown(key: str) -> ConfigError:
    hint = nearest(key, _KNOWN)
    for known, shown in _KNOWN.items():
        hint = hint.replace(f" {known}?", f" {shown}?")
    return ConfigError(f"format rocketmq has no option {key!r}{hint}")


def _load(kind: type[T], names: Mapping[str, str], texts: Mapping[str, str]) -> T:
    flags = {name: texts[key] for key, name in names.items() if key in texts}
    try:
        return load(kind, flags=flags).value
    except ConfigError as error:
        text = re.sub(
            r"^(\w+) \(flag \w+\)", lambda found: f"option {spelled(found[1])}", str(error)
        )
        raise ConfigError(text) from error


def check_source(options: Options, *, streaming: bool) -> SourceOptions:
    """The options of a source, if they do not contradict each other."""
    source, given = options.source, options.given
    _check_servers(options)
    named = [
        spelled(name) for name in ("topic", "topics", "topic_pattern") if getattr(source, name)
    ]
    if len(named) != 1:
        found = " and ".join(named) or "none of them"
        raise ConfigError(f"give one of the options topic, topics and topicPattern, not {found}")
    _one_of(given, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
    _one_of(given, "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
    _one_of(given, "tags", "sql")
    _one_of(given, "columns", "includeProperties")
    only = _ENDING if streaming else _TRIGGERS
    for name in only:
        if name.lower() in given:
            kind = "a streaming query" if streaming else "a batch"
            raise ConfigError(f"option {name} means nothing to {kind}: leave it out")
    _check_numbers(source)
    _check_words(source)
    return source


_ENDING: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_TRIGGERS: Final = (
    "maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "topicRefresh", "idleWait",
)  # fmt: skip
_AT_LEAST_ONE: Final = (
    "max_offsets_per_trigger", "max_bytes_per_trigger", "min_offsets_per_trigger",
    "min_partitions", "max_records_per_partition",
)  # fmt: skip


def _check_numbers(source: SourceOptions) -> None:
    for name in _AT_LEAST_ONE:
        value = getattr(source, name)
        if value is not None and value < 1:
            raise ConfigError(f"option {spelled(name)}: {value} will not do, the least is 1")
    least, most = source.min_offsets_per_trigger, source.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise ConfigError(
            f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={most}: no batch can"
            f" have both"
        )


def _check_words(source: SourceOptions) -> None:
    try:
        parse_tags(source.tags)
    except InvalidInput as error:
        raise ConfigError(f"option tags: {error}") from error
    if source.topic_pattern:
        try:
            re.compile(source.topic_pattern)
        except re.error as error:
            raise ConfigError(f"option topicPattern: {source.topic_pattern!r}: {error}") from error


def check_sink(options: Options) -> SinkOptions:
    """The options of a sink."""
    _check_servers(options)
    sink = options.sink
    if sink.max_rows_per_second is not None and sink.max_rows_per_second < 1:
        raise ConfigError("option maxRowsPerSecond: the least is 1")
    return sink


def _check_servers(options: Options) -> None:
    if not options.client.name_servers:
        raise ConfigError(
            "no name server was given: set the option nameServer (host:9876;host2:9876) or url"
            " (rmq://host:9876), or GANTRY_URL or NAMESRV_ADDR in the driver's environment"
        )


def _one_of(given: frozenset[str], *names: str) -> None:
    found = [name for name in names if name.lower() in given]
    if len(found) > 1:
        raise ConfigError(f"the options {' and '.join(found)} contradict each other: give one")
