"""Groups made, changed and dropped at all their brokers."""

from __future__ import annotations

import pytest

from gantrymq.errors import AlreadyExists, ConnectFailed, GroupNotFound, InvalidInput
from gantrymq.flows import group_settings
from gantrymq.flows.reaching import Reach
from gantrymq.protocol.base import Done
from gantrymq.protocol.group_settings import (
    DeleteGroup,
    GetGroups,
    GroupSettings,
    GroupTable,
    PutGroup,
)
from gantrymq.protocol.routing import GetAllTopics
from gantrymq.protocol.topics import TopicList
from gantrymq.runtime import run_blocking
from gantrymq.testing.scripted import ScriptedRuntime
from tests.unit.flows.world import NS, A, B, world


def table(**groups: GroupSettings) -> GroupTable:
    own = GroupSettings(group="TOOLS_CONSUMER")
    return GroupTable(groups={**groups, "TOOLS_CONSUMER": own})


def with_groups() -> tuple[ScriptedRuntime, Reach]:
    runtime, reach = world()
    billing = GroupSettings(group="billing", max_retries=3, retry_queues=2, attributes={"a": "1"})
    runtime.answer(A, GetGroups, table(billing=billing))
    runtime.answer(B, GetGroups, table())
    for address in (A, B):
        runtime.answer(address, PutGroup, Done())
        runtime.answer(address, DeleteGroup, Done())
    return runtime, reach


def test_groups_of_users_are_listed_by_broker() -> None:
    runtime, reach = with_groups()
    found = run_blocking(group_settings.list_groups(reach))
    assert {name: list(groups) for name, groups in found.answers.items()} == {
        "broker-a": ["billing"],
        "broker-b": [],
    }
    every = run_blocking(group_settings.list_groups(reach, hidden=True))
    assert "TOOLS_CONSUMER" in every.answers["broker-b"]
    runtime.answer(B, GetGroups, ConnectFailed("gone"))
    assert list(run_blocking(group_settings.list_groups(reach)).failures) == ["broker-b"]


def test_nobody_knows_a_group_until_its_first_consumer() -> None:
    _, reach = with_groups()
    assert list(run_blocking(group_settings.group_settings(reach, "billing"))) == ["broker-a"]
    with pytest.raises(GroupNotFound, match=r"knows group biling: .* gantry group create biling"):
        run_blocking(group_settings.group_settings(reach, "biling"))


def test_a_group_is_made_everywhere_or_refused() -> None:
    runtime, reach = with_groups()
    run_blocking(group_settings.create_group(reach, "audit", max_retries=5, orderly=True))
    asked = [request.settings for _, request in runtime.asked(PutGroup)]
    assert [(one.group, one.max_retries, one.orderly) for one in asked] == [("audit", 5, True)] * 2
    with pytest.raises(AlreadyExists, match="billing exists at broker-a"):
        run_blocking(group_settings.create_group(reach, "billing"))
    with pytest.raises(InvalidInput, match="no setting 'retries'; it has: enabled, "):
        run_blocking(group_settings.create_group(reach, "audit", retries=5))


def test_a_change_keeps_what_is_not_given() -> None:
    runtime, reach = with_groups()
    changes = run_blocking(
        group_settings.alter_group(
            reach, "billing", max_retries=16, enabled=True, attributes={"a": None}
        )
    )
    assert [str(one) for one in changes] == [
        "broker-a: max_retries 3 → 16",
        "broker-a: a 1 → None",
    ]
    ((address, request),) = runtime.asked(PutGroup)
    assert (address, request.settings.max_retries, request.settings.retry_queues) == (A, 16, 2)
    assert request.settings.attributes == {"-a": ""}


def test_a_dry_run_sends_nothing() -> None:
    runtime, reach = with_groups()
    assert run_blocking(group_settings.alter_group(reach, "billing", max_retries=1, dry_run=True))
    assert not run_blocking(group_settings.alter_group(reach, "billing", max_retries=3))
    assert not runtime.asked(PutGroup)


def test_a_group_goes_with_its_offsets_and_its_topics() -> None:
    runtime, reach = with_groups()
    runtime.answer(NS, GetAllTopics, TopicList(topics=["orders"]))
    assert run_blocking(group_settings.delete_group(reach, "billing")) == ["broker-a"]
    ((_, request),) = runtime.asked(DeleteGroup)
    assert request.clean_offsets
