"""`gantry context`: clusters by name, so that nobody has to remember addresses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from gantrymq.cli import contexts_file
from gantrymq.cli.contexts_file import SECRETS, Contexts
from gantrymq.cli.shapes import pairs
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Page, Table, View
from gantrymq.errors import AlreadyExists

command = noun(
    "context",
    "Clusters by name.\n\nThe first of these that says something wins: --namesrv, --context, "
    "GANTRY_CONTEXT, GANTRY_URL or NAMESRV_ADDR, the current context, localhost:9876.",
    "Clusters by name.",
)


def _file() -> Contexts:
    return contexts_file.load(contexts_file.config_path(os.environ))


@verb(command, "list", cluster=False)
def list_contexts(session: Session) -> View:  # noqa: ARG001
    """List the clusters that have a name here; the current one is marked."""
    file = _file()
    rows = [
        {
            "current": name == file.current,
            "name": name,
            "url": one.get("url"),
            "settings": _masked(one),
        }
        for name, one in sorted(file.contexts.items())
    ]
    columns = [Column("current", "yes"), Column("name"), Column("url"), Column("settings")]
    return Table(columns, rows, empty=f"no context in {file.path}: gantry context add NAME URL")


def _masked(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        key: "***" if key in SECRETS else value for key, value in settings.items() if key != "url"
    }


@verb(command, "add", cluster=False, output=False)
@click.argument("name")
@click.argument("url")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A client's setting.")
@click.option("--secret-file", type=click.Path(path_type=Path), help="File with the secret key.")
@click.option("--use", is_flag=True, help="Make it the current one.")
@click.option("--replace", is_flag=True, help="Replace one of that name.")
def add(
    session: Session,
    name: str,
    url: str,
    settings: tuple[str, ...],
    secret_file: Path | None,
    use: bool,
    replace: bool,
) -> None:
    """Give the cluster at URL (host:9876;host2:9876 or rmq://...) a NAME.

    The first one becomes the current one. With access_key set and no --secret-file, the secret is
    asked for: it does not belong on a command line.
    """
    from gantrymq.client.config import load_config

    file = _file()
    if name in file.contexts and not replace:
        raise AlreadyExists(f"context {name} is there already; --replace replaces it")
    given: dict[str, Any] = {"url": url, **pairs(settings)}
    if secret_file is not None:
        given["secret_key"] = secret_file.read_text("utf-8").strip()
    elif "access_key" in given and "secret_key" not in given:
        given["secret_key"] = click.prompt("Secret key", hide_input=True, err=True)
    own = {key: value for key, value in given.items() if key != "url"}
    whole = url if "://" in url else f"rmq://{url}"
    load_config(whole, environ={}, arguments=own)  # refuses nonsense before it is written
    file.contexts[name] = given
    if use or file.current is None:
        file.current = name
    file.save()
    session.note(f"context {name} is written to {file.path}")


@verb(command, "use", cluster=False, output=False)
@click.argument("name")
def use(session: Session, name: str) -> None:
    """Make NAME the current context."""
    file = _file()
    file.get(name)
    file.current = name
    file.save()
    session.note(f"commands go to {name} now")


@verb(command, "remove", cluster=False, output=False)
@click.argument("name")
def remove(session: Session, name: str) -> None:
    """Forget NAME; the cluster itself is not touched."""
    file = _file()
    file.get(name)
    del file.contexts[name]
    if file.current == name:
        file.current = None
    file.save()
    session.note(f"context {name} is forgotten")


@verb(command, "show")
def show(session: Session) -> View:
    """Which cluster commands go to, and who says so."""
    target = session.target
    return Page([(Column("name_servers"), target.known), (Column("said_by"), target.origin)])


@verb(command, "test")
def test(session: Session) -> View:
    """Whether the cluster answers."""
    from gantrymq.cli.clusters import clusters_table

    session.note(f"{session.target.known} ({session.target.origin})")
    return clusters_table(session)
