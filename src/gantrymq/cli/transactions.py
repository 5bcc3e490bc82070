"""`gantry transaction`: half messages that nobody has decided on yet.

Brokers of any make keep half messages in one topic, and note in another, by their offsets, those
that are decided on. So what is open is told here from those two topics, and no broker needs to
have a request for it: a half message below the group's own offset has been looked at already, and
either it is decided on or it was put at the end again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import exits, times
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Table, View
from gantrymq.wire import properties

if TYPE_CHECKING:
    from gantrymq.model import MessageQueue, ReceivedMessage

command = noun("transaction", "See transactions that are open.", "Transactions.")

COLUMNS: Final = (
    Column("topic", short=True),
    Column("group", short=True),
    Column("broker"),
    Column("id"),
    Column("age", "span"),
    Column("checks", "count"),
    Column("stored_at", "time", "stored", wide=True),
    Column("offset_id", wide=True),
    Column("keys", "list", wide=True),
)


@verb(command, "list", watch=True)
@click.option("--topic", help="Only for this topic.")
@click.option("--group", help="Only of this producer group.")
@click.option("--older-than", type=times.SPAN, default=0.0, help="Only if open for so long.")
@click.option("--limit", type=int, default=1000, show_default=True, help="So many at most.")
def list_open(
    session: Session, topic: str | None, group: str | None, older_than: float, limit: int
) -> View:
    """List half messages that are neither committed nor rolled back, the oldest first."""
    now = times.now_ms()
    rows = [
        row
        for row in (_row(half, now) for half in open_halves(session))
        if topic in (None, row["topic"])
        and group in (None, row["group"])
        and row["age"] >= older_than
    ]
    rows.sort(key=lambda row: -row["age"])
    return Table(COLUMNS, rows[:limit], empty="no transaction is open")


def _row(half: ReceivedMessage, now: int) -> dict[str, Any]:
    return {
        "topic": half.find(properties.REAL_TOPIC),
        "group": half.find(properties.PRODUCER_GROUP),
        "broker": half.broker,
        "id": half.message_id,
        "age": max(0, now - half.stored.born_ms) / 1000,
        "checks": int(half.find(properties.TRANSACTION_CHECK_TIMES) or 0),
        "stored_at": half.stored.store_ms,
        "offset_id": half.offset_id,
        "keys": list(half.keys),
    }


def open_halves(session: Session) -> Iterator[ReceivedMessage]:
    """The half messages that nobody has decided on."""
    from gantrymq.errors import NoRoute, TopicNotFound
    from gantrymq.protocol.names import HALF_OP_TOPIC, HALF_TOPIC

    _check_age(session)
    try:
        halves = session.admin.topic_status(HALF_TOPIC).queues
    except (NoRoute, TopicNotFound):
        return
    decided = _decided(session, HALF_OP_TOPIC)
    begins = _looked_at(session)
    with session.reader(on_loss="skip") as reader:
        for state in halves:
            start = max(state.min_offset, begins.get(state.queue, 0))
            for half in reader.messages(state.queue, start, state.max_offset):
                if half.offset not in decided.get(state.queue.broker, ()):
                    yield half


def _check_age(session: Session) -> None:
    """Before 5.0 nobody but the broker itself may read these topics: that is not "none"."""
    from gantrymq.errors import ClusterTooOld

    states = session.admin.describe_cluster()
    old = [one for one in states if (one.version or "").startswith(("3.", "4."))]
    if old:
        each = ", ".join(f"{one.place.name} ({one.version})" for one in old)
        raise ClusterTooOld(f"brokers before 5.0 show nobody their half messages: {each}")


def _looked_at(session: Session) -> dict[MessageQueue, int]:
    """Where each broker's own group stands among its half messages."""
    from gantrymq.errors import GantryError
    from gantrymq.protocol.names import HALF_TOPIC, TRANSACTION_GROUP

    try:
        lag = session.admin.group_lag(TRANSACTION_GROUP, topic=HALF_TOPIC)
    except GantryError:
        return {}
    return {one.queue: one.offset for one in lag.queues if one.offset is not None}


def _decided(session: Session, topic: str) -> dict[str, set[int]]:
    """The offsets of half messages that are decided on, by broker, as the notes say."""
    from gantrymq.errors import NoRoute

    found: dict[str, set[int]] = {}
    with session.reader(on_loss="skip") as reader, suppress(NoRoute):  # no decision yet
        for note in reader.messages(topic):
            offsets = found.setdefault(note.broker, set())
            offsets.update(int(text) for text in note.body.decode().split(",") if text.isdigit())
    return found


@verb(command, "resume", changes=True, output=False)
@click.argument("message_id")
def resume(session: Session, message_id: str) -> int:
    """Have a half message decided on after all that a broker has given up.

    Such messages are in TRANS_CHECK_MAX_TIME_TOPIC; their producers are asked again.
    """
    from gantrymq.flows.clusters import place_of
    from gantrymq.protocol.transactions import ResumeHalfMessage
    from gantrymq.runtime import run_blocking

    message = session.admin.find_message(message_id, topic="TRANS_CHECK_MAX_TIME_TOPIC")
    if session.dry_run:
        session.note(f"dry run: would have {message_id} decided on again")
        return exits.OK
    reach = session.admin.reach
    place = run_blocking(place_of(reach, message.broker))
    request = ResumeHalfMessage(message_id=message.offset_id)
    run_blocking(reach.ask(place.address, request))
    session.note(f"{message_id} is open again; its producer group is going to be asked")
    return exits.OK
