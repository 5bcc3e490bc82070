"""Rows and columns that several nouns show: queues, lags, changes, members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli.views import Column

if TYPE_CHECKING:
    from gantrymq.errors import GantryError
    from gantrymq.flows.configs import Change
    from gantrymq.flows.members import Member
    from gantrymq.flows.progress import QueueLag
    from gantrymq.flows.reaching import Gathered
    from gantrymq.flows.topics import TopicStatus

QUEUES: Final = (
    Column("broker"),
    Column("queue", "count"),
    Column("min_offset", "count", "from"),
    Column("max_offset", "count", "to"),
    Column("messages", "count"),
    Column("last_stored", "time"),
)
CHANGES: Final = (Column("where"), Column("what"), Column("before"), Column("after"))
LAGS: Final = (
    Column("topic", short=True),
    Column("broker"),
    Column("queue", "count"),
    Column("offset", "count"),
    Column("max_offset", "count", "end"),
    Column("lag", "count"),
    Column("seconds", "span", "behind"),
    Column("in_flight", "count"),
    Column("lost", "count", wide=True),
    Column("consumed_at", "time", wide=True),
    Column("owner", short=True),
    Column("why", short=True),
)
MEMBERS: Final = (
    Column("client_id", title="client", short=True),
    Column("address"),
    Column("language"),
    Column("version"),
    Column("groups", "list", short=True),
    Column("brokers", "list", wide=True),
)


def queue_rows(status: TopicStatus) -> list[dict[str, Any]]:
    """The queues of a topic."""
    return [
        {
            "broker": state.queue.broker,
            "queue": state.queue.queue_id,
            "min_offset": state.min_offset,
            "max_offset": state.max_offset,
            "messages": state.messages,
            "last_stored": state.last_ms,
        }
        for state in status.queues
    ]


def change_rows(changes: Iterable[Change]) -> list[dict[str, Any]]:
    """What was changed, or would be."""
    return [
        {"where": one.place, "what": one.name, "before": one.before, "after": one.after}
        for one in changes
    ]


def lag_rows(
    lags: Iterable[QueueLag], owners: Mapping[Any, str] | None = None
) -> list[dict[str, Any]]:
    """How far a group is behind, queue by queue; `owners` by queue where they are known."""
    return [
        {
            "topic": lag.queue.topic,
            "broker": lag.queue.broker,
            "queue": lag.queue.queue_id,
            "offset": lag.offset,
            "max_offset": lag.max_offset,
            "lag": lag.messages,
            "seconds": lag.seconds,
            "in_flight": lag.in_flight,
            "lost": lag.lost,
            "consumed_at": lag.consumed_ms,
            "owner": None if owners is None else owners.get(lag.queue),
            "why": lag.why or "",
        }
        for lag in lags
    ]


def member_rows(members: Iterable[Member]) -> list[dict[str, Any]]:
    """Clients that are connected."""
    return [
        {
            "client_id": one.client_id,
            "address": one.address,
            "language": one.language,
            "version": one.version,
            "groups": one.groups,
            "brokers": one.brokers,
        }
        for one in members
    ]


def failures_of(gathered: Gathered[Any]) -> Mapping[str, GantryError]:
    """Why some servers are missing; that of all is raised when not one answered."""
    if gathered.failures and not gathered.answers:
        gathered.whole("ask")
    return gathered.failures


def pairs(texts: Iterable[str]) -> dict[str, str]:
    """The pairs of `KEY=VALUE` arguments."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        found[key.strip()] = value
    return found
