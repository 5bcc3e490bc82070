"""Where a client's settings come from, and which of them win."""

from __future__ import annotations

import pytest

from gantrymq.client.config import ClientConfig, load_config, parse_url
from gantrymq.client.producer_config import load_producer
from gantrymq.errors import ConfigError
from gantrymq.wire.command import HeaderType


def load(url: str | None = None, environ: dict[str, str] | None = None, **given: object):
    return load_config(url, environ=environ or {}, arguments=given)


def test_a_url_says_everything():
    config = load(
        "rmq://me:s%40cret@one:9876;two/shop?tls=1&tls_verify=false&call-timeout=5s&header=binary"
    )
    assert config.name_servers == ("one:9876", "two:9876")
    assert (config.namespace, config.tls, config.tls_verify) == ("shop", True, False)
    assert config.call_timeout == 5.0
    assert config.credentials is not None
    assert (config.credentials.access_key, config.credentials.secret_key) == ("me", "s@cret")
    assert config.client_tls is not None
    assert not config.client_tls.verify
    assert config.peer_options.header_type is HeaderType.BINARY
    assert config.peer_options.credentials == config.credentials


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("rmq://", ("localhost:9876",)),
        ("rmq://:1234", ("localhost:1234",)),
        ("rmq://one,two:2", ("one:9876", "two:2")),
        ("rmq://[::1]", ("[::1]:9876",)),
        ("RMQ://one", ("one:9876",)),
    ],
)
def test_hosts_and_ports_may_be_left_out(url, servers):
    assert load(url).name_servers == servers


def test_each_place_wins_over_those_before_it():
    environ = {"NAMESRV_ADDR": "old:1;older:1"}
    assert load(environ=environ).name_servers == ("old:1", "older:1")
    environ["GANTRY_URL"] = "rmq://new:2/space?call_timeout=7s"
    assert load(environ=environ).name_servers == ("new:2",)
    assert load(environ=environ).call_timeout == 7.0
    environ["GANTRY_CLIENT_CALL_TIMEOUT"] = "8s"
    assert load(environ=environ).call_timeout == 8.0
    told = load("rmq://own:3?call_timeout=9s", environ)
    assert (told.name_servers, told.call_timeout, told.namespace) == (("own:3",), 9.0, "space")
    told = load("rmq://own:3?call_timeout=9s", environ, call_timeout=1.5, name_servers="mine:4")
    assert (told.name_servers, told.call_timeout) == (("mine:4",), 1.5)


def test_a_url_may_hold_the_settings_of_a_producer_too():
    url = "rmq://one?send_timeout=5s&vip_channel=1&auto_batch=true"
    client, producer = load_producer(url, {"retries": 0}, environ={})
    assert client.vip_channel
    assert (producer.send_timeout, producer.retries, producer.auto_batch) == (5.0, 0, True)
    client, producer = load_producer(None, {}, environ={"GANTRY_URL": url})
    assert (client.vip_channel, producer.send_timeout) == (True, 5.0)


def test_addresses_can_be_mapped():
    config = load("rmq://one", address_map={"10.0.0.1:10911": "localhost:10911"})
    assert config.reachable == {"10.0.0.1:10911": "localhost:10911"}
    config = load("rmq://one?address_map=10.0.0.1:10911=localhost:10911")
    assert config.reachable == {"10.0.0.1:10911": "localhost:10911"}


@pytest.mark.parametrize(
    ("url", "given", "says"),
    [
        ("http://one", {}, "it looks like rmq://"),
        ("one:9876", {}, "it looks like rmq://"),
        ("rmq://me@one", {}, "access_key was given without secret_key"),
        ("rmq://one", {"secret_key": "s"}, "secret_key was given without access_key"),
        ("rmq://one?call_timeut=5s", {}, "did you mean call_timeout?"),
        ("rmq://one", {"address_map": ("10.0.0.1",)}, "is not advertised=reachable"),
    ],
)
def test_mistakes_are_told(url, given, says):
    with pytest.raises(ConfigError) as raised:
        load(url, **given)
    assert says in str(raised.value)


def test_secrets_are_not_shown():
    with pytest.raises(ConfigError) as raised:
        parse_url("http://me:s3cret@one")
    assert "s3cret" not in str(raised.value)
    assert "s3cret" not in repr(load("rmq://me:s3cret@one"))
    assert repr(ClientConfig()) == "<ClientConfig no name server>"
