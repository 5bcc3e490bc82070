"""`gantry replay`: a time range of a topic copied into another topic, or for one group alone."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from gantrymq.cli import asking, exits, screen
from gantrymq.cli.copy_runs import Copier, Run, parsed, run_file
from gantrymq.cli.message_shapes import COLUMNS, Choice, choosing, ranges, row_of
from gantrymq.cli.times import RATE
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Column, Page, Table

_SAMPLE = 5


def state_option(function: Any) -> Any:
    """Where a run keeps how far it is."""
    return click.option(
        "--state", "state", type=click.Path(path_type=Path), help="Keep how far it is here."
    )(function)


@verb(click.Group("nouns"), "replay", changes=True)
@click.argument("topic", required=False)
@click.option("--into", metavar="topic=NAME|group=NAME", help="Where copies go.")
@click.option("--rate", type=RATE, default=0.0, help="So many a second at most, as 200/s.")
@click.option("--limit", type=int, help="So many copies at most.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with a run, by its file.")
@state_option
@asking.force_option
@choosing()
def replay(
    session: Session,
    topic: str | None,
    into: str | None,
    rate: float,
    limit: int | None,
    resume: Path | None,
    state: Path | None,
    choice: Choice,
) -> int:
    """Copy messages of TOPIC, those of a time range and of a filter, to where they are needed.

    Into a topic, everybody who consumes it gets them. Into a group, that group alone gets them, as
    messages of TOPIC, whatever its offsets say; other groups do not notice, and a group that is not
    there yet is made. The range ends where the topic ends when the run begins.

    A run can be stopped with Ctrl-C and gone on with: gantry replay --resume FILE.
    """
    if resume is not None:
        run = Run.load(resume)
    elif topic is None or into is None:
        raise click.UsageError("say what to replay and where to: TOPIC --into group=NAME")
    else:
        file = state or run_file(f"replay-{topic}")
        run = Run(topic, into, ranges(session, topic, choice), choice, rate, limit, file=file)
    kind, name = parsed(run.into)
    loops = [f"{name} is the topic itself: its consumers get all of it twice"]
    preview = preview_page(session, run)
    what = f"replay {run.topic} into {kind} {name}"
    in_use = loops if (kind, name) == ("topic", run.topic) else []
    if not asking.go_ahead(session, what, preview, name=name, in_use=in_use):
        return exits.OK
    if kind == "group":
        _make_group(session, name)
    return carry_out(session, run, Copier(session, run.into, origin=run.topic), "gantry replay")


replay.short_help = "Copy a time range of a topic into a topic or a group."
command = replay


def preview_page(session: Session, run: Run) -> Page:
    """What a run would copy, and a few of the messages."""
    facts: list[tuple[Column, Any]] = [
        (Column("from"), run.topic),
        (Column("into"), run.into),
        (Column("to_look_at", "count"), run.left),
        (Column("rate"), f"{run.rate:g}/s" if run.rate else "as fast as it goes"),
    ]
    kind, name = parsed(run.into)
    if kind == "topic":
        facts.append((Column("consumers", "list", "groups that get them"), _groups(session, name)))
    sample = list(itertools.islice(run.chosen(session), _SAMPLE))
    decode = run.choice.decoder
    table = Table(COLUMNS, [row_of(one, decode) for one in sample], empty="no message is meant")
    return Page(facts, {"first_messages": table}, main="first_messages")


def _groups(session: Session, topic: str) -> list[str]:
    return session.admin.groups_of_topic(topic)


def _make_group(session: Session, name: str) -> None:
    from gantrymq.errors import GroupNotFound

    try:
        session.admin.group_settings(name)
    except GroupNotFound:
        session.admin.create_group(name)
        session.note(f"group {name} is made")


def carry_out(session: Session, run: Run, copier: Copier, again: str) -> int:
    """Do it, with a bar; stopped early, it says how to go on."""
    run.save()  # so that there is a file to go on with, whenever it is stopped
    try:
        with session.bar("copying", run.left) as bar:
            run.work(session, copier, bar)
    except BaseException:
        screen.note(f"stopped after {run.copied:,}; to go on: {again} --resume {run.file}")
        raise
    session.note(f"{run.copied:,} messages copied into {run.into}, {run.passed:,} passed over")
    if run.left and not (run.limit is not None and run.copied >= run.limit):
        return exits.FAILED
    run.forget()
    return exits.OK
