"""Looking after one broker: what it is doing, cleaning up, and switches without a setting."""

from __future__ import annotations

from typing import Any

from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    OpenStrEnum,
    Reply,
    Request,
    declared,
    in_body,
    named,
    whole_body,
)
from gantrymq.protocol.configs import KeyTable
from gantrymq.protocol.text_forms import PropertiesText, SemicolonJoined
from gantrymq.wire.codes import RequestCode


@declared
class GetRuntimeInfo(Request[KeyTable]):
    """What a broker is doing, as a table of texts.

    RocketMQ: GET_BROKER_RUNTIME_INFO, code 28.
    """

    CODE = RequestCode.GET_BROKER_RUNTIME_INFO


@declared
class CleanConsumeQueues(Request[Done]):
    """Drop consume queue files whose messages are gone.

    RocketMQ: CLEAN_EXPIRED_CONSUMEQUEUE, code 306.
    """

    CODE = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


@declared
class DeleteExpiredLog(Request[Done]):
    """Drop commit log files that are past their time.

    RocketMQ: DELETE_EXPIRED_COMMITLOG, code 329.
    """

    CODE = RequestCode.DELETE_EXPIRED_COMMITLOG


@declared
class RocksQueueCheck(Reply):
    """Whether both kinds of consume queue agree: 0 yes, 1 no, 2 still looking, 3 failed.

    RocketMQ: CheckRocksdbCqWriteResult.
    """

    result: str | None = in_body("checkResult", default=None)
    status: Int = in_body("checkStatus", default=0)


@declared
class CheckRocksQueue(Request[RocksQueueCheck]):
    """Compare a topic's consume queues in files with those in RocksDB.

    RocketMQ: CheckRocksdbCqWriteProgressRequestHeader, code 354.
    """

    CODE = RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS

    topic: str
    since_ms: Long = named("checkStoreTime", default=0)


@declared
class ExportRocksSettings(Request[Done]):
    """Write settings kept in RocksDB to JSON files: topics, subscriptionGroups, consumerOffsets.

    RocketMQ: ExportRocksDBConfigToJsonRequestHeader, code 355.
    """

    CODE = RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON

    kinds: SemicolonJoined = named("configType")


@declared
class AddBroker(Request[Done]):
    """Start a broker inside a container, from a file there or from settings sent along.

    RocketMQ: AddBrokerRequestHeader, code 902.
    """

    CODE = RequestCode.ADD_BROKER

    config_path: str | None = None
    properties: PropertiesText = whole_body(default_factory=dict)


@declared
class RemoveBroker(Request[Done]):
    """Stop a broker inside a container.

    RocketMQ: RemoveBrokerRequestHeader, code 903.
    """

    CODE = RequestCode.REMOVE_BROKER

    broker: str = named("brokerName")
    cluster: str = named("brokerClusterName")
    broker_id: Long


@declared
class LimitColdReads(Request[Done]):
    """Set how many bytes a second each group may read from disk.

    RocketMQ: UPDATE_COLD_DATA_FLOW_CTR_CONFIG, code 2001.
    """

    CODE = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG

    thresholds: PropertiesText = whole_body()


@declared
class UnlimitColdReads(Request[Done]):
    """Drop a group's own limit.

    RocketMQ: REMOVE_COLD_DATA_FLOW_CTR_CONFIG, code 2002.
    """

    CODE = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG

    group: str = whole_body()


@declared
class ColdReads(Reply):
    """Limits on reads from disk, and what was read. RocketMQ: ColdDataCgCtrService."""

    group_threshold: Long = in_body("cgColdReadThreshold", default=0)
    broker_threshold: Long = in_body("globalColdReadThreshold", default=0)
    broker_read: Long = in_body("globalAcc", default=0)
    thresholds: dict[str, Any] = in_body("configTable", default_factory=dict)
    groups: dict[str, Any] = in_body("runtimeTable", default_factory=dict)


@declared
class GetColdReads(Request[ColdReads]):
    """The limits on reads from disk.

    RocketMQ: GET_COLD_DATA_FLOW_CTR_INFO, code 2003.
    """

    CODE = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO


class ReadAhead(OpenStrEnum):
    """How the system shall read commit log files. RocketMQ: LibC's MADV values."""

    NORMAL = "0"
    RANDOM = "1"


@declared
class SetReadAhead(Request[Done]):
    """Say how the system shall read commit log files.

    RocketMQ: SET_COMMITLOG_READ_MODE, code 2004.
    """

    CODE = RequestCode.SET_COMMITLOG_READ_MODE

    mode: ReadAhead = named("READ_AHEAD_MODE")


class TimerEngine(OpenStrEnum):
    """What keeps timed messages. RocketMQ: MessageConst.TIMER_ENGINE values."""

    ROCKSDB = "R"
    FILES = "F"


@declared
class SwitchTimerEngine(Request[Done]):
    """Say what shall keep timed messages.

    RocketMQ: SWITCH_TIMER_ENGINE, code 5001.
    """

    CODE = RequestCode.SWITCH_TIMER_ENGINE

    engine: TimerEngine = named("E_T")
