from __future__ import annotations

from gantrymq.protocol.brokers import (
    AddBroker,
    CheckRocksQueue,
    CleanConsumeQueues,
    DeleteExpiredLog,
    ExportRocksSettings,
    GetColdReads,
    GetRuntimeInfo,
    LimitColdReads,
    ReadAhead,
    RemoveBroker,
    SetReadAhead,
    SwitchTimerEngine,
    TimerEngine,
    UnlimitColdReads,
)
from gantrymq.wire.command import Command


def test_runtime_info() -> None:
    reply = GetRuntimeInfo().reply_from(Command(0, body=b'{"table":{"putTps":"1.0 2.0 3.0"}}'))
    assert reply.table == {"putTps": "1.0 2.0 3.0"}


def test_cleaning() -> None:
    assert [CleanConsumeQueues().command().code, DeleteExpiredLog().command().code] == [306, 329]


def test_rocksdb() -> None:
    check = CheckRocksQueue(topic="T", since_ms=5)
    assert check.command().fields == {"topic": "T", "checkStoreTime": "5"}
    reply = check.reply_from(Command(0, body=b'{"checkResult":"x","checkStatus":2}'))
    assert (reply.result, reply.status) == ("x", 2)
    export = ExportRocksSettings(kinds=("topics", "subscriptionGroups"))
    assert export.command().fields == {"configType": "topics;subscriptionGroups"}


def test_containers() -> None:
    command = AddBroker(config_path="/b.conf", properties={"brokerName": "b"}).command()
    assert (command.fields, command.body) == ({"configPath": "/b.conf"}, b"brokerName=b\n")
    assert RemoveBroker(broker="b", cluster="c", broker_id=1).command().fields == {
        "brokerName": "b", "brokerClusterName": "c", "brokerId": "1",
    }  # fmt: skip


def test_cold_reads() -> None:
    assert LimitColdReads(thresholds={"CG": "1000"}).command().body == b"CG=1000\n"
    command = UnlimitColdReads(group="CG").command()
    assert command.body == b"CG"
    assert UnlimitColdReads.from_command(command).group == "CG"
    body = (
        b'{"cgColdReadThreshold":1,"configTable":{"CG":5},"globalAcc":2,"globalColdReadThreshold":3,'
        b'"runtimeTable":{"CG":{"coldAcc":1}}}'
    )
    reply = GetColdReads().reply_from(Command(0, body=body))
    assert (reply.group_threshold, reply.broker_read, reply.broker_threshold) == (1, 2, 3)
    assert reply.groups == {"CG": {"coldAcc": 1}}
    assert reply.command().body == body


def test_switches() -> None:
    assert SetReadAhead(mode=ReadAhead.RANDOM).command().fields == {"READ_AHEAD_MODE": "1"}
    assert SwitchTimerEngine(engine=TimerEngine.ROCKSDB).command().fields == {"E_T": "R"}
    strange = SetReadAhead.from_command(Command(2004, fields={"READ_AHEAD_MODE": "9"}))
    assert strange.mode not in set(ReadAhead)
