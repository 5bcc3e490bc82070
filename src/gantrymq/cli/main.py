"""The root of the command line: one module per noun, found through one table.

A noun's module holds a click command named `command`, or as the table says behind a colon. It is
imported when the noun is used, and it imports the client or the servers only inside its functions,
so that `gantry` starts at once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

import gantrymq
from gantrymq.errors import GantryError
from gantrymq.observe import logs

log = logging.getLogger("gantrymq.cli")

NOUNS: Final = {
    "broker": "gantrymq.cli.up:broker",
    "completion": "gantrymq.cli.completion",
    "namesrv": "gantrymq.cli.serve:namesrv",
    "up": "gantrymq.cli.up:up",
}

INTERRUPTED: Final = 130


class Nouns(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The nouns, in the order of the table."""
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The noun's command; None makes click refuse the name."""
        if cmd_name not in NOUNS:
            return None
        module, _, name = NOUNS[cmd_name].partition(":")
        command = getattr(import_module(module), name or "command")
        assert isinstance(command, click.Command), cmd_name
        return command


@click.group(
    cls=Nouns,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(gantrymq.__version__, "-V", "--version", message="gantry %(version)s")
def gantry() -> None:
    """Gantry: a message platform that speaks Apache RocketMQ's wire protocol."""


def run(arguments: Sequence[str]) -> int:
    """The exit code of `gantry` with `arguments`; what goes wrong is told on stderr in one line."""
    try:
        outcome = gantry.main(list(arguments), prog_name="gantry", standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as refusal:
        refusal.show()
        return refusal.exit_code
    except (GantryError, OSError) as error:
        if logs.in_json():
            log.error("%s", error)  # noqa: TRY400 - in one line
        else:
            click.echo(f"gantry: {error}", err=True)
        return 1
    return outcome if isinstance(outcome, int) else 0
