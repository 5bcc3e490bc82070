import pytest

from tests.support import WORLDS, World, world


@pytest.fixture(params=WORLDS)
def anywhere(request: pytest.FixtureRequest) -> World:
    """Every loop and network in turn."""
    return world(request.param)


@pytest.fixture(params=[name for name in WORLDS if name.startswith("tcp")])
def tcp(request: pytest.FixtureRequest) -> World:
    """Real sockets, on every loop."""
    return world(request.param)


@pytest.fixture
def memory() -> World:
    """No sockets, and time that passes at once."""
    return world("memory")
