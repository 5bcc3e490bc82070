"""`gantry pipeline`: Spark Declarative Pipelines that ship with Gantry, and those of users."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import exits, screen, times
from gantrymq.cli.shapes import pairs
from gantrymq.cli.verbs import Session, noun, verb
from gantrymq.cli.views import Column, Table, View
from gantrymq.errors import AlreadyExists, ConfigError

if TYPE_CHECKING:
    from gantrymq.spark.pipelines.running import Batch

command = noun(
    "pipeline",
    "Pipelines on Spark, declared the way Spark declares them.\n\nThose that come with Gantry have "
    "a name; a directory with a spark-pipeline.yml is another one.",
    "Pipelines on Spark: archive topics, and more.",
)

_DATA: Final = click.option(
    "--data", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Where the project, its state and its results are; pipelines/NAME.",
)  # fmt: skip


@verb(command, "list", cluster=False)
def list_pipelines(session: Session) -> View:
    """List the pipelines that come with Gantry; -o wide: what each can be told."""
    from gantrymq.spark.pipelines.shelf import SHELF

    if session.form == "table":
        rows = [{"name": name, "what": project.text} for name, project in SHELF.items()]
        return Table([Column("name"), Column("what")], rows)
    settings = [
        {"name": name, "setting": one.name, "default": one.default, "what": one.text}
        for name, project in SHELF.items()
        for one in project.settings
    ]
    return Table([Column("name"), Column("setting"), Column("default"), Column("what")], settings)


@verb(command, "run", output=False)
@click.argument("name")
@_DATA
@click.option("--set", "told", multiple=True, metavar="KEY=VALUE",
              help="A setting of the pipeline; the runs that follow keep it.")  # fmt: skip
@click.option("--master", metavar="URL", help="Spark's master; all cores of this machine.")
@click.option("--full-refresh", is_flag=True, help="Forget what was done, and begin anew.")
def run(
    session: Session,
    name: str,
    data: Path | None,
    told: tuple[str, ...],
    master: str | None,
    full_refresh: bool,
) -> int:
    """Run the pipeline NAME, or that of the directory NAME, until all that is there is through.

    The next run goes on where this one ended, however it ended.
    """
    _need_spark()
    from gantrymq.spark.pipelines import running

    home = _home(session, name, data, pairs(told))
    with screen.bar(name, None, quiet=session.quiet) as bar:
        watcher = _Watcher(session, bar)
        try:
            secrets = _secrets(session)
            totals = running.run(
                home, watcher, master=master, secrets=secrets, full_refresh=full_refresh
            )
        except KeyboardInterrupt:
            session.note(f"stopped; the next run goes on from what {home} has")
            return exits.INTERRUPTED
    behind = sum(totals.behind.values())
    click.echo(f"{totals.rows:,} rows in {totals.batches:,} batches, {behind:,} behind; in {home}")
    if totals.page is not None:
        click.echo(f"report in {totals.page}")
    return exits.OK


@verb(command, "init", output=False)
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def init(session: Session, directory: Path) -> None:
    """Write a small pipeline into DIRECTORY, with a test, to be changed into what is needed."""
    from gantrymq.spark.pipelines import making, shelf

    if (directory / making.SPEC).exists():
        raise AlreadyExists(f"{directory} has a pipeline already: its {making.SPEC}")
    project = shelf.template(directory.resolve().name)
    making.make(project, directory, {shelf.SERVER: session.target.known})
    session.note(
        f"written: change {directory}/transformations, run pytest in {directory}, and"
        f" then gantry pipeline run {directory}"
    )


@verb(command, "compact", cluster=False)
@_DATA
@click.option("--before", type=times.TIME, help="Only hours that ended before; ten minutes ago.")
def compact(session: Session, data: Path | None, before: datetime | None) -> View:
    """Join the small files of an archive's hours that are over into large ones.

    Nothing is lost or doubled if it is stopped, or if the archive goes on meanwhile.
    """
    _need_spark()
    from gantrymq.spark.pipelines import compacting, making
    from gantrymq.spark.pipelines.shelf import PREFIX

    told = making.read_spec(data or Path("pipelines") / "archive").get("configuration") or {}
    if PREFIX + "path" not in told:
        raise ConfigError(f"{data} has no archive: its {making.SPEC} has no {PREFIX}path")
    found = []
    for done in compacting.compact(Path(told[PREFIX + "path"]), before=before):
        session.note(f"{done.hour}: {done.rows:,} rows, {done.before} files to {done.after}")
        found.append({"hour": done.hour, "rows": done.rows, "before": done.before})
    columns = [Column("hour"), Column("rows", "count"), Column("before", "count", "files before")]
    return Table(columns, found, empty="no hour that is over has files to join")


# --- inside ---------------------------------------------------------------------------------------


class _Watcher:
    """Says how far it is: a bar on a terminal, lines elsewhere."""

    def __init__(self, session: Session, bar: Any) -> None:
        self._session = session
        self._bar = bar

    def batch(self, batch: Batch) -> None:
        self._bar.add(batch.rows)
        self._bar.say(f"batch {batch.number}, {batch.seconds:.1f}s, {batch.behind:,} behind")
        if not screen.is_terminal(sys.stderr):
            self._session.note(str(batch))

    def event(self, text: str) -> None:
        self._bar.say(text)


def _home(session: Session, name: str, data: Path | None, told: dict[str, str]) -> Path:
    """The directory of the project, which is written there if it is one of ours."""
    from gantrymq.spark.pipelines import making, shelf

    if name not in shelf.SHELF and (Path(name) / making.SPEC).is_file():
        if told:
            raise ConfigError(f"--set is for pipelines by name: change {name}/{making.SPEC}")
        return Path(name)
    project = shelf.project(name)
    servers = told.setdefault(shelf.SERVER, session.target.known)
    session.note(f"pipeline {name} of {servers}")
    return making.make(project, data or Path("pipelines") / name, told).parent


def _secrets(session: Session) -> dict[str, str]:
    """What clients of the cluster are told beside its address: it goes into no file."""
    from gantrymq.spark.options import spelled

    found = session.target.arguments
    return {spelled(name): str(value) for name, value in found.items() if name != "name_servers"}


def _need_spark() -> None:
    try:
        import pyspark  # noqa: F401
        import yaml  # noqa: F401
    except ImportError as error:
        raise ConfigError(f"Spark is needed ({error}): pip install 'gantrymq[spark]'") from error
