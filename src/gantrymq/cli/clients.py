"""`gantry client`: who is connected, producers and consumers, by protocol, language and version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from gantrymq.cli.shapes import MEMBERS, member_rows
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Table, View

if TYPE_CHECKING:
    from gantrymq.flows.members import Member

command = noun("client", "See who is connected.", "Clients.")


@verb(command, "list", watch=True)
@click.option("--producer", "kind", flag_value="producer", help="Only producers.")
@click.option("--consumer", "kind", flag_value="consumer", help="Only consumers.")
@click.option("--group", help="Only of this group.")
def list_clients(session: Session, kind: str | None, group: str | None) -> View:
    """List the clients that are connected, with their groups and versions."""
    from gantrymq.errors import GantryError

    failures: dict[str, BaseException] = {}
    rows: list[dict[str, Any]] = []
    if kind != "consumer":
        rows += _rows("producer", session.admin.producers(group=group))
    if kind != "producer":
        groups = [group] if group is not None else _groups(session)
        found: dict[str, Member] = {}
        for name in groups:
            try:
                _merge(found, session.admin.group_members(name).members)
            except GantryError as error:
                failures[name] = error
        rows += _rows("consumer", found.values())
    columns = [Column("kind"), *MEMBERS]
    return Table(columns, rows, empty="nobody is connected", failures=failures)


def _groups(session: Session) -> list[str]:
    held = session.admin.list_groups().some("list groups")
    return sorted({group for groups in held.values() for group in groups})


def _merge(found: dict[str, Member], members: Iterable[Member]) -> None:
    for member in members:
        known = found.setdefault(member.client_id, member)
        known.groups.extend(group for group in member.groups if group not in known.groups)


def _rows(kind: str, members: Iterable[Member]) -> list[dict[str, Any]]:
    return [{"kind": kind, **row} for row in member_rows(members)]
