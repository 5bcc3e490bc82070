"""The settings of consumer groups."""

import pytest

from gantrymq.broker import groups
from gantrymq.broker.groups import FILE, SYSTEM_GROUPS
from gantrymq.protocol.data_version import DataVersion
from gantrymq.protocol.group_settings import (
    DeleteGroup,
    ForbidGroup,
    GetGroup,
    GetGroups,
    GroupSettings,
    PutGroup,
    PutGroups,
    RetryPolicy,
)
from tests.support import run_on
from tests.unit.broker.rig import START_MS, MemoryFiles, Rig, on_loop, refusal, with_rig


@on_loop
def test_rocketmqs_own_groups_are_there(rig):
    assert set(SYSTEM_GROUPS) == rig.broker.groups.table.keys()
    assert rig.broker.groups.version.counter == 0


@on_loop
async def test_a_group_is_made_when_it_is_first_heard_of(rig):
    made = rig.broker.groups.settings("billing")
    assert made == GroupSettings(group="billing")
    assert rig.broker.groups.settings("billing") is made
    assert rig.broker.groups.version == DataVersion(timestamp_ms=START_MS, counter=1)
    await rig.broker.groups.kept()
    kept = rig.files.trees[FILE]
    assert kept["dataVersion"] == {"counter": 1, "stateVersion": 0, "timestamp": START_MS}
    assert kept["subscriptionGroupTable"]["billing"] == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "billing",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 121])
def test_a_group_without_a_proper_name_is_not_made(name):
    @on_loop
    def check(rig):
        assert rig.broker.groups.settings(name) is None

    check()


@with_rig(groups__auto_create=False)
def test_groups_are_made_only_where_that_is_allowed(rig):
    assert rig.broker.groups.settings("billing") is None
    assert rig.broker.groups.settings("CID_RMQ_SYS_OWN") is not None
    assert rig.broker.groups.settings("TOOLS_CONSUMER") is not None


@on_loop
async def test_an_administrator_makes_changes_and_drops_groups(rig):
    broker = rig.broker

    def get(name):
        return groups.get_group(GetGroup(group=name), broker, rig.caller).settings

    asked = GroupSettings(group="billing", max_retries=3, retry_queues=2)
    await groups.put_group(PutGroup(settings=asked), broker, rig.caller)
    assert get("billing") == asked
    assert FILE in rig.files.saves
    several = [GroupSettings(group="billing", enabled=False), GroupSettings(group="audit")]
    await groups.put_groups(PutGroups(groups=several), broker, rig.caller)
    assert (get("billing").enabled, get("billing").max_retries) == (False, 16)
    broker.offsets.commit("billing", "orders", 0, 5)
    broker.offsets.commit("audit", "orders", 0, 6)
    await groups.delete_group(DeleteGroup(group="billing"), broker, rig.caller)
    await groups.delete_group(DeleteGroup(group="audit", clean_offsets=True), broker, rig.caller)
    assert broker.offsets.groups() == ["billing"]
    unknown = refusal(lambda: get("a b"))
    assert unknown == (26, "No group in this broker. group: a b")
    counter = broker.groups.version.counter
    await groups.delete_group(DeleteGroup(group="billing"), broker, rig.caller)
    assert broker.groups.version.counter == counter
    assert get("billing") == GroupSettings(group="billing")


@pytest.mark.parametrize(
    "settings",
    [
        GroupSettings(),
        GroupSettings(group="a/b"),
        GroupSettings(group="x" * 121),
        GroupSettings(group="billing", retry_queues=-1),
        GroupSettings(group="billing", retry_queues=1_000_000),
    ],
)
def test_settings_that_will_not_do_are_refused_and_change_nothing(settings):
    @on_loop
    async def check(rig):
        asked = [GroupSettings(group="fine"), settings]
        coroutine = groups.put_groups(PutGroups(groups=asked), rig.broker, rig.caller)
        code, _ = refusal(lambda: coroutine.send(None))
        assert code == 29
        assert "fine" not in rig.broker.groups.table

    check()


