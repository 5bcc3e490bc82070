"""One platform of each kind for all rows, and what the rows share.

Ours is always there. RocketMQ's own are started when a row first asks for them; such rows are
interop tests.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

_INTEROP = str(Path(__file__).parent.parent / "interop")
if _INTEROP not in sys.path:
    sys.path.insert(0, _INTEROP)

import gantrymq as gantry  # noqa: E402
from tests.interop.conftest import or_skip, peers  # noqa: E402, F401
from tests.rows import platforms  # noqa: E402
from tests.rows.platforms import GANTRY, Platform  # noqa: E402
from tests.rows.site import Site  # noqa: E402

_HERE: Final = Path(__file__).parent
_numbers: Final = itertools.count(1)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A row may have to wait for servers to start, and longer on a busy machine.

    What takes minutes of silence comes last: the silence begins when the servers have started.
    """
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(600))
    items.sort(key=lambda item: _HERE in item.path.parents and "of_the_silent" in item.name)


@pytest.fixture(scope="session")
def _started(request: pytest.FixtureRequest) -> Iterator[Callable[[str], Platform]]:
    running: dict[str, Platform] = {}

    def start(name: str) -> Platform:
        if name not in running:
            running[name] = or_skip(lambda: platforms.start(name))
        return running[name]

    yield start
    for platform in running.values():
        platform.keep = request.session.testsfailed > 0
        platform.close()


@pytest.fixture(
    scope="session",
    params=[
        name if name == GANTRY else pytest.param(name, marks=pytest.mark.interop)
        for name in platforms.NAMES
    ],
)
def platform(request: pytest.FixtureRequest, _started: Callable[[str], Platform]) -> Platform:
    """A name server and two brokers."""
    return _started(request.param)


@pytest.fixture(scope="session")
def admin(platform: Platform) -> Iterator[gantry.Admin]:
    """Who makes topics there."""
    with gantry.Admin(name_servers=platform.name_server, timeout=20) as admin:
        yield admin


@pytest.fixture
def site(platform: Platform, admin: gantry.Admin) -> Iterator[Site]:
    """A platform as one row uses it, with a topic and taps of its own."""
    with Site(platform, admin, next(_numbers)) as site:
        yield site
