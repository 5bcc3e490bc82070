from __future__ import annotations

import math

import pytest

from gantrymq.errors import InvalidInput
from gantrymq.rules.hashing import (
    grpc_client_queue,
    java_hash_of,
    jump_hash,
    proxy_queue,
    siphash24,
)
from gantrymq.wire.javahash import java_hash

# Semantics 7.8, for 4, 8 and 16 queues.
PROXY = {
    "group-A": (2, 2, 12),
    "order-1": (3, 3, 3),
    "order-2": (2, 2, 11),
    "order-3": (3, 7, 7),
    "user_42": (0, 0, 10),
}
GRPC_CLIENT = {
    "group-A": (2, 2, 10),
    "order-1": (3, 7, 7),
    "order-2": (2, 6, 6),
    "order-3": (1, 1, 1),
    "user_42": (0, 4, 4),
}


@pytest.mark.parametrize(("group", "queues"), PROXY.items())
def test_proxy_queue(group: str, queues: tuple[int, ...]) -> None:
    assert tuple(proxy_queue(group, n) for n in (4, 8, 16)) == queues


@pytest.mark.parametrize(("group", "queues"), GRPC_CLIENT.items())
def test_grpc_client_queue(group: str, queues: tuple[int, ...]) -> None:
    assert tuple(grpc_client_queue(group, n) for n in (4, 8, 16)) == queues


def test_siphash_of_its_authors_example() -> None:
    """Appendix A of the SipHash paper: 15 bytes 00..0e under the key 00..0f."""
    assert siphash24(bytes(range(15)), bytes(range(16))) == 0xA129CA6149BE45E5


def test_a_new_bucket_takes_its_share_and_moves_nothing_else() -> None:
    states = range(0, 10_000_019, 9973)
    for buckets in (1, 2, 7, 32):
        moved = [
            jump_hash(state, buckets + 1)
            for state in states
            if jump_hash(state, buckets + 1) != jump_hash(state, buckets)
        ]
        assert set(moved) == {buckets}
        assert len(moved) == pytest.approx(len(states) / (buckets + 1), rel=0.3)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("hello", java_hash("hello")),
        (True, 1231),
        (False, 1237),
        (-5, -5),
        (1 << 40, 256),
        (-(2**63), -(2**31)),
        (1.5, 1073217536),
        (-0.0, -(2**31)),
        (math.nan, 2146959360),
    ],
)
def test_java_hash_of_values(value: object, code: int) -> None:
    assert java_hash_of(value) == code


@pytest.mark.parametrize("value", [None, b"bytes", 2**63, ["list"]])
def test_what_java_has_no_equal_of_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="no hash that Java clients agree on"):
        java_hash_of(value)
