"""`gantry message`: messages sent, and handed to one consumer once more."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import exits
from gantrymq.cli.message_shapes import command
from gantrymq.cli.shapes import pairs
from gantrymq.cli.times import RATE, SPAN, TIME
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Column, Page, View
from gantrymq.errors import InvalidInput

if TYPE_CHECKING:
    from gantrymq.model import SendReceipt

GROUP: Final = "gantry-cli"
RECEIPTS: Final = (
    Column("id"),
    Column("topic", wide=True),
    Column("broker"),
    Column("queue", "count"),
    Column("offset", "count"),
    Column("status"),
    Column("offset_id", wide=True),
    Column("recall_handle", wide=True),
)
_KNOWN: Final = frozenset({"body", "tag", "keys", "key", "properties", "order_key", "delay"})


@verb(command, "send")
@click.argument("topic")
@click.option("--body", help="The body; @FILE for that of a file, - for stdin.")
@click.option(
    "--jsonl",
    type=click.Path(path_type=Path, allow_dash=True),
    help="A message for each line: {body, tag, keys, properties, order_key, delay}.",
)
@click.option("--tag", help="Its tag.")
@click.option("--key", "keys", multiple=True, help="A key it can be found by.")
@click.option("--prop", multiple=True, metavar="NAME=VALUE", help="One property.")
@click.option("--order-key", help="Messages with the same one stay in order.")
@click.option("--delay", type=SPAN, help="Deliver it that much later.")
@click.option("--at", "when", type=TIME, help="Deliver it at this time.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="So often.")
@click.option("--rate", type=RATE, default=0.0, help="So many a second.")
def send(
    session: Session,
    topic: str,
    body: str | None,
    jsonl: Path | None,
    tag: str | None,
    keys: tuple[str, ...],
    prop: tuple[str, ...],
    order_key: str | None,
    delay: float | None,
    when: datetime | None,
    count: int,
    rate: float,
) -> int:
    """Send messages to TOPIC, and show where they were stored."""
    if (body is None) == (jsonl is None):
        raise click.UsageError("say what to send: --body TEXT, --body @FILE, --body - or --jsonl")
    if jsonl is not None:
        drafts: Iterable[tuple[dict[str, Any], bytes]] = lines_of(jsonl)
    else:
        options: dict[str, Any] = {"tag": tag, "keys": keys, "properties": pairs(prop)}
        options |= {"order_key": order_key, "deliver_at": when}
        options["delay"] = None if delay is None else timedelta(seconds=delay)
        drafts = ((options, body_bytes(body or "")) for _ in range(count))
    receipts = _sent(session, topic, drafts, rate)
    if session.for_people:
        return _told(session, receipts)
    session.emit(RECEIPTS, map(receipt_row, receipts))
    return exits.OK


def _told(session: Session, receipts: Iterator[SendReceipt]) -> int:
    count, last = 0, None
    for last in receipts:
        count += 1
        if count <= _SHOWN:
            line = f"{last.message_id}  {last.queue.broker}:{last.queue.queue_id}@{last.offset}"
            click.echo(f"{line}  {last.status.name}")
    if count > _SHOWN and last is not None:
        click.echo(f"… and {count - _SHOWN:,} more, the last {last.message_id}")
    session.note(f"{count:,} messages sent")
    return exits.OK


_SHOWN: Final = 10


def _sent(
    session: Session, topic: str, drafts: Iterable[tuple[dict[str, Any], bytes]], rate: float
) -> Iterator[SendReceipt]:
    start, producer = time.monotonic(), session.producer(group=GROUP)
    with session.bar("sending", None) as bar:
        for number, (options, content) in enumerate(drafts):
            pace(start, number, rate)
            given = {key: value for key, value in options.items() if value is not None}
            yield producer.send(topic, content, **given)
            bar.add()


def pace(start: float, number: int, rate: float) -> None:
    """Wait until it is the turn of this one, of so many a second; a rate of 0 waits for nothing."""
    if rate:
        ahead = start + number / rate - time.monotonic()
        if ahead > 0:
            time.sleep(ahead)


def receipt_row(receipt: SendReceipt) -> dict[str, Any]:
    """Where a message was stored."""
    return {
        "id": receipt.message_id,
        "topic": receipt.queue.topic,
        "broker": receipt.queue.broker,
        "queue": receipt.queue.queue_id,
        "offset": receipt.offset,
        "status": receipt.status.name,
        "offset_id": receipt.offset_id,
        "recall_handle": receipt.recall_handle,
    }


def body_bytes(text: str) -> bytes:
    """A body as it was given: text, `@file`, or `-` for stdin; `@@` begins with a plain @."""
    if text == "-":
        return sys.stdin.buffer.read()
    if text.startswith("@@"):
        return text[1:].encode()
    if text.startswith("@"):
        return Path(text[1:]).read_bytes()
    return text.encode()


def lines_of(path: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The messages of a file of JSON lines; a body that is no text is sent as JSON."""
    with click.open_file(str(path), encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield _line(line, f"{path}, line {number}")


def _line(line: str, where: str) -> tuple[dict[str, Any], bytes]:
    try:
        tree = json.loads(line)
    except ValueError as error:
        raise InvalidInput(f"{where}: no JSON: {error}") from error
    if not isinstance(tree, dict) or "body" not in tree or tree.keys() - _KNOWN:
        raise InvalidInput(f"{where}: a message is an object with a body, and of {sorted(_KNOWN)}")
    body = tree["body"]
    content = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    keys = tree.get("keys", tree.get("key", ()))
    options = {"tag": tree.get("tag"), "keys": keys, "order_key": tree.get("order_key")}
    options["properties"] = {k: str(v) for k, v in (tree.get("properties") or {}).items()}
    if tree.get("delay") is not None:
        options["delay"] = timedelta(seconds=SPAN.convert(tree["delay"], None, None))
    return options, content.encode()


@verb(command, "redeliver", changes=True)
@click.argument("message_id")
@click.option("--group", required=True, help="To a member of this group.")
@click.option("--client", help="To this member; without it, to the first.")
@click.option("--topic", help="Where to look for the message.")
def redeliver(
    session: Session, message_id: str, group: str, client: str | None, topic: str | None
) -> View | None:
    """Have one member of GROUP consume a message now, whatever the group's offsets say."""
    from gantrymq.errors import ConsumerOffline

    message = session.admin.find_message(message_id, topic=topic)
    if client is None:
        members = session.admin.group_members(group).members
        if not members:
            raise ConsumerOffline.because(f"nobody of {group} is connected")
        client = members[0].client_id
    if session.dry_run:
        session.note(f"dry run: would hand {message_id} to {client}")
        return None
    said = session.admin.consume_directly(
        group, client, message.offset_id, topic=message.stored.topic
    )
    return Page(
        [
            (Column("id"), message.message_id),
            (Column("client"), client),
            (Column("result"), said.result),
            (Column("spent", "span"), said.spent_ms / 1000),
            (Column("explanation"), said.explanation),
        ]
    )