@on_loop
async def test_attributes_are_changed_by_their_sign(rig):
    async def put(**attributes):
        changes = {key[0].replace("p", "+").replace("m", "-") + key[2:]: value
                   for key, value in attributes.items()}  # fmt: skip
        settings = GroupSettings(group="billing", attributes=changes)
        await groups.put_group(PutGroup(settings=settings), rig.broker, rig.caller)
        return rig.broker.groups.table["billing"].attributes

    assert await put(**{"p_lite.sub.model": "Shared", "p_priority.factor": "7"}) == {
        "lite.sub.model": "Shared",
        "priority.factor": "7",
    }
    assert await put(**{"m_lite.sub.model": "", "p_lite.sub.client.quota": "9"}) == {
        "priority.factor": "7",
        "lite.sub.client.quota": "9",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("+priority.factor", "101"),
        ("+priority.factor", "some"),
        ("+lite.sub.model", "Both"),
        ("+lite.sub.reset.offset.exclusive", "yes"),
        ("+unheard.of", "1"),
        ("-lite.bind.topic", ""),
        ("lite.bind.topic", "orders"),
    ],
)
def test_attributes_that_will_not_do_are_refused(name, value):
    @on_loop
    async def check(rig):
        settings = GroupSettings(group="billing", attributes={name: value})
        coroutine = groups.put_group(PutGroup(settings=settings), rig.broker, rig.caller)
        code, _ = refusal(lambda: coroutine.send(None))
        assert code == 1
        assert "billing" not in rig.broker.groups.table

    check()


@on_loop
async def test_a_group_can_be_forbidden_to_read_a_topic(rig):
    async def ask(readable=None, topic="orders"):
        request = ForbidGroup(group="billing", topic=topic, readable=readable)
        return (await groups.forbid_group(request, rig.broker, rig.caller)).readable

    assert await ask() is True
    assert await ask(False) is False
    assert (await ask(), await ask(topic="bills")) == (False, True)
    assert rig.broker.groups.may_read("audit", "orders")
    assert rig.files.trees[FILE]["forbiddenTable"] == {"billing": {"orders": 4}}
    rig.broker.groups.forbidden["billing"] = {"orders": 4 | 1}
    assert await ask(True) is True
    assert rig.files.trees[FILE]["forbiddenTable"] == {"billing": {"orders": 1}}
    rig.broker.groups.forbidden["billing"] = {"orders": 4}
    counter = rig.broker.groups.version.counter
    assert (await ask(True), await ask(True)) == (True, True)
    assert rig.broker.groups.version.counter == counter + 1
    assert rig.files.trees[FILE]["forbiddenTable"] == {}


@on_loop
def test_the_table_comes_whole_or_in_pages_that_miss_nobody(rig):
    rig.broker.groups.put(GroupSettings(group=f"g{number}") for number in range(5))
    names = sorted(rig.broker.groups.table)
    version = rig.broker.groups.version

    def get(**asked):
        return groups.get_groups(GetGroups(**asked), rig.broker, rig.caller)

    everything = get()
    assert (sorted(everything.groups), everything.total) == (names, len(names))
    assert everything.version == version
    page = get(start=0, version=version, most=4)
    assert list(page.groups) == names[:4]
    assert list(get(start=4, version=version, most=4).groups) == names[4:8]
    assert list(get(start=8, version=version, most=4).groups) == names[8:]
    assert list(get(start=8, version=DataVersion(counter=99), most=4).groups) == names[:4]
    assert list(get(start=99, version=version, most=4).groups) == []


def test_what_was_kept_is_there_after_a_restart():
    async def main():
        files = MemoryFiles()
        rig = Rig(files=files).load()
        settings = GroupSettings(group="TOOLS_CONSUMER", max_retries=1)
        rig.broker.groups.put([settings, GroupSettings(group="billing")])
        rig.broker.groups.forbid("billing", "orders", readable=False)
        await rig.broker.close()
        again = Rig(files=files).load().broker.groups
        assert again.table == rig.broker.groups.table
        assert again.version == rig.broker.groups.version
        assert again.table["TOOLS_CONSUMER"].max_retries == 1
        assert not again.may_read("billing", "orders")

    run_on("asyncio", main())


def test_a_file_of_an_older_broker_is_read():
    async def main():
        files = MemoryFiles()
        files.trees[FILE] = {
            "dataVersion": {"counter": 3, "timestamp": 5},
            "subscriptionGroupTable": {"billing": {"groupName": "billing", "retryMaxTimes": 2}},
        }
        table = Rig(files=files).load().broker.groups.table
        assert table["billing"] == GroupSettings(
            group="billing", max_retries=2, retry_policy=RetryPolicy()
        )

    run_on("asyncio", main())
