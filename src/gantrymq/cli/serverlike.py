"""A noun that runs a server when it is given options, and has verbs for servers that run."""

from __future__ import annotations

from typing import Any

import click

from gantrymq.cli.verbs import VerbGroup

RUN = "run"


class ServerGroup(VerbGroup):
    """`gantry broker --port 0` and `gantry broker run --port 0` are the same."""

    def __init__(self, *, run: click.Command, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.add_command(run, RUN)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the verb `run` before options that come without one."""
        helping = bool(args) and args[0] in ctx.help_option_names
        if not helping and (not args or args[0].startswith("-")):
            args = [RUN, *args]
        return super().parse_args(ctx, args)
