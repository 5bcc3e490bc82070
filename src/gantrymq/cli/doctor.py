"""`gantry doctor`: is a cluster well, and if not, what helps."""

from __future__ import annotations

import fnmatch
import sys
from typing import Any, Final

import click

from gantrymq.cli import exits, screen
from gantrymq.cli.doctor_checks import BROKER_CHECKS, CLUSTER_CHECKS, GROUP_CHECKS, Scene, look
from gantrymq.cli.findings import COLUMNS, Finding, Level, report, row_of
from gantrymq.cli.verbs import Session, verb
from gantrymq.cli.views import Page, Table

NAMES: Final = (*CLUSTER_CHECKS, *BROKER_CHECKS, *GROUP_CHECKS)


@verb(click.Group("nouns"), "doctor")
@click.option("--check", "wanted", type=click.Choice(NAMES), multiple=True, help="Only this one.")
@click.option("--group", "like", metavar="PATTERN", help="Look at groups like this alone.")
@click.option("--all", "everything", is_flag=True, help="Also what is well.")
def doctor(session: Session, wanted: tuple[str, ...], like: str | None, everything: bool) -> int:
    """Look whether a cluster is well: each finding with what helps.

    Checks name servers, ports, advertised addresses, clocks, disks, versions, features that are
    switched off, and groups: divergent ones, unowned queues, nobody connected. What could not be
    looked at is UNKNOWN, not well. Exit code 1 if there is an error among the findings.
    """
    found = examine(session, set(wanted) or set(NAMES), like)
    shown = [one for one in found if everything or one.level is not Level.OK]
    if not session.for_people:
        session.show(Table(COLUMNS, [row_of(one) for one in shown]))
    else:
        width = screen.width_of(sys.stdout)
        session.show(Page([], text=report(shown, width), note=summary(found)))
    return exits.FAILED if any(one.level is Level.ERROR for one in found) else exits.OK


doctor.short_help = "Is the cluster well? Each finding with its remedy."
command = doctor


def summary(found: list[Finding]) -> str:
    """All findings in one line."""
    counts = {level: sum(one.level is level for one in found) for level in Level}
    parts = [f"{count} {level.name.lower()}" for level, count in counts.items() if count]
    return f"{len(found)} looked at: {', '.join(parts)}"


def examine(session: Session, wanted: set[str], like: str | None) -> list[Finding]:
    """All findings of these checks."""
    scene, found = look(session), list[Finding]()
    for name, cluster_check in CLUSTER_CHECKS.items():
        if name in wanted:
            found += cluster_check(scene)
    for name, broker_check in BROKER_CHECKS.items():
        if name in wanted:
            for state in scene.states:
                found += broker_check(scene, state)
    if wanted & GROUP_CHECKS.keys():
        found += _groups(session, scene, wanted, like)
    return found


def _groups(session: Session, scene: Scene, wanted: set[str], like: str | None) -> list[Finding]:
    from gantrymq.cli import group_findings
    from gantrymq.errors import GantryError

    found: list[Finding] = []
    groups = [one for one in scene.groups if like is None or fnmatch.fnmatchcase(one, like)]
    with session.bar("groups", len(groups)) as bar:
        for group in groups:
            try:
                seen = group_findings.look(session, group)
            except GantryError as error:
                found.append(_unseen(group, error))
                continue
            several: list[Any] = [
                one
                for name, checks in GROUP_CHECKS.items()
                if name in wanted
                for check in checks
                for one in check(seen)
            ]
            found += several or [
                Finding(level=Level.OK, check="group", subject=group, text="nothing is wrong")
            ]
            bar.add()
    return found


def _unseen(group: str, error: Exception) -> Finding:
    return Finding(level=Level.UNKNOWN, check="group", subject=group, text=str(error))
