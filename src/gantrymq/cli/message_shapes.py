"""`gantry message`: the noun, its messages as rows and lines, and the options that choose them."""

from __future__ import annotations

import functools
import heapq
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from gantrymq.cli import decoding, screen, views
from gantrymq.cli.times import local, time_of
from gantrymq.cli.verbs import Session, noun
from gantrymq.cli.views import Column

if TYPE_CHECKING:
    from gantrymq.cli.conditions import Where
    from gantrymq.cli.decoding import Decoded, Decoder
    from gantrymq.client.reader import Reader
    from gantrymq.flows.topics import QueueState
    from gantrymq.model import MessageQueue, ReceivedMessage

    Places = click.ParamType[Any]
else:
    Places = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])

command = noun("message", "Send, find, follow, search and export messages.", "Messages.")
command.order = (
    *("send", "get", "show", "cat", "tail", "search", "export"),
    *("explain", "trace", "redeliver"),
)

COLUMNS: Final = (
    Column("stored_at", "time", "stored"),
    Column("topic", wide=True),
    Column("broker"),
    Column("queue", "count"),
    Column("offset", "count"),
    Column("tag"),
    Column("keys", "list", short=True),
    Column("id", wide=True),
    Column("offset_id", wide=True),
    Column("born_at", "time", "born", wide=True),
    Column("born_host", wide=True),
    Column("retries", "count", wide=True),
    Column("size", "size"),
    Column("properties", wide=True),
    Column("form", wide=True),
    Column("body", "json", short=True),
)
_CHUNK: Final = 64
"""Messages of one queue that are held to put those of all queues in order."""


def row_of(message: ReceivedMessage, decode: Decoder) -> dict[str, Any]:
    """One message as data."""
    body = body_of(message, decode)
    found = {
        "stored_at": message.stored.store_ms,
        "topic": message.topic,
        "broker": message.broker,
        "queue": message.stored.queue_id,
        "offset": message.offset,
        "tag": message.tag,
        "keys": list(message.keys),
        "id": message.message_id,
        "offset_id": message.offset_id,
        "born_at": message.stored.born_ms,
        "born_host": message.born_host,
        "retries": message.retries,
        "size": len(message.stored.body),
        "properties": dict(message.properties),
        "form": body.form,
        "body": body.data,
    }
    return found if body.error is None else found | {"problem": body.error}


def body_of(message: ReceivedMessage, decode: Decoder) -> Decoded:
    """The body of a message, decoded; one that cannot be unpacked is shown as it is stored."""
    from gantrymq.errors import GantryError

    try:
        return decode(message.body)
    except GantryError as error:
        return decoding.Decoded(bytes(message.stored.body).hex(), "hex", str(error))


def line_of(message: ReceivedMessage, decode: Decoder, *, color: bool = False) -> str:
    """One message on one line, for people."""
    body = body_of(message, decode)
    place = f"{message.broker}:{message.stored.queue_id}@{message.offset}"
    parts = [
        click.style(local(message.stored.store_ms), dim=True) if color else "",
        f"{place:<16}",
        click.style(f"{message.tag or views.UNKNOWN:<8}", fg="green") if color else "",
        f"{' '.join(message.keys) or views.UNKNOWN:<12}",
        body.text.replace("\n", "\\n"),
    ]
    if not color:
        parts[0] = local(message.stored.store_ms)
        parts[2] = f"{message.tag or views.UNKNOWN:<8}"
    return "  ".join(parts)


def print_messages(session: Session, messages: Iterable[ReceivedMessage], decode: Decoder) -> int:
    """Write messages as they come, and say how many there were."""
    count = 0

    def counted() -> Iterator[ReceivedMessage]:
        nonlocal count
        for message in messages:
            count += 1
            yield message

    if not session.for_people:
        session.emit(COLUMNS, (row_of(message, decode) for message in counted()))
        return count
    width, color = screen.width_of(sys.stdout), screen.is_colored(sys.stdout)
    for message in counted():
        line = line_of(message, decode, color=color)
        sys.stdout.write(_cut(line, width if session.form == "table" else None) + "\n")
        sys.stdout.flush()
    return count


def _cut(line: str, width: int | None) -> str:
    """A line that fits; what colours it takes no room."""
    if width is None or len(click.unstyle(line)) <= width:
        return line
    over = len(click.unstyle(line)) - width + 1
    return line[:-over] + "…"


# --- which messages -------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Choice:
    """What the options say of which messages are meant, and how to decode them."""

    start: str | int | datetime = "earliest"
    end: str | int | datetime = "latest"
    queues: tuple[int, ...] = ()
    brokers: tuple[str, ...] = ()
    tag: str | None = None
    sql: str | None = None
    where: str | None = None
    text: str | None = None
    decode: str = "auto"
    schema: Path | None = None
    message: str = ""
    matches: Where | None = field(default=None, repr=False)

    @property
    def decoder(self) -> Decoder:
        """Decodes bodies as the options say."""
        return decoding.Decoder(self.decode, self.schema, self.message)

    def reader(self, session: Session) -> Reader:
        """Reads what brokers leave over."""
        tags = "*" if self.tag is None else self.tag
        return session.reader(tags=tags, sql=self.sql, on_loss="skip")

    def test(self) -> Callable[[ReceivedMessage], bool]:
        """Whether a message that was read is meant."""
        from gantrymq.cli.conditions import Where

        where = None if self.where is None else Where(self.where, self.decoder)
        text = None if self.text is None else self.text.encode()
        return functools.partial(_meant, where, text)


