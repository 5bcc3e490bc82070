"""`gantry group`: consumer groups listed and looked at, their lag, members and owners."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import times
from gantrymq.cli.shapes import (
    LAGS,
    MEMBERS,
    failures_of,
    lag_rows,
    member_rows,
)
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page, Table, View

if TYPE_CHECKING:
    from gantrymq.flows.progress import GroupLag
    from gantrymq.model import MessageQueue
    from gantrymq.protocol.group_settings import GroupSettings

command = noun("group", "Look at consumer groups, make, change and move them.", "Groups.")

SETTINGS: Final = (
    Column("broker"),
    Column("enabled", "yes"),
    Column("orderly", "yes"),
    Column("broadcast", "yes"),
    Column("max_retries", "count"),
    Column("retry_queues", "count"),
    Column("consume_timeout", "span"),
    Column("attributes"),
)


# --- looking --------------------------------------------------------------------------------------


@verb(command, "list", watch=True)
@click.option("--like", metavar="PATTERN", help="Only names like this: bill*.")
@click.option("-a", "--all", "hidden", is_flag=True, help="Also RocketMQ's own groups.")
@click.option("--sort", type=click.Choice(["lag", "name"]), default="lag", show_default=True)
@click.option("--cluster", metavar="NAME", help="Only groups of this cluster.")
def list_groups(
    session: Session, like: str | None, hidden: bool, sort: str, cluster: str | None
) -> View:
    """List groups with their lag, the largest first.

    Two questions to each broker, however many groups there are.
    """
    admin = session.admin
    held, backlogs = admin.list_groups(cluster=cluster, hidden=hidden), admin.backlogs()
    failures = {**failures_of(held), **backlogs.failures}
    lags: dict[str, int] = {}
    rates: dict[str, float] = {}
    topics: dict[str, set[str]] = {}
    for found in backlogs.answers.values():
        for one in found:
            lags[one.group] = lags.get(one.group, 0) + one.messages
            rates[one.group] = rates.get(one.group, 0.0) + one.consume_tps
            topics.setdefault(one.group, set()).update(one.by_topic)
    groups: dict[str, list[str]] = {}
    for broker, settings in held.answers.items():
        for group in settings:
            groups.setdefault(group, []).append(broker)
    rows: list[dict[str, Any]] = [
        {
            "group": group,
            "lag": lags.get(group),
            "rate": rates.get(group),
            "topics": sorted(topics.get(group, ())),
            "brokers": brokers,
        }
        for group, brokers in groups.items()
        if like is None or fnmatch.fnmatchcase(group, like)
    ]
    rows.sort(key=lambda row: (-(row["lag"] or 0) if sort == "lag" else 0, row["group"]))
    columns = [
        Column("group", short=True),
        Column("lag", "count"),
        Column("rate", "rate", "consumed/s"),
        Column("topics", "list", short=True),
        Column("brokers", "list", wide=True),
    ]
    return Table(columns, rows, empty="no group", failures=failures)


@verb(command, "describe", watch=True)
@click.argument("group")
def describe(session: Session, group: str) -> View:
    """Everything about GROUP on one page: settings, members, what they want, lag."""
    admin = session.admin
    held, there, lag = admin.group_settings(group), admin.group_members(group), _lag(session, group)
    facts = [
        (Column("group"), group),
        (Column("members", "count"), len(there.members)),
        (Column("mode"), there.consume_type),
        (Column("model"), there.message_model),
        (Column("begins"), there.consume_from),
        *lag_facts(lag),
    ]
    wants = [
        {"topic": name, "type": one.expression_type or "TAG", "expression": one.expression}
        for name, one in sorted(there.subscriptions.items())
    ]
    columns = [Column("topic"), Column("type"), Column("expression", short=True)]
    tables = {
        "settings": Table(SETTINGS, [settings_row(b, s) for b, s in sorted(held.items())]),
        "member_list": Table(MEMBERS, member_rows(there.members), empty="nobody is connected"),
        "subscriptions": Table(columns, wants, empty="nobody says what it wants"),
        "queues": Table(LAGS, lag_rows(lag.queues), empty=lag.why or "no queue"),
    }
    return Page(facts, tables, main="queues", failures={**there.failures, **lag.failures})


def settings_row(broker: str, one: GroupSettings) -> dict[str, Any]:
    """What one broker keeps about a group."""
    return {
        "broker": broker,
        "enabled": one.enabled,
        "orderly": one.orderly,
        "broadcast": one.broadcast_enabled,
        "max_retries": one.max_retries,
        "retry_queues": one.retry_queues,
        "consume_timeout": one.consume_timeout_minutes * 60,
        "attributes": one.attributes,
    }


@verb(command, "lag", watch=True)
@click.argument("group")
@click.option("--topic", help="Only this topic.")
@click.option("--owners", is_flag=True, help="Also which member has each queue; asks each of them.")
def lag(session: Session, group: str, topic: str | None, owners: bool) -> View:
    """How far GROUP is behind, in messages and in time, and when it will have caught up.

    A dash is what nobody knows; it is not 0. The time to catch up comes from how the lag changes
    while --watch runs.
    """
    found = _lag(session, group, topic)
    held = owners_of(session, group)[0] if owners else None
    columns = [one for one in LAGS if held is not None or one.key != "owner"]
    facts = [
        (Column("group"), group),
        *lag_facts(found),
        (Column("eta", "span"), _eta(session, found)),
    ]
    table = Table(columns, lag_rows(found.queues, held), empty=found.why or "no queue")
    return Page(facts, {"queues": table}, main="queues", failures=found.failures)


def _lag(session: Session, group: str, topic: str | None = None) -> GroupLag:
    return session.admin.group_lag(group, topic=topic)


def lag_facts(lag: GroupLag) -> list[tuple[Column, Any]]:
    """A group's lag in a few lines."""
    return [
        (Column("lag", "count", "messages behind"), lag.messages),
        (Column("seconds", "span", "time behind"), lag.seconds),
        (Column("rate", "rate", "consumed/s"), lag.consume_tps),
    ]


