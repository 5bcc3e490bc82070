"""`gantry broker`: run a broker, or look after running ones: state, settings, draining."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from gantrymq.cli import asking
from gantrymq.cli.serverlike import ServerGroup
from gantrymq.cli.shapes import CHANGES, change_rows, pairs
from gantrymq.cli.times import SPAN
from gantrymq.cli.up import broker as run_command
from gantrymq.cli.verbs import Session, VerbGroup, verb
from gantrymq.cli.views import Column, Page, Table, View

if TYPE_CHECKING:
    from gantrymq.flows.clusters import BrokerState

command = ServerGroup(
    name="broker",
    help="Run a broker, or look after running ones.\n\n"
    "Without a verb it runs one: gantry broker --namesrv host:9876.\n\n"
    "BROKER is a name or an address.",
    run=run_command,
)
config = VerbGroup(name="config", help="Settings of a running broker.")
command.add_command(config)

STATES: Final = (
    Column("cluster"),
    Column("broker"),
    Column("id", "count"),
    Column("address"),
    Column("version"),
    Column("put_rate", "rate", "in/s"),
    Column("get_rate", "rate", "out/s"),
    Column("puts_today", "count", wide=True),
    Column("gets_today", "count", wide=True),
    Column("disk", "ratio"),
    Column("oldest", "time", wide=True),
    Column("booted", "time"),
    Column("state"),
)

_GROUPS: Final = (
    ("life", ("version", "active", "boot", "runtime", "start")),
    ("traffic", ("put", "get", "msg", "transfer", "found", "miss")),
    ("store", ("commitlog", "consumequeue", "disk", "dispatch", "flush", "earliest", "pagecache")),
    ("waiting", ("queue", "pool", "waiting")),
    ("delays", ("schedule", "timer")),
)


def state_row(state: BrokerState) -> dict[str, Any]:
    """One broker in a list."""
    healthy = "ok" if state.is_active in (True, None) else "inactive"
    return {
        "cluster": state.place.cluster,
        "broker": state.place.name,
        "id": state.place.id,
        "address": state.place.address,
        "version": state.version,
        "put_rate": state.put_tps,
        "get_rate": state.get_tps,
        "puts_today": state.puts_today,
        "gets_today": state.gets_today,
        "disk": state.disk_ratio,
        "oldest": state.oldest_ms,
        "booted": state.booted_ms,
        "state": healthy if state.error is None else "no answer",
    }


@verb(command, "list", watch=True)
@click.option("--cluster", metavar="NAME", help="Only those of this cluster.")
def list_brokers(session: Session, cluster: str | None) -> View:
    """List brokers with their rates, disks and versions."""
    return states_table(session.admin.describe_cluster(cluster=cluster))


def states_table(states: list[BrokerState]) -> Table:
    """Brokers with how they are."""
    failures = {one.place.name: one.error for one in states if one.error is not None}
    rows = [state_row(one) for one in states]
    return Table(STATES, rows, empty="no broker has registered", failures=failures)


@verb(command, "status", watch=True)
@click.argument("broker")
@click.option("--raw", is_flag=True, help="Everything it says, as it says it.")
def status(session: Session, broker: str, raw: bool) -> View:
    """How BROKER is doing."""
    state = session.admin.describe_broker(broker)
    facts = [(column, state_row(state)[column.key]) for column in STATES]
    facts.append((Column("waiting_sends", "count"), state.waiting_sends))
    said = state.facts or {}
    columns = [Column("name"), Column("value", short=True)]
    tables: dict[str, Table] = {}
    for name, found in _grouped(said).items() if not raw else [("said", said)]:
        rows = [{"name": key, "value": value} for key, value in sorted(found.items())]
        if rows:
            tables[name] = Table(columns, rows)
    return Page(facts, tables)


def _grouped(said: Any) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {name: {} for name in (*(n for n, _ in _GROUPS), "other")}
    for key, value in said.items():
        home = next(
            (name for name, words in _GROUPS if any(word in key.lower() for word in words)), "other"
        )
        found[home][key] = value
    return found


# --- settings -------------------------------------------------------------------------------------

_SETTINGS: Final = (Column("name"), Column("value", short=True))


@verb(config, "get")
@click.argument("broker")
@click.argument("names", nargs=-1)
def config_get(session: Session, broker: str, names: tuple[str, ...]) -> View:
    """The settings of BROKER, or those of NAMES."""
    found = session.admin.broker_config(broker)
    from gantrymq.flows.configs import check_names

    check_names(dict.fromkeys(names, ""), found, f"broker {broker}")
    rows = [{"name": k, "value": v} for k, v in sorted(found.items()) if not names or k in names]
    return Table(_SETTINGS, rows)


@verb(config, "set", changes=True)
@click.argument("broker")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
def config_set(session: Session, broker: str, settings: tuple[str, ...]) -> View:
    """Change settings of BROKER while it runs, and read back; names it has not are refused."""
    changes = session.admin.alter_broker_config(broker, pairs(settings), dry_run=session.dry_run)
    if session.dry_run:
        session.note("dry run: nothing was changed")
    return Table(CHANGES, change_rows(changes), empty="it is so already")


@verb(config, "diff")
@click.argument("broker")
@click.argument("other")
@click.option("-a", "--all", "everything", is_flag=True, help="Also names, addresses and paths.")
def config_diff(session: Session, broker: str, other: str, everything: bool) -> View:
    """What is set differently at BROKER and at OTHER."""
    one, two = session.admin.broker_config(broker), session.admin.broker_config(other)
    rows = [
        {"name": name, "one": one.get(name), "other": two.get(name)}
        for name in sorted({*one, *two})
        if one.get(name) != two.get(name) and (everything or not _is_own(name))
    ]
    columns = [
        Column("name"),
        Column("one", title=broker, short=True),
        Column("other", title=other, short=True),
    ]
    return Table(columns, rows, empty="they are set alike")


def _is_own(name: str) -> bool:
    """Whether brokers have to differ in this."""
    lowered = name.lower()
    return any(word in lowered for word in ("path", "port", "brokername", "brokerid", "brokerip"))


# --- out of service -------------------------------------------------------------------------------


@verb(command, "drain", output=False, changes=True)
@click.argument("broker")
@click.option("--wait", type=SPAN, default=0.0, help="Wait so long until all is consumed.")
@asking.force_option
def drain(session: Session, broker: str, wait: float) -> None:
    """Have producers send no more to BROKER; consumers go on.

    It holds until `gantry broker undrain`, or until the broker starts again.
    """
    state = session.admin.describe_broker(broker)
    others = [
        place.name
        for place in session.admin.list_brokers(cluster=state.place.cluster)
        if place.is_master and place.name != state.place.name
    ]
    facts: list[tuple[Column, Any]] = [
        (Column("broker"), state.place.name),
        (Column("put_rate", "rate", "messages/s in"), state.put_tps),
        (Column("others", "list", "sent instead to"), others),
    ]
    in_use = [] if others else [f"{state.place.name} is the only broker: nobody can send then"]
    what = f"drain {state.place.name}"
    if not asking.go_ahead(session, what, Page(facts), name=state.place.name, in_use=in_use):
        return
    changed = session.admin.wipe_write_permission(broker)
    session.note(f"{max(changed.values(), default=0)} topics of {broker} take no more messages")
    if wait:
        _until_consumed(session, state.place.name, wait)


def _until_consumed(session: Session, broker: str, wait: float) -> None:
    from gantrymq.errors import CallTimeout

    deadline, first = time.monotonic() + wait, _behind(session, broker)
    with session.bar(f"draining {broker}", first) as bar:
        left = first
        while left:
            if time.monotonic() > deadline:
                raise CallTimeout(f"{left:,} messages of {broker} wait still after {wait:.0f}s")
            time.sleep(0.5)
            now = _behind(session, broker)
            bar.add(max(0, left - now))
            left = now
    session.note(f"all groups have consumed everything of {broker}")


def _behind(session: Session, broker: str) -> int:
    said = session.admin.backlogs().whole("ask for backlogs")
    return sum(one.messages for one in said.get(broker, []))


@verb(command, "undrain", output=False, changes=True)
@click.argument("broker")
def undrain(session: Session, broker: str) -> None:
    """Have producers send to BROKER again."""
    if session.dry_run:
        session.note(f"dry run: would have producers send to {broker} again")
        return
    changed = session.admin.add_write_permission(broker)
    session.note(f"{max(changed.values(), default=0)} topics of {broker} take messages again")
