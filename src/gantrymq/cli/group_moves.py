"""`gantry group`: groups moved to other offsets, with the plan shown first and read back after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gantrymq.cli import asking, times
from gantrymq.cli.group_looks import command
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Column, Page, Table, View

if TYPE_CHECKING:
    from gantrymq.flows.resets import ResetPlan, ResetTo


@verb(command, "reset", changes=True)
@click.argument("group")
@click.option("--topic", required=True, help="In this topic.")
@click.option("--to", "place", required=True, help="earliest, latest, an offset, or a time.")
@click.option("--queue", "queues", type=int, multiple=True, help="Only this queue, at all brokers.")
def reset(
    session: Session, group: str, topic: str, place: str, queues: tuple[int, ...]
) -> View | None:
    """Move GROUP in TOPIC: shows the plan, asks, does it, and reads back that it is so.

    A small number is an offset; times are written as everywhere (15m ago, 10:00, ISO 8601). Works
    whether members are connected or not.
    """
    return _reset(session, group, topic, place_of(place), queues)


@verb(command, "skip", changes=True)
@click.argument("group")
@click.option("--topic", required=True, help="In this topic.")
def skip(session: Session, group: str, topic: str) -> View | None:
    """Have GROUP go on at the end of TOPIC; shows how many messages it would never see."""
    return _reset(session, group, topic, "latest", ())


def place_of(text: str) -> ResetTo:
    """Where to: a word, an offset (a number of up to nine digits), or a time."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdigit() and len(text) < 10:
        return int(text)
    try:
        return times.time_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error


def _reset(
    session: Session, group: str, topic: str, to: ResetTo, queues: tuple[int, ...]
) -> View | None:
    plan = session.admin.plan_reset(group, topic, to, queues=queues or None)
    if not asking.go_ahead(session, f"move {group} in {topic}", plan_page(plan)):
        return None
    session.admin.apply_reset(plan)
    session.note(f"{group} has been moved in {len(plan.moves)} queues, as reading back shows")
    return None if session.for_people else plan_page(plan)


def plan_page(plan: ResetPlan) -> Page:
    """What a reset would do."""
    facts = [
        (Column("group"), plan.group),
        (Column("topic"), plan.topic),
        (Column("members", "list"), plan.members),
        (Column("skipped", "count", "never to be seen"), plan.skipped),
        (Column("repeated", "count", "to be seen again"), plan.repeated),
    ]
    rows = [
        {
            "broker": move.queue.broker,
            "queue": move.queue.queue_id,
            "before": move.before,
            "after": move.wanted,
            "skipped": move.skipped,
            "repeated": move.repeated,
        }
        for move in plan.moves
    ]
    columns = [Column("broker")] + [
        Column(name, "count") for name in ("queue", "before", "after", "skipped", "repeated")
    ]
    return Page(facts, {"moves": Table(columns, rows)}, main="moves")


@verb(command, "clone", changes=True)
@click.argument("source")
@click.argument("target")
@click.option("--topic", help="In this topic alone.")
def clone(session: Session, source: str, target: str, topic: str | None) -> View | None:
    """Have TARGET stand where SOURCE stands."""
    copies = session.admin.plan_clone(source, target, topic=topic)
    rows = [
        {
            "topic": copy.queue.topic,
            "broker": copy.queue.broker,
            "queue": copy.queue.queue_id,
            "before": copy.before,
            "after": copy.source,
        }
        for copy in copies
    ]
    columns = [Column("topic"), Column("broker")]
    columns += [Column(name, "count") for name in ("queue", "before", "after")]
    facts = [(Column("source"), source), (Column("target"), target)]
    page = Page(facts, {"moves": Table(columns, rows, empty="nothing to copy")}, main="moves")
    if not asking.go_ahead(session, f"give {target} the offsets of {source}", page):
        return None
    done = session.admin.clone_offsets(source, target, topic=topic)
    session.note(f"{target} stands where {source} stands in {len(done)} queues")
    return None
