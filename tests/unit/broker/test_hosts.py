"""Who sent a message and who stored it."""

import pytest

from gantrymq.broker.hosts import Hosts, host_bytes, hosts_of
from tests.unit.broker.rig import Caller


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.1.2.3:50000", (b"\x0a\x01\x02\x03", 50_000)),
        ("[::1]:9", (bytes(15) + b"\x01", 9)),
        ("[fe80::1%eth0]:9", (b"\xfe\x80" + bytes(13) + b"\x01", 9)),
        ("parrot:1", (b"\x7f\0\0\x01", 0)),
        ("a peer that is gone", (b"\x7f\0\0\x01", 0)),
    ],
)
def test_addresses_in_bytes(address, expected):
    assert host_bytes(address) == expected


def test_the_store_host_is_where_the_producer_reached_us():
    found = hosts_of(Caller(remote="192.0.2.9:5", local="10.0.0.1:10911"), None)
    assert found == Hosts(b"\xc0\x00\x02\x09", 5, b"\x0a\0\0\x01", 10_911)


def test_or_what_was_set():
    found = hosts_of(Caller(remote="192.0.2.9:5"), (b"\x0a\x09\x09\x09", 1))
    assert found[2:] == (b"\x0a\x09\x09\x09", 1)


def test_what_was_found_out_is_kept_with_the_connection():
    caller = Caller()
    found = hosts_of(caller, None)
    caller.remote = "another"
    assert hosts_of(caller, None) is found
