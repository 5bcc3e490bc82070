"""How a producer sends: its settings, and where they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from gantrymq.client.config import ClientArguments, ClientConfig, load_config, parse_url
from gantrymq.errors import ConfigError
from gantrymq.flows.drafting import DraftRules
from gantrymq.protocol.names import AUTO_CREATE_TOPIC, TRACE_TOPIC, wrap
from gantrymq.rules.retry import RETRIED_CODES, SendRetries
from gantrymq.settings import Bytes, Seconds, at_least, load, millis, rows, setting
from gantrymq.wire.compression import LEVELS
from gantrymq.wire.flags import Compression

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_PREFIX: Final = "GANTRY_PRODUCER"

DEFAULT_GROUP: Final = "GANTRY_PRODUCERS"
"""The group of producers that were given none: good for everything but transactions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How a producer sends. RocketMQ: DefaultMQProducer."""

    group: str = setting(
        DEFAULT_GROUP,
        "producers of one group answer for each other's transactions",
        rocketmq="producerGroup",
    )
    send_timeout: Seconds = setting(
        3.0,
        "for a whole send, its further attempts included",
        rocketmq=millis("sendMsgTimeout"),
        check=at_least(0.001),
    )
    attempt_timeout: Seconds | None = setting(
        None,
        "for each attempt but the last",
        rocketmq=millis("sendMsgMaxTimeoutPerRequest"),
    )
    retries: int = setting(
        2, "further attempts of a send", rocketmq="retryTimesWhenSendFailed", check=at_least(0)
    )
    async_retries: int = setting(
        2,
        "the same where the sender does not wait",
        rocketmq="retryTimesWhenSendAsyncFailed",
        check=at_least(0),
    )
    retry_codes: tuple[int, ...] = setting(
        tuple(sorted(RETRIED_CODES)),
        "brokers' answers that are taken to another broker",
        rocketmq="retryResponseCodes",
    )
    retry_another_broker_when_not_store_ok: bool = setting(
        False,
        "also when it is stored, only not as safely as it should be",
        rocketmq="retryAnotherBrokerWhenNotStoreOK",
    )
    send_latency_fault_enable: bool = setting(
        False, "keep away from slow and failed brokers for a while", rocketmq="sendLatencyEnable"
    )
    fault_version: Literal["auto", "4.x", "5.x"] = setting(
        "auto", "by which RocketMQ's rules; auto goes by the cluster's version"
    )
    start_detector_enable: bool = setting(
        False,
        "probe brokers that could not be reached, with the rules of 5.x",
        rocketmq="startDetectorEnable",
    )
    compress_over: Bytes = setting(
        4096, "bodies of this size and more are compressed", rocketmq="compressMsgBodyOverHowmuch"
    )
    compression: Literal["zlib", "lz4", "zstd"] = setting(
        "zlib", "how; 4.x knows zlib alone before 4.9.4", rocketmq="compressType"
    )
    compression_level: int | None = setting(None, "how hard", rocketmq="compressLevel")
    max_message_size: Bytes = setting(
        4 * _MIB, "larger bodies are refused before anything is sent", rocketmq="maxMessageSize"
    )
    default_topic: str = setting(
        AUTO_CREATE_TOPIC, "the topic whose settings new topics take", rocketmq="createTopicKey"
    )
    default_topic_queue_nums: int = setting(
        4,
        "queues of a topic that is made by sending to it",
        rocketmq="defaultTopicQueueNums",
        check=at_least(1),
    )
    long_header: bool = setting(False, "write header names out, as old clients did")
    buffer_messages: int = setting(
        1024,
        "messages that send_soon and send_nowait may have under way",
        rocketmq="backPressureForAsyncSendNum",
        check=at_least(1),
    )
    buffer_bytes: Bytes = setting(
        100 * _MIB,
        "and how large they may be together",
        rocketmq="backPressureForAsyncSendSize",
        check=at_least(1),
    )
    auto_batch: bool = setting(
        False, "gather messages for a moment, and send them together", rocketmq="autoBatch"
    )
    batch_linger: Seconds = setting(
        0.01,
        "the moment",
        rocketmq=millis("batchMaxDelayMs"),
        check=at_least(0),
    )
    batch_bytes: Bytes = setting(
        32 * _KIB,
        "a batch of this size goes out at once",
        rocketmq="batchMaxBytes",
        check=at_least(1),
    )
    trace: bool = setting(
        False, "report every message to RocketMQ's trace topic", rocketmq="enableTrace"
    )
    trace_topic: str = setting(TRACE_TOPIC, "where to", rocketmq="traceTopic")
    telemetry: bool = setting(True, "OpenTelemetry spans, where its API package is installed")
    close_timeout: Seconds = setting(
        10.0, "for what is still to be sent when the producer is closed", check=at_least(0)
    )

    def __post_init__(self) -> None:
        if self.compression_level is not None:
            allowed = LEVELS[self.compression_kind]
            if self.compression_level not in allowed:
                raise ConfigError(
                    f"compression_level: {self.compression} goes from {allowed.start} to"
                    f" {allowed.stop - 1}, not to {self.compression_level}"
                )

    @property
    def compression_kind(self) -> Compression:
        """The same as the wire names it."""
        return Compression[self.compression.upper()]

    def send_retries(self) -> SendRetries:
        """What is tried again."""
        return SendRetries(
            retries=self.retries,
            async_retries=self.async_retries,
            codes=frozenset(self.retry_codes),
            another_broker_when_not_stored=self.retry_another_broker_when_not_store_ok,
            longest_attempt=self.attempt_timeout,
        )

    def draft_rules(self, client: ClientConfig) -> DraftRules:
        """How messages are made ready."""
        namespace = client.namespace or ""
        return DraftRules(
            group=wrap(namespace, self.group),
            namespace=namespace,
            max_body=self.max_message_size,
            compress_over=self.compress_over,
            compression=self.compression_kind,
            compression_level=self.compression_level,
            default_topic=self.default_topic,
            default_topic_queues=self.default_topic_queue_nums,
            long_header=self.long_header,
            unit_mode=client.unit_mode,
        )


class ProducerArguments(ClientArguments, total=False):
    """The settings of a producer and its client as keyword arguments."""

    group: str
    send_timeout: float
    attempt_timeout: float | None
    retries: int
    async_retries: int
    retry_codes: tuple[int, ...]
    retry_another_broker_when_not_store_ok: bool
    send_latency_fault_enable: bool
    fault_version: Literal["auto", "4.x", "5.x"]
    start_detector_enable: bool
    compress_over: int
    compression: Literal["zlib", "lz4", "zstd"]
    compression_level: int | None
    max_message_size: int
    default_topic: str
    default_topic_queue_nums: int
    long_header: bool
    buffer_messages: int
    buffer_bytes: int
    auto_batch: bool
    batch_linger: float
    batch_bytes: int
    trace: bool
    trace_topic: str
    telemetry: bool
    close_timeout: float


_OWN: Final = frozenset(row.path for row in rows(ProducerConfig))


def load_producer(
    url: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> tuple[ClientConfig, ProducerConfig]:
    """A producer's settings and those of its client; a URL may hold both."""
    environ = os.environ if environ is None else environ
    given = dict(arguments or {})
    own = {name: given.pop(name) for name in _OWN & given.keys()}
    client = load_config(url, environ=environ, arguments=given, others=_OWN)
    found = _own_part(environ.get("GANTRY_URL", "").strip())
    single = {name: value for name, value in environ.items() if name.startswith(f"{_PREFIX}_")}
    flags = _own_part(url) | own
    return client, load(
        ProducerConfig, file=found, environ=single, prefix=_PREFIX, flags=flags
    ).value


def _own_part(url: str | None) -> dict[str, Any]:
    """What a URL says of the producer."""
    return {name: value for name, value in parse_url(url).items() if name in _OWN} if url else {}
