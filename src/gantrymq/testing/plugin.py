"""The plug-in for pytest that comes with the package: the fixture `gantry`.

A test that takes `gantry` has a platform to itself, in memory and in virtual time, which starts in
less than a tenth of a second. `@pytest.mark.gantry(brokers=("a", "b"))` says how it is made; with
`--gantry=rmq://host:9876` the tests run against that cluster instead, and those that cannot say so
and are skipped.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import pytest

FIXTURE: Final = "gantry"
_RUNNER: Final = "_function_scoped_runner"
"""pytest-asyncio's: it has to be there before the platform, so that it ends after it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the address of a real cluster."""
    parser.getgroup("gantry").addoption(
        "--gantry", metavar="URL", help="run tests of the fixture `gantry` against that cluster"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers", "gantry(brokers=(name, ...), settings={...}): how the platform of a test is made"
    )


@pytest.fixture
def gantry(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A platform for this test: `Gantry`, or `AsyncGantry` for tests that are `async def`."""
    from gantrymq.testing import kit  # which a run without this fixture does not pay for

    url = request.config.getoption("--gantry")
    marker = request.node.get_closest_marker(FIXTURE)
    how = {} if marker is None else marker.kwargs
    if not inspect.iscoroutinefunction(request.function):
        with kit.blocking(url, **how) as made:
            yield made
        return
    with suppress(pytest.FixtureLookupError):
        request.getfixturevalue(_RUNNER)
    with kit.awaited(url, **how) as made_for_awaiting:
        yield made_for_awaiting


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip what a real cluster cannot do."""
    from gantrymq.errors import GantryError

    try:
        return (yield)
    except GantryError as error:
        if type(error).__name__ == "NeedsMemory":
            pytest.skip(f"it needs the platform in memory: {error}")
        raise


@pytest.hookimpl(optionalhook=True, wrapper=True)
def pytest_asyncio_loop_factories(
    item: pytest.Item,
) -> Generator[None, Mapping[str, Any] | None, Mapping[str, Any]]:
    """Run tests that take the fixture in virtual time, where pytest-asyncio runs them."""
    given = yield
    if FIXTURE in getattr(item, "fixturenames", ()) and item.config.getoption("--gantry") is None:
        return {FIXTURE: _virtual_loop}
    return given or {"asyncio": asyncio.new_event_loop}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an `async def` that takes the fixture and that no other plug-in runs."""
    test = pyfuncitem.obj
    if FIXTURE not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(test):
        return None
    known = inspect.signature(test).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in known if name in pyfuncitem.funcargs}
    real = pyfuncitem.config.getoption("--gantry") is not None
    make: Callable[[], asyncio.AbstractEventLoop] | None = None if real else _virtual_loop
    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(_and_close(test(**arguments), arguments.get(FIXTURE)))
    return True


async def _and_close(test: Any, platform: Any) -> None:
    try:
        await test
    finally:
        if platform is not None:
            await platform.close()


def _virtual_loop() -> asyncio.AbstractEventLoop:
    from gantrymq.testing.clock import VirtualLoop

    return VirtualLoop()
