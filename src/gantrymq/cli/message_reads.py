"""`gantry message`: messages looked up, printed, followed and searched."""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from gantrymq.cli import exits
from gantrymq.cli.message_shapes import (
    COLUMNS,
    Choice,
    Range,
    body_of,
    choosing,
    command,
    in_order,
    print_messages,
    properties_of,
    ranges,
    row_of,
)
from gantrymq.cli.times import SPAN, TIME
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Column, Page, Table, View, row_data

if TYPE_CHECKING:
    from datetime import datetime

    from gantrymq.cli.decoding import Decoder
    from gantrymq.client.reader import Reader
    from gantrymq.model import MessageQueue, ReceivedMessage

_POLL = 0.3
_STEP = 1024
"""Offsets that a search looks at before it looks at the clock."""


# --- one message ----------------------------------------------------------------------------------


@verb(command, "get")
@click.argument("message_id", required=False)
@click.option("--topic", help="Where to look; without it, in all topics.")
@click.option("--key", help="By this key.")
@click.option("--offset", "place", metavar="BROKER:QUEUE:OFFSET", help="By its place in TOPIC.")
@click.option("--at", "when", type=TIME, help="The first stored at this time or later.")
@click.option("--limit", type=int, default=64, show_default=True, help="Messages of one key.")
@choosing(ranged=False, filtered=False)
def get(
    session: Session,
    message_id: str | None,
    topic: str | None,
    key: str | None,
    place: str | None,
    when: datetime | None,
    limit: int,
    choice: Choice,
) -> View:
    """Find a message: by either kind of id, by key, by its place, or by time.

    One message is shown on a page, several in a table.
    """
    found = _found(session, message_id, topic, key, place, when, limit)
    decode = choice.decoder
    if len(found) == 1:
        return message_page(found[0], decode)
    return Table(COLUMNS, [row_of(one, decode) for one in found])


def _found(
    session: Session,
    message_id: str | None,
    topic: str | None,
    key: str | None,
    place: str | None,
    when: datetime | None,
    limit: int,
) -> list[ReceivedMessage]:
    from gantrymq.errors import NotFound

    if sum(one is not None for one in (message_id, key, place, when)) != 1:
        raise click.UsageError("say which message in one way: an id, --key, --offset or --at")
    if message_id is not None:
        return [session.admin.find_message(message_id, topic=topic)]
    if topic is None:
        raise click.UsageError("--key, --offset and --at need --topic")
    if key is not None:
        found = session.admin.messages_by_key(topic, key, most=limit)
        if not found:
            raise NotFound.because(f"no message of {topic} has the key {key!r}")
        return found
    if place is not None:
        return [session.admin.message_at(*queue_place(topic, place))]
    assert when is not None
    wanted = ranges(session, topic, Choice(start=when))
    first = next(in_order(session.reader(on_loss="skip"), wanted), None)
    if first is None:
        raise NotFound.because(f"{topic} has no message of that time or later")
    return [first]


def queue_place(topic: str, text: str) -> tuple[MessageQueue, int]:
    """A place as `BROKER:QUEUE:OFFSET`; `@` for the last colon will do, too."""
    from gantrymq.model import MessageQueue

    parts = text.replace("@", ":").rsplit(":", 2)
    try:
        broker, queue, offset = parts
        return MessageQueue(topic, broker, int(queue)), int(offset)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not BROKER:QUEUE:OFFSET") from None


def message_page(message: ReceivedMessage, decode: Decoder) -> Page:
    """One message with everything that is known of it."""
    row = row_of(message, decode)
    body = body_of(message, decode)
    shown = body.data
    if not isinstance(shown, str):
        shown = json.dumps(shown, indent=2, ensure_ascii=False, default=str)
    facts = [(column, row[column.key]) for column in COLUMNS if column.key not in _BELOW]
    if body.error is not None:
        facts.append((Column("problem"), body.error))
    everything = properties_of(message)
    rows = [{"name": name, "value": value} for name, value in everything.items()]
    page = Page(facts, {"properties": Table([Column("name"), Column("value")], rows, empty="none")})
    page.text = shown
    page.data = row_data(COLUMNS, row) | {"properties": everything}
    return page


_BELOW = frozenset({"properties", "body"})
command.add_command(get, "show")


# --- many messages --------------------------------------------------------------------------------


@verb(command, "cat")
@click.argument("topic")
@click.option("--limit", type=int, help="So many at most.")
@click.option("--order", type=click.Choice(["time", "queue"]), default="time", show_default=True)
@choosing()
def cat(session: Session, topic: str, limit: int | None, order: str, choice: Choice) -> int:
    """Print messages of TOPIC, those that there are now."""
    wanted, decode = ranges(session, topic, choice), choice.decoder
    reader, meant = choice.reader(session), choice.test()
    if order == "time":
        messages = in_order(reader, wanted)
    else:
        messages = itertools.chain.from_iterable(reader.messages(*one) for one in wanted)
    chosen = (message for message in messages if meant(message))
    print_messages(session, itertools.islice(chosen, limit), decode)
    return exits.OK


