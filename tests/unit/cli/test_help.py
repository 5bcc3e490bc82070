"""The help of every command: as the golden files have it, quick, and without what is not needed."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

import gantrymq
from gantrymq.cli.main import NOUNS, gantry
from gantrymq.cli.verbs import SharedOption
from tests.unit.cli.kit import Cli, same_as_golden

ROOT = Path(gantrymq.__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))  # its tools import each other by their plain names

from gen_reference import commands, help_of  # noqa: E402


@pytest.mark.parametrize("noun", NOUNS)
def test_help_is_what_the_golden_file_says(noun: str) -> None:
    context = click.Context(gantry)
    command = gantry.get_command(context, noun)
    assert command is not None
    pages = [help_of(one, path) for path, one in commands(command, ("gantry", noun))]
    same_as_golden(f"help/{noun}.txt", "\n\n".join(pages) + "\n")


def test_the_first_page_is_what_the_golden_file_says() -> None:
    same_as_golden("help/gantry.txt", help_of(gantry, ("gantry",)) + "\n")


def every() -> list[tuple[tuple[str, ...], click.Command]]:
    return list(commands(gantry, ("gantry",)))


def test_every_command_and_option_says_what_it_is_for() -> None:
    for path, command in every():
        assert command.help, path
        for param in command.params:
            if isinstance(param, click.Option) and not param.hidden:
                named = param.help or param.type.name == "choice"
                assert named, f"{' '.join(path)} {param.opts}"


def test_what_destroys_can_be_tried_first() -> None:
    words = ("delete", "purge", "reset", "skip", "clone", "drain", "clean", "redrive", "replay")
    found = [(path, one) for path, one in every() if path[-1] in words]
    assert len(found) >= len(words)
    for path, command in found:
        options = {param.name for param in command.params if isinstance(param, SharedOption)}
        assert {"dry_run", "yes"} <= options, path


def test_listing_the_nouns_imports_none_of_them_and_no_client() -> None:
    code = (
        "import sys\nfrom gantrymq.cli.main import run\nrun(['--help'])\n"
        "bad = ('asyncio', 'rich', 'logging', 'gantrymq.cli.topics', 'gantrymq.client', 'yaml')\n"
        "print([m for m in bad if m in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], text=True, timeout=60, capture_output=True, check=True,
        cwd=ROOT, env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )  # fmt: skip
    assert told.stdout.splitlines()[-1] == "[]"


def test_help_is_there_at_once() -> None:
    code = "import time\nfrom gantrymq.cli.main import run\nrun(['-h'])\nprint(time.process_time())"
    spent = []
    deadline = time.monotonic() + 60
    while len(spent) < 5 and time.monotonic() < deadline:
        told = subprocess.run(
            [sys.executable, "-c", code], text=True, timeout=60, capture_output=True, check=True,
            cwd=ROOT, env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
        )  # fmt: skip
        spent.append(float(told.stdout.splitlines()[-1]))
    assert min(spent) < 0.15, spent  # seconds of CPU: what others do on this machine does not count


def of_the_page() -> list[str]:
    page = (ROOT / "docs" / "how-to" / "command-line.md").read_text("utf-8")
    return [line.removeprefix("$ gantry ") for line in page.splitlines() if line[:9] == "$ gantry "]


@pytest.mark.parametrize("line", of_the_page())
def test_commands_of_the_page_are_such_that_can_be_run(
    line: str, alone: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[click.Context] = []

    def run(_function: object, context: click.Context, *_: object) -> int:
        ran.append(context)
        return 0

    monkeypatch.setattr("gantrymq.cli.verbs._run", run)
    alone(*shlex.split(line))
    assert len(ran) == 1
