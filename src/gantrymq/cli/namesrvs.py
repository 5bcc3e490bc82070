"""`gantry namesrv`: run a name server, or look after running ones: state, settings, keys."""

from __future__ import annotations

import click

from gantrymq.cli.serve import namesrv as run_command
from gantrymq.cli.serverlike import ServerGroup
from gantrymq.cli.shapes import CHANGES, change_rows, failures_of, pairs
from gantrymq.cli.verbs import Session, VerbGroup, verb
from gantrymq.cli.views import Column, Page, Table, View

command = ServerGroup(
    name="namesrv",
    help="Run a name server, or look after running ones.\n\n"
    "Without a verb it runs one: gantry namesrv --port 9876.",
    run=run_command,
)

config = VerbGroup(name="config", help="Settings of name servers.")
kv = VerbGroup(name="kv", help="The table of keys that name servers keep.")
command.add_command(config)
command.add_command(kv)

_NAMES = (Column("where"), Column("name"), Column("value", short=True))


@verb(command, "status", watch=True)
def status(session: Session) -> View:
    """Whether each name server answers, and what it knows; differences are between them."""
    from gantrymq.errors import GantryError
    from gantrymq.protocol.routing import GetAllTopics, GetClusterInfo
    from gantrymq.runtime import run_blocking

    reach = session.admin.reach
    rows, failures = [], dict[str, BaseException]()
    for address in reach.name_servers:
        try:
            info = run_blocking(reach.ask(address, GetClusterInfo()))
            topics = run_blocking(reach.ask(address, GetAllTopics())).topics
        except GantryError as error:
            failures[address] = error
            rows.append({"address": address, "answers": False})
            continue
        rows.append(
            {
                "address": address,
                "answers": True,
                "clusters": sorted(info.clusters),
                "brokers": sorted(info.brokers),
                "topics": len(topics),
            }
        )
    if len(failures) == len(rows) and rows:
        raise next(iter(failures.values()))
    columns = [
        Column("address"),
        Column("answers", "yes"),
        Column("clusters", "list"),
        Column("brokers", "list", short=True),
        Column("topics", "count"),
    ]
    return Table(columns, rows, failures=failures)


@verb(config, "get")
@click.argument("names", nargs=-1)
def config_get(session: Session, names: tuple[str, ...]) -> View:
    """The settings of every name server, or those of NAMES."""
    said = session.admin.name_server_configs()
    rows = [
        {"where": address, "name": name, "value": value}
        for address, found in said.answers.items()
        for name, value in sorted(found.items())
        if not names or name in names
    ]
    return Table(_NAMES, rows, empty="no such setting", failures=failures_of(said))


@verb(config, "set", changes=True)
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
def config_set(session: Session, settings: tuple[str, ...]) -> View:
    """Change settings of every name server, and read back."""
    changes = session.admin.alter_name_server_config(pairs(settings), dry_run=session.dry_run)
    if session.dry_run:
        session.note("dry run: nothing was changed")
    return Table(CHANGES, change_rows(changes), empty="it is so already")


@verb(kv, "list")
@click.argument("namespace")
def kv_list(session: Session, namespace: str) -> View:
    """Every key of NAMESPACE."""
    found = session.admin.list_keys(namespace)
    rows = [{"key": key, "value": value} for key, value in sorted(found.items())]
    return Table([Column("key"), Column("value", short=True)], rows, empty="no key")


@verb(kv, "get")
@click.argument("namespace")
@click.argument("key")
def kv_get(session: Session, namespace: str, key: str) -> View:
    """The value of KEY in NAMESPACE."""
    from gantrymq.errors import NotFound

    value = session.admin.get_key(namespace, key)
    if value is None:
        raise NotFound.because(f"name servers have no key {key} in {namespace}")
    return Page([(Column("key"), key), (Column("value"), value)])


@verb(kv, "set", output=False, changes=True)
@click.argument("namespace")
@click.argument("key")
@click.argument("value")
def kv_set(session: Session, namespace: str, key: str, value: str) -> None:
    """Set KEY in NAMESPACE at every name server."""
    if session.dry_run:
        session.note(f"dry run: would set {key} of {namespace} to {value}")
        return
    session.admin.put_key(namespace, key, value)
    session.note(f"{key} of {namespace} is {value} now")


@verb(kv, "delete", output=False, changes=True)
@click.argument("namespace")
@click.argument("key")
def kv_delete(session: Session, namespace: str, key: str) -> None:
    """Drop KEY of NAMESPACE at every name server; it shows the value first, and asks."""
    from gantrymq.cli import asking
    from gantrymq.errors import NotFound

    value = session.admin.get_key(namespace, key)
    if value is None:
        raise NotFound.because(f"name servers have no key {key} in {namespace}")
    page = Page([(Column("namespace"), namespace), (Column("key"), key), (Column("value"), value)])
    if asking.go_ahead(session, f"drop {key} of {namespace}", page):
        session.admin.delete_key(namespace, key)
        session.note(f"{key} of {namespace} is gone")
