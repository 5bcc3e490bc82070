"""What all verbs have in common: their options, the cluster they talk to, and how they end.

A verb is a function that takes a `Session` and returns what is to be shown:

```python
@verb(command, "list", watch=True)
@click.option("--like")
def list_topics(session: Session, like: str | None) -> View: ...
```

`verb` gives it the options that it shares with others: where the cluster is, how to write, how
often again (`--watch`), and for what changes something `--dry-run` and `--yes`. They may also stand
before the noun (`gantry -o json topic list`); behind the verb wins. What a verb returns is written
once, or again and again until Ctrl-C.
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from gantrymq.cli import exits, names, screen, views
from gantrymq.cli.times import SPAN
from gantrymq.cli.views import Column, Form, Row, View
from gantrymq.errors import GantryError

if TYPE_CHECKING:
    from gantrymq.cli.contexts_file import Target
    from gantrymq.client.admin import Admin
    from gantrymq.client.reader import Reader
    from gantrymq.client.sync_producer import Producer

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT: Final = 5.0


@dataclass(slots=True)
class Given:
    """What the shared options say; None where nobody gave them."""

    namesrv: str | None = None
    context: str | None = None
    timeout: float | None = None
    form: Form | None = None
    watch: float | None = None
    quiet: bool | None = None
    dry_run: bool | None = None
    yes: bool | None = None
    force: bool | None = None

    def over(self, other: Given) -> Given:
        """The same, and what `other` says where this says nothing."""
        own = {f.name: v for f in fields(self) if (v := getattr(self, f.name)) is not None}
        return replace(other, **own)


class Session:
    """One command's way to its cluster and to its user."""

    def __init__(self, given: Given) -> None:
        self.given = given
        self.memory: dict[str, Any] = {}
        """What `--watch` keeps from one time to the next."""
        self._stack = ExitStack()
        self._admin: Admin | None = None

    # --- the cluster ----------------------------------------------------------------------------

    @functools.cached_property
    def target(self) -> Target:
        """The cluster that this command is for."""
        from gantrymq.cli import contexts_file

        return contexts_file.target(self.given.namesrv, self.given.context)

    @property
    def timeout(self) -> float:
        """Seconds that one request may take."""
        return TIMEOUT if self.given.timeout is None else self.given.timeout

    @property
    def admin(self) -> Admin:
        """Looks after the cluster."""
        if self._admin is None:
            from gantrymq.client.admin import Admin

            arguments = self.arguments()
            admin = Admin(self.target.url, timeout=self.timeout, **arguments)
            self._admin = self._stack.enter_context(admin)
        return self._admin

    def wrapped(self, name: str) -> str:
        """A topic's or group's name as brokers know it, for requests that no method wraps."""
        from gantrymq.protocol import names as protocol_names

        return protocol_names.wrap(self.admin.reach.namespace, name)

    def reader(self, **how: Any) -> Reader:
        """Reads parts of topics."""
        from gantrymq.client.reader import Reader

        return self._stack.enter_context(Reader(self.target.url, **how, **self.arguments()))

    def producer(self, **how: Any) -> Producer:
        """Sends messages."""
        from gantrymq.client.sync_producer import Producer

        return self._stack.enter_context(Producer(self.target.url, **how, **self.arguments()))

    def arguments(self) -> dict[str, Any]:
        """What clients of the cluster are told, beside the URL."""
        own = {} if self.given.timeout is None else {"call_timeout": self.given.timeout}
        return {"connect_timeout": min(self.timeout, 3.0)} | dict(self.target.arguments) | own

    def close(self) -> None:
        """Leave the cluster."""
        self._stack.close()

    # --- the user -------------------------------------------------------------------------------

    @property
    def form(self) -> Form:
        """How to write."""
        return self.given.form or "table"

    @property
    def for_people(self) -> bool:
        """Whether people read it, not programs."""
        return self.form in ("table", "wide")

    @property
    def quiet(self) -> bool:
        """Whether to say nothing beside the result."""
        return bool(self.given.quiet)

    @property
    def dry_run(self) -> bool:
        """Whether to change nothing."""
        return bool(self.given.dry_run)

    def note(self, text: str) -> None:
        """Say something beside the result."""
        if not self.quiet:
            screen.note(text)

    def show(self, view: View) -> None:
        """Write a result."""
        out = sys.stdout
        views.write(view, self.form, out, width=screen.width_of(out))
        out.flush()

    def emit(self, columns: Sequence[Column], rows: Iterable[Row]) -> None:
        """Write rows as they come, each at once; as people read them it is the caller's to do."""
        for text in views.stream(columns, rows, self.form):
            sys.stdout.write(text)
            sys.stdout.flush()

    def bar(self, what: str, total: int | None) -> Any:
        """A bar that tells how far it is."""
        return screen.bar(what, total, quiet=self.quiet)


# --- the shared options ---------------------------------------------------------------------------


