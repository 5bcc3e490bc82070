"""The settings of a broker."""

from pathlib import Path

import pytest

from gantrymq.broker.config import BrokerConfig
from gantrymq.errors import ConfigError
from gantrymq.settings import load, parse_properties, rows

CONF = """\
brokerClusterName=east
brokerName = broker-b
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
listenPort=20911
namesrvAddr=10.0.0.1:9876;10.0.0.2:9876
storePathRootDir=/var/rocketmq
autoCreateTopicEnable=false
defaultTopicQueueNums=16
brokerPermission=4
waitTimeMillsInSendQueue=300
"""


def test_a_broker_conf_of_rocketmq_is_read():
    loaded = load(BrokerConfig, properties=parse_properties(CONF))
    config = loaded.value
    assert (config.identity.cluster, config.identity.name) == ("east", "broker-b")
    assert config.registering.name_servers == "10.0.0.1:9876;10.0.0.2:9876"
    assert (config.listen.port, config.directory) == (20_911, Path("/var/rocketmq"))
    assert (config.topics.auto_create, config.topics.queues) == (False, 16)
    assert config.store.flush.mode == "sync"
    assert config.store.retention.time == 48 * 3600
    assert (config.permission, config.flow.loop_lag) == (4, 0.3)
    assert loaded.unknown == ("brokerRole",)


def test_every_alias_is_given_once():
    aliases = [row.alias.key for row in rows(BrokerConfig) if row.alias is not None]
    assert len(aliases) == len(set(aliases))


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"listen.port": 70_000}, "ports go from 0 to 65535"),
        ({"permission": 7}, "it is 4 to read, 2 to write"),
        ({"topics.queues": 0}, "the least is 1"),
        ({"listen.prot": 1}, "did you mean listen.port?"),
    ],
)
def test_what_will_not_do_is_said(flags, complaint):
    with pytest.raises(ConfigError, match=complaint):
        load(BrokerConfig, flags=flags)


def test_home_is_understood():
    assert BrokerConfig(data="~/x").directory == Path.home() / "x"
