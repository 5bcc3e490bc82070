"""How a consumer reads and how patient it is: its settings, and where they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gantrymq.client.config import ClientArguments, ClientConfig, load_config, parse_url
from gantrymq.client.in_flight import FlowLimits
from gantrymq.protocol.names import TRACE_TOPIC
from gantrymq.settings import Bytes, Seconds, at_least, load, millis, rows, setting

_MIB: Final = 1024 * 1024
_PREFIX: Final = "GANTRY_CONSUMER"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """How a consumer consumes. RocketMQ: DefaultMQPushConsumer, DefaultLitePullConsumer."""

    ordered: bool = setting(False, "handle the messages of a queue one after the other")
    broadcast: bool = setting(
        False, "give every member of the group all messages, instead of sharing them"
    )
    concurrency: int = setting(
        20, "handlers at work at the same time", rocketmq="consumeThreadMax", check=at_least(1)
    )
    flow_messages: int = setting(
        1000,
        "messages of one queue that may be read and not handled",
        rocketmq="pullThresholdForQueue",
        check=at_least(1),
    )
    flow_bytes: Bytes = setting(
        100 * _MIB,
        "the same in bytes as stored",
        rocketmq="pullThresholdSizeForQueue",
        check=at_least(1),
    )
    flow_span: int = setting(
        2000,
        "offsets between the first and the last of them; not for ordered consumers",
        rocketmq="consumeConcurrentlyMaxSpan",
        check=at_least(1),
    )
    topic_flow_messages: int | None = setting(
        None,
        "messages of a whole topic, divided by our queues of it",
        rocketmq="pullThresholdForTopic",
    )
    topic_flow_bytes: int | None = setting(
        None, "the same in bytes as stored", rocketmq="pullThresholdSizeForTopic"
    )
    pull_batch: int = setting(
        32, "messages to ask for at once", rocketmq="pullBatchSize", check=at_least(1)
    )
    pull_bytes: Bytes = setting(
        256 * 1024, "bytes to ask for at once", rocketmq="pullBatchSizeInBytes", check=at_least(1)
    )
    pull_wait: Seconds = setting(
        15.0,
        "that a broker keeps a pull when it has no messages",
        rocketmq=millis("brokerSuspendMaxTimeMillis"),
        check=at_least(0),
    )
    commit_interval: Seconds = setting(
        5.0,
        "between commits of offsets",
        rocketmq=millis("persistConsumerOffsetInterval"),
        check=at_least(0.01),
    )
    rebalance_interval: Seconds = setting(
        20.0, "between looks at who has which queue", check=at_least(0.01)
    )
    lock_interval: Seconds = setting(
        20.0, "between renewals of the locks of ordered consumers", check=at_least(0.01)
    )
    handler_timeout: Seconds = setting(
        900.0,
        "that a handler may take; then its message is given back (not for ordered consumers)",
        check=at_least(0.01),
    )
    close_timeout: Seconds = setting(
        10.0,
        "to finish what is being handled, when the consumer closes",
        rocketmq=millis("awaitTerminationMillisWhenShutdown"),
        check=at_least(0),
    )
    alarm_after: Seconds = setting(
        30.0,
        "after which a queue of ours that nobody reads is told of in the log",
        check=at_least(0.01),
    )
    check_subscriptions: bool = setting(
        True, "look whether other members of the group subscribe to something else"
    )
    offsets_directory: str | None = setting(
        None,
        "where offsets of broadcasting consumers are kept; else ~/.rocketmq_offsets",
        rocketmq="rocketmq.client.localOffsetStoreDir",
    )
    trace: bool = setting(
        False, "report every message to RocketMQ's trace topic", rocketmq="enableTrace"
    )
    trace_topic: str = setting(TRACE_TOPIC, "where to", rocketmq="traceTopic")
    telemetry: bool = setting(True, "OpenTelemetry spans, where its API package is installed")

    @property
    def limits(self) -> FlowLimits:
        """How much of one queue may be out."""
        return FlowLimits(messages=self.flow_messages, size=self.flow_bytes, span=self.flow_span)


class PullArguments(ClientArguments, total=False):
    """The settings of a pull consumer and its client as keyword arguments."""

    broadcast: bool
    flow_messages: int
    flow_bytes: int
    flow_span: int
    topic_flow_messages: int | None
    topic_flow_bytes: int | None
    pull_batch: int
    pull_bytes: int
    pull_wait: float
    commit_interval: float
    rebalance_interval: float
    alarm_after: float
    check_subscriptions: bool
    offsets_directory: str | None


class ConsumerArguments(PullArguments, total=False):
    """The settings of a consumer that is given messages, and of its client."""

    ordered: bool
    concurrency: int
    lock_interval: float
    handler_timeout: float
    close_timeout: float
    trace: bool
    trace_topic: str
    telemetry: bool


_OWN: Final = frozenset(row.path for row in rows(ConsumerConfig))


def load_consumer(
    url: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
) -> tuple[ClientConfig, ConsumerConfig]:
    """A consumer's settings and those of its client; a URL may hold both."""
    environ = os.environ if environ is None else environ
    given = dict(arguments or {})
    own = {name: given.pop(name) for name in _OWN & given.keys()}
    client = load_config(url, environ=environ, arguments=given, others=_OWN)
    found = _own_part(environ.get("GANTRY_URL", "").strip())
    single = {name: value for name, value in environ.items() if name.startswith(f"{_PREFIX}_")}
    flags = _own_part(url) | own
    return client, load(
        ConsumerConfig, file=found, environ=single, prefix=_PREFIX, flags=flags
    ).value


def _own_part(url: str | None) -> dict[str, Any]:
    """What a URL says of the consumer."""
    return {name: value for name, value in parse_url(url).items() if name in _OWN} if url else {}
