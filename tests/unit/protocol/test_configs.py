from __future__ import annotations

import pytest

from gantrymq.errors import LocalProtocolError, NotFound, RemoteProtocolError
from gantrymq.protocol.configs import (
    DeleteKey,
    GetBrokerConfig,
    GetKey,
    GetKeys,
    GetNameServerConfig,
    PutKey,
    UpdateBrokerConfig,
    UpdateNameServerConfig,
)
from gantrymq.protocol.data_version import DataVersion
from gantrymq.wire.command import Command


def test_keys() -> None:
    put = PutKey(namespace="ORDER_TOPIC_CONFIG", key="T", value="b:4")
    assert put.command().fields == {
        "namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "b:4",
    }  # fmt: skip
    get = GetKey(namespace="N", key="T")
    assert get.reply_from(Command(0, fields={"value": "b:4"})).value == "b:4"
    with pytest.raises(NotFound, match="No config item"):
        get.reply_from(Command(22, remark="No config item, Namespace: N Key: T"))
    keys = GetKeys(namespace="N").reply_from(Command(0, body=b'{"table":{"T":"b:4"}}'))
    assert keys.table == {"T": "b:4"}
    assert DeleteKey(namespace="N", key="T").command().code == 102


TEXT = b"#comment\n\nbrokerName=b\n namesrvAddr = a:1;b:2 \r\nempty=\nbare\npath=/a=b\n"
PROPERTIES = {
    "brokerName": "b", "namesrvAddr": "a:1;b:2", "empty": "", "bare": "", "path": "/a=b",
}  # fmt: skip


def test_settings() -> None:
    assert GetNameServerConfig().reply_from(Command(0, body=TEXT)).properties == PROPERTIES
    fields = {"version": '{"counter":2,"stateVersion":0,"timestamp":9}'}
    reply = GetBrokerConfig().reply_from(Command(0, fields=fields, body=TEXT))
    assert reply.version == DataVersion(counter=2, timestamp_ms=9)
    assert reply.properties == PROPERTIES
    assert reply.command().fields == fields


def test_changes_are_sorted_by_key() -> None:
    command = UpdateBrokerConfig(properties={"b": "2", "a": "1"}).command()
    assert (command.code, command.body) == (25, b"a=1\nb=2\n")
    assert UpdateNameServerConfig.from_command(command).properties == {"a": "1", "b": "2"}


@pytest.mark.parametrize("key", ["", "a=b", "a\n", " a", "#a", "!a"])
def test_keys_that_are_not_sent(key: str) -> None:
    with pytest.raises(LocalProtocolError, match="a property cannot be called"):
        UpdateBrokerConfig(properties={key: "1"}).command()


@pytest.mark.parametrize("value", ["1\n2", "1 ", "\r"])
def test_values_that_are_not_sent(value: str) -> None:
    with pytest.raises(LocalProtocolError, match="property a cannot be"):
        UpdateBrokerConfig(properties={"a": value}).command()


def test_settings_that_cannot_be_read() -> None:
    with pytest.raises(RemoteProtocolError, match="UTF-8"):
        UpdateBrokerConfig.from_command(Command(25, body=b"a=\xff"))
    with pytest.raises(RemoteProtocolError, match="version: JSON"):
        GetBrokerConfig().reply_from(Command(0, fields={"version": "{"}))
