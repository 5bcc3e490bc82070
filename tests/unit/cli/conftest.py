"""One platform for each module of tests of the command line, and `gantry` run on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.gantry import Gantry
from tests.unit.cli.kit import Cli, World, world


@pytest.fixture(scope="module")
def here() -> Iterator[Gantry]:
    """A name server and a broker, by the clock on the wall."""
    with Gantry() as one:
        yield one


@pytest.fixture(scope="module")
def there(here: Gantry) -> Iterator[World]:
    """Messages, a group with a member, a dead letter."""
    with world(f"rmq://{here.name_server}", "broker-a") as one:
        yield one


@pytest.fixture
def cli(here: Gantry, tmp_path: Path) -> Cli:
    """`gantry` on that platform."""
    return Cli(tmp_path, here.name_server)


@pytest.fixture
def alone(tmp_path: Path) -> Cli:
    """`gantry` without a cluster."""
    return Cli(tmp_path)
