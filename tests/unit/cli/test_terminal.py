"""`gantry` as somebody at a terminal has it: questions, Ctrl-C, bars, and readers that leave."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gantrymq
from tests.interop.gantry import COMMAND, Gantry
from tests.unit.cli.kit import Cli

SOURCE = Path(gantrymq.__file__).parent.parent
LIMIT = 60.0
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Screen:
    """A terminal with `gantry` in it."""

    def __init__(self, cli: Cli, *words: str) -> None:
        self.text = ""
        self._own, theirs = pty.openpty()
        environ = os.environ | cli.environ | {"PYTHONPATH": str(SOURCE), "TERM": "xterm"}
        environ |= {"COLUMNS": "100", "LINES": "30"}
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environ,
            start_new_session=True,
        )
        os.close(theirs)

    def until(self, wanted: str) -> None:
        """Read until that stands there."""
        deadline = time.monotonic() + LIMIT
        while wanted not in self.plain:
            assert time.monotonic() < deadline, self.plain
            if not self._read():
                assert wanted in self.plain, self.plain

    def _read(self) -> bool:
        ready, _, _ = select.select([self._own], [], [], 1.0)
        if not ready:
            return True
        try:
            found = os.read(self._own, 65_536)
        except OSError:  # the other end is closed
            return False
        self.text += found.decode("utf-8", "replace")
        return bool(found)

    @property
    def plain(self) -> str:
        return _MOVES.sub("", self.text)

    def say(self, line: str) -> None:
        os.write(self._own, line.encode() + b"\n")

    def end(self) -> int:
        """Its exit code."""
        deadline = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read()
        return self.process.wait(1)

    def interrupt(self) -> int:
        """Its exit code after Ctrl-C; pressed again where it came just before a line was read."""
        deadline = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < deadline:
            self.process.send_signal(signal.SIGINT)
            again = time.monotonic() + 2
            while self.process.poll() is None and time.monotonic() < again:
                self._read()
        return self.process.wait(1)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._own)


@contextmanager
def screen(cli: Cli, *words: str) -> Iterator[Screen]:
    one = Screen(cli, *words)
    try:
        yield one
    finally:
        one.close()


def test_a_question_is_asked_and_both_answers_are_heard(cli: Cli) -> None:
    cli("group", "create", "q-group")
    with screen(cli, "group", "delete", "q-group") as one:
        one.until("Delete group q-group? [y/N]")
        assert "dead letters lost" in one.plain
        one.say("n")
        assert one.end() == 4
    with screen(cli, "group", "delete", "q-group") as one:
        one.until("[y/N]")
        assert one.interrupt() == 130
        assert "Traceback" not in one.plain
    cli("group", "describe", "q-group")
    with screen(cli, "group", "delete", "q-group") as one:
        one.until("[y/N]")
        one.say("y")
        assert one.end() == 0
    cli("group", "describe", "q-group", code=3)


def test_what_is_in_use_has_to_be_named(cli: Cli, here: Gantry) -> None:
    drain = ("broker", "drain", "broker-a")
    with screen(cli, *drain) as one:
        one.until("type broker-a")
        one.say("broker-b")
        assert one.end() == 4
    with screen(cli, *drain) as one:
        one.until("type broker-a")
        one.say("broker-a")
        assert one.end() == 0
    cli("broker", "undrain", "broker-a")


def test_ctrl_c_ends_a_tail_and_a_watch_at_once_and_without_a_trace(cli: Cli) -> None:
    cli("topic", "create", "q-tail", "--queues", "1")
    cli("message", "send", "q-tail", "--body", "first")
    for words, wanted in (
        (("message", "tail", "q-tail", "-f"), "first"),
        (("topic", "describe", "q-tail", "--watch"), "q-tail"),
    ):
        with screen(cli, *words) as one:
            one.until(wanted)
            assert one.interrupt() == 130
            assert "Traceback" not in one.plain


def test_a_tail_shows_what_comes_while_it_looks(cli: Cli) -> None:
    cli("topic", "create", "q-live", "--queues", "2")
    with screen(cli, "message", "tail", "q-live", "-f", "--limit", "2", "-o", "jsonl") as one:
        cli("message", "send", "q-live", "--body", "one", "--key", "a")
        one.until('"one"')
        cli("message", "send", "q-live", "--body", "two", "--key", "b")
        assert one.end() == 0
        assert '"two"' in one.plain


def test_a_bar_tells_how_far_it_is_on_a_terminal(cli: Cli) -> None:
    cli("topic", "create", "q-bar", "--queues", "1")
    with screen(cli, "bench", "send", "q-bar", "--count", "150", "--rate", "100/s") as one:
        one.until("of 150")
        one.until("/s")
        assert "sending" in one.plain
        assert one.end() == 0


def test_a_reader_that_has_enough_ends_it_quietly(cli: Cli) -> None:
    cli("topic", "create", "q-pipe", "--queues", "1")
    cli("message", "send", "q-pipe", "--body", "x" * 1000, "--count", "300", "-q")
    environ = os.environ | cli.environ | {"PYTHONPATH": str(SOURCE)}
    line = (
        f"{sys.executable} -c 'from gantrymq.cli import main; main()' message cat q-pipe -o jsonl"
    )
    told = subprocess.run(
        ["bash", "-c", f"{line} | head -1"], env=environ, capture_output=True, text=True, timeout=60
    )
    assert told.stdout.count("\n") == 1
    assert told.stderr == ""


def test_a_replay_that_is_interrupted_says_how_to_go_on(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "q-from", "--queues", "1")
    cli("topic", "create", "q-to", "--queues", "1")
    cli("message", "send", "q-from", "--body", "x", "--count", "60", "-q")
    state = str(tmp_path / "run.json")
    words = ("replay", "q-from", "--into", "topic=q-to", "-y", "--rate", "20/s", "--state", state)
    with screen(cli, *words) as one:
        one.until("of 60")
        assert one.interrupt() == 130
        assert "stopped after" in one.plain
        assert "Traceback" not in one.plain
    assert Path(state).exists()
    cli("replay", "--resume", state, "-y")
    copied = cli.json("message", "cat", "q-to")
    origins = [found["properties"]["REPLAYED_FROM"] for found in copied]
    assert len(set(origins)) == len(origins) == 60


@pytest.mark.parametrize("signal_number", [signal.SIGTERM], ids=["SIGTERM"])
def test_an_export_that_is_killed_leaves_no_half_file(
    cli: Cli, tmp_path: Path, signal_number: signal.Signals
) -> None:
    cli("topic", "create", "q-out", "--queues", "1")
    cli("message", "send", "q-out", "--body", "x", "--count", "10", "-q")
    target = tmp_path / "out.jsonl"
    with screen(cli, "message", "export", "q-out", str(target)) as one:
        one.process.send_signal(signal_number)
        one.end()
    assert not target.exists() or len(target.read_text().splitlines()) == 10
