from pathlib import Path

import pytest

from tests.support import WORLDS, World, world


@pytest.fixture(params=WORLDS)
def anywhere(request: pytest.FixtureRequest) -> World:
    return world(request.param)


@pytest.fixture
def memory() -> World:
    return world("memory")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "namesrv"