class SharedOption(click.Option):
    """An option that many verbs have; it fills `Given`, and has a section of the help."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, expose_value=False, callback=_keep, **kwargs)


class OwnOption(SharedOption):
    """An option that fills `Given` and that only some verbs have."""


def _keep(ctx: click.Context, option: click.Parameter, value: Any) -> Any:
    if value is not None:
        given: Given = ctx.meta.setdefault(_key(ctx), Given())
        setattr(given, str(option.name), value)
    return value


def _key(ctx: click.Context) -> str:
    return f"gantrymq.cli.given.{ctx.command_path}"


def _options(*, cluster: bool, output: bool, watch: bool, changes: bool) -> list[click.Parameter]:
    found: list[click.Parameter] = []
    if output:
        found.append(
            SharedOption(
                ["-o", "--output", "form"],
                type=click.Choice(views.FORMS),
                help="How to write the result.  [table]",
            )
        )
    if watch:
        found.append(
            SharedOption(
                ["-w", "--watch", "watch"],
                type=SPAN,
                is_flag=False,
                flag_value=2.0,
                metavar="[SPAN]",
                help="Show it again and again, every 2 s or SPAN.",
            )
        )
    if cluster:
        found += [
            SharedOption(
                ["-n", "--namesrv"],
                metavar="HOST[;HOST]",
                help="Name servers, or a rmq:// address.",
            ),
            SharedOption(["--context"], metavar="NAME", help="A cluster of `gantry context list`."),
            SharedOption(["--timeout"], type=SPAN, help="Time for each request.  [5s]"),
        ]
    if changes:
        found += [
            SharedOption(
                ["--dry-run"],
                is_flag=True,
                default=None,
                help="Say what it would do, and do nothing.",
            ),
            SharedOption(["-y", "--yes"], is_flag=True, default=None, help="Do not ask."),
        ]
    found.append(
        SharedOption(["-q", "--quiet"], is_flag=True, default=None, help="Only the result.")
    )
    return found


class Verb(click.Command):
    """A command that tells of its own options and of the shared ones in two sections."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write both sections."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None and isinstance(param, click.Option):
                (shared if type(param) is SharedOption else own).append(record)
        for title, records in (("Options", own), ("Shared options", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class VerbGroup(click.Group):
    """A noun: its verbs, in the order that is given, and then as they were written."""

    order: Sequence[str] = ()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The verbs."""
        return [
            *(name for name in self.order if name in self.commands),
            *(name for name in self.commands if name not in self.order),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs, each with the first sentence of its help, whole."""
        rows = [
            (name, self.commands[name].get_short_help_str(limit=200))
            for name in self.list_commands(ctx)
            if not self.commands[name].hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def noun(name: str, text: str, short_help: str) -> VerbGroup:
    """A noun without verbs yet."""
    return VerbGroup(name=name, help=text, short_help=short_help)


def global_options() -> list[click.Parameter]:
    """What may also stand before the noun."""
    return _options(cluster=True, output=True, watch=False, changes=False)


def verb(
    group: click.Group,
    name: str,
    *,
    cluster: bool = True,
    output: bool = True,
    watch: bool = False,
    changes: bool = False,
    **attributes: Any,
) -> Callable[[F], click.Command]:
    """Make the function below a verb of `group`; see this module."""

    def decorate(function: F) -> click.Command:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> int:
            return _run(function, click.get_current_context(), args, kwargs)

        made = click.command(name, cls=Verb, **attributes)(run)
        for param in made.params:
            if param.type is click.STRING and param.name in names.TYPES:
                param.type = names.TYPES[param.name]
        made.params += _options(cluster=cluster, output=output, watch=watch, changes=changes)
        group.add_command(made, name)
        return made

    return decorate


def given_to(ctx: click.Context) -> Given:
    """What was given to this command, and before it to those that lead to it."""
    found = Given()
    at: click.Context | None = ctx
    while at is not None:
        found = found.over(ctx.meta.get(_key(at), Given()))
        at = at.parent
    return found


def _run(function: F, ctx: click.Context, args: Any, kwargs: Any) -> int:
    session = Session(given_to(ctx))
    try:
        if session.given.watch is None:
            return _finish(session, function(session, *args, **kwargs))
        return _again(session, lambda: function(session, *args, **kwargs))
    finally:
        session.close()


def _finish(session: Session, result: Any) -> int:
    """Write what a verb returned; its exit code."""
    if isinstance(result, int):
        return result
    if result is None:
        return exits.OK
    session.show(result)
    for name, error in result.failures.items():
        screen.note(f"gantry: {name}: {error}")
    return exits.PARTIAL if result.failures else exits.OK


def _again(session: Session, make: Callable[[], Any]) -> int:
    every = session.given.watch or 2.0
    on_screen = session.for_people and screen.is_terminal(sys.stdout)
    while True:
        try:
            view = make()
        except GantryError as error:  # a broker that restarts is what somebody may be watching for
            screen.note(f"gantry: {error}")
        else:
            if on_screen:
                command = " ".join(sys.argv[1:])
                click.echo(f"{screen.CLEAR}{time.strftime('%H:%M:%S')}  gantry {command}\n")
            code = _finish(session, view)
            if code not in (exits.OK, exits.PARTIAL):
                return code
        time.sleep(every)
