"""The settings of a broker, under RocketMQ's names where it has them.

Each group is handed whole to the part that uses it. What is changed while the broker runs is
handed out again by `Broker.apply`; settings of `listen`, `identity`, `metrics` and `store` are
looked at when the broker starts.

RocketMQ: BrokerConfig, NettyServerConfig, MessageStoreConfig.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gantrymq.errors import ConfigError
from gantrymq.net import scraping
from gantrymq.rules.delay import DelayLevels
from gantrymq.settings import Alias, Bytes, Seconds, at_least, group, millis, setting
from gantrymq.store.config import StoreConfig

VARIABLES: Final = "GANTRY_BROKER"
"""What environment variables begin with."""

READ_AND_WRITE: Final = 6
_MIB: Final = 1024 * 1024


def _port(number: int) -> str | None:
    return None if 0 <= number <= 65_535 else "ports go from 0 to 65535"


def _optional_port(number: int | None) -> str | None:
    return None if number is None else _port(number)


def _permission(bits: int) -> str | None:
    return None if bits in (0, 2, 4, 6) else "it is 4 to read, 2 to write, 6 for both, 0 for none"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenConfig:
    """Where connections are taken, and how many."""

    bind: str = setting(
        "0.0.0.0",
        "address or host name to listen on; empty for every interface, v6 too",
        rocketmq="bindAddress",
    )
    port: int = setting(
        10_911, "port to listen on; 0 for any free one", rocketmq="listenPort", check=_port
    )
    vip: bool = setting(True, "listen on the port two below as well, where pulls are not answered")
    advertise: str = setting(
        "",
        "host that clients are told to connect to; empty for the one that they reach us by",
        rocketmq="brokerIP1",
    )
    connections: int = setting(
        10_000, "connections over which new ones are refused", check=at_least(1)
    )
    idle_timeout: Seconds = setting(
        120.0,
        "silence after which a connection is closed",
        rocketmq="serverChannelMaxIdleTimeSeconds",
        check=at_least(0.1),
    )
    frame_limit: Bytes = setting(16 * _MIB, "longest frame", check=at_least(1024))
    backlog: int = setting(
        1024, "connections that may wait to be taken", rocketmq="serverSocketBacklog"
    )
    tls: str = setting("", "a tls.properties file; empty for no TLS")
    proxy_header: Literal["off", "optional", "required"] = setting(
        "off", "whether connections may, or have to, begin with a PROXY header"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityConfig:
    """Who the broker is to others."""

    name: str = setting(
        "broker-a",
        "name of the broker; queues belong to it, so it stays what it was",
        rocketmq="brokerName",
    )
    cluster: str = setting(
        "DefaultCluster", "cluster that the broker belongs to", rocketmq="brokerClusterName"
    )
    id: int = setting(0, "0 for a master, more for a replica", rocketmq="brokerId")
    region: str = setting(
        "DefaultRegion", "region that messages are marked with", rocketmq="regionId"
    )
    traced: bool = setting(True, "whether producers are told to trace", rocketmq="traceOn")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteringConfig:
    """How the broker makes itself known to name servers."""

    name_servers: str = setting(
        "", "name servers, as host:port;host:port; empty for none", rocketmq="namesrvAddr"
    )
    interval: Seconds = setting(
        30.0,
        "time between registrations; RocketMQ keeps it within 10 s and 60 s",
        rocketmq=millis("registerNameServerPeriod"),
        check=at_least(0.01),
    )
    timeout: Seconds = setting(
        24.0,
        "how long a registration may take",
        rocketmq=millis("registerBrokerTimeoutMills"),
        check=at_least(0.01),
    )
    compressed: bool = setting(
        False, "whether registrations are compressed", rocketmq="compressedRegister"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsConfig:
    """How topics come to be."""

    auto_create: bool = setting(
        True, "make topics that are sent to and do not exist", rocketmq="autoCreateTopicEnable"
    )
    queues: int = setting(
        8,
        "most queues of a topic that is made so",
        rocketmq="defaultTopicQueueNums",
        check=at_least(1),
    )
    cluster_topic: bool = setting(
        True,
        "let topics be made after the one with the cluster's name",
        rocketmq="clusterTopicEnable",
    )
    broker_topic: bool = setting(
        True,
        "let topics be made after the one with the broker's name",
        rocketmq="brokerTopicEnable",
    )
    trace: bool = setting(False, "keep a topic for traces of messages", rocketmq="traceTopicEnable")
    trace_topic: str = setting(
        "RMQ_SYS_TRACE_TOPIC", "name of that topic", rocketmq="msgTraceTopicName"
    )
    check_system: bool = setting(
        True,
        "refuse to create, change or delete a topic of RocketMQ's own",
        rocketmq="validateSystemTopicWhenUpdateTopic",
    )
    check_types: bool = setting(
        True, "refuse messages of another type than a topic was given, if it was given one"
    )
    mixed: bool = setting(
        True, "allow topics for messages of every type", rocketmq="enableMixedMessageType"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SendConfig:
    """What is taken from producers."""

    start_ms: int = setting(
        0,
        "no message is taken before this time, in ms since 1970",
        rocketmq="startAcceptSendRequestTimeStamp",
    )
    store_replies: bool = setting(
        True,
        "store the answers to request messages, besides handing them over",
        rocketmq="storeReplyMessageEnable",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConfig:
    """What is handed to consumers, and how long they may wait for it."""

    long_polling: bool = setting(
        True,
        "let consumers wait as long as they ask, and not only `short_wait`",
        rocketmq="longPollingEnable",
    )
    short_wait: Seconds = setting(
        1.0,
        "how long they wait otherwise",
        rocketmq=millis("shortPollingTimeMills"),
        check=at_least(0),
    )
    longest_wait: Seconds = setting(
        120.0, "how long anyone waits, whatever is asked for", check=at_least(0)
    )
    waiting: int = setting(
        100_000,
        "pulls that may wait at a time; further ones are answered at once",
        rocketmq="pullThreadPoolQueueCapacity",
        check=at_least(0),
    )
    sql: bool = setting(
        True,
        "let consumers filter by SQL92 expressions over properties",
        rocketmq="enablePropertyFilter",
    )
    filter_retries: bool = setting(
        False,
        "what an SQL92 consumer of a retry topic gets is up to its group's filter for the topic"
        " that a message came from",
        rocketmq="filterSupportRetry",
    )
    lite: bool = setting(
        True, "answer consumers that pull at their own pace", rocketmq="litePullMessageEnable"
    )
    from_replica: bool = setting(
        False,
        "send consumers that lag far behind to a replica",
        rocketmq="slaveReadEnable",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsConfig:
    """How consumer groups come to be."""

    auto_create: bool = setting(
        True,
        "make groups that consume and do not exist",
        rocketmq="autoCreateSubscriptionGroup",
    )
    notify: bool = setting(
        True,
        "tell the members of a group when others come and go",
        rocketmq="notifyConsumerIdsChangedEnable",
    )
    silence: Seconds = setting(
        120.0,
        "silence after which a client has left its groups",
        rocketmq=millis("channelExpiredTimeout"),
        check=at_least(0.01),
    )
    server_side_reset: bool = setting(
        True,
        "move groups to other offsets here, instead of having their members do it",
        rocketmq="useServerSideResetOffset",
    )
    keep_interval: Seconds = setting(
        5.0,
        "time between writes of the offsets of all groups",
        rocketmq=millis("flushConsumerOffsetInterval"),
        check=at_least(0.01),
    )


def _roll(seconds: float) -> str | None:
    return None if 2 <= seconds <= 6 * 86400 else "it goes from 2 s to 6 days"


def _levels(text: str) -> str | None:
    try:
        DelayLevels.parse(text)
    except ConfigError as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DelaysConfig:
    """How messages wait that are not to be delivered at once."""

    levels: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        "how long each delay level waits, level 1 first; looked at when the broker starts",
        rocketmq="messageDelayLevel",
        check=_levels,
    )
    keep_interval: Seconds = setting(
        1.0,
        "time between writes of how far the levels have come",
        rocketmq=millis("flushDelayOffsetInterval"),
        check=at_least(0.01),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TimersConfig:
    """How messages wait that ask for a time of their own."""

    enabled: bool = setting(
        True, "take messages that ask for a time of their own", rocketmq="timerWheelEnable"
    )
    longest: Seconds = setting(
        40 * 86400.0,
        "how long a message may wait; RocketMQ lets it wait for three days",
        rocketmq="timerMaxDelaySec",
        check=at_least(1),
    )
    recall: bool = setting(
        True, "let producers take back messages that wait", rocketmq="recallMessageEnable"
    )
    roll_after: Seconds = setting(
        2 * 86400.0,
        "how long one stays where it is in the log before it is stored anew; no more than half the"
        " time for which messages are kept; looked at when the broker starts",
        rocketmq="timerRollWindowSlot",
        check=_roll,
    )
    file_size: Bytes = setting(
        100 * _MIB,
        "size of the files of the timer log; looked at when the broker starts",
        rocketmq="mappedFileSizeTimerLog",
        check=at_least(4096),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsConfig:
    """When producers are asked about messages that they have not decided on."""

    refuse: bool = setting(
        False, "refuse messages that are sent in a transaction", rocketmq="rejectTransactionMessage"
    )
    immunity: Seconds = setting(
        6.0,
        "how long a producer has before it is asked, unless its message says otherwise",
        rocketmq=millis("transactionTimeOut"),
        check=at_least(0),
    )
    interval: Seconds = setting(
        30.0,
        "time between two questions about a message",
        rocketmq=millis("transactionCheckInterval"),
        check=at_least(0.01),
    )
    most_checks: int = setting(
        15,
        "how often is asked before a message is put aside",
        rocketmq="transactionCheckMax",
        check=at_least(0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """When topics that keep one message for each key get rid of the others."""

    interval: Seconds = setting(
        900.0,
        "time between two rounds",
        rocketmq=millis("compactionScheduleInternal"),
        check=at_least(0.01),
    )
    tombstones_kept: Seconds = setting(
        86_400.0, "how long a message stays that says that a key is gone", check=at_least(0)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    """When messages are refused because others have to wait already."""

    enabled: bool = setting(
        True, "answer that the system is busy instead of letting producers time out",
        rocketmq="brokerFastFailureEnable",
    )  # fmt: skip
    loop_lag: Seconds = setting(
        0.2,
        "how late the broker may be in answering before it refuses messages",
        rocketmq=millis("waitTimeMillsInSendQueue"),
        check=at_least(0.001),
    )
    disk_lag: Seconds = setting(
        1.0,
        "how long one write may take before messages are refused",
        rocketmq=millis("osPageCacheBusyTimeOutMills"),
        check=at_least(0.001),
    )
    waiting_sends: int = setting(
        10_000,
        "messages that may wait for the disk or a replica",
        rocketmq="sendThreadPoolQueueCapacity",
        check=at_least(1),
    )


def _exporter(kind: str) -> str:
    """Whether RocketMQ would export metrics; Gantry's are read, whichever way RocketMQ's go out."""
    return "false" if kind.strip().upper() == "DISABLE" else "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig(scraping.MetricsConfig):
    """Where metrics can be read."""

    enabled: bool = setting(
        True, "whether metrics can be read", rocketmq=Alias("metricsExporterType", _exporter)
    )
    bind: str = setting("127.0.0.1", "address to serve them on", rocketmq="metricsPromExporterHost")
    port: int | None = setting(
        None,
        "port to serve them on, 0 for any free one; none: 5557, or the next that is free",
        rocketmq="metricsPromExporterPort",
        check=_optional_port,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Everything that can be set about a broker."""

    listen: ListenConfig = group(ListenConfig, "where connections are taken, and how many")
    identity: IdentityConfig = group(IdentityConfig, "who the broker is to others")
    registering: RegisteringConfig = group(RegisteringConfig, "how it registers")
    topics: TopicsConfig = group(TopicsConfig, "how topics come to be")
    sends: SendConfig = group(SendConfig, "what is taken from producers")
    pulls: PullConfig = group(PullConfig, "what is handed to consumers")
    groups: GroupsConfig = group(GroupsConfig, "how consumer groups come to be")
    delays: DelaysConfig = group(DelaysConfig, "how messages wait")
    timers: TimersConfig = group(TimersConfig, "how messages wait for a time of their own")
    transactions: TransactionsConfig = group(TransactionsConfig, "when producers are asked")
    compaction: CompactionConfig = group(
        CompactionConfig, "when topics keep one message for each key"
    )
    flow: FlowConfig = group(FlowConfig, "when messages are refused")
    metrics: MetricsConfig = group(MetricsConfig, "where metrics can be read")
    store: StoreConfig = group(StoreConfig, "how messages are kept")
    permission: int = setting(
        READ_AND_WRITE, "what clients may do: 4 read, 2 write, 6 both, 0 nothing",
        rocketmq="brokerPermission", check=_permission,
    )  # fmt: skip
    data: str = setting("~/store", "directory of the store", rocketmq="storePathRootDir")
    locked: str = setting(
        "configBlackList;brokerConfigPath",
        "RocketMQ's names of settings that nobody may change while the broker runs",
        rocketmq="configBlackList",
    )

    @property
    def directory(self) -> Path:
        """The directory of the store."""
        return Path(self.data).expanduser()
