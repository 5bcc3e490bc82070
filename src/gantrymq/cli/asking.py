"""Before something is destroyed: what would be hit, and whether that is meant.

Every verb that destroys shows first what would go. With `--dry-run` that is all. With `--yes` it
goes on; on a terminal it asks; elsewhere it refuses. What is in use right now takes `--force`, too,
or on a terminal the name typed out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from gantrymq.cli import screen, views
from gantrymq.cli.exits import Refused
from gantrymq.cli.verbs import OwnOption, Session
from gantrymq.cli.views import Page

force_option = click.option(
    "--force",
    cls=OwnOption,
    is_flag=True,
    default=None,
    help="Also if it is in use.",
)


def go_ahead(
    session: Session, what: str, preview: Page, *, name: str = "", in_use: Sequence[str] = ()
) -> bool:
    """Whether to do it; False for a dry run, `Refused` where nobody says yes.

    `what` says what is about to be done, `in_use` why that would be felt at once.
    """
    width = screen.width_of(sys.stderr)
    if session.dry_run:
        session.show(preview)
        for reason in in_use:
            session.note(f"IN USE: {reason}")
        session.note(f"dry run: to {what}; nothing was done")
        return False
    quietly = session.quiet and session.given.yes
    if not quietly:
        text = views.text_of(preview, width=width, color=screen.is_colored(sys.stderr))
        click.echo(text.rstrip("\n"), err=True)
    for reason in in_use:
        screen.note(f"IN USE: {reason}")
    if in_use and not session.given.force:
        _ask_for_name(what, name)
    elif not session.given.yes:
        _ask(what)
    return True


def _ask(what: str) -> None:
    if not screen.is_terminal(sys.stdin):
        raise Refused(f"{what}: not done; nobody is here to ask, so it needs --yes (or --dry-run)")
    if not click.confirm(f"{what[0].upper()}{what[1:]}?", default=False, err=True):
        raise Refused("not done")


def _ask_for_name(what: str, name: str) -> None:
    if not screen.is_terminal(sys.stdin):
        raise Refused(f"{what}: not done, because it is in use; --force does it all the same")
    said = click.prompt(f"To {what} all the same, type {name}", default="", err=True)
    if said.strip() != name:
        raise Refused("not done")
