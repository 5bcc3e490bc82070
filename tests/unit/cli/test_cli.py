"""`gantry` as a shell sees it: its texts, exit codes and streams."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import gantrymq
from gantrymq.cli import entry
from gantrymq.cli.main import NOUNS, gantry, run
from gantrymq.errors import ConfigError

SOURCE = Path(gantrymq.__file__).parent.parent
START = "from gantrymq.cli import main; main()"


def start(*arguments: str, code: str = START, **options):
    environ = os.environ | {"PYTHONPATH": str(SOURCE)} | options.pop("env", {})
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environ, text=True, timeout=60, **options
    )


def test_version_and_help_and_every_noun_are_there():
    runner = CliRunner()
    assert runner.invoke(gantry, ["--version"]).output == f"gantry {gantrymq.__version__}\n"
    told = runner.invoke(gantry, ["--help"]).output
    assert all(noun in told for noun in NOUNS)
    for noun in NOUNS:
        assert runner.invoke(gantry, [noun, "--help"]).exit_code == 0


def test_a_wrong_noun_is_refused_by_name(capsys):
    assert run(["complition"]) == 2
    assert "No such command 'complition'" in capsys.readouterr().err


def test_our_own_errors_are_one_line(capsys, monkeypatch):
    def fail(*_args, **_kwargs):
        raise ConfigError("there is no name server 'x'")

    monkeypatch.setattr("gantrymq.cli.completion.script", fail)
    assert run(["completion", "bash"]) == 1
    assert capsys.readouterr().err == "gantry: there is no name server 'x'\n"


def test_without_click_it_says_what_to_install():
    hidden = "import sys; sys.modules['click'] = None\n" + START
    told = start("--version", code=hidden, capture_output=True)
    assert told.returncode == 1
    assert told.stderr == "gantry: this command needs click: pip install 'gantrymq[server]'\n"


def test_another_missing_module_is_not_taken_for_click(monkeypatch):
    monkeypatch.setitem(sys.modules, "gantrymq.cli.main", None)
    with pytest.raises(ModuleNotFoundError, match=r"gantrymq\.cli\.main"):
        entry()


def test_starting_loads_neither_asyncio_nor_a_noun():
    code = (
        "import sys\nfrom gantrymq.cli.main import run\nrun(['--version'])\n"
        "print([m for m in ('asyncio', 'uvloop', 'gantrymq.cli.completion') if m in sys.modules])"
    )
    assert start(code=code, capture_output=True).stdout.splitlines()[-1] == "[]"


def test_ctrl_c_ends_it_with_130_and_no_traceback():
    code = (
        "import os, signal\nimport gantrymq.cli.completion as c\n"
        "c.script = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n" + START
    )
    told = start("completion", "bash", code=code, capture_output=True)
    assert told.returncode == 128 + signal.SIGINT
    assert "Traceback" not in told.stderr


def test_a_closed_pipe_ends_it_without_a_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        told = start("completion", "bash", stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert told.returncode == 1
    assert told.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        told = start("completion", "fish", stdout=full, stderr=subprocess.PIPE)
    assert told.returncode == 1
    assert told.stderr.startswith("gantry: ")
    assert "No space left" in told.stderr