@verb(command, "tail")
@click.argument("topic")
@click.option("-f", "--follow", is_flag=True, help="Go on with those that come.")
@click.option("-c", "--count", type=int, default=10, show_default=True, help="The last so many.")
@click.option("--limit", type=int, help="End after so many.")
@choosing(ranged=False)
def tail(
    session: Session, topic: str, follow: bool, count: int, limit: int | None, choice: Choice
) -> int:
    """Print the last messages of TOPIC, and with -f those that come, until Ctrl-C."""
    reader, meant = choice.reader(session), choice.test()
    wanted = ranges(session, topic, choice)
    last = [Range(one.queue, max(one.start, one.end - count), one.end) for one in wanted]
    old = (
        [message for message in in_order(reader, last) if meant(message)][-count:] if count else []
    )
    messages: Iterator[ReceivedMessage] = iter(old)
    if follow:
        ends = {one.queue: one.end for one in wanted}
        messages = itertools.chain(old, filter(meant, _following(session, topic, reader, ends)))
    print_messages(session, itertools.islice(messages, limit), choice.decoder)
    return exits.OK


def _following(
    session: Session, topic: str, reader: Reader, ends: dict[MessageQueue, int]
) -> Iterator[ReceivedMessage]:
    """Messages as they come; a broker that is away for a while is waited for."""
    from gantrymq.errors import GantryError

    while True:
        try:
            states = session.admin.topic_status(topic).queues
        except GantryError as error:
            session.note(f"gantry: waiting: {error}")
            time.sleep(2.0)
            continue
        fresh = [
            Range(state.queue, max(ends.get(state.queue, 0), state.min_offset), state.max_offset)
            for state in states
            if state.max_offset > ends.get(state.queue, 0)
        ]
        yield from in_order(reader, fresh)
        ends |= {one.queue: one.end for one in fresh}
        if not fresh:
            time.sleep(_POLL)


@verb(command, "search")
@click.argument("topic")
@click.option("--limit", type=int, default=20, show_default=True, help="End after so many.")
@click.option("--budget", type=SPAN, default=30.0, show_default="30s", help="Time for looking.")
@click.option("--most", type=int, help="Look at so many messages at most.")
@click.option("--oldest-first", is_flag=True, help="Begin with the oldest, not the newest.")
@click.option("--resume", metavar="TOKEN", help="Go on where an earlier search ended.")
@choosing()
def search(
    session: Session,
    topic: str,
    limit: int,
    budget: float,
    most: int | None,
    oldest_first: bool,
    resume: str | None,
    choice: Choice,
) -> int:
    """Search TOPIC by content, newest first, within a budget of time and messages.

    When the budget is spent, it says how far it came, and the token to go on with.
    """
    scan = Scan(ranges(session, topic, choice), oldest_first=oldest_first)
    if resume is not None:
        scan.resume(resume)
    total, deadline = scan.left, time.monotonic() + budget
    matched = 0
    with session.bar("searching", total) as bar:

        def spent() -> bool:
            return time.monotonic() >= deadline or (most is not None and scan.done >= most)

        def found() -> Iterator[ReceivedMessage]:
            nonlocal matched
            for message in scan.run(choice.reader(session), choice.test(), bar.add, spent):
                matched += 1
                bar.say(f"{matched} found")
                yield message

        print_messages(session, itertools.islice(found(), limit), choice.decoder)
    session.note(f"looked at {scan.done:,} of {total:,} messages, found {matched}")
    if scan.left:
        session.note(f"to go on: gantry message search {topic} ... --resume {scan.token()}")
    return exits.OK if matched else exits.NOT_FOUND


class Scan:
    """What of a topic is still to be looked at, taken in steps from each queue in turn."""

    def __init__(self, wanted: list[Range], *, oldest_first: bool) -> None:
        self.wanted = [one for one in wanted if one.size]
        self.done = 0
        self._oldest_first = oldest_first

    @property
    def left(self) -> int:
        """How many offsets."""
        return sum(one.size for one in self.wanted)

    def run(
        self,
        reader: Reader,
        meant: Callable[[ReceivedMessage], bool],
        tell: Callable[[int], None],
        spent: Callable[[], bool],
    ) -> Iterator[ReceivedMessage]:
        """What is found, until all is looked at or the budget is spent."""
        while self.wanted and not spent():
            step, rest = self._split(self.wanted.pop(0))
            found = [message for message in reader.messages(*step) if meant(message)]
            if rest.size:
                self.wanted.append(rest)
            self.done += step.size
            tell(step.size)
            yield from found if self._oldest_first else reversed(found)

    def _split(self, one: Range) -> tuple[Range, Range]:
        if self._oldest_first:
            middle = min(one.end, one.start + _STEP)
            return one._replace(end=middle), one._replace(start=middle)
        middle = max(one.start, one.end - _STEP)
        return one._replace(start=middle), one._replace(end=middle)

    def token(self) -> str:
        """What is left, as text."""
        left = [[one.queue.broker, one.queue.queue_id, one.start, one.end] for one in self.wanted]
        text = json.dumps([self._oldest_first, left], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    def resume(self, token: str) -> None:
        """Go on with what was left."""
        queues = {(one.queue.broker, one.queue.queue_id): one.queue for one in self.wanted}
        try:
            padded = token + "=" * (-len(token) % 4)
            self._oldest_first, left = json.loads(base64.urlsafe_b64decode(padded))
            self.wanted = [
                Range(queues[broker, number], int(start), int(end))
                for broker, number, start, end in left
                if (broker, number) in queues
            ]
        except (ValueError, TypeError, binascii.Error) as error:
            raise click.BadParameter(f"{token!r:.40} is no token of a search") from error
