"""What all tests share: the rule for interop tests, free ports, and a look for leaks.

Interop tests need Apache RocketMQ's own jars, and so `mvn` and a JDK. Where those are missing the
tests are skipped, and the last lines of the run say what was missing and how many did not run. With
`GANTRY_INTEROP=required`, as in CI, each of them fails instead.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, and no deadline that a busy machine could miss;
# `HYPOTHESIS_PROFILE=explore ./dev test tests/property` goes looking for new ones.
settings.register_profile("gantry", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gantry"))

# Started in the background, as `./dev test &` is, a shell has us ignore Ctrl-C, and so would every
# program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

INTEROP_TOOLS = ("mvn", "java", "javac")


def missing_tools() -> list[str]:
    """The programs that interop tests cannot do without and this machine does not have."""
    home = Path(os.environ.get("JAVA_HOME") or "/nonexistent", "bin")
    return [tool for tool in INTEROP_TOOLS if not (shutil.which(tool) or (home / tool).exists())]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("interop") and (missing := missing_tools()):
        reason = f"{' and '.join(missing)} not found (JAVA_HOME, PATH)"
        if os.environ.get("GANTRY_INTEROP") == "required":
            pytest.fail(f"GANTRY_INTEROP=required, but {reason}", pytrace=False)
        pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the very end which interop tests did not run, and why."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if "interop" in report.keywords and isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("NOT TESTED against Apache RocketMQ", sep="!", red=True, bold=True)
    for reason, count in reasons.items():
        terminalreporter.line(f"{count} interop tests did not run: {reason}", red=True)


@pytest.fixture
def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on; bind to port 0 instead wherever that can be."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """Fails the test when it leaves a thread running or a file or socket open."""
    files, threads = open_files(), set(threading.enumerate())
    yield
    gc.collect()
    left = [f"{path} (descriptor {number})" for number, path in open_files() - files]
    left += [f"thread {thread.name}" for thread in set(threading.enumerate()) - threads]
    assert not left, f"left behind: {', '.join(sorted(left))}"


def open_files() -> set[tuple[str, str]]:
    """Every open descriptor and what it is; the same number for something else is another one."""
    found = set()
    for entry in Path("/dev/fd").iterdir():
        try:
            found.add((entry.name, str(entry.readlink())))
        except OSError:  # the descriptor that lists the directory, or no link on this system
            if entry.exists():
                found.add((entry.name, "open"))
    return found
