"""Which address others are told."""

import pytest

from gantrymq.broker.addressing import found_address, local_address, resolve, set_address
from gantrymq.errors import ConfigError


@pytest.mark.parametrize(
    ("listening", "expected"),
    [
        ("0.0.0.0:10911", "127.0.0.1:10911"),
        ("[::]:10911", "127.0.0.1:10911"),
        ("10.0.0.1:10911", "10.0.0.1:10911"),
    ],
)
def test_how_this_machine_reaches_it(listening, expected):
    assert local_address(listening) == expected


@pytest.mark.parametrize(
    ("advertise", "expected"),
    [
        ("10.0.0.9", "10.0.0.9:10911"),
        ("10.0.0.9:5", "10.0.0.9:5"),
        ("broker.example", "broker.example:10911"),
        ("0.0.0.0", "0.0.0.0:10911"),
        ("::1", "[::1]:10911"),
    ],
)
def test_what_is_set_counts(advertise, expected):
    assert set_address(advertise, 10_911) == expected


@pytest.mark.parametrize(
    ("bind", "local", "expected"),
    [
        ("10.0.0.1", "192.0.2.7:5", "10.0.0.1:1"),
        ("127.0.0.1", "127.0.0.1:5", "127.0.0.1:1"),
        ("0.0.0.0", "192.0.2.7:5", "192.0.2.7:1"),
        ("", "[2001:db8::7]:5", "[2001:db8::7]:1"),
    ],
)
def test_else_it_is_the_host_by_which_we_are_reached(bind, local, expected):
    assert found_address(bind, 1, local) == expected


@pytest.mark.parametrize("local", ["127.0.0.1:5", "[::1]:5", "memory"])
def test_the_loopback_is_no_address_for_others(local, monkeypatch):
    monkeypatch.setattr("gantrymq.broker.addressing._own_host", lambda: "192.0.2.33")
    assert found_address("0.0.0.0", 1, local) == "192.0.2.33:1"


def test_addresses_as_messages_hold_them():
    assert resolve("10.0.0.9:5") == (b"\x0a\0\0\x09", 5)
    assert resolve("[::1]:5") == (bytes(15) + b"\x01", 5)
    assert resolve("0.0.0.0:5") is None
    found = resolve("localhost:5")
    assert found in ((b"\x7f\0\0\x01", 5), (bytes(15) + b"\x01", 5))


def test_a_host_that_nobody_knows_is_a_mistake():
    with pytest.raises(ConfigError, match=r"listen.advertise: nowhere.invalid is not known"):
        resolve("nowhere.invalid:5")
