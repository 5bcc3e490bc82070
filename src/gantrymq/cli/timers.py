"""`gantry timer`: messages that wait for their time: listed, counted by that time, taken back.

Brokers keep timed messages in one topic and those with a delay level in another, a queue for each
level. Both can be read. A timed message that has been delivered is one whose time is over; one that
was taken back is named by a further message there; one far ahead is stored anew as its time comes
nearer, so the last of its copies counts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import exits, times
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Table, View
from gantrymq.wire import properties

if TYPE_CHECKING:
    from gantrymq.model import ReceivedMessage

command = noun("timer", "See messages that wait for their time, and take them back.", "Timers.")

COLUMNS: Final = (
    Column("due_at", "time", "due"),
    Column("left", "span"),
    Column("topic", short=True),
    Column("id"),
    Column("keys", "list", short=True),
    Column("tag"),
    Column("level", "count"),
    Column("stored_at", "time", "stored", wide=True),
    Column("broker", wide=True),
)
_BAR: Final = 40
_STEPS: Final = (60, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 40 * 86_400, 10**9)


@verb(command, "list", watch=True)
@click.option("--next", "within", type=times.SPAN, help="Only what is due within this time.")
@click.option("--topic", help="Only for this topic.")
@click.option("--limit", type=int, default=1000, show_default=True, help="So many, the next first.")
def list_timers(session: Session, within: float | None, topic: str | None, limit: int) -> View:
    """List messages that are stored and not delivered yet, the next one first."""
    rows = sorted(_rows(session, topic), key=lambda row: row["due_at"])
    if within is not None:
        rows = [row for row in rows if row["left"] <= within]
    return Table(COLUMNS, rows[:limit], empty="no message waits for its time")


@verb(command, "histogram", watch=True)
@click.option("--topic", help="Only for this topic.")
def histogram(session: Session, topic: str | None) -> View:
    """Count messages that wait by when they are due."""
    counts: Counter[int] = Counter()
    for row in _rows(session, topic):
        counts[next(step for step in _STEPS if row["left"] < step)] += 1
    most = max(counts.values(), default=1)
    rows = [
        {
            "within": times.span_text(step) if step < _STEPS[-1] else "later",
            "messages": counts[step],
            "bar": "█" * -(-counts[step] * _BAR // most),
        }
        for step in _STEPS
        if counts[step]
    ]
    columns = [Column("within"), Column("messages", "count"), Column("bar", title=" ", short=True)]
    return Table(columns, rows, empty="no message waits for its time")


@verb(command, "cancel", changes=True, output=False)
@click.argument("message_id")
def cancel(session: Session, message_id: str) -> int:
    """Take a timed message back before its time; its id is what `timer list` shows."""
    from gantrymq.cli.message_sends import GROUP
    from gantrymq.errors import NotFound
    from gantrymq.protocol.recall_handles import RecallHandle

    found = [one for one in _timed(session) if one.message_id == message_id]
    if not found:
        raise NotFound.because(f"no timed message with the id {message_id} waits for its time")
    message = found[0]
    topic = message.find(properties.REAL_TOPIC) or ""
    due = times.local(_due(message))
    if session.dry_run:
        session.note(f"dry run: would take back {message_id} of {topic}, due {due}")
        return exits.OK
    handle = RecallHandle(topic, message.broker, _due(message), message_id)
    session.producer(group=GROUP).recall(str(handle))
    session.note(f"{message_id} of {topic}, due {due}, is taken back")
    return exits.OK


# --- what waits -----------------------------------------------------------------------------------


def _rows(session: Session, topic: str | None) -> Iterator[dict[str, Any]]:
    now, wanted = times.now_ms(), None if topic is None else session.wrapped(topic)
    timed = ((one, _due(one), None) for one in _timed(session))
    for message, due, level in itertools.chain(timed, _delayed(session)):
        real = message.find(properties.REAL_TOPIC) or message.topic
        if wanted in (None, real):
            yield {
                "due_at": due,
                "left": max(0, due - now) / 1000,
                "topic": real,
                "id": message.message_id,
                "keys": list(message.keys),
                "tag": message.tag,
                "level": level,
                "stored_at": message.stored.store_ms,
                "broker": message.broker,
            }


def _due(message: ReceivedMessage) -> int:
    text = message.find(properties.TIMER_OUT_MS) or ""
    return int(text) if text.isdigit() else 0


def _timed(session: Session) -> list[ReceivedMessage]:
    """The timed messages whose time is to come."""
    from gantrymq.errors import NoRoute, TopicNotFound
    from gantrymq.protocol.names import TIMER_TOPIC

    now = times.now_ms()
    found: dict[str, ReceivedMessage] = {}
    try:
        for message in session.reader(on_loss="skip").messages(TIMER_TOPIC):
            taken_back = message.find(properties.TIMER_DELETE_UNIQUE_KEY)
            if taken_back is not None:
                found.pop(taken_back.rpartition("+")[2], None)
            elif _due(message) > now:
                found[message.message_id] = message
    except (NoRoute, TopicNotFound):
        return []
    return list(found.values())


def _delayed(session: Session) -> Iterator[tuple[ReceivedMessage, int, int]]:
    """The messages with a delay level that are not delivered yet, when due, and their level."""
    from gantrymq.errors import GantryError
    from gantrymq.protocol.names import SCHEDULE_TOPIC
    from gantrymq.protocol.offsets import GetAllDelayOffsets
    from gantrymq.rules.delay import DELAY_LEVELS, DelayLevels
    from gantrymq.runtime import run_blocking

    reach, reader = session.admin.reach, session.reader(on_loss="skip")
    for place in session.admin.list_brokers():
        if not place.is_master:
            continue
        try:
            done = run_blocking(reach.ask(place.address, GetAllDelayOffsets())).offsets
            text = session.admin.broker_config(place.address).get("messageDelayLevel", "")
            levels = DelayLevels.parse(text) if text else DELAY_LEVELS
            states = session.admin.topic_status(SCHEDULE_TOPIC).queues
        except GantryError as error:
            session.note(f"gantry: not known of {place.name}: {error}")
            continue
        for state in states:
            level = state.queue.queue_id + 1
            if state.queue.broker != place.name or level > levels.highest:
                continue
            start = max(state.min_offset, done.get(level, 0))
            for message in reader.messages(state.queue, start, state.max_offset):
                yield message, message.stored.store_ms + 1000 * levels.delay(level), level
