"""Version numbers as they stand in a frame: the position of a release in RocketMQ's version list.

Since 4.0.0 the list is regular: ten patch releases to each minor one, and each release is preceded
by its snapshot, so a release has an odd number and its snapshot the even one before it. Behaviour
that depends on the peer's version is switched at the thresholds named here.

RocketMQ: MQVersion.
"""

from __future__ import annotations

from typing import Final

V3_0_7_SNAPSHOT: Final = 28
V3_0_11: Final = 37
V3_1_8_SNAPSHOT: Final = 62
V3_4_9: Final = 121
V4_1_0_SNAPSHOT: Final = 232
V4_9_3: Final = 399
V4_9_4: Final = 401
V5_0_0: Final = 413
V5_3_1: Final = 475
V5_5_0: Final = 513
HIGHER_VERSION: Final = 612

CURRENT: Final = V5_5_0
"""What our own frames say."""

_BASES: Final = {4: 213, 5: 413}


def ordinal(major: int, minor: int, patch: int) -> int:
    """The number of release `major.minor.patch`; from 4.0.0 up to 5.9.9."""
    if major not in _BASES or not (0 <= minor <= 9 and 0 <= patch <= 9):
        raise ValueError(f"no version number is known for {major}.{minor}.{patch}")
    return _BASES[major] + 20 * minor + 2 * patch


def describe(number: int) -> str:
    """`513` as `5.5.0`; snapshots and releases before 4.0.0 are said as such."""
    if number >= HIGHER_VERSION:
        return "newer than 5.9.9"
    snapshot = number % 2 == 0
    release = number + snapshot
    for major, base in sorted(_BASES.items(), reverse=True):
        if release >= base:
            minor, rest = divmod(release - base, 20)
            return f"{major}.{minor}.{rest // 2}" + ("-SNAPSHOT" if snapshot else "")
    return f"older than 4.0.0 (#{number})"
