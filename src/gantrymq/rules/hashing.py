"""Hashes that give a key its queue, the same at every client, proxy and version.

Three are in use, and they disagree on purpose:

- A remoting client takes Java's `hashCode` of the sender's argument, `|h % n|`.
- A gRPC client takes SipHash-2-4 of the message group, `floorMod(h, n)`.
- A proxy that receives a message group takes jump consistent hashing of `hashCode`: when a topic
  grows from n to n + 1 queues, only one group in n + 1 moves, and every one that moves goes to the
  new queue. J. Lamping, E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014.
"""

from __future__ import annotations

import math
import struct
from typing import Final

from gantrymq.errors import InvalidInput
from gantrymq.wire.javahash import int32, java_hash

_LONG_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_JUMP_MULTIPLIER: Final = 2862933555777941757
_GRPC_KEY: Final = bytes(range(16))
_SIP_START: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


def java_hash_of(value: object) -> int:
    """`value.hashCode()` where Java has the same kind of value: text, whole number, number, truth.

    A whole number hashes as an `Integer` where it fits one, else as a `Long`.
    """
    match value:
        case str():
            return java_hash(value)
        case bool():
            return 1231 if value else 1237
        case int() if value == int32(value):
            return value
        case int() if -(2**63) <= value < 2**63:
            return _fold(value)
        case float():
            return _fold(_double_bits(value))
    raise InvalidInput(
        f"a {type(value).__name__} has no hash that Java clients agree on;"
        f" choose the queue by text, a 64-bit number or a bool, not by {value!r}"
    )


def jump_hash(state: int, buckets: int) -> int:
    """The bucket of `state`, a 64-bit number, among `buckets`; grows with the fewest moves.

    RocketMQ: Hashing.consistentHash (of Guava, in the proxy).
    """
    state &= _LONG_MASK
    bucket = 0
    while True:
        state = (state * _JUMP_MULTIPLIER + 1) & _LONG_MASK
        jump = int((bucket + 1) * 2**31 / ((state >> 33) + 1))
        if jump >= buckets:
            return bucket
        bucket = jump


def proxy_queue(group: str, queues: int) -> int:
    """The queue, among `queues`, that a proxy gives to message group `group`."""
    return jump_hash(java_hash(group), queues)


def grpc_client_queue(group: str, queues: int) -> int:
    """The queue, among `queues`, that a gRPC client routes message group `group` by."""
    return _signed_long(siphash24(group.encode(), _GRPC_KEY)) % queues


def siphash24(data: bytes, key: bytes) -> int:
    """SipHash-2-4 of `data` under a key of 16 bytes, as an unsigned 64-bit number."""
    low, high = struct.unpack("<2Q", key)
    v0, v1, v2, v3 = (start ^ part for start, part in zip(_SIP_START, (low, high) * 2, strict=True))
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        v0, v1, v2, v3 = _sip_rounds(v0, v1, v2, v3 ^ word, rounds=2)
        v0 ^= word
    v0, v1, v2, v3 = _sip_rounds(v0, v1, v2 ^ 0xFF, v3, rounds=4)
    return v0 ^ v1 ^ v2 ^ v3


def _sip_rounds(v0: int, v1: int, v2: int, v3: int, *, rounds: int) -> tuple[int, int, int, int]:
    for _ in range(rounds):
        v0 = (v0 + v1) & _LONG_MASK
        v2 = (v2 + v3) & _LONG_MASK
        v1 = _rotate(v1, 13) ^ v0
        v3 = _rotate(v3, 16) ^ v2
        v0 = _rotate(v0, 32)
        v2 = (v2 + v1) & _LONG_MASK
        v0 = (v0 + v3) & _LONG_MASK
        v1 = _rotate(v1, 17) ^ v2
        v3 = _rotate(v3, 21) ^ v0
        v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _LONG_MASK


def _signed_long(value: int) -> int:
    return value if value < 1 << 63 else value - (1 << 64)


def _fold(value: int) -> int:
    value &= _LONG_MASK
    return int32(value ^ value >> 32)


def _double_bits(value: float) -> int:
    if math.isnan(value):
        return 0x7FF8_0000_0000_0000  # Java knows a single NaN here
    (bits,) = struct.unpack(">Q", struct.pack(">d", value))
    return int(bits)
