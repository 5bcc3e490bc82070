"""`gantry group`: groups made, changed, paused and deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gantrymq.cli import asking
from gantrymq.cli.group_looks import SETTINGS, command, settings_row
from gantrymq.cli.shapes import CHANGES, change_rows, pairs
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Column, Page, Table, View

if TYPE_CHECKING:
    from gantrymq.flows.previews import GroupDeletion


def _settings_options(function: Any) -> Any:
    for option in reversed(
        (
            click.option("--max-retries", type=int, help="Deliveries after the first.  [16]"),
            click.option("--retry-queues", type=int, help="Queues of its retry topic.  [1]"),
            click.option("--orderly/--concurrent", default=None, help="In order, queue by queue."),
            click.option("--broadcast/--no-broadcast", default=None, help="Whether it may be."),
            click.option("--enabled/--disabled", default=None, help="Whether it gets messages."),
            click.option("--attribute", multiple=True, metavar="KEY=VALUE", help="One attribute."),
        )
    ):
        function = option(function)
    return function


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    names = {"broadcast": "broadcast_enabled"}
    return {names.get(key, key): value for key, value in given.items() if value is not None}


@verb(command, "create", changes=True)
@click.argument("group")
@_settings_options
@click.option("--cluster", metavar="NAME", help="At all brokers of this cluster.")
def create(
    session: Session, group: str, attribute: tuple[str, ...], cluster: str | None, **given: Any
) -> View | None:
    """Make GROUP. It fails if there is one of that name."""
    if session.dry_run:
        session.note(f"dry run: would create group {group}")
        return None
    held = session.admin.create_group(
        group, cluster=cluster, attributes=pairs(attribute), **_fields(given)
    )
    session.note(f"group {group} is there")
    return Table(SETTINGS, [settings_row(b, s) for b, s in sorted(held.items())])


@verb(command, "alter", changes=True)
@click.argument("group")
@_settings_options
@click.option("--drop", multiple=True, metavar="KEY", help="Drop one attribute.")
def alter(
    session: Session, group: str, attribute: tuple[str, ...], drop: tuple[str, ...], **given: Any
) -> View:
    """Change what is given of GROUP, and show what changed."""
    return _alter(session, group, {**pairs(attribute), **dict.fromkeys(drop)}, **_fields(given))


def _alter(
    session: Session, group: str, attributes: dict[str, str | None] | None = None, **fields: Any
) -> Table:
    changes = session.admin.alter_group(
        group, attributes=attributes, dry_run=session.dry_run, **fields
    )
    if session.dry_run:
        session.note("dry run: nothing was changed")
    return Table(CHANGES, change_rows(changes), empty="it is so already")


@verb(command, "pause", changes=True)
@click.argument("group")
def pause(session: Session, group: str) -> View:
    """Have brokers give GROUP no more messages; it lasts over restarts."""
    return _alter(session, group, enabled=False)


@verb(command, "resume", changes=True)
@click.argument("group")
def resume(session: Session, group: str) -> View:
    """Have brokers give GROUP messages again."""
    return _alter(session, group, enabled=True)


@verb(command, "mode", changes=True)
@click.argument("group")
@click.argument("topic")
@click.argument("mode", type=click.Choice(["pull", "pop"]))
@click.option("--share-queues", type=int, default=0, help="Queues that members share with POP.")
def mode(session: Session, group: str, topic: str, mode: str, share_queues: int) -> View | None:
    """Have members of GROUP pull or pop TOPIC, those that let the broker choose."""
    from gantrymq.flows import clusters
    from gantrymq.flows.reaching import gather
    from gantrymq.protocol.assignments import RequestMode, SetRequestMode
    from gantrymq.protocol.enums import MessageRequestMode
    from gantrymq.runtime import run_blocking

    reach = session.admin.reach
    at = run_blocking(clusters.every_master(reach))
    if session.dry_run:
        session.note(f"dry run: would have {group} {mode} {topic} at {', '.join(at)}")
        return None
    session.admin.group_settings(group)
    setting = RequestMode(
        topic=session.wrapped(topic),
        group=session.wrapped(group),
        mode=MessageRequestMode(mode.upper()),
        shared_queues=share_queues,
    )

    async def ask(name: str) -> Any:
        return await reach.ask(at[name], SetRequestMode(setting=setting))

    run_blocking(gather(at, ask)).whole(f"set the mode of {group}")
    session.note(f"{group} is to {mode} {topic} at {', '.join(at)}")
    return None


@verb(command, "delete", changes=True)
@click.argument("group")
@click.option("--keep-offsets", is_flag=True, help="Keep where it stands.")
@click.option("--keep-dead-letters", is_flag=True, help="Keep its dead-letter topic.")
@asking.force_option
def delete(
    session: Session, group: str, keep_offsets: bool, keep_dead_letters: bool
) -> View | None:
    """Delete GROUP, its offsets, retries and dead letters, after showing what would go."""
    preview = session.admin.preview_group_deletion(group)
    in_use = [f"{len(preview.members)} members are connected"] if preview.is_in_use else []
    page = group_deletion_page(preview)
    if not asking.go_ahead(session, f"delete group {group}", page, name=group, in_use=in_use):
        return None
    done = session.admin.delete_group(
        group, keep_offsets=keep_offsets, keep_dead_letters=keep_dead_letters
    )
    session.note(f"group {group} is deleted at {', '.join(done)}")
    return None


def group_deletion_page(preview: GroupDeletion) -> Page:
    """What would go with a group."""
    facts = [
        (Column("group"), preview.group),
        (Column("brokers", "list"), preview.brokers),
        (Column("members", "list"), preview.members),
        (Column("topics", "list"), preview.lag.topics),
        (Column("lag", "count", "not consumed"), preview.lag.messages),
        (Column("retries", "count", "retries lost"), preview.retries),
        (Column("dead_letters", "count", "dead letters lost"), preview.dead_letters),
    ]
    return Page(facts)
