"""`gantry mqadmin`: the names and options of RocketMQ's mqadmin, done by commands of ours.

Each old command is one row of `COMMANDS`: its options, and the new command that they come to. The
new form is printed before it is run, so that it is learnt by the way. What has no new form says
why. An exit code tells how it went, which that of mqadmin does not.
"""

from __future__ import annotations

import difflib
import getopt
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from gantrymq.cli import exits, screen
from gantrymq.cli.mqadmin_table import COMMANDS, LONG, Given, Words
from gantrymq.cli.verbs import Given as SharedGiven
from gantrymq.cli.verbs import Session
from gantrymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Parsed(NamedTuple):
    """An old command line, taken apart."""

    given: Mapping[str, str]
    name_server: str | None


@click.command(
    name="mqadmin",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    add_help_option=False,
    short_help="RocketMQ's old command names, done by the new ones.",
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, words: tuple[str, ...]) -> int:
    """Run an old command: gantry mqadmin consumerProgress -g billing.

    It prints the new form first. Without a name, it lists all names and their new forms.
    """
    asked = {"-h", "--help"} & set(words)
    if not words or words[0] in ("-h", "--help", "help"):
        if asked:
            click.echo(ctx.get_help())
        click.echo(listing())
        return exits.OK
    name, *rest = words
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise click.UsageError(f"mqadmin has no command {name!r} that is known here{hint}")
    if asked:
        click.echo(f"mqadmin {name}: {COMMANDS[name].form}")
        return exits.OK
    return run_old(name, rest)


def run_old(name: str, rest: Sequence[str]) -> int:
    """Print the new form of an old command, and run it."""
    from gantrymq.cli.main import gantry

    old = COMMANDS[name]
    if old.make is None:
        raise ConfigError(f"mqadmin {name} has no new form: {old.form}")
    parsed = parse(name, rest)
    words = _words(old.make, parsed)
    if parsed.name_server is not None:
        words += ["--namesrv", parsed.name_server]
    screen.note(f"new form: gantry {shlex.join(words)}")
    outcome = gantry.main(words, prog_name="gantry", standalone_mode=False)
    return outcome if isinstance(outcome, int) else exits.OK


def parse(name: str, rest: Sequence[str]) -> Parsed:
    """The options of an old command, by their letters."""
    short = f"n:h{COMMANDS[name].options}"
    try:
        found, extra = getopt.gnu_getopt(list(rest), short, [f"{long}=" for long in LONG])
    except getopt.GetoptError as error:
        raise click.UsageError(f"mqadmin {name}: {error}") from error
    if extra:
        raise click.UsageError(f"mqadmin {name} takes options alone, not {extra[0]!r}")
    given = {
        LONG[key.removeprefix("--")] if key.startswith("--") else key[1:]: value.strip()
        for key, value in found
    }
    return Parsed(given, given.pop("n", None))


def _words(make: Callable[[Given, Session], Words], parsed: Parsed) -> list[str]:
    session = Session(SharedGiven(namesrv=parsed.name_server))
    try:
        return list(make(Given(parsed.given), session))
    finally:
        session.close()


def listing() -> str:
    """All names with their new forms."""
    room = max(map(len, COMMANDS)) + 2
    return "\n".join(f"{name:<{room}}{COMMANDS[name].form}" for name in sorted(COMMANDS))
