"""`gantry storage`: a store's files verified and measured, and what brokers can tidy up."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Final

import click

from gantrymq.cli import exits
from gantrymq.cli.message_shapes import COLUMNS, row_of
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page, Table, View

command = noun(
    "storage",
    "Look into stores. STORE is the directory of a broker's store, ours or Apache's: the one that "
    "has commitlog in it.",
    "Stores.",
)

_store = click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
_CLEANERS: Final = {
    "queues": "drop queue files whose messages are gone",
    "topics": "drop the files of topics that are no more",
    "log": "remove log files that are past their time",
}


@verb(command, "verify", cluster=False)
@_store
def verify(session: Session, store: Path) -> int:
    """Read the whole log of STORE: are its records whole, and does each queue have them.

    A broker may run meanwhile. Exit code 1 if something is damaged. Queues and index are mended by
    the broker itself when it starts; a damaged record is skipped, and what came after it is kept.
    """
    from gantrymq.cli import store_files

    total = sum(path.stat().st_size for path in store_files.log_files(store))
    with session.bar("bytes", total) as bar:
        found = store_files.verify(store, bar.add)
    running = store_files.is_running(store)
    facts: list[tuple[Column, Any]] = [
        (Column("store"), str(store)),
        (Column("closed_in_order", "yes"), not running),
        (Column("files", "count"), found.files),
        (Column("messages", "count"), found.messages),
        (Column("log_start", "count"), found.start),
        (Column("log_end", "count"), found.end),
        (Column("oldest", "time"), found.oldest_ms or None),
        (Column("newest", "time"), found.newest_ms or None),
        (Column("not_in_queues", "count"), found.unqueued),
        (Column("damaged", "count"), found.damaged),
    ]
    rows = [one._asdict() for one in found.problems]
    columns = [Column("file"), Column("offset", "count"), Column("text", title="problem")]
    table = Table(columns, rows, empty="nothing is damaged")
    session.show(Page(facts, {"problems": table}, main="problems", note=_remedy(found, running)))
    return exits.FAILED if found.damaged or (found.unqueued and not running) else exits.OK


def _remedy(found: Any, running: bool) -> str:
    if found.damaged:
        return "Copy the store first. Then start the broker: it mends queues and skips the damage."
    if found.unqueued and running:
        return (
            "Messages that are in no queue file: a running broker has the newest in memory; after "
            "a crash it writes them at its next start."
        )
    return "Start the broker: it writes the missing entries anew." if found.unqueued else ""


@verb(command, "du", cluster=False)
@_store
def du(session: Session, store: Path) -> View:
    """What takes the room of STORE: its parts, and each topic's share of the log."""
    from gantrymq.cli import store_files

    session.note("reading the log")
    parts = [
        {"part": path.name, "on_disk": store_files.disk_of(path)}
        for path in sorted(store.iterdir())
        if path.is_dir()
    ]
    topics = [
        {"topic": topic, "size": size, "messages": count, "mean": size / count}
        for topic, (size, count) in store_files.usage(store).items()
    ]
    columns = [Column("topic", short=True), Column("size", "size"), Column("messages", "count")]
    tables = {
        "parts": Table([Column("part"), Column("on_disk", "size")], parts),
        "topics": Table([*columns, Column("mean", "size")], topics, empty="the log is empty"),
    }
    return Page([(Column("store"), str(store))], tables, main="topics")


@verb(command, "dump", cluster=False)
@_store
@click.option("--from", "start", type=int, default=0, help="From this log offset on.")
@click.option("--limit", type=int, default=100, show_default=True, help="So many records.")
@click.option("--topic", help="Only records of this topic.")
def dump(_session: Session, store: Path, start: int, limit: int, topic: str | None) -> View:
    """Print the records of STORE's log as they lie there, whatever queue they are in."""
    from gantrymq.cli import store_files
    from gantrymq.cli.decoding import Decoder
    from gantrymq.model import ReceivedMessage

    decode = Decoder()
    found = (
        {"log_offset": offset, **row_of(ReceivedMessage(one, "-"), decode)}
        for _, offset, one in store_files.records(store, start)
        if not isinstance(one, str) and topic in (None, one.topic)
    )
    own = [Column("log_offset", "count"), Column("topic", short=True)]
    columns = [*own, *(one for one in COLUMNS if one.key not in ("topic", "broker"))]
    return Table(columns, list(itertools.islice(found, limit)), empty="no such record")


