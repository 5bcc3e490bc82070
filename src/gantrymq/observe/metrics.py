"""The metrics there are, as data, and the text in which Prometheus reads them.

Counting is done where things happen, in plain integers; nothing here is called for a message. When
somebody asks, a server goes through what it has counted and gives `Sample`s, and `Exposition` turns
those into text.

Names are RocketMQ's where RocketMQ 5 has such a metric, as its own page spells them: with the unit
at the end. What only we have begins with `gantry_`, and what every process has is called as
Prometheus' own libraries call it.

RocketMQ: BrokerMetricsManager, DefaultStoreMetricsManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """One metric: its name, what it counts, and by what."""

    name: str
    kind: Literal["counter", "gauge"]
    doc: str
    labels: tuple[str, ...] = ()

    def of(self, number: float, *values: object) -> Sample:
        """What it is now, for these values of its labels."""
        return Sample(self, values, number)


class Sample(NamedTuple):
    """A metric at one moment."""

    metric: Metric
    values: tuple[object, ...]
    number: float


def counter(name: str, doc: str, *labels: str) -> Metric:
    """Something that only grows."""
    return Metric(name=name, kind="counter", doc=doc, labels=labels)


def gauge(name: str, doc: str, *labels: str) -> Metric:
    """Something that goes up and down."""
    return Metric(name=name, kind="gauge", doc=doc, labels=labels)


# --- messages -------------------------------------------------------------------------------------

_INCOMING: Final = ("topic", "message_type", "is_system")
_OUTGOING: Final = ("topic", "consumer_group", "is_retry", "is_system")

MESSAGES_IN: Final = counter(
    "rocketmq_messages_in_total", "messages that were stored in a topic", *_INCOMING
)
THROUGHPUT_IN: Final = counter(
    "rocketmq_throughput_in_total", "bytes of the messages that were stored", *_INCOMING
)
MESSAGES_OUT: Final = counter(
    "rocketmq_messages_out_total", "messages that were handed to a group", *_OUTGOING
)
THROUGHPUT_OUT: Final = counter(
    "rocketmq_throughput_out_total", "bytes of the messages that were handed out", *_OUTGOING
)
DEAD_LETTERS: Final = counter(
    "rocketmq_send_to_dlq_messages_total",
    "messages that a group gave up",
    *("consumer_group", "topic", "is_system"),
)

# --- clients and groups ---------------------------------------------------------------------------

_BEHIND: Final = ("consumer_group", "topic", "is_retry", "is_system")

PRODUCERS: Final = gauge(
    "rocketmq_producer_connections",
    "connections of producers, once for each of their groups",
    *("language", "version", "protocol_type"),
)
CONSUMERS: Final = gauge(
    "rocketmq_consumer_connections",
    "connections of a group's consumers",
    *("consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system"),
)
LAG_MESSAGES: Final = gauge(
    "rocketmq_consumer_lag_messages",
    "messages that a group with consumers is not done with, whatever their tags",
    *_BEHIND,
)
LAG_LATENCY: Final = gauge(
    "rocketmq_consumer_lag_latency_milliseconds",
    "age of the oldest message that the group is not done with",
    *_BEHIND,
)
INFLIGHT_MESSAGES: Final = gauge(
    "rocketmq_consumer_inflight_messages",
    "messages that were handed to the group, and that it is not done with",
    *_BEHIND,
)
QUEUEING_LATENCY: Final = gauge(
    "rocketmq_consumer_queueing_latency_milliseconds",
    "age of the oldest message that the group has not been handed",
    *_BEHIND,
)
READY_MESSAGES: Final = gauge(
    "rocketmq_consumer_ready_messages", "messages that the group has not been handed", *_BEHIND
)

# --- the broker -----------------------------------------------------------------------------------

PERMISSION: Final = gauge(
    "rocketmq_broker_permission", "what clients may do: 4 read, 2 write, 6 both"
)
TOPICS: Final = gauge("rocketmq_topic_number", "topics, those of the system included")
GROUPS: Final = gauge("rocketmq_consumer_group_number", "consumer groups")
WATERMARK: Final = gauge(
    "rocketmq_processor_watermark",
    "requests that wait: sends for the disk, pulls for messages",
    "processor",
)
WATERMARK_LIMIT: Final = gauge(
    "gantry_processor_limit", "requests that may wait before others are refused", "processor"
)

# --- the store ------------------------------------------------------------------------------------

_STORAGE: Final = ("storage_type", "storage_medium")

STORAGE_SIZE: Final = gauge(
    "rocketmq_storage_size_bytes", "bytes in use on the disk that the store is on", *_STORAGE
)
STORAGE_ROOM: Final = gauge(
    "gantry_storage_free_bytes", "bytes free on the disk that the store is on", *_STORAGE
)
FLUSH_BEHIND: Final = gauge(
    "rocketmq_storage_flush_behind_bytes", "bytes of the log that the disk does not have yet",
    *_STORAGE,
)  # fmt: skip
DISPATCH_BEHIND: Final = gauge(
    "rocketmq_storage_dispatch_behind_bytes",
    "bytes of the log whose messages cannot be read yet",
    *_STORAGE,
)
RESERVE_TIME: Final = gauge(
    "rocketmq_storage_message_reserve_time_milliseconds", "age of the oldest message", *_STORAGE
)
LOG_START: Final = gauge("gantry_log_start_offset", "offset of the oldest byte of the commit log")
LOG_END: Final = gauge("gantry_log_end_offset", "offset of the end of the commit log")
WRITABLE: Final = gauge("gantry_storage_writable", "1 while messages are stored, 0 if not")
FAILED_PUTS: Final = counter(
    "gantry_failed_puts_total", "messages that the store did not take: no room, or it is broken"
)

# --- name server ----------------------------------------------------------------------------------

KNOWN_BROKERS: Final = gauge("gantry_namesrv_brokers", "brokers that are registered")
KNOWN_TOPICS: Final = gauge("gantry_namesrv_topics", "topics that some broker has")

# --- connections and requests, of either server ---------------------------------------------------

CONNECTIONS: Final = gauge("gantry_connections", "connections that are open")
ENDED: Final = counter(
    "gantry_connections_ended_total",
    "connections that ended; reason bad_frame: the peer broke the protocol",
    "reason",
)
TURNED_AWAY: Final = counter(
    "gantry_connections_refused_total",
    "connections that were not let in: too many, or neither TLS nor PROXY header as it has to be",
    "reason",
)
REQUESTS: Final = counter("gantry_requests_total", "requests that came, one-way ones included")
REFUSALS: Final = counter(
    "gantry_requests_refused_total",
    "requests that were answered with an error, or would have been",
    *("request_code", "response_code"),
)
BYTES_IN: Final = counter("gantry_received_bytes_total", "bytes that came over connections")
BYTES_OUT: Final = counter("gantry_sent_bytes_total", "bytes that went over connections")

# --- the process ----------------------------------------------------------------------------------

CPU: Final = counter("process_cpu_seconds_total", "processor time that the process has used")
MEMORY: Final = gauge("process_resident_memory_bytes", "memory of the process, shared pages too")
STARTED: Final = gauge("process_start_time_seconds", "when the process began, since 1970")

METRICS: Final = tuple(one for one in list(globals().values()) if isinstance(one, Metric))
"""All of them, in the order in which they are shown."""


# --- text -----------------------------------------------------------------------------------------


class Exposition:
    """Collects samples, from whatever order they come in, and writes them metric by metric."""

    def __init__(self) -> None:
        self._lines: dict[Metric, list[str]] = {}

    def add(self, sample: Sample, common: str) -> None:
        """Take in a sample; `common` are labels of where it comes from, as `labels` gives them."""
        metric = sample.metric
        own = labels(zip(metric.labels, sample.values, strict=True))
        both = f"{common},{own}" if common and own else common or own
        braced = f"{{{both}}}" if both else ""
        lines = self._lines.setdefault(metric, [])
        lines.append(f"{metric.name}{braced} {_number(sample.number)}\n")

    def text(self) -> str:
        """All of it, in the order of `METRICS`."""
        order = {metric: place for place, metric in enumerate(METRICS)}
        found = sorted(self._lines, key=lambda metric: order.get(metric, len(order)))
        return "".join(part for metric in found for part in (_head(metric), *self._lines[metric]))


def labels(pairs: Iterable[tuple[str, object]] | Mapping[str, object]) -> str:
    """Names and values as they stand between braces."""
    if isinstance(pairs, Mapping):
        pairs = pairs.items()
    return ",".join(f'{name}="{_value(value)}"' for name, value in pairs)


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).translate(_ESCAPES)


def _head(metric: Metric) -> str:
    doc = metric.doc.replace("\\", "\\\\").replace("\n", "\\n")
    return f"# HELP {metric.name} {doc}\n# TYPE {metric.name} {metric.kind}\n"


def _number(number: float) -> str:
    if isinstance(number, int):
        return str(int(number))  # no words for True and members of enums
    if number == inf:
        return "+Inf"
    return repr(number)
