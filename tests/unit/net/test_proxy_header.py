import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.errors import RemoteProtocolError
from gantrymq.net.proxy_header import MORE, NONE, SIGNATURE_V2, ProxyHeader, read_header

V1 = b"PROXY TCP4 203.0.113.9 10.0.0.1 40000 10911\r\n"
V1_V6 = b"PROXY TCP6 2001:db8::9 2001:db8::1 40000 10911\r\n"


def v2(command: int, family: int, rest: bytes, *, version: int = 2) -> bytes:
    return SIGNATURE_V2 + struct.pack("!BBH", version << 4 | command, family, len(rest)) + rest


ADDRESSES_V4 = (
    socket.inet_aton("203.0.113.9")
    + socket.inet_aton("10.0.0.1")
    + struct.pack("!HH", 40000, 10911)
)
ADDRESSES_V6 = (
    socket.inet_pton(socket.AF_INET6, "2001:db8::9")
    + socket.inet_pton(socket.AF_INET6, "2001:db8::1")
    + struct.pack("!HH", 40000, 10911)
)
ENTRIES = b"\x02\x00\x04host" + b"\xe0\x00\x00"
V2 = v2(1, 0x11, ADDRESSES_V4 + ENTRIES)


@pytest.mark.parametrize("after", [b"", b"\x00\x00\x01\x00 and more"])
def test_version_1(after: bytes) -> None:
    assert read_header(V1 + after) == ProxyHeader(
        size=len(V1), source="203.0.113.9:40000", target="10.0.0.1:10911"
    )
    header = read_header(V1_V6 + after)
    assert isinstance(header, ProxyHeader)
    assert header.source == "[2001:db8::9]:40000"


def test_version_2_with_entries() -> None:
    assert read_header(V2 + b"more") == ProxyHeader(
        size=len(V2),
        source="203.0.113.9:40000",
        target="10.0.0.1:10911",
        entries=((2, b"host"), (0xE0, b"")),
    )
    header = read_header(v2(1, 0x21, ADDRESSES_V6))
    assert isinstance(header, ProxyHeader)
    assert (header.source, header.target) == ("[2001:db8::9]:40000", "[2001:db8::1]:10911")


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n",
        v2(0, 0x00, b""),
        v2(0, 0x11, ADDRESSES_V4),
        v2(1, 0x00, b"whatever"),
        v2(1, 0x31, bytes(216)),
    ],
)
def test_headers_without_an_address_leave_the_sockets_own(data: bytes) -> None:
    assert read_header(data) == ProxyHeader(size=len(data))


@pytest.mark.parametrize("whole", [V1, V1_V6, V2])
def test_a_header_in_pieces_is_waited_for(whole: bytes) -> None:
    assert all(read_header(whole[:size]) is MORE for size in range(len(whole)))


@pytest.mark.parametrize(
    "data", [b"\x16\x03\x01", b"\x00\x00\x00\x70", b"PRO\x00", b"\r\n\r\nA", b"GET / HTTP/1.1\r\n"]
)
def test_other_beginnings_are_no_header(data: bytes) -> None:
    assert read_header(data) is NONE


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 203.0.113.9 10.0.0.1 40000\r\n",
        b"PROXY TCP4 203.0.113.9 10.0.0.1 40000 10911 x\r\n",
        b"PROXY TCP4 2001:db8::9 10.0.0.1 40000 10911\r\n",
        b"PROXY TCP4 203.0.113.9 10.0.0.1 65536 10911\r\n",
        b"PROXY TCP4 203.0.113.9 10.0.0.1 -1 10911\r\n",
        b"PROXY TCP9 203.0.113.9 10.0.0.1 1 2\r\n",
        b"PROXY \r\n",
        b"PROXY " + b"x" * 200,
        v2(1, 0x11, ADDRESSES_V4, version=1),
        v2(7, 0x11, ADDRESSES_V4),
        v2(1, 0x55, ADDRESSES_V4),
        v2(1, 0x11, ADDRESSES_V4[:-1]),
        v2(1, 0x11, ADDRESSES_V4 + b"\x02\x00\x09host"),
        v2(1, 0x11, ADDRESSES_V4 + b"\x02\x00"),
        SIGNATURE_V2 + struct.pack("!BBH", 0x21, 0x11, 0xFFFF),
    ],
)
def test_malformed_headers_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="PROXY"):
        read_header(data)


@given(st.binary(max_size=80), st.sampled_from([b"", b"PROXY ", SIGNATURE_V2, V1[:30], V2[:20]]))
def test_any_bytes_give_an_answer_or_our_error(tail: bytes, start: bytes) -> None:
    try:
        found = read_header(start + tail)
    except RemoteProtocolError:
        return
    assert found is MORE or found is NONE or 0 < found.size <= len(start + tail)