def _eta(session: Session, lag: GroupLag) -> float | None:
    """Seconds until it has caught up, by how fast the lag shrinks; None where it does not."""
    now, messages = times.now_ms() / 1000, lag.messages
    if messages is None:
        return None
    if messages == 0:
        return 0.0
    seen: list[tuple[float, int]] = session.memory.setdefault("lag", [])
    seen.append((now, messages))
    del seen[:-30]
    (first, before), seconds = seen[0], now - seen[0][0]
    return None if before <= messages or not first else messages / ((before - messages) / seconds)


def owners_of(
    session: Session, group: str
) -> tuple[dict[MessageQueue, str], dict[str, BaseException]]:
    """Which member has each queue, by their own word, and the members that did not say."""
    from gantrymq.errors import GantryError

    found: dict[MessageQueue, str] = {}
    failures: dict[str, BaseException] = {}
    for member in session.admin.group_members(group).members:
        try:
            info = session.admin.running_info(group, member.client_id)
        except GantryError as error:
            failures[member.client_id] = error
            continue
        for queue, state in info.queues.items():
            if not state.dropped:
                found[queue] = member.client_id
    return found, failures


@verb(command, "members", watch=True)
@click.argument("group")
def members(session: Session, group: str) -> View:
    """Who is connected, and whether all of them want the same.

    Members of one group that subscribe differently lose messages; that is told here as a
    divergence, with who wants what.
    """
    there = session.admin.group_members(group)
    diverging, deaf = session.admin.diverging(group) if there.members else ([], {})
    wanted = [
        {"topic": one.topic, "client_id": client, "wants": wants or "not subscribed"}
        for one in diverging
        for client, wants in one.wanted.items()
    ]
    columns = [Column("topic"), Column("client_id", title="client"), Column("wants")]
    facts: list[tuple[Column, Any]] = [
        (Column("group"), group),
        (Column("members", "count"), len(there.members)),
        (Column("mode"), there.consume_type),
        (Column("model"), there.message_model),
        (Column("divergent", "yes"), bool(diverging)),
    ]
    tables = {
        "member_list": Table(MEMBERS, member_rows(there.members), empty="nobody is connected"),
        "divergences": Table(columns, wanted, empty="all members want the same"),
    }
    return Page(facts, tables, main="member_list", failures={**there.failures, **deaf})


