"""What replicas ask their master, and what is asked about replication."""

from __future__ import annotations

from struct import Struct
from typing import Annotated, Final, TypeAlias

from gantrymq.protocol.base import (
    Done,
    Int,
    Long,
    Reply,
    Request,
    declared,
    in_body,
    named,
    whole_body,
)
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.scalars import INT64_LEAST, INT64_MOST, Unreadable, within
from gantrymq.protocol.text_forms import bytes_form
from gantrymq.wire.codes import RequestCode

_SHORT: Final = Struct(">4q")
_WHOLE: Final = Struct(">7q")


@declared
class TimerCheckpoint:
    """How far a master has come with timed messages: seven numbers of eight bytes.

    The data version is missing from older masters. RocketMQ: TimerCheckpoint.
    """

    last_read_ms: Long = 0
    log_flushed_offset: Long = 0
    queue_offset: Long = 0
    master_queue_offset: Long = 0
    version: DataVersion | None = None


def read_checkpoint(body: bytes) -> TimerCheckpoint:
    """The checkpoint that 32 or 56 bytes are."""
    if len(body) < _SHORT.size:
        raise Unreadable(f"a checkpoint has 32 or 56 bytes, and this one {len(body)}")
    read, flushed, offset, master_offset = _SHORT.unpack_from(body)
    version = None
    if len(body) >= _WHOLE.size:
        state, timestamp, counter = _WHOLE.unpack_from(body)[4:]
        version = DataVersion(state=state, timestamp_ms=timestamp, counter=counter)
    return TimerCheckpoint(
        last_read_ms=read,
        log_flushed_offset=flushed,
        queue_offset=offset,
        master_queue_offset=master_offset,
        version=version,
    )


def write_checkpoint(checkpoint: TimerCheckpoint) -> bytes:
    """The bytes of a checkpoint."""
    version = checkpoint.version or DataVersion()
    numbers = (
        checkpoint.last_read_ms,
        checkpoint.log_flushed_offset,
        checkpoint.queue_offset,
        checkpoint.master_queue_offset,
        version.state,
        version.timestamp_ms,
        version.counter,
    )
    packed = _WHOLE.pack(*(within(number, INT64_LEAST, INT64_MOST) for number in numbers))
    return packed if checkpoint.version is not None else packed[: _SHORT.size]


CheckpointBytes: TypeAlias = Annotated[
    TimerCheckpoint, bytes_form(read_checkpoint, write_checkpoint)
]


@declared
class TimerCheckpointReply(Reply):
    """How far a master has come with timed messages."""

    checkpoint: CheckpointBytes = whole_body()


@declared
class GetTimerCheckpoint(Request[TimerCheckpointReply]):
    """How far a master has come with timed messages.

    RocketMQ: GET_TIMER_CHECK_POINT, code 60.
    """

    CODE = RequestCode.GET_TIMER_CHECK_POINT


@declared
class TimerCount:
    """How many messages of a topic wait for their time. RocketMQ: TimerMetrics.Metric."""

    count: Long = 0
    timestamp_ms: Long = named("timeStamp", default=0)


@declared
class TimerCounts(Reply):
    """The timed messages of each topic. RocketMQ: TimerMetricsSerializeWrapper."""

    version: DataVersion | None = in_body("dataVersion", default=None)
    topics: dict[str, TimerCount] = in_body("timingCount", default_factory=dict)


@declared
class GetTimerCounts(Request[TimerCounts]):
    """How many messages wait for their time.

    RocketMQ: GET_TIMER_METRICS, code 61.
    """

    CODE = RequestCode.GET_TIMER_METRICS


@declared
class ReplicationInfo(Reply):
    """Where a master or a replica is to be reached. RocketMQ: ExchangeHAInfoResponseHeader."""

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@declared
class ExchangeReplicationInfo(Request[ReplicationInfo]):
    """Tell a broker where its master is, or without `master_ha_address` ask a master.

    RocketMQ: ExchangeHAInfoRequestHeader, code 906.
    """

    CODE = RequestCode.EXCHANGE_BROKER_HA_INFO

    master_ha_address: str | None = None
    master_flush_offset: Long | None = None
    master_address: str | None = None


@declared
class ReplicaConnection:
    """One replica as its master sees it. RocketMQ: HARuntimeInfo.HAConnectionRuntimeInfo."""

    address: str | None = named("addr", default=None)
    acknowledged: Long = named("slaveAckOffset", default=0)
    behind: Long = named("diff", default=0)
    in_sync: bool = False
    bytes_per_second: Long = named("transferredByteInSecond", default=0)
    transfer_from: Long = named("transferFromWhere", default=0)


@declared
class ReplicaClient:
    """A replica as it sees itself. RocketMQ: HARuntimeInfo.HAClientRuntimeInfo."""

    master_address: str | None = named("masterAddr", default=None)
    bytes_per_second: Long = named("transferredByteInSecond", default=0)
    max_offset: Long = 0
    last_read_ms: Long = named("lastReadTimestamp", default=0)
    last_write_ms: Long = named("lastWriteTimestamp", default=0)
    master_flush_offset: Long = 0


@declared
class ReplicationStatus(Reply):
    """How far replicas are behind. RocketMQ: HARuntimeInfo."""

    master: bool = in_body(default=False)
    log_max_offset: Long = in_body("masterCommitLogMaxOffset", default=0)
    in_sync: Int = in_body("inSyncSlaveNums", default=0)
    connections: list[ReplicaConnection] = in_body("haConnectionInfo", default_factory=list)
    client: ReplicaClient | None = in_body("haClientRuntimeInfo", default=None)


@declared
class GetReplicationStatus(Request[ReplicationStatus]):
    """How far replicas are behind.

    RocketMQ: GET_BROKER_HA_STATUS, code 907.
    """

    CODE = RequestCode.GET_BROKER_HA_STATUS


@declared
class ResetMasterFlushOffset(Request[Done]):
    """Tell a replica how far its master has flushed.

    RocketMQ: ResetMasterFlushOffsetHeader, code 908.
    """

    CODE = RequestCode.RESET_MASTER_FLUSH_OFFSET

    offset: Long = named("masterFlushOffset")


@declared
class Epoch:
    """The stretch of the log that one master wrote. RocketMQ: EpochEntry."""

    epoch: Int = 0
    start_offset: Long = 0
    end_offset: Long = 0


@declared
class Epochs(Reply):
    """Which master wrote what. RocketMQ: EpochEntryCache."""

    cluster: str | None = in_body("clusterName", default=None)
    broker: str | None = in_body("brokerName", default=None)
    broker_id: Long = in_body(default=0)
    epochs: list[Epoch] = in_body("epochList", default_factory=list)
    max_offset: Long = in_body(default=0)


@declared
class GetEpochs(Request[Epochs]):
    """Which master wrote what, where a controller elects them.

    RocketMQ: GET_BROKER_EPOCH_CACHE, code 1007.
    """

    CODE = RequestCode.GET_BROKER_EPOCH_CACHE
