from __future__ import annotations

from struct import pack

import pytest

from gantrymq.errors import LocalProtocolError, RemoteProtocolError
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.replicas import (
    Epoch,
    ExchangeReplicationInfo,
    GetEpochs,
    GetReplicationStatus,
    GetTimerCheckpoint,
    GetTimerCounts,
    ReplicaConnection,
    ResetMasterFlushOffset,
    TimerCheckpoint,
    TimerCheckpointReply,
    TimerCount,
)
from gantrymq.wire.command import Command

CHECKPOINT = TimerCheckpoint(
    last_read_ms=1, log_flushed_offset=2, queue_offset=3, master_queue_offset=4,
    version=DataVersion(state=5, timestamp_ms=6, counter=7),
)  # fmt: skip


def test_checkpoint() -> None:
    body = pack(">7q", 1, 2, 3, 4, 5, 6, 7)
    reply = GetTimerCheckpoint().reply_from(Command(0, body=memoryview(body)))
    assert reply.checkpoint == CHECKPOINT
    assert reply.command().body == body


def test_an_older_checkpoint_has_no_version() -> None:
    body = pack(">4q", 1, 2, 3, 4)
    reply = GetTimerCheckpoint().reply_from(Command(0, body=body))
    assert reply.checkpoint.version is None
    assert reply.command().body == body


@pytest.mark.parametrize("size", [0, 31])
def test_checkpoints_that_are_too_short(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"32 or 56 bytes, and this one {size}"):
        GetTimerCheckpoint().reply_from(Command(0, body=bytes(size)))


def test_checkpoints_with_numbers_too_large() -> None:
    with pytest.raises(LocalProtocolError, match="TimerCheckpointReply: body: has to be from"):
        TimerCheckpointReply(checkpoint=TimerCheckpoint(queue_offset=1 << 63)).command()


def test_counts() -> None:
    body = b'{"timingCount":{"T":{"count":3,"timeStamp":9}}}'
    reply = GetTimerCounts().reply_from(Command(0, body=body))
    assert reply.topics == {"T": TimerCount(count=3, timestamp_ms=9)}


def test_replication() -> None:
    asked = ExchangeReplicationInfo()
    assert asked.command().fields == {}
    reply = asked.reply_from(Command(0, fields={"masterHaAddress": "a:2"}))
    assert reply.master_ha_address == "a:2"
    body = b'{"haConnectionInfo":[{"addr":"b:1","diff":5,"inSync":true}],"master":true}'
    status = GetReplicationStatus().reply_from(Command(0, body=body))
    assert status.connections == [ReplicaConnection(address="b:1", behind=5, in_sync=True)]
    assert (status.master, status.client) == (True, None)
    assert ResetMasterFlushOffset(offset=5).command().fields == {"masterFlushOffset": "5"}


def test_epochs() -> None:
    body = b'{"brokerId":1,"epochList":[{"endOffset":9,"epoch":2,"startOffset":5}],"maxOffset":9}'
    reply = GetEpochs().reply_from(Command(0, body=body))
    assert reply.epochs == [Epoch(epoch=2, start_offset=5, end_offset=9)]
