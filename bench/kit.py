"""The test kit as its users have it: in a fresh environment, with pytest-xdist and pytest-asyncio.

Outside of this repository an environment is made and the package is installed into it, as a wheel,
beside pytest, pytest-xdist and pytest-asyncio. The kit's own tests are copied there and run alone,
in parallel, and with pytest-asyncio in both of its modes; every warning is an error. Then the time
is measured in which a platform is ready for a test: from the start of the fixture `gantry` to the
answer to its first request.

    ./dev bench kit                a minute
    ./dev bench kit --starts 200 --keep
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TESTS: Final = ROOT / "tests" / "unit" / "testing"
COPIED: Final = ("test_kit.py", "test_simulation.py")
PINNED: Final = ("base", "server", "test")
"""Files of requirements/ that say which versions are installed."""
WANTED: Final = ("pytest", "pytest-xdist")
ASYNCIO: Final = "pytest-asyncio==1.5.0"
MOST_MS: Final = 100.0
PATIENCE: Final = 300.0

_SCOPE: Final = ("-o", "asyncio_default_fixture_loop_scope=function")
RUNS: Final = {
    "alone": ("-p", "no:xdist", "-p", "no:asyncio"),
    "xdist": ("-n", "2", "-p", "no:asyncio"),
    "asyncio, strict": ("-p", "no:xdist", "-o", "asyncio_mode=strict", *_SCOPE),
    "asyncio, auto": ("-p", "no:xdist", "-o", "asyncio_mode=auto", *_SCOPE),
    "xdist and asyncio": ("-n", "2", "-o", "asyncio_mode=auto", *_SCOPE),
}
STARTING: Final = """\
import json
import time

import pytest

TOOK = {"def": [], "async def": []}


@pytest.fixture(autouse=True)
def began():
    return time.perf_counter()


def ready(kind, began):
    TOOK[kind].append(time.perf_counter() - began)


@pytest.mark.parametrize("number", range(STARTS))
def test_start(began, gantry, number):
    gantry.create_topic("ready")
    ready("def", began)


@pytest.mark.parametrize("number", range(STARTS))
async def test_awaited_start(began, gantry, number):
    await gantry.create_topic("ready")
    ready("async def", began)


@pytest.fixture(scope="session", autouse=True)
def told():
    yield
    with open("took.json", "w") as file:
        json.dump(TOOK, file)
"""


class Wrong(Exception):
    """Something is not as users were told."""


class Place:
    """The environment, and the directory with the tests."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.tests = home / "tests"
        self._python = home / "venv" / "bin" / "python"
        dropped = ("PYTHONPATH", "GANTRY_URL", "VIRTUAL_ENV", "PYTEST_ADDOPTS")
        self._environ = {name: value for name, value in os.environ.items() if name not in dropped}

    def make(self) -> None:
        """Make the environment and copy the tests."""
        self._do("making an environment", sys.executable, "-m", "venv", str(self.home / "venv"))
        pins = self.home / "pins.txt"
        pins.write_text(
            "".join((ROOT / "requirements" / f"{name}.txt").read_text() for name in PINNED)
        )
        self._do(
            "installing", str(self._python), "-m", "pip", "install", "-q", "-c", str(pins),
            f"{ROOT}[server]", *WANTED, ASYNCIO,
        )  # fmt: skip
        self.tests.mkdir()
        for name in COPIED:
            shutil.copy(TESTS / name, self.tests)
        (self.tests / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")

    def run(self, name: str, options: tuple[str, ...]) -> None:
        """The kit's own tests."""
        said = self._do(name, *self._pytest(*options), *COPIED)
        told(name, said.strip().splitlines()[-1])

    def starts(self, count: int) -> dict[str, list[float]]:
        """Milliseconds of so many starts, for tests of either kind."""
        text = STARTING.replace("STARTS", str(count))
        (self.tests / "test_starting.py").write_text(text)
        self._do("starting", *self._pytest("-p", "no:asyncio"), "test_starting.py")
        found: dict[str, list[float]] = json.loads((self.tests / "took.json").read_text())
        return {kind: [seconds * 1000 for seconds in took] for kind, took in found.items()}

    def where(self) -> str:
        """The file of the package that the tests see."""
        return self._do(
            "looking", str(self._python), "-c", "import gantrymq; print(gantrymq.__file__)"
        )

    def _pytest(self, *options: str) -> tuple[str, ...]:
        return (str(self._python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options)

    def _do(self, what: str, *command: str) -> str:
        began = time.monotonic()
        done = subprocess.run(
            command, cwd=self.tests if self.tests.exists() else self.home, env=self._environ,
            text=True, capture_output=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        sys.stderr.write(f"{time.monotonic() - began:>7.1f} s  {what}\n")
        if done.returncode:
            raise Wrong(f"{what} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


def told(name: str, what: str) -> None:
    print(f"{name:<20}{what}", flush=True)


def look_at_starts(found: dict[str, list[float]]) -> None:
    """Print them, and see that they are quick."""
    for kind, took in found.items():
        median = statistics.median(took)
        what = f"median {median:.1f} ms of {len(took)}, first {took[0]:.1f} ms"
        told(f"start, {kind}", f"{what}, at most {max(took):.1f} ms")
        if median >= MOST_MS:
            raise Wrong(
                f"a test waits {median:.1f} ms for its platform, {MOST_MS:.0f} are the most"
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--starts", type=int, default=50, help="of either kind of test")
    parser.add_argument("--keep", action="store_true", help="leave the environment behind")
    asked = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="gantry-kit-"))
    try:
        place = Place(home)
        place.make()
        if not (where := place.where()).startswith(str(home)):
            raise Wrong(f"the tests see {where.strip()}, not the package that was installed")
        for name, options in RUNS.items():
            place.run(name, options)
        look_at_starts(place.starts(asked.starts))
    except Wrong as wrong:
        sys.exit(f"kit: {wrong}")
    finally:
        if not asked.keep:
            shutil.rmtree(home, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