def _meant(where: Where | None, text: bytes | None, message: ReceivedMessage) -> bool:
    if text is not None and text not in message.body:
        return False
    return where is None or where(message)


class Range(NamedTuple):
    """Offsets of one queue: from `start` up to, and without, `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets."""
        return max(0, self.end - self.start)


class Place(Places):
    """A time, an offset (a number of up to nine digits), earliest or latest."""

    name = "time|offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read it."""
        if not isinstance(value, str) or value in ("earliest", "latest"):
            return value
        if value.isdigit() and len(value) < 10 and not (len(value) == 8 and value[:2] == "20"):
            return int(value)
        try:
            return time_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


PLACE: Final = Place()

_DECODING: Final = (
    click.option(
        "--decode",
        type=click.Choice(decoding.FORMS),
        default="auto",
        show_default=True,
        help="How to read bodies.",
    ),
    click.option(
        "--schema",
        type=click.Path(path_type=Path),
        help="Avro schema, or Protobuf descriptor set (protoc --descriptor_set_out).",
    ),
    click.option("--message", default="", metavar="NAME", help="The Protobuf message in it."),
)
_RANGE: Final = (
    click.option("--from", "start", type=PLACE, default="earliest", help="From here.  [earliest]"),
    click.option("--to", "end", type=PLACE, default="latest", help="Up to here.  [latest]"),
    click.option("--queue", "queues", type=int, multiple=True, help="Only this queue."),
    click.option("--broker", "brokers", multiple=True, metavar="NAME", help="Only this broker."),
)
_FILTERS: Final = (
    click.option("--tag", metavar="TAGS", help="Only these tags, as 'a || b'; brokers filter."),
    click.option("--sql", metavar="EXPR", help="Only what SQL92 selects; brokers filter."),
    click.option(
        "--where", metavar="EXPR", help="Only what this says TRUE of: body.status = 'failed'."
    ),
    click.option("--text", metavar="TEXT", help="Only bodies that hold this text."),
)


def choosing(*, ranged: bool = True, filtered: bool = True) -> Callable[[F], F]:
    """Give a verb the options of `Choice`, as its argument `choice`."""
    options = (*(_RANGE if ranged else ()), *(_FILTERS if filtered else ()), *_DECODING)
    names = [*("start", "end", "queues", "brokers", "tag", "sql", "where", "text")]
    names += ["decode", "schema", "message"]

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            own = {name: kwargs.pop(name) for name in names if name in kwargs}
            return function(*args, choice=Choice(**own), **kwargs)

        for option in reversed(options):
            run = option(run)
        return run  # type: ignore[return-value]

    return decorate


def ranges(session: Session, topic: str, choice: Choice) -> list[Range]:
    """The stretches of queues that are meant."""
    from gantrymq.flows.topics import brokers_of
    from gantrymq.runtime import run_blocking

    admin = session.admin
    status = admin.topic_status(topic)
    at = run_blocking(brokers_of(admin.reach, session.wrapped(topic)))
    found = []
    for state in status.queues:
        queue = state.queue
        if choice.queues and queue.queue_id not in choice.queues:
            continue
        if choice.brokers and queue.broker not in choice.brokers:
            continue
        start = _offset(session, at[queue.broker], state, choice.start)
        end = _offset(session, at[queue.broker], state, choice.end)
        found.append(Range(queue, start, max(start, end)))
    return found


def _offset(session: Session, address: str, state: QueueState, place: Any) -> int:
    from gantrymq.flows.lookup import offset_at
    from gantrymq.runtime import run_blocking

    if place == "earliest":
        return state.min_offset
    if place == "latest":
        return state.max_offset
    if isinstance(place, int):
        return min(max(state.min_offset, place), state.max_offset)
    return run_blocking(offset_at(session.admin.reach, address, state, place))


def in_order(reader: Reader, wanted: Iterable[Range]) -> Iterator[ReceivedMessage]:
    """The messages of all these queues in the order in which they were stored."""
    return heapq.merge(*(_pieces(reader, one) for one in wanted), key=_when)


def _pieces(reader: Reader, wanted: Range) -> Iterator[ReceivedMessage]:
    for at in range(wanted.start, wanted.end, _CHUNK):
        yield from list(reader.messages(wanted.queue, at, min(at + _CHUNK, wanted.end)))


def _when(message: ReceivedMessage) -> tuple[int, str, int]:
    return message.stored.store_ms, message.broker, message.stored.log_offset


def properties_of(message: ReceivedMessage) -> Mapping[str, str]:
    """All properties, by name."""
    return dict(sorted(message.all_properties.items()))
