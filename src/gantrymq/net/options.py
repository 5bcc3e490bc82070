"""The limits of a connection and of a server: every number that decides about cutting off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gantrymq.protocol.signing import Credentials
from gantrymq.wire.command import HeaderType
from gantrymq.wire.connection import DEFAULT_LIMIT

_KIB: Final = 1024
_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOptions:
    """How one connection behaves; the same for both ends unless said otherwise."""

    credentials: Credentials | None = None
    """Whoever signs our requests; nobody, if there is no need."""

    frame_limit: int = DEFAULT_LIMIT
    """Longest frame taken or sent, in bytes."""
    header_type: HeaderType = HeaderType.JSON
    mirror_header_type: bool = False
    """Answer in whatever header type the peer wrote last."""

    idle_timeout: float = 120.0
    """Seconds without a read and without a write after which the connection is closed."""
    frame_timeout: float = 30.0
    """Seconds within which a frame that has begun has to be complete."""
    first_frame_timeout: float = 120.0
    """Seconds that an accepted connection has for its first frame.

    Java clients connect to every name server of their list and talk to one, so this is not short.
    """
    linger: float = 5.0
    """Seconds that the last bytes have to go out after `close()`."""

    calls_in_flight: int = 4096
    """Calls that may wait for their reply; further callers wait for room."""
    answers_in_flight: int = 8192
    """Requests of the peer that may be in work; over it, reading stops until one is answered."""

    write_high: int = _MIB
    """Bytes waiting to go out over which callers wait, and a server stops reading requests."""
    write_low: int = 256 * _KIB
    write_limit: int = 64 * _MIB
    """Bytes waiting to go out over which a server gives up on a slow reader."""

    silence_timeout: float = 15.0
    """Seconds without any read after which a call that times out takes the connection with it.

    A peer that lost its power says nothing, and as long as we write we are not idle. Without this
    rule it is the kernel that finds out, after a quarter of an hour.
    """
    close_after_timeout: bool = False
    """Close the connection when a call times out, as Java clients do (`closeSocketIfTimeout`).

    It drops every other call on it, too; one slow answer is rarely worth that.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerOptions:
    """How a server behaves beyond its single connections."""

    connections: int = 10_000
    """Connections over which new ones are refused."""
    grace: float = 10.0
    """Seconds that requests in work have to be answered when the server closes."""


PLAIN: Final = PeerOptions()
"""What connections are like if nobody says otherwise."""
