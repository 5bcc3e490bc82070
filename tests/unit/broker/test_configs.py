"""Settings read and changed while a broker runs."""

import pytest

from gantrymq.broker import configs
from gantrymq.broker.config import BrokerConfig
from gantrymq.broker.configs import FILE, aliases, as_properties, changed, with_changes
from gantrymq.errors import ReplyError
from gantrymq.protocol.configs import GetBrokerConfig, UpdateBrokerConfig
from gantrymq.settings import rows
from tests.unit.broker.rig import START_MS, on_loop, refusal


def values(config):
    return {row.path: configs._value(config, row.path) for row in rows(BrokerConfig)}


def test_every_setting_is_written_so_that_it_is_read_as_what_it_is():
    properties = as_properties(BrokerConfig())
    assert properties.keys() == aliases().keys()
    assert changed(BrokerConfig(), properties) == BrokerConfig()


def test_units_and_words_are_rocketmqs():
    properties = as_properties(BrokerConfig())
    expected = {
        "brokerName": "broker-a",
        "listenPort": "10911",
        "brokerPermission": "6",
        "autoCreateTopicEnable": "true",
        "flushDiskType": "ASYNC_FLUSH",
        "channelExpiredTimeout": "120000",
        "fileReservedTime": "72",
        "diskMaxUsedSpaceRatio": "75",
        "registerNameServerPeriod": "30000",
        "serverChannelMaxIdleTimeSeconds": "120",
    }
    assert {name: properties[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("flushDiskType", "SYNC_FLUSH", "SYNC_FLUSH"),
        ("syncFlushTimeout", "1500", "1500"),
        ("fileReservedTime", "1.5", "1.5"),
        ("diskMaxUsedSpaceRatio", "80.5", "80.5"),
        ("deleteWhen", "04;16", "4;16"),
    ],
)
def test_what_is_changed_is_what_is_read_afterwards(name, text, read):
    before = as_properties(BrokerConfig())
    assert as_properties(changed(BrokerConfig(), {name: text})) == before | {name: read}


async def update(rig, **properties):
    request = UpdateBrokerConfig(properties=properties)
    await configs.update_config(request, rig.broker, rig.caller)


@on_loop
async def test_settings_hold_at_once(rig):
    request = GetBrokerConfig()
    before = configs.get_config(request, rig.broker, rig.caller)
    assert before.version.counter == 0
    assert before.properties.keys() == aliases().keys() | {
        "brokerRole",
        "clientCallbackExecutorThreads",
        "filterServerNums",
        "useTLS",
    }
    assert before.properties["brokerRole"] == "ASYNC_MASTER"
    await update(rig, autoCreateSubscriptionGroup="false", unheardOf="1", brokerPermission="2")
    after = configs.get_config(request, rig.broker, rig.caller)
    assert after.properties == before.properties | {
        "autoCreateSubscriptionGroup": "false",
        "brokerPermission": "2",
    }
    assert (after.version.counter, after.version.timestamp_ms) == (1, START_MS)
    assert rig.broker.groups.settings("billing") is None
    assert refusal(rig.pull)[0] == 16


@on_loop
async def test_one_wrong_value_and_nothing_changes(rig):
    with pytest.raises(ReplyError, match=r"nothing changed, .*permission") as refused:
        await update(rig, autoCreateSubscriptionGroup="false", brokerPermission="5")
    assert refused.value.code == 1
    assert rig.broker.config == rig.config
    assert FILE not in rig.files.trees


@pytest.mark.parametrize(
    "name", ["configBlackList", "brokerConfigPath", "storePathRootDir", "brokerName", "brokerId"]
)
def test_some_settings_are_locked(name):
    @on_loop
    async def check(rig):
        with pytest.raises(ReplyError, match="Can not update config in black list") as refused:
            await update(rig, **{name: "x", "brokerPermission": "4"})
        assert refused.value.code == 16
        assert rig.broker.config.permission == 6

    check()


@on_loop
async def test_nothing_that_is_known_changes_nothing(rig):
    await update(rig, unheardOf="1")
    assert rig.broker.changes.version.counter == 0


@on_loop
async def test_a_change_holds_over_a_restart_until_the_setting_is_set_otherwise(rig):
    await update(rig, brokerPermission="4", defaultTopicQueueNums="3")
    await update(rig, defaultTopicQueueNums="5")
    tree = rig.files.trees[FILE]
    assert tree["changes"] == {
        "brokerPermission": {"after": "4", "before": "6"},
        "defaultTopicQueueNums": {"after": "5", "before": "8"},
    }
    started = with_changes(BrokerConfig(), tree)
    assert (started.permission, started.topics.queues) == (4, 5)
    set_otherwise = changed(BrokerConfig(), {"brokerPermission": "2"})
    started = with_changes(set_otherwise, tree)
    assert (started.permission, started.topics.queues) == (2, 5)
    await update(rig, defaultTopicQueueNums="8")
    assert rig.files.trees[FILE]["changes"].keys() == {"brokerPermission"}


def test_a_start_without_changes_is_as_it_was_set():
    config = BrokerConfig()
    assert with_changes(config, None) is config
    assert with_changes(config, {"changes": {}}) is config


def test_a_kept_change_that_will_not_do_any_more_is_passed_over(caplog):
    config = BrokerConfig()
    tree = {"changes": {"brokerPermission": {"before": "6", "after": "5"}}}
    assert with_changes(config, tree) is config
    assert "permission" in caplog.text
