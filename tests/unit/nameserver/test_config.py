"""Settings: where they come from, what wins, and how they change while the server runs."""

from pathlib import Path

import pytest

from gantrymq.errors import ConfigError, NoPermission
from gantrymq.nameserver.config import NameServerConfig, aliases, load_config
from gantrymq.nameserver.configs import as_properties, changed, check_allowed

NAMESRV_CONF = """\
# as it comes with RocketMQ
rocketmqHome=/opt/rocketmq
listenPort=19876
bindAddress = 127.0.0.1
scanNotActiveBrokerInterval=2500
orderMessageEnable=true
waitSecondsForService=30
clientRequestThreadPoolNums=8
kvConfigPath={keys}
"""


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "namesrv.conf"
    path.write_text(NAMESRV_CONF.format(keys=tmp_path / "keys.json"))
    return path


def test_rocketmqs_defaults():
    text = as_properties(NameServerConfig())
    assert text == {
        "bindAddress": "0.0.0.0",
        "configBlackList": "configBlackList;configStorePath;kvConfigPath",
        "configStorePath": "",
        "deleteTopicWithBrokerRegistration": "false",
        "enableAllTopicList": "true",
        "enableTopicList": "true",
        "kvConfigPath": "",
        "listenPort": "9876",
        "needWaitForService": "false",
        "notifyMinBrokerIdChanged": "false",
        "orderMessageEnable": "false",
        "returnOrderTopicConfigToBroker": "true",
        "scanNotActiveBrokerInterval": "5000",
        "serverChannelMaxIdleTimeSeconds": "120",
        "serverSocketBacklog": "1024",
        "supportActingMaster": "false",
        "waitSecondsForService": "45",
    }


def test_rocketmqs_own_file_is_read_and_what_means_nothing_is_named(conf, tmp_path):
    loaded = load_config(conf)
    config = loaded.value
    assert config.address == "127.0.0.1:19876"
    assert config.brokers.scan_interval == 2.5
    assert config.routes.order is True
    assert config.routes.wait_time == 30
    assert config.files.keys_path == tmp_path / "keys.json"
    assert loaded.unknown == ("rocketmqHome", "clientRequestThreadPoolNums")


def test_a_toml_file(tmp_path):
    path = tmp_path / "namesrv.toml"
    path.write_text('[listen]\nport = 0\nbind = "::1"\n[brokers]\nscan-interval = "200 ms"\n')
    config = load_config(path).value
    assert config.address == "[::1]:0"
    assert config.brokers.scan_interval == 0.2


def test_variables_go_over_files_and_flags_over_variables(conf):
    environ = {"GANTRY_NAMESRV_LISTEN_PORT": "1", "GANTRY_NAMESRV_ROUTES_ORDER": "no", "PATH": "x"}
    config = load_config(conf, environ=environ).value
    assert (config.listen.port, config.routes.order) == (1, False)
    flags = {"listenPort": "2", "routes.order": "yes", "scanNotActiveBrokerInterval": "70"}
    config = load_config(conf, environ=environ, flags=flags).value
    assert (config.listen.port, config.routes.order) == (2, True)
    assert config.brokers.scan_interval == 0.07


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"flags": {"listen.prt": "1"}}, "did you mean listen.port"),
        ({"flags": {"listenPort": "70000"}}, "ports go from 0 to 65535"),
        ({"flags": {"brokers.scan_interval": "soon"}}, "no amount of seconds"),
        ({"flags": {"scanNotActiveBrokerInterval": "0"}}, "the least is 0.01"),
        ({"environ": {"GANTRY_NAMESRV_PORT": "1"}}, "there is no environment variable"),
    ],
)
def test_mistakes_are_named(how, said):
    with pytest.raises(ConfigError, match=said):
        load_config(**how)


@pytest.mark.parametrize(
    ("name", "text"), [("x.toml", "listen = "), ("x.conf", "listenPort"), ("x.conf", "\xff")]
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, "latin-1")
    with pytest.raises(ConfigError, match=name):
        load_config(path)
    with pytest.raises(ConfigError, match="missing"):
        load_config(tmp_path / "missing.conf")


def test_home_is_understood_and_files_are_beside_each_other():
    files = NameServerConfig().files
    assert files.keys_path == Path.home() / "namesrv" / "kvConfig.json"
    assert files.settings_path == Path.home() / "namesrv" / "namesrv.properties"


def test_what_was_changed_while_running_holds_after_a_restart(conf, tmp_path):
    kept = tmp_path / "namesrv.properties"
    kept.write_text("orderMessageEnable=false\nsupportActingMaster=true\n")
    flags = {"files.data": str(tmp_path)}
    config = load_config(conf, flags=flags).value
    assert (config.routes.order, config.routes.acting_masters) == (False, True)
    config = load_config(conf, flags=flags | {"routes.order": "true"}).value
    assert config.routes.order is True
    kept.write_text("orderMessageEnable\n")
    with pytest.raises(ConfigError, match=r"namesrv\.properties"):
        load_config(conf, flags=flags)


def test_every_setting_that_rocketmq_knows_goes_both_ways():
    other = {
        "bindAddress": "127.0.0.1",
        "configBlackList": "listenPort",
        "configStorePath": "/a",
        "deleteTopicWithBrokerRegistration": "true",
        "enableAllTopicList": "false",
        "enableTopicList": "false",
        "kvConfigPath": "/b",
        "listenPort": "1",
        "needWaitForService": "true",
        "notifyMinBrokerIdChanged": "true",
        "orderMessageEnable": "true",
        "returnOrderTopicConfigToBroker": "false",
        "scanNotActiveBrokerInterval": "1234",
        "serverChannelMaxIdleTimeSeconds": "7",
        "serverSocketBacklog": "5",
        "supportActingMaster": "true",
        "waitSecondsForService": "8",
    }
    assert other.keys() == aliases().keys()
    assert as_properties(changed(NameServerConfig(), other)) == other


def test_a_change_keeps_everything_else():
    config = load_config(flags={"listen.connections": "7", "brokers.timeout": "9"}).value
    after = changed(config, {"orderMessageEnable": "true"})
    assert (after.listen, after.brokers, after.files) == (
        config.listen,
        config.brokers,
        config.files,
    )
    assert after.routes.order is True
    with pytest.raises(ConfigError, match=r"routes\.order"):
        changed(config, {"orderMessageEnable": "perhaps"})


def test_locked_settings_are_refused():
    config = changed(NameServerConfig(), {"configBlackList": "listenPort;kvConfigPath"})
    for name in (
        "listenPort",
        "kvConfigPath",
        "configStorePath",
        "configBlackList",
        "rocketmqHome",
    ):
        with pytest.raises(NoPermission, match=r"Can not update config in black list\."):
            check_allowed(config, ["orderMessageEnable", name])
    check_allowed(config, ["orderMessageEnable"])
