"""The PROXY protocol's header, versions 1 and 2: who is really at the other end of a load balancer.

`read_header(data)` looks at the first bytes of a connection, taking none of them, and says one of
three things: a `ProxyHeader` (with how many bytes it takes), `NONE` (these bytes begin something
else), or `MORE` (they may still become a header). Malformed headers raise `RemoteProtocolError`.

Version 1 is one line of at most 107 bytes: `PROXY TCP4 source target port port`, ended by CR LF.
Version 2 is a 12 byte signature, version and command, family, the length of the rest, two
addresses, and then type-length-value entries, which are kept. `LOCAL` and `UNKNOWN` headers carry
no address; the socket's own stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from struct import Struct
from typing import Final, Literal

from gantrymq.errors import RemoteProtocolError
from gantrymq.net.addresses import join_address

SIGNATURE_V1: Final = b"PROXY "
SIGNATURE_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
LONGEST_V1: Final = 107
LONGEST: Final = 16 + 4096
"""Version 2 could announce 64 KiB; no balancer sends a tenth of this."""

_FIXED_V2: Final = Struct("!BBH")
_ADDRESSES_V2: Final = {0x11: Struct("!4s4sHH"), 0x21: Struct("!16s16sHH")}
_FAMILIES_V2: Final = {0x00, 0x11, 0x12, 0x21, 0x22, 0x31, 0x32}
_VERSION_2: Final = 2
_LOCAL: Final = 0
_PROXY: Final = 1


class Undecided(Enum):
    """What the first bytes of a connection can be, other than a header."""

    NONE = "not a header"
    MORE = "may become one"


NONE: Final = Undecided.NONE
MORE: Final = Undecided.MORE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeader:
    """What a load balancer says about the connection that it passes on."""

    size: int
    source: str | None = None
    target: str | None = None
    entries: tuple[tuple[int, bytes], ...] = ()


def read_header(data: bytes) -> ProxyHeader | Literal[Undecided.NONE, Undecided.MORE]:
    """What `data`, the first bytes of a connection, says about a PROXY header."""
    if data.startswith(SIGNATURE_V1):
        return _read_v1(data)
    if data.startswith(SIGNATURE_V2):
        return _read_v2(data)
    begun = SIGNATURE_V1.startswith(data) or SIGNATURE_V2.startswith(data)
    return MORE if begun else NONE


def _read_v1(data: bytes) -> ProxyHeader | Literal[Undecided.MORE]:
    end = data.find(b"\r\n", 0, LONGEST_V1)
    if end < 0:
        if len(data) >= LONGEST_V1:
            raise RemoteProtocolError(f"a PROXY line without an end in {LONGEST_V1} bytes")
        return MORE
    words = data[:end].decode("latin-1").split(" ")
    if words[1] == "UNKNOWN":
        return ProxyHeader(size=end + 2)
    try:
        family, source, target, source_port, target_port = words[1:]
        version = {"TCP4": 4, "TCP6": 6}[family]
        return ProxyHeader(
            size=end + 2,
            source=_join_v1(version, source, source_port),
            target=_join_v1(version, target, target_port),
        )
    except (ValueError, KeyError) as error:
        raise RemoteProtocolError(f"a malformed PROXY line: {data[:end]!r}") from error


def _join_v1(version: int, host: str, port: str) -> str:
    number = int(port)
    if ip_address(host).version != version or not (port.isascii() and port.isdigit()):
        raise ValueError(host)
    if number > 0xFFFF:
        raise ValueError(port)
    return join_address(host, number)


def _read_v2(data: bytes) -> ProxyHeader | Literal[Undecided.MORE]:
    start = len(SIGNATURE_V2)
    at = start + _FIXED_V2.size
    if len(data) < at:
        return MORE
    version_command, family, length = _FIXED_V2.unpack_from(data, start)
    version, command = version_command >> 4, version_command & 0xF
    if version != _VERSION_2 or command > _PROXY or family not in _FAMILIES_V2:
        raise RemoteProtocolError(
            f"a PROXY header of version {version}, command {command}, family {family:#04x}"
        )
    end = at + length
    if end > LONGEST:
        raise RemoteProtocolError(f"a PROXY header of {end} bytes; the limit is {LONGEST}")
    if len(data) < end:
        return MORE
    shape = _ADDRESSES_V2.get(family)
    if command == _LOCAL or shape is None:
        return ProxyHeader(size=end)
    if length < shape.size:
        raise RemoteProtocolError(f"a PROXY header leaves {length} of {shape.size} address bytes")
    source, target, source_port, target_port = shape.unpack_from(data, at)
    return ProxyHeader(
        size=end,
        source=join_address(_host(source), source_port),
        target=join_address(_host(target), target_port),
        entries=_read_entries(data[at + shape.size : end]),
    )


def _host(packed: bytes) -> str:
    return str(ip_address(packed))


def _read_entries(data: bytes) -> tuple[tuple[int, bytes], ...]:
    entries = []
    at = 0
    while at < len(data):
        value_at = at + 3
        end = value_at + int.from_bytes(data[at + 1 : value_at])
        if value_at > len(data) or end > len(data):
            raise RemoteProtocolError(f"a PROXY header's entry at {at} of {len(data)} is cut off")
        entries.append((data[at], bytes(data[value_at:end])))
        at = end
    return tuple(entries)
