"""`gantry topic`: topics listed, looked at, made, changed and deleted."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import asking
from gantrymq.cli.shapes import CHANGES, QUEUES, change_rows, failures_of, pairs, queue_rows
from gantrymq.cli.times import SPAN
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page, Table, View

if TYPE_CHECKING:
    from gantrymq.flows.previews import TopicDeletion
    from gantrymq.flows.topics import TopicStatus
    from gantrymq.protocol.topics import TopicSettings

command = noun("topic", "Look at topics, make, change and delete them.", "Topics.")

TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY")
KINDS: Final = ("normal", "retry", "dead-letter", "system", "light")
SETTINGS: Final = (
    Column("broker"),
    Column("read_queues", "count"),
    Column("write_queues", "count"),
    Column("permission"),
    Column("ordered", "yes"),
    Column("attributes"),
)
_BARS: Final = " ▁▂▃▄▅▆▇█"
_REMEMBERED: Final = 20


# --- looking --------------------------------------------------------------------------------------


@verb(command, "list", watch=True)
@click.option("--like", metavar="PATTERN", help="Only names like this: ord*, *-retry.")
@click.option("--kind", type=click.Choice(KINDS), help="Only topics of this kind.")
@click.option("-a", "--all", "hidden", is_flag=True, help="Also retry, dead-letter, system topics.")
@click.option("--cluster", metavar="NAME", help="Only topics of this cluster.")
def list_topics(
    session: Session, like: str | None, kind: str | None, hidden: bool, cluster: str | None
) -> View:
    """List topics with their queues and types.

    One question to a name server and one to each broker, however many topics there are.
    """
    from gantrymq.flows import topics
    from gantrymq.runtime import run_blocking

    admin = session.admin
    found = admin.list_topics(cluster=cluster, hidden=hidden or kind not in (None, "normal"))
    settings = admin.all_topic_settings()
    system = run_blocking(topics.system_topics(admin.reach)) if hidden or kind else set()
    rows = [
        _list_row(name, topics.kind_of(name, system), settings.answers)
        for name in _like(found, like)
        if kind in (None, topics.kind_of(name, system))
    ]
    columns = [
        Column("topic", short=True),
        Column("kind"),
        Column("type"),
        Column("queues", "count"),
        Column("permission"),
        Column("brokers", "list", short=True),
        Column("attributes", wide=True),
    ]
    failures = failures_of(settings)
    return Table(columns, rows, empty="no topic", failures=failures)


def _list_row(
    topic: str, kind: str, by_broker: Mapping[str, Mapping[str, TopicSettings]]
) -> dict[str, Any]:
    from gantrymq.flows.topic_changes import permission_text

    held = {broker: topics[topic] for broker, topics in by_broker.items() if topic in topics}
    types = {one.attributes.get("message.type") for one in held.values()}
    permissions = {permission_text(one.perm) for one in held.values()}
    first = next(iter(held.values()), None)
    return {
        "topic": topic,
        "kind": kind,
        "type": types.pop() if len(types) == 1 else None,
        "queues": sum(one.read_queues for one in held.values()) if held else None,
        "permission": "/".join(sorted(permissions)) or None,
        "brokers": sorted(held),
        "attributes": {} if first is None else first.attributes,
    }


def _like(names: Iterable[str], pattern: str | None) -> list[str]:
    return [name for name in names if pattern is None or fnmatch.fnmatchcase(name, pattern)]


@verb(command, "describe", watch=True)
@click.argument("topic")
def describe(session: Session, topic: str) -> View:
    """Everything about TOPIC on one page: settings, queues, how full, who consumes it."""
    found = session.admin.describe_topic(topic)
    status, clusters = found.status, sorted({b.cluster for b in found.route.brokers if b.cluster})
    facts = [
        (Column("topic"), topic),
        (Column("kind"), found.kind),
        (Column("type"), found.message_type),
        (Column("clusters", "list"), clusters),
        (Column("messages", "count"), status.messages),
        (Column("last_stored", "time"), status.last_ms),
        (Column("put_rate", "rate", "messages/s in"), status.put_tps),
        (Column("groups", "list"), found.groups),
    ]
    tables = {
        "settings": Table(SETTINGS, settings_rows(found.settings)),
        "queues": Table(QUEUES, queue_rows(status)),
    }
    failures = {**found.failures, **status.failures}
    return Page(facts, tables, main="queues", failures=failures)


def settings_rows(settings: Mapping[str, TopicSettings]) -> list[dict[str, Any]]:
    """What each broker keeps about a topic."""
    from gantrymq.flows.topic_changes import permission_text

    return [
        {
            "broker": broker,
            "read_queues": one.read_queues,
            "write_queues": one.write_queues,
            "permission": permission_text(one.perm),
            "ordered": one.ordered,
            "attributes": one.attributes,
        }
        for broker, one in sorted(settings.items())
    ]


@verb(command, "route")
@click.argument("topic")
def route(session: Session, topic: str) -> View:
    """Where TOPIC is: what name servers tell clients."""
    from gantrymq.flows.topic_changes import permission_text

    found = session.admin.topic_route(topic)
    addresses = {broker.name: broker for broker in found.brokers}
    rows = [
        {
            "broker": queue.broker,
            "read_queues": queue.read_queues,
            "write_queues": queue.write_queues,
            "permission": permission_text(queue.perm),
            "cluster": addresses[queue.broker].cluster if queue.broker in addresses else None,
            "addresses": {
                str(number): address
                for number, address in sorted(addresses[queue.broker].addresses.items())
            }
            if queue.broker in addresses
            else {},
        }
        for queue in sorted(found.queues, key=lambda queue: queue.broker or "")
    ]
    columns = [
        Column("broker"),
        Column("cluster"),
        Column("read_queues", "count"),
        Column("write_queues", "count"),
        Column("permission"),
        Column("addresses"),
    ]
    return Table(columns, rows, note="Addresses are by broker id; 0 is the master.")


@verb(command, "top", watch=True)
@click.option("--like", metavar="PATTERN", help="Only names like this.")
@click.option("--over", type=SPAN, default=1.0, show_default="1s", help="Measure over this span.")
@click.option("--limit", type=int, default=20, show_default=True, help="So many topics at most.")
def top(session: Session, like: str | None, over: float, limit: int) -> View:
    """The busiest topics: messages a second that come in, measured now.

    With --watch, a small plot of the last rates.
    """
    admin = session.admin
    topics = _like(admin.list_topics(), like)
    before, start = _ends(session, topics), time.monotonic()
    time.sleep(over)
    status = {topic: _status(session, topic) for topic in topics}
    seconds = time.monotonic() - start
    rows: list[dict[str, Any]] = [
        {
            "topic": topic,
            "rate": (_end(one) - before[topic]) / seconds,
            "messages": one.messages,
            "queues": len(one.queues),
            "last_stored": one.last_ms,
        }
        for topic, one in status.items()
        if one is not None and topic in before
    ]
    rows.sort(key=lambda row: (-row["rate"], -(row["messages"] or 0)))
    for row in rows:
        row["trend"] = _trend(session, row["topic"], row["rate"])
    columns = [
        Column("topic", short=True),
        Column("rate", "rate", "in/s"),
        Column("trend", title="trend"),
        Column("messages", "count"),
        Column("queues", "count"),
        Column("last_stored", "time"),
    ]
    return Table(columns, rows[:limit], empty="no topic")


def _status(session: Session, topic: str) -> TopicStatus | None:
    from gantrymq.errors import GantryError

    try:
        return session.admin.topic_status(topic)
    except GantryError:
        return None  # gone since it was listed, or its broker is


def _ends(session: Session, topics: Iterable[str]) -> dict[str, int]:
    found = {topic: _status(session, topic) for topic in topics}
    return {topic: _end(status) for topic, status in found.items() if status is not None}


def _end(status: TopicStatus) -> int:
    return sum(state.max_offset for state in status.queues)


def _trend(session: Session, topic: str, rate: float) -> str:
    rates = [*session.memory.get(topic, []), rate][-_REMEMBERED:]
    session.memory[topic] = rates
    most = max(rates) or 1.0
    return "".join(_BARS[round(one / most * (len(_BARS) - 1))] for one in rates)


@verb(command, "stats")
@click.argument("topic")
@click.option("--sample", type=int, default=10_000, show_default=True, help="Newest messages read.")
def stats(session: Session, topic: str, sample: int) -> View:
    """What is in TOPIC: sizes, tags, keys and senders of its newest messages."""
    from gantrymq.cli.sampling import Sample

    found = Sample()
    status = session.admin.topic_status(topic)
    each = -(-sample // max(1, len(status.queues)))
    with session.reader(on_loss="skip") as reader, session.bar("reading", None) as bar:
        for state in status.queues:
            start = max(state.min_offset, state.max_offset - each)
            for message in reader.messages(state.queue, start, state.max_offset):
                found.add(message)
                bar.add()
    return found.page(topic)


# --- changing -------------------------------------------------------------------------------------


_where = (
    click.option("--cluster", metavar="NAME", help="At all brokers of this cluster."),
    click.option(
        "--broker", "brokers", multiple=True, metavar="NAME", help="At this broker alone."
    ),
)


@verb(command, "create", changes=True)
@click.argument("topic")
@click.option("--queues", type=int, default=8, show_default=True, help="Queues at each broker.")
@click.option("--type", "kind", type=click.Choice(TYPES, case_sensitive=False), help="Of messages.")
@click.option("--perm", default="rw", show_default=True, help="r, w or rw.")
@click.option("--ordered", is_flag=True, help="Keep its queues where they are if a broker leaves.")
@click.option("--attribute", multiple=True, metavar="KEY=VALUE", help="One attribute.")
@_where[0]
@_where[1]
def create(
    session: Session,
    topic: str,
    queues: int,
    kind: str | None,
    perm: str,
    ordered: bool,
    attribute: tuple[str, ...],
    cluster: str | None,
    brokers: tuple[str, ...],
) -> View | None:
    """Make TOPIC; it can be sent to when this returns. It fails if there is one of that name."""
    if session.dry_run:
        session.note(f"dry run: would create topic {topic} with {queues} queues at each broker")
        return None
    wanted: Any = {} if kind is None else {"message_type": kind.upper()}
    held = session.admin.create_topic(
        topic,
        queues=queues,
        permission=perm,
        ordered=ordered,
        attributes=pairs(attribute),
        cluster=cluster,
        brokers=brokers or None,
        **wanted,
    )
    session.note(f"topic {topic} is there")
    return Table(SETTINGS, settings_rows(held))


@verb(command, "alter", changes=True)
@click.argument("topic")
@click.option("--queues", type=int, help="Queues to read and to write.")
@click.option("--read-queues", type=int, help="Queues to read.")
@click.option("--write-queues", type=int, help="Queues to write.")
@click.option("--type", "kind", type=click.Choice(TYPES, case_sensitive=False), help="Of messages.")
@click.option("--perm", help="r, w, rw or none.")
@click.option("--ordered/--unordered", default=None, help="Whether it is an ordered topic.")
@click.option("--attribute", multiple=True, metavar="KEY=VALUE", help="Set one attribute.")
@click.option("--drop", multiple=True, metavar="KEY", help="Drop one attribute.")
@_where[1]
def alter(
    session: Session,
    topic: str,
    kind: str | None,
    perm: str | None,
    attribute: tuple[str, ...],
    drop: tuple[str, ...],
    brokers: tuple[str, ...],
    **counts: Any,
) -> View:
    """Change what is given of TOPIC, and show what changed."""
    wanted: dict[str, str | None] = {**pairs(attribute), **dict.fromkeys(drop)}
    if kind is not None:
        counts["message_type"] = kind.upper()
    changes = session.admin.alter_topic(
        topic,
        permission=perm,
        attributes=wanted,
        brokers=brokers or None,
        dry_run=session.dry_run,
        **counts,
    )
    if session.dry_run:
        session.note("dry run: nothing was changed")
    return Table(CHANGES, change_rows(changes), empty="it is so already")


@verb(command, "delete", changes=True)
@click.argument("topic")
@click.option("--cluster", metavar="NAME", help="In this cluster alone.")
@asking.force_option
def delete(session: Session, topic: str, cluster: str | None) -> View | None:
    """Delete TOPIC with all its messages, after showing who would notice."""
    preview = session.admin.preview_topic_deletion(topic, cluster=cluster)
    in_use = [f"{one.group} has {one.members} members" for one in preview.groups if one.members]
    if preview.put_tps:
        in_use.append(f"{preview.put_tps:.1f} messages/s come in")
    if not asking.go_ahead(
        session, f"delete topic {topic}", deletion_page(preview), name=topic, in_use=in_use
    ):
        return None
    done = session.admin.delete_topic(topic, cluster=cluster)
    session.note(f"topic {topic} is deleted at {', '.join(done)}")
    return None


def deletion_page(preview: TopicDeletion) -> Page:
    """What would go with a topic."""
    facts = [
        (Column("topic"), preview.topic),
        (Column("brokers", "list"), preview.brokers),
        (Column("messages", "count", "messages lost"), preview.messages),
        (Column("last_stored", "time"), preview.last_ms),
        (Column("put_rate", "rate", "messages/s in"), preview.put_tps),
    ]
    columns = [
        Column("group"),
        Column("members", "count"),
        Column("messages", "count", "not consumed"),
    ]
    rows = [
        {"group": one.group, "members": one.members, "messages": one.messages}
        for one in preview.groups
    ]
    groups = Table(columns, rows, empty="nobody consumes it")
    return Page(facts, {"groups": groups}, failures=preview.failures)
