"""`gantry dlq`: dead letters looked at, given to their group once more, exported and removed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import asking, exits
from gantrymq.cli.copy_runs import Copier, Run, run_file
from gantrymq.cli.message_exports import export_messages
from gantrymq.cli.message_shapes import Choice, choosing, in_order, ranges, row_of
from gantrymq.cli.replay import carry_out, preview_page, state_option
from gantrymq.cli.times import RATE
from gantrymq.cli.topics import deletion_page
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page, Table, View

if TYPE_CHECKING:
    from gantrymq.cli.decoding import Decoder
    from gantrymq.model import ReceivedMessage

command = noun("dlq", "Look at dead letters, and have them consumed once more.", "Dead letters.")

_LETTERS: Final = (
    Column("stored_at", "time", "given up"),
    Column("origin"),
    Column("id"),
    Column("broker", wide=True),
    Column("queue", "count", wide=True),
    Column("offset", "count"),
    Column("retries", "count"),
    Column("tag"),
    Column("keys", "list", short=True),
    Column("reason", short=True),
    Column("traceback", wide=True),
    Column("properties", wide=True),
    Column("body", "json", short=True),
)


def topic_of(group: str) -> str:
    """Where a group's dead letters are."""
    from gantrymq.protocol.names import dead_letter_topic

    return dead_letter_topic(group)


@verb(command, "list", watch=True)
def list_groups(session: Session) -> View:
    """List groups that have dead letters, the most first."""
    from gantrymq.errors import GantryError
    from gantrymq.protocol.names import group_of_derived_topic, is_dead_letter_topic

    rows: list[dict[str, Any]] = []
    failures: dict[str, BaseException] = {}
    for topic in filter(is_dead_letter_topic, session.admin.list_topics(hidden=True)):
        try:
            status = session.admin.topic_status(topic)
        except GantryError as error:
            failures[topic] = error
            continue
        failures |= status.failures
        rows.append(
            {
                "group": group_of_derived_topic(topic),
                "messages": status.messages,
                "last": status.last_ms,
                "topic": topic,
            }
        )
    rows.sort(key=lambda row: -(row["messages"] or 0))
    columns = [
        Column("group"),
        Column("messages", "count", "dead letters"),
        Column("last", "time", "last given up"),
        Column("topic", wide=True),
    ]
    return Table(columns, rows, empty="no group has dead letters", failures=failures)


command.add_command(list_groups, "ls")


@verb(command, "show")
@click.argument("group")
@click.option("--limit", type=int, default=50, show_default=True, help="So many, the newest first.")
@click.option("--summary", is_flag=True, help="Count them by topic and reason.")
@choosing()
def show(session: Session, group: str, limit: int, summary: bool, choice: Choice) -> View:
    """Show dead letters of GROUP: where they came from, how often they failed, and why."""
    wanted, meant = ranges(session, topic_of(group), choice), choice.test()
    reader, decode = choice.reader(session), choice.decoder
    found = [one for one in in_order(reader, wanted) if meant(one)]
    if summary:
        return _summary(found)
    rows = [letter_row(one, decode) for one in reversed(found[-limit:])]
    return Table(_LETTERS, rows, empty=f"{group} has no such dead letters")


def letter_row(message: ReceivedMessage, decode: Decoder) -> dict[str, Any]:
    """One dead letter."""
    from gantrymq.flows.copying import origin_topic
    from gantrymq.flows.groups import REASON, TRACEBACK

    row = row_of(message, decode)
    row |= {"origin": origin_topic(message), "reason": message.find(REASON)}
    return row | {"traceback": message.find(TRACEBACK)}


def _summary(found: list[ReceivedMessage]) -> Table:
    from gantrymq.flows.copying import origin_topic
    from gantrymq.flows.groups import REASON

    counts = Counter((origin_topic(one), one.find(REASON)) for one in found)
    rows = [
        {"origin": origin, "reason": reason, "messages": count}
        for (origin, reason), count in counts.most_common()
    ]
    columns = [Column("origin"), Column("messages", "count"), Column("reason", short=True)]
    return Table(columns, rows, empty="no dead letter")


@verb(command, "redrive", changes=True)
@click.argument("group", required=False)
@click.option(
    "--into",
    help="group=NAME, topic=NAME, or origin for the topics they were sent to.  [group=GROUP]",
)
@click.option("--rate", type=RATE, default=0.0, help="So many a second at most, as 200/s.")
@click.option("--limit", type=int, help="So many at most.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with a run, by its file.")
@state_option
@choosing()
def redrive(
    session: Session,
    group: str | None,
    into: str | None,
    rate: float,
    limit: int | None,
    resume: Path | None,
    state: Path | None,
    choice: Choice,
) -> int:
    """Have dead letters of GROUP consumed once more, by that group alone.

    They are copied; the dead letters themselves stay until `gantry dlq purge`, or until they are
    too old. So choose what was not redriven before with --from, --where and the like. With --into
    origin every group that consumes the topic gets them.
    """
    if resume is not None:
        run = Run.load(resume)
    elif group is None:
        raise click.UsageError("say whose dead letters: GROUP")
    else:
        topic, file = topic_of(group), state or run_file(f"redrive-{group}")
        wanted, place = ranges(session, topic, choice), into or f"group={group}"
        run = Run(topic, place, wanted, choice, rate, limit, file=file)
    what = f"redrive {run.topic} into {run.into}"
    if not asking.go_ahead(session, what, preview_page(session, run)):
        return exits.OK
    return carry_out(session, run, Copier(session, run.into), "gantry dlq redrive")


@verb(command, "export")
@click.argument("group")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@click.option("--format", "kind", type=click.Choice(["parquet", "jsonl"]), help="By its name.")
@click.option("--overwrite", is_flag=True, help="Replace a file that is there.")
@choosing()
def export(
    session: Session, group: str, file: Path, kind: str | None, overwrite: bool, choice: Choice
) -> int | Page:
    """Write dead letters of GROUP to FILE, as Parquet or as JSON lines."""
    return export_messages(session, topic_of(group), file, kind, overwrite, choice)


@verb(command, "purge", changes=True)
@click.argument("group")
@asking.force_option
def purge(session: Session, group: str) -> None:
    """Delete all dead letters of GROUP."""
    topic = topic_of(group)
    preview = session.admin.preview_topic_deletion(topic)
    what = f"delete the dead letters of {group}"
    in_use = [f"{one.group} consumes them" for one in preview.groups if one.members]
    if asking.go_ahead(session, what, deletion_page(preview), name=group, in_use=in_use):
        session.admin.delete_topic(topic)
        session.note(f"the dead letters of {group} are deleted")
