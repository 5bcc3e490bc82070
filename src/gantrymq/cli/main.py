"""The root of the command line: one module per noun, found through one table.

A noun's module holds a click command named `command`, or as the table says behind a colon. It is
imported when the noun is used, not when it is listed, and it imports the client or the servers only
inside its functions, so that `gantry` starts at once.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, NamedTuple

import click

import gantrymq
from gantrymq.cli import exits
from gantrymq.cli.verbs import global_options
from gantrymq.errors import GantryError


class Noun(NamedTuple):
    """Where a noun is, and what it is in one line."""

    place: str
    text: str


# In the order of the help page: what users look at first, then what runs servers and this command.
NOUNS: Final = {
    "topic": Noun("gantrymq.cli.topics", "Topics: create, look at, change, delete."),
    "group": Noun("gantrymq.cli.groups", "Consumer groups: lag, members, offsets, why stuck."),
    "message": Noun("gantrymq.cli.messages", "Messages: send, find, follow, search, export."),
    "dlq": Noun("gantrymq.cli.dlq", "Dead letters: look at them, have them consumed again."),
    "transaction": Noun("gantrymq.cli.transactions", "Transactions that are open."),
    "timer": Noun("gantrymq.cli.timers", "Messages that wait for their time."),
    "replay": Noun("gantrymq.cli.replay", "Copy a time range into a topic, or for one group."),
    "cluster": Noun("gantrymq.cli.clusters", "Clusters at a glance."),
    "broker": Noun("gantrymq.cli.brokers", "Run a broker, or look after running ones."),
    "namesrv": Noun("gantrymq.cli.namesrvs", "Run a name server, or look after running ones."),
    "client": Noun("gantrymq.cli.clients", "Who is connected."),
    "apply": Noun("gantrymq.cli.declared", "Make topics and groups what a file says."),
    "storage": Noun("gantrymq.cli.storage", "Look into stores: verify, measure, dump."),
    "bench": Noun("gantrymq.cli.bench", "Measure how fast a cluster is, from here."),
    "simulate": Noun("gantrymq.cli.simulate", "Try load balancing on clusters of any size."),
    "pipeline": Noun("gantrymq.cli.pipelines", "Pipelines on Spark: archive topics, and more."),
    "doctor": Noun("gantrymq.cli.doctor", "Is the cluster well? Each finding with its remedy."),
    "explain": Noun("gantrymq.cli.explain", "Why: a message, a group, a topic."),
    "mqadmin": Noun("gantrymq.cli.mqadmin", "RocketMQ's old command names, done by the new ones."),
    "context": Noun("gantrymq.cli.contexts", "Clusters by name."),
    "completion": Noun("gantrymq.cli.completion", "Tab completion for bash, zsh and fish."),
    "up": Noun("gantrymq.cli.up:up", "Run a name server and brokers."),
}


class Nouns(click.Group):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The nouns, in the order of the table."""
        return list(NOUNS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The noun's command; None makes click refuse the name."""
        if cmd_name not in NOUNS:
            return None
        module, _, name = NOUNS[cmd_name].place.partition(":")
        command = getattr(import_module(module), name or "command")
        assert isinstance(command, click.Command), cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the nouns without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, noun.text) for name, noun in NOUNS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The same as click, with the nearest noun where there is none of that name."""
        if args and args[0] not in NOUNS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], NOUNS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=Nouns,
    params=global_options(),
    epilog="Exit codes: 0 done, 1 failed, 2 used wrongly, 3 not there, 4 refused for safety, 5 no "
    "answer in time, 6 done at some servers only, 130 ended by Ctrl-C.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(gantrymq.__version__, "-V", "--version", message="gantry %(version)s")
def gantry() -> None:
    """Gantry: a message platform that speaks Apache RocketMQ's wire protocol.

    The commands work on clusters of Gantry and of Apache RocketMQ alike. Options of this page may
    also stand at the end: gantry topic list -o json.
    """


def run(arguments: Sequence[str]) -> int:
    """The exit code of `gantry` with `arguments`; what goes wrong is told on stderr in one line."""
    try:
        outcome = gantry.main(list(arguments), prog_name="gantry", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return exits.INTERRUPTED
    except click.ClickException as refusal:
        refusal.show()
        return refusal.exit_code
    except BrokenPipeError:
        return _cut_off()
    except (GantryError, OSError) as error:
        import logging

        from gantrymq.observe import logs

        if logs.in_json():
            logging.getLogger("gantrymq.cli").error("%s", error)  # noqa: TRY400 - in one line
        else:
            click.echo(f"gantry: {error}", err=True)
        return exits.code_of(error)
    return outcome if isinstance(outcome, int) else exits.OK


def _cut_off() -> int:
    """Whoever read our output has gone, as `head` does when it has enough: end without a word."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())  # else Python tries to flush once more, and complains
    return exits.FAILED
