"""`gantry completion`: tab completion for bash, zsh and fish, printed or installed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from gantrymq.errors import ConfigError

# The variable that click reads: it is the program's name in capitals.
VARIABLE = "_GANTRY_COMPLETE"

# What a user may still have to do after the file is in its place.
HINTS = {
    "bash": "It works in new shells where the bash-completion package is loaded.",
    "zsh": "It works in new shells if ~/.zshrc has: "
    "fpath=({directory} $fpath); autoload -Uz compinit; compinit",
    "fish": "It works in new shells.",
}


@click.command(name="completion", short_help="Tab completion for bash, zsh and fish.")
@click.argument("shell", type=click.Choice(sorted(HINTS)))
@click.option("--install", is_flag=True, help="Write the script to the shell's usual place.")
@click.pass_context
def command(ctx: click.Context, shell: str, install: bool) -> None:
    """Print the script that teaches SHELL to complete `gantry`, or install it.

    For this shell only: eval "$(gantry completion bash)"
    """
    text = script(ctx.find_root().command, shell)
    if not install:
        click.echo(text)
        return
    path = usual_place(shell, os.environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    click.echo(f"{path} is written. {HINTS[shell].format(directory=path.parent)}")


def script(root: click.Command, shell: str) -> str:
    """The completion script of `root` for `shell`."""
    kind = get_completion_class(shell)
    if kind is None:
        raise ConfigError(f"no completion for {shell!r}; there is for {', '.join(sorted(HINTS))}")
    return kind(root, {}, "gantry", VARIABLE).source()


def usual_place(shell: str, environ: Mapping[str, str]) -> Path:
    """The file of a user's own that `shell` looks into when it completes `gantry`."""
    home = Path(environ.get("HOME") or Path.home())
    if shell == "bash":
        data = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        own = environ.get("BASH_COMPLETION_USER_DIR")
        return (Path(own) if own else data / "bash-completion") / "completions" / "gantry"
    if shell == "zsh":
        return Path(environ.get("ZDOTDIR") or home) / ".zfunc" / "_gantry"
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish/completions/gantry.fish"
