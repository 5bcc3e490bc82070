"""`gantry message explain` and `trace`: what became of a message, as a text and as data."""

from __future__ import annotations

import dataclasses
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from gantrymq.cli import times
from gantrymq.cli.message_shapes import COLUMNS, command, row_of
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Page, View, row_data

if TYPE_CHECKING:
    from gantrymq.flows.explanations import Explanation
    from gantrymq.flows.trace_trees import MessageTrace


def explain_verb(group: click.Group, name: str) -> None:
    """Make `explain` a verb of a noun."""

    @verb(group, name)
    @click.argument("message_id")
    @click.option("--topic", help="Where to look; without it, in all topics.")
    @click.option("--group", "consumer", metavar="GROUP", help="Only for this group.")
    def explain(session: Session, message_id: str, topic: str | None, consumer: str | None) -> View:
        """Say what became of a message: where it is, and how it is with each group, and why.

        What nobody can know is said, with the reason.
        """
        return explanation_page(session.admin.explain(message_id, topic=topic, group=consumer))


def explanation_page(found: Explanation) -> Page:
    """The text for people, the parts for programs."""
    return Page([], text=str(found), data=explanation_data(found))


def explanation_data(found: Explanation) -> dict[str, Any]:
    """An explanation as JSON has it."""
    from gantrymq.cli.decoding import Decoder

    return {
        "id": found.message_id,
        "topic": found.topic,
        "message": row_data(COLUMNS, row_of(found.message, Decoder())),
        "copies": [
            {
                "role": copy.role.name.lower(),
                "topic": copy.queue.topic,
                "broker": copy.queue.broker,
                "queue": copy.queue.queue_id,
                "offset": copy.offset,
                "stored_at": times.iso(copy.stored_ms),
                "due_at": None if copy.due_ms is None else times.iso(copy.due_ms),
                "note": copy.note,
            }
            for copy in found.copies
        ],
        "groups": [fields_of(one) for one in found.groups],
        "trace": None if found.trace is None else trace_data(found.trace),
        "notes": list(found.notes),
        "at": times.iso(found.now_ms),
    }


@verb(command, "trace")
@click.argument("message_id")
@click.option("--topic", help="Where the message is, if its id is an offset id.")
@click.option(
    "--trace-topic", default="RMQ_SYS_TRACE_TOPIC", show_default=True, help="Where traces are."
)
def trace(session: Session, message_id: str, topic: str | None, trace_topic: str) -> View:
    """Show what producers and consumers told of a message, as a tree with times."""
    found = session.admin.trace(message_id, topic=topic, trace_topic=trace_topic)
    return Page([], text=str(found), data=trace_data(found))


def trace_data(found: MessageTrace) -> dict[str, Any]:
    """A trace as JSON has it."""
    return {
        "id": found.message_id,
        "topic": found.topic,
        "sends": [fields_of(one) for one in found.sends],
        "transactions": [fields_of(one) for one in found.transactions],
        "recalls": [fields_of(one) for one in found.recalls],
        "deliveries": [
            {
                "group": group,
                "began_at": times.iso(one.began_ms),
                "ended_at": None if one.ended_ms is None else times.iso(one.ended_ms),
                "retries": one.retries,
                "succeeded": one.succeeded,
            }
            for group, several in found.deliveries.items()
            for one in several
        ],
    }


def fields_of(one: Any) -> dict[str, Any]:
    """The fields of a dataclass; times by names of their own, as everywhere."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(one):
        value = getattr(one, field.name)
        if field.name.endswith("_ms") and field.name != "cost_ms":
            name = field.name.removesuffix("_ms") + "_at"
            found["at" if name == "time_at" else name] = times.iso(value) if value else None
        elif isinstance(value, Enum):
            found[field.name] = value.value if isinstance(value.value, str) else value.name.lower()
        else:
            found[field.name] = value
    return found


explain_verb(command, "explain")