@verb(command, "inspect")
@click.argument("group")
@click.argument("member")
@click.option("--stack", is_flag=True, help="Also the stacks of its threads and tasks.")
def inspect(session: Session, group: str, member: str, stack: bool) -> View:
    """What MEMBER of GROUP is doing, by its own word: queues, rates, settings."""
    info = session.admin.running_info(group, member, stacks=stack)
    queues = [
        {
            "topic": queue.topic,
            "broker": queue.broker,
            "queue": queue.queue_id,
            "committed": state.commit_offset,
            "cached": state.cached,
            "cached_mib": state.cached_mib,
            "locked": state.locked,
            "last_pull": state.last_pull_ms or None,
            "last_consume": state.last_consume_ms or None,
        }
        for queue, state in sorted(info.queues.items())
    ]
    rates = [
        {
            "topic": topic,
            "pull_ms": one.pull_ms,
            "consume_ms": one.consume_ms,
            "consumed_rate": one.consumed_tps,
            "failed_rate": one.failed_tps,
            "failed": one.failed,
        }
        for topic, one in sorted(info.topics.items())
    ]
    tables = {
        "queues": Table(_INSPECTED, queues, empty="it has no queue"),
        "rates": Table(_RATES, rates, empty="nothing yet"),
    }
    facts: list[tuple[Column, Any]] = [(Column("group"), group), (Column("member"), member)]
    facts += [(Column(name), value) for name, value in sorted(info.properties.items())]
    if stack and not session.for_people:
        facts.append((Column("stacks"), info.stacks))
    return Page(facts, tables, main="queues", text=info.stacks or "" if stack else "")


_INSPECTED: Final = (
    Column("topic", short=True),
    Column("broker"),
    Column("queue", "count"),
    Column("committed", "count"),
    Column("cached", "count"),
    Column("cached_mib", "count", "MiB"),
    Column("locked", "yes"),
    Column("last_pull", "time"),
    Column("last_consume", "time"),
)
_RATES: Final = (
    Column("topic", short=True),
    Column("pull_ms", "rate"),
    Column("consume_ms", "rate"),
    Column("consumed_rate", "rate", "consumed/s"),
    Column("failed_rate", "rate", "failed/s"),
    Column("failed", "count"),
)


@verb(command, "explain")
@click.argument("group")
def explain(session: Session, group: str) -> View:
    """Say how GROUP is doing, and if it is stuck, why and what helps."""
    from gantrymq.cli.explain import findings_page
    from gantrymq.cli.group_findings import explain_group

    return findings_page(group, "group", explain_group(session, group))


@verb(command, "simulate-assign")
@click.argument("topic")
@click.option(
    "--members",
    "count",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="So many members.",
)
@click.option(
    "--strategy",
    type=click.Choice(["AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH"], case_sensitive=False),
    default="AVG",
    show_default=True,
)
def simulate_assign(session: Session, topic: str, count: int, strategy: str) -> View:
    """Which queues of TOPIC each of so many members would have."""
    from gantrymq.rules import allocation

    ways = {
        "AVG": allocation.allocate_evenly,
        "AVG_BY_CIRCLE": allocation.allocate_in_turn,
        "CONSISTENT_HASH": allocation.by_consistent_hash().allocate,
    }
    with session.reader() as reader:
        queues = reader.queues(topic)
    clients = [f"member-{number + 1}" for number in range(count)]
    rows = []
    for client in clients:
        own = ways[strategy.upper()](client, queues, clients)
        rows.append(
            {
                "member": client,
                "count": len(own),
                "queues": [f"{q.broker}:{q.queue_id}" for q in own],
            }
        )
    return Table([Column("member"), Column("count", "count"), Column("queues", "list")], rows)
