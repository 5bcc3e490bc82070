from __future__ import annotations

import pytest

from gantrymq.errors import GroupNotFound
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.enums import RetryPolicyType
from gantrymq.protocol.group_settings import (
    DeleteGroup,
    ExponentialRetry,
    ForbidGroup,
    GetGroup,
    GetGroups,
    GroupForbidden,
    GroupSettings,
    PutGroup,
    PutGroups,
    RetryPolicy,
)
from gantrymq.wire.command import Command


def test_put() -> None:
    settings = GroupSettings(
        group="CG",
        retry_policy=RetryPolicy(
            type=RetryPolicyType.EXPONENTIAL, exponential=ExponentialRetry(most_ms=1000)
        ),
        attributes={"+priority.factor": "10"},
    )
    command = PutGroup(settings=settings).command()
    assert command.code == 200
    assert (
        b'"groupRetryPolicy":{"exponentialRetryPolicy":{"initial":5000,"max":1000,"multiplier":2},'
        b'"type":"EXPONENTIAL"}' in bytes(command.body)
    )
    assert PutGroup.from_command(command).settings == settings
    many = PutGroups(groups=[settings]).command()
    assert bytes(many.body) == b'{"groupConfigList":[' + bytes(command.body) + b"]}"


def test_settings_of_an_old_broker_have_defaults() -> None:
    body = (
        b'{"brokerId":0,"consumeEnable":false,"groupName":"CG","retryMaxTimes":3,'
        b'"retryQueueNums":2,"whichBrokerWhenConsumeSlowly":1,"groupRetryPolicy":null}'
    )
    reply = GetGroup(group="CG").reply_from(Command(0, body=body))
    assert reply.settings == GroupSettings(group="CG", enabled=False, max_retries=3, retry_queues=2)
    with pytest.raises(GroupNotFound):
        GetGroup(group="CG").reply_from(Command(26))


def test_pages() -> None:
    request = GetGroups(start=0, version=DataVersion(counter=3, timestamp_ms=5), most=800)
    fields = {
        "groupSeq": "0", "dataVersion": '{"counter":3,"stateVersion":0,"timestamp":5}',
        "maxGroupNum": "800",
    }  # fmt: skip
    assert request.command().fields == fields
    assert GetGroups.from_command(Command(201, fields=fields)) == request
    assert GetGroups.from_command(Command(201)) == GetGroups()
    unseen = {"groupSeq": "0", "dataVersion": "", "maxGroupNum": "0"}  # mqadmin 5.5.0
    assert GetGroups.from_command(Command(201, fields=unseen)).version == DataVersion()
    body = b'{"subscriptionGroupTable":{"CG":{"groupName":"CG"}},"forbiddenTable":{"CG":{"T":1}}}'
    table = request.reply_from(Command(0, fields={"totalGroupNum": "9"}, body=body))
    assert (table.total, table.version) == (9, None)
    assert (table.groups, table.forbidden) == ({"CG": GroupSettings(group="CG")}, {"CG": {"T": 1}})


def test_delete_and_forbid() -> None:
    assert DeleteGroup(group="CG", clean_offsets=True).command().fields == {
        "groupName": "CG", "cleanOffset": "true",
    }  # fmt: skip
    request = ForbidGroup(group="CG", topic="T", readable=False)
    assert request.command().fields == {"group": "CG", "topic": "T", "readable": "false"}
    reply = request.reply_from(Command(0, body=b'{"group":"CG","readable":false,"topic":"T"}'))
    assert reply == GroupForbidden(group="CG", topic="T", readable=False)
