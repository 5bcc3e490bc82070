"""Tab completion, in the shells themselves where the machine has them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import gantrymq
from gantrymq.cli.completion import VARIABLE, script, usual_place
from gantrymq.cli.main import gantry, run
from gantrymq.errors import ConfigError

SHELLS = ["bash", "fish", "zsh"]


@pytest.fixture
def environ(tmp_path):
    """A home of its own, and a `gantry` on PATH that runs this source."""
    program = tmp_path / "bin" / "gantry"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nfrom gantrymq.cli import main\nmain()\n")
    program.chmod(0o755)
    return {
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(Path(gantrymq.__file__).parent.parent),
        "TERM": "dumb",
    }


def ask(environ, *command):
    told = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    assert told.returncode == 0, told.stderr
    return told.stdout.split()


def shell_or_skip(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not on this machine; its protocol is tested without it")
    return path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["gantry", "com"], ["completion"]),
        (["gantry", "completion", ""], SHELLS),
        (["gantry", "completion", "z"], ["zsh"]),
        (["gantry", "completion", "--ins"], ["--install"]),
    ],
)
def test_bash_completes(environ, line, expected):
    quoted = " ".join(f"'{word}'" for word in line)
    steps = (
        'eval "$(gantry completion bash)"\n'
        f"COMP_WORDS=({quoted}) COMP_CWORD={len(line) - 1}\n"
        "_gantry_completion gantry\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
        "complete -p gantry >&2\n"
    )
    assert ask(environ, shell_or_skip("bash"), "--norc", "-c", steps) == expected


def test_fish_completes(environ):
    steps = "gantry completion fish | source; complete --do-complete 'gantry completion '"
    assert ask(environ, shell_or_skip("fish"), "--no-config", "-c", steps) == SHELLS


def test_zsh_completes(environ):
    # Completion runs only under zsh's line editor: its two ways out are replaced, to see the words.
    steps = (
        "autoload -Uz compinit; compinit -u -D\n"
        'eval "$(gantry completion zsh)"\n'
        "print registered: $_comps[gantry]\n"
        "_describe() { print -l -- ${(P)@[-2]} }\n"
        "compadd() { print -l -- $completions }\n"
        "words=(gantry completion '') CURRENT=3\n"
        "_gantry_completion\n"
    )
    told = ask(environ, shell_or_skip("zsh"), "--no-rcs", "-c", steps)
    assert told == ["registered:", "_gantry_completion", *SHELLS]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_protocol_answers_every_shell(shell):
    position = "" if shell == "fish" else "2"
    question = {
        VARIABLE: f"{shell}_complete",
        "COMP_WORDS": "gantry completion ",
        "COMP_CWORD": position,
    }
    told = CliRunner(env=question).invoke(gantry, [], prog_name="gantry")
    words = [word for line in told.output.splitlines() for word in line.split(",")]
    assert told.exit_code == 0
    assert [word for word in words if word in SHELLS] == SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_install_puts_the_script_in_place_and_says_where(shell, tmp_path, monkeypatch, capsys):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR", "BASH_COMPLETION_USER_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert run(["completion", shell, "--install"]) == 0
    path = usual_place(shell, os.environ)
    assert tmp_path in path.parents
    assert path.read_text() == script(gantry, shell)
    assert capsys.readouterr().out.startswith(f"{path} is written. ")


@pytest.mark.parametrize(
    ("shell", "variable", "expected"),
    [
        ("bash", "XDG_DATA_HOME", "bash-completion/completions/gantry"),
        ("bash", "BASH_COMPLETION_USER_DIR", "completions/gantry"),
        ("zsh", "ZDOTDIR", ".zfunc/_gantry"),
        ("fish", "XDG_CONFIG_HOME", "fish/completions/gantry.fish"),
    ],
)
def test_the_usual_place_follows_the_users_directories(shell, variable, expected, tmp_path):
    environ = {"HOME": "/nowhere", variable: str(tmp_path)}
    assert usual_place(shell, environ) == tmp_path / expected


def test_an_unknown_shell_is_named():
    with pytest.raises(ConfigError, match="no completion for 'tcsh'"):
        script(gantry, "tcsh")
