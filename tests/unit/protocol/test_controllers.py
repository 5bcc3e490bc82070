from __future__ import annotations

import pytest

from gantrymq.errors import ReplyError
from gantrymq.protocol.controllers import (
    AlterSyncState,
    AlterSyncStateReply,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    GetControllerConfig,
    GetControllerInfo,
    GetNextBrokerId,
    GetReplicaInfo,
    GetSyncStates,
    NotifyRoleChanged,
    RegisterReplica,
    Replica,
    SyncState,
    UpdateControllerConfig,
)
from gantrymq.wire.command import Command

STATE = SyncState(members={2, 1}, epoch=3)
STATE_TEXT = b'{"syncStateSet":[1,2],"syncStateSetEpoch":3}'


def test_who_is_in_step() -> None:
    request = AlterSyncState(broker="b", master_id=1, state=STATE)
    command = request.command()
    assert (command.fields, command.body) == (
        {"brokerName": "b", "masterBrokerId": "1"},
        STATE_TEXT,
    )
    fields = {"newSyncStateSetEpoch": "4"}
    reply = request.reply_from(Command(0, fields=fields, body=STATE_TEXT))
    assert reply == AlterSyncStateReply(epoch=4, state=STATE)
    with pytest.raises(ReplyError) as caught:
        request.reply_from(Command(2007, remark="not leader"))
    assert caught.value.code == 2007


def test_electing() -> None:
    assert ElectMaster.from_command(Command(1002)) == ElectMaster()
    body = b'{"brokerMemberGroup":{"brokerAddrs":{1:"a:1"}},"syncStateSet":[1]}'
    reply = ElectMaster(broker="b").reply_from(
        Command(0, fields={"masterBrokerId": "1", "masterEpoch": "2"}, body=body)
    )
    assert (reply.master_id, reply.master_epoch, reply.in_sync) == (1, 2, {1})
    assert reply.members is not None
    assert reply.members.addresses == {1: "a:1"}


def test_registering() -> None:
    request = RegisterReplica(cluster="c", broker="b", broker_id=1, address="a:1", invoked_ms=9)
    assert request.command().fields["brokerAddress"] == "a:1"
    assert request.reply_from(Command(0)).state is None
    assert GetReplicaInfo(broker="b").reply_from(Command(0, body=STATE_TEXT)).state == STATE
    assert NotifyRoleChanged(master_id=1, state=STATE).command().body == STATE_TEXT


def test_ids() -> None:
    asked = GetNextBrokerId(cluster="c", broker="b")
    assert asked.reply_from(Command(0, fields={"nextBrokerId": "3"})).broker_id == 3
    applied = ApplyBrokerId(broker_id=3, check_code="a:1;9")
    assert applied.command().fields == {"appliedBrokerId": "3", "registerCheckCode": "a:1;9"}
    cleaned = CleanBrokerData(broker="b", broker_ids=("1", "2"))
    assert cleaned.command().fields["brokerControllerIdsToClean"] == "1;2"


def test_the_controllers_themselves() -> None:
    fields = {"controllerLeaderId": "n0", "isLeader": "true", "peers": "n0:a:1;n1:a:2"}
    info = GetControllerInfo().reply_from(Command(0, fields=fields))
    assert (info.leader_id, info.is_leader, info.peers) == ("n0", True, ("n0:a:1", "n1:a:2"))
    reply = GetControllerConfig().reply_from(Command(0, body=b"a=1\n"))
    assert reply.properties == {"a": "1"}
    assert UpdateControllerConfig(properties={"a": "2"}).command().body == b"a=2\n"


def test_states_of_several() -> None:
    request = GetSyncStates(brokers=["b"])
    assert request.command().body == b'["b"]'
    body = (
        b'{"replicasInfoTable":{"b":{"inSyncReplicas":[{"alive":true,"brokerId":1}],'
        b'"masterBrokerId":1}}}'
    )
    found = request.reply_from(Command(0, body=body)).brokers["b"]
    assert (found.master_id, found.in_sync) == (1, [Replica(broker_id=1, alive=True)])
    assert found.not_in_sync == []
