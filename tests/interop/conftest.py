"""What the interop tests share: Java peers, the seed, and the rule for a machine without Java.

Without `mvn` or a JDK these tests are skipped and say why; where `GANTRY_INTEROP=required`, as in
CI, that is a failure instead.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest

_HERE = Path(__file__).parent
if str(_HERE) not in sys.path:  # the helpers beside this file are imported by their plain names
    sys.path.insert(0, str(_HERE))

import jars  # noqa: E402
from apache import Cluster  # noqa: E402
from gantry import Gantry  # noqa: E402
from peer import JavaPeer  # noqa: E402


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this directory is an interop test, and may wait for a JVM to start."""
    for item in items:
        if _HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(900))


T = TypeVar("T")


def or_skip(make: Callable[[], T]) -> T:
    """What `make` gives; a skip, or in CI a failure, where there is no Java to make it with."""
    try:
        return make()
    except jars.JavaUnavailable as absent:
        if os.environ.get("GANTRY_INTEROP") == "required":
            pytest.fail(f"GANTRY_INTEROP=required, but {absent}")
        pytest.skip(f"interop with RocketMQ's own jars: {absent}")


@pytest.fixture(params=jars.VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Each RocketMQ release in turn."""
    return str(request.param)


@pytest.fixture(scope="session")
def peers() -> Iterator[Callable[[str], JavaPeer]]:
    """Starts the peer of a release when a test first asks for it, in whatever order."""
    started: dict[str, JavaPeer] = {}

    def peer_of(version: str) -> JavaPeer:
        if version not in started:
            started[version] = or_skip(lambda: JavaPeer(version))
        return started[version]

    yield peer_of
    for peer in started.values():
        peer.close()


@pytest.fixture
def peer(version: str, peers: Callable[[str], JavaPeer]) -> JavaPeer:
    """RocketMQ's codecs of each release in turn."""
    return peers(version)


@pytest.fixture(scope="session")
def clusters(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Cluster]]:
    """Starts a name server and a broker of a release when a test first asks for them."""
    started: dict[str, Cluster] = {}

    def cluster_of(version: str) -> Cluster:
        if version not in started:
            started[version] = or_skip(lambda: Cluster(version))
        return started[version]

    yield cluster_of
    for cluster in started.values():
        cluster.keep = request.session.testsfailed > 0
        cluster.close()
        if cluster.keep:
            print(f"the logs and files of RocketMQ {cluster.version} are kept in {cluster.home}")


@pytest.fixture
def cluster(version: str, clusters: Callable[[str], Cluster]) -> Cluster:
    """A running name server and broker of each release in turn."""
    return clusters(version)


@pytest.fixture(scope="session")
def ours(request: pytest.FixtureRequest) -> Iterator[Gantry]:
    """`gantry up`, for tests that do not mind what others have left there."""
    with Gantry() as running:
        yield running
        running.keep = request.session.testsfailed > 0
        if running.keep:
            print(f"the log and files of gantry up are kept in {running.home}")


@pytest.fixture(params=("ours", *jars.VERSIONS), scope="module")
def anywhere(request: pytest.FixtureRequest) -> Gantry | Cluster:
    """A name server and a broker: ours, and those of each release, in turn."""
    if request.param == "ours":
        ours: Gantry = request.getfixturevalue("ours")
        return ours
    clusters: Callable[[str], Cluster] = request.getfixturevalue("clusters")
    return clusters(request.param)


@pytest.fixture
def rng(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Random:
    """A random source; its seed is `GANTRY_SEED` or new, and is shown when the test fails."""
    seed = int(os.environ.get("GANTRY_SEED") or secrets.randbelow(1_000_000_000))
    record_property("seed", seed)
    print(f"GANTRY_SEED={seed}")  # pytest shows it with the report of a failure
    return Random(seed)
