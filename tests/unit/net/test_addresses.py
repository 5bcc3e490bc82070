import pytest

from gantrymq.errors import ConfigError
from gantrymq.net.addresses import (
    join_address,
    parse_name_servers,
    split_address,
    vip_address,
)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.7:10911", "10.0.0.7", 10911),
        (" broker-a.example:1 ", "broker-a.example", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:9876", "fe80::1%eth0", 9876),
        (":9876", "", 9876),
    ],
)
def test_an_address_is_taken_apart_and_put_together(text: str, host: str, port: int) -> None:
    assert split_address(text) == (host, port)
    assert join_address(host, port) == text.strip()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("broker", "the port is missing"),
        ("::1:10911", "needs brackets"),
        ("a:b", "is not host:port"),
        ("a:65536", "the highest is 65535"),
        ("a:-1", "is not host:port"),
        ("http://a:1", "is not host:port"),
        ("a b:1", "is not host:port"),
        ("", "is not host:port"),
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        split_address(text)
    assert repr(text) in str(caught.value)


def test_the_fast_port_is_two_below() -> None:
    assert vip_address("10.0.0.7:10911") == "10.0.0.7:10909"
    assert vip_address("[::1]:10911") == "[::1]:10909"
    with pytest.raises(ConfigError, match="no VIP port"):
        vip_address("a:2")


@pytest.mark.parametrize(
    ("text", "addresses", "namespace"),
    [
        ("a:1", ("a:1",), None),
        ("a:1;b:2", ("a:1", "b:2"), None),
        (" a:1 ; b:2;a:1; ", ("a:1", "b:2"), None),
        ("http://a:1", ("a:1",), None),
        ("[::1]:9876;b:2", ("[::1]:9876", "b:2"), None),
        (
            "http://MQ_INST_123_ab.mq.example.com:8080",
            ("MQ_INST_123_ab.mq.example.com:8080",),
            "MQ_INST_123_ab",
        ),
        ("MQ_INST_1_x.host:80", ("MQ_INST_1_x.host:80",), "MQ_INST_1_x"),
    ],
)
def test_name_server_lists(text: str, addresses: tuple[str, ...], namespace: str | None) -> None:
    found = parse_name_servers(text)
    assert found.addresses == addresses
    assert found.namespace == namespace


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (" ; ", "no name server"),
        ("a:1;b", "the port is missing"),
        ("MQ_INST_1_x.h:1;MQ_INST_2_y.h:1", "several instances: MQ_INST_1_x, MQ_INST_2_y"),
    ],
)
def test_bad_name_server_lists(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_name_servers(text)