@verb(command, "cq")
@click.argument("topic")
@click.argument("queue", type=int)
@click.option("--broker", help="At this broker; without it, at the first that has the topic.")
@click.option("--from", "start", type=int, default=0, help="From this queue offset on.")
@click.option("--count", type=int, default=20, show_default=True, help="So many entries.")
@click.option("--group", help="Also whether this group's filter lets each through.")
def cq(
    session: Session,
    topic: str,
    queue: int,
    broker: str | None,
    start: int,
    count: int,
    group: str | None,
) -> View:
    """Show entries of a queue as the broker has them."""
    from gantrymq.flows.topics import brokers_of
    from gantrymq.protocol.statistics import QueryConsumeQueue
    from gantrymq.runtime import run_blocking

    reach, topic = session.admin.reach, session.wrapped(topic)
    at = run_blocking(brokers_of(reach, topic))
    name = broker or next(iter(at))
    if name not in at:
        from gantrymq.errors import InvalidInput

        raise InvalidInput(f"broker {name!r} has no topic {topic}; {', '.join(at)} has")
    reader = None if group is None else session.wrapped(group)
    request = QueryConsumeQueue(topic=topic, queue_id=queue, index=start, count=count, group=reader)
    said = run_blocking(reach.ask(at[name], request))
    rows = [
        {
            "offset": max(start, said.min_index) + number,
            "log_offset": one.log_offset,
            "size": one.size,
            "tags_code": one.tags_code,
            "passes": one.matches if group is not None else None,
        }
        for number, one in enumerate(said.entries)
    ]
    columns = [
        Column("offset", "count"),
        Column("log_offset", "count"),
        Column("size", "count"),
        Column("tags_code"),
        Column("passes", "yes", wide=group is None),
    ]
    facts: list[tuple[Column, Any]] = [
        (Column("broker"), name),
        (Column("from", "count"), said.min_index),
        (Column("to", "count"), said.max_index),
    ]
    return Page(facts, {"entries": Table(columns, rows, empty="no entry")}, main="entries")


@verb(command, "clean", changes=True, output=False)
@click.argument("what", type=click.Choice(list(_CLEANERS)))
@click.option("--broker", "brokers", multiple=True, metavar="NAME", help="At this broker alone.")
def clean(session: Session, what: str, brokers: tuple[str, ...]) -> None:
    """Have brokers tidy up now what they would tidy up by themselves later."""
    from gantrymq.cli import asking
    from gantrymq.flows.clusters import every_master
    from gantrymq.flows.reaching import gather
    from gantrymq.protocol.brokers import CleanConsumeQueues, DeleteExpiredLog
    from gantrymq.protocol.topics import CleanUnusedTopics
    from gantrymq.runtime import run_blocking

    reach = session.admin.reach
    known = run_blocking(every_master(reach))
    at = {name: address for name, address in known.items() if not brokers or name in brokers}
    page = Page([(Column("brokers", "list"), list(at)), (Column("what"), _CLEANERS[what])])
    if not asking.go_ahead(session, f"{_CLEANERS[what]}", page):
        return
    kinds: dict[str, Any] = {
        "queues": CleanConsumeQueues,
        "topics": CleanUnusedTopics,
        "log": DeleteExpiredLog,
    }

    async def ask(name: str) -> Any:
        return await reach.ask(at[name], kinds[what]())

    run_blocking(gather(at, ask)).whole(f"clean {what}")
    session.note(f"{', '.join(at)} has been told to {_CLEANERS[what]}")
