"""The lists of numbers that we keep, against the constants in RocketMQ's jars."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import jars
import pytest
from peer import JavaPeer

from gantrymq.wire import versions

ROOT = Path(__file__).parents[2]
RELEASE = re.compile(r"V([45])_(\d)_(\d+)(_SNAPSHOT)?")


def test_the_generated_codes_are_those_of_the_jars(peers: Callable[[str], JavaPeer]) -> None:
    peers(jars.CURRENT)  # a skip that says why, should there be no Java
    script = ROOT / "tools" / "codes.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def java_versions(peer: JavaPeer) -> dict[str, int]:
    found: dict[str, int] = peer.ask("codes", [None])[0]["MQVersion"]
    return found


def test_version_numbers_are_javas(java_versions: dict[str, int]) -> None:
    checked = 0
    for name, number in java_versions.items():
        if match := RELEASE.fullmatch(name):
            major, minor, patch = (int(match[part]) for part in (1, 2, 3))
            snapshot = match[4] is not None
            assert versions.ordinal(major, minor, patch) - snapshot == number, name
            assert versions.describe(number) == f"{major}.{minor}.{patch}" + "-SNAPSHOT" * snapshot
            checked += 1
    assert checked == 400  # two majors, ten minors, ten patches, a snapshot before each


def test_named_thresholds_are_javas(java_versions: dict[str, int]) -> None:
    named = {n: v for n, v in vars(versions).items() if re.fullmatch(r"V\d.*|HIGHER_VERSION", n)}
    assert len(named) > 5
    assert named == {name: java_versions[name] for name in named}


def test_our_version_is_that_of_the_current_release(peers: Callable[[str], JavaPeer]) -> None:
    (found,) = peers(jars.CURRENT).ask("codes", [None])
    assert found["current"] == versions.CURRENT
