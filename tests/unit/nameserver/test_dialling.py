"""Brokers that leave their host to the name server beside them."""

import pytest

from gantrymq.nameserver.dialling import any_open, is_open, with_host
from gantrymq.protocol.routing import BrokerData


@pytest.mark.parametrize(
    ("address", "expected"),
    [("0.0.0.0:10911", True), ("[::]:10911", True), ("10.0.0.0:10911", False), ("broker:1", False)],
)
def test_which_addresses_are_open(address, expected):
    assert is_open(address) is expected
    assert any_open([BrokerData(name="broker-a", addresses={0: address})]) is expected


def test_an_open_host_becomes_the_dialled_one():
    data = BrokerData(
        cluster="east", name="broker-a", addresses={0: "0.0.0.0:10911", 1: "10.0.0.2:10921"},
        acting_master=True, zone="z",
    )  # fmt: skip
    seen = with_host(data, "192.0.2.7")
    assert seen.addresses == {0: "192.0.2.7:10911", 1: "10.0.0.2:10921"}
    assert (seen.cluster, seen.name, seen.acting_master, seen.zone) == (
        "east", "broker-a", True, "z",
    )  # fmt: skip
    assert with_host(data, "::1").addresses[0] == "[::1]:10911"


def test_what_names_its_host_stays_the_same():
    data = BrokerData(name="broker-a", addresses={0: "10.0.0.1:10911"})
    assert with_host(data, "192.0.2.7") is data
    assert with_host(BrokerData(name="b", addresses={0: "0.0.0.0:1"}), "").addresses == {
        0: "0.0.0.0:1"
    }
