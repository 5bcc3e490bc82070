"""The terminal: whether there is one, whether it has colours, and bars for work that takes time."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import click

from gantrymq.cli import times

if TYPE_CHECKING:
    from rich.progress import Progress

CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"
_EVERY: Final = 5.0
"""Seconds between lines that say how far it is, where there is no terminal for a bar."""


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody is looking."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def is_colored(stream: TextIO) -> bool:
    """Whether to write in colours: to terminals, unless NO_COLOR or TERM=dumb says no."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream)


def width_of(stream: TextIO) -> int | None:
    """How wide the terminal is, None where there is none."""
    return shutil.get_terminal_size().columns if is_terminal(stream) else None


def note(text: str) -> None:
    """Say something that is not the result."""
    click.echo(text, err=True, color=is_colored(sys.stderr))


class Bar(Protocol):
    """How far some work is."""

    def add(self, count: int = 1) -> None:
        """That much more is done."""
        ...

    def say(self, text: str) -> None:
        """A word beside the bar."""
        ...


class _Silent:
    def add(self, count: int = 1) -> None:
        """Nobody looks."""

    def say(self, text: str) -> None:
        """Nobody looks."""


class _Rich:
    def __init__(self, progress: Progress, what: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(what, total=total, word="")

    def add(self, count: int = 1) -> None:
        self._progress.advance(self._task, count)

    def say(self, text: str) -> None:
        self._progress.update(self._task, word=text)


class _Lines:
    """A line every few seconds, for logs."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._start = self._last = time.monotonic()

    def add(self, count: int = 1) -> None:
        self._done += count
        now = time.monotonic()
        if now - self._last >= _EVERY:
            self._last = now
            note(f"{self._what}: {progress_text(self._done, self._total, now - self._start)}")

    def say(self, text: str) -> None:
        """Lines have no room for it."""


def progress_text(done: int, total: int | None, seconds: float) -> str:
    """How far, how fast, and how long it will take."""
    rate = done / seconds if seconds else 0.0
    if not total:
        return f"{done:,}, {rate:,.0f}/s"
    left = f", {times.span_text((total - done) / rate)} left" if rate and done < total else ""
    return f"{done:,} of {total:,} ({100 * done / total:.0f} %), {rate:,.0f}/s{left}"


class Stopping:
    """Whether Ctrl-C was pressed; pressed again, it is as always."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: object) -> None:  # noqa: ARG002 - a handler's arguments
        """Take the signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        note("stopping after the message under way; Ctrl-C again stops at once")

    def check(self) -> None:
        """Stop here, if that was asked for."""
        if self.asked:
            raise KeyboardInterrupt


@contextmanager
def gently() -> Iterator[Stopping]:
    """Have the first Ctrl-C wait until the block looks whether it came."""
    stopping = Stopping()
    if threading.current_thread() is not threading.main_thread():
        yield stopping
        return
    before = signal.signal(signal.SIGINT, stopping)
    try:
        yield stopping
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def bar(what: str, total: int | None, *, quiet: bool = False) -> Iterator[Bar]:
    """A bar on stderr for as long as the block lasts; `total` None where nobody knows it."""
    if quiet:
        yield _Silent()
    elif not is_terminal(sys.stderr):
        yield _Lines(what, total)
    else:
        with _rich_progress() as progress:
            yield _Rich(progress, what, total)


def _rich_progress() -> Progress:
    from rich import progress as rich_progress
    from rich.console import Console
    from rich.text import Text

    class Speed(rich_progress.ProgressColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f}/s", style="progress.data.speed")

    class Count(rich_progress.ProgressColumn):
        def render(self, task: Any) -> Text:
            of = "" if task.total is None else f" of {int(task.total):,}"
            return Text(f"{int(task.completed):,}{of}")

    return rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        Count(),
        Speed(),
        rich_progress.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        rich_progress.TextColumn("{task.fields[word]}"),
        console=Console(stderr=True),
        transient=True,
    )
